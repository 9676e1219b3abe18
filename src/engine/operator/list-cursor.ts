/**
 * Cursors of lists: the source and key at which a page ended, as an opaque string. A cursor contains a hash of its
 * filter, because a position in one list means nothing in another.
 */
import { createHash } from 'node:crypto';
import { isUuid } from '../../contract/ids.ts';
import { decodeText, encodeText, invalidCursor } from '../kit/cursor-text.ts';
import { SOURCE_KEYS, type ListSource, type SourceKey } from './list-sources.sql.ts';

export interface ListPosition {
  /** Its index among the sources of the filter. */
  source: number;
  /** Null: at its beginning. */
  after: SourceKey | null;
}

const HASH_BYTES = 8;

/** The same for the same conditions in the same order. */
export function hashOf(conditions: object): string {
  return createHash('sha256')
    .update(JSON.stringify(conditions))
    .digest()
    .subarray(0, HASH_BYTES)
    .toString('base64url');
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
