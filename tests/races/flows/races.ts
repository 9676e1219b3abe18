/**
 * The races of flows that simpler forms of the functions are known to lose: joins.test.ts and losers.test.ts run them
 * on the engine's functions, naive.test.ts on naive variants.
 */
import { expect } from 'vitest';
import type { Interleaving } from '../../../src/testing/stepper.ts';
import {
  after,
  expectFiredOnce,
  finish,
  flowOf,
  outcomeOf,
  saidOf,
  statesOf,
  type FlowArena,
  type FlowScene,
  type NamedMember,
} from './arena.ts';
import { ask, type Call } from '../calls.ts';

export const completing =
  (arena: FlowArena, ...names: string[]) =>
  ({ held }: FlowScene): Call =>
    arena.calls.complete(names.map((name) => held[name]!));

export const failing =
  (arena: FlowArena, ...names: string[]) =>
  ({ held }: FlowScene): Call =>
    arena.calls.fail(names.map((name) => held[name]!));

export const cancelling =
  (arena: FlowArena, ...names: string[]) =>
  ({ members }: FlowScene): Call =>
    arena.calls.cancel(names.map((name) => ({ id: members[name]! })));

export const stopping =
  (arena: FlowArena, join: string) =>
  ({ flow, members }: FlowScene): Call =>
    arena.flows.siblings(flow, members[join]!);

/** Each sees the other as still pending, unless one waits for the other. */
export function lastTwo(arena: FlowArena): Promise<Interleaving[]> {
  return arena.race({
    given: flowOf([{ name: 'x' }, { name: 'y' }, { name: 'both', after: ['x', 'y'] }], ['x', 'y']),
    sessions: { a: completing(arena, 'x'), b: completing(arena, 'y') },
    check: async (outcome, scene) => {
      await expectFiredOnce(arena, outcome, scene, 'both');
      await finish(arena, scene, 'both');
      expect(await outcomeOf(arena, scene)).toBe('completed');
    },
  });
}

/** x has won: y is running and is to be stopped. */
export const raced = (running: readonly string[]) =>
  after(
    flowOf(
      [{ name: 'x' }, { name: 'y' }, { name: 'best', after: ['x', 'y'], join: { kind: 'any' } }],
      running,
    ),
    (arena, scene) => ask(arena.through, arena.calls.complete([scene.held['x']!])),
  );

/** Whichever comes first ends the loser, and the other one knows. */
export function loserCompletes(arena: FlowArena): Promise<Interleaving[]> {
  return arena.race({
    given: raced(['x', 'y']),
    sessions: { a: stopping(arena, 'best'), b: completing(arena, 'y') },
    check: async (outcome, scene) => {
      const said = saidOf(outcome, scene.members['y']);
      const state = (await statesOf(arena, scene))['y']!;
      expect([state, said]).toEqual(
        said.includes('completed') ? ['success', ['completed']] : ['cancelled', ['cancelled', 'not_active']],
      );
      await expectFiredOnce(arena, null, scene, 'best');
      await finish(arena, scene, 'best');
      expect(await outcomeOf(arena, scene)).toBe('completed');
    },
  });
}

/** Each member is before two joins, and each join after two members: a ring. */
const SIZE = 6;
const PLACES = Array.from({ length: SIZE }, (_, n) => n);
export const RING_UPS = PLACES.map((n) => `x${n}`);
export const RING_JOINS = PLACES.map((n) => `j${n}`);
export const RING: NamedMember[] = [
  ...RING_UPS.map((name) => ({ name })),
  ...RING_JOINS.map((name, n) => ({ name, after: [`x${n}`, `x${(n + 1) % SIZE}`] })),
];

/** Each batch holds what the other one needs next, whichever begins. */
export function oppositeBatches(arena: FlowArena): Promise<Interleaving[]> {
  const [a, b] = [0, 1].map((half) => RING_UPS.filter((_, n) => n % 2 === half));
  return arena.race({
    given: flowOf(RING, RING_UPS),
    sessions: { a: completing(arena, ...a!), b: completing(arena, ...b!.toReversed()) },
    check: async (outcome, scene) => {
      for (const name of RING_JOINS) await expectFiredOnce(arena, outcome, scene, name);
    },
  });
}
