/**
 * Races around a pause: with the children it waits for, the time it waits for, and calls that end the parent meanwhile.
 * A wake-up is never lost: whatever the order, the pause reports it or the notification of the last child wakes the
 * parent. Timed pauses against the other operations of a lease are in leased.test.ts.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { TestDatabase } from '../../../src/testing/test-database.ts';
import { testDatabase } from '../../setup/database.ts';
import { answersOf, arenaOn, HOUR_MS, isBefore, meet, saidTo, transaction } from '../arena.ts';
import type { Arena, Expected, Meeting, Scene } from '../arena.ts';
import { ask, LEASE_MS, type PauseFor } from '../calls.ts';
import { endOfLog } from '../invariants.ts';
import { asFamily, childIds, endedChildren, expectToGoOn, family, timersOf } from './families.ts';

let database: TestDatabase;
let arena: Arena;

beforeAll(async () => {
  database = await testDatabase();
  arena = arenaOn(database);
});

afterAll(() => database?.drop());

const pauseFor =
  (request: PauseFor = {}) =>
  (scene: Scene) =>
    arena.calls.pause(scene.leases, { children: childIds(scene), ...request });
const completeChild = (index: number) => (scene: Scene) =>
  arena.calls.complete(asFamily(scene).children.slice(index, index + 1));
const fireParent = (scene: Scene) => arena.calls.fire([asFamily(scene).parent.id]);
const fireNth =
  (index: number) =>
  ({ timers }: Scene) =>
    arena.calls.fireTimers([(timers as string[])[index]!]);
const cancelParent = ({ leases }: Scene) => arena.calls.cancel(leases);

/** Nobody waits; the results by how the two met. */
function unhindered(told: Record<Meeting, [string, string]>): Record<Meeting, Expected> {
  const expected = Object.entries(told).map(([meeting, words]) => [meeting, { told: words, waitsOn: null }]);
  return Object.fromEntries(expected) as Record<Meeting, Expected>;
}

describe('a pause for children', () => {
  it('and the end of the last child: neither waits, and only a committed end counts', async () => {
    await meet(arena, {
      given: family(1),
      a: pauseFor(),
      b: completeChild(0),
      expected: unhindered({
        'a then b': ['paused', 'completed'],
        'b meets a': ['paused', 'completed'],
        'b then a': ['due', 'completed'],
        'a meets b': ['paused', 'completed'],
      }),
    });
  });

  it.each([
    ['children alone', {}],
    ['whichever comes first', { delayMs: HOUR_MS }],
  ])(
    'and the end of the last child and a timer fired: the parent resumes, paused for %s',
    async (_, request) => {
      const told = new Set<string>();
      await arena.race({
        given: family(1),
        sessions: {
          pause: transaction(pauseFor(request)),
          child: transaction(completeChild(0)),
          fire: transaction(fireParent),
        },
        check: async (outcome, scene) => {
          const due = isBefore(outcome, 'child.COMMIT', 'pause.call');
          expect(saidTo(outcome, 'pause')).toBe(due ? 'due' : 'paused');
          // Only the pause may find its execution locked, by a timer that is being fired.
          expect(outcome.waited.filter((step) => step !== 'pause.call')).toEqual([]);
          told.add(`${saidTo(outcome, 'pause')} ${saidTo(outcome, 'fire')}`);
          await expectToGoOn(arena, scene, answersOf(outcome, 'pause'));
        },
      });
      // No notification, one in time, one in vain and one too early: all of these occurred.
      expect([...told].toSorted()).toEqual([
        'due discarded',
        'due nothing',
        'paused fired',
        'paused nothing',
      ]);
    },
  );

  it('and the ends of two children, both needed: the parent resumes once, after the second', async () => {
    await arena.race({
      given: family(2),
      sessions: {
        pause: transaction(pauseFor()),
        one: transaction(completeChild(0)),
        two: transaction(completeChild(1)),
      },
      check: async (outcome, scene) => {
        const ends = ['one.COMMIT', 'two.COMMIT'];
        const due = ends.every((end) => isBefore(outcome, end, 'pause.call'));
        expect(saidTo(outcome, 'pause')).toBe(due ? 'due' : 'paused');
        await expectToGoOn(arena, scene, answersOf(outcome, 'pause'));
      },
    });
  });

  it.each([1, 2])('that is committed, and two children that end at once, %i needed', async (needed) => {
    await arena.race({
      given: async (on) => {
        const scene = await family(2)(on);
        const paused = await ask(on.through, pauseFor({ needed })(scene));
        return { ...scene, paused, logged: await endOfLog(on.through) };
      },
      sessions: {
        one: transaction(completeChild(0)),
        two: transaction(completeChild(1)),
        fire: transaction(fireParent),
      },
      check: async (outcome, scene) => {
        const ended = ['one.COMMIT', 'two.COMMIT'].filter((end) => isBefore(outcome, end, 'fire.call'));
        const woken = ended.length >= needed;
        const nothing = ended.length === 0 ? 'nothing' : 'discarded';
        expect(saidTo(outcome, 'fire')).toBe(woken ? 'fired' : nothing);
        expect(outcome.waited).toEqual([]);
        await expectToGoOn(arena, scene, scene.paused as never);
      },
    });
  });

  it.each([
    ['cancel', 'cancelled', 'cancelled', 'not_active'],
    ['revoke', 'no_active_lease', 'revoked', 'lease_revoked'],
  ] as const)('and a %s: they run one after the other', async (name, after, before, refused) => {
    await meet(arena, {
      given: family(1),
      a: pauseFor(),
      b: ({ leases }) => arena.calls[name](leases),
      expected: {
        'a then b': { told: ['paused', after], waitsOn: null },
        'b meets a': { told: ['paused', after], waitsOn: 'ff_execution' },
        'b then a': { told: [refused, before], waitsOn: null },
        'a meets b': { told: [refused, before], waitsOn: 'ff_execution' },
      },
    });
  });

  it('with an expired lease is refused, and the reaper skips it', async () => {
    await meet(arena, {
      given: async (on) => {
        const scene = await family(1)(on);
        await database.moveClock(LEASE_MS + 1);
        return scene;
      },
      a: pauseFor(),
      b: ({ leases }) => arena.calls.lapse(leases),
      expected: {
        'a then b': { told: ['lease_expired', 'lapsed'], waitsOn: null },
        'b meets a': { told: ['lease_expired', 'nothing'], waitsOn: null },
        'b then a': { told: ['lease_expired', 'lapsed'], waitsOn: null },
        'a meets b': { told: ['lease_expired', 'lapsed'], waitsOn: 'ff_execution' },
      },
    });
  });

  it('made twice by one lease returns the same', async () => {
    await meet(arena, {
      given: family(1),
      a: pauseFor(),
      b: pauseFor(),
      expected: {
        'a then b': { told: ['paused', 'paused again'], waitsOn: null },
        'b meets a': { told: ['paused', 'paused again'], waitsOn: 'ff_execution' },
        'b then a': { told: ['paused again', 'paused'], waitsOn: null },
        'a meets b': { told: ['paused again', 'paused'], waitsOn: 'ff_execution' },
      },
    });
  });
});

describe('the notification of a child', () => {
  it('is fired once by two sessions, and the next pass has nothing left to do', async () => {
    await meet(arena, {
      given: endedChildren(1),
      a: fireParent,
      b: fireParent,
      expected: unhindered({
        'a then b': ['fired', 'nothing'],
        'b meets a': ['fired', 'nothing'],
        'b then a': ['nothing', 'fired'],
        'a meets b': ['nothing', 'fired'],
      }),
    });
  });

  it.each([1, 2])('and that of another child, %i needed: one of them wakes the parent', async (needed) => {
    await meet(arena, {
      given: endedChildren(2, { needed }),
      a: fireNth(0),
      b: fireNth(1),
      expected: unhindered({
        'a then b': ['fired', 'discarded'],
        'b meets a': ['fired', 'nothing'],
        'b then a': ['discarded', 'fired'],
        'a meets b': ['nothing', 'fired'],
      }),
      check: (scene) => expectToGoOn(arena, scene, [{ word: 'paused' } as never]),
    });
  });

  it('and the timer of the same pause: one of them wakes the parent', async () => {
    await meet(arena, {
      given: async (on) => {
        const scene = await endedChildren(1, { delayMs: HOUR_MS })(on);
        await database.moveClock(HOUR_MS);
        return { ...scene, timers: [...(await timersOf(on, scene, 'eligible')), ...scene.timers] };
      },
      a: fireNth(0),
      b: fireNth(1),
      expected: unhindered({
        'a then b': ['fired', 'discarded'],
        'b meets a': ['fired', 'nothing'],
        'b then a': ['discarded', 'fired'],
        'a meets b': ['nothing', 'fired'],
      }),
      check: (scene) => expectToGoOn(arena, scene, [{ word: 'paused' } as never]),
    });
  });

  it('and the timer of the same pause, fired by one call: the parent is woken once', async () => {
    const scene = await endedChildren(2, { delayMs: HOUR_MS })(arena);
    await database.moveClock(HOUR_MS);
    expect(await ask(arena.through, fireParent(scene))).toMatchObject([{ word: 'fired' }]);
    await expectToGoOn(arena, scene, [{ word: 'paused' } as never]);
  });

  it('and a cancel of the parent: it is fired or discarded, and skipped while the cancel is open', async () => {
    await meet(arena, {
      given: endedChildren(1),
      a: fireParent,
      b: cancelParent,
      expected: {
        'a then b': { told: ['fired', 'cancelled'], waitsOn: null },
        'b meets a': { told: ['fired', 'cancelled'], waitsOn: 'ff_execution' },
        'b then a': { told: ['discarded', 'cancelled'], waitsOn: null },
        'a meets b': { told: ['nothing', 'cancelled'], waitsOn: null },
      },
      check: async (scene) => {
        await ask(arena.through, fireParent(scene));
        expect(await timersOf(arena, asFamily(scene), 'child_ended')).toEqual([]);
      },
    });
  });

  it('and a claim: the parent is granted after the commit', async () => {
    await meet(arena, {
      given: endedChildren(1),
      a: ({ routeId }) => arena.calls.claim(routeId, 1, 'w-3'),
      b: fireParent,
      expected: unhindered({
        'a then b': ['nothing', 'fired'],
        'b meets a': ['nothing', 'fired'],
        'b then a': ['claimed', 'fired'],
        'a meets b': ['nothing', 'fired'],
      }),
    });
  });

  it.each(['cancel', 'complete'] as const)(
    'that ends by %s while the parent runs is dropped',
    async (name) => {
      const scene = await family(1)(arena);
      await ask(arena.through, arena.calls[name](scene.children));
      expect(await ask(arena.through, fireParent(scene))).toMatchObject([{ word: 'discarded' }]);
      expect(await ask(arena.through, pauseFor()(scene))).toMatchObject([{ word: 'due' }]);
    },
  );
});
