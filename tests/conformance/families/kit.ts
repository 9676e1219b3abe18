/**
 * Families for the tests of this folder: parents with children of every sort, and what has become of them.
 */
import type { ChildRequest } from '../../../src/contract/steps.ts';
import type { ExecutionId } from '../../../src/index.ts';
import type { LeaseRef } from '../../../src/protocol/index.ts';
import { newKind, type Bench } from '../open.ts';

export const WHY = { reason: 'for a test' };
/** How a child has ended that ended with its parent. */
export const WITH_PARENT = {
  outcome: 'cancelled',
  message: 'parent_ended',
  category: 'parent_ended',
  by: 'engine',
};

export async function spawn(
  { port }: Bench,
  lease: LeaseRef,
  request: Partial<ChildRequest> = {},
  count = 1,
): Promise<ExecutionId[]> {
  const requests = Array.from({ length: count }, () => ({ kind: newKind(), ...request }));
  const spawned = await port.spawn(lease, requests);
  if (spawned.outcome !== 'spawned') throw new Error(`not spawned: ${spawned.outcome}`);
  return spawned.children.map(({ executionId }) => executionId);
}

export async function statesOf({ snapshot }: Bench, ids: readonly ExecutionId[]): Promise<string[]> {
  return Promise.all(ids.map(async (id) => (await snapshot(id)).state));
}

/** Timers of families that are left, and where their work stopped. */
export async function workLeft({ database }: Bench): Promise<number> {
  const left = await database.query<{ n: number }>(
    `SELECT (SELECT count(*) FROM ff_timer WHERE kind = 'family')::int + (SELECT count(*) FROM ff_family_place)::int AS n`,
  );
  return left.rows[0]!.n;
}
