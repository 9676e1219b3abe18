/**
 * Cursors of lists as opaque strings: a version and a few values. What the values mean is up to the list.
 */
import { EngineError } from '../../contract/errors.ts';

const VERSION = 1;
/** Several times the length of any cursor. */
const MAX_CURSOR_LENGTH = 1_024;

export function invalidCursor(what: string): EngineError {
  return new EngineError('invalid_cursor', `cursor ${what}.`, { field: 'cursor' });
}

export function encodeText(parts: readonly unknown[]): string {
  return Buffer.from(JSON.stringify([VERSION, ...parts])).toString('base64url');
}

/** What `encodeText` was given. */
export function decodeText(cursor: unknown): unknown[] {
  if (typeof cursor !== 'string') throw invalidCursor('must be a string');
  if (cursor.length > MAX_CURSOR_LENGTH || !/^[\w-]+$/.test(cursor)) throw invalidCursor('is malformed');
  let parts: unknown;
  try {
    parts = JSON.parse(Buffer.from(cursor, 'base64url').toString());
  } catch {
    throw invalidCursor('is malformed');
  }
  if (!Array.isArray(parts)) throw invalidCursor('is malformed');
  if (parts[0] !== VERSION) throw invalidCursor('was made by another version: start the list over');
  return parts.slice(1);
}
