/**
 * Races around the end of a parent: with a spawn, a replay, the children's own ends, a cancel, and others that do the same
 * work. Whoever wins, no child outlives its parent, and none stays ended whose parent runs again.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { TestDatabase } from '../../../src/testing/test-database.ts';
import { testDatabase } from '../../setup/database.ts';
import { answersOf, arenaOn, meet, saidTo, transaction, type Arena } from '../arena.ts';
import { asFamily, childIds, family } from '../steps/families.ts';
import { endedParent, expectAtRest, replayedParent, settle, settleAndReplay, spawnAndEnd } from './races.ts';

let database: TestDatabase;
let arena: Arena;

beforeAll(async () => {
  database = await testDatabase();
  arena = arenaOn(database);
});

afterAll(() => database?.drop());

describe('the work on a family', () => {
  it('and a spawn that commits while its parent ends: the child is seen, or was never spawned', async () => {
    const outcomes = await spawnAndEnd(arena);
    const told = outcomes.map((outcome) => `${saidTo(outcome, 'spawning')}, ${saidTo(outcome, 'ending')}`);
    expect(new Set(told)).toEqual(new Set(['submitted, completed', 'not_active, completed']));
  });

  it('and a replay of the parent: what was ended begins again, and the rest is left', async () => {
    const outcomes = await settleAndReplay(arena);
    expect(new Set(outcomes.map((outcome) => saidTo(outcome, 'replaying')))).toEqual(new Set(['replayed']));
    const worked = new Set(outcomes.map((outcome) => saidTo(outcome, 'working')));
    expect(worked).toContain('done, cancelled, cancelled');
    expect(worked).toContain('held');
  });

  it('and a child that completes: the first of them counts, and neither waits for the work', async () => {
    const ended = { told: ['not_active', 'done, cancelled'] as [string, string] };
    await meet(arena, {
      given: endedParent(1),
      a: (scene) => arena.calls.complete(asFamily(scene).children),
      b: settle(arena),
      expected: {
        'a then b': { told: ['completed', 'done'], waitsOn: null },
        'b meets a': { told: ['completed', 'held'], waitsOn: null },
        'b then a': { ...ended, waitsOn: null },
        'a meets b': { ...ended, waitsOn: 'ff_execution' },
      },
      check: (scene) => expectAtRest(arena, scene),
    });
  });

  it('and a step that a child records: the step holds the end up, and the work is done later', async () => {
    await meet(arena, {
      given: endedParent(1),
      a: (scene) => arena.calls.record(asFamily(scene).children, 'late'),
      b: settle(arena),
      expected: {
        'a then b': { told: ['recorded', 'done, cancelled'], waitsOn: null },
        'b meets a': { told: ['recorded', 'held'], waitsOn: null },
        'b then a': { told: ['not_active', 'done, cancelled'], waitsOn: null },
        'a meets b': { told: ['not_active', 'done, cancelled'], waitsOn: 'ff_execution' },
      },
      check: (scene) => expectAtRest(arena, scene),
    });
  });

  it('and a cancel of a parent that runs again: the children end with it', async () => {
    await meet(arena, {
      given: replayedParent(1),
      a: (scene) => arena.calls.cancel([asFamily(scene).parent]),
      b: settle(arena),
      expected: {
        'a then b': { told: ['cancelled', 'done, done'], waitsOn: null },
        'b meets a': { told: ['cancelled', 'held'], waitsOn: null },
        'b then a': { told: ['cancelled', 'done, replayed'], waitsOn: null },
        'a meets b': { told: ['cancelled', 'done, replayed'], waitsOn: 'ff_execution' },
      },
      check: (scene) => expectAtRest(arena, scene),
    });
  });

  it('and a renewal of a parent that runs again: neither waits for the other', async () => {
    const expected = { told: ['renewed', 'done, replayed'] as [string, string], waitsOn: null };
    await meet(arena, {
      given: replayedParent(1),
      a: (scene) => arena.calls.renew([asFamily(scene).parent]),
      b: settle(arena),
      expected: {
        'a then b': expected,
        'b then a': expected,
        'a meets b': expected,
        'b meets a': { told: ['renewed', 'done, replayed'], waitsOn: null },
      },
      check: (scene) => expectAtRest(arena, scene),
    });
  });

  it('and another who does it: one of them does, and nobody waits', async () => {
    const [done, left] = ['done, cancelled, cancelled', 'left'];
    await meet(arena, {
      given: endedParent(2),
      a: settle(arena),
      b: settle(arena),
      expected: {
        'a then b': { told: [done, 'nothing'], waitsOn: null },
        'b meets a': { told: [done, left], waitsOn: null },
        'b then a': { told: ['nothing', done], waitsOn: null },
        'a meets b': { told: [left, done], waitsOn: null },
      },
      check: (scene) => expectAtRest(arena, scene),
    });
  });

  it('and a cancel of parent and children in one batch, in any order of ids: no deadlock', async () => {
    await arena.race({
      given: endedParent(2),
      sessions: {
        batch: transaction((scene) => arena.calls.cancel(scene.ids.map((id) => ({ id })))),
        working: transaction(settle(arena)),
      },
      check: (_, scene) => expectAtRest(arena, scene),
    });
  });
});

describe('the end of a parent, the work on its family and a replay of it', () => {
  it('in every order: in the end the family is as the parent is', async () => {
    const outcomes = await arena.race({
      given: family(1),
      sessions: {
        ending: transaction((scene) => arena.calls.complete([asFamily(scene).parent])),
        working: transaction(settle(arena)),
        replaying: transaction((scene) => arena.calls.replay([asFamily(scene).parent.id], 'failed_step')),
      },
      check: async (outcome, scene) => {
        await expectAtRest(arena, scene);
        const { rows } = await arena.through(
          'SELECT lifecycle_phase::text AS phase FROM ff_execution WHERE execution_id = ANY ($1)',
          [childIds(scene)],
        );
        const isOpen = answersOf(outcome, 'replaying')[0]?.word === 'replayed';
        expect(rows.every(({ phase }) => (phase !== 'terminal') === isOpen)).toBe(true);
      },
    });
    const replays = new Set(outcomes.map((outcome) => saidTo(outcome, 'replaying')));
    expect(replays).toEqual(new Set(['replayed', 'not_terminal']));
  });
});
