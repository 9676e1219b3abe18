/**
 * Checks of single arguments that are made wherever something is given: by the engine before it writes, and by a worker before it lets
 * a handler go on. Each refuses with a code, the field and a sentence.
 */
import { EngineError, type ErrorCode } from '../contract/errors.ts';

/** Newer than the library the project is compiled against, older than the oldest Node it runs on. */
type WellFormed = { isWellFormed(): boolean };

/** The most bytes UTF-8 needs for one unit of a JavaScript text. */
const MAX_UNIT_BYTES = 3;

export function isWellFormed(text: string): boolean {
  return (text as unknown as WellFormed).isWellFormed();
}

/** Why Postgres could not store a text, or undefined. */
export function textFault(text: string): string | undefined {
  if (text.includes('\u0000')) return 'contains the character \\u0000, which Postgres cannot store';
  if (!isWellFormed(text)) return 'contains half of a surrogate pair, which is not valid text';
  return undefined;
}

export function refuse(field: string, what: string, code: ErrorCode = 'invalid_input'): never {
  throw new EngineError(code, `${field} ${what}.`, { field });
}

/** How many bytes a text has that has more than the limit; undefined for one that fits, which most do without counting. */
export function bytesOver(text: string, maxBytes: number): number | undefined {
  if (text.length * MAX_UNIT_BYTES <= maxBytes) return undefined;
  const bytes = new TextEncoder().encode(text).length;
  return bytes > maxBytes ? bytes : undefined;
}

/** A text of 1 to `maxBytes` bytes. */
export function checkText(value: unknown, field: string, maxBytes: number): string {
  if (typeof value !== 'string') refuse(field, 'must be a string');
  if (value.length === 0) refuse(field, 'must not be empty');
  const bytes = bytesOver(value, maxBytes);
  if (bytes !== undefined) refuse(field, `is ${bytes} bytes; the limit is ${maxBytes}`);
  const fault = textFault(value);
  if (fault !== undefined) refuse(field, fault);
  return value;
}

/** An object that has no members but the known ones. An empty field name means that the members stand for themselves. */
export function checkMembers(value: unknown, field: string, known: readonly string[]): void {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) refuse(field, 'must be an object');
  for (const key of Object.keys(value)) {
    if (known.includes(key)) continue;
    refuse(field === '' ? key : `${field}.${key}`, `is not a known setting (known: ${known.join(', ')})`);
  }
}

/** One of a few words; absent is fine. */
export function checkChoice(value: unknown, field: string, choices: readonly string[]): void {
  if (value === undefined || (typeof value === 'string' && choices.includes(value))) return;
  refuse(field, `must be one of ${choices.join(', ')}`);
}
