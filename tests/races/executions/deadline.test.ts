/**
 * Races around time limits: the firing of a deadline or of an attempt's limit against the lease holder, a claim, a
 * reaper and another firing. A firing never waits, and whoever gets the execution first decides.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { runRace, type StepLike } from '../../../src/testing/stepper.ts';
import type { TestDatabase } from '../../../src/testing/test-database.ts';
import { testDatabase } from '../../setup/database.ts';
import { alone, arenaOn, leased, meet, saidTo, transaction, submitted } from '../arena.ts';
import type { Arena, Expected, Race, Scene } from '../arena.ts';
import { ask, LEASE_MS, type Call } from '../calls.ts';

const LIMIT_MS = 10_000;
const BACKOFF = { retry_policy: { max_retries: 3, backoff: { type: 'fixed', delay_ms: 3_600_000 } } };
const DEADLINE = { timeout_policy: { execution_deadline_ms: LIMIT_MS } };
const ATTEMPT_LIMIT = { timeout_policy: { attempt_timeout_ms: LIMIT_MS }, ...BACKOFF };

let database: TestDatabase;
let arena: Arena;

beforeAll(async () => {
  database = await testDatabase();
  arena = arenaOn(database);
});

afterAll(() => database?.drop());

/** Leased, and past the time its policy allows; nobody has noticed yet, and the lease is alive. */
function overdue(policy: object, count = 1): Race['given'] {
  return async (on) => {
    const scene = await leased(count, policy)(on);
    await database.moveClock(LIMIT_MS);
    return scene;
  };
}

const fireAll = ({ ids }: Scene): Call => arena.calls.fire(ids);
const unhindered = (told: Expected['told']): Expected => ({ told, waitsOn: null });

/** The end of every attempt of an execution, and its completions: each must be there once. */
async function endsOf({ ids }: Scene): Promise<string[]> {
  const found = await arena.through(
    `SELECT outcome::text AS word FROM ff_attempt_history WHERE execution_id = ANY ($1)
     UNION ALL SELECT 'completion.' || event_type FROM ff_event WHERE execution_id = ANY ($1) AND family = 'completion'
     ORDER BY 1`,
    [ids],
  );
  return found.rows.map((row) => String(row.word));
}

async function limitsOf({ ids }: Scene): Promise<string[]> {
  const found = await arena.through(
    `SELECT timer_id::text AS id FROM ff_timer WHERE execution_id = ANY ($1) AND kind IN ('deadline', 'attempt_limit')
     ORDER BY timer_id`,
    [ids],
  );
  return found.rows.map((row) => String(row.id));
}

describe('a deadline', () => {
  it('and a complete: one of them ends it; without the lock, both would', async () => {
    await meet(arena, {
      given: overdue(DEADLINE),
      a: ({ leases }) => arena.calls.complete(leases),
      b: fireAll,
      expected: {
        'a then b': unhindered(['completed', 'nothing']),
        'b meets a': unhindered(['completed', 'nothing']),
        'b then a': unhindered(['timed_out', 'execution_timed_out']),
        'a meets b': { told: ['timed_out', 'execution_timed_out'], waitsOn: 'ff_execution' },
      },
      check: async (scene) => {
        expect(await limitsOf(scene)).toEqual([]);
        const ends = await endsOf(scene);
        expect([
          ['completion.expired', 'expired'],
          ['completion.success', 'success'],
        ]).toContainEqual(ends);
      },
    });
  });

  it('that passes while a complete waits for the lock: the complete came first and wins, the firing does not wait', async () => {
    const moving: StepLike<Scene>[] = [
      { name: 'move', sql: 'UPDATE ff_clock SET offset_ms = offset_ms + $1', params: [LIMIT_MS] },
    ];
    await arena.race({
      given: leased(1, DEADLINE),
      sessions: {
        holder: transaction(({ leases }) => arena.calls.cancel(leases), 'ROLLBACK'),
        complete: alone(({ leases }) => arena.calls.complete(leases)),
        clock: moving,
        fire: alone(fireAll),
      },
      permutations: [['holder.call', 'complete.call', 'clock.move', 'fire.call', 'holder.ROLLBACK']],
      check: async (outcome, scene) => {
        expect(outcome.waited).toEqual(['complete.call']);
        expect(saidTo(outcome, 'fire')).toBe('nothing');
        expect(saidTo(outcome, 'complete')).toBe('completed');
        expect(await ask(arena.through, fireAll(scene))).toEqual([]);
        expect(await limitsOf(scene)).toEqual([]);
      },
    });
  });

  it('and a pause: it ends the paused execution, and a concurrent pause does not avoid it', async () => {
    await meet(arena, {
      given: overdue(DEADLINE),
      a: ({ leases }) => arena.calls.pause(leases),
      b: fireAll,
      expected: {
        'a then b': unhindered(['paused', 'execution_timed_out']),
        'b meets a': unhindered(['paused', 'nothing']),
        'b then a': unhindered(['timed_out', 'execution_timed_out']),
        'a meets b': { told: ['timed_out', 'execution_timed_out'], waitsOn: 'ff_execution' },
      },
      check: async (scene) => {
        await ask(arena.through, fireAll(scene));
        expect(await endsOf(scene)).toEqual(['completion.expired', 'expired']);
        expect(await limitsOf(scene)).toEqual([]);
      },
    });
  });

  it('and a claim: an execution past its deadline is not granted, fired or not', async () => {
    await meet(arena, {
      given: async (on) => {
        const scene = await submitted(1, { policy: DEADLINE })(on);
        await database.moveClock(LIMIT_MS);
        return scene;
      },
      a: ({ routeId }) => arena.calls.claim(routeId, 1, 'w-1'),
      b: fireAll,
      expected: {
        'a then b': unhindered(['nothing', 'execution_timed_out']),
        'b meets a': unhindered(['nothing', 'nothing']),
        'b then a': unhindered(['nothing', 'execution_timed_out']),
        'a meets b': unhindered(['nothing', 'execution_timed_out']),
      },
      check: async (scene) => {
        await ask(arena.through, fireAll(scene));
        expect(await ask(arena.through, arena.calls.claim(scene.routeId, 1, 'w-2'))).toEqual([]);
        expect((await endsOf(scene)).filter((end) => end.startsWith('completion'))).toEqual([
          'completion.expired',
        ]);
      },
    });
  });

  it('and a cancel: the first decides the outcome', async () => {
    await meet(arena, {
      given: overdue(DEADLINE),
      a: ({ leases }) => arena.calls.cancel(leases),
      b: fireAll,
      expected: {
        'a then b': unhindered(['cancelled', 'nothing']),
        'b meets a': unhindered(['cancelled', 'nothing']),
        'b then a': unhindered(['not_active', 'execution_timed_out']),
        'a meets b': { told: ['not_active', 'execution_timed_out'], waitsOn: 'ff_execution' },
      },
    });
  });

  it('fired twice at once ends the execution once', async () => {
    await meet(arena, {
      given: overdue(DEADLINE),
      a: fireAll,
      b: fireAll,
      expected: {
        'a then b': unhindered(['execution_timed_out', 'nothing']),
        'b meets a': unhindered(['execution_timed_out', 'nothing']),
        'b then a': unhindered(['nothing', 'execution_timed_out']),
        'a meets b': unhindered(['nothing', 'execution_timed_out']),
      },
      check: async (scene) => expect(await endsOf(scene)).toEqual(['completion.expired', 'expired']),
    });
  });
});

describe('the limit of an attempt', () => {
  it('and a failure: the attempt ends once and one retry is counted, not two', async () => {
    await meet(arena, {
      given: overdue(ATTEMPT_LIMIT),
      a: ({ leases }) => arena.calls.retry(leases),
      b: fireAll,
      expected: {
        'a then b': unhindered(['retry_scheduled', 'nothing']),
        'b meets a': unhindered(['retry_scheduled', 'nothing']),
        'b then a': unhindered(['timed_out', 'attempt_timed_out']),
        'a meets b': { told: ['timed_out', 'attempt_timed_out'], waitsOn: 'ff_execution' },
      },
      check: async (scene) => {
        const found = await arena.through(
          'SELECT retry_count, attempt_index FROM ff_execution WHERE execution_id = ANY ($1)',
          [scene.ids],
        );
        expect(found.rows).toEqual([{ retry_count: 1, attempt_index: 1 }]);
        expect(await limitsOf(scene)).toEqual([]);
      },
    });
  });

  it('and a renewal: a firing that meets one keeps its timer and ends the attempt in its next pass', async () => {
    await meet(arena, {
      given: overdue(ATTEMPT_LIMIT),
      a: ({ leases }) => arena.calls.renew(leases),
      b: fireAll,
      expected: {
        'a then b': unhindered(['renewed', 'attempt_timed_out']),
        'b meets a': unhindered(['renewed', 'nothing']),
        'b then a': unhindered(['timed_out', 'attempt_timed_out']),
        'a meets b': unhindered(['held', 'attempt_timed_out']),
      },
      check: async (scene) => {
        await ask(arena.through, fireAll(scene));
        expect(await endsOf(scene)).toEqual(['expired']);
        expect(await limitsOf(scene)).toEqual([]);
      },
    });
  });

  it('and a reaper, both due: one of them ends the attempt', async () => {
    await meet(arena, {
      given: async (on) => {
        const scene = await overdue(ATTEMPT_LIMIT)(on);
        await database.moveClock(LEASE_MS);
        return scene;
      },
      a: ({ leases }) => arena.calls.lapse(leases),
      b: fireAll,
      expected: {
        'a then b': unhindered(['lapsed', 'nothing']),
        'b meets a': unhindered(['lapsed', 'nothing']),
        'b then a': unhindered(['nothing', 'attempt_timed_out']),
        'a meets b': unhindered(['nothing', 'attempt_timed_out']),
      },
      check: async (scene) => expect(await endsOf(scene)).toHaveLength(1),
    });
  });

  it('left behind by a released lease does not end the next lease of the same attempt', async () => {
    const scene = await overdue(ATTEMPT_LIMIT)(arena);
    const [lease] = scene.leases;
    await ask(arena.through, arena.calls.release(scene.leases));
    expect(await limitsOf(scene)).toEqual([]);
    // As a firing that read it before the release would still hold it: only the epoch distinguishes the leases.
    await arena.through(
      `INSERT INTO ff_timer (kind, due_at_ms, execution_id, partition_key, attempt_index, lease_epoch)
       SELECT 'attempt_limit', 0, execution_id, partition_key, $2, $3 FROM ff_execution WHERE execution_id = $1`,
      [lease!.id, lease!.attempt, lease!.epoch],
    );
    const [stale] = await limitsOf(scene);
    const [next] = await ask(arena.through, arena.calls.claim(scene.routeId, 1, 'w-2'));
    expect(next).toMatchObject({ attempt: lease!.attempt });
    expect(await ask(arena.through, arena.calls.fireTimers([stale!]))).toMatchObject([{ word: 'discarded' }]);
    expect(await ask(arena.through, arena.calls.complete([{ ...next!, id: next!.id! }]))).toMatchObject([
      { word: 'completed' },
    ]);
  });
});

describe('two firings that each hold a timer the other one’s execution wants to remove', () => {
  /** Without retries, so that either limit ends the execution and removes the other one. */
  const BOTH = { timeout_policy: { execution_deadline_ms: LIMIT_MS, attempt_timeout_ms: LIMIT_MS } };
  const timersOfKind = async (kind: string, { ids }: Scene): Promise<string[]> => {
    const found = await arena.through(
      'SELECT timer_id::text AS id FROM ff_timer WHERE execution_id = ANY ($1) AND kind = $2::ff_timer_kind',
      [ids, kind],
    );
    return found.rows.map((row) => String(row.id));
  };
  const fireThose = (kind: 'attempt_limit' | 'deadline') => (scene: Scene) =>
    arena.calls.fireTimers(scene[kind] as string[]);
  /** Blocks whoever writes the history of these executions, until it is rolled back. */
  const GATE = `INSERT INTO ff_attempt_history (execution_id, partition_key, attempt_index, lease_epoch, started_at_ms)
                SELECT execution_id, partition_key, attempt_index, lease_epoch, 0 FROM ff_execution
                WHERE execution_id = ANY ($1)`;

  it('do not deadlock', async () => {
    await runRace<Scene>({
      connect: () => database.connect(),
      setup: async () => {
        const scene = await overdue(BOTH, 2)(arena);
        return {
          ...scene,
          attempt_limit: await timersOfKind('attempt_limit', scene),
          deadline: await timersOfKind('deadline', scene),
        };
      },
      sessions: {
        gate: [
          {
            name: 'shut',
            run: async (s, { ids }) => [await s.query('BEGIN'), await s.query(GATE, [ids])].length,
          },
          'ROLLBACK',
        ],
        holder: transaction(
          ({ ids }) => ({
            sql: 'SELECT execution_id FROM ff_execution WHERE execution_id = $1 FOR UPDATE',
            params: [ids[0]],
          }),
          'ROLLBACK',
        ),
        limits: alone(fireThose('attempt_limit')),
        deadlines: alone(fireThose('deadline')),
      },
      permutations: [
        ['gate.shut', 'holder.call', 'limits.call', 'holder.ROLLBACK', 'deadlines.call', 'gate.ROLLBACK'],
      ],
      check: async (outcome, scene) => {
        expect(outcome.waited).toEqual(expect.arrayContaining(['limits.call', 'deadlines.call']));
        expect(outcome.deadlocks, 'deadlocks').toBe(0);
        // Each ended the one it got; a timer of the other may be left for the next pass, and is stale.
        expect([saidTo(outcome, 'limits'), saidTo(outcome, 'deadlines')]).toEqual([
          'execution_timed_out',
          'execution_timed_out',
        ]);
        await ask(arena.through, fireAll(scene));
        expect(await limitsOf(scene)).toEqual([]);
        expect(await endsOf(scene)).toEqual([
          'completion.expired',
          'completion.expired',
          'expired',
          'expired',
        ]);
      },
    });
  });
});
