/**
 * An execution is submitted and claimed while another call waits to cancel it or to revoke its lease. The waiting call
 * requested its lock before the execution existed, so it holds none when it reads: what it reads may be outdated at
 * once.
 */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { TestDatabase } from '../../../src/testing/test-database.ts';
import { testDatabase } from '../../setup/database.ts';
import { answersOf, arenaOn, saidTo, submitted, type Arena, type Scene } from '../arena.ts';
import { ask, type Call } from '../calls.ts';

let database: TestDatabase;
let arena: Arena;

beforeAll(async () => {
  database = await testDatabase();
  arena = arenaOn(database);
});

afterAll(() => database?.drop());

interface Appearing extends Scene {
  appearing: string;
  route: { lane: string; kind: string };
}

/** One execution to wait for, and the id of another that is not submitted yet; locks are taken in id order. */
async function given(): Promise<Scene> {
  const scene = await submitted(1)(arena);
  const route = { lane: 'default', kind: randomUUID() };
  return { ...scene, appearing: `ffffffff${randomUUID().slice(8)}`, route } satisfies Appearing;
}

const claimed = async (scene: Appearing): Promise<Call> => {
  const { rows } = await arena.through('SELECT route_id FROM ff_route WHERE kind = $1', [scene.route.kind]);
  return arena.calls.claim(Number(rows[0]?.route_id), 1, 'w-1');
};

it.each(['cancel', 'revoke'] as const)(
  '%s skips an execution that appears and is claimed while it waits for another',
  async (name) => {
    await arena.race({
      given,
      sessions: {
        blocker: [
          'BEGIN',
          {
            name: 'lock',
            run: (session, { ids }) => ask(session.query, arena.calls.cancel([{ id: ids[0] ?? '' }])),
          },
          'ROLLBACK',
        ],
        waiter: [
          {
            name: 'call',
            run: (session, scene) =>
              ask(
                session.query,
                arena.calls[name]([{ id: scene.ids[0] ?? '' }, { id: (scene as Appearing).appearing }]),
              ),
          },
        ],
        other: [
          {
            name: 'submit',
            run: (session, scene) => {
              const { appearing, route } = scene as Appearing;
              return ask(session.query, arena.calls.submit({ ids: [appearing], routes: [route] }));
            },
          },
          'BEGIN',
          {
            name: 'claim',
            run: async (session, scene) => ask(session.query, await claimed(scene as Appearing)),
          },
          'COMMIT',
        ],
      },
      permutations: [
        [
          'blocker.BEGIN',
          'blocker.lock',
          'waiter.call',
          'other.submit',
          'other.BEGIN',
          'other.claim',
          'blocker.ROLLBACK',
          'other.COMMIT',
        ],
      ],
      check: async (outcome, scene) => {
        const { appearing } = scene as Appearing;
        expect(saidTo(outcome, 'waiter')).toBe(
          name === 'cancel' ? 'cancelled, not_found' : 'no_active_lease, no_active_lease',
        );
        expect(answersOf(outcome, 'waiter')).toHaveLength(2);
        const { rows } = await arena.through(
          'SELECT public_state FROM ff_exec_core WHERE execution_id = $1',
          [appearing],
        );
        expect(rows).toEqual([{ public_state: 'active' }]);
      },
    });
  },
);
