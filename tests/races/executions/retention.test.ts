/**
 * Races around deletion: with a replay of the same execution, a submit with its key, its parent's end, and a read of
 * its timers. Deletion never waits and never takes what another session holds.
 */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { TestDatabase } from '../../../src/testing/test-database.ts';
import { testDatabase } from '../../setup/database.ts';
import { PARTITION } from '../../setup/raw-functions.ts';
import {
  arenaOn,
  HOUR_MS,
  leased,
  meet,
  type Arena,
  type Expected,
  type Race,
  type Scene,
} from '../arena.ts';
import { ask, type Call, type Lease } from '../calls.ts';
import { asFamily, family } from '../steps/families.ts';
import { endOfLog } from '../invariants.ts';

/** The default retention: an hour. */
const KEPT_MS = HOUR_MS;
const AGAIN_MS = HOUR_MS;
const HASH = 'aa';

let database: TestDatabase;
let arena: Arena;

beforeAll(async () => {
  database = await testDatabase();
  arena = arenaOn(database);
});

afterAll(() => database?.drop());

function forget(ids: string[]): Call {
  return {
    sql: 'SELECT * FROM ff_forget($1, $2, $3, $4)',
    params: [ids, ids.map(() => PARTITION), KEPT_MS, AGAIN_MS],
  };
}

const forgetAll = ({ ids }: Scene): Call => forget(ids);
const replay = ({ ids }: Scene): Call => ({
  sql: `SELECT * FROM ff_replay($1, $2, NULL, false, 'why', 'somebody', 10)`,
  params: [ids, ids.map(() => PARTITION)],
});
const unhindered = (told: Expected['told']): Expected => ({ told, waitsOn: null });

/** Ended long enough ago. */
const old: Race['given'] = async (on) => {
  const scene = await leased(1)(on);
  await ask(on.through, on.calls.complete(scene.leases));
  await database.moveClock(KEPT_MS);
  return { ...scene, logged: await endOfLog(on.through) };
};

async function rowsOf(id: string): Promise<number> {
  const found = await arena.through(
    `SELECT (SELECT count(*) FROM ff_execution WHERE execution_id = $1)
       + (SELECT count(*) FROM ff_attempt_history WHERE execution_id = $1) AS n`,
    [id],
  );
  return Number(found.rows[0]!.n);
}

describe('deletion', () => {
  it('and a replay: whole or gone; without the lock, a replay would run without its body', async () => {
    await meet(arena, {
      given: old,
      a: forgetAll,
      b: replay,
      expected: {
        'a then b': unhindered(['forgotten', 'not_found']),
        'b meets a': { told: ['forgotten', 'not_found'], waitsOn: 'ff_execution' },
        'b then a': unhindered(['kept', 'replayed']),
        'a meets b': unhindered(['nothing', 'replayed']),
      },
      check: async ({ ids, routeId }) => {
        const rows = await rowsOf(ids[0]!);
        const [next] = await ask(arena.through, arena.calls.claim(routeId, 1, 'w-2'));
        if (rows === 0) {
          expect(next).toBeUndefined();
          return;
        }
        expect(rows).toBe(2);
        expect(await ask(arena.through, arena.calls.complete([next as Lease]))).toMatchObject([
          { word: 'completed' },
        ]);
        // Its first end is as old as before; it is kept because of its second.
        expect(await ask(arena.through, forget(ids))).toMatchObject([{ word: 'kept' }]);
        await database.moveClock(KEPT_MS);
        expect(await ask(arena.through, forget(ids))).toMatchObject([{ word: 'forgotten' }]);
        expect(await rowsOf(ids[0]!)).toBe(0);
      },
    });
  });

  it('by two at once: one deletes it, the other skips it', async () => {
    await meet(arena, {
      given: old,
      a: forgetAll,
      b: forgetAll,
      expected: {
        'a then b': unhindered(['forgotten', 'nothing']),
        'b meets a': unhindered(['forgotten', 'nothing']),
        'b then a': unhindered(['nothing', 'forgotten']),
        'a meets b': unhindered(['nothing', 'forgotten']),
      },
      check: async ({ ids }) => expect(await rowsOf(ids[0]!)).toBe(0),
    });
  });

  it('and a repeated call of the lease that ended it: returns the same result, or not found', async () => {
    await meet(arena, {
      given: old,
      a: forgetAll,
      b: ({ leases }) => arena.calls.complete(leases),
      expected: {
        'a then b': unhindered(['forgotten', 'not_found']),
        'b meets a': { told: ['forgotten', 'not_found'], waitsOn: 'ff_execution' },
        'b then a': unhindered(['forgotten', 'completed again']),
        'a meets b': unhindered(['nothing', 'completed again']),
      },
    });
  });

  it('of a child, and the end of its parent: it is kept as long as its parent exists', async () => {
    await meet(arena, {
      given: async (on) => {
        const scene = await family(1)(on);
        await ask(on.through, on.calls.complete(scene.children));
        await database.moveClock(KEPT_MS);
        // The parent's lease has expired meanwhile; a cancel ends it.
        return { ...scene, logged: await endOfLog(on.through) };
      },
      a: (scene) => forget(asFamily(scene).children.map(({ id }) => id)),
      b: (scene) => arena.calls.cancel([asFamily(scene).parent]),
      expected: {
        'a then b': unhindered(['kept', 'cancelled']),
        'b meets a': unhindered(['kept', 'cancelled']),
        'b then a': unhindered(['kept', 'cancelled']),
        'a meets b': unhindered(['kept', 'cancelled']),
      },
      check: async (scene) => {
        const { parent, children } = asFamily(scene);
        const ids = children.map(({ id }) => id);
        await database.moveClock(KEPT_MS);
        await ask(arena.through, forget([parent.id]));
        await ask(arena.through, forget(ids));
        expect(await rowsOf(ids[0]!)).toBe(0);
      },
    });
  });
});

/** Ended long enough ago, with a key whose window is open or over. */
function keyed(windowMs: number): Race['given'] {
  return async (on) => {
    const scene = await old(on);
    const key = randomUUID();
    await on.through(
      `INSERT INTO ff_idempotency (namespace, key, partition_key, execution_id, body_hash, expires_at_ms)
       VALUES ('default', $1, $2, $3, decode($4, 'hex'), ff_now_ms() + $5::bigint)`,
      [key, PARTITION, scene.ids[0], HASH, windowMs],
    );
    return { ...scene, key, next: randomUUID() };
  };
}

/** Submits the next execution with the key of the first, on the same route. */
function submitKeyed(scene: Scene): Call {
  return {
    sql: `SELECT execution_id, outcome || coalesce(' of ' || existing_id, '') AS outcome FROM ff_submit(
            (SELECT jsonb_build_array(jsonb_build_object('lane', lane, 'kind', kind, 'capabilities', capabilities))
             FROM ff_route WHERE route_id = $1), $2, $3, $4, '{1}', '{0}', '{null}', NULL, NULL, $5, $6, $7)`,
    params: [
      scene.routeId,
      JSON.stringify([{ route: 1, namespace: 'default', priority: 100, policy: {}, tags: {} }]),
      [scene['next']],
      [PARTITION],
      [scene['key']],
      [HASH],
      [HOUR_MS],
    ],
  };
}

describe('deletion and a submit with the same key', () => {
  it('within the window: a duplicate of what is gone, in every order, and no second run', async () => {
    const ended = new Set<string>();
    await arena.race({
      given: keyed(HOUR_MS),
      sessions: {
        a: [{ name: 'call', run: (session, scene) => ask(session.query, forgetAll(scene)) }],
        b: [
          'BEGIN',
          { name: 'call', run: (session, scene) => ask(session.query, submitKeyed(scene)) },
          'COMMIT',
        ],
      },
      check: async (outcome, scene) => {
        const said = outcome.results['b.call'];
        expect(said).toMatchObject({ ok: true, value: [{ word: `duplicate of ${scene.ids[0]}` }] });
        expect(outcome.results['a.call']).toMatchObject({ ok: true, value: [{ word: 'forgotten' }] });
        expect(await ask(arena.through, arena.calls.claim(scene.routeId, 5, 'w-2'))).toEqual([]);
        ended.add(outcome.order.join());
      },
    });
    expect(ended.size).toBe(4);
  });

  it('after the window: the key passes to the new one, in every order', async () => {
    await arena.race({
      given: keyed(0),
      sessions: {
        a: [
          'BEGIN',
          { name: 'call', run: (session, scene) => ask(session.query, forgetAll(scene)) },
          'COMMIT',
        ],
        b: [
          'BEGIN',
          { name: 'call', run: (session, scene) => ask(session.query, submitKeyed(scene)) },
          'COMMIT',
        ],
      },
      check: async (outcome, scene) => {
        expect(outcome.results['b.call']).toMatchObject({ ok: true, value: [{ word: 'submitted' }] });
        expect(outcome.results['a.call']).toMatchObject({ ok: true, value: [{ word: 'forgotten' }] });
        const holder = await arena.through('SELECT execution_id AS id FROM ff_idempotency WHERE key = $1', [
          scene['key'],
        ]);
        expect(holder.rows).toEqual([{ id: scene['next'] }]);
        expect(await ask(arena.through, arena.calls.claim(scene.routeId, 5, 'w-2'))).toMatchObject([
          { id: scene['next'] },
        ]);
      },
    });
  });
});

describe('a timer of a deleted execution', () => {
  it('is discarded, even while others are fired by the same call', async () => {
    const gone = await old(arena);
    const plant = (id: string): Promise<unknown> =>
      arena.through(
        `INSERT INTO ff_timer (kind, due_at_ms, execution_id, partition_key, attempt_index, lease_epoch)
         SELECT kind, 0, $1, $2, 0, 0 FROM unnest(enum_range(NULL::ff_timer_kind)) kind
         -- Which has a function of its own.
         WHERE kind <> 'family'`,
        [id, PARTITION],
      );
    await plant(gone.ids[0]!);
    await ask(arena.through, forget(gone.ids));
    expect(await rowsOf(gone.ids[0]!)).toBe(0);
    await plant(gone.ids[0]!);
    const fired = await ask(arena.through, arena.calls.fire(gone.ids));
    expect(new Set(fired.map(({ word }) => word))).toEqual(new Set(['discarded']));
    const left = await arena.through('SELECT kind FROM ff_timer WHERE execution_id = ANY ($1)', [gone.ids]);
    expect(left.rows).toEqual([]);
  });
});
