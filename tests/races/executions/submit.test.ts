/**
 * Races between submissions: the same execution twice, the same executions in opposite order, and before them the same
 * new routes. The unique keys make the second wait and then see what the first did; nothing deadlocks.
 */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { tablesWaitedOn } from '../../../src/testing/stepper.ts';
import type { TestDatabase } from '../../../src/testing/test-database.ts';
import { testDatabase } from '../../setup/database.ts';
import { alone, arenaOn, meet, saidTo, transaction, submitted } from '../arena.ts';
import type { Arena, Scene } from '../arena.ts';
import type { Call, Route, Submission } from '../calls.ts';

let database: TestDatabase;
let arena: Arena;

beforeAll(async () => {
  database = await testDatabase();
  arena = arenaOn(database);
});

afterAll(() => database?.drop());

/** Unused ids and an interned route, or routes that are not interned. */
interface Plan extends Scene {
  known: Route;
  fresh: Route[];
}

/** The named lane exists unless new ones are requested; routes are in the order the callers must keep. */
async function planned(lanes: 'known lane' | 'new lanes' = 'known lane'): Promise<Plan> {
  const scene = await submitted(1)(arena);
  const { rows } = await database.query('SELECT lane, kind FROM ff_route WHERE route_id = $1', [
    scene.routeId,
  ]);
  const names = [randomUUID(), randomUUID(), randomUUID()].toSorted();
  const fresh = names.map((name) => ({ lane: lanes === 'new lanes' ? name : 'default', kind: name }));
  const ids = names.map(() => randomUUID()).toSorted();
  return { ...scene, ids, known: rows[0] as Route, fresh };
}

const submit = (submission: (plan: Plan) => Submission) => (scene: Scene) =>
  arena.calls.submit(submission(scene as Plan));
const oneExecution = submit(({ ids, known }) => ({ ids: ids.slice(0, 1), routes: [known] }));

async function routesCalled({ fresh }: Plan): Promise<number> {
  const kinds = fresh.map(({ kind }) => kind);
  return (await database.query('SELECT FROM ff_route WHERE kind = ANY ($1)', [kinds])).rowCount ?? 0;
}

describe('two submissions of one id', () => {
  it('create one execution: the second waits and returns duplicate', async () => {
    await meet(arena, {
      given: () => planned(),
      a: oneExecution,
      b: oneExecution,
      expected: {
        'a then b': { told: ['submitted', 'duplicate'], waitsOn: null },
        'b meets a': { told: ['submitted', 'duplicate'], waitsOn: 'ff_execution' },
        'b then a': { told: ['duplicate', 'submitted'], waitsOn: null },
        'a meets b': { told: ['duplicate', 'submitted'], waitsOn: 'ff_execution' },
      },
      check: async ({ ids }) => {
        const found = await database.query(
          'SELECT FROM ff_execution WHERE execution_id = $1',
          ids.slice(0, 1),
        );
        expect(found.rowCount).toBe(1);
      },
    });
  });

  it('create one execution when the first is rolled back', async () => {
    await arena.race({
      given: () => planned(),
      sessions: { a: transaction(oneExecution, 'ROLLBACK'), b: transaction(oneExecution) },
      check: (outcome) => {
        expect(saidTo(outcome, 'b')).toBe('submitted');
        expect(['submitted', 'duplicate']).toContain(saidTo(outcome, 'a'));
      },
    });
  });
});

describe('two submissions of the same executions in opposite order', () => {
  it('do not deadlock, even while another session holds one in the middle', async () => {
    const all = 'submitted, submitted, submitted';
    const none = 'duplicate, duplicate, duplicate';
    const outcomes = await arena.race({
      given: () => planned(),
      sessions: {
        blocker: transaction(
          submit(({ ids, known }) => ({ ids: ids.slice(1, 2), routes: [known] })),
          'ROLLBACK',
        ),
        a: alone(submit(({ ids, known }) => ({ ids, routes: [known] }))),
        b: alone(submit(({ ids, known }) => ({ ids: ids.toReversed(), routes: [known] }))),
      },
      check: (outcome) => {
        const told = [saidTo(outcome, 'a'), saidTo(outcome, 'b')];
        expect(told.toSorted()).toEqual([none, all]);
      },
    });
    expect(tablesWaitedOn(outcomes)).toEqual(['ff_execution']);
  });
});

describe.each(['known lane', 'new lanes'] as const)(
  'two sessions that intern the same new routes (%s)',
  (lanes) => {
    // A wait for a unique key does not name its table.
    const table = lanes === 'new lanes' ? 'ff_lane' : 'ff_lane or ff_route';
    const interning =
      (order: (routes: Route[]) => Route[]) =>
      (scene: Scene): Call => ({
        sql: `SELECT NULL::uuid AS execution_id, count(*)::text AS outcome FROM ff_intern_routes($1, 10000)`,
        params: [
          JSON.stringify(order((scene as Plan).fresh).map((route) => ({ ...route, capabilities: [] }))),
        ],
      });
    const forwards = interning((routes) => routes);
    const backwards = interning((routes) => routes.toReversed());

    it('create each once, whichever comes first', async () => {
      const told: [string, string] = ['3', '3'];
      await meet(arena, {
        given: () => planned(lanes),
        a: forwards,
        b: backwards,
        expected: {
          'a then b': { told, waitsOn: null },
          'b meets a': { told, waitsOn: table },
          'b then a': { told, waitsOn: null },
          'a meets b': { told, waitsOn: table },
        },
        check: async (scene) => expect(await routesCalled(scene as Plan)).toBe(3),
      });
    });

    it('do not deadlock while another interns one in the middle and rolls back', async () => {
      const outcomes = await arena.race({
        given: () => planned(lanes),
        sessions: {
          blocker: transaction(
            interning((routes) => routes.slice(1, 2)),
            'ROLLBACK',
          ),
          a: alone(forwards),
          b: alone(backwards),
        },
        check: async (_, scene) => expect(await routesCalled(scene as Plan)).toBe(3),
      });
      expect(tablesWaitedOn(outcomes)).toContain('ff_route');
    });
  },
);
