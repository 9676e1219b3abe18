/**
 * Executions with children for the races: a running parent with running children, and the check whether the parent can
 * resume. What a race expects is in the test files.
 */
import { randomUUID } from 'node:crypto';
import { expect } from 'vitest';
import { claimAll, leased, type Arena, type Scene } from '../arena.ts';
import { ask, type Answer, type Lease, type PauseFor } from '../calls.ts';
import { endOfLog } from '../invariants.ts';

export interface Family extends Scene {
  /** The lease of the parent, also the only one in `leases`. */
  parent: Lease;
  /** The leases of the children, in id order. */
  children: Lease[];
}

/** A parent and its children, all running. The children come after the parent in `ids`. */
export function family(count: number): (arena: Arena) => Promise<Family> {
  return async (arena) => {
    const scene = await leased(1)(arena);
    const parent = scene.leases[0]!;
    const ids = Array.from({ length: count }, () => randomUUID()).toSorted();
    const call = arena.calls.spawn(parent, { ids, routes: [{ lane: 'default', kind: randomUUID() }] });
    // The first marks the parent.
    await arena.through(call.sql, call.params);
    const spawned = await arena.through(call.sql, call.params);
    const route = { ...scene, ids, routeId: Number(spawned.rows[0]?.route_id) };
    const children = await claimAll(arena, route, 'w-2');
    return {
      ...scene,
      ids: [...scene.ids, ...ids],
      parent,
      children,
      logged: await endOfLog(arena.through),
    };
  };
}

/** A parent paused for children that have all ended, of which it has not been notified yet. */
export function endedChildren(
  count: number,
  request: PauseFor = {},
): (arena: Arena) => Promise<Family & { timers: string[] }> {
  return async (arena) => {
    const scene = await family(count)(arena);
    const { calls, through } = arena;
    await ask(through, calls.pause([scene.parent], { children: childIds(scene), ...request }));
    for (const child of scene.children) await ask(through, calls.complete([child]));
    return { ...scene, timers: await timersOf(arena, scene, 'child_ended'), logged: await endOfLog(through) };
  };
}

/** The timers of the parent, oldest first. */
export async function timersOf(
  { through }: Arena,
  { parent }: Family,
  kind: 'eligible' | 'child_ended',
): Promise<string[]> {
  const found = await through(
    'SELECT timer_id::text AS id FROM ff_timer WHERE execution_id = $1 AND kind = $2 ORDER BY timer_id',
    [parent.id, kind],
  );
  return found.rows.map((row) => row.id as string);
}

export const asFamily = (scene: Scene): Family => scene as Family;
export const childIds = (scene: Scene): string[] => asFamily(scene).children.map(({ id }) => id);

/**
 * Whatever the order: in the end the parent can resume, with its lease if its pause returned that there is nothing to
 * wait for, otherwise by the next claim; and no notification of a child is left.
 */
export async function expectToGoOn(arena: Arena, scene: Scene, paused: Answer[]): Promise<void> {
  const { calls, through } = arena;
  const { parent, routeId } = asFamily(scene);
  await ask(through, calls.fire([parent.id]));
  expect(await timersOf(arena, asFamily(scene), 'child_ended'), 'word of children left').toEqual([]);
  const claimed = await ask(through, calls.claim(routeId, 1, 'w-3'));
  if (paused[0]?.word === 'due') {
    expect(claimed, 'claimed beside its holder').toEqual([]);
    expect(await ask(through, calls.complete([parent]))).toMatchObject([{ word: 'completed' }]);
    return;
  }
  expect(paused).toMatchObject([{ word: 'paused' }]);
  expect(claimed).toMatchObject([{ id: parent.id, word: 'claimed', attempt: parent.attempt }]);
}
