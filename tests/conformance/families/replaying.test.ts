/**
 * A replay of a parent replays the children that had ended with it, and no others; begun anew, it has other children,
 * and the earlier ones stay ended.
 */
import { describe, expect, it } from 'vitest';
import { LIMITS } from '../../../src/contract/limits.ts';
import { parseExecutionId } from '../../../src/contract/ids.ts';
import { newKind, useBench } from '../open.ts';
import { spawn, statesOf, WHY, workLeft } from './kit.ts';

const bench = useBench();

/** A parent that has ended, with its children, and has been claimed again after a replay. */
async function replayed(id: string, from: 'failed_step' | 'start' = 'failed_step') {
  expect(await bench.engine.executions.replay(id, { ...WHY, from })).toMatchObject({ outcome: 'replayed' });
  await bench.port.fireTimers();
}

describe('a replay of the parent', () => {
  it('replays the children that ended with it, where they were', async () => {
    const parent = await bench.running();
    const [kind, executionId] = [newKind(), parent.executionId];
    const [begun] = await spawn(bench, parent, { kind });
    const [waiting] = await spawn(bench, parent);
    const lease = await bench.claimOne(kind);
    await bench.port.recordStep(lease, { name: 'first', value: 1 });
    await bench.port.complete(parent);
    await bench.port.fireTimers();
    await replayed(executionId);
    expect(await statesOf(bench, [begun!, waiting!])).toEqual(['waiting', 'waiting']);
    const again = await bench.claimOne(kind);
    expect(again).toMatchObject({ executionId: begun, attemptIndex: 1 });
    expect(await bench.port.readSteps(begun!)).toMatchObject([{ name: 'first', value: 1 }]);
    expect(await workLeft(bench)).toBe(0);
  });

  it('leaves children alone that ended otherwise', async () => {
    const parent = await bench.running();
    const kind = newKind();
    const [done, cancelled] = [(await spawn(bench, parent, { kind }))[0]!, (await spawn(bench, parent))[0]!];
    await bench.port.complete(await bench.claimOne(kind));
    // Whoever cancels may say what they like: the category is the engine's.
    await bench.engine.cancel(cancelled, { reason: 'parent_ended', by: 'engine' });
    await bench.port.complete(parent);
    await bench.port.fireTimers();
    await replayed(parent.executionId);
    expect(await statesOf(bench, [done, cancelled])).toEqual(['completed', 'cancelled']);
  });

  it('reaches everything below them, and ends it again with the parent', async () => {
    const parent = await bench.running();
    const kind = newKind();
    const [child] = await spawn(bench, parent, { kind });
    const [grandchild] = await spawn(bench, await bench.claimOne(kind));
    await bench.port.complete(parent);
    for (let level = 0; level < 2; level += 1) await bench.port.fireTimers();
    expect(await statesOf(bench, [child!, grandchild!])).toEqual(['cancelled', 'cancelled']);
    await replayed(parent.executionId);
    await bench.port.fireTimers();
    expect(await statesOf(bench, [child!, grandchild!])).toEqual(['waiting', 'waiting']);
    await bench.engine.cancel(parent.executionId, WHY);
    for (let level = 0; level < 2; level += 1) await bench.port.fireTimers();
    expect(await statesOf(bench, [child!, grandchild!])).toEqual(['cancelled', 'cancelled']);
  });

  it('does not count against the replays that a child allows', async () => {
    const parent = await bench.running();
    const [child] = await spawn(bench, parent, { policy: { maxReplays: 0 } });
    await bench.port.complete(parent);
    await bench.port.fireTimers();
    await replayed(parent.executionId);
    expect(await bench.snapshot(child!)).toMatchObject({ state: 'waiting', replayCount: 1 });
  });

  it('is noticed by a spawn at the latest: the parent never finds a child ended by its own earlier end', async () => {
    const parent = await bench.running();
    const [child] = await spawn(bench, parent);
    await bench.port.complete(parent);
    await bench.port.fireTimers();
    await bench.engine.executions.replay(parent.executionId, WHY);
    const again = await bench.claimOne(parent.kind);
    expect(await statesOf(bench, [child!])).toEqual(['cancelled']);
    const { kind } = await bench.snapshot(child!);
    expect(await bench.port.spawn(again, [{ kind, executionId: child! }])).toMatchObject({
      children: [{ outcome: 'duplicate' }],
    });
    expect(await statesOf(bench, [child!])).toEqual(['waiting']);
  });

  it('turns the work on a family around that is not done yet', async () => {
    const parent = await bench.running();
    const children = await spawn(bench, parent, {}, 2);
    await bench.port.complete(parent);
    await bench.engine.executions.replay(parent.executionId, WHY);
    for (let round = 0; round < 2; round += 1) await bench.port.fireTimers();
    expect(await statesOf(bench, children)).toEqual(['waiting', 'waiting']);
    for (const child of children) expect(await bench.snapshot(child)).toMatchObject({ replayCount: 0 });
    expect(await workLeft(bench)).toBe(0);
  });

  it('from the start leaves the earlier children ended, and ends those that were not yet', async () => {
    const parent = await bench.running();
    const early = await spawn(bench, parent, {}, 2);
    await bench.port.complete(parent);
    await bench.engine.executions.replay(parent.executionId, { ...WHY, from: 'start' });
    const again = await bench.claimOne(parent.kind);
    const later = await spawn(bench, again, {}, 2);
    for (let round = 0; round < 2; round += 1) await bench.port.fireTimers();
    expect(await statesOf(bench, early)).toEqual(['cancelled', 'cancelled']);
    expect(await statesOf(bench, later)).toEqual(['waiting', 'waiting']);
    await bench.port.complete(again);
    await bench.port.fireTimers();
    await replayed(parent.executionId);
    expect(await statesOf(bench, [...early, ...later])).toEqual([
      'cancelled',
      'cancelled',
      'waiting',
      'waiting',
    ]);
  });
});

describe('a large family', () => {
  /** How many executions of the family each transaction has changed, by the transactions of their rows. */
  async function perTransaction(
    parent: string,
  ): Promise<{ most: number; transactions: number; open: number }> {
    const found = await bench.database.query<{ most: number; transactions: number; open: number }>(
      `SELECT max(n)::int AS most, count(*)::int AS transactions, sum(open)::int AS open FROM (
         SELECT count(*) AS n, count(*) FILTER (WHERE lifecycle_phase <> 'terminal') AS open
         FROM ff_execution WHERE parent_id = $1 GROUP BY xmin::text) x`,
      [parseExecutionId(parent).uuid],
    );
    return found.rows[0]!;
  }

  it('ends and begins again in parts, each a transaction of its own', async () => {
    const parent = await bench.running();
    const size = 3_000;
    await spawn(bench, parent, { kind: newKind() }, size);
    await bench.port.complete(parent);
    await bench.port.fireTimers();
    const parts = Math.ceil(size / LIMITS.familyPart);
    expect(await perTransaction(parent.executionId)).toEqual({
      most: LIMITS.familyPart,
      transactions: parts,
      open: 0,
    });
    await replayed(parent.executionId);
    expect(await perTransaction(parent.executionId)).toEqual({
      most: LIMITS.familyPart,
      transactions: parts,
      open: size,
    });
    expect(await workLeft(bench)).toBe(0);
  });
});
