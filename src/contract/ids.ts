/**
 * Execution ids and where they live. On the wire an id is `{fp:N}:<uuid>`; N is the partition and is decoded, never
 * recomputed. Minting is the only place that hashes. Uuids are version 7 so that new rows land side by side in
 * the indexes; nobody may read a time out of them.
 */
import { fault, Kind, refuse } from './shape/shape.ts';

export const PARTITION_COUNT = 256;

/** An execution's id on the wire. */
export type ExecutionId = `{fp:${number}}:${string}`;

export interface ParsedExecutionId {
  partition: number;
  uuid: string;
}

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

/** True for the canonical lower-case spelling. */
export function isUuid(text: unknown): text is string {
  return typeof text === 'string' && UUID.test(text);
}

const NO_UUID = fault('must be a UUID');
export const uuidString = new Kind<string>((value) => (isUuid(value) ? undefined : NO_UUID));

/**
 * Splits an execution id into its two parts. Throws `invalid_id`; upper case, blanks or a signed N are not accepted.
 */
export function parseExecutionId(text: unknown, field = 'executionId'): ParsedExecutionId {
  if (typeof text !== 'string') refuse(field, 'must be a string of the form {fp:N}:<uuid>', 'invalid_id');
  if (!text.startsWith('{fp:'))
    refuse(field, 'does not begin with {fp: as an id of the form {fp:N}:<uuid> does', 'invalid_id');
  const close = text.indexOf('}:');
  if (close < 0) refuse(field, 'has no }: between the partition and the uuid', 'invalid_id');
  const partition = partitionIn(text, close);
  if (partition === undefined) {
    refuse(
      field,
      `has a partition that is not a whole number from 0 to ${PARTITION_COUNT - 1}`,
      'invalid_id',
    );
  }
  const uuid = text.slice(close + 2);
  if (!isUuid(uuid)) refuse(field, 'does not end in a lower-case uuid', 'invalid_id');
  return { partition, uuid };
}

const ZERO = 48;

/** The partition between `{fp:` and `}:`, digit by digit: this is done for every call of a lease holder. */
function partitionIn(text: string, close: number): number | undefined {
  if (close < 5 || close > 7 || (close > 5 && text.charCodeAt(4) === ZERO)) return undefined;
  let partition = 0;
  for (let index = 4; index < close; index += 1) {
    const digit = text.charCodeAt(index) - ZERO;
    if (digit < 0 || digit > 9) return undefined;
    partition = partition * 10 + digit;
  }
  return partition < PARTITION_COUNT ? partition : undefined;
}

const PREFIXES = Array.from({ length: PARTITION_COUNT }, (_, partition) => `{fp:${partition}}:` as const);

export function formatExecutionId(partition: number, uuid: string): ExecutionId {
  return `${PREFIXES[partition]!}${uuid}`;
}

/** An id as people write it, as the range of uuids that it stands for. */
export interface IdRange {
  from: string;
  to: string;
  /** Known when the whole id was given. */
  partition: number | null;
}

/** Fewer hex digits of a uuid than this are refused: almost any id begins with them. */
const PREFIX_DIGITS_MIN = 4;
const LOWEST = '00000000-0000-0000-0000-000000000000';
const HIGHEST = 'ffffffff-ffff-ffff-ffff-ffffffffffff';

/**
 * Reads a whole id, a whole uuid, or the beginning of a uuid as it is printed, with its dashes. Throws `invalid_id` for
 * anything else.
 */
export function parseIdPrefix(text: unknown, field = 'prefix'): IdRange {
  if (typeof text === 'string' && text.startsWith('{')) {
    const { uuid, partition } = parseExecutionId(text, field);
    return { from: uuid, to: uuid, partition };
  }
  const digits = typeof text === 'string' ? text.replaceAll('-', '').length : 0;
  if (typeof text === 'string' && digits >= PREFIX_DIGITS_MIN) {
    const [from, to] = [LOWEST, HIGHEST].map((end) => text + end.slice(text.length));
    if (isUuid(from) && isUuid(to)) return { from, to, partition: null };
  }
  refuse(
    field,
    `must be {fp:N}:<uuid>, or the beginning of its uuid: at least ${PREFIX_DIGITS_MIN} hex digits in lower case`,
    'invalid_id',
  );
}

/** A shorter prefix of a uuid is never printed: it would be a part of its time. */
const SHORT_ID_CHARACTERS = 13;

/** The shortest prefix that tells the uuid from its neighbours, the ids before and after it. */
export function shortestPrefix(uuid: string, neighbours: readonly string[]): string {
  const shared = neighbours.map((other) => {
    let length = 0;
    while (length < uuid.length && uuid[length] === other[length]) length += 1;
    return length;
  });
  return uuid.slice(0, Math.max(SHORT_ID_CHARACTERS, ...shared.map((length) => length + 1)));
}

/** CRC-16/XMODEM: polynomial 0x1021, initial value 0, nothing reflected. */
export function crc16(bytes: Uint8Array): number {
  let crc = 0;
  for (const byte of bytes) crc = ((crc << 8) & 0xffff) ^ CRC_TABLE[(crc >> 8) ^ byte]!;
  return crc;
}

const CRC_TABLE = Uint16Array.from({ length: 256 }, (_, byte) => {
  let crc = byte << 8;
  for (let bit = 0; bit < 8; bit += 1) crc = (crc & 0x8000) === 0 ? crc << 1 : (crc << 1) ^ 0x1021;
  return crc & 0xffff;
});

/** The partition of an idempotency key, and with it of the execution submitted under it. */
export function partitionOfIdempotencyKey(namespace: string, key: string): number {
  return crc16(new TextEncoder().encode(`${namespace}\u0000${key}`)) % PARTITION_COUNT;
}

/** The partition of a key, and with it of every execution that has it. */
export function partitionOfKey(namespace: string, key: string): number {
  return crc16(new TextEncoder().encode(`${namespace}${KEY_MARK}${key}`)) % PARTITION_COUNT;
}

/** The home of a topic: where it is published. */
export function partitionOfTopic(namespace: string, topic: string): number {
  return crc16(new TextEncoder().encode(`${namespace}\u0002${topic}`)) % PARTITION_COUNT;
}

/** Between a namespace and a key, and between a key and the idempotency keys that are meant under it. */
export const KEY_MARK = '\u0001';

/** Whether a text could be taken for the id of an execution, or for its uuid. */
export function looksLikeId(text: string): boolean {
  return text.startsWith('{fp:') || isUuid(text.toLowerCase());
}

const UUID_BYTES = 16;
const DASH = 45;
const HEX_CODES = Array.from('0123456789abcdef', (digit) => digit.charCodeAt(0));
/** The bytes of the uuid that is being made, and its characters: an id is made for every execution. */
const bytes = new Uint8Array(UUID_BYTES);
const codes = Array.from({ length: UUID_BYTES * 2 + 4 }, () => DASH);

function formatBytes(): string {
  let at = 0;
  for (let index = 0; index < UUID_BYTES; index += 1) {
    const byte = bytes[index]!;
    codes[at] = HEX_CODES[byte >> 4]!;
    codes[at + 1] = HEX_CODES[byte & 0x0f]!;
    at += index === 3 || index === 5 || index === 7 || index === 9 ? 3 : 2;
  }
  return String.fromCharCode(...codes);
}

/** Lays out a version 7 uuid: 48 bits of milliseconds for index locality, the rest random. */
function layOut(unixMs: number, random: Uint8Array, from: number): void {
  const high = Math.floor(unixMs / 2 ** 32);
  const low = Math.floor(unixMs) >>> 0;
  bytes[0] = high >> 8;
  bytes[1] = high;
  bytes[2] = low >>> 24;
  bytes[3] = low >>> 16;
  bytes[4] = low >>> 8;
  bytes[5] = low;
  for (let index = 6; index < UUID_BYTES; index += 1) bytes[index] = random[from + index - 6]!;
  bytes[6] = (bytes[6]! & 0x0f) | 0x70;
  bytes[8] = (bytes[8]! & 0x3f) | 0x80;
}

export function uuidV7(unixMs: number, random: Uint8Array): string {
  layOut(unixMs, random, 0);
  return formatBytes();
}

/** Mints a solo execution: placed by the hash of its own uuid bytes. Uses ten of the random bytes. */
export function mintExecution(unixMs: number, random: Uint8Array, from = 0): ParsedExecutionId {
  layOut(unixMs, random, from);
  return { partition: crc16(bytes) % PARTITION_COUNT, uuid: formatBytes() };
}
