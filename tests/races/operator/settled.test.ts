/**
 * Races between looking for open executions with a tag and an execution that submits another one with the tag and then
 * ends: at every moment one of the two is open. Looking in one snapshot always finds one; looking at the newer ones and
 * then at the older ones does not.
 */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { runRace, stepValue, type Interleaving, type StepLike } from '../../../src/testing/stepper.ts';
import type { TestDatabase } from '../../../src/testing/test-database.ts';
import { testDatabase } from '../../setup/database.ts';
import { arenaOn, leased, type Arena, type Scene } from '../arena.ts';
import { ask, type Ask } from '../calls.ts';

let database: TestDatabase;
let arena: Arena;

beforeAll(async () => {
  database = await testDatabase();
  arena = arenaOn(database);
});

afterAll(() => database?.drop());

/** That of all executions of races. */
const PARTITION = 7;
const batchOf = ({ ids }: Scene): string => ids[0]!;

function tag(query: Ask, id: string, scene: Scene): Promise<unknown> {
  const tags = JSON.stringify({ batch: batchOf(scene) });
  return query(`SELECT ff_set_tags($1, $2::smallint, $3::text::jsonb, '{}', 64, 'me')`, [
    id,
    PARTITION,
    tags,
  ]);
}

/** One that runs and has the tag. */
async function given(stage: Arena): Promise<Scene> {
  const scene = await leased(1)(stage);
  await tag(stage.through, batchOf(scene), scene);
  return scene;
}

/** Submits another, and then ends; each commits when it returns. */
const crawler: StepLike<Scene>[] = [
  {
    name: 'submit',
    run: async ({ query }, scene) => {
      const id = randomUUID();
      await query('BEGIN');
      await ask(query, arena.calls.submit({ ids: [id], routes: [{ lane: 'default', kind: randomUUID() }] }));
      await tag(query, id, scene);
      await query('COMMIT');
    },
  },
  {
    name: 'complete',
    run: ({ query }, { leases }) => ask(query, arena.calls.complete(leases)),
  },
];

/** Every order. Tags are changed here, which no race of the arena does. */
function raceWith(watcher: StepLike<Scene>[]): Promise<Interleaving[]> {
  return runRace<Scene>({
    connect: () => database.connect(),
    setup: () => given(arena),
    sessions: { crawler, watcher },
    check: ({ results }) => {
      expect(Object.values(results).filter(({ ok }) => !ok)).toEqual([]);
    },
  });
}

it('one look at all of them finds one that is open, whenever it is', async () => {
  const look: StepLike<Scene> = {
    name: 'look',
    run: async ({ query }, scene) => {
      const found = await query('SELECT execution_id FROM ff_find_open($1, $2, $3, NULL, 100)', [
        'batch',
        batchOf(scene),
        JSON.stringify({ batch: batchOf(scene) }),
      ]);
      return found.rows[0]?.['execution_id'] ?? null;
    },
  };
  const outcomes = await raceWith([look]);
  expect(outcomes).toHaveLength(3);
  for (const outcome of outcomes) expect(stepValue<string | null>(outcome, 'watcher.look')).not.toBeNull();
});

it('a look at the newer ones and then at the older ones finds none in some order', async () => {
  const half = (name: 'newer' | 'older'): StepLike<Scene> => ({
    name,
    run: async ({ query }, scene) => {
      const found = await query(
        `SELECT e.execution_id FROM ff_tag t JOIN ff_execution e USING (execution_id)
         WHERE t.tag_key = 'batch' AND t.tag_value = $1 AND e.lifecycle_phase <> 'terminal'
           AND (e.execution_id = $2) = $3`,
        [batchOf(scene), batchOf(scene), name === 'older'],
      );
      return found.rows.length;
    },
  });
  const outcomes = await raceWith([half('newer'), half('older')]);
  const found = outcomes.map(
    (outcome) => stepValue<number>(outcome, 'watcher.newer') + stepValue<number>(outcome, 'watcher.older'),
  );
  expect(found).toContain(0);
});
