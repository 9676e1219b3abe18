/**
 * Cursors of the event feed: one byte for the kind of cursor and the position as a signed 64-bit big-endian integer,
 * encoded as base64url. To users a cursor is an opaque string.
 */
import { refuse as refuseAs } from './shape/shape.ts';

/** A position in the event feed, to resume from. Opaque: store it and pass it back unchanged. */
export type Cursor = string;

const PREFIX = 0x02;
const BYTES = 9;
const CHARACTERS = 12;
const LAST = 2n ** 63n - 1n;
const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
const TEXT = /^[\w-]*$/;

function refuse(field: string, what: string): never {
  refuseAs(field, what, 'invalid_cursor');
}

/** Returns the cursor of a position. Reading from it continues strictly after that position. */
export function encodeCursor(position: bigint): Cursor {
  if (typeof position !== 'bigint') refuse('position', 'must be a bigint');
  if (position < 0n || position > LAST) refuse('position', 'must be from 0 to 2^63 - 1');
  const high = Number(position >> 32n);
  const low = Number(position & 0xffffffffn);
  return (
    threeBytes((PREFIX << 16) | (high >>> 16)) +
    threeBytes(((high & 0xffff) << 8) | (low >>> 24)) +
    threeBytes(low & 0xffffff)
  );
}

/** Four characters for 24 bits. Written by hand for speed, because every event has a cursor. */
function threeBytes(bits: number): string {
  return (
    ALPHABET[bits >>> 18]! +
    ALPHABET[(bits >>> 12) & 63]! +
    ALPHABET[(bits >>> 6) & 63]! +
    ALPHABET[bits & 63]!
  );
}

/** Returns the position of a cursor; undefined for an empty one, which means "from now". Throws `invalid_cursor`. */
export function decodeCursor(cursor: unknown, field = 'cursor'): bigint | undefined {
  const bytes = cursor instanceof Uint8Array ? cursor : fromText(cursor, field);
  if (bytes.length === 0) return undefined;
  if (bytes.length !== BYTES) refuse(field, `has ${bytes.length} bytes; a cursor has ${BYTES}`);
  if (bytes[0] !== PREFIX) {
    refuse(field, `starts with byte ${bytes[0]}; a cursor of the feed starts with ${PREFIX}`);
  }
  const position = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength).getBigInt64(1);
  if (position < 0n) refuse(field, 'has a negative position');
  return position;
}

function fromText(cursor: unknown, field: string): Uint8Array {
  if (typeof cursor !== 'string') refuse(field, 'must be a cursor, as a string or as bytes');
  if (cursor.length > 4 * CHARACTERS)
    refuse(field, `has ${cursor.length} characters; a cursor has ${CHARACTERS}`);
  // One character over a multiple of four cannot come from whole bytes.
  if (!TEXT.test(cursor) || cursor.length % 4 === 1) refuse(field, 'is not base64url');
  const binary = atob(cursor.replaceAll('-', '+').replaceAll('_', '/'));
  return Uint8Array.from(binary, (character) => character.charCodeAt(0));
}
