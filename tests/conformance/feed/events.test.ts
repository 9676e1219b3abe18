/**
 * Every kind of event as a subscriber receives it: executions, lanes and workers are driven through their lives, and
 * each step is reported once, in order, with its details.
 */
import { beforeAll, describe, expect, it } from 'vitest';
import type { Claim } from '../../../src/protocol/index.ts';
import { encodeCursor, type ExecutionId, type FeedEvent } from '../../../src/index.ts';
import { take } from './following.ts';
import { LEASE_MS, newKind, useBench } from '../open.ts';
import { workerPort } from '../../../src/connect/port.ts';

const bench = useBench();
const RETRYING = { retry: { maxRetries: 5, backoff: { type: 'fixed', delay: 0 } } } as const;
const TAGS = { team: 'a' };
const [kind, lane, namespace] = [newKind(), 'lane-of-a-life', 'team-a'];

let executionId: ExecutionId;
const claims: Claim[] = [];
let events: FeedEvent[];

async function claimed(workerInstanceId = 'worker-1'): Promise<Claim> {
  const claim = await bench.claimOne(kind, { workerInstanceId });
  claims.push(claim);
  return claim;
}

/** A retry, a lost lease, a revocation, the operator's verbs, a success, a replay and a cancel. */
async function live(): Promise<void> {
  executionId = await bench.submit({ kind, lane, namespace, tags: TAGS, policy: RETRYING });
  const { engine } = bench;
  const first = await claimed();
  await workerPort(engine).renew([first], LEASE_MS);
  await workerPort(engine).release(first);
  await workerPort(engine).fail(await claimed(), { message: 'once' });
  await workerPort(engine).fireTimers();
  await claimed();
  await bench.loseLeases();
  await claimed('worker-2');
  await engine.executions.revokeLease(executionId, { reason: 'slow', by: 'ann' });
  await engine.executions.changePriority(executionId, { priority: 7, by: 'ann' });
  await engine.executions.setTags(executionId, { set: { more: 'b' }, remove: ['team'], by: 'bob' });
  await workerPort(engine).complete(await claimed(), 'done');
  await engine.executions.replay(executionId, { reason: 'again', by: 'ann', from: 'start' });
  await claimed();
  await engine.cancel(executionId, { reason: 'enough', by: 'bob' });
}

const TOLD = 17;

describe('the life of an execution', () => {
  beforeAll(async () => {
    const subscription = await bench.engine.events.subscribe();
    await live();
    events = await take(subscription, TOLD);
    await subscription.close();
  });

  it('is reported in order, each step once', () => {
    expect(events.map(({ family, type }) => `${family}.${type}`)).toEqual([
      'lease.acquired',
      'lease.renewed',
      'lease.released',
      'lease.acquired',
      'lease.released',
      'lease.acquired',
      'lease.expired',
      'lease.reclaimed',
      'lease.revoked',
      'operator.priority_changed',
      'tag.tags_changed',
      'lease.reclaimed',
      'completion.success',
      'operator.replayed',
      'lease.acquired',
      'lease.revoked',
      'completion.cancelled',
    ]);
  });

  it('has on every event its execution, and the cursor to resume after it', () => {
    for (const event of events) {
      expect(event).toMatchObject({ executionId, kind, lane, namespace, flowId: null });
      expect(event.cursor).toBe(encodeCursor(event.position));
      expect(event.occurredAtMs).toEqual(expect.any(Number));
    }
    const positions = events.map(({ position }) => position);
    expect(positions).toEqual(positions.map((_, index) => positions[0]! + BigInt(index)));
  });

  it('names the worker of a lease that is granted or renewed, and the tags of that moment', () => {
    const [first] = claims;
    const about = { attemptIndex: 0, leaseEpoch: 1, leaseId: first!.leaseId, tags: TAGS };
    expect(events[0]).toMatchObject({ ...about, workerInstanceId: 'worker-1' });
    expect(events[1]).toMatchObject({ ...about, workerInstanceId: 'worker-1' });
    expect(events[2]).toMatchObject({ ...about, previousOwner: 'worker-1', transition: 'release' });
  });

  it('names both owners of a lost lease, and who revoked it', () => {
    const [, second, third, fourth, fifth] = claims.map(({ leaseId }) => leaseId);
    expect(events[4]).toMatchObject({ leaseId: second, previousOwner: 'worker-1', leaseEpoch: 2 });
    expect(events[6]).toMatchObject({ leaseId: third, previousOwner: 'worker-1', attemptIndex: 1 });
    expect(events[7]).toMatchObject({ leaseId: fourth, previousOwner: 'worker-1', newOwner: 'worker-2' });
    expect(events[8]).toMatchObject({
      leaseId: fourth,
      previousOwner: 'worker-2',
      revokedBy: 'ann',
      transition: 'revoke',
    });
    expect(events[11]).toMatchObject({ leaseId: fifth, previousOwner: 'worker-2', newOwner: 'worker-1' });
  });

  it('reports what an operator changed', () => {
    expect(events[9]).toMatchObject({ by: 'ann', oldPriority: 0, newPriority: 7 });
    expect(events[10]).toMatchObject({ by: 'bob', set: { more: 'b' }, removed: ['team'] });
    expect(events[13]).toMatchObject({
      by: 'ann',
      reason: 'again',
      replayCount: 1,
      from: 'start',
      previousOutcome: 'success',
    });
  });

  it('finishes with the outcome, under its last lease', () => {
    const fifth = claims[4]!;
    expect(events[12]).toMatchObject({
      leaseId: fifth.leaseId,
      workerInstanceId: 'worker-1',
      attemptIndex: fifth.attemptIndex,
      tags: { more: 'b' },
    });
    const { leaseId } = claims[5]!;
    expect(events[15]).toMatchObject({
      leaseId,
      previousOwner: 'worker-1',
      transition: 'cancel',
      revokedBy: 'bob',
    });
    expect(events[16]).toMatchObject({ leaseId, tags: { more: 'b' } });
  });

  it('is the same for a reader of leases only, and of completions only', async () => {
    const from = encodeCursor(events[0]!.position - 1n);
    const filter = { executionId };
    const leases = await bench.engine.events.subscribeLeaseHistory({ from, filter });
    const told = events.filter(({ family }) => family === 'lease');
    expect(await take(leases, told.length)).toEqual(told);
    const ends = await bench.engine.events.subscribeCompletions({ from, filter });
    const [success, cancelled] = await take(ends, 2);
    expect(success).toEqual(events[12]);
    expect(cancelled).toEqual(events[16]);
    await Promise.all([leases.close(), ends.close()]);
  });
});

describe('an execution that finishes otherwise', () => {
  it('is reported as failed, expired, or cancelled before it ever ran', async () => {
    const subscription = await bench.engine.events.subscribeCompletions({ filter: { namespace: 'ends' } });
    const failing = await bench.running({ namespace: 'ends' });
    await bench.port.fail(failing, { message: 'ouch' });
    const silent = await bench.running({ namespace: 'ends' });
    await bench.loseLeases();
    const early = await bench.submit({ namespace: 'ends' });
    await bench.engine.cancel(early, { reason: 'enough' });
    expect(await take(subscription, 3)).toMatchObject([
      { type: 'failed', executionId: failing.executionId, leaseId: failing.leaseId, attemptIndex: 0 },
      { type: 'expired', executionId: silent.executionId, leaseId: silent.leaseId },
      { type: 'cancelled', executionId: early, leaseId: null, workerInstanceId: null, leaseEpoch: 0 },
    ]);
    await subscription.close();
  });
});

describe('a lane', () => {
  it('is reported when it is paused and resumed, and not when nothing changed', async () => {
    const subscription = await bench.engine.events.subscribe({ filter: { families: ['operator'] } });
    await bench.engine.lanes.pause('slow', { by: 'ann', reason: 'overload' });
    await bench.engine.lanes.pause('slow', { by: 'bob' });
    await bench.engine.lanes.resume('slow');
    await bench.engine.lanes.resume('slow');
    await bench.engine.lanes.pause('other');
    const told = await take(subscription, 3);
    expect(told).toMatchObject([
      { type: 'lane_paused', lane: 'slow', by: 'ann', reason: 'overload' },
      { type: 'lane_resumed', lane: 'slow' },
      { type: 'lane_paused', lane: 'other', reason: null },
    ]);
    for (const event of told) expect(event).not.toHaveProperty('executionId');
    await bench.engine.lanes.resume('other');
    await subscription.close();
  });
});

describe('a worker', () => {
  const entry = (workerInstanceId: string, version?: string) => ({
    workerInstanceId,
    workerId: 'w',
    kinds: ['k'],
    concurrency: 1,
    running: 0,
    uptimeMs: 0,
    stopping: false,
    ...(version === undefined ? {} : { version }),
  });

  it('is reported when it registers, stops or is lost, and not for every heartbeat', async () => {
    const subscription = await bench.engine.events.subscribe({ filter: { families: ['worker'] } });
    await bench.port.registerWorker(entry('w-1', '1.2.3'));
    await bench.port.registerWorker(entry('w-1', '1.2.3'));
    await bench.port.forgetWorker('w-1');
    await bench.port.forgetWorker('w-1');
    await bench.port.registerWorker(entry('w-2'));
    await bench.database.moveClock(86_400_000);
    await bench.reconcile();
    expect(await take(subscription, 4)).toMatchObject([
      { type: 'registered', workerInstanceId: 'w-1', workerId: 'w', version: '1.2.3' },
      { type: 'stopped', workerInstanceId: 'w-1', workerId: 'w', version: '1.2.3' },
      { type: 'registered', workerInstanceId: 'w-2', workerId: 'w', version: null },
      { type: 'lost', workerInstanceId: 'w-2', workerId: 'w' },
    ]);
    await subscription.close();
  });
});
