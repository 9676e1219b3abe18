/**
 * Races between the replay of a member and the resolution of its edges: in the end the members after it wait for it
 * again, if nothing had acted on its end, and continue when it completes.
 */
import { describe, expect, it } from 'vitest';
import type { StepLike } from '../../../src/testing/stepper.ts';
import type { Scene } from '../arena.ts';
import { ask, type Call } from '../calls.ts';
import {
  after,
  finish,
  flowOf,
  outcomeOf,
  statesOf,
  useFlowArena,
  type FlowScene,
  type NamedMember,
} from './arena.ts';
import { cancelling, completing, failing } from './races.ts';
import { workerPort } from '../../../src/connect/port.ts';

const arena = useFlowArena();

const CHAIN: NamedMember[] = [{ name: 'a' }, { name: 'b', after: ['a'] }, { name: 'c', after: ['b'] }];
const replaying =
  (...names: string[]) =>
  ({ members }: FlowScene): Call =>
    arena.calls.replay(
      names.map((name) => members[name]!),
      'start',
    );
const tell = (): Call => arena.flows.tell();

describe('a member that is replayed', () => {
  it('while its edges are resolved makes those after it wait again', async () => {
    await arena.race({
      given: after(flowOf(CHAIN, ['a']), (_, scene) => ask(arena.through, cancelling(arena, 'a')(scene))),
      sessions: { a: replaying('a'), b: tell, c: tell },
      check: async (_, scene) => {
        expect(await statesOf(arena, scene)).toEqual({
          a: 'eligible_now',
          b: 'blocked_by_dependencies',
          c: 'blocked_by_dependencies',
        });
        for (const name of ['a', 'b', 'c']) {
          delete scene.held[name];
          await finish(arena, scene, name);
        }
        expect(await outcomeOf(arena, scene)).toBe('completed');
      },
    });
  });

  it('by two sessions is replayed once', async () => {
    await arena.race({
      given: after(flowOf(CHAIN, ['a']), async (_, scene) => {
        await ask(arena.through, failing(arena, 'a')(scene));
        await workerPort(arena.engine).fireTimers();
      }),
      sessions: { a: replaying('a'), b: replaying('a'), c: tell },
      check: async (_, scene) => {
        delete scene.held['a'];
        for (const name of ['a', 'b', 'c']) await finish(arena, scene, name);
        expect(await outcomeOf(arena, scene)).toBe('completed');
      },
    });
  });

  it('while another one before the same join completes counts once', async () => {
    await arena.race({
      given: after(
        flowOf([{ name: 'x' }, { name: 'y' }, { name: 'both', after: ['x', 'y'] }], ['x', 'y']),
        (_, scene) => ask(arena.through, completing(arena, 'x')(scene)),
      ),
      sessions: { a: replaying('x'), b: completing(arena, 'y') },
      check: async (outcome, scene) => {
        const isLetGo = (await statesOf(arena, scene))['both'] === 'eligible_now';
        expect(isLetGo).toBe(outcome.order.indexOf('b.call') < outcome.order.indexOf('a.call'));
        delete scene.held['x'];
        await finish(arena, scene, 'x');
        await finish(arena, scene, 'both');
        expect(await outcomeOf(arena, scene)).toBe('completed');
      },
    });
  });

  it('while the flow ends reopens it', async () => {
    await arena.race({
      given: after(flowOf([{ name: 'x' }, { name: 'y' }], ['x', 'y']), (_, scene) =>
        ask(arena.through, failing(arena, 'x')(scene)),
      ),
      sessions: { a: replaying('x'), b: completing(arena, 'y') },
      check: async (_, scene) => {
        expect(await outcomeOf(arena, scene)).toBeNull();
        delete scene.held['x'];
        await finish(arena, scene, 'x');
        expect(await outcomeOf(arena, scene)).toBe('completed');
      },
    });
  });

  /** Locks are taken in id order: in the other order the replay would have the join before anybody else. */
  const inOrder = async (): Promise<FlowScene> => {
    for (;;) {
      const scene = await flowOf(
        [
          { name: 'x' },
          { name: 'y' },
          { name: 'one', after: ['x', 'y'], join: { kind: 'any' } },
          { name: 'end', after: ['one'] },
        ],
        ['x', 'y'],
      )(arena);
      if (scene.members['x']! < scene.members['one']!) return scene;
    }
  };

  /** Locks the member while the replay has already read which members it holds back. */
  const holding: StepLike<Scene>[] = [
    {
      name: 'call',
      run: async (session, scene) => {
        await session.query('BEGIN');
        await session.query('SELECT 1 FROM ff_execution WHERE execution_id = $1 FOR UPDATE', [
          (scene as FlowScene).members['x'],
        ]);
      },
    },
    'COMMIT',
  ];

  it('while the last other one fails makes all that were skipped meanwhile wait again', async () => {
    await arena.race({
      given: after(inOrder, (_, scene) => ask(arena.through, failing(arena, 'x')(scene))),
      // Then the call must be retried.
      refused: /^(more was skipped while .*|current transaction is aborted.*)$/,
      sessions: { hold: holding, a: replaying('x'), b: failing(arena, 'y'), c: tell },
      permutations: [
        ['hold.call', 'a.call', 'b.call', 'b.COMMIT', 'c.call', 'c.COMMIT', 'hold.COMMIT', 'a.COMMIT'],
        ['hold.call', 'a.call', 'b.call', 'hold.COMMIT', 'b.COMMIT', 'c.call', 'c.COMMIT', 'a.COMMIT'],
        ['b.call', 'hold.call', 'a.call', 'b.COMMIT', 'c.call', 'c.COMMIT', 'hold.COMMIT', 'a.COMMIT'],
        ['b.call', 'b.COMMIT', 'hold.call', 'a.call', 'c.call', 'c.COMMIT', 'hold.COMMIT', 'a.COMMIT'],
        ['hold.call', 'hold.COMMIT', 'a.call', 'a.COMMIT', 'b.call', 'b.COMMIT', 'c.call', 'c.COMMIT'],
        ['b.call', 'b.COMMIT', 'c.call', 'c.COMMIT', 'hold.call', 'a.call', 'hold.COMMIT', 'a.COMMIT'],
      ],
      check: async (outcome, scene) => {
        if (!outcome.results['a.call']!.ok) await ask(arena.through, replaying('x')(scene));
        expect(await statesOf(arena, scene)).toEqual({
          x: 'eligible_now',
          y: 'failed',
          one: 'blocked_by_dependencies',
          end: 'blocked_by_dependencies',
        });
        delete scene.held['x'];
        for (const name of ['x', 'one', 'end']) await finish(arena, scene, name);
        expect(await outcomeOf(arena, scene)).toBe('completed');
      },
    });
  });
});
