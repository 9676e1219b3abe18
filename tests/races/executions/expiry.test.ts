/**
 * Races around the expiry of a lease: the reaper against the holder, a clock that advances while a call waits, and the
 * worker that comes back too late. The reaper never waits, and expiry is decided on the locked row.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { tablesWaitedOn } from '../../../src/testing/stepper.ts';
import type { TestDatabase } from '../../../src/testing/test-database.ts';
import { testDatabase } from '../../setup/database.ts';
import { arenaOn, claimAll, meet, runOut, saidTo, transaction } from '../arena.ts';
import type { Arena, Expected, Meeting, Scene } from '../arena.ts';
import { ask, type Lease } from '../calls.ts';
import { endOfLog } from '../invariants.ts';
import {
  holderAndLapse,
  renewBehindLock,
  renewBesideLock,
  renewTwice,
  waitPastExpiry,
} from './known-races.ts';
import { callOf, OPERATIONS, type Operation } from './lease-answers.ts';

let database: TestDatabase;
let arena: Arena;

beforeAll(async () => {
  database = await testDatabase();
  arena = arenaOn(database);
});

afterAll(() => database?.drop());

const lapseAll = ({ leases }: Scene) => arena.calls.lapse(leases);

/** What an operation returns for an expired lease, before and after the reaper came. */
function toldTooLate(operation: Operation): { before: string; after: string; ends: boolean } {
  if (operation === 'cancel') return { before: 'cancelled', after: 'cancelled', ends: true };
  if (operation === 'revoke') return { before: 'revoked', after: 'no_active_lease', ends: true };
  return { before: 'lease_expired', after: 'lease_expired', ends: false };
}

describe('an expired lease', () => {
  it.each(OPERATIONS)('%s and lapse: the reaper skips it while the other holds it', async (operation) => {
    const { before, after, ends } = toldTooLate(operation);
    const table = operation === 'renew' ? null : 'ff_execution';
    await meet(arena, {
      given: runOut(1),
      a: ({ leases }) => callOf(arena.calls, operation, leases),
      b: lapseAll,
      expected: {
        'a then b': { told: [before, ends ? 'nothing' : 'lapsed'], waitsOn: null },
        'b meets a': { told: [before, 'nothing'], waitsOn: null },
        'b then a': { told: [after, 'lapsed'], waitsOn: null },
        'a meets b': { told: [after, 'lapsed'], waitsOn: table },
      },
    });
  });

  it.each([
    ['a retry', runOut(1), 'lapsed'],
    ['a terminal outcome', runOut(1, {}), 'expired'],
  ])('is reaped once by two reapers at the same time, when what follows is %s', async (_, given, word) => {
    const expected = (told: [string, string]): Expected => ({ told, waitsOn: null });
    const meetings: Record<Meeting, Expected> = {
      'a then b': expected([word, 'nothing']),
      'b meets a': expected([word, 'nothing']),
      'b then a': expected(['nothing', word]),
      'a meets b': expected(['nothing', word]),
    };
    await meet(arena, { given, a: lapseAll, b: lapseAll, expected: meetings });
  });
});

describe('a lease that expires meanwhile', () => {
  it.each(['complete', 'renew'] as const)(
    '%s and lapse: one decision, by when the locks were taken',
    async (verb) => {
      const outcomes = await holderAndLapse(arena, verb);
      expect(tablesWaitedOn(outcomes)).toEqual(verb === 'renew' ? [] : ['ff_execution']);
    },
  );

  it('is extended by both of two renewals, and lasts from the last; one that meets the other is told so', async () => {
    await renewTwice(arena);
  });

  it('is not extended by a renewal that met a lock', async () => {
    await renewBehindLock(arena);
  });

  it('is the only one that a worker loses when its execution stays locked', async () => {
    await renewBesideLock(arena);
  });

  it.each([
    ['complete', 'cancel'],
    ['complete', 'renew'],
    ['fail', 'cancel'],
    ['fail', 'renew'],
    ['release', 'cancel'],
    ['release', 'renew'],
    ['pause', 'cancel'],
    ['pause', 'renew'],
  ] as const)('refuses a %s that waited behind a %s until it was too late', async (verb, blocker) => {
    const outcomes = await waitPastExpiry(arena, verb, blocker);
    expect(tablesWaitedOn(outcomes)).toEqual(['ff_execution']);
    const lateWaiters = outcomes.filter(
      (outcome) => outcome.waited.includes('holder.call') && saidTo(outcome, 'holder') === 'lease_expired',
    );
    expect(lateWaiters.length, 'orders in which it waited past the expiry').toBeGreaterThan(0);
  });
});

describe('a worker that comes back after a takeover', () => {
  /** Expired and claimed by another worker; the old lease is kept beside the new. */
  async function takenOver(): Promise<Scene & { old: Lease[] }> {
    const scene = await runOut(1)(arena);
    await ask(arena.through, lapseAll(scene));
    const leases = await claimAll(arena, scene, 'w-2');
    return { ...scene, old: scene.leases, leases, logged: await endOfLog(arena.through) };
  }
  const oldOf = (scene: Scene) => scene.old as Lease[];

  it.each([
    ['complete', 'complete'],
    ['complete', 'renew'],
    ['fail', 'complete'],
    ['release', 'release'],
    ['renew', 'complete'],
    ['renew', 'renew'],
  ] as const)('may not %s, and the new owner may %s unharmed', async (late, verb) => {
    const accepted = { complete: 'completed', renew: 'renewed', release: 'released' }[verb];
    // A late renewal is refused without a lock. Any other locks the execution first, and a renewal does not wait for that.
    const locks = late !== 'renew';
    const told: [string, string] = ['lease_expired', accepted];
    const behindLate: Expected =
      verb === 'renew'
        ? { told: ['lease_expired', 'held'], waitsOn: null }
        : { told, waitsOn: 'ff_execution' };
    await meet(arena, {
      given: takenOver,
      a: (scene) => callOf(arena.calls, late, oldOf(scene)),
      b: ({ leases }) => callOf(arena.calls, verb, leases),
      expected: {
        'a then b': { told, waitsOn: null },
        'b meets a': locks ? behindLate : { told, waitsOn: null },
        'b then a': { told, waitsOn: null },
        'a meets b': { told, waitsOn: locks ? 'ff_execution' : null },
      },
    });
  });

  it('is refused in every order with the reaper and the next owner', async () => {
    await arena.race({
      given: runOut(1),
      sessions: {
        late: transaction(({ leases }) => arena.calls.complete(leases)),
        reaper: transaction(lapseAll),
        taker: transaction(({ routeId }) => arena.calls.claim(routeId, 1, 'w-2')),
      },
      check: async (outcome, scene) => {
        expect(saidTo(outcome, 'late')).toBe('lease_expired');
        if (saidTo(outcome, 'taker') === 'nothing') return;
        const { rows } = await database.query(
          'SELECT execution_id AS id, attempt_index AS attempt, lease_epoch AS epoch FROM ff_lease WHERE execution_id = $1',
          scene.ids,
        );
        expect(await ask(arena.through, arena.calls.complete(rows as Lease[]))).toMatchObject([
          { word: 'completed' },
        ]);
      },
    });
  });
});
