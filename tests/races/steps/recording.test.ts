/**
 * Races around what a running handler writes besides its outcome: steps, children, progress. Each blocks the end of the
 * lease but not its renewal, and the writes of a handler whose lease is gone are refused.
 */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { tablesWaitedOn } from '../../../src/testing/stepper.ts';
import type { TestDatabase } from '../../../src/testing/test-database.ts';
import { testDatabase } from '../../setup/database.ts';
import {
  answersOf,
  arenaOn,
  claimAll,
  isBefore,
  leased,
  meet,
  runOut,
  saidTo,
  transaction,
  type Arena,
  type Expected,
  type Meeting,
  type Scene,
} from '../arena.ts';
import { ask, LEASE_MS, wordsOf, type Call, type Lease } from '../calls.ts';

let database: TestDatabase;
let arena: Arena;

beforeAll(async () => {
  database = await testDatabase();
  arena = arenaOn(database);
});

afterAll(() => database?.drop());

const record =
  (value: unknown = 1) =>
  ({ leases }: Scene) =>
    arena.calls.record(leases, 'step', value);
const progress =
  (percent: number) =>
  ({ leases }: Scene) =>
    arena.calls.progress(leases, percent);
const complete = ({ leases }: Scene) => arena.calls.complete(leases);
const cancel = ({ leases }: Scene) => arena.calls.cancel(leases);
const lapse = ({ leases }: Scene) => arena.calls.lapse(leases);

/** The second of two waits for the first; the table depends on which that is. */
function inTurn(
  first: [string, string],
  second: [string, string],
  tables: { behindA: string; behindB: string },
): Record<Meeting, Expected> {
  return {
    'a then b': { told: first, waitsOn: null },
    'b meets a': { told: first, waitsOn: tables.behindA },
    'b then a': { told: second, waitsOn: null },
    'a meets b': { told: second, waitsOn: tables.behindB },
  };
}

const IN_TURN = { behindA: 'ff_execution', behindB: 'ff_execution' };

async function stepsOf({ ids }: Scene): Promise<unknown[]> {
  const found = await arena.through('SELECT value FROM ff_step WHERE execution_id = ANY ($1)', [ids]);
  return found.rows.map((row) => row.value);
}

describe('recording a step', () => {
  it.each([
    ['complete', 'completed', 'not_active'],
    ['fail', 'failed', 'not_active'],
    ['release', 'released', 'not_active'],
    ['pause', 'paused', 'not_active'],
    ['cancel', 'cancelled', 'not_active'],
    ['revoke', 'revoked', 'lease_revoked'],
  ] as const)('and %s: recorded before or refused after', async (name, ended, refused) => {
    await meet(arena, {
      given: leased(1),
      a: record(),
      b: ({ leases }) => arena.calls[name](leases),
      expected: inTurn(['recorded', ended], [refused, ended], IN_TURN),
    });
  });

  it('and renew: neither waits for the other', async () => {
    const expected: Expected = { told: ['recorded', 'renewed'], waitsOn: null };
    await meet(arena, {
      given: leased(1),
      a: record(),
      b: ({ leases }) => arena.calls.renew(leases),
      expected: {
        'a then b': expected,
        'b meets a': expected,
        'b then a': expected,
        'a meets b': expected,
      },
    });
  });

  it('and renew and complete: an end waits for an open step, also when the row was renewed meanwhile', async () => {
    await arena.race({
      given: leased(1),
      sessions: {
        record: transaction(record()),
        renew: transaction(({ leases }) => arena.calls.renew(leases)),
        end: transaction(complete),
      },
      check: async (outcome, scene) => {
        const open = (one: string, other: string) =>
          isBefore(outcome, `${other}.call`, `${one}.call`) &&
          isBefore(outcome, `${one}.call`, `${other}.COMMIT`);
        // Only an end waits for others, and only a step for an end.
        expect(outcome.waited.includes('end.call')).toBe(open('end', 'record') || open('end', 'renew'));
        expect(outcome.waited).not.toContain('renew.call');
        expect(saidTo(outcome, 'end')).toBe('completed');
        // An end that waits for a renewal holds nothing yet.
        const overtook = open('end', 'renew') && isBefore(outcome, 'record.call', 'renew.COMMIT');
        const recorded = isBefore(outcome, 'record.call', 'end.call') || overtook;
        expect(saidTo(outcome, 'record')).toBe(recorded ? 'recorded' : 'not_active');
        expect(await stepsOf(scene)).toEqual(recorded ? [1] : []);
      },
    });
  });

  it('and the reaper, with an expired lease: refused, and the reaper skips it', async () => {
    await meet(arena, {
      given: runOut(1),
      a: record(),
      b: lapse,
      expected: {
        'a then b': { told: ['lease_expired', 'lapsed'], waitsOn: null },
        'b meets a': { told: ['lease_expired', 'nothing'], waitsOn: null },
        'b then a': { told: ['lease_expired', 'lapsed'], waitsOn: null },
        'a meets b': { told: ['lease_expired', 'lapsed'], waitsOn: 'ff_execution' },
      },
      check: async (scene) => expect(await stepsOf(scene)).toEqual([]),
    });
  });

  it('in a transaction that outlasts the lease: an accepted step is kept, and the reaper comes later', async () => {
    await arena.race({
      given: leased(1),
      sessions: {
        record: transaction(record()),
        clock: [
          { name: 'move', sql: 'UPDATE ff_clock SET offset_ms = offset_ms + $1', params: [LEASE_MS + 1] },
        ],
        lapse: transaction(lapse),
      },
      check: async (outcome, scene) => {
        // A record that waits for the reaper is decided after the reaper.
        const waited = outcome.waited.includes('record.call');
        const inTime = isBefore(outcome, waited ? 'lapse.COMMIT' : 'record.call', 'clock.move');
        expect(saidTo(outcome, 'record')).toBe(inTime ? 'recorded' : 'lease_expired');
        expect(await stepsOf(scene)).toEqual(inTime ? [1] : []);
        const open =
          isBefore(outcome, 'record.call', 'lapse.call') && isBefore(outcome, 'lapse.call', 'record.COMMIT');
        const late = isBefore(outcome, 'clock.move', 'lapse.call');
        expect(saidTo(outcome, 'lapse')).toBe(late && !open ? 'lapsed' : 'nothing');
        expect(outcome.waited.filter((step) => step !== 'record.call')).toEqual([]);
      },
    });
  });

  it('twice: the first stays, and both return it', async () => {
    const outcomes = await meet(arena, {
      given: leased(1),
      a: record('from a'),
      b: record('from b'),
      expected: inTurn(['recorded', 'recorded again'], ['recorded again', 'recorded'], {
        behindA: 'ff_execution or ff_step',
        behindB: 'ff_execution or ff_step',
      }),
      check: async (scene) => expect(await stepsOf(scene)).toHaveLength(1),
    });
    for (const outcome of outcomes) {
      const first = isBefore(outcome, 'a.call', 'b.call') ? 'from a' : 'from b';
      const values = ['a', 'b'].flatMap((session) => answersOf(outcome, session).map(({ value }) => value));
      expect(values).toEqual([first, first]);
    }
  });

  it('after one that is rolled back: the second stays', async () => {
    await arena.race({
      given: leased(1),
      sessions: {
        first: transaction(record('taken back'), 'ROLLBACK'),
        second: transaction(record('kept')),
      },
      permutations: [['first.call', 'second.call', 'first.ROLLBACK', 'second.COMMIT']],
      check: async (outcome, scene) => {
        expect(outcome.waited).toEqual(['second.call']);
        expect(saidTo(outcome, 'second')).toBe('recorded');
        expect(await stepsOf(scene)).toEqual(['kept']);
      },
    });
  });

  it('of a batch against the ends of the same executions in opposite order: no deadlock', async () => {
    const all = (word: string) => [word, word, word].join(', ');
    await meet(arena, {
      given: leased(3),
      a: record(),
      b: ({ leases }) => arena.calls.complete(leases.toReversed()),
      expected: inTurn([all('recorded'), all('completed')], [all('not_active'), all('completed')], IN_TURN),
    });
  });

  it('under two leases of one execution in one call: only the current one is accepted', async () => {
    const scene = await leased(1)(arena);
    await ask(arena.through, arena.calls.release(scene.leases));
    const held = await claimAll(arena, scene, 'w-2');
    const answers = await ask(arena.through, arena.calls.record([...scene.leases, ...held], 'both'));
    expect(wordsOf(answers).split(', ').toSorted()).toEqual(['recorded', 'stale_lease']);
    const found = await arena.through('SELECT lease_epoch AS epoch FROM ff_step WHERE execution_id = $1', [
      scene.ids[0],
    ]);
    expect(found.rows).toEqual([{ epoch: held[0]!.epoch }]);
  });
});

describe('spawning', () => {
  interface Spawning extends Scene {
    childId: string;
    route: { lane: string; kind: string };
  }

  async function given(): Promise<Spawning> {
    const scene = await leased(1)(arena);
    const spawning = { ...scene, childId: randomUUID(), route: { lane: 'default', kind: randomUUID() } };
    // The first marks the parent, and does nothing else.
    expect(await ask(arena.through, spawn(spawning))).toMatchObject([{ word: 'marked' }]);
    return spawning;
  }

  /** The route is interned before, so that sessions compete only for the child itself. */
  async function withRoute(): Promise<Spawning> {
    const scene = await given();
    await ask(arena.through, arena.calls.submit({ ids: [randomUUID()], routes: [scene.route] }));
    return scene;
  }

  const spawn = (scene: Scene): Call => {
    const { childId, route, leases } = scene as Spawning;
    return arena.calls.spawn(leases[0]!, { ids: [childId], routes: [route] });
  };

  async function parentOf({ childId }: Spawning): Promise<unknown[]> {
    const found = await arena.through('SELECT parent_id FROM ff_execution WHERE execution_id = $1', [
      childId,
    ]);
    return found.rows.map((row) => row.parent_id);
  }

  it.each([
    ['cancel', cancel, 'cancelled'],
    ['complete', complete, 'completed'],
  ] as const)('and %s of the parent: a child before it, none after it', async (_, end, word) => {
    await meet(arena, {
      given,
      a: spawn,
      b: end,
      expected: inTurn(['submitted', word], ['not_active', word], IN_TURN),
      check: async (scene) => {
        const { rows } = await arena.through(
          `SELECT EXISTS (SELECT FROM ff_event WHERE execution_id = $1 AND family = 'completion') AS ended`,
          scene.ids,
        );
        expect(rows).toEqual([{ ended: true }]);
        const parents = await parentOf(scene as Spawning);
        expect([[], [scene.ids[0]]]).toContainEqual(parents);
      },
    });
  });

  it('and renew: neither waits for the other', async () => {
    const expected: Expected = { told: ['submitted', 'renewed'], waitsOn: null };
    await meet(arena, {
      given,
      a: spawn,
      b: ({ leases }) => arena.calls.renew(leases),
      expected: {
        'a then b': expected,
        'b meets a': expected,
        'b then a': expected,
        'a meets b': expected,
      },
    });
  });

  it('twice under one id: one child, and the second returns duplicate', async () => {
    await meet(arena, {
      given: withRoute,
      a: spawn,
      b: spawn,
      expected: inTurn(['submitted', 'duplicate'], ['duplicate', 'submitted'], {
        behindA: 'ff_execution',
        behindB: 'ff_execution',
      }),
      check: async (scene) => expect(await parentOf(scene as Spawning)).toEqual(scene.ids),
    });
  });
});

describe('progress', () => {
  async function progressOf({ ids }: Scene): Promise<unknown[]> {
    const found = await arena.through('SELECT percent FROM ff_progress WHERE execution_id = ANY ($1)', [ids]);
    return found.rows.map((row) => row.percent);
  }

  it('and complete: reported before or dropped after', async () => {
    await arena.race({
      given: leased(1),
      sessions: { progress: transaction(progress(50)), end: transaction(complete) },
      check: async (outcome, scene) => {
        const first = isBefore(outcome, 'progress.call', 'end.call');
        expect(await progressOf(scene)).toEqual(first ? [50] : []);
        expect(saidTo(outcome, 'end')).toBe('completed');
        const met = outcome.waited.length > 0;
        if (met) expect(tablesWaitedOn([outcome])).toEqual(['ff_execution']);
      },
    });
  });

  it('twice: the last report stays', async () => {
    await arena.race({
      given: leased(1),
      sessions: { a: transaction(progress(10)), b: transaction(progress(20)) },
      check: async (outcome, scene) => {
        expect(await progressOf(scene)).toEqual([isBefore(outcome, 'a.call', 'b.call') ? 20 : 10]);
      },
    });
  });

  it('and renew: neither waits for the other', async () => {
    await arena.race({
      given: leased(1),
      sessions: {
        progress: transaction(progress(10)),
        renew: transaction(({ leases }) => arena.calls.renew(leases)),
      },
      check: (outcome) => {
        expect(outcome.waited).toEqual([]);
        expect(saidTo(outcome, 'renew')).toBe('renewed');
      },
    });
  });

  it('of a lost lease is dropped, even in one call with a current one', async () => {
    const scene = await leased(2)(arena);
    const [gone, held] = scene.leases as [Lease, Lease];
    await ask(arena.through, arena.calls.complete([gone]));
    await ask(arena.through, arena.calls.progress([gone, held], 70));
    expect(await progressOf(scene)).toEqual([70]);
  });
});
