/**
 * Races around an execution's place in the queue: a change of priority, or a cancel by a caller that saw it waiting,
 * against the claim that takes it. A claim never waits; a call that comes too late leaves the work alone.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { TestDatabase } from '../../../src/testing/test-database.ts';
import { testDatabase } from '../../setup/database.ts';
import { PARTITION } from '../../setup/raw-functions.ts';
import { alone, arenaOn, meet, saidTo, transaction, submitted } from '../arena.ts';
import type { Arena, Scene } from '../arena.ts';
import { ask, type Call, type Lease } from '../calls.ts';

/** The priority of every submission in a race. */
const USUAL = 100;

let database: TestDatabase;
let arena: Arena;

beforeAll(async () => {
  database = await testDatabase();
  arena = arenaOn(database);
});

afterAll(() => database?.drop());

function change(ids: string[], priority: number, epochs: number[] | null = null): Call {
  return {
    sql: `SELECT * FROM ff_change_priority($1, $2, $3, $4, 'somebody')`,
    params: [ids, ids.map(() => PARTITION), epochs, priority],
  };
}

/** Only what was never claimed. */
function cancelSeen(ids: string[]): Call {
  return {
    sql: `SELECT * FROM ff_cancel($1, $2, 'why', 'somebody', $3)`,
    params: [ids, ids.map(() => PARTITION), ids.map(() => 0)],
  };
}

const raise = ({ ids }: Scene): Call => change(ids, USUAL + 1);
const claimMany =
  (worker: string) =>
  ({ routeId }: Scene): Call =>
    arena.calls.claim(routeId, 10, worker);

async function queueRows({ ids }: Scene): Promise<number> {
  const found = await arena.through('SELECT FROM ff_ready WHERE execution_id = ANY ($1)', [ids]);
  return found.rows.length;
}

describe('a change of priority', () => {
  it('and a claim: moved or granted, never both; a queue row updated in place would be lost', async () => {
    await meet(arena, {
      given: submitted(1),
      a: raise,
      b: claimMany('w-1'),
      expected: {
        'a then b': { told: ['changed', 'claimed'], waitsOn: null },
        'b meets a': { told: ['changed', 'nothing'], waitsOn: null },
        'b then a': { told: ['not_eligible', 'claimed'], waitsOn: null },
        'a meets b': { told: ['not_eligible', 'claimed'], waitsOn: 'ff_execution' },
      },
      check: async (scene) => {
        // The next claim finds whatever this one skipped; then nothing is left in the queue.
        await ask(arena.through, claimMany('w-2')(scene));
        expect(await ask(arena.through, claimMany('w-3')(scene))).toEqual([]);
        expect(await queueRows(scene)).toBe(0);
        const active = await arena.through(
          `SELECT lifecycle_phase::text AS phase FROM ff_execution WHERE execution_id = ANY ($1)`,
          [scene.ids],
        );
        expect(active.rows).toEqual([{ phase: 'active' }]);
      },
    });
  });

  it('there and back, and two claims: granted once, though two queue rows match', async () => {
    await meet(arena, {
      given: async (on) => {
        const scene = await submitted(1)(on);
        await ask(on.through, change(scene.ids, USUAL + 1));
        await ask(on.through, change(scene.ids, USUAL));
        expect(await queueRows(scene)).toBe(3);
        return scene;
      },
      a: ({ routeId }) => arena.calls.claim(routeId, 1, 'w-1'),
      b: ({ routeId }) => arena.calls.claim(routeId, 1, 'w-2'),
      expected: {
        'a then b': { told: ['claimed', 'nothing'], waitsOn: null },
        'b meets a': { told: ['claimed', 'nothing'], waitsOn: null },
        'b then a': { told: ['nothing', 'claimed'], waitsOn: null },
        'a meets b': { told: ['nothing', 'claimed'], waitsOn: null },
      },
      check: async (scene) => {
        expect(await ask(arena.through, claimMany('w-3')(scene))).toEqual([]);
        expect(await queueRows(scene)).toBe(0);
      },
    });
  });

  it('there and back, granted, released: granted once again', async () => {
    const scene = await submitted(1)(arena);
    for (const priority of [USUAL + 1, USUAL]) await ask(arena.through, change(scene.ids, priority));
    const [lease] = await ask(arena.through, arena.calls.claim(scene.routeId, 1, 'w-1'));
    await ask(arena.through, arena.calls.release([lease as Lease]));
    expect(await ask(arena.through, claimMany('w-2')(scene))).toHaveLength(1);
    expect(await ask(arena.through, claimMany('w-3')(scene))).toEqual([]);
    expect(await queueRows(scene)).toBe(0);
  });

  it('and another: they run one after the other, and the last one counts', async () => {
    await meet(arena, {
      given: submitted(1),
      a: ({ ids }) => change(ids, USUAL + 1),
      b: ({ ids }) => change(ids, USUAL + 2),
      expected: {
        'a then b': { told: ['changed', 'changed'], waitsOn: null },
        'b meets a': { told: ['changed', 'changed'], waitsOn: 'ff_execution' },
        'b then a': { told: ['changed', 'changed'], waitsOn: null },
        'a meets b': { told: ['changed', 'changed'], waitsOn: 'ff_execution' },
      },
      check: async (scene) => {
        expect(await ask(arena.through, claimMany('w-1')(scene))).toHaveLength(1);
        expect(await queueRows(scene)).toBe(0);
      },
    });
  });

  it('and a cancel: a cancelled execution is not put back into the queue', async () => {
    await meet(arena, {
      given: submitted(1),
      a: raise,
      b: ({ ids }) => arena.calls.cancel(ids.map((id) => ({ id }))),
      expected: {
        'a then b': { told: ['changed', 'cancelled'], waitsOn: null },
        'b meets a': { told: ['changed', 'cancelled'], waitsOn: 'ff_execution' },
        'b then a': { told: ['not_eligible', 'cancelled'], waitsOn: null },
        'a meets b': { told: ['not_eligible', 'cancelled'], waitsOn: 'ff_execution' },
      },
      check: async (scene) => {
        expect(await ask(arena.through, claimMany('w-1')(scene))).toEqual([]);
        expect(await queueRows(scene)).toBe(0);
      },
    });
  });

  it('with the epoch the caller saw, and a claim: returns moved and leaves the work alone', async () => {
    await meet(arena, {
      given: submitted(1),
      a: ({ ids }) => change(ids, USUAL + 1, [0]),
      b: claimMany('w-1'),
      expected: {
        'a then b': { told: ['changed', 'claimed'], waitsOn: null },
        'b meets a': { told: ['changed', 'nothing'], waitsOn: null },
        'b then a': { told: ['moved', 'claimed'], waitsOn: null },
        'a meets b': { told: ['moved', 'claimed'], waitsOn: 'ff_execution' },
      },
    });
  });

  it('of many in opposite order, and one held in the middle: no deadlock', async () => {
    await arena.race({
      given: submitted(3),
      sessions: {
        blocker: transaction(({ ids }) => change(ids.slice(1, 2), 1), 'ROLLBACK'),
        a: alone(({ ids }) => change(ids, 2)),
        b: alone(({ ids }) => change(ids.toReversed(), 3)),
      },
      check: (outcome) => {
        expect(saidTo(outcome, 'a')).toBe('changed, changed, changed');
        expect(saidTo(outcome, 'b')).toBe('changed, changed, changed');
      },
    });
  });
});

describe('a cancel with the epoch the caller saw', () => {
  it('and a claim: it ends what still waits, and claimed work runs to its end', async () => {
    await meet(arena, {
      given: submitted(1),
      a: ({ ids }) => cancelSeen(ids),
      b: claimMany('w-1'),
      expected: {
        'a then b': { told: ['cancelled', 'nothing'], waitsOn: null },
        'b meets a': { told: ['cancelled', 'nothing'], waitsOn: null },
        'b then a': { told: ['moved', 'claimed'], waitsOn: null },
        'a meets b': { told: ['moved', 'claimed'], waitsOn: 'ff_execution' },
      },
      check: async ({ ids }) => {
        const held = await arena.through(
          `SELECT execution_id AS id, attempt_index AS attempt, lease_epoch AS epoch FROM ff_lease
           WHERE execution_id = ANY ($1)`,
          [ids],
        );
        const lease = held.rows[0] as Lease | undefined;
        if (lease === undefined) return;
        expect(await ask(arena.through, arena.calls.complete([lease]))).toMatchObject([
          { word: 'completed' },
        ]);
      },
    });
  });
});
