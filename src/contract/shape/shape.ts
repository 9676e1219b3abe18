/**
 * Shapes describe requests and options objects: the keys an object may have, and the kind of each value. A shape is
 * total over its interface (a key that is missing, extra, or optional in only one of the two does not compile) and
 * serves as list of known keys, check and error message. Nothing is coerced or filled in: a value out of range is
 * refused.
 *
 * Valid values cost no allocation: a kind returns `undefined`, and the name of a field is built only for an error.
 */
import { EngineError, type ErrorCode } from '../errors.ts';

/** What is wrong with a value, and where inside it: `.key`, `[index]`, or the empty path for the value itself. */
export interface Fault {
  path: string;
  what: string;
  code: ErrorCode;
}

type FaultOf = (value: unknown) => Fault | undefined;
type Presence = 'given' | 'optional';

/** A fault of the value itself. `what` completes a sentence that starts with the name of the field. */
export function fault(what: string, code: ErrorCode = 'invalid_input'): Fault {
  return { path: '', what, code };
}

/** A fault of an inner value, as a fault of the value that contains it. */
export function faultAt(path: string, inner: Fault): Fault {
  return { ...inner, path: path + inner.path };
}

/** Throws an EngineError: `field` is the subject of its sentence, `what` the rest without the full stop. */
export function refuse(field: string, what: string, code: ErrorCode = 'invalid_input'): never {
  throw new EngineError(code, `${field} ${what}.`, { field });
}

function raise(found: Fault | undefined, field: string): void {
  if (found === undefined) return;
  const { path, what, code } = found;
  refuse(field === '' && path.startsWith('.') ? path.slice(1) : field + path, what, code);
}

/** A check for values of one kind. */
export class Kind<Value, Given extends Presence = 'given'> {
  /** Only for the compiler, to make kinds invariant: `Kind<'on'>` is not `Kind<'on' | 'off'>`, nor the reverse. */
  declare protected readonly exactly: (value: Value) => Value;
  declare protected readonly presence: Given;
  readonly faultOf: FaultOf;

  constructor(faultOf: FaultOf) {
    this.faultOf = faultOf;
  }

  /** Returns the value, or throws an EngineError that names the field. */
  check(value: unknown, field: string): Given extends 'optional' ? Value | undefined : Value {
    raise(this.faultOf(value), field);
    return value as never;
  }

  /** The same kind, but the value may be undefined or left out. Null is a value. */
  optional(): Kind<Value, 'optional'> {
    const { faultOf } = this;
    return new Kind((value) => (value === undefined ? undefined : faultOf(value)));
  }

  /** The same kind with an additional rule, applied to values that pass the check. */
  and(rule: (value: Value) => Fault | undefined): Kind<Value, Given> {
    const { faultOf } = this;
    return new Kind((value) => faultOf(value) ?? rule(value as Value));
  }
}

/** A value whose type is not checked here: a function, or something that its parser checks. Allowed for any key. */
export interface Opaque {
  readonly opaque: never;
}

/** Values are never modified, so readonly and mutable lists are treated alike. */
type Frozen<Value> = Value extends readonly (infer Item)[] ? readonly Item[] : Value;

/** The kinds that may check a value: exactly its own, or an opaque one. */
type KindFor<Value, Given extends Presence> =
  | Kind<Frozen<Value>, Given>
  | Kind<Opaque, Given>
  | (Value extends readonly unknown[] ? Kind<readonly Opaque[], Given> : never);

/** One kind for each key of an interface, optional where the key is optional. */
type Fields<Value> = {
  readonly [Key in keyof Value]-?: object extends Pick<Value, Key>
    ? KindFor<Exclude<Value[Key], undefined>, 'optional'>
    : KindFor<Value[Key], 'given'>;
};

/** An object with known keys, own or inherited. */
export class Shape<Value> extends Kind<Value> {
  /** Finds what is wrong before any value is read: not an object, or an unknown key. */
  readonly keysFault: FaultOf;
  readonly valuesFault: FaultOf;

  constructor(keysFault: FaultOf, valuesFault: FaultOf) {
    super((value) => keysFault(value) ?? valuesFault(value));
    this.keysFault = keysFault;
    this.valuesFault = valuesFault;
  }

  /** Returns the value, or throws. `prefix` comes before the names of its fields; '' for none. */
  override check(value: unknown, field: string, prefix: string = field): Value {
    this.checkKeys(value, field);
    raise(this.valuesFault(value), prefix);
    return value as Value;
  }

  /** Checks the keys without reading any value, for callers that must check something else before the values. */
  checkKeys(value: unknown, field: string): void {
    raise(this.keysFault(value), field);
  }

  override and(rule: (value: Value) => Fault | undefined): Shape<Value> {
    return new Shape(this.keysFault, (value) => this.valuesFault(value) ?? rule(value as Value));
  }
}

const NO_OBJECT = /* @__PURE__ */ fault('must be an object');

/** True for an object with properties of its own choice: not for null, a list, a Map, a Date or the like. */
export function isObject(value: unknown): value is Record<string, unknown> {
  return Object.prototype.toString.call(value) === '[object Object]';
}

/**
 * An object with no keys but these. Unknown keys are refused: a typo that is ignored looks like a setting that works.
 */
export function shape<Value>(fields: Fields<Value>): Shape<Value> {
  const keys = Object.keys(fields);
  const known = new Set(keys);
  const unknown = fault(`is not a known setting (known: ${keys.join(', ')})`);
  return new Shape(
    (value) => {
      if (!isObject(value)) return NO_OBJECT;
      for (const key in value)
        if (!known.has(key) && Object.hasOwn(value, key)) return faultAt(`.${key}`, unknown);
      return undefined;
    },
    valuesFaultOf(fields as Readonly<Record<string, Kind<unknown, Presence>>>),
  );
}

/** An object of which only these keys are read; others are allowed, as where a claim is passed as a lease. */
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

/** One of several shapes, chosen by the value of one key. */
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
