/**
 * Overlapping batches: in opposite order, with a lock held in the middle, two and three at a time. Locks are taken in
 * id order, so nothing deadlocks and no batch is torn. A renewal takes what is free.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { tablesWaitedOn } from '../../../src/testing/stepper.ts';
import type { Interleaving } from '../../../src/testing/stepper.ts';
import type { TestDatabase } from '../../../src/testing/test-database.ts';
import { testDatabase } from '../../setup/database.ts';
import { alone, answersOf, arenaOn, leased, meet, transaction, submitted } from '../arena.ts';
import type { Arena, Scene } from '../arena.ts';
import { oppositeBatches } from './known-races.ts';
import { answersInTurn, type Operation } from './lease-answers.ts';

let database: TestDatabase;
let arena: Arena;

beforeAll(async () => {
  database = await testDatabase();
  arena = arenaOn(database);
});

afterAll(() => database?.drop());

const PAIRS: [Operation, Operation][] = [
  ['complete', 'complete'],
  ['complete', 'renew'],
  ['complete', 'cancel'],
  ['renew', 'renew'],
  ['renew', 'cancel'],
  ['cancel', 'cancel'],
  ['release', 'revoke'],
  ['retry', 'cancel'],
  ['pause', 'cancel'],
  ['pause', 'complete'],
];

describe('two batches in opposite order', () => {
  it.each(PAIRS)('%s and %s: no deadlock, and one of them wins as a whole', async (one, other) => {
    const behindCancel = await oppositeBatches(arena, [one, other], 'cancel');
    const behindRenew = await oppositeBatches(arena, [one, other], 'renew');
    const onlyRenewals = one === 'renew' && other === 'renew';
    expect(tablesWaitedOn([...behindCancel, ...behindRenew])).toEqual(onlyRenewals ? [] : ['ff_execution']);
  });

  it('cancel and cancel of unstarted executions: each ends once', async () => {
    const all = (word: string) => Array.from({ length: 4 }, () => word).join(', ');
    const first: [string, string] = [all('cancelled'), all('already_cancelled')];
    const second: [string, string] = [all('already_cancelled'), all('cancelled')];
    const things = ({ ids }: Scene) => ids.map((id) => ({ id }));
    await meet(arena, {
      given: submitted(4),
      a: (scene) => arena.calls.cancel(things(scene)),
      b: (scene) => arena.calls.cancel(things(scene).toReversed()),
      expected: {
        'a then b': { told: first, waitsOn: null },
        'b meets a': { told: first, waitsOn: 'ff_execution' },
        'b then a': { told: second, waitsOn: null },
        'a meets b': { told: second, waitsOn: 'ff_execution' },
      },
    });
  });
});

describe('three batches over overlapping sets', () => {
  const PARTIES: Operation[] = ['complete', 'renew', 'cancel'];
  const completed = ({ leases }: Scene) => arena.calls.complete(leases.slice(0, 4).toReversed());
  const renewed = ({ leases }: Scene) => arena.calls.renew(leases.slice(1, 5));
  const cancelled = ({ leases }: Scene) => arena.calls.cancel(leases.slice(2, 6).toReversed());

  /** What each party got must be what some order would have returned; a renewal that was `held` did nothing. */
  function expectSomeOrder(outcome: Interleaving, id: string): void {
    const told = new Map<Operation, string>();
    for (const party of PARTIES) {
      const answer = answersOf(outcome, party).find((row) => row.id === id);
      if (answer !== undefined && answer.word !== 'held') told.set(party, answer.word);
    }
    const possible = ordersOf([...told.keys()]).map((order) => {
      const words = answersInTurn(order);
      return [...told.keys()].map((party) => words[order.indexOf(party)]);
    });
    expect(possible).toContainEqual([...told.values()]);
  }

  it('complete, renew and cancel: no deadlock, and all results match one order', async () => {
    const outcomes = await arena.race({
      given: leased(6),
      sessions: {
        complete: transaction(completed),
        renew: transaction(renewed),
        cancel: transaction(cancelled),
      },
      check: (outcome, { ids }) => ids.forEach((id) => expectSomeOrder(outcome, id)),
    });
    expect(tablesWaitedOn(outcomes)).toEqual(['ff_execution']);
  });

  it.each(['revoke', 'renew'] as const)('the same while a %s holds one in the middle', async (blocker) => {
    const outcomes = await arena.race({
      given: leased(6),
      sessions: {
        blocker: transaction(({ leases }) => arena.calls[blocker](leases.slice(2, 3)), 'ROLLBACK'),
        complete: alone(completed),
        renew: alone(renewed),
        cancel: alone(cancelled),
      },
      check: (outcome, { ids }) => ids.forEach((id) => expectSomeOrder(outcome, id)),
    });
    expect(tablesWaitedOn(outcomes)).toEqual(['ff_execution']);
  });
});

function ordersOf<T>(items: T[]): T[][] {
  if (items.length === 0) return [[]];
  return items.flatMap((item, index) => ordersOf(items.toSpliced(index, 1)).map((rest) => [item, ...rest]));
}
