/**
 * Lists of executions by state: running, waiting and finished ones, however they got there. Each test uses a namespace
 * of its own.
 */
import { describe, expect, it } from 'vitest';
import type { ExecutionSummary } from '../../../src/contract/operations.ts';
import type { Claim } from '../../../src/protocol/index.ts';
import type { ExecutionId, SubmitRequest } from '../../../src/index.ts';
import { idsOf, useLists } from './listing.ts';
import { newKind, useBench } from '../open.ts';

const bench = useBench();
const { all, list, expectList, expectSame, submitInTime, submitTogether } = useLists(bench);
const WHY = { reason: 'why' };
const RETRYING = {
  policy: { retry: { maxRetries: 5, backoff: { type: 'fixed', delay: 60_000 } } },
} as const;

async function running(request: Partial<SubmitRequest>): Promise<Claim> {
  await bench.database.moveClock(5);
  return bench.running(request);
}

describe('running executions', () => {
  it('are listed with their worker', async () => {
    const namespace = newKind();
    const claims = [await running({ namespace }), await running({ namespace }), await running({ namespace })];
    await bench.submit({ namespace });
    await expectSame({ namespace, states: ['active'] }, idsOf(claims));
    const [one] = (await list({ namespace, states: ['active'] }, { limit: 1 })).executions;
    expect(one).toMatchObject({ state: 'active', workerInstanceId: 'worker-1', leaseEpoch: 1 });
  });
});

describe('waiting executions', () => {
  it('come route by route, in the order of the queue', async () => {
    const [namespace, lane, one, other] = [newKind(), newKind(), newKind(), newKind()];
    const ids = await submitInTime([
      { namespace, lane, kind: one, priority: 1 },
      { namespace, lane, kind: other, priority: 9 },
      { namespace, lane, kind: one, priority: 5 },
      { namespace, lane, kind: other, priority: 9 },
      { namespace, lane, kind: one, priority: 5 },
    ]);
    const inOrder = [2, 4, 0, 1, 3].map((index) => ids[index]!);
    await expectList({ namespace, states: ['waiting'] }, inOrder);
    await expectList({ lane, states: ['waiting'] }, inOrder);
    await expectList({ states: ['waiting'], lane, kind: one }, inOrder.slice(0, 3));
    await expectList({ states: ['waiting'], kind: other }, inOrder.slice(3));
  });

  it('may have got there in any way', async () => {
    const namespace = newKind();
    const request = { namespace, ...RETRYING };
    const released = await running(request);
    await bench.port.release(released);
    const revoked = await running(request);
    await bench.engine.executions.revokeLease(revoked.executionId, WHY);
    const retried = await running(request);
    await bench.port.fail(retried, { message: 'ouch', retryAfterMs: 0 });
    await bench.port.fireTimers();
    const replayed = await running({ namespace });
    await bench.port.complete(replayed);
    await bench.engine.executions.replay(replayed.executionId, WHY);
    const lost = await running(request);
    await bench.loseLeases();
    const moved = await bench.submit({ namespace });
    await bench.engine.executions.changePriority(moved, { priority: 3 });
    const ids = [...idsOf([released, revoked, retried, replayed, lost]), moved];
    await expectSame({ namespace, states: ['waiting'] }, ids);
  });

  it('are listed once when their priority went up and down again', async () => {
    const [namespace, kind] = [newKind(), newKind()];
    const ids = await submitInTime([
      { namespace, kind },
      { namespace, kind },
      { namespace, kind },
    ]);
    for (const priority of [5, 0]) {
      await bench.database.moveClock(1);
      await bench.engine.executions.changePriority(ids[0]!, { priority });
    }
    await expectSame({ namespace, states: ['waiting'] }, ids);
  });

  it('include those whose timer is due and has not fired', async () => {
    const namespace = newKind();
    const ids = await submitTogether(4, { namespace, delay: 5_000 });
    const later = await bench.submit({ namespace, delay: 60_000 });
    const waiting = await bench.submit({ namespace });
    await expectSame({ namespace, states: ['delayed'] }, [...ids, later]);
    await expectList({ namespace, states: ['waiting'] }, [waiting]);
    await bench.database.moveClock(5_000);
    await expectList({ namespace, states: ['delayed'] }, [later]);
    await expectSame({ namespace, states: ['waiting'] }, [...ids, waiting]);
    await expectSame({ namespace, states: ['delayed', 'waiting'] }, [...ids, later, waiting]);
    await bench.port.fireTimers();
    await expectSame({ namespace, states: ['waiting'] }, [...ids, waiting]);
    await expectList({ namespace, states: ['delayed'] }, [later]);
  });

  it('with a due time are listed soonest first', async () => {
    const namespace = newKind();
    const ids = await submitInTime([
      { namespace, delay: 30_000 },
      { namespace, delay: 10_000 },
      { namespace, delay: 20_000 },
    ]);
    const claim = await bench.running({ namespace, ...RETRYING });
    await bench.port.fail(claim, { message: 'ouch' });
    const cancelled = await bench.submit({ namespace, delay: 15_000 });
    await bench.engine.cancel(cancelled, WHY);
    await expectList({ namespace, states: ['delayed'] }, [ids[1]!, ids[2]!, ids[0]!, claim.executionId]);
  });

  it('are listed as waiting for children while they do', async () => {
    const [namespace, kind] = [newKind(), newKind()];
    const pausing = async (wait: { wakeInMs?: number }): Promise<ExecutionId> => {
      const parent = await running({ namespace });
      const spawned = await bench.port.spawn(parent, [{ kind }]);
      if (spawned.outcome !== 'spawned') throw new Error(`spawning answered ${spawned.outcome}`);
      const children = { executionIds: idsOf(spawned.children), needed: 1 };
      await bench.port.pause(parent, { ...wait, children });
      return parent.executionId;
    };
    const parents = [await pausing({}), await pausing({})];
    const napping = await pausing({ wakeInMs: 60_000 });
    await expectSame({ namespace, states: ['waiting_children'] }, parents);
    await expectList({ namespace, states: ['delayed'] }, [napping]);
    await bench.port.complete(await bench.claimOne(kind));
    await bench.port.fireTimers();
    await expectList({ namespace, states: ['waiting'] }, [parents[0]!]);
    await expectList({ namespace, states: ['waiting_children'] }, [parents[1]!]);
  });
});

describe('suspended executions', () => {
  const ONE = { kind: 'count', n: 1, by: 'signals', waitpoints: ['go'] } as const;

  async function suspended(request: Partial<SubmitRequest>): Promise<ExecutionId> {
    const claim = await running(request);
    const answer = await bench.port.suspend(claim, { waits: [{ name: 'go', condition: ONE }] });
    expect(answer).toMatchObject({ outcome: 'suspended' });
    return claim.executionId;
  }

  it('are listed until they are resumed or cancelled', async () => {
    const namespace = newKind();
    const ids = [await suspended({ namespace }), await suspended({ namespace }), await suspended({})];
    await bench.submit({ namespace });
    await expectSame({ namespace, states: ['suspended'] }, ids.slice(0, 2));
    const [one] = (await list({ namespace, states: ['suspended'] }, { limit: 1 })).executions;
    expect(one).toMatchObject({ state: 'suspended', workerInstanceId: null });
    await bench.engine.waitpoints.approve(ids[0]!, 'go', { by: 'ann' });
    await expectList({ namespace, states: ['suspended'] }, [ids[1]!]);
    expect(await bench.snapshot(ids[0]!)).toMatchObject({ state: 'waiting' });
    await bench.engine.cancel(ids[1]!, WHY);
    await expectList({ namespace, states: ['suspended'] }, []);
  });

  it('count as open, and are cancelled with the others', async () => {
    const namespace = newKind();
    const ids = [await suspended({ namespace }), await bench.submit({ namespace })];
    const filter = { namespace };
    for await (const { outcomes } of bench.engine.executions.bulk({ verb: 'cancel', ...WHY, filter })) {
      expect(outcomes).toEqual({ cancelled: 2 });
    }
    await expectSame({ namespace, states: ['cancelled'] }, ids);
  });
});

describe('finished executions', () => {
  it('are listed last finished first, over all namespaces', async () => {
    const lane = newKind();
    const spaces = [newKind(), newKind(), newKind()];
    const ids = await Promise.all(spaces.map((namespace) => submitTogether(20, { namespace, lane })));
    const inOrder: ExecutionId[] = [];
    // Unevenly, so that one namespace is far ahead of another.
    for (const [space, count] of [
      [0, 11],
      [1, 4],
      [0, 9],
      [2, 20],
      [1, 16],
    ] as const) {
      for (let each = 0; each < count; each += 1) {
        await bench.database.moveClock(1);
        const id = ids[space]!.pop()!;
        await bench.engine.cancel(id, WHY);
        inOrder.unshift(id);
      }
    }
    for (const limit of [1, 7, 100]) {
      expect(idsOf(await all({ lane, states: ['cancelled'] }, limit))).toEqual(inOrder);
    }
    // Without other conditions only a limited number per namespace is examined for a page.
    for (const limit of [7, 30]) {
      const everywhere = await all({ states: ['cancelled'] }, limit);
      expect(idsOf(everywhere.filter((execution) => execution.lane === lane))).toEqual(inOrder);
      const ends = everywhere.map(({ endedAtMs }) => endedAtMs!);
      expect(ends).toEqual(ends.toSorted((one, other) => other - one));
    }
  });

  it('that finished together are listed once each, and only in their namespace', async () => {
    const [one, other] = [newKind(), newKind()];
    const [first, second] = [
      await submitTogether(9, { namespace: one }),
      await submitTogether(5, { namespace: other }),
    ];
    await bench.engine.cancel([...first, ...second], WHY);
    await expectSame({ namespace: one, states: ['cancelled'] }, first);
    await expectSame({ namespace: other, states: ['cancelled'] }, second);
    await expectSame({ namespace: other, states: ['completed'] }, []);
  });

  it('are one list, whether or not they have a retention of their own', async () => {
    const namespace = newKind();
    const own = { policy: { retention: 86_400_000 } };
    const ids = await submitInTime([{}, own, own, {}, own, {}].map((more) => ({ namespace, ...more })));
    for (const id of ids) {
      await bench.database.moveClock(1);
      await bench.engine.cancel(id, WHY);
    }
    await expectList({ namespace, states: ['cancelled'] }, ids.toReversed());
  });

  it('are told apart by outcome, with their failure', async () => {
    const namespace = newKind();
    const done = await running({ namespace });
    await bench.port.complete(done, 1);
    const failed = await running({ namespace });
    await bench.port.fail(failed, { message: 'no disk left', category: 'disk' });
    const cancelled = await running({ namespace });
    await bench.engine.cancel(cancelled.executionId, WHY);
    const expired = await running({ namespace });
    await bench.loseLeases();
    const one = async (state: ExecutionSummary['state']) =>
      (await list({ namespace, states: [state] })).executions;
    expect(await one('completed')).toMatchObject([{ executionId: done.executionId, failure: null }]);
    expect(await one('failed')).toMatchObject([
      { executionId: failed.executionId, failure: { message: 'no disk left', category: 'disk' } },
    ]);
    expect(await one('cancelled')).toMatchObject([{ executionId: cancelled.executionId }]);
    expect(await one('expired')).toMatchObject([{ executionId: expired.executionId }]);
    expect(await one('skipped')).toEqual([]);
    await expectList({ namespace, states: ['failed', 'completed'] }, idsOf([failed, done]));
    await expectList({ namespace, states: ['completed', 'failed', 'completed'] }, idsOf([done, failed]));
  });

  it('are narrowed by the time they finished and by failure', async () => {
    const namespace = newKind();
    const failures = [
      { message: 'disk full', category: 'disk' },
      { message: 'Disk full', category: 'disk' },
      { message: 'disk full', category: 'other' },
    ];
    const ids: ExecutionId[] = [];
    for (const failure of failures) {
      const claim = await running({ namespace });
      await bench.port.fail(claim, failure);
      ids.push(claim.executionId);
    }
    const ends = await Promise.all(ids.map(async (id) => (await bench.snapshot(id)).endedAtMs!));
    const failed = { namespace, states: ['failed'] } as const;
    await expectList({ ...failed, endedFromMs: ends[1]! }, [ids[2]!, ids[1]!]);
    await expectList({ ...failed, endedBeforeMs: ends[1]! }, [ids[0]!]);
    await expectList({ ...failed, endedFromMs: ends[1]!, endedBeforeMs: ends[2]! }, [ids[1]!]);
    await expectList({ ...failed, failure: { category: 'disk' } }, [ids[1]!, ids[0]!]);
    await expectList({ ...failed, failure: { contains: 'disk' } }, [ids[2]!, ids[0]!]);
    await expectList({ ...failed, failure: { category: 'disk', contains: 'k f' } }, [ids[1]!, ids[0]!]);
    const { createdAtMs } = await bench.snapshot(ids[1]!);
    await expectList({ ...failed, createdFromMs: createdAtMs }, [ids[2]!, ids[1]!]);
  });

  it('that were replayed are listed by their current state', async () => {
    const [namespace, kind] = [newKind(), newKind()];
    const claim = await bench.running({ namespace, kind });
    const id = claim.executionId;
    await bench.port.fail(claim, { message: 'first' });
    await bench.engine.executions.replay(id, WHY);
    await expectList({ namespace, states: ['failed'] }, []);
    await expectList({ namespace, states: ['waiting'] }, [id]);
    await bench.database.moveClock(1);
    await bench.port.fail(await bench.claimOne(kind), { message: 'second' });
    await expectList({ namespace, states: ['failed'] }, [id]);
    expect((await list({ namespace, states: ['failed'] })).executions).toMatchObject([
      { replayCount: 1, failure: { message: 'second' } },
    ]);
    await bench.engine.executions.replay(id, WHY);
    await bench.port.complete(await bench.claimOne(kind));
    await expectList({ namespace, states: ['failed'] }, []);
    await expectList({ namespace, states: ['failed', 'completed'] }, [id]);
  });
});
