/**
 * Races between building a flow and the members already running in it: no end is lost because its edge came later, and
 * none counts twice.
 */
import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { formatExecutionId } from '../../../src/contract/ids.ts';
import { ask, type Call } from '../calls.ts';
import {
  after,
  claimed,
  expectFiredOnce,
  finish,
  flowOf,
  outcomeOf,
  routeOf,
  saidOf,
  sceneOf,
  statesOf,
  useFlowArena,
  type FlowScene,
} from './arena.ts';
import { PARTITION } from './calls.ts';
import { cancelling, completing, failing } from './races.ts';
import { workerPort } from '../../../src/connect/port.ts';

const arena = useFlowArena();

/** An open flow of existing executions: `up` runs, `down` waits for a worker, and an edge between them is staged. */
async function staged(): Promise<FlowScene> {
  const { engine } = arena;
  const flowId = formatExecutionId(PARTITION, randomUUID());
  await engine.flows.create({ name: 'race', flowId });
  const members: Record<string, string> = {};
  for (const name of ['up', 'down']) {
    const executionId = formatExecutionId(PARTITION, randomUUID());
    await engine.executions.submit({ kind: randomUUID(), executionId });
    members[name] = executionId;
  }
  await engine.flows.addMembers(
    flowId,
    Object.entries(members).map(([name, executionId]) => ({ name, executionId })),
  );
  const { edgeIds } = await engine.flows.stageEdges(flowId, [
    { upstream: members['up']!, downstream: members['down']! },
  ]);
  const scene = await claimed(arena, sceneOf(flowId, members), ['up']);
  return { ...scene, edgeIds, routeId: await routeOf(arena, scene, 'down') };
}

const applying = ({ flow, edgeIds }: FlowScene): Call => arena.flows.apply(flow, edgeIds as string[]);
const applied = after(staged, (_, scene) => ask(arena.through, applying(scene)));
const seal = async ({ flowId }: FlowScene): Promise<void> => {
  await arena.engine.flows.seal(flowId);
  await workerPort(arena.engine).fireTimers();
};

describe('an edge that is applied', () => {
  it('while its upstream completes is resolved once', async () => {
    await arena.race({
      given: staged,
      sessions: { a: completing(arena, 'up'), b: applying },
      check: async (_, scene) => {
        expect((await statesOf(arena, scene))['down']).toBe('blocked_by_dependencies');
        await seal(scene);
        // One queue row is left from before it had to wait.
        await finish(arena, scene, 'down');
        expect(await outcomeOf(arena, scene)).toBe('completed');
      },
    });
  });

  it.each(['fails', 'is cancelled'] as const)('while its upstream %s is resolved once', async (end) => {
    await arena.race({
      given: staged,
      sessions: {
        a: end === 'fails' ? failing(arena, 'up') : cancelling(arena, 'up'),
        b: applying,
        c: () => arena.flows.tell(),
      },
      check: async (_, scene) => {
        await seal(scene);
        expect((await statesOf(arena, scene))['down']).toBe('skipped');
        expect(await outcomeOf(arena, scene)).toBe('failed');
      },
    });
  });

  it('while its downstream is claimed blocks that one, or is refused', async () => {
    await arena.race({
      given: staged,
      refused: /^(already_started|current transaction is aborted.*)$/,
      sessions: { a: applying, b: ({ routeId }) => arena.calls.claim(routeId, 1, 'w-2') },
      check: async (outcome, scene) => {
        const isApplied = outcome.results['a.call']!.ok;
        expect(saidOf(outcome, scene.members['down'])).toEqual(isApplied ? [] : ['claimed']);
        expect((await statesOf(arena, scene))['down']).toBe(isApplied ? 'blocked_by_dependencies' : 'active');
      },
    });
  });

  it('by two sessions is applied once', async () => {
    await arena.race({
      given: staged,
      sessions: { a: applying, b: applying },
      check: async (outcome) => {
        expect(
          saidOf(outcome, undefined)
            .concat(saidOf(outcome, null as never))
            .toSorted(),
        ).toEqual(['0', '1']);
      },
    });
  });
});

describe('an execution that is added to a flow', () => {
  /** An open flow without members, and a running execution. */
  const outside = async (): Promise<FlowScene> => {
    const flowId = formatExecutionId(PARTITION, randomUUID());
    await arena.engine.flows.create({ name: 'race', flowId });
    const up = formatExecutionId(PARTITION, randomUUID());
    await arena.engine.executions.submit({ kind: randomUUID(), executionId: up });
    return claimed(arena, sceneOf(flowId, { up }), ['up']);
  };

  it.each(['completes', 'fails', 'is cancelled'] as const)('while it %s is counted once', async (end) => {
    const ending = { completes: completing, fails: failing, 'is cancelled': cancelling }[end];
    await arena.race({
      given: outside,
      sessions: {
        a: ending(arena, 'up'),
        b: ({ flow, members }) => arena.flows.adopt(flow, members['up']!, 'up'),
      },
      check: async (_, scene) => {
        await seal(scene);
        expect(await outcomeOf(arena, scene)).toBe(end === 'completes' ? 'completed' : 'failed');
      },
    });
  });
});

describe('a flow that is sealed', () => {
  it('while a member completes unblocks the next one once', async () => {
    await arena.race({
      given: applied,
      sessions: { a: completing(arena, 'up'), b: ({ flow }) => arena.flows.seal(flow) },
      check: async (outcome, scene) => {
        expect(saidOf(outcome, scene.members['down'])).toEqual(['unblocked']);
        await finish(arena, scene, 'down');
        expect(await outcomeOf(arena, scene)).toBe('completed');
      },
    });
  });

  it('while a member is cancelled and its edge resolved skips the next one', async () => {
    await arena.race({
      given: applied,
      sessions: {
        a: cancelling(arena, 'up'),
        b: ({ flow }) => arena.flows.seal(flow),
        c: () => arena.flows.tell(),
      },
      check: async (_, scene) => {
        expect((await statesOf(arena, scene))['down']).toBe('skipped');
        expect(await outcomeOf(arena, scene)).toBe('failed');
      },
    });
  });

  it('and cancelled with let_finish lets its members continue', async () => {
    await arena.race({
      given: applied,
      sessions: {
        a: completing(arena, 'up'),
        b: ({ flow }) => arena.flows.cancelFlow(flow, 'let_finish'),
      },
      check: async (_, scene) => {
        await finish(arena, scene, 'down');
        expect(await outcomeOf(arena, scene)).toBe('cancelled');
      },
    });
  });
});

describe('a flow that is extended', () => {
  const growing = after(
    flowOf([{ name: 'plan' }, { name: 'x' }, { name: 'y', after: ['x'] }], ['plan', 'x']),
    async (_, scene) => {
      scene.members['more'] = randomUUID();
    },
  );
  const extending = ({ flow, held, members }: FlowScene): Call =>
    arena.flows.extend(flow, held['plan']!, { id: members['more']!, name: 'more', after: members['x']! });

  it('after a member that completes at that moment unblocks the new one once', async () => {
    await arena.race({
      given: growing,
      sessions: { a: completing(arena, 'x'), b: extending },
      check: async (_, scene) => {
        for (const name of ['more', 'y']) await expectFiredOnce(arena, null, scene, name);
        for (const name of ['plan', 'more', 'y']) await finish(arena, scene, name);
        expect(await outcomeOf(arena, scene)).toBe('completed');
      },
    });
  });

  it('after a member that fails at that moment skips the new one', async () => {
    await arena.race({
      given: growing,
      sessions: { a: failing(arena, 'x'), b: extending, c: () => arena.flows.tell() },
      check: async (_, scene) => {
        expect(await statesOf(arena, scene)).toMatchObject({ y: 'skipped', more: 'skipped' });
        await finish(arena, scene, 'plan');
        expect(await outcomeOf(arena, scene)).toBe('failed');
      },
    });
  });

  it('by a member that completes at that moment grows or is refused', async () => {
    await arena.race({
      given: growing,
      refused: /^(lease_lost|flow_ended|current transaction is aborted.*)$/,
      sessions: { a: completing(arena, 'plan'), b: extending, c: completing(arena, 'x') },
      check: async (outcome, scene) => {
        const isMore = outcome.results['b.call']!.ok;
        expect((await statesOf(arena, scene))['more']).toBe(isMore ? 'eligible_now' : undefined);
        for (const name of isMore ? ['more', 'y'] : ['y']) await finish(arena, scene, name);
        expect(await outcomeOf(arena, scene)).toBe('completed');
      },
    });
  });

  it('while it is cancelled cancels the new member too, or refuses it', async () => {
    await arena.race({
      given: growing,
      refused: /^(lease_lost|flow_ended|current transaction is aborted.*)$/,
      sessions: {
        a: ({ flow }) => arena.flows.cancelFlow(flow, 'cancel_all'),
        b: extending,
        c: ({ flow }) => arena.flows.cancelMembers(flow, 2),
      },
      check: async (outcome, scene) => {
        const isMore = outcome.results['b.call']!.ok;
        expect((await statesOf(arena, scene))['more']).toBe(isMore ? 'cancelled' : undefined);
        expect(await outcomeOf(arena, scene)).toBe('cancelled');
      },
    });
  });
});
