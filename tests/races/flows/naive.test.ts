/**
 * The races of flows and their checker can fail: each is run on a naive variant of a function, without the assertions
 * that would stop it, and must report the damage.
 */
import { readFile } from 'node:fs/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { RaceFailure } from '../../../src/testing/stepper.ts';
import type { TestDatabase } from '../../../src/testing/test-database.ts';
import { plainDatabase } from '../../setup/database.ts';
import type { FunctionNames } from '../calls.ts';
import { flowArenaOn, type FlowArena } from './arena.ts';
import type { FlowFunctionNames } from './calls.ts';
import { lastTwo, loserCompletes } from './races.ts';
import { NAIVE_FLOWS } from './naive-functions.ts';

const CLOCK_FILE = new URL('../../../sql/testing/clock.sql', import.meta.url);

let database: TestDatabase;

beforeAll(async () => {
  database = await plainDatabase();
  await database.query(await readFile(CLOCK_FILE, 'utf8'));
  for (const text of NAIVE_FLOWS) await database.query(text);
});

afterAll(() => database?.drop());

type Names = FunctionNames & FlowFunctionNames;

async function failureOf(names: Names, race: (arena: FlowArena) => Promise<unknown>): Promise<RaceFailure> {
  const arena = await flowArenaOn(database, names);
  try {
    const failure: unknown = await race(arena).catch((error: unknown) => error);
    if (failure instanceof RaceFailure) return failure;
    throw new Error('the race passed', { cause: failure });
  } finally {
    await arena.close();
  }
}

const LOSSES: [title: string, names: Names, race: (arena: FlowArena) => Promise<unknown>, says: RegExp][] = [
  [
    'the last two before a join, each counted without waiting for the other, both see one missing',
    { complete: 'naive_complete_by_count' },
    lastTwo,
    /has a join that (counts|can be decided)/,
  ],
  [
    'a loser that is stopped by its row alone loses its lease, and nobody is told',
    { siblings: 'naive_stop_by_row' },
    loserCompletes,
    /has a lease event without an end and without a lease/,
  ],
];

describe('on a naive variant', () => {
  it.each(LOSSES)('%s', async (_, names, race, says) => {
    const failure = await failureOf(names, race);
    const cause = failure.cause as Error & { actual?: unknown };
    expect(`${failure.message}\n${JSON.stringify(cause.actual)}`).toMatch(says);
  });
});
