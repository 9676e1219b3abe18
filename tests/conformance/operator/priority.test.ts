/**
 * Moving an execution in its queue: which is claimed first afterwards, that it is claimed once however often it was
 * moved, and when it cannot be moved.
 */
import { describe, expect, it } from 'vitest';
import type { ExecutionId } from '../../../src/index.ts';
import { cancel as cancelAt } from '../../../src/engine/executions/cancel.ts';
import { openEngine } from '../../../src/engine/open.ts';
import { changePriority as changeAt } from '../../../src/engine/operator/verbs.ts';
import { misplaced, newKind, useBench } from '../open.ts';

const bench = useBench();
const uuidOf = (id: ExecutionId): string => id.slice(id.lastIndexOf(':') + 1);

/** Executions of one kind, in the order they were submitted. */
async function queued(kind: string, count: number, priority = 5): Promise<ExecutionId[]> {
  const requests = Array.from({ length: count }, () => ({ kind, priority }));
  return (await bench.engine.executions.submit(requests)).map(({ executionId }) => executionId);
}

/** The executions granted, one claim after the other, until none is left. */
async function grantedInTurn(kind: string): Promise<ExecutionId[]> {
  const order: ExecutionId[] = [];
  for (;;) {
    const [claim] = await bench.claim({ kinds: [kind], limit: 1 });
    if (claim === undefined) return order;
    order.push(claim.executionId);
  }
}

async function operatorEvents(id: ExecutionId): Promise<unknown[]> {
  const found = await bench.database.query(
    `SELECT event_type, detail FROM ff_event WHERE execution_id = $1 AND family = 'operator' ORDER BY ev_id`,
    [uuidOf(id)],
  );
  return found.rows;
}

describe('a waiting execution', () => {
  it('is claimed before the others when it becomes more urgent, and after them when less', async () => {
    const kind = newKind();
    const [a, b, c] = (await queued(kind, 3)) as [ExecutionId, ExecutionId, ExecutionId];
    expect(await bench.engine.executions.changePriority(c, { priority: 9 })).toEqual({
      executionId: c,
      outcome: 'changed',
      oldPriority: 5,
    });
    expect(await bench.engine.executions.changePriority(a, { priority: 0 })).toMatchObject({
      oldPriority: 5,
    });
    expect((await bench.snapshot(c)).priority).toBe(9);
    expect(await grantedInTurn(kind)).toEqual([c, b, a]);
  });

  it('is claimed in order among those of its new priority, by when it was moved', async () => {
    const kind = newKind();
    const [first] = await queued(kind, 1, 3);
    const others = await queued(kind, 2, 5);
    await bench.engine.executions.changePriority(first!, { priority: 5 });
    expect(await grantedInTurn(kind)).toEqual([...others, first]);
  });

  it('is claimed once after it was moved there and back, even by a claim of many', async () => {
    const kind = newKind();
    const [moved, other] = (await queued(kind, 2)) as [ExecutionId, ExecutionId];
    for (const priority of [9, 5, 9, 5]) await bench.engine.executions.changePriority(moved, { priority });
    const claims = await bench.claim({ kinds: [kind], limit: 50 });
    expect(claims.map(({ executionId }) => executionId).toSorted()).toEqual([moved, other].toSorted());
    expect(await bench.claim({ kinds: [kind] })).toEqual([]);
    await Promise.all(claims.map((claim) => bench.port.complete(claim)));
    expect(await bench.claim({ kinds: [kind] }), 'claimed by what its moves left in the queue').toEqual([]);
  });

  it('keeps its new priority for later attempts', async () => {
    const kind = newKind();
    const [id] = await queued(kind, 1);
    await bench.engine.executions.changePriority(id!, { priority: 9 });
    const claim = await bench.claimOne(kind);
    expect(claim.priority).toBe(9);
    await bench.port.release(claim);
    await queued(kind, 1, 7);
    expect(await bench.claimOne(kind)).toMatchObject({ executionId: id, priority: 9 });
  });

  it('reports the change once, with who made it', async () => {
    const [id] = await queued(newKind(), 1);
    await bench.engine.executions.changePriority(id!, { priority: 8, by: 'ann' });
    // Unchanged: the same outcome, and no event.
    expect(await bench.engine.executions.changePriority(id!, { priority: 8 })).toMatchObject({
      outcome: 'changed',
      oldPriority: 8,
    });
    expect(await operatorEvents(id!)).toEqual([
      { event_type: 'priority_changed', detail: { by: 'ann', old_priority: 5, new_priority: 8 } },
    ]);
  });

  it('is announced to a worker that is idle', async () => {
    const kind = newKind();
    const [id] = await queued(kind, 1);
    const heard: unknown[] = [];
    const stop = bench.port.watch({ kinds: [kind] }, (hint) => {
      heard.push(hint.routes);
      return false;
    });
    await bench.engine.executions.changePriority(id!, { priority: 8 });
    stop();
    expect(heard.length).toBeGreaterThan(0);
  });
});

describe('a change is refused', () => {
  it.each(['active', 'delayed', 'ended'] as const)('with not_eligible when it is %s', async (how) => {
    const kind = newKind();
    const executionId = await bench.submit({ kind, ...(how === 'delayed' ? { delay: 60_000 } : {}) });
    if (how === 'active') await bench.claimOne(kind);
    if (how === 'ended') await bench.engine.cancel(executionId, { reason: 'no' });
    expect(await bench.engine.executions.changePriority(executionId, { priority: 9 })).toEqual({
      executionId,
      outcome: 'not_eligible',
    });
    expect((await bench.snapshot(executionId)).priority).toBe(0);
    expect(await operatorEvents(executionId)).toEqual([]);
  });

  it('with not_found at the index of each that does not exist', async () => {
    const [id] = await queued(newKind(), 1);
    const elsewhere = misplaced(id!);
    expect(await bench.engine.executions.changePriority([elsewhere, id!], { priority: 6 })).toEqual([
      { executionId: elsewhere, outcome: 'not_found' },
      { executionId: id, outcome: 'changed', oldPriority: 5 },
    ]);
  });

  it.each([-1, 9_001, 1.5, '3', undefined])('for the priority %j', async (priority) => {
    const [id] = await queued(newKind(), 1);
    await expect(
      bench.engine.executions.changePriority(id!, { priority: priority as never }),
    ).rejects.toMatchObject({
      code: 'invalid_input',
      field: 'priority',
    });
  });
});

describe('a caller that names the epoch it saw', () => {
  it('moves and cancels only what was not claimed since; claimed work continues', async () => {
    const { engine, context } = await openEngine({
      databaseUrl: bench.database.url,
      listen: 'off',
      poolSize: 1,
    });
    try {
      const kind = newKind();
      const [taken, left] = (await queued(kind, 2)) as [ExecutionId, ExecutionId];
      const seen = [0, 0];
      const claim = await bench.claimOne(kind);
      expect(claim.executionId).toBe(taken);
      expect(await changeAt(context, [taken, left], { priority: 9 }, seen)).toMatchObject([
        { outcome: 'moved' },
        { outcome: 'changed' },
      ]);
      expect(await cancelAt(context, [taken, left], { reason: 'bulk' }, seen)).toMatchObject([
        { outcome: 'moved' },
        { outcome: 'cancelled' },
      ]);
      expect(await bench.port.complete(claim, 'done')).toMatchObject({ outcome: 'completed' });
      expect(await cancelAt(context, [taken], { reason: 'bulk' }, [claim.leaseEpoch])).toMatchObject([
        { outcome: 'not_active', terminalOutcome: 'success' },
      ]);
    } finally {
      await engine.close();
    }
  });
});
