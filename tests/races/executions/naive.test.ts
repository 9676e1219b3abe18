/**
 * The races and their checker can fail: each known race is run on a naive variant of a function, without the assertions
 * that would stop it, and must report the damage. It does so only in an order in which a session waited; the orders
 * before that, without a collision, have passed.
 */
import { readFile } from 'node:fs/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { RaceFailure } from '../../../src/testing/stepper.ts';
import type { TestDatabase } from '../../../src/testing/test-database.ts';
import { plainDatabase } from '../../setup/database.ts';
import { arenaOn, type Arena } from '../arena.ts';
import type { FunctionNames } from '../calls.ts';
import {
  claimAndCancel,
  holderAndLapse,
  claimTwice,
  oppositeBatches,
  pairAtLease,
  renewBehindLock,
  renewBesideLock,
  renewTwice,
  waitPastExpiry,
} from './known-races.ts';
import { NAIVE_FUNCTIONS } from './naive-functions.ts';
import { NAIVE_SIGNALS } from '../signals/naive-functions.ts';
import { lastTwoSignals, signalAndSuspend } from '../signals/races.ts';

const CLOCK_FILE = new URL('../../../sql/testing/clock.sql', import.meta.url);

let database: TestDatabase;

beforeAll(async () => {
  database = await plainDatabase();
  await database.query(await readFile(CLOCK_FILE, 'utf8'));
  for (const text of [...NAIVE_FUNCTIONS, ...NAIVE_SIGNALS]) await database.query(text);
});

afterAll(() => database?.drop());

/** The failure of a race on the variant. */
async function failureOf(
  names: FunctionNames,
  race: (arena: Arena) => Promise<unknown>,
): Promise<RaceFailure> {
  const failure: unknown = await race(arenaOn(database, names)).catch((error: unknown) => error);
  if (failure instanceof RaceFailure) return failure;
  throw new Error('the race passed', { cause: failure });
}

interface Loss {
  title: string;
  names: FunctionNames;
  race: (arena: Arena) => Promise<unknown>;
  says: RegExp;
}

const LOSSES: Loss[] = [
  {
    title: 'a completion that writes by ctid does nothing after a renewal, and reports success',
    names: { complete: 'naive_complete_by_address' },
    race: (arena) => pairAtLease(arena, ['renew', 'complete']),
    says: /has a lease that was told to have ended/,
  },
  {
    title: 'a renewal that writes by ctid does nothing after another, and reports success',
    names: { renew: 'naive_renew_by_address' },
    race: renewTwice,
    says: /does not last from its last renewal/,
  },
  {
    title: 'a renewal that waits for a lock extends the lease after it expired',
    names: { renew: 'naive_renew_in_place' },
    race: renewBehindLock,
    says: /expected 'renewed' to be 'held'/,
  },
  {
    title: 'a renewal that waits for a lock loses the other leases',
    names: { renew: 'naive_renew_in_place' },
    race: renewBesideLock,
    says: /who waited/,
  },
  {
    title: 'a claim that does not look again once it has the lock grants an execution twice',
    names: { claim: 'naive_claim_by_queue' },
    race: claimTwice,
    says: /has a lease event without an end and without a lease/,
  },
  {
    title: 'a cancel in one statement does not see the lease granted while it waited',
    names: { cancel: 'naive_cancel_at_once' },
    race: claimAndCancel,
    says: /has a lease event without an end and without a lease/,
  },
  {
    title: 'a reaper that decides before it locks the execution overrules a renewal',
    names: { lapse: 'naive_lapse_before_lock' },
    race: (arena) => holderAndLapse(arena, 'renew'),
    says: /the reaper: expected 'lapsed' to be 'nothing'/,
  },
  {
    title: 'a completion that locks in array order deadlocks',
    names: { complete: 'naive_complete_by_join' },
    race: (arena) => oppositeBatches(arena, ['cancel', 'complete'], 'cancel'),
    says: /deadlocks/,
  },
  {
    title: 'a completion that reads the clock before it waits is accepted after the expiry',
    names: { complete: 'naive_complete_by_join' },
    race: (arena) => waitPastExpiry(arena, 'complete', 'cancel'),
    says: /expected 'completed' to be 'lease_expired'/,
  },
  {
    title: 'a suspension that counts in the statement that locks waits for a signal it already has',
    names: { suspend: 'naive_suspend_at_once' },
    race: signalAndSuspend,
    says: /is suspended for told, for which enough was said/,
  },
  {
    title: 'a signal that looks for the suspension before it locks the execution does not resume it',
    names: { deliver: 'naive_deliver_at_waitpoint' },
    race: signalAndSuspend,
    says: /is suspended for told, for which enough was said/,
  },
  {
    title: 'the last two signals, each counted in the statement that locks, both see one missing',
    names: { deliver: 'naive_deliver_at_waitpoint' },
    race: lastTwoSignals,
    says: /is suspended for told, for which enough was said/,
  },
];

describe('on a naive variant', () => {
  it.each(LOSSES.map((loss) => [loss.title, loss] as const))('%s', async (_, { names, race, says }) => {
    const failure = await failureOf(names, race);
    const cause = failure.cause as Error & { actual?: unknown };
    expect(`${failure.message}\n${JSON.stringify(cause.actual)}`).toMatch(says);
    expect(failure.outcome.waited.length, 'steps that waited in the failing order').toBeGreaterThan(0);
  });
});
