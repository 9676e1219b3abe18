/**
 * Races around the timeout of a suspension: a signal that comes as it expires, two sessions that fire its timer, and
 * what else it waits for. Exactly one of them ends a suspension, and its timer does not end it again later.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { SignalCondition } from '../../../src/contract/signals.ts';
import type { TestDatabase } from '../../../src/testing/test-database.ts';
import { testDatabase } from '../../setup/database.ts';
import { arenaOn, isBefore, leased, meet, saidTo, transaction, type Arena, type Scene } from '../arena.ts';
import { ask } from '../calls.ts';
import { asFamily, childIds, family } from '../steps/families.ts';
import { endOfLog, violationsOf } from '../invariants.ts';
import { WAITPOINT, type SuspendFor } from './calls.ts';
import { after, deliverTo, inTurn, lifeOf, opened, suspended, suspendOn } from './races.ts';

const TIMEOUT_MS = 60_000;
const steps = transaction;

let database: TestDatabase;
let arena: Arena;

beforeAll(async () => {
  database = await testDatabase();
  arena = arenaOn(database);
});

afterAll(() => database?.drop());

const fire = ({ ids }: Scene) => arena.calls.fire(ids.slice(0, 1));
const complete = ({ children }: Scene) => arena.calls.complete(children as never);

/** Suspended, and its time is over. */
const late =
  (request: SuspendFor) =>
  async (on: Arena): Promise<Scene> => {
    const scene = await suspended({ timeoutMs: TIMEOUT_MS, ...request })(on);
    await database.moveClock(TIMEOUT_MS);
    return scene;
  };

async function eventsOf({ ids, logged }: Scene): Promise<string[]> {
  const found = await arena.through(
    `SELECT family || '.' || event_type AS event FROM ff_event WHERE execution_id = $1 AND ev_id > $2 ORDER BY ev_id`,
    [ids[0], logged],
  );
  return found.rows.map((row) => row.event as string);
}

async function timersOf({ ids }: Scene): Promise<unknown[]> {
  const found = await arena.through(
    `SELECT kind FROM ff_timer WHERE execution_id = ANY ($1) AND kind <> 'waitpoint'`,
    [ids],
  );
  return found.rows;
}

/** Nothing is left that could end it again, whatever fires. */
async function expectOver(scene: Scene, events: string[][]): Promise<void> {
  const told = await eventsOf(scene);
  expect(events).toContainEqual(told);
  await ask(arena.through, fire(scene));
  expect(await eventsOf(scene), 'after the next firing').toEqual(told);
  expect(await timersOf(scene)).toEqual([]);
}

describe('a signal and the timeout', () => {
  it.each([
    ['fail', 'completion.failed'],
    ['cancel', 'completion.cancelled'],
  ] as const)('with on_timeout %s: exactly one of them ends the suspension', async (onTimeout, end) => {
    await meet(arena, {
      steps,
      given: late({ onTimeout }),
      a: deliverTo(arena),
      b: fire,
      expected: {
        ...inTurn(['resumed', 'nothing'], ['closed', 'execution_timed_out']),
        // A firing never waits.
        'b meets a': { told: ['resumed', 'nothing'], waitsOn: null },
      },
      check: (scene) =>
        expectOver(scene, [
          ['signal.delivered', 'signal.resumed'],
          ['signal.timed_out', end],
        ]),
    });
  });

  it('with on_timeout resume: it resumes once, and knows why', async () => {
    await meet(arena, {
      steps,
      given: late({ onTimeout: 'resume' }),
      a: deliverTo(arena),
      b: fire,
      expected: {
        ...inTurn(['resumed', 'nothing'], ['closed', 'fired']),
        'b meets a': { told: ['resumed', 'nothing'], waitsOn: null },
      },
      check: async (scene) => {
        const { wait, heard } = await lifeOf(arena, scene);
        expect(`${wait} ${heard}`).toMatch(/^(?:satisfied 1|timed_out 0)$/);
        await expectOver(scene, [['signal.delivered', 'signal.resumed'], ['signal.resumed']]);
        expect(await ask(arena.through, arena.calls.claim(scene.routeId, 5, 'w-2'))).toMatchObject([
          { word: 'claimed', attempt: 0 },
        ]);
      },
    });
  });

  it('with on_timeout escalate: the signal resumes it, before or after', async () => {
    await meet(arena, {
      steps,
      given: late({ onTimeout: 'escalate' }),
      a: deliverTo(arena),
      b: fire,
      expected: {
        ...inTurn(['resumed', 'nothing'], ['resumed', 'delayed']),
        'b meets a': { told: ['resumed', 'nothing'], waitsOn: null },
      },
      check: (scene) =>
        expectOver(scene, [
          ['signal.delivered', 'signal.resumed'],
          ['signal.escalated', 'signal.delivered', 'signal.resumed'],
        ]),
    });
  });

  it('whose timer is locked while the signal resumes it: the timer is left, and its firing does nothing', async () => {
    const scene = await late({})(arena);
    const rival = await database.connect();
    await rival.query('BEGIN');
    await rival.query('SELECT 1 FROM ff_timer WHERE execution_id = $1 FOR UPDATE', scene.ids);
    expect(await ask(arena.through, deliverTo(arena)(scene))).toMatchObject([{ word: 'resumed' }]);
    await rival.query('ROLLBACK');
    const [lease] = await ask(arena.through, arena.calls.claim(scene.routeId, 1, 'w-2'));
    const condition: SignalCondition = { kind: 'count', n: 1, by: 'signals', waitpoints: ['again'] };
    const again = { name: 'again', waitpoints: ['again'], condition };
    const suspend = arena.calls.suspend({ ...lease!, id: scene.ids[0]! }, again);
    expect(await ask(arena.through, suspend)).toMatchObject([{ word: 'suspended' }]);
    expect(await ask(arena.through, fire(scene))).toMatchObject([{ word: 'discarded' }]);
    expect(await lifeOf(arena, scene)).toMatchObject({ phase: 'suspended' });
  });
});

describe('the timer of a suspension', () => {
  it('is fired once by two sessions', async () => {
    await meet(arena, {
      steps,
      given: late({}),
      a: fire,
      b: fire,
      expected: inTurn(['execution_timed_out', 'nothing'], ['nothing', 'execution_timed_out'], null),
    });
  });

  it('and a cancel: one outcome', async () => {
    await meet(arena, {
      steps,
      given: late({}),
      a: ({ leases }) => arena.calls.cancel(leases),
      b: fire,
      expected: {
        ...inTurn(['cancelled', 'nothing'], ['not_active', 'execution_timed_out']),
        'b meets a': { told: ['cancelled', 'nothing'], waitsOn: null },
      },
    });
  });

  it('that wakes it besides its waits, and a signal: resumed once', async () => {
    await meet(arena, {
      steps,
      given: async (on) => {
        const scene = await suspended({ wakeMs: TIMEOUT_MS, timeoutMs: 2 * TIMEOUT_MS })(on);
        await database.moveClock(TIMEOUT_MS);
        return scene;
      },
      a: deliverTo(arena),
      b: fire,
      expected: {
        ...inTurn(['resumed', 'nothing'], ['buffered', 'fired']),
        'b meets a': { told: ['resumed', 'nothing'], waitsOn: null },
      },
      check: (scene) =>
        expectOver(scene, [
          ['signal.delivered', 'signal.resumed'],
          ['signal.resumed', 'signal.delivered'],
        ]),
    });
  });
});

describe('children besides the waits', () => {
  const besideChildren = (scene: Scene) =>
    arena.calls.suspend(scene.leases[0]!, { children: childIds(scene), timeoutMs: 2 * TIMEOUT_MS });

  it('the notification of the last and a signal: resumed once', async () => {
    await meet(arena, {
      steps,
      given: after(after(family(1), besideChildren), complete),
      a: deliverTo(arena),
      b: fire,
      expected: {
        ...inTurn(['resumed', 'discarded'], ['buffered', 'fired']),
        'b meets a': { told: ['resumed', 'nothing'], waitsOn: null },
      },
      check: async (scene) => {
        const resumed = (await eventsOf(scene)).filter((event) => event === 'signal.resumed');
        expect(resumed).toHaveLength(1);
        expect(await lifeOf(arena, scene)).toMatchObject({ phase: 'runnable', ready: 1 });
      },
    });
  });

  it('the end of the last, the suspension and a firing: due, or resumed by its notification', async () => {
    await arena.race({
      given: family(1),
      sessions: {
        suspend: transaction(besideChildren),
        child: transaction(complete),
        fire: transaction(fire),
      },
      check: async (outcome, scene) => {
        const due = isBefore(outcome, 'child.COMMIT', 'suspend.call');
        expect(saidTo(outcome, 'suspend')).toBe(due ? 'due' : 'suspended');
        await ask(arena.through, fire(scene));
        const { phase } = await lifeOf(arena, { ...scene, ids: [asFamily(scene).parent.id] });
        expect(phase).toBe(due ? 'active' : 'runnable');
      },
    });
  });
});

describe('the expiry of a waitpoint', () => {
  const kid = 'expiry';
  const byToken = ({ ids, waitpointId }: Scene) =>
    arena.calls.deliver(ids[0]!, { token: { kid, waitpointId: waitpointId as string } });
  /** Open for up to a week, which is over. */
  const old = async (on: Arena): Promise<Scene> => {
    const scene = await opened()(on);
    await ask(on.through, on.calls.currentKey(kid));
    await on.through(
      `WITH w AS (UPDATE ff_waitpoint SET expires_at_ms = ff_now_ms() WHERE execution_id = $1 RETURNING expires_at_ms)
       UPDATE ff_timer SET due_at_ms = w.expires_at_ms FROM w WHERE execution_id = $1`,
      [scene.ids[0]],
    );
    return { ...scene, logged: await endOfLog(on.through) };
  };

  it('is recorded once, and a signal is refused before and after', async () => {
    await meet(arena, {
      steps,
      given: old,
      a: byToken,
      b: fire,
      expected: {
        ...inTurn(['too_late', 'discarded'], ['too_late', 'discarded']),
        'b meets a': { told: ['too_late', 'nothing'], waitsOn: null },
      },
      check: async (scene) => {
        await ask(arena.through, fire(scene));
        expect(await eventsOf(scene)).toEqual(['signal.waitpoints_expired']);
      },
    });
  });

  it('and a suspension on it: it stays open as long as the wait may last', async () => {
    await meet(arena, {
      steps,
      given: old,
      a: suspendOn(arena),
      b: fire,
      expected: {
        ...inTurn(['suspended', 'discarded'], ['suspended', 'discarded']),
        'b meets a': { told: ['suspended', 'nothing'], waitsOn: null },
      },
      check: async (scene) => {
        await ask(arena.through, fire(scene));
        expect(await ask(arena.through, byToken(scene))).toMatchObject([{ word: 'resumed' }]);
      },
    });
  });

  it('and a session that opens it again: it stays open, and the firing does not wait', async () => {
    await meet(arena, {
      steps,
      given: old,
      a: ({ leases }) => arena.calls.create(leases[0]!, [{ name: WAITPOINT }]),
      b: fire,
      expected: {
        ...inTurn(['created', 'discarded'], ['created', 'discarded']),
        'b meets a': { told: ['created', 'nothing'], waitsOn: null },
      },
      check: async (scene) => {
        await ask(arena.through, fire(scene));
        expect(await ask(arena.through, byToken(scene))).toMatchObject([{ word: 'buffered' }]);
      },
    });
  });

  it('after the end of the execution: it is recorded once a replay has kept the waitpoint', async () => {
    const scene = await leased(1)(arena);
    const [lease] = scene.leases;
    await ask(arena.through, arena.calls.create(lease!, [{ name: 'first' }], TIMEOUT_MS));
    await ask(arena.through, arena.calls.create(lease!, [{ name: 'second' }], 2 * TIMEOUT_MS));
    await ask(arena.through, arena.calls.cancel([lease!]));
    await database.moveClock(TIMEOUT_MS);
    expect(await ask(arena.through, fire(scene))).toMatchObject([{ word: 'discarded' }]);
    await ask(arena.through, arena.calls.replay(scene.ids, 'failed_step'));
    expect(await violationsOf(arena.through, scene.ids)).toEqual([]);
    await database.moveClock(TIMEOUT_MS);
    await ask(arena.through, fire(scene));
    expect((await eventsOf(scene)).at(-1)).toBe('signal.waitpoints_expired');
  });
});
