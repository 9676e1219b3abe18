/**
 * Cursors of lists: where in which source a page ended, as text that means nothing to anybody else. A cursor carries a
 * hash of its filter, because a place in one list is no place in another.
 */
import { createHash } from 'node:crypto';
import { EngineError } from '../contract/errors.ts';
import { isUuid } from '../contract/ids.ts';
import { SOURCE_KEYS, type ListSource, type SourceKey } from '../store/list-sources.ts';

export interface ListPosition {
  /** Its place among the sources of the filter. */
  source: number;
  /** Null: at its beginning. */
  after: SourceKey | null;
}

const VERSION = 1;
const HASH_BYTES = 8;
/** Several times what any cursor takes. */
const MAX_CURSOR_LENGTH = 1_024;

export function invalidCursor(what: string): EngineError {
  return new EngineError('invalid_cursor', `cursor ${what}.`, { field: 'cursor' });
}

/** The same for the same conditions, in the order they are written in. */
export function hashOf(conditions: object): string {
  return createHash('sha256')
    .update(JSON.stringify(conditions))
    .digest()
    .subarray(0, HASH_BYTES)
    .toString('base64url');
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
  if (parts[0] !== VERSION) throw invalidCursor('was made by another version: begin the list again');
  return parts.slice(1);
}

export function encodeCursor(hash: string, { source, after }: ListPosition): string {
  return encodeText([hash, source, ...(after ?? [])]);
}

export function decodeCursor(cursor: string, hash: string, sources: readonly ListSource[]): ListPosition {
  const [ofFilter, source, ...after] = decodeText(cursor);
  if (ofFilter !== hash) throw invalidCursor('belongs to a list with another filter');
  const from = typeof source === 'number' ? sources[source]?.from : undefined;
  if (from === undefined) throw invalidCursor('is malformed');
  if (after.length === 0) return { source: source as number, after: null };
  const shape = SOURCE_KEYS[from];
  const fits =
    after.length === shape.length &&
    shape.every((part, index) =>
      part === 'uuid' ? isUuidPart(after[index]) : Number.isSafeInteger(after[index]),
    );
  if (!fits) throw invalidCursor('is malformed');
  return { source: source as number, after: after as SourceKey };
}

function isUuidPart(value: unknown): boolean {
  return typeof value === 'string' && isUuid(value);
}
