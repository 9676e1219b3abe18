/**
 * Two parties at one leased execution: every pair of complete, fail, retry, release, pause, renew, cancel and revoke,
 * in every order. Whoever gets the lock first wins; the other waits for the execution and learns precisely why not. A
 * renewal does not wait: it leaves alone what another holds.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { tablesWaitedOn } from '../../../src/testing/stepper.ts';
import type { TestDatabase } from '../../../src/testing/test-database.ts';
import { testDatabase } from '../../setup/database.ts';
import { arenaOn, leased, saidTo, transaction, type Arena } from '../arena.ts';
import { pairAtLease } from './known-races.ts';
import { answersInTurn, callOf, OPERATIONS, pairsOfOperations } from './lease-answers.ts';

let database: TestDatabase;
let arena: Arena;

beforeAll(async () => {
  database = await testDatabase();
  arena = arenaOn(database);
});

afterAll(() => database?.drop());

describe('at a leased execution', () => {
  it.each(pairsOfOperations())(
    '%s and %s: the first wins, the other gets the precise refusal',
    async (one, other) => {
      await pairAtLease(arena, [one, other]);
    },
  );

  it.each(OPERATIONS)('%s waits for the execution and for nothing else', async (operation) => {
    const behind = (holder: 'cancel' | 'renew') =>
      arena.race({
        given: leased(1),
        sessions: {
          holder: transaction(({ leases }) => arena.calls[holder](leases), 'ROLLBACK'),
          waiter: transaction(({ leases }) => callOf(arena.calls, operation, leases)),
        },
        permutations: [['holder.call', 'waiter.call', 'holder.ROLLBACK', 'waiter.COMMIT']],
        check: (outcome) => {
          const waits = operation !== 'renew';
          expect(outcome.waited).toEqual(waits ? ['waiter.call'] : []);
          expect([saidTo(outcome, 'waiter')]).toEqual(waits ? answersInTurn([operation]) : ['held']);
        },
      });
    const tables = tablesWaitedOn([...(await behind('cancel')), ...(await behind('renew'))]);
    expect(tables).toEqual(operation === 'renew' ? [] : ['ff_execution']);
  });
});
