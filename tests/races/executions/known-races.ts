/**
 * The races that simpler forms of the functions are known to lose. The test files of each subject run them on the
 * engine's functions, which must pass in every order; naive.test.ts runs them on naive variants, which must fail: so
 * every expectation here is shown to catch something.
 */
import { expect } from 'vitest';
import { tablesWaitedOn } from '../../../src/testing/stepper.ts';
import type { Interleaving, StepLike } from '../../../src/testing/stepper.ts';
import {
  alone,
  answersOf,
  isBefore,
  leased,
  meet,
  saidTo,
  submitted,
  transaction,
  type Arena,
  type Race,
  type Scene,
} from '../arena.ts';
import { LEASE_MS, LONG_LEASE_MS, type Lease } from '../calls.ts';
import { answersInTurn, answersMeeting, callOf, type Operation } from './lease-answers.ts';

/** The step that makes a lease granted before the race expire. */
const CLOCK: StepLike<Scene>[] = [
  { name: 'move', sql: 'UPDATE ff_clock SET offset_ms = offset_ms + $1', params: [LEASE_MS + 1] },
];

export function claimAndCancel(arena: Arena): Promise<Interleaving[]> {
  return meet(arena, {
    given: submitted(1),
    a: ({ routeId }) => arena.calls.claim(routeId, 1, 'w-1'),
    b: ({ ids }) => arena.calls.cancel(ids.map((id) => ({ id }))),
    expected: {
      'a then b': { told: ['claimed', 'cancelled'], waitsOn: null },
      'b meets a': { told: ['claimed', 'cancelled'], waitsOn: 'ff_execution' },
      'b then a': { told: ['nothing', 'cancelled'], waitsOn: null },
      'a meets b': { told: ['nothing', 'cancelled'], waitsOn: null },
    },
    check: async ({ routeId, ids }) => {
      const { sql, params } = arena.calls.claim(routeId, 1, 'w-2');
      const second = await arena.through(sql, params);
      expect(second.rows.filter((row) => row.execution_id !== null)).toEqual([]);
      const left = await arena.through('SELECT seq FROM ff_ready WHERE execution_id = ANY ($1)', [ids]);
      expect(left.rows, 'queue rows a second claim left').toEqual([]);
    },
  });
}

export function claimTwice(arena: Arena): Promise<Interleaving[]> {
  return meet(arena, {
    given: submitted(1),
    a: ({ routeId }) => arena.calls.claim(routeId, 1, 'w-1'),
    b: ({ routeId }) => arena.calls.claim(routeId, 1, 'w-2'),
    expected: {
      'a then b': { told: ['claimed', 'nothing'], waitsOn: null },
      'b meets a': { told: ['claimed', 'nothing'], waitsOn: null },
      'b then a': { told: ['nothing', 'claimed'], waitsOn: null },
      'a meets b': { told: ['nothing', 'claimed'], waitsOn: null },
    },
  });
}

/** Two parties want the same lease: the first to get the lock wins, the other learns precisely why not. */
export function pairAtLease(arena: Arena, [one, other]: [Operation, Operation]): Promise<Interleaving[]> {
  const [oneFirst, otherSecond] = answersInTurn([one, other]) as [string, string];
  const [otherFirst, oneSecond] = answersInTurn([other, one]) as [string, string];
  const otherMeets = answersMeeting(one, other);
  const oneMeets = answersMeeting(other, one);
  return meet(arena, {
    given: leased(1),
    a: ({ leases }) => callOf(arena.calls, one, leases),
    b: ({ leases }) => callOf(arena.calls, other, leases),
    expected: {
      'a then b': { told: [oneFirst, otherSecond], waitsOn: null },
      'b meets a': { told: [otherMeets.told[0]!, otherMeets.told[1]!], waitsOn: otherMeets.waitsOn },
      'b then a': { told: [oneSecond, otherFirst], waitsOn: null },
      'a meets b': { told: [oneMeets.told[1]!, oneMeets.told[0]!], waitsOn: oneMeets.waitsOn },
    },
  });
}

/** Whether one session made its call while the transaction of another was open. */
function meetsOpen(outcome: Interleaving, one: string, other: string): boolean {
  return (
    isBefore(outcome, `${other}.call`, `${one}.call`) && isBefore(outcome, `${one}.call`, `${other}.COMMIT`)
  );
}

/** Both extend, or one finds the lease held; it must last from the later one, however far the clock moved in between. */
export function renewTwice(arena: Arena): Promise<Interleaving[]> {
  const renew = ({ leases }: Scene) => arena.calls.renew(leases, LONG_LEASE_MS);
  return arena.race({
    given: async (on) => {
      const scene = await leased(1)(on);
      const { sql, params } = renew(scene);
      await on.through(sql, params);
      const [last] = (await on.through('SELECT max(ev_id) AS ev_id FROM ff_event')).rows;
      return { ...scene, logged: Number(last?.ev_id) };
    },
    sessions: { a: transaction(renew), b: transaction(renew), clock: CLOCK },
    check: (outcome) => {
      expect([saidTo(outcome, 'a'), saidTo(outcome, 'b')]).toEqual([
        meetsOpen(outcome, 'a', 'b') ? 'held' : 'renewed',
        meetsOpen(outcome, 'b', 'a') ? 'held' : 'renewed',
      ]);
      expect(outcome.waited, 'who waited').toEqual([]);
    },
  });
}

/** When a holder's call was decided: at once or, if it had to wait, when the other transaction ended. */
function decidedLate(outcome: Interleaving, call: string, otherEnd: string): boolean {
  const waited = outcome.waited.includes(call);
  return isBefore(outcome, 'clock.move', call) || (waited && isBefore(outcome, 'clock.move', otherEnd));
}

/**
 * A lease expires while both its holder and the reaper act on it. The holder is accepted exactly when it had the lock
 * before the expiry; a renewal that meets the reaper leaves the lease as it is. The reaper never waits and never overrules
 * an accepted or an undecided holder.
 */
export function holderAndLapse(arena: Arena, operation: 'complete' | 'renew'): Promise<Interleaving[]> {
  const accepted = answersInTurn([operation])[0];
  return arena.race({
    given: leased(1),
    sessions: {
      a: transaction(({ leases }) =>
        operation === 'renew' ? arena.calls.renew(leases, LONG_LEASE_MS) : arena.calls.complete(leases),
      ),
      b: transaction(({ leases }) => arena.calls.lapse(leases)),
      clock: CLOCK,
    },
    check: (outcome) => {
      const late = decidedLate(outcome, 'a.call', 'b.COMMIT');
      const word = operation === 'renew' && meetsOpen(outcome, 'a', 'b') ? 'held' : accepted;
      expect(saidTo(outcome, 'a'), 'the holder').toBe(late ? 'lease_expired' : word);
      const ranOut = isBefore(outcome, 'clock.move', 'b.call');
      const holderFirst = isBefore(outcome, 'a.call', 'b.call');
      const holderOpen = holderFirst && isBefore(outcome, 'b.call', 'a.COMMIT');
      const reaped = ranOut && !holderOpen && !(holderFirst && !late);
      expect(saidTo(outcome, 'b'), 'the reaper').toBe(reaped ? 'lapsed' : 'nothing');
      expect(
        outcome.waited.filter((step) => operation === 'renew' || step !== 'a.call'),
        'who waited',
      ).toEqual([]);
    },
  });
}

/** The clock passes the expiry while the lease holder waits for a lock that its owner releases unused. */
export function waitPastExpiry(
  arena: Arena,
  operation: 'complete' | 'fail' | 'release' | 'pause',
  blocker: 'cancel' | 'renew',
): Promise<Interleaving[]> {
  const accepted = answersInTurn([operation])[0];
  return arena.race({
    given: leased(1),
    sessions: {
      blocker: ['BEGIN', ...alone(({ leases }) => arena.calls[blocker](leases)), 'ROLLBACK'],
      holder: alone(({ leases }) => callOf(arena.calls, operation, leases)),
      clock: CLOCK,
    },
    check: (outcome) => {
      const late = decidedLate(outcome, 'holder.call', 'blocker.ROLLBACK');
      expect(saidTo(outcome, 'holder')).toBe(late ? 'lease_expired' : accepted);
      const waited = outcome.waited.includes('holder.call');
      const met = isBefore(outcome, 'blocker.call', 'holder.call');
      expect(waited).toBe(met && isBefore(outcome, 'holder.call', 'blocker.ROLLBACK'));
      if (waited) expect(tablesWaitedOn([outcome])).toEqual(['ff_execution']);
    },
  });
}

/** A renewal meets a lock, and the lease expires before the lock is released: it must not have been extended. */
export function renewBehindLock(arena: Arena): Promise<Interleaving[]> {
  return arena.race({
    given: leased(1),
    sessions: {
      blocker: transaction(({ leases }) => arena.calls.cancel(leases), 'ROLLBACK'),
      holder: alone(({ leases }) => arena.calls.renew(leases)),
      clock: CLOCK,
      late: alone(({ leases }) => arena.calls.renew(leases)),
      reaper: alone(({ leases }) => arena.calls.lapse(leases)),
    },
    permutations: [
      ['blocker.call', 'holder.call', 'clock.move', 'late.call', 'blocker.ROLLBACK', 'reaper.call'],
    ],
    check: (outcome) => {
      expect(saidTo(outcome, 'holder')).toBe('held');
      expect(saidTo(outcome, 'late')).toBe('lease_expired');
      expect(saidTo(outcome, 'reaper')).toBe('lapsed');
      expect(outcome.waited, 'who waited').toEqual([]);
    },
  });
}

const LEASES_OF_A_WORKER = 1_000;

/** One execution is locked for longer than a lease, while the worker that holds it renews all its leases. */
export function renewBesideLock(arena: Arena): Promise<Interleaving[]> {
  return arena.race({
    given: leased(LEASES_OF_A_WORKER),
    sessions: {
      blocker: transaction(({ leases }) => arena.calls.cancel(leases.slice(0, 1)), 'ROLLBACK'),
      renew: alone(({ leases }) => arena.calls.renew(leases, LONG_LEASE_MS)),
      clock: CLOCK,
      early: alone(({ leases }) => arena.calls.lapse(leases)),
      reaper: alone(({ leases }) => arena.calls.lapse(leases)),
    },
    permutations: [
      ['blocker.call', 'renew.call', 'clock.move', 'early.call', 'blocker.ROLLBACK', 'reaper.call'],
    ],
    check: (outcome, { ids }) => {
      const words = answersOf(outcome, 'renew').map(({ word }) => word);
      expect(outcome.waited, 'who waited').toEqual([]);
      expect(words.filter((word) => word === 'renewed')).toHaveLength(LEASES_OF_A_WORKER - 1);
      expect(words.filter((word) => word === 'held')).toHaveLength(1);
      expect(saidTo(outcome, 'early')).toBe('nothing');
      expect(answersOf(outcome, 'reaper')).toMatchObject([{ id: ids[0], word: 'lapsed' }]);
    },
  });
}

const BATCH = 5;
const MIDDLE = 2;

/**
 * Two batches over the same executions in opposite order, while another session holds one in the middle: locking in
 * array order would make each block the other. Neither batch may be applied in part, so one wins as a whole; except for a
 * renewal, which leaves alone what others hold.
 */
export function oppositeBatches(
  arena: Arena,
  [one, other]: [Operation, Operation],
  blocker: 'cancel' | 'renew',
): Promise<Interleaving[]> {
  const orders: [Operation, Operation][] = [
    [one, other],
    [other, one],
  ];
  const [oneWins, otherWins] = orders.map((order) => answersInTurn(order).join(' / '));
  const middle = (leases: Lease[]) => leases.slice(MIDDLE, MIDDLE + 1);
  const race: Race = {
    given: leased(BATCH),
    sessions: {
      blocker: transaction(({ leases }) => arena.calls[blocker](middle(leases)), 'ROLLBACK'),
      a: alone(({ leases }) => callOf(arena.calls, one, leases)),
      b: alone(({ leases }) => callOf(arena.calls, other, leases.toReversed())),
    },
    check: (outcome, { ids }) => {
      const told = ids.map((id) => {
        const words = ['a', 'b'].map((session) => {
          const answer = answersOf(outcome, session).find((row) => row.id === id);
          return `${answer?.word}${answer?.repeated === true ? ' again' : ''}`;
        });
        return words.join(' / ');
      });
      const secondFirst = otherWins?.split(' / ').toReversed().join(' / ');
      const held = [
        ...(other === 'renew' ? [answersMeeting(one, other).told.join(' / ')] : []),
        ...(one === 'renew' ? [answersMeeting(other, one).told.toReversed().join(' / ')] : []),
        ...(one === 'renew' && other === 'renew' ? ['held / held'] : []),
      ];
      for (const words of told) expect([oneWins, secondFirst, ...held]).toContain(words);
      if (held.length > 0) return;
      expect(new Set(told).size, `one winner for all of ${told.join('; ')}`).toBe(1);
    },
  };
  return arena.race(race);
}
