/**
 * The races of families and their checker can fail: each is run on a naive variant of a function, without the assertions
 * that would stop it, and must report the damage.
 */
import { readFile } from 'node:fs/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { RaceFailure } from '../../../src/testing/stepper.ts';
import type { TestDatabase } from '../../../src/testing/test-database.ts';
import { plainDatabase } from '../../setup/database.ts';
import { arenaOn, type Arena } from '../arena.ts';
import type { FunctionNames } from '../calls.ts';
import { NAIVE_FAMILIES } from './naive-functions.ts';
import { settleAndReplay, spawnAndEnd } from './races.ts';

const CLOCK_FILE = new URL('../../../sql/testing/clock.sql', import.meta.url);

let database: TestDatabase;

beforeAll(async () => {
  database = await plainDatabase();
  await database.query(await readFile(CLOCK_FILE, 'utf8'));
  for (const text of NAIVE_FAMILIES) await database.query(text);
});

afterAll(() => database?.drop());

const LOSSES: [
  title: string,
  names: FunctionNames,
  race: (arena: Arena) => Promise<unknown>,
  says: RegExp,
][] = [
  [
    'a timer that is an order ends the children of a parent that runs again',
    { settleFamily: 'naive_end_by_order' },
    settleAndReplay,
    /stays ended, and its parent runs again/,
  ],
  [
    'a spawn that does not hold the end of its parent up leaves a child behind',
    { spawn: 'naive_spawn_unlocked' },
    spawnAndEnd,
    /is open, and its parent has ended/,
  ],
];

describe('on a naive variant', () => {
  it.each(LOSSES)('%s', async (_, names, race, says) => {
    const failure: unknown = await race(arenaOn(database, names)).catch((error: unknown) => error);
    if (!(failure instanceof RaceFailure)) throw new Error('the race passed', { cause: failure });
    const cause = failure.cause as Error & { actual?: unknown };
    expect(`${failure.message}\n${JSON.stringify(cause.actual)}`).toMatch(says);
  });
});
