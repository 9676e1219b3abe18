/**
 * Races around the end of a parent, for the engine's functions and for naive ones: what must be so of a family when all
 * its work is done, whoever won.
 */
import { randomUUID } from 'node:crypto';
import { expect } from 'vitest';
import type { Interleaving } from '../../../src/testing/stepper.ts';
import { transaction, type Arena, type Scene } from '../arena.ts';
import { ask, type Call } from '../calls.ts';
import { endOfLog } from '../invariants.ts';
import { asFamily, family, type Family } from '../steps/families.ts';

/** Children that are not as the state of their parent demands. */
const VIOLATIONS = `
  SELECT c.execution_id, CASE WHEN p.lifecycle_phase = 'terminal' THEN 'is open, and its parent has ended'
                              ELSE 'stays ended, and its parent runs again' END AS problem
  FROM ff_execution p JOIN ff_execution c ON c.parent_id = p.execution_id
  WHERE p.execution_id = $1 AND CASE WHEN p.lifecycle_phase = 'terminal' THEN c.lifecycle_phase <> 'terminal'
    ELSE c.terminal_outcome = 'cancelled' AND ff_ended_with_parent(c.execution_id) END`;

/** Does all the work on the family that is left, and then compares. */
export async function expectAtRest({ calls, through }: Arena, scene: Scene): Promise<void> {
  const { parent } = asFamily(scene);
  for (let round = 0; round < 5; round += 1) await ask(through, calls.settleFamilies([parent.id]));
  const left = await through(`SELECT FROM ff_timer WHERE kind = 'family' AND execution_id = $1`, [parent.id]);
  expect(left.rows, 'work left').toEqual([]);
  const wrong = await through(VIOLATIONS, [parent.id]);
  expect(wrong.rows, 'violations of the family').toEqual([]);
}

/** A parent that has ended, and whose running children have not yet. */
export function endedParent(count: number): (arena: Arena) => Promise<Family> {
  return async (arena) => {
    const scene = await family(count)(arena);
    await ask(arena.through, arena.calls.complete([scene.parent]));
    return { ...scene, logged: await endOfLog(arena.through) };
  };
}

/** A parent that was replayed after its children had ended with it, and runs again; they have not begun again yet. */
export function replayedParent(count: number): (arena: Arena) => Promise<Family> {
  return async (arena) => {
    const { calls, through } = arena;
    const scene = await endedParent(count)(arena);
    await ask(through, calls.settleFamilies([scene.parent.id]));
    await ask(through, calls.replay([scene.parent.id], 'failed_step'));
    const [parent] = await leasesOf(arena, scene);
    return { ...scene, parent: parent!, leases: [parent!], logged: await endOfLog(through) };
  };
}

async function leasesOf({ calls, through }: Arena, scene: Scene): Promise<Scene['leases']> {
  const claimed = await ask(through, calls.claim(scene.routeId, 1, 'w-4'));
  return claimed.map(({ id, attempt, epoch }) => ({ id: id!, attempt, epoch }));
}

export const settle =
  (arena: Arena) =>
  (scene: Scene): Call =>
    arena.calls.settleFamilies([asFamily(scene).parent.id]);

/** A spawn, the end of the parent, and somebody who does the work on the family as soon as there is some. */
export function spawnAndEnd(arena: Arena): Promise<Interleaving[]> {
  interface Spawning extends Family {
    later: string;
    route: { lane: string; kind: string };
  }
  return arena.race({
    given: async (on): Promise<Spawning> => {
      const scene = await family(1)(on);
      const route = { lane: 'default', kind: randomUUID() };
      // Interned before, so that sessions compete for the family only.
      await ask(on.through, on.calls.submit({ ids: [randomUUID()], routes: [route] }));
      return { ...scene, later: randomUUID(), route };
    },
    sessions: {
      spawning: transaction((scene) => {
        const { parent, later, route } = scene as Spawning;
        return arena.calls.spawn(parent, { ids: [later], routes: [route] });
      }),
      ending: transaction((scene) => arena.calls.complete([asFamily(scene).parent])),
      working: transaction(settle(arena)),
    },
    check: (_, scene) => expectAtRest(arena, scene),
  });
}

/** The work on the family of an ended parent, and its replay. */
export function settleAndReplay(arena: Arena): Promise<Interleaving[]> {
  return arena.race({
    given: endedParent(2),
    sessions: {
      replaying: transaction((scene) => arena.calls.replay([asFamily(scene).parent.id], 'failed_step')),
      working: transaction(settle(arena)),
    },
    check: (_, scene) => expectAtRest(arena, scene),
  });
}
