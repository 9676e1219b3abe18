/**
 * The kinds of values that requests and options are made of (see shape.ts). The same mistake gets the same message
 * everywhere. Constants are marked as pure, so that a bundle of definitions contains only those it uses.
 */
import type { ErrorCode } from '../errors.ts';
import { fault, faultAt, Kind, type Opaque } from './shape.ts';

/** Newer than the library the project is compiled against, older than the oldest Node it runs on. */
type WellFormed = { isWellFormed(): boolean };

/** Most bytes of UTF-8 for one UTF-16 unit of a JavaScript string. */
export const MAX_UNIT_BYTES = 3;

/** Whether a string has no lone surrogates. */
export function isWellFormed(text: string): boolean {
  return (text as unknown as WellFormed).isWellFormed();
}

/** Returns why Postgres cannot store a string, or undefined. */
export function textFault(text: string): string | undefined {
  if (text.includes('\u0000')) return 'contains the character \\u0000, which Postgres cannot store';
  if (!isWellFormed(text)) return 'contains half of a surrogate pair, which is not valid text';
  return undefined;
}

/**
 * How many bytes a string has that has more than the limit; undefined for one that fits, which most do without
 * counting.
 */
export function bytesOver(text: string, maxBytes: number): number | undefined {
  if (text.length * MAX_UNIT_BYTES <= maxBytes) return undefined;
  const bytes = new TextEncoder().encode(text).length;
  return bytes > maxBytes ? bytes : undefined;
}

const HALF_A_PAIR = /* @__PURE__ */ fault('contains half of a surrogate pair, which is not valid text');

/** A string that Postgres can store. */
export function string(maxBytes: number, minBytes: 0 | 1 = 1): Kind<string> {
  const other = fault(`must be a string of ${minBytes} to ${maxBytes} bytes without NUL`);
  return new Kind((value) => {
    if (typeof value !== 'string' || value.length < minBytes || value.includes('\u0000')) return other;
    if (bytesOver(value, maxBytes) !== undefined) return other;
    return isWellFormed(value) ? undefined : HALF_A_PAIR;
  });
}

/** A name of printable ASCII, because names appear in index keys, logs and command lines. */
export function asciiName(maxBytes: number): Kind<string> {
  const form = new RegExp(`^[\\x20-\\x7e]{1,${maxBytes}}$`);
  const other = fault(`must be a string of 1 to ${maxBytes} printable ASCII characters`);
  return new Kind((value) => (typeof value === 'string' && form.test(value) ? undefined : other));
}

/** A whole number in a closed range. */
export function whole(min: number, max: number): Kind<number> {
  const other = fault(`must be a whole number from ${min} to ${max}`);
  return new Kind((value) =>
    Number.isInteger(value) && (value as number) >= min && (value as number) <= max ? undefined : other,
  );
}

/** A number in a closed range. */
export function number(min: number, max: number): Kind<number> {
  const other = fault(`must be a number from ${min} to ${max}`);
  return new Kind((value) => (typeof value === 'number' && value >= min && value <= max ? undefined : other));
}

function typed<Value>(type: string, what: string): Kind<Value> {
  const other = fault(what);
  return new Kind((value) => (typeof value === type ? undefined : other));
}

/** A boolean. */
export const flag: Kind<boolean> = /* @__PURE__ */ typed('boolean', 'must be true or false');
/** A string of any length, for values that are truncated or measured later. */
export const anyString: Kind<string> = /* @__PURE__ */ typed('string', 'must be a string');

/** A function; its parameters and return value cannot be checked. */
export const func: Kind<Opaque> = /* @__PURE__ */ typed('function', 'must be a function');

/** Anything, for values that their parser checks: ids, cursors, durations, JSON. */
export const parsed: Kind<Opaque> = /* @__PURE__ */ new Kind(() => undefined);

/** One of a fixed list of strings. */
export function choice<const Word extends string>(words: readonly Word[]): Kind<Word> {
  const known = new Set<unknown>(words);
  const other = fault(`must be one of ${words.join(', ')}`);
  return new Kind((value) => (known.has(value) ? undefined : other));
}

const NO_LIST = /* @__PURE__ */ fault('must be a list');
const EMPTY = /* @__PURE__ */ fault('must not be empty');
const MISSING = /* @__PURE__ */ fault('is missing');

/** A list without holes: loops skip holes, which would shift results to the wrong entries. */
export function list<Item>(item: Kind<Item>, max: number, min: 0 | 1 = 0): Kind<readonly Item[]> {
  return new Kind((value) => {
    if (!Array.isArray(value)) return NO_LIST;
    if (value.length > max) return fault(`has ${value.length} entries; the limit is ${max}`, 'too_many');
    if (value.length < min) return EMPTY;
    for (let index = 0; index < value.length; index += 1) {
      const found = index in value ? item.faultOf(value[index]) : MISSING;
      if (found !== undefined) return faultAt(`[${index}]`, found);
    }
    return undefined;
  });
}

/** The same kind, refused with another error code. */
export function refusedAs<Value>(code: ErrorCode, kind: Kind<Value>): Kind<Value> {
  return new Kind((value) => {
    const found = kind.faultOf(value);
    return found === undefined ? undefined : { ...found, code };
  });
}

/** A string of one kind, or anything else of another. */
export function stringOr<Other>(short: Kind<string>, long: Kind<Other>): Kind<string | Other> {
  return new Kind((value) => (typeof value === 'string' ? short : long).faultOf(value));
}

const NO_SIGNAL = /* @__PURE__ */ fault('must be an AbortSignal');

/** Anything that behaves like an AbortSignal: it may come from another realm, or be a substitute. */
export const abortSignal: Kind<AbortSignal> = /* @__PURE__ */ new Kind((value) => {
  const given = value as AbortSignal | null | undefined;
  const listens =
    typeof given?.addEventListener === 'function' && typeof given.removeEventListener === 'function';
  return listens && typeof given.aborted === 'boolean' ? undefined : NO_SIGNAL;
});
