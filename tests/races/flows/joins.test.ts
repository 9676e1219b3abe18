/**
 * Races at joins: the last member to end unblocks the one after it, once, however they meet; and no order of locks
 * deadlocks.
 */
import { describe, expect, it } from 'vitest';
import {
  after,
  expectFiredOnce,
  flowOf,
  outcomeOf,
  statesOf,
  useFlowArena,
  type NamedMember,
} from './arena.ts';
import { ask } from '../calls.ts';
import {
  cancelling,
  completing,
  failing,
  lastTwo,
  oppositeBatches,
  RING,
  RING_JOINS,
  RING_UPS,
} from './races.ts';

const arena = useFlowArena();

const BOTH: NamedMember[] = [{ name: 'x' }, { name: 'y' }, { name: 'both', after: ['x', 'y'] }];

describe('the last two before a join', () => {
  it('unblock it once', async () => {
    const outcomes = await lastTwo(arena);
    expect(outcomes.some(({ waited }) => waited.length > 0)).toBe(true);
  });

  it('skip it once when both fail', () =>
    arena
      .race({
        given: flowOf([...BOTH, { name: 'end', after: ['both'] }], ['x', 'y']),
        sessions: { a: failing(arena, 'x'), b: failing(arena, 'y') },
        check: async (_, scene) => {
          expect(await statesOf(arena, scene)).toEqual({
            x: 'failed',
            y: 'failed',
            both: 'skipped',
            end: 'skipped',
          });
          expect(await outcomeOf(arena, scene)).toBe('failed');
        },
      })
      .then(() => undefined));

  it('decide it one way when one completes and the other is cancelled', async () => {
    await arena.race({
      given: flowOf(BOTH, ['x', 'y']),
      sessions: {
        a: completing(arena, 'x'),
        b: cancelling(arena, 'y'),
        c: () => arena.flows.tell(),
      },
      check: async (_, scene) => {
        expect(await statesOf(arena, scene)).toEqual({ x: 'success', y: 'cancelled', both: 'skipped' });
      },
    });
  });

  it('meet a cancel of the member after them without a contradiction', async () => {
    await arena.race({
      given: after(flowOf(BOTH, ['x', 'y']), (_, scene) => ask(arena.through, completing(arena, 'y')(scene))),
      sessions: { a: completing(arena, 'x'), b: cancelling(arena, 'both') },
      check: async (_, scene) => {
        expect(await statesOf(arena, scene)).toEqual({ x: 'success', y: 'success', both: 'cancelled' });
        expect(await outcomeOf(arena, scene)).toBe('failed');
      },
    });
  });
});

describe('batches over joins that overlap', () => {
  it('in opposite orders do not deadlock', async () => {
    await oppositeBatches(arena);
  });

  it('do not deadlock with one that fails and one that resolves edges', async () => {
    await arena.race({
      given: after(flowOf(RING, RING_UPS), (_, scene) =>
        ask(arena.through, cancelling(arena, 'x5', 'x2')(scene)),
      ),
      sessions: {
        a: completing(arena, 'x0', 'x3'),
        b: failing(arena, 'x4', 'x1'),
        c: () => arena.flows.tell(),
      },
      check: async (_, scene) => {
        const states = await statesOf(arena, scene);
        for (const name of RING_JOINS) expect(states[name]).toBe('skipped');
        expect(await outcomeOf(arena, scene)).toBe('failed');
      },
    });
  });
});

describe('two sessions that resolve edges', () => {
  it('resolve each edge once', async () => {
    await arena.race({
      given: after(
        flowOf(
          [...RING, { name: 'end', after: RING_JOINS.map((from) => ({ from, on: 'always' as const })) }],
          RING_UPS,
        ),
        (_, scene) => ask(arena.through, cancelling(arena, ...RING_UPS)(scene)),
      ),
      sessions: {
        a: () => arena.flows.tell(3, 2),
        b: () => arena.flows.tell(100, 500),
        c: () => arena.flows.tell(2, 100),
      },
      check: async (_, scene) => {
        const states = await statesOf(arena, scene);
        for (const name of RING_JOINS) expect(states[name]).toBe('skipped');
        await expectFiredOnce(arena, null, scene, 'end');
      },
    });
  });
});
