/**
 * Races around losers of joins: with sessions that claim, complete, replay or still need them. Each ends once, and the
 * last join that no longer needs one stops it.
 */
import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import type { StepLike } from '../../../src/testing/stepper.ts';
import { alone, type Scene } from '../arena.ts';
import { ask } from '../calls.ts';
import {
  after,
  claimed,
  expectFiredOnce,
  expectSettled,
  finish,
  flowOf,
  outcomeOf,
  routeOf,
  saidOf,
  statesOf,
  useFlowArena,
  type FlowScene,
  type NamedMember,
} from './arena.ts';
import { cancelling, completing, failing, loserCompletes, raced, stopping } from './races.ts';
import { workerPort } from '../../../src/connect/port.ts';

const arena = useFlowArena();

const FANNED: NamedMember[] = [
  { name: 'x' },
  { name: 'y' },
  { name: 'best', after: ['x', 'y'], join: { kind: 'any' } },
];

/** Holds a join long enough for others to reach it: a named one, or the last in id order. */
function holding(join: 'last' | (string & {})): StepLike<Scene>[] {
  const hold: StepLike<Scene> = {
    name: 'call',
    run: async (session, scene) => {
      const { flow, members } = scene as FlowScene;
      await session.query('BEGIN');
      await session.query(
        `SELECT 1 FROM ff_edge_group WHERE flow_id = $1 AND downstream_eid = coalesce($2, downstream_eid)
         ORDER BY downstream_eid DESC LIMIT 1 FOR UPDATE`,
        [flow, members[join] ?? null],
      );
    },
  };
  return [hold, 'COMMIT'];
}

describe('sessions that stop losers', () => {
  const joins = ['one', 'two', 'three', 'four'];

  /** x decided all the joins, and their common loser has ended by itself, which they do not know yet. */
  const drained = after(
    flowOf(
      [
        { name: 'x' },
        { name: 'y' },
        ...joins.map((name) => ({ name, after: ['x', 'y'], join: { kind: 'any' as const } })),
      ],
      ['x', 'y'],
    ),
    async (_, scene) => {
      await ask(arena.through, completing(arena, 'x')(scene));
      await ask(arena.through, cancelling(arena, 'y')(scene));
    },
  );
  it('do not deadlock with one that resolves edges', async () => {
    const order = ['hold.call', 'a.call', 'b.call', 'hold.COMMIT', 'a.COMMIT', 'b.COMMIT'];
    await arena.race({
      given: drained,
      sessions: { hold: holding('last'), a: () => arena.flows.tell(), b: () => arena.flows.reconcile() },
      permutations: Array.from({ length: 8 }, () => order),
      check: async (_, scene) => {
        expect((await statesOf(arena, scene))['y']).toBe('cancelled');
      },
    });
  });
});

describe('a loser', () => {
  it('that completes is stopped before that or not at all', async () => {
    const outcomes = await loserCompletes(arena);
    expect(outcomes.some(({ waited }) => waited.length > 0)).toBe(true);
  });

  it('that completes at the moment the join is decided stays completed', async () => {
    await arena.race({
      given: flowOf(FANNED, ['x', 'y']),
      sessions: {
        a: completing(arena, 'x'),
        b: completing(arena, 'y'),
        c: alone((scene) => stopping(arena, 'best')(scene as FlowScene)),
      },
      check: async (outcome, scene) => {
        const states = await statesOf(arena, scene);
        const ends = ['x', 'y'].map((name) => [states[name], saidOf(outcome, scene.members[name])]);
        for (const [state, said] of ends)
          expect([state, said]).toEqual(
            (said as string[]).includes('completed')
              ? ['success', ['completed']]
              : ['cancelled', expect.arrayContaining(['not_active', 'cancelled'])],
          );
        expect(ends.some(([state]) => state === 'success')).toBe(true);
        await expectFiredOnce(arena, outcome, scene, 'best');
      },
    });
  });

  it('that is claimed loses its lease, or cannot be claimed', async () => {
    const given = after(raced(['x']), async (_, scene) => {
      scene.routeId = await routeOf(arena, scene, 'y');
    });
    await arena.race({
      given,
      sessions: { a: stopping(arena, 'best'), b: ({ routeId }) => arena.calls.claim(routeId, 1, 'w-9') },
      check: async (outcome, scene) => {
        expect(saidOf(outcome, scene.members['y']).filter((word) => word === 'cancelled')).toHaveLength(1);
        expect((await statesOf(arena, scene))['y']).toBe('cancelled');
        await finish(arena, scene, 'best');
        expect(await outcomeOf(arena, scene)).toBe('completed');
      },
    });
  });

  it('of two joins that are decided at the same moment is stopped once', async () => {
    await arena.race({
      given: flowOf(
        [
          { name: 'x' },
          { name: 'y' },
          { name: 'shared' },
          { name: 'one', after: ['x', 'shared'], join: { kind: 'any' } },
          { name: 'two', after: ['y', 'shared'], join: { kind: 'any' } },
        ],
        ['x', 'y', 'shared'],
      ),
      sessions: {
        a: completing(arena, 'x'),
        b: completing(arena, 'y'),
        c: alone((scene) => stopping(arena, 'one')(scene as FlowScene)),
        d: alone((scene) => stopping(arena, 'two')(scene as FlowScene)),
      },
      check: async (outcome, scene) => {
        expect(await statesOf(arena, scene)).toMatchObject({
          x: 'success',
          y: 'success',
          shared: 'cancelled',
        });
        for (const name of ['one', 'two']) await expectFiredOnce(arena, outcome, scene, name);
        for (const name of ['one', 'two']) await finish(arena, scene, name);
        expect(await outcomeOf(arena, scene)).toBe('completed');
      },
    });
  });

  it('is stopped by one of two sessions', async () => {
    await arena.race({
      given: raced(['x', 'y']),
      sessions: { a: stopping(arena, 'best'), b: stopping(arena, 'best'), c: () => arena.flows.reconcile() },
      check: async (outcome, scene) => {
        expect(saidOf(outcome, scene.members['y']).length).toBeLessThanOrEqual(1);
        expect((await statesOf(arena, scene))['y']).toBe('cancelled');
      },
    });
  });

  it('that gets a member after it is not stopped, or the member is refused', async () => {
    await arena.race({
      given: after(raced(['x', 'y']), async (_, scene) => {
        scene.members['more'] = randomUUID();
      }),
      refused: /^(lease_lost|current transaction is aborted.*)$/,
      sessions: {
        a: stopping(arena, 'best'),
        b: ({ flow, held, members }) =>
          arena.flows.extend(flow, held['y']!, { id: members['more']!, name: 'more', after: members['y']! }),
      },
      check: async (outcome, scene) => {
        const isMore = outcome.results['b.call']!.ok;
        const states = await statesOf(arena, scene);
        expect([isMore, states['y'], states['more']]).toEqual(
          isMore ? [true, 'active', 'blocked_by_dependencies'] : [false, 'cancelled', undefined],
        );
      },
    });
  });
});

/** y has failed, and then x: z is no longer needed and is to be stopped. */
const lost = after(
  flowOf(
    [
      { name: 'x' },
      { name: 'y' },
      { name: 'z' },
      { name: 'most', after: ['x', 'y', 'z'], join: { kind: 'quorum', k: 2 } },
    ],
    ['x', 'y', 'z'],
  ),
  async (_, scene) => {
    await ask(arena.through, failing(arena, 'y')(scene));
    await ask(arena.through, failing(arena, 'x')(scene));
  },
);

describe('a loser that a replay needs again', () => {
  it('continues, unless it was stopped before', async () => {
    await arena.race({
      given: lost,
      sessions: {
        a: stopping(arena, 'most'),
        b: ({ members }) => arena.calls.replay([members['x']!], 'start'),
      },
      check: async (outcome, scene) => {
        const states = await statesOf(arena, scene);
        const isStopped = saidOf(outcome, scene.members['z']).includes('cancelled');
        expect([states['z'], states['most']]).toEqual(
          isStopped ? ['cancelled', 'skipped'] : ['active', 'blocked_by_dependencies'],
        );
        // A replay that comes first finds it running.
        if (outcome.order.indexOf('b.COMMIT') < outcome.order.indexOf('a.call'))
          expect(isStopped).toBe(false);
      },
    });
  });
});

describe('a join that was decided, reverted and decided again', () => {
  /** The ticket of the first time is still there. */
  const takenBack = after(lost, async (_, scene) => {
    await ask(arena.through, arena.calls.replay([scene.members['x']!], 'start'));
    await claimed(arena, scene, ['x']);
  });
  const expectStopped = async (scene: FlowScene): Promise<void> => {
    expect(await statesOf(arena, scene)).toEqual({
      x: 'failed',
      y: 'failed',
      z: 'cancelled',
      most: 'skipped',
    });
    expect(await outcomeOf(arena, scene)).toBe('failed');
  };

  it('has its losers stopped, whoever holds the old ticket', async () => {
    await arena.race({
      given: takenBack,
      sessions: { a: stopping(arena, 'most'), b: failing(arena, 'x') },
      check: (_, scene) => expectStopped(scene),
    });
  });

  it('has its losers stopped, whoever tries to remove the old ticket', async () => {
    await arena.race({
      given: takenBack,
      sessions: { a: () => arena.flows.reconcile(), b: failing(arena, 'x'), c: stopping(arena, 'most') },
      check: (_, scene) => expectStopped(scene),
    });
  });

  /** Beside it another join whose loser has ended, too; both are to be finished, that one first. */
  const bothDrained = async (): Promise<FlowScene> => {
    const fours = ['w', 'x', 'y', 'z'];
    for (;;) {
      const scene = await flowOf(
        [
          ...[...fours, 'p', 'q'].map((name) => ({ name })),
          { name: 'most', after: fours, join: { kind: 'quorum', k: 2 } },
          { name: 'best', after: ['p', 'q'], join: { kind: 'any' } },
        ],
        [...fours, 'p', 'q'],
      )(arena);
      if (scene.members['best']! > scene.members['most']!) continue;
      for (const name of fours) await ask(arena.through, failing(arena, name)(scene));
      await ask(arena.through, completing(arena, 'p')(scene));
      await ask(arena.through, cancelling(arena, 'q')(scene));
      await ask(arena.through, arena.flows.tell());
      return scene;
    }
  };

  it('has its new losers stopped, whoever is finishing the old ones', async () => {
    await arena.race({
      given: bothDrained,
      sessions: {
        hold: holding('best'),
        a: () => arena.flows.reconcile(),
        b: ({ members }) => arena.calls.replay([members['w']!, members['x']!], 'start'),
        c: cancelling(arena, 'w'),
        d: () => arena.flows.tell(),
      },
      permutations: [
        [
          'hold.call',
          'a.call',
          ...['b', 'c', 'd'].flatMap((one) => [`${one}.call`, `${one}.COMMIT`]),
          'hold.COMMIT',
          'a.COMMIT',
        ],
      ],
      check: async (_, scene) => {
        // A cancel that had to wait may have come before the replay and found nothing to cancel.
        await ask(arena.through, cancelling(arena, 'w')(scene));
        await workerPort(arena.engine).fireTimers();
        await expectSettled(arena, [scene.flow]);
        expect(await statesOf(arena, scene)).toMatchObject({
          w: 'cancelled',
          x: 'cancelled',
          most: 'skipped',
        });
      },
    });
  });
});
