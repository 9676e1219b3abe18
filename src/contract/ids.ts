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

export function formatExecutionId(partition: number, uuid: string): ExecutionId {
  return `{fp:${partition}}:${uuid}`;
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
export function partitionOfKey(namespace: string, key: string): number {
  return crc16(new TextEncoder().encode(`${namespace}\u0000${key}`)) % PARTITION_COUNT;
}

const HEX = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, '0'));

function formatUuid(bytes: Uint8Array): string {
  let text = '';
  for (let index = 0; index < 16; index += 1) {
    text += HEX[bytes[index]!]!;
    if (index === 3 || index === 5 || index === 7 || index === 9) text += '-';
  }
  return text;
}

/** Lays out a version 7 uuid: 48 bits of milliseconds for index locality, the rest random. */
function uuidV7Bytes(unixMs: number, random: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(16);
  bytes.set(random.subarray(0, 10), 6);
  for (let index = 0; index < 6; index += 1)
    bytes[index] = Math.floor(unixMs / 2 ** (8 * (5 - index))) & 0xff;
  bytes[6] = (bytes[6]! & 0x0f) | 0x70;
  bytes[8] = (bytes[8]! & 0x3f) | 0x80;
  return bytes;
}

export function uuidV7(unixMs: number, random: Uint8Array): string {
  return formatUuid(uuidV7Bytes(unixMs, random));
}

/** Mints a solo execution: placed by the hash of its own uuid bytes. */
export function mintExecution(unixMs: number, random: Uint8Array): ParsedExecutionId {
  const bytes = uuidV7Bytes(unixMs, random);
  return { partition: crc16(bytes) % PARTITION_COUNT, uuid: formatUuid(bytes) };
}
