/**
 * Reads the fields of a row of the event log. One that is missing or of another type is an error with the position of the
 * row.
 */
import { EngineError } from '../../contract/errors.ts';
import type { StoredEvent } from './events.sql.ts';

export function text(row: StoredEvent, value: unknown, key: string): string {
  if (typeof value !== 'string') throw malformed(row, key);
  return value;
}

/** Optional values are left out or null. */
export function textOrNull(row: StoredEvent, value: unknown, key: string): string | null {
  return value === undefined || value === null ? null : text(row, value, key);
}

export function whole(row: StoredEvent, value: unknown, key: string): number {
  if (!Number.isSafeInteger(value)) throw malformed(row, key);
  return value as number;
}

/** Numbers that JSON cannot hold are text. */
export function big(row: StoredEvent, value: unknown, key: string): bigint {
  if (typeof value !== 'string' || !/^\d+$/.test(value)) throw malformed(row, key);
  return BigInt(value);
}

export function wholeOrNull(row: StoredEvent, value: unknown, key: string): number | null {
  return value === undefined || value === null ? null : whole(row, value, key);
}

export function numberOrNull(row: StoredEvent, value: unknown, key: string): number | null {
  if (value === undefined || value === null) return null;
  if (typeof value !== 'number') throw malformed(row, key);
  return value;
}

export function textList(row: StoredEvent, value: unknown, key: string): readonly string[] {
  if (!Array.isArray(value)) throw malformed(row, key);
  return Object.freeze(value.map((each: unknown) => text(row, each, key)));
}

export function word<Word extends string>(
  row: StoredEvent,
  value: unknown,
  key: string,
  known: readonly Word[],
): Word {
  const found = known.find((choice) => choice === value);
  if (found === undefined) throw malformed(row, key);
  return found;
}

export function texts(row: StoredEvent, value: unknown, key: string): Record<string, string> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw malformed(row, key);
  for (const each of Object.values(value)) text(row, each, key);
  return value as Record<string, string>;
}

export function unknownType(row: StoredEvent): EngineError {
  return undecodable(row, 'this version does not know its type');
}

export function malformed(row: StoredEvent, key: string): EngineError {
  return undecodable(row, `its ${key} is missing or malformed`);
}

export function undecodable(row: StoredEvent, why: string): EngineError {
  const name = `${row.family}.${row.type}`;
  return new EngineError(
    'undecodable_event',
    `The event at position ${row.position} (${name}) cannot be read: ${why}.`,
  );
}
