/**
 * Suspended executions for the races, and the races of signals that simpler forms of the functions are known to lose:
 * signal.test.ts runs them on the engine's functions, naive.test.ts on naive variants.
 */
import { randomUUID } from 'node:crypto';
import { expect } from 'vitest';
import type { SignalCondition } from '../../../src/contract/signals.ts';
import type { Interleaving } from '../../../src/testing/stepper.ts';
import { leased, meet, transaction, type Arena, type Expected, type Meeting, type Scene } from '../arena.ts';
import { ask, type Call } from '../calls.ts';
import { endOfLog } from '../invariants.ts';
import { WAITPOINT, type SignalTo, type SuspendFor } from './calls.ts';

type Given = (arena: Arena) => Promise<Scene>;

/** The meetings of two calls of which the later waits for the execution, unless it came after. */
export function inTurn(
  aFirst: [a: string, b: string],
  bFirst: [a: string, b: string],
  table: string | null = 'ff_execution',
): Record<Meeting, Expected> {
  return {
    'a then b': { told: aFirst, waitsOn: null },
    'b meets a': { told: aFirst, waitsOn: table },
    'b then a': { told: bFirst, waitsOn: null },
    'a meets b': { told: bFirst, waitsOn: table },
  };
}

/** Running, with an open waitpoint, whose id is `waitpointId`. */
export function opened(policy?: object): Given {
  return async (arena) => {
    const scene = await leased(1, policy)(arena);
    const waitpointId = randomUUID();
    const create = arena.calls.create(scene.leases[0]!, [{ name: WAITPOINT, id: waitpointId }]);
    expect(await ask(arena.through, create)).toMatchObject([{ word: 'created' }]);
    return { ...scene, waitpointId };
  };
}

/** Suspended; the lease it had is kept. */
export function suspended(request: SuspendFor = {}, given: Given = opened()): Given {
  return async (arena) => {
    const scene = await given(arena);
    const suspend = arena.calls.suspend(scene.leases[0]!, request);
    expect(await ask(arena.through, suspend)).toMatchObject([{ word: 'suspended' }]);
    return { ...scene, logged: await endOfLog(arena.through) };
  };
}

/** Results from before the race do not count. */
export function after(given: Given, placed: (scene: Scene, arena: Arena) => Call): Given {
  return async (arena) => {
    const scene = await given(arena);
    await ask(arena.through, placed(scene, arena));
    return { ...scene, logged: await endOfLog(arena.through) };
  };
}

export const deliverTo =
  (arena: Arena, signal: SignalTo = {}) =>
  ({ ids }: Scene): Call =>
    arena.calls.deliver(ids[0]!, signal);
export const suspendOn =
  (arena: Arena, request: SuspendFor = {}) =>
  ({ leases }: Scene): Call =>
    arena.calls.suspend(leases[0]!, request);

export interface Life {
  phase: string;
  attempt: number;
  /** How the wait ended, or that it has not. */
  wait: string | null;
  /** How many signals its outcome has. */
  heard: number;
  ready: number;
  suspensions: number;
}

export async function lifeOf({ through }: Arena, { ids }: Scene): Promise<Life> {
  const found = await through(
    `SELECT e.lifecycle_phase::text AS phase, e.attempt_index AS attempt, s.value ->> 'outcome' AS wait,
       coalesce(jsonb_array_length(s.value -> 'signals'), 0) AS heard,
       (SELECT count(*) FROM ff_ready r WHERE r.execution_id = e.execution_id AND r.lease_epoch = e.lease_epoch) AS ready,
       (SELECT count(*) FROM ff_suspension x WHERE x.execution_id = e.execution_id) AS suspensions
     FROM ff_execution e
     LEFT JOIN ff_step s ON s.execution_id = e.execution_id AND s.retired_by = 0 AND s.kind = 'wait'
     WHERE e.execution_id = $1`,
    [ids[0]],
  );
  return found.rows[0] as unknown as Life;
}

/** The signal has reached its wait: the lease holder sees it, or the next claim of the same attempt. */
async function expectHeard(arena: Arena, scene: Scene): Promise<void> {
  const life = await lifeOf(arena, scene);
  expect(life).toMatchObject({ wait: 'satisfied', heard: 1, attempt: scene.leases[0]!.attempt });
  const claimed = await ask(arena.through, arena.calls.claim(scene.routeId, 1, 'w-2'));
  expect(claimed.length, 'claims of what goes on').toBe(life.phase === 'runnable' ? 1 : 0);
}

/** Whichever comes first: the wait is already satisfied, or the signal resumes the suspended execution. */
export function signalAndSuspend(arena: Arena): Promise<Interleaving[]> {
  return meet(arena, {
    steps: transaction,
    given: opened(),
    a: suspendOn(arena),
    b: deliverTo(arena),
    expected: inTurn(['suspended', 'resumed'], ['satisfied', 'buffered']),
    check: (scene) => expectHeard(arena, scene),
  });
}

export const TWO_SIGNALS: SignalCondition = { kind: 'count', n: 2, by: 'signals', waitpoints: [WAITPOINT] };

/** Both see one of two, unless the second counts after the first is committed. */
export function lastTwoSignals(arena: Arena): Promise<Interleaving[]> {
  return meet(arena, {
    steps: transaction,
    given: suspended({ condition: TWO_SIGNALS }),
    a: deliverTo(arena),
    b: deliverTo(arena),
    expected: inTurn(['counted', 'resumed'], ['resumed', 'counted']),
    check: async (scene) => expect(await lifeOf(arena, scene)).toMatchObject({ wait: 'satisfied', heard: 2 }),
  });
}
