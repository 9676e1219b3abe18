/**
 * Turns a user's value into JSON text the database can store, or says which part of it cannot be. What JSON would
 * drop or change silently (NaN, undefined inside arrays, functions, the character \u0000) is refused, so that what
 * comes back is what was given.
 */
import { EngineError, isEngineError } from '../contract/errors.ts';
import { bytesOver, textFault } from '../contract/shape/kinds.ts';
import { LIMITS } from '../contract/limits.ts';
import { refuse } from '../contract/shape/shape.ts';

/** JSON text of a value, or null for undefined, which is stored as nothing. */
export function encodeJson(
  value: unknown,
  field: string,
  maxBytes: number = LIMITS.payloadBytes,
): string | null {
  if (value === undefined) return null;
  look(value, field);
  const text = stringify(value, field);
  const bytes = bytesOver(text, maxBytes);
  if (bytes !== undefined) {
    throw new EngineError(
      'payload_too_large',
      `${field} is ${bytes} bytes as JSON; the limit is ${maxBytes}. Store it elsewhere and pass a reference.`,
      { field },
    );
  }
  return text;
}

/** The user's own getters run in here, and may throw anything. */
function look(value: unknown, field: string): void {
  try {
    if (!isPlainJson(value, 0)) checkJson(value, field, 0);
  } catch (cause) {
    if (isEngineError(cause)) throw cause;
    throw new EngineError('invalid_input', `${field} could not be read: a getter of it threw.`, {
      field,
      cause,
    });
  }
}

/** The user's own toJSON runs in here, and may throw anything. */
function stringify(value: unknown, field: string): string {
  try {
    return JSON.stringify(value);
  } catch (cause) {
    throw new EngineError('invalid_input', `${field} could not be turned into JSON.`, { field, cause });
  }
}

/** True for what is certainly fine, without building the names a complaint would need; anything else is looked at closely. */
function isPlainJson(value: unknown, depth: number): boolean {
  switch (typeof value) {
    case 'boolean':
      return true;
    case 'number':
      return Number.isFinite(value);
    case 'string':
      return textFault(value) === undefined;
    case 'object':
      return value === null || (depth < LIMITS.jsonDepth && hasPlainMembers(value, depth + 1));
    default:
      return false;
  }
}

function hasPlainMembers(value: object, depth: number): boolean {
  if (Object.getPrototypeOf(value) !== Object.prototype) return false;
  for (const key in value) {
    const member = (value as Record<string, unknown>)[key];
    if (textFault(key) !== undefined || !isPlainJson(member, depth)) return false;
  }
  return !('toJSON' in value);
}

function checkJson(value: unknown, field: string, depth: number): void {
  switch (typeof value) {
    case 'boolean':
      return;
    case 'number':
      if (!Number.isFinite(value)) unfit(field, `is ${value}, which JSON has no number for`);
      return;
    case 'string':
      checkString(value, field);
      return;
    case 'object':
      if (value === null) return;
      if (depth >= LIMITS.jsonDepth)
        unfit(field, `is nested deeper than ${LIMITS.jsonDepth} levels, or contains itself`);
      checkInside(value, field, depth);
      return;
    default:
      unfit(field, `is a ${typeof value}, which is not JSON`);
  }
}

function checkInside(value: object, field: string, depth: number): void {
  if (Array.isArray(value)) {
    // By index, because forEach passes over holes, and JSON would fill them with null.
    for (let index = 0; index < value.length; index += 1) {
      checkJson(value[index], `${field}[${index}]`, depth + 1);
    }
    return;
  }
  const withJson = value as { toJSON?: (key: string) => unknown };
  if (typeof withJson.toJSON === 'function') {
    checkJson(ownJson(withJson.toJSON.bind(value), field), field, depth + 1);
    return;
  }
  const kind = Object.prototype.toString.call(value).slice(8, -1);
  if (kind !== 'Object') unfit(field, `is a ${kind}, of which JSON would keep nothing`);
  for (const [key, member] of Object.entries(value)) {
    // JSON leaves an undefined member out, which is what an optional property means.
    if (member === undefined) continue;
    checkString(key, `${field} (a key)`);
    checkJson(member, `${field}.${key}`, depth + 1);
  }
}

function ownJson(toJSON: (key: string) => unknown, field: string): unknown {
  try {
    return toJSON('');
  } catch (cause) {
    throw new EngineError('invalid_input', `${field} has a toJSON that threw.`, { field, cause });
  }
}

function checkString(text: string, field: string): void {
  const what = textFault(text);
  if (what !== undefined) unfit(field, what);
}

/** A path into a deep value says enough with its beginning. */
const MAX_FIELD_LENGTH = 120;

function unfit(path: string, what: string): never {
  refuse(path.length > MAX_FIELD_LENGTH ? `${path.slice(0, MAX_FIELD_LENGTH)}…` : path, what);
}
