/**
 * What every operation writes to the log: which events, about which execution, under which lease, and nothing of the
 * work's own content.
 */
import { beforeAll, describe, expect, it } from 'vitest';
import { parseExecutionId } from '../../../src/contract/ids.ts';
import type { Claim } from '../../../src/protocol/index.ts';
import type { ExecutionId, SubmitRequest } from '../../../src/index.ts';
import { claimRequest, LEASE_MS, newKind, useBench } from '../../conformance/open.ts';
import { workerPort } from '../../../src/connect/port.ts';

const bench = useBench();
const TAGS = { 'cairn.instance_id': 'i-1' };
const RETRYING = { policy: { retry: { maxRetries: 1 } } };

interface EventRow {
  event: string;
  execution_id: string;
  partition_key: number;
  attempt_index: number;
  lease_epoch: number;
  lease_id: string | null;
  worker_instance_id: string | null;
  namespace: string;
  tags: object;
  detail: Record<string, unknown> | null;
  occurred_at_ms: number;
}

async function eventsOf(id: ExecutionId): Promise<EventRow[]> {
  const found = await bench.database.query<EventRow>(
    `SELECT family || '.' || event_type AS event, * FROM ff_event WHERE execution_id = $1 ORDER BY ev_id`,
    [parseExecutionId(id).uuid],
  );
  return found.rows;
}

async function namesOf(id: ExecutionId): Promise<string[]> {
  return (await eventsOf(id)).map(({ event }) => event);
}

/** A running execution with a namespace and tags. */
function running(request: Partial<SubmitRequest> = {}): Promise<Claim> {
  return bench.running({ namespace: 'team-a', tags: TAGS, ...request });
}

/** The events written after the grant of the lease. */
async function eventsAfter(claim: Claim, act: (claim: Claim) => Promise<unknown>): Promise<EventRow[]> {
  const before = await eventsOf(claim.executionId);
  await act(claim);
  return (await eventsOf(claim.executionId)).slice(before.length);
}

/** What every event about a lease contains. */
function about(claim: Claim): Partial<EventRow> {
  const { partition, uuid } = parseExecutionId(claim.executionId);
  return {
    execution_id: uuid,
    partition_key: partition,
    attempt_index: claim.attemptIndex,
    lease_epoch: claim.leaseEpoch,
    lease_id: claim.leaseId,
    worker_instance_id: 'worker-1',
    namespace: 'team-a',
    tags: TAGS,
  };
}

describe('no event', () => {
  it('is written by a submit, delayed or not, by a timer, by a read or by an empty claim', async () => {
    const id = await bench.submit({ delay: 1_000 });
    await bench.database.moveClock(1_000);
    await bench.port.fireTimers();
    await bench.engine.executions.describe(id);
    await bench.engine.executions.result(id);
    await bench.port.claim({ ...claimRequest(), kinds: [newKind()] });
    expect(await eventsOf(id)).toEqual([]);
  });

  it('is written by a call that was refused or repeated', async () => {
    const claim = await running();
    await bench.port.complete(claim);
    const before = await namesOf(claim.executionId);
    await bench.port.complete(claim);
    await bench.port.fail(claim, { message: 'ouch' });
    await bench.port.release(claim);
    await bench.port.renew([claim], LEASE_MS);
    await bench.engine.cancel(claim.executionId, { reason: 'late' });
    await bench.engine.executions.revokeLease(claim.executionId, { reason: 'late' });
    expect(await namesOf(claim.executionId)).toEqual(before);
  });
});

describe('a claim', () => {
  it('writes acquired, with the lease and the worker', async () => {
    const claim = await running();
    expect(await eventsOf(claim.executionId)).toMatchObject([
      { ...about(claim), event: 'lease.acquired', detail: null },
    ]);
  });

  it('writes acquired again for a resumed and for a retried attempt', async () => {
    const kind = newKind();
    const first = await running({ kind, ...RETRYING });
    await bench.port.release(first);
    const second = await bench.claimOne(kind);
    await bench.port.fail(second, { message: 'ouch', retryAfterMs: 0 });
    await bench.port.fireTimers();
    const third = await bench.claimOne(kind);
    const acquired = (await eventsOf(first.executionId)).filter(({ event }) => event === 'lease.acquired');
    expect(acquired).toMatchObject([about(first), about(second), about(third)]);
  });
});

describe('a renewal', () => {
  it('writes renewed for each lease that was renewed', async () => {
    const [kept, ended] = [await running(), await running()];
    await bench.port.complete(ended);
    await bench.port.renew([kept, ended], LEASE_MS);
    expect((await eventsOf(kept.executionId))[1]).toMatchObject({ ...about(kept), event: 'lease.renewed' });
    expect(await namesOf(ended.executionId)).toEqual(['lease.acquired', 'completion.success']);
  });

  it('writes nothing in a lane with renewal events off, and still renews', async () => {
    const kind = newKind();
    await bench.submit({ kind, lane: 'silent' });
    await bench.database.query(`UPDATE ff_lane SET renewal_events = false WHERE lane = 'silent'`);
    // Another engine, because this one may have cached the lane's settings.
    const engine = await bench.another();
    const { claims } = await workerPort(engine).claim({ ...claimRequest(), kinds: [kind] });
    const before = await bench.snapshot(claims[0]!.executionId);
    await bench.database.moveClock(1_000);
    expect(await workerPort(engine).renew(claims, LEASE_MS)).toEqual([{ outcome: 'renewed' }]);
    const after = await bench.snapshot(claims[0]!.executionId);
    expect(after.lease!.expiresAtMs).toBeGreaterThan(before.lease!.expiresAtMs);
    await workerPort(engine).complete(claims[0]!);
    expect(await namesOf(claims[0]!.executionId)).toEqual(['lease.acquired', 'completion.success']);
  });
});

describe('an outcome', () => {
  it('by completion writes success', async () => {
    const claim = await running();
    expect(await eventsAfter(claim, () => bench.port.complete(claim))).toMatchObject([
      { ...about(claim), event: 'completion.success' },
    ]);
  });

  it('by failure writes failed', async () => {
    const claim = await running();
    expect(await eventsAfter(claim, () => bench.port.fail(claim, { message: 'ouch' }))).toMatchObject([
      { ...about(claim), event: 'completion.failed' },
    ]);
  });

  it('by cancelling a running execution writes revoked with the canceller, and cancelled', async () => {
    const claim = await running();
    const act = () => bench.engine.cancel(claim.executionId, { reason: 'enough', by: 'ann' });
    expect(await eventsAfter(claim, act)).toMatchObject([
      { ...about(claim), event: 'lease.revoked', detail: { revoked_by: 'ann', previous_owner: 'worker-1' } },
      { ...about(claim), event: 'completion.cancelled' },
    ]);
  });

  it('by cancelling a waiting execution writes only cancelled, without a lease', async () => {
    const id = await bench.submit({ namespace: 'team-a', tags: TAGS });
    await bench.engine.cancel(id, { reason: 'enough' });
    expect(await eventsOf(id)).toMatchObject([
      {
        event: 'completion.cancelled',
        lease_id: null,
        worker_instance_id: null,
        namespace: 'team-a',
        tags: TAGS,
      },
    ]);
  });

  it('by a lost lease without retries writes expired twice: the lease and the execution', async () => {
    const claim = await running();
    expect(await eventsAfter(claim, () => bench.loseLeases())).toMatchObject([
      { ...about(claim), event: 'lease.expired', detail: { previous_owner: 'worker-1' } },
      { ...about(claim), event: 'completion.expired' },
    ]);
  });

  it('by too many revocations writes revoked and failed', async () => {
    const claim = await running({ policy: { maxReclaims: 0 } });
    const act = () => bench.engine.executions.revokeLease(claim.executionId, { reason: 'slow', by: 'bob' });
    expect(await eventsAfter(claim, act)).toMatchObject([
      { ...about(claim), event: 'lease.revoked', detail: { revoked_by: 'bob' } },
      { ...about(claim), event: 'completion.failed' },
    ]);
  });
});

describe('a lease that ends before its execution', () => {
  it('by a retried failure writes released', async () => {
    const claim = await running(RETRYING);
    const events = await eventsAfter(claim, () => bench.port.fail(claim, { message: 'ouch' }));
    expect(events).toMatchObject([{ ...about(claim), event: 'lease.released' }]);
    expect(events[0]!.detail).not.toHaveProperty('revoked_by');
  });

  it('by a release writes released', async () => {
    const claim = await running();
    const events = await eventsAfter(claim, () => bench.port.release(claim));
    expect(events).toMatchObject([{ ...about(claim), event: 'lease.released' }]);
  });

  it('by lapsing writes expired, and the next claim reclaimed with both owners', async () => {
    const kind = newKind();
    const lost = await running({ kind, ...RETRYING });
    expect(await eventsAfter(lost, () => bench.loseLeases())).toMatchObject([
      { ...about(lost), event: 'lease.expired', detail: { previous_owner: 'worker-1' } },
    ]);
    const next = await bench.claimOne(kind, { workerInstanceId: 'worker-2' });
    expect((await eventsOf(lost.executionId)).slice(2)).toMatchObject([
      {
        ...about(next),
        event: 'lease.reclaimed',
        worker_instance_id: 'worker-2',
        detail: { previous_owner: 'worker-1', new_owner: 'worker-2' },
      },
    ]);
  });

  it('by revocation writes revoked with the revoker, and the next claim reclaimed with both owners', async () => {
    const kind = newKind();
    const taken = await running({ kind });
    const act = () => bench.engine.executions.revokeLease(taken.executionId, { reason: 'slow', by: 'ann' });
    expect(await eventsAfter(taken, act)).toMatchObject([
      { ...about(taken), event: 'lease.revoked', detail: { revoked_by: 'ann', previous_owner: 'worker-1' } },
    ]);
    await bench.claimOne(kind, { workerInstanceId: 'worker-3' });
    expect((await eventsOf(taken.executionId)).at(-1)).toMatchObject({
      event: 'lease.reclaimed',
      detail: { previous_owner: 'worker-1', new_owner: 'worker-3' },
    });
  });

  it('by revocation without a name was revoked by the operator', async () => {
    const claim = await running();
    const act = () => bench.engine.executions.revokeLease(claim.executionId, { reason: 'slow' });
    expect(await eventsAfter(claim, act)).toMatchObject([{ detail: { revoked_by: 'operator' } }]);
  });
});

describe('a whole life', () => {
  let events: EventRow[];
  const SECRET = 'a-secret-nobody-may-log';

  beforeAll(async () => {
    const kind = newKind();
    const policy = { retry: { maxRetries: 3, backoff: { type: 'fixed', delay: 0 } } } as const;
    const first = await running({ kind, policy, payload: { secret: SECRET } });
    await bench.port.renew([first], LEASE_MS);
    await bench.port.release(first);
    await bench.port.fail(await bench.claimOne(kind), { message: SECRET });
    await bench.port.fireTimers();
    await bench.claimOne(kind);
    await bench.loseLeases();
    await bench.claimOne(kind);
    await bench.engine.executions.revokeLease(first.executionId, { reason: SECRET });
    await bench.port.complete(await bench.claimOne(kind), { secret: SECRET });
    events = await eventsOf(first.executionId);
  });

  it('is reported in the order it happened', () => {
    expect(events.map(({ event }) => event)).toEqual([
      'lease.acquired',
      'lease.renewed',
      'lease.released',
      'lease.acquired',
      'lease.released',
      'lease.acquired',
      'lease.expired',
      'lease.reclaimed',
      'lease.revoked',
      'lease.reclaimed',
      'completion.success',
    ]);
    const times = events.map(({ occurred_at_ms }) => occurred_at_ms);
    expect(times).toEqual(times.toSorted((a, b) => a - b));
  });

  it('has exactly one end for every grant', () => {
    const grants = events.filter(({ event }) => /acquired|reclaimed/.test(event)).map((row) => row.lease_id);
    const ends = events.filter(({ event }) => /released|expired|revoked|success/.test(event));
    expect(ends.map((row) => row.lease_id)).toEqual(grants);
    expect(new Set(grants).size).toBe(grants.length);
  });

  it('has the namespace and the tags on every event', () => {
    for (const { namespace, tags } of events)
      expect({ namespace, tags }).toEqual({ namespace: 'team-a', tags: TAGS });
  });

  it('contains nothing of payload, result, failure or reason', () => {
    expect(JSON.stringify(events)).not.toContain(SECRET);
  });
});
