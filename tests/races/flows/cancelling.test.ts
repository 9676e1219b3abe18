/**
 * Races between cancelling a flow and its members: each ends once, and what was unblocked meanwhile is cancelled too.
 */
import { describe, expect, it } from 'vitest';
import { ask } from '../calls.ts';
import { after, flowOf, outcomeOf, saidOf, statesOf, useFlowArena } from './arena.ts';
import { completing, failing } from './races.ts';

const arena = useFlowArena();

describe('a flow that is cancelled', () => {
  it('meets the completion of a member: the member completed or was cancelled', async () => {
    await arena.race({
      given: flowOf([{ name: 'x' }, { name: 'y' }, { name: 'z', after: ['x', 'y'] }], ['x', 'y']),
      sessions: {
        a: completing(arena, 'x'),
        b: ({ flow }) => arena.flows.cancelFlow(flow, 'cancel_all'),
        c: ({ flow }) => arena.flows.cancelMembers(flow, 2),
      },
      check: async (outcome, scene) => {
        const isDone = saidOf(outcome, scene.members['x']).includes('completed');
        expect(await statesOf(arena, scene)).toEqual({
          x: isDone ? 'success' : 'cancelled',
          y: 'cancelled',
          z: 'cancelled',
        });
        expect(await outcomeOf(arena, scene)).toBe('cancelled');
      },
    });
  });

  it('meets the join that unblocks a member: an unblocked member has not begun', async () => {
    await arena.race({
      given: after(
        flowOf([{ name: 'x' }, { name: 'z', after: ['x'] }, { name: 'end', after: ['z'] }], ['x']),
        (_, { flow }) => ask(arena.through, arena.flows.cancelFlow(flow, 'cancel_pending')),
      ),
      sessions: { a: completing(arena, 'x'), b: ({ flow }) => arena.flows.cancelMembers(flow) },
      check: async (_, scene) => {
        expect(await statesOf(arena, scene)).toEqual({ x: 'success', z: 'cancelled', end: 'cancelled' });
        expect(await outcomeOf(arena, scene)).toBe('cancelled');
      },
    });
  });

  it('continues after a replay: no further member is cancelled', async () => {
    await arena.race({
      given: after(
        flowOf([{ name: 'x' }, { name: 'y' }, { name: 'z' }], ['x', 'y', 'z']),
        async (_, scene) => {
          await ask(arena.through, failing(arena, 'x')(scene));
          await ask(arena.through, arena.flows.cancelFlow(scene.flow, 'cancel_pending'));
        },
      ),
      sessions: {
        a: ({ members }) => arena.calls.replay([members['x']!], 'start'),
        b: ({ flow }) => arena.flows.cancelMembers(flow),
      },
      check: async (outcome, scene) => {
        const isCancelled = saidOf(outcome, scene.members['x']).includes('cancelled');
        expect(await statesOf(arena, scene)).toEqual({
          x: isCancelled ? 'cancelled' : 'eligible_now',
          y: 'active',
          z: 'active',
        });
        if (outcome.order.indexOf('a.COMMIT') < outcome.order.indexOf('b.call'))
          expect(isCancelled).toBe(false);
      },
    });
  });
});
