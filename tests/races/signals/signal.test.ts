/**
 * Races around a signal: with its suspension, with the same signal again, with the last but one, and with whatever
 * ends, replays or deletes the execution meanwhile. A signal is never lost and counts once. Timeouts are in
 * suspension-timeout.test.ts, opening waitpoints and suspending in waitpoint.test.ts.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { TestDatabase } from '../../../src/testing/test-database.ts';
import { testDatabase } from '../../setup/database.ts';
import { arenaOn, leased, meet, transaction, type Arena, type Scene } from '../arena.ts';
import { ask } from '../calls.ts';
import { WAITPOINT } from './calls.ts';
import {
  after,
  deliverTo,
  inTurn,
  lastTwoSignals,
  lifeOf,
  opened,
  signalAndSuspend,
  suspended,
  suspendOn,
  TWO_SIGNALS,
} from './races.ts';

const DEADLINE = { timeout_policy: { execution_deadline_ms: 60_000 } };
const steps = transaction;

let database: TestDatabase;
let arena: Arena;

beforeAll(async () => {
  database = await testDatabase();
  arena = arenaOn(database);
});

afterAll(() => database?.drop());

const cancel = ({ leases }: Scene) => arena.calls.cancel(leases);
const replay =
  (from: 'start' | 'failed_step') =>
  ({ ids }: Scene) =>
    arena.calls.replay(ids, from);

async function rowsOf(table: string, { ids }: Scene): Promise<Record<string, unknown>[]> {
  const found = await arena.through(`SELECT * FROM ${table} WHERE execution_id = ANY ($1)`, [ids]);
  return found.rows;
}

describe('a signal and its suspension', () => {
  it('meet in any order: the signal is found, or it resumes the execution', async () => {
    await signalAndSuspend(arena);
  });

  it('at a waitpoint the suspension opens: unknown before, and never half known', async () => {
    await meet(arena, {
      steps,
      given: leased(1),
      a: suspendOn(arena),
      b: deliverTo(arena),
      expected: inTurn(['suspended', 'resumed'], ['suspended', 'unknown']),
    });
  });

  it('begun without suspending: the signal is kept or found', async () => {
    await meet(arena, {
      steps,
      given: opened(),
      a: suspendOn(arena, { mode: 'poll' }),
      b: deliverTo(arena),
      expected: inTurn(['open', 'buffered'], ['satisfied', 'buffered']),
      check: async (scene) => {
        expect(await ask(arena.through, suspendOn(arena)(scene))).toMatchObject([{ word: 'satisfied' }]);
      },
    });
  });

  it('of one of several waits: that one ends, and a signal for another is kept', async () => {
    const waits = [
      { name: 'told', waitpoints: [WAITPOINT] },
      { name: 'asked', waitpoints: ['there'], condition: { ...TWO_SIGNALS, waitpoints: ['there'] } },
    ];
    await meet(arena, {
      steps,
      given: suspended({ waits }),
      a: deliverTo(arena),
      b: deliverTo(arena, { waitpoint: 'there' }),
      expected: inTurn(['resumed', 'buffered'], ['resumed', 'counted']),
    });
  });
});

describe('two signals', () => {
  it('that are the same: one is stored, and the other returns its effect', async () => {
    const same = deliverTo(arena, { key: 'the same' });
    await meet(arena, {
      steps,
      given: suspended(),
      a: same,
      b: same,
      expected: inTurn(['resumed', 'duplicate'], ['duplicate', 'resumed']),
      check: async (scene) => {
        expect(await rowsOf('ff_signal', scene)).toMatchObject([{ effect: 'resumed', seq: 0 }]);
        const told = (await rowsOf('ff_event', scene)).map((row) => row.event_type);
        expect(told.filter((type) => type === 'delivered' || type === 'resumed').toSorted()).toEqual([
          'delivered',
          'resumed',
        ]);
      },
    });
  });

  it('that are the last of two: the second one resumes the execution', async () => {
    await lastTwoSignals(arena);
  });

  it('of one source, where two sources are required: the second is not counted', async () => {
    const condition = { ...TWO_SIGNALS, by: 'sources' } as const;
    await meet(arena, {
      steps,
      given: suspended({ condition }),
      a: deliverTo(arena, { source: 'ann' }),
      b: deliverTo(arena, { source: 'ann' }),
      expected: inTurn(['counted', 'not_counted'], ['not_counted', 'counted']),
    });
  });
});

describe('a signal and the end of its execution', () => {
  it('by a cancel: there is one outcome, and nothing to claim after it', async () => {
    await meet(arena, {
      steps,
      given: suspended({ timeoutMs: 60_000 }),
      a: deliverTo(arena),
      b: cancel,
      expected: inTurn(['resumed', 'cancelled'], ['closed', 'cancelled']),
      check: async (scene) => {
        expect(await lifeOf(arena, scene)).toMatchObject({ phase: 'terminal', ready: 0, suspensions: 0 });
        expect(await ask(arena.through, arena.calls.claim(scene.routeId, 1, 'w-2'))).toEqual([]);
      },
    });
  });

  it('by its deadline: a locked execution is skipped, and the next firing ends a resumed one', async () => {
    const fire = ({ ids }: Scene) => arena.calls.fire(ids);
    await meet(arena, {
      steps,
      given: async (on) => {
        const scene = await suspended({ timeoutMs: 120_000 }, opened(DEADLINE))(on);
        await database.moveClock(60_000);
        return scene;
      },
      a: deliverTo(arena),
      b: fire,
      expected: {
        ...inTurn(['resumed', 'execution_timed_out'], ['closed', 'execution_timed_out']),
        'b meets a': { told: ['resumed', 'nothing'], waitsOn: null },
      },
      check: async (scene) => {
        await ask(arena.through, fire(scene));
        expect(await lifeOf(arena, scene)).toMatchObject({ phase: 'terminal', suspensions: 0 });
      },
    });
  });

  it('and a replay from the start: never accepted at a waitpoint of the previous run', async () => {
    const kid = 'replayed';
    const old = ({ ids, waitpointId }: Scene) =>
      arena.calls.deliver(ids[0]!, { token: { kid, waitpointId: waitpointId as string } });
    await ask(arena.through, arena.calls.currentKey(kid));
    await meet(arena, {
      steps,
      given: after(suspended(), cancel),
      a: old,
      b: replay('start'),
      expected: inTurn(['closed', 'replayed'], ['unknown', 'replayed']),
      check: async (scene) => {
        const [lease] = await ask(arena.through, arena.calls.claim(scene.routeId, 1, 'w-2'));
        const again = { ...scene, leases: [lease as never] };
        expect(await ask(arena.through, suspendOn(arena)(again))).toMatchObject([{ word: 'suspended' }]);
        expect(await ask(arena.through, old(again))).toMatchObject([{ word: 'unknown' }]);
        expect(await ask(arena.through, deliverTo(arena)(again))).toMatchObject([{ word: 'resumed' }]);
      },
    });
  });

  it('and a replay from the failed step: closed before it, kept for the same waitpoint after it', async () => {
    await meet(arena, {
      steps,
      given: after(suspended(), cancel),
      a: deliverTo(arena),
      b: replay('failed_step'),
      expected: inTurn(['closed', 'replayed'], ['buffered', 'replayed']),
    });
  });

  it('and deletion: nothing is left of the signal', async () => {
    await meet(arena, {
      steps,
      given: after(
        after(suspended(), (scene, on) => deliverTo(on, { name: 'early' })(scene)),
        cancel,
      ),
      a: deliverTo(arena),
      b: ({ ids }) => arena.calls.forget(ids),
      expected: {
        ...inTurn(['closed', 'forgotten'], ['unknown', 'forgotten']),
        'b meets a': { told: ['closed', 'nothing'], waitsOn: null },
      },
      check: async (scene) => {
        await ask(arena.through, arena.calls.forget(scene.ids));
        expect(await rowsOf('ff_signal', scene)).toEqual([]);
        expect(await rowsOf('ff_waitpoint', scene)).toEqual([]);
      },
    });
  });
});
