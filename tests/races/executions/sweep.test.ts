/**
 * The sweep of claims against whatever happens to their leases meanwhile: a claim, a renewal for longer or for shorter,
 * an end, the reaper, another sweep. It waits for nobody, and it neither loses a lease nor leaves a claim behind.
 */
import { readFile } from 'node:fs/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { RaceFailure } from '../../../src/testing/stepper.ts';
import type { TestDatabase } from '../../../src/testing/test-database.ts';
import { plainDatabase, testDatabase } from '../../setup/database.ts';
import { arenaOn, meet, type Arena } from '../arena.ts';
import { LEASE_MS, LONG_LEASE_MS, SHORT_LEASE_MS } from '../calls.ts';
import { NAIVE_FUNCTIONS } from './naive-functions.ts';
import {
  expectSwept,
  outlasting,
  sweepAnd,
  sweepAndClaimAgain,
  sweepAndFailedLapse,
  sweepAndLapse,
  sweepAndRenew,
  sweepOfTwo,
} from './sweep-races.ts';

const CLOCK_FILE = new URL('../../../sql/testing/clock.sql', import.meta.url);

let database: TestDatabase;
let arena: Arena;

beforeAll(async () => {
  database = await testDatabase();
  arena = arenaOn(database);
});

afterAll(() => database?.drop());

describe('a sweep', () => {
  it('and a claim of what an old claim had: the old one goes, the new one stays', async () => {
    await sweepAndClaimAgain(arena);
  });

  it.each([
    ['for long', LONG_LEASE_MS],
    ['for less than was left', LEASE_MS],
    ['for much less than was left', SHORT_LEASE_MS],
  ])('and a renewal %s: the claim is looked into before its lease lapses', async (_, leaseMs) => {
    await sweepAndRenew(arena, leaseMs);
  });

  it.each([
    ['complete', 'completed'],
    ['release', 'released'],
    ['cancel', 'cancelled'],
    ['revoke', 'revoked'],
  ] as const)('and a %s: the claim stays while it has a lease, and goes with it', async (verb, word) => {
    await sweepAnd(arena, { given: outlasting(1), call: ({ leases }) => arena.calls[verb](leases), word });
  });

  it('and the reaper: a lapsed lease is found until it has ended', async () => {
    await sweepAndLapse(arena);
    await sweepAndFailedLapse(arena);
  });

  it('and both an end and a renewal of leases of one claim', async () => {
    await sweepOfTwo(arena);
  });

  it('and another sweep: they do not wait for each other', async () => {
    const expected = { told: ['swept', 'swept'] as [string, string], waitsOn: null };
    await meet(arena, {
      given: outlasting(1),
      a: () => arena.calls.sweep(),
      b: () => arena.calls.sweep(),
      expected: { 'a then b': expected, 'b meets a': expected, 'b then a': expected, 'a meets b': expected },
      check: (scene) => expectSwept(arena, scene),
    });
  });
});

describe('on a naive variant', () => {
  let plain: TestDatabase;
  beforeAll(async () => {
    plain = await plainDatabase();
    await plain.query(await readFile(CLOCK_FILE, 'utf8'));
    for (const text of NAIVE_FUNCTIONS) await plain.query(text);
  });
  afterAll(() => plain?.drop());

  it.each<[string, string, (arena: Arena) => Promise<unknown>, RegExp]>([
    [
      'that removes claims by their age, a renewed lease loses its claim',
      'naive_sweep_by_age',
      (on) => sweepAndRenew(on, LONG_LEASE_MS),
      /has a lease of a claim that is gone/,
    ],
    [
      'that removes claims by their age, a lapsed lease is never found',
      'naive_sweep_by_age',
      sweepAndFailedLapse,
      /has a lease of a claim that is gone/,
    ],
    [
      'that expects every lease to be renewed, one that lapses is found too late',
      'naive_sweep_by_renewal',
      sweepAndFailedLapse,
      /lapses before anybody looks into its claim/,
    ],
  ])('%s', async (_, sweep, race, says) => {
    const failure: unknown = await race(arenaOn(plain, { sweep })).catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(RaceFailure);
    const { actual } = (failure as RaceFailure).cause as { actual?: unknown };
    expect(`${(failure as RaceFailure).message}\n${JSON.stringify(actual)}`).toMatch(says);
  });
});
