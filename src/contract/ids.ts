/**
 * Execution ids and where they live. On the wire an id is `{fp:N}:<uuid>`; N is the partition and is decoded, never
 * recomputed. Minting is the only place that hashes. Uuids are version 7 so that new rows land side by side in
 * the indexes; nobody may read a time out of them.
 */
import { EngineError } from './errors.ts';

export const PARTITION_COUNT = 256;

/** An execution's id on the wire. */
export type ExecutionId = `{fp:${number}}:${string}`;

export interface ParsedExecutionId {
  partition: number;
  uuid: string;
}

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

/** True for the canonical lower-case spelling. */
export function isUuid(text: string): boolean {
  return UUID.test(text);
}

/** Why a text is not an execution id, or its two parts. Never coerces: upper case, blanks or a signed N are faults. */
export function parseExecutionId(text: unknown, field = 'executionId'): ParsedExecutionId {
  if (typeof text !== 'string') throw idFault(field, 'must be a string of the form {fp:N}:<uuid>');
  if (!text.startsWith('{fp:')) throw idFault(field, 'does not begin with {fp:');
  const close = text.indexOf('}:');
  if (close < 0) throw idFault(field, 'has no }: between the partition and the uuid');
  const digits = text.slice(4, close);
  if (!/^(0|[1-9][0-9]{0,2})$/.test(digits) || Number(digits) >= PARTITION_COUNT) {
    throw idFault(field, `has a partition that is not a whole number from 0 to ${PARTITION_COUNT - 1}`);
  }
  const uuid = text.slice(close + 2);
  if (!isUuid(uuid)) throw idFault(field, 'does not end in a lower-case uuid');
  return { partition: Number(digits), uuid };
}

function idFault(field: string, what: string): EngineError {
  return new EngineError('invalid_id', `${field} ${what}.`, { field });
}

export function formatExecutionId(partition: number, uuid: string): ExecutionId {
  return `{fp:${partition}}:${uuid}`;
}

/** CRC-16/XMODEM: polynomial 0x1021, initial value 0, nothing reflected. */
export function crc16(bytes: Uint8Array): number {
  let crc = 0;
  for (const byte of bytes) {
    crc ^= byte << 8;
    for (let bit = 0; bit < 8; bit += 1) {
      crc = (crc & 0x8000) === 0 ? (crc << 1) & 0xffff : ((crc << 1) ^ 0x1021) & 0xffff;
    }
  }
  return crc;
}

export function partitionOfUuid(uuid: string): number {
  const hex = uuid.replaceAll('-', '');
  const bytes = new Uint8Array(16);
  for (let index = 0; index < 16; index += 1) {
    bytes[index] = Number.parseInt(hex.slice(index * 2, index * 2 + 2), 16);
  }
  return crc16(bytes) % PARTITION_COUNT;
}

/** Lays out a version 7 uuid: 48 bits of milliseconds for index locality, the rest random. */
export function uuidV7(unixMs: number, random: Uint8Array): string {
  const bytes = new Uint8Array(16);
  bytes.set(random.subarray(0, 10), 6);
  for (let index = 0; index < 6; index += 1)
    bytes[index] = Math.floor(unixMs / 2 ** (8 * (5 - index))) & 0xff;
  bytes[6] = (bytes[6]! & 0x0f) | 0x70;
  bytes[8] = (bytes[8]! & 0x3f) | 0x80;
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
}

/** Mints the id of a solo execution: placed by the hash of its own uuid bytes. */
export function mintExecutionId(unixMs: number, random: Uint8Array): ExecutionId {
  const uuid = uuidV7(unixMs, random);
  return formatExecutionId(partitionOfUuid(uuid), uuid);
}
