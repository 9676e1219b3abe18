/**
 * The races of the sweep of claims. sweep.test.ts runs them on the engine's functions, which must pass in every order, and
 * on naive sweeps, which must fail. A claim that still has a lease is never removed, one without is removed by the next
 * sweep, and somebody looks into it before any of its leases lapses.
 */
import { expect } from 'vitest';
import type { Interleaving } from '../../../src/testing/stepper.ts';
import { claimAll, leased, meet, runOut, transaction, type Arena, type Pair, type Scene } from '../arena.ts';
import { ask, LEASE_MS, LONG_LEASE_MS, type Call } from '../calls.ts';
import { endOfLog } from '../invariants.ts';

/** Leased by one claim and renewed for long, and the claim is due: its first lease would have lapsed by now. */
export function outlasting(count: number) {
  return async (arena: Arena): Promise<Scene> => {
    const scene = await leased(count)(arena);
    await ask(arena.through, arena.calls.renew(scene.leases, LONG_LEASE_MS));
    await arena.database.moveClock(LEASE_MS + 1);
    return { ...scene, logged: await endOfLog(arena.through) };
  };
}

/** How many claims list these executions. */
async function claimsOf(arena: Arena, { ids }: Scene): Promise<number> {
  const found = await arena.through('SELECT FROM ff_grant WHERE execution_ids && $1', [ids]);
  return found.rows.length;
}

/** How many of these executions are leased. */
async function leasesOf(arena: Arena, { ids }: Scene): Promise<number> {
  const found = await arena.through('SELECT FROM ff_lease WHERE execution_id = ANY ($1)', [ids]);
  return found.rows.length;
}

/** Whatever is left lapses and is found by its claim, as the reaper finds it; after that the next sweep leaves nothing. */
export async function expectSwept(arena: Arena, scene: Scene): Promise<void> {
  const { calls, database, through } = arena;
  const open = await leasesOf(arena, scene);
  await database.moveClock(LONG_LEASE_MS);
  await ask(through, calls.sweep());
  const due = await through(
    `SELECT e.execution_id AS id, e.attempt_index AS attempt, e.lease_epoch AS epoch
     FROM ff_grant g JOIN ff_execution e ON e.execution_id = ANY (g.execution_ids) AND e.claim_no = g.claim_no
     WHERE g.look_at_ms <= ff_now_ms() AND e.lease_expires_at_ms <= ff_now_ms() AND e.execution_id = ANY ($1)`,
    [scene.ids],
  );
  expect(due.rows, 'lapsed leases that are found').toHaveLength(open);
  expect(await ask(through, calls.lapse(due.rows as never))).toHaveLength(open);
  await ask(through, calls.sweep());
  expect(await claimsOf(arena, scene), 'claims that are left').toBe(0);
}

/**
 * A call on leases against a sweep. It gets the same answer in every order, and the sweep never waits; the call neither,
 * except where it must write the claim itself.
 */
export function sweepAnd(
  arena: Arena,
  {
    given,
    call,
    word,
    writesClaim = false,
  }: { given: Pair['given']; call: (scene: Scene) => Call; word: string; writesClaim?: boolean },
): Promise<Interleaving[]> {
  const expected = { told: [word, 'swept'] as [string, string], waitsOn: null };
  return meet(arena, {
    given,
    a: call,
    b: () => arena.calls.sweep(),
    expected: {
      'a then b': expected,
      'b meets a': expected,
      'b then a': expected,
      'a meets b': { ...expected, waitsOn: writesClaim ? 'ff_grant' : null },
    },
    check: (scene) => expectSwept(arena, scene),
  });
}

/** A lease that will lapse earlier than before must not be missed: its claim may be about to be left alone until then. */
export function sweepAndRenew(arena: Arena, leaseMs: number): Promise<Interleaving[]> {
  return sweepAnd(arena, {
    given: outlasting(1),
    call: ({ leases }) => arena.calls.renew(leases, leaseMs),
    word: 'renewed',
    writesClaim: leaseMs < LONG_LEASE_MS,
  });
}

export function sweepAndLapse(arena: Arena): Promise<Interleaving[]> {
  return sweepAnd(arena, {
    given: runOut(1),
    call: ({ leases }) => arena.calls.lapse(leases),
    word: 'lapsed',
  });
}

/** A reaper that gives up: the lease stays lapsed, and must be found again. */
export function sweepAndFailedLapse(arena: Arena): Promise<Interleaving[]> {
  return arena.race({
    given: runOut(1),
    sessions: {
      lapse: transaction(({ leases }) => arena.calls.lapse(leases), 'ROLLBACK'),
      sweep: transaction(() => arena.calls.sweep()),
    },
    check: async (outcome, scene) => {
      expect(outcome.waited, 'who waited').toEqual([]);
      expect(await leasesOf(arena, scene)).toBe(1);
      await expectSwept(arena, scene);
    },
  });
}

/** One of the two leases of a claim ends, the other is renewed. */
export function sweepOfTwo(arena: Arena): Promise<Interleaving[]> {
  return arena.race({
    given: outlasting(2),
    sessions: {
      complete: transaction(({ leases }) => arena.calls.complete(leases.slice(0, 1))),
      renew: transaction(({ leases }) => arena.calls.renew(leases.slice(1), LONG_LEASE_MS)),
      sweep: transaction(() => arena.calls.sweep()),
    },
    check: async (outcome, scene) => {
      expect(outcome.waited, 'who waited').toEqual([]);
      expect(await leasesOf(arena, scene)).toBe(1);
      expect(await claimsOf(arena, scene)).toBe(1);
      await expectSwept(arena, scene);
    },
  });
}

/** A released execution is claimed again while the claim that had it before is removed. */
export function sweepAndClaimAgain(arena: Arena): Promise<Interleaving[]> {
  return arena.race({
    given: async (on) => {
      const scene = await leased(1)(on);
      await ask(on.through, on.calls.release(scene.leases));
      await on.database.moveClock(LEASE_MS + 1);
      return { ...scene, logged: await endOfLog(on.through) };
    },
    sessions: {
      claim: transaction(({ routeId }) => arena.calls.claim(routeId, 1, 'w-2')),
      sweep: transaction(() => arena.calls.sweep()),
    },
    check: async (outcome, scene) => {
      expect(outcome.waited, 'who waited').toEqual([]);
      expect(await leasesOf(arena, scene)).toBe(1);
      expect(await claimsOf(arena, scene), 'claims of it').toBe(1);
      expect(await claimAll(arena, scene, 'w-3')).toEqual([]);
      await expectSwept(arena, scene);
    },
  });
}
