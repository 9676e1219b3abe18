/**
 * Races around a replay: with the end it waits for, with another replay, with a cancel, a claim and the previous lease.
 * An execution whose end is not committed is not replayed, and none runs twice at once.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { TestDatabase } from '../../../src/testing/test-database.ts';
import { testDatabase } from '../../setup/database.ts';
import { PARTITION } from '../../setup/raw-functions.ts';
import { arenaOn, leased, meet, saidTo, transaction } from '../arena.ts';
import type { Arena, Race, Scene } from '../arena.ts';
import { ask, type Call, type Lease } from '../calls.ts';
import { endOfLog } from '../invariants.ts';

const DEADLINE = { timeout_policy: { execution_deadline_ms: 60_000 } };

let database: TestDatabase;
let arena: Arena;

beforeAll(async () => {
  database = await testDatabase();
  arena = arenaOn(database);
});

afterAll(() => database?.drop());

function replayOf(ids: string[], options: { epochs?: number[]; start?: boolean; max?: number } = {}): Call {
  return {
    sql: `SELECT * FROM ff_replay($1, $2, $3, $4, 'why', 'somebody', $5)`,
    params: [
      ids,
      ids.map(() => PARTITION),
      options.epochs ?? null,
      options.start ?? false,
      options.max ?? 10,
    ],
  };
}

/** Ended by the lease it had. */
function over(policy: object = {}, count = 1): Race['given'] {
  return async (on) => {
    const scene = await leased(count, policy)(on);
    await ask(on.through, on.calls.fail(scene.leases));
    return { ...scene, logged: await endOfLog(on.through) };
  };
}

const replayAll = ({ ids }: Scene): Call => replayOf(ids);

async function stateOf({ ids }: Scene): Promise<Record<string, unknown>[]> {
  const found = await arena.through(
    `SELECT lifecycle_phase::text AS phase, terminal_outcome::text AS outcome, replay_count, attempt_index,
            (SELECT count(*)::int FROM ff_event v WHERE v.execution_id = e.execution_id AND family = 'operator') AS told
     FROM ff_execution e WHERE execution_id = ANY ($1) ORDER BY execution_id`,
    [ids],
  );
  return found.rows;
}

describe('a replay', () => {
  it('and the complete before it: only a committed end is replayed, and an uncommitted one is waited for', async () => {
    await meet(arena, {
      given: leased(1),
      a: ({ leases }) => arena.calls.complete(leases),
      b: replayAll,
      expected: {
        'a then b': { told: ['completed', 'replayed'], waitsOn: null },
        'b meets a': { told: ['completed', 'replayed'], waitsOn: 'ff_execution' },
        'b then a': { told: ['completed', 'not_terminal'], waitsOn: null },
        'a meets b': { told: ['completed', 'not_terminal'], waitsOn: 'ff_execution' },
      },
    });
  });

  it('and the complete of a zombie: always refused, or it would end the work of another worker', async () => {
    const zombie = ({ leases }: Scene): Call => arena.calls.complete(leases);
    await meet(arena, {
      given: async (on) => {
        const scene = await leased(1)(on);
        await ask(on.through, on.calls.cancel(scene.leases));
        return { ...scene, logged: await endOfLog(on.through) };
      },
      a: zombie,
      b: replayAll,
      expected: {
        'a then b': { told: ['not_active', 'replayed'], waitsOn: null },
        'b meets a': { told: ['not_active', 'replayed'], waitsOn: 'ff_execution' },
        'b then a': { told: ['not_active', 'replayed'], waitsOn: null },
        'a meets b': { told: ['not_active', 'replayed'], waitsOn: 'ff_execution' },
      },
      check: async (scene) => {
        const [next] = await ask(arena.through, arena.calls.claim(scene.routeId, 1, 'w-2'));
        expect(await ask(arena.through, zombie(scene))).toMatchObject([{ word: 'stale_lease' }]);
        expect(await ask(arena.through, arena.calls.complete([next as Lease]))).toMatchObject([
          { word: 'completed' },
        ]);
      },
    });
  });

  it('and a repeated complete: the first result, not a second end', async () => {
    const again = ({ leases }: Scene): Call => arena.calls.complete(leases);
    await meet(arena, {
      given: async (on) => {
        const scene = await leased(1)(on);
        await ask(on.through, on.calls.complete(scene.leases));
        return { ...scene, logged: await endOfLog(on.through) };
      },
      a: again,
      b: replayAll,
      expected: {
        'a then b': { told: ['completed again', 'replayed'], waitsOn: null },
        'b meets a': { told: ['completed again', 'replayed'], waitsOn: 'ff_execution' },
        'b then a': { told: ['completed again', 'replayed'], waitsOn: null },
        'a meets b': { told: ['completed again', 'replayed'], waitsOn: 'ff_execution' },
      },
      check: async (scene) =>
        expect(await stateOf(scene)).toMatchObject([{ phase: 'runnable', outcome: 'none', told: 1 }]),
    });
  });

  it('and another: it is replayed once; counted before the lock, it would be replayed twice', async () => {
    await meet(arena, {
      given: over(DEADLINE),
      a: replayAll,
      b: replayAll,
      expected: {
        'a then b': { told: ['replayed', 'not_terminal'], waitsOn: null },
        'b meets a': { told: ['replayed', 'not_terminal'], waitsOn: 'ff_execution' },
        'b then a': { told: ['not_terminal', 'replayed'], waitsOn: null },
        'a meets b': { told: ['not_terminal', 'replayed'], waitsOn: 'ff_execution' },
      },
      check: async (scene) => {
        expect(await stateOf(scene)).toMatchObject([{ replay_count: 1, attempt_index: 1, told: 1 }]);
        const timers = await arena.through('SELECT kind FROM ff_timer WHERE execution_id = ANY ($1)', [
          scene.ids,
        ]);
        expect(timers.rows).toEqual([{ kind: 'deadline' }]);
        expect(await ask(arena.through, arena.calls.claim(scene.routeId, 5, 'w-2'))).toHaveLength(1);
      },
    });
  });

  it('and another with an end in between: a replay of the end it saw does not replay the next one', async () => {
    const seen = ({ ids, leases }: Scene): Call =>
      replayOf(ids, { epochs: leases.map(({ epoch }) => epoch) });
    const scene = await over()(arena);
    expect(await ask(arena.through, seen(scene))).toMatchObject([{ word: 'replayed' }]);
    const [next] = await ask(arena.through, arena.calls.claim(scene.routeId, 1, 'w-2'));
    await ask(arena.through, arena.calls.complete([next as Lease]));
    expect(await ask(arena.through, seen(scene))).toMatchObject([{ word: 'moved' }]);
    expect(await ask(arena.through, replayAll(scene))).toMatchObject([{ word: 'replayed' }]);
  });

  it('and a cancel: the cancel ends what the replay opened, or finds it ended', async () => {
    await meet(arena, {
      given: over(),
      a: replayAll,
      b: ({ leases }) => arena.calls.cancel(leases),
      expected: {
        'a then b': { told: ['replayed', 'cancelled'], waitsOn: null },
        'b meets a': { told: ['replayed', 'cancelled'], waitsOn: 'ff_execution' },
        'b then a': { told: ['replayed', 'not_active'], waitsOn: null },
        'a meets b': { told: ['replayed', 'not_active'], waitsOn: 'ff_execution' },
      },
    });
  });

  it('and a claim: granted once, after the commit', async () => {
    await meet(arena, {
      given: over(),
      a: replayAll,
      b: ({ routeId }) => arena.calls.claim(routeId, 5, 'w-2'),
      expected: {
        'a then b': { told: ['replayed', 'claimed'], waitsOn: null },
        'b meets a': { told: ['replayed', 'nothing'], waitsOn: null },
        'b then a': { told: ['replayed', 'nothing'], waitsOn: null },
        'a meets b': { told: ['replayed', 'nothing'], waitsOn: null },
      },
      check: async (scene) => {
        await ask(arena.through, arena.calls.claim(scene.routeId, 5, 'w-3'));
        expect(await stateOf(scene)).toMatchObject([{ phase: 'active', attempt_index: 1 }]);
      },
    });
  });

  it('is not ended by a leftover deadline of the previous run', async () => {
    const scene = await over(DEADLINE)(arena);
    // Only its time distinguishes it from the new one.
    await arena.through(
      `INSERT INTO ff_timer (kind, due_at_ms, execution_id, partition_key, attempt_index, lease_epoch)
       SELECT 'deadline', deadline_at_ms, execution_id, partition_key, 0, 0 FROM ff_execution
       WHERE execution_id = ANY ($1)`,
      [scene.ids],
    );
    await database.moveClock(60_000);
    await ask(arena.through, replayAll(scene));
    expect(await ask(arena.through, arena.calls.fire(scene.ids))).toMatchObject([{ word: 'discarded' }]);
    expect(await stateOf(scene)).toMatchObject([{ phase: 'runnable', outcome: 'none' }]);
    await database.moveClock(60_000);
    expect(await ask(arena.through, arena.calls.fire(scene.ids))).toMatchObject([
      { word: 'execution_timed_out' },
    ]);
  });
});

describe('replays of many in opposite order', () => {
  it('do not deadlock, and each execution is replayed by one of them', async () => {
    await arena.race({
      given: over({}, 3),
      sessions: {
        blocker: transaction(({ ids }) => replayOf(ids.slice(1, 2)), 'ROLLBACK'),
        a: transaction(({ ids }) => replayOf(ids, { start: true })),
        b: transaction(({ ids }) => replayOf(ids.toReversed())),
      },
      check: async (outcome, scene) => {
        const answers = [saidTo(outcome, 'a'), saidTo(outcome, 'b')].toSorted();
        expect(answers).toEqual(['not_terminal, not_terminal, not_terminal', 'replayed, replayed, replayed']);
        expect(await stateOf(scene)).toMatchObject([1, 1, 1].map((replay_count) => ({ replay_count })));
      },
    });
  });
});

describe('a replay from the start', () => {
  it('and a step recorded by a zombie: it is refused, so that the new run does not find it done', async () => {
    await meet(arena, {
      given: over(),
      a: ({ leases }) => arena.calls.record(leases, 'paid'),
      b: ({ ids }) => replayOf(ids, { start: true }),
      expected: {
        'a then b': { told: ['not_active', 'replayed'], waitsOn: null },
        'b meets a': { told: ['not_active', 'replayed'], waitsOn: null },
        'b then a': { told: ['not_active', 'replayed'], waitsOn: null },
        'a meets b': { told: ['not_active', 'replayed'], waitsOn: null },
      },
      check: async ({ ids }) => {
        const steps = await arena.through('SELECT name FROM ff_step WHERE execution_id = ANY ($1)', [ids]);
        expect(steps.rows).toEqual([]);
      },
    });
  });

  it('and the last step of the previous run: recorded before the end, it is retired with the others', async () => {
    const scene = await leased(1)(arena);
    await ask(arena.through, arena.calls.record(scene.leases, 'paid'));
    await arena.race({
      given: async () => scene,
      sessions: {
        fail: transaction(({ leases }) => arena.calls.fail(leases)),
        replay: transaction(({ ids }) => replayOf(ids, { start: true })),
      },
      permutations: [['fail.call', 'replay.call', 'fail.COMMIT', 'replay.COMMIT']],
      check: async (outcome, { ids }) => {
        expect(outcome.waited).toEqual(['replay.call']);
        expect(saidTo(outcome, 'replay')).toBe('replayed');
        const steps = await arena.through('SELECT retired_by FROM ff_step WHERE execution_id = ANY ($1)', [
          ids,
        ]);
        expect(steps.rows).toEqual([{ retired_by: 1 }]);
      },
    });
  });
});
