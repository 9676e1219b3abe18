/**
 * Races for the queue: claims, timers and calls that take the work away meanwhile. Claiming and firing never wait; what
 * another session holds is left to the next pass.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { TestDatabase } from '../../../src/testing/test-database.ts';
import { testDatabase } from '../../setup/database.ts';
import { answersOf, arenaOn, due, leased, meet, runOut, saidTo, transaction, submitted } from '../arena.ts';
import type { Arena, Expected, Meeting, Scene } from '../arena.ts';
import { ask } from '../calls.ts';
import { claimAndCancel, claimTwice } from './known-races.ts';

let database: TestDatabase;
let arena: Arena;

beforeAll(async () => {
  database = await testDatabase();
  arena = arenaOn(database);
});

afterAll(() => database?.drop());

const claimOne =
  (worker: string) =>
  ({ routeId }: Scene) =>
    arena.calls.claim(routeId, 1, worker);
const cancelAll = ({ ids }: Scene) => arena.calls.cancel(ids.map((id) => ({ id })));
const fireAll = ({ ids }: Scene) => arena.calls.fire(ids);

/** The results by which came first; nobody waits. */
function unhindered(aFirst: [string, string], bFirst: [string, string]): Record<Meeting, Expected> {
  return {
    'a then b': { told: aFirst, waitsOn: null },
    'b meets a': { told: aFirst, waitsOn: null },
    'b then a': { told: bFirst, waitsOn: null },
    'a meets b': { told: bFirst, waitsOn: null },
  };
}

describe('two claims', () => {
  it('never grant one execution twice, and do not wait for each other', async () => {
    await claimTwice(arena);
  });

  it('of one each take different executions, even while the first is open', async () => {
    await arena.race({
      given: submitted(2),
      sessions: { a: transaction(claimOne('w-1')), b: transaction(claimOne('w-2')) },
      check: (outcome, { ids }) => {
        const got = ['a', 'b'].flatMap((session) => answersOf(outcome, session).map(({ id }) => id));
        expect(got.toSorted()).toEqual(ids);
        expect(outcome.waited).toEqual([]);
      },
    });
  });

  it('of many split what there is', async () => {
    const claimMany = ({ routeId }: Scene) => arena.calls.claim(routeId, 4, 'w');
    const four = 'claimed, claimed, claimed, claimed';
    const two = 'claimed, claimed';
    await meet(arena, {
      given: submitted(6),
      a: claimMany,
      b: claimMany,
      expected: unhindered([four, two], [two, four]),
    });
  });
});

describe('a claim', () => {
  it('and a cancel: the lease is revoked or never granted, and the stale queue row is removed', async () => {
    await claimAndCancel(arena);
  });

  it('and a cancel and a second claim: at most one lease is granted, and none is left', async () => {
    await arena.race({
      given: submitted(1),
      sessions: {
        first: transaction(claimOne('w-1')),
        cancel: transaction(cancelAll),
        second: transaction(claimOne('w-2')),
      },
      check: async (outcome, { ids }) => {
        expect(saidTo(outcome, 'cancel')).toBe('cancelled');
        const claims = [saidTo(outcome, 'first'), saidTo(outcome, 'second')];
        expect(claims.filter((word) => word === 'claimed').length).toBeLessThanOrEqual(1);
        const takenFrom = answersOf(outcome, 'cancel')[0]?.takenFrom ?? null;
        expect(takenFrom).toBe([null, 'w-1', 'w-2'][claims.indexOf('claimed') + 1]);
        const found = await database.query('SELECT FROM ff_lease WHERE execution_id = ANY ($1)', [ids]);
        expect(found.rowCount).toBe(0);
        expect(outcome.waited.filter((step) => step !== 'cancel.call')).toEqual([]);
      },
    });
  });

  it.each([
    ['release', 'released', leased(1)],
    ['revoke', 'revoked', leased(1)],
    ['lapse', 'lapsed', runOut(1)],
  ] as const)('sees what a %s puts back once it is committed', async (operation, word, given) => {
    await meet(arena, {
      given,
      a: claimOne('w-2'),
      b: ({ leases }) => arena.calls[operation](leases),
      expected: { ...unhindered(['nothing', word], ['nothing', word]), ...afterwards('claimed', word) },
    });
  });

  it('sees what a timer makes claimable once it is committed', async () => {
    await meet(arena, {
      given: due(1),
      a: claimOne('w-1'),
      b: fireAll,
      expected: {
        ...unhindered(['nothing', 'fired'], ['nothing', 'fired']),
        ...afterwards('claimed', 'fired'),
      },
    });
  });
});

function afterwards(a: string, b: string): { 'b then a': Expected } {
  return { 'b then a': { told: [a, b], waitsOn: null } };
}

describe('a timer', () => {
  it('and a cancel: it is fired or discarded, and skipped while the cancel is open', async () => {
    await meet(arena, {
      given: due(1),
      a: fireAll,
      b: cancelAll,
      expected: {
        'a then b': { told: ['fired', 'cancelled'], waitsOn: null },
        'b meets a': { told: ['fired', 'cancelled'], waitsOn: 'ff_execution' },
        'b then a': { told: ['discarded', 'cancelled'], waitsOn: null },
        'a meets b': { told: ['nothing', 'cancelled'], waitsOn: null },
      },
      check: async (scene) => {
        await ask(arena.through, fireAll(scene));
        const left = await database.query('SELECT FROM ff_timer WHERE execution_id = ANY ($1)', [scene.ids]);
        expect(left.rowCount, 'timers the next pass left').toBe(0);
      },
    });
  });

  it('is fired once by two sessions at the same time', async () => {
    await meet(arena, {
      given: due(1),
      a: fireAll,
      b: fireAll,
      expected: unhindered(['fired', 'nothing'], ['nothing', 'fired']),
    });
  });

  it('is fired once when two sessions fire many in opposite order', async () => {
    const three = 'fired, fired, fired';
    await meet(arena, {
      given: due(3),
      a: fireAll,
      b: ({ ids }) => arena.calls.fire(ids.toReversed()),
      expected: unhindered([three, 'nothing'], ['nothing', three]),
    });
  });
});
