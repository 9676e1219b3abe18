/**
 * What a refusal must be: an EngineError with a code, the field at fault and a sentence, and no row written anywhere.
 * Shared by the tests of bad input.
 */
import { expect } from 'vitest';
import { isEngineError, type ErrorCode } from '../../src/index.ts';
import type { TestDatabase } from '../../src/testing/test-database.ts';

export interface Refusal {
  code: ErrorCode;
  field: string;
  /** What the sentence must match. */
  says?: RegExp;
}

/** Invalid values, each under a description of what is wrong with it. */
export type Values = Record<string, unknown>;

/** The number of rows in every table of the schema. */
export async function rowCounts(database: TestDatabase): Promise<Record<string, number>> {
  const tables = await database.query<{ table: string }>(
    `SELECT relname AS table FROM pg_class WHERE relnamespace = $1::regnamespace AND relkind = 'r' ORDER BY 1`,
    [database.schema],
  );
  const counted = await database.query<{ name: string; rows: number }>(
    tables.rows
      .map(({ table }) => `SELECT '${table}' AS name, count(*) AS rows FROM ${table}`)
      .join(' UNION ALL '),
  );
  return Object.fromEntries(counted.rows.map(({ name, rows }) => [name, rows]));
}

/** Runs a call that must be refused like this and leave every table unchanged. */
export async function expectRefused(
  database: TestDatabase,
  act: () => unknown,
  { code, field, says }: Refusal,
): Promise<void> {
  const before = await rowCounts(database);
  const error: unknown = await Promise.resolve()
    .then(act)
    .then(
      (answer) => `was accepted: ${JSON.stringify(answer)}`,
      (thrown: unknown) => thrown,
    );
  expect(isEngineError(error) ? { code: error.code, field: error.field } : error).toEqual({ code, field });
  expect((error as Error).message).toMatch(/^\S.*\.$/s);
  if (says !== undefined) expect((error as Error).message).toMatch(says);
  expect(await rowCounts(database)).toEqual(before);
}

/** Strings that cannot be stored. */
export const UNSTORABLE: Values = {
  'the character \\u0000': 'a\u0000b',
  'half a surrogate pair at the end': 'a\uD83D',
  'half a surrogate pair at the start': '\uDE00a',
};
