/**
 * Declares what a request or an options object looks like, once: the keys it may have, and the kind of each value. A shape is
 * total over its interface (a key that is missing, extra, or optional in only one of the two does not compile), and is the list of
 * known keys, the check and the sentence at once. Nothing is coerced or filled in: what is out of range is refused.
 *
 * What is right costs no allocation: a kind answers `undefined`, and the name of a field is put together only when it is refused.
 */
import { EngineError, type ErrorCode } from './errors.ts';

/** What is wrong with a value, and where inside it: `.key` or `[index]`, or nothing for the value itself. */
export interface Fault {
  path: string;
  what: string;
  code: ErrorCode;
}

type FaultOf = (value: unknown) => Fault | undefined;
type Presence = 'given' | 'optional';

/** One sentence about a value: it is put after the name of its field. */
export function fault(what: string, code: ErrorCode = 'invalid_input'): Fault {
  return { path: '', what, code };
}

/** The same fault, seen from outside. */
export function faultAt(path: string, inner: Fault): Fault {
  return { ...inner, path: path + inner.path };
}

export function refuse(field: string, what: string, code: ErrorCode = 'invalid_input'): never {
  throw new EngineError(code, `${field} ${what}.`, { field });
}

function raise(found: Fault | undefined, field: string): void {
  if (found === undefined) return;
  const { path, what, code } = found;
  refuse(field === '' && path.startsWith('.') ? path.slice(1) : field + path, what, code);
}

/** What values of one kind must be. */
export class Kind<Value, Given extends Presence = 'given'> {
  /** Only a type: a kind of `'on'` is not a kind of `'on' | 'off'`, nor the other way round. */
  declare protected readonly exactly: (value: Value) => Value;
  declare protected readonly presence: Given;
  readonly faultOf: FaultOf;

  constructor(faultOf: FaultOf) {
    this.faultOf = faultOf;
  }

  /** The value, or an EngineError that names the field. */
  check(value: unknown, field: string): Given extends 'optional' ? Value | undefined : Value {
    raise(this.faultOf(value), field);
    return value as never;
  }

  /** May be left out, or be undefined; null is a value. */
  optional(): Kind<Value, 'optional'> {
    const { faultOf } = this;
    return new Kind((value) => (value === undefined ? undefined : faultOf(value)));
  }

  /** The same, and a rule about a value that is right so far. */
  and(rule: (value: Value) => Fault | undefined): Kind<Value, Given> {
    const { faultOf } = this;
    return new Kind((value) => faultOf(value) ?? rule(value as Value));
  }
}

/** A value of which nothing more is known: a function, or what is checked by whatever parses it. It fits any key. */
export interface Opaque {
  readonly opaque: never;
}

/** Nothing that is given is changed, so it makes no difference whether a list is readonly. */
type Frozen<Value> = Value extends readonly (infer Item)[] ? readonly Item[] : Value;

/** The kinds a value may be checked by: exactly its own, or one that asks less of what is checked later. */
type KindFor<Value, Given extends Presence> =
  | Kind<Frozen<Value>, Given>
  | Kind<Opaque, Given>
  | (Value extends readonly unknown[] ? Kind<readonly Opaque[], Given> : never);

/** One kind for each key of an interface, optional where the key is. */
type Fields<Value> = {
  readonly [Key in keyof Value]-?: object extends Pick<Value, Key>
    ? KindFor<Exclude<Value[Key], undefined>, 'optional'>
    : KindFor<Value[Key], 'given'>;
};

/** An object with known keys, which it may have as its own or inherit. */
export class Shape<Value> extends Kind<Value> {
  /** What is wrong with it before any value is read: it is not an object, or has an unknown key. */
  readonly keysFault: FaultOf;
  readonly valuesFault: FaultOf;

  constructor(keysFault: FaultOf, valuesFault: FaultOf) {
    super((value) => keysFault(value) ?? valuesFault(value));
    this.keysFault = keysFault;
    this.valuesFault = valuesFault;
  }

  /** `prefix`: what the names of its fields begin with; '' where they stand for themselves. */
  override check(value: unknown, field: string, prefix: string = field): Value {
    this.checkKeys(value, field);
    raise(this.valuesFault(value), prefix);
    return value as Value;
  }

  /** Reads no value: for a caller that may be told about its values only later. */
  checkKeys(value: unknown, field: string): void {
    raise(this.keysFault(value), field);
  }

  override and(rule: (value: Value) => Fault | undefined): Shape<Value> {
    return new Shape(this.keysFault, (value) => this.valuesFault(value) ?? rule(value as Value));
  }
}

const NO_OBJECT = /* @__PURE__ */ fault('must be an object');

/** True for an object that is neither null nor an array. */
export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** An object that has no keys but these. A misspelled setting that is accepted is believed in. */
export function shape<Value>(fields: Fields<Value>): Shape<Value> {
  const keys = Object.keys(fields);
  const known = new Set(keys);
  const unknown = fault(`is not a known setting (known: ${keys.join(', ')})`);
  return new Shape(
    (value) => {
      if (!isObject(value)) return NO_OBJECT;
      for (const key of Object.keys(value)) if (!known.has(key)) return faultAt(`.${key}`, unknown);
      return undefined;
    },
    valuesFaultOf(fields as Readonly<Record<string, Kind<unknown, Presence>>>),
  );
}

/** An object of which these keys are read; it may be more than that, as a claim is a lease. */
export function openShape<Value>(fields: Fields<Value>): Shape<Value> {
  return new Shape(
    (value) => (isObject(value) ? undefined : NO_OBJECT),
    valuesFaultOf(fields as Readonly<Record<string, Kind<unknown, Presence>>>),
  );
}

function valuesFaultOf(fields: Readonly<Record<string, Kind<unknown, Presence>>>): FaultOf {
  const keys = Object.keys(fields);
  const faults = keys.map((key) => fields[key]!.faultOf);
  return (value) => {
    for (let index = 0; index < keys.length; index += 1) {
      const found = faults[index]!((value as Record<string, unknown>)[keys[index]!]);
      if (found !== undefined) return faultAt(`.${keys[index]!}`, found);
    }
    return undefined;
  };
}

/** One of several shapes: which, says the value of one key. */
export function variants<Value, Tag extends keyof Value & string>(
  tag: Tag,
  shapes: { readonly [Word in Value[Tag] & string]: Shape<Extract<Value, Record<Tag, Word>>> },
): Shape<Value> {
  const byWord = new Map(Object.entries<Shape<unknown>>(shapes as never));
  const other = faultAt(`.${tag}`, fault(`must be one of ${[...byWord.keys()].join(', ')}`));
  const shapeOf = (value: unknown): Shape<unknown> | undefined =>
    byWord.get((value as Record<string, string> | null | undefined)?.[tag] ?? '');
  return new Shape(
    (value) => shapeOf(value)?.keysFault(value),
    (value) => {
      const chosen = shapeOf(value);
      return chosen === undefined ? other : chosen.valuesFault(value);
    },
  );
}
