/**
 * The established read surface: queries that applications are known to run on ff_exec_core, ff_attempt, ff_lease_event
 * and ff_completion_event, run at every station of an execution's life and compared with what happened to it. Those of
 * streams are in streams/seed-selects.test.ts.
 */
import { beforeAll, describe, expect, it } from 'vitest';
import type { Claim } from '../../../src/protocol/index.ts';
import type { ExecutionId, FeedEvent } from '../../../src/index.ts';
import { parseExecutionId } from '../../../src/contract/ids.ts';
import { take } from '../../conformance/feed/following.ts';
import { LEASE_MS, newKind, useBench } from '../../conformance/open.ts';

const bench = useBench();

/** The labels of an event about an execution; nulls when there is no such execution. */
const EVENT_LABELS = `
  SELECT $1, $2, $3, $4::bigint, $5::smallint, raw_fields->>'namespace' AS namespace,
         raw_fields->'tags'->>'cairn.instance_id' AS instance_tag
  FROM ff_exec_core WHERE partition_key = $5 AND execution_id = $6::uuid
  UNION ALL
  SELECT $1, $2, $3, $4, $5, NULL, NULL
  WHERE NOT EXISTS (SELECT 1 FROM ff_exec_core WHERE partition_key = $5 AND execution_id = $6::uuid)`;

/** Attempts of one partition whose lease is past a time while their execution is active. */
const DUE = `
  SELECT a.execution_id, a.attempt_index
  FROM ff_attempt a JOIN ff_exec_core c ON c.partition_key = a.partition_key AND c.execution_id = a.execution_id
  WHERE a.partition_key = $1 AND a.lease_expires_at_ms IS NOT NULL AND a.lease_expires_at_ms < $2
    AND c.lifecycle_phase = 'active'
  ORDER BY a.lease_expires_at_ms ASC LIMIT $3`;

const LEASE_END = `
  SELECT lease_expires_at_ms FROM ff_attempt WHERE partition_key = $1 AND execution_id = $2 AND attempt_index = $3`;

const CORE = `
  SELECT attempt_index, lifecycle_phase, policy FROM ff_exec_core WHERE partition_key = $1 AND execution_id = $2`;

const COMPLETION = `
  SELECT partition_key, execution_id, flow_id, 'expired' AS outcome, NULL AS namespace, NULL AS instance_tag,
         $3::bigint AS occurred_at_ms
  FROM ff_exec_core WHERE partition_key = $1 AND execution_id = $2`;

const FILTER = `
  SELECT raw_fields->>'namespace' AS ns, raw_fields->'tags' AS tags FROM ff_exec_core
  WHERE partition_key = $1 AND execution_id = $2`;

/** The columns that the transitions of the established machine set. */
const STATE = `
  SELECT lifecycle_phase, ownership_state, eligibility_state, attempt_state, public_state, attempt_index, terminal_at_ms,
         raw_fields->>'last_failure_message' AS last_failure_message
  FROM ff_exec_core WHERE partition_key = $1 AND execution_id = $2`;

const ATTEMPTS = `
  SELECT attempt_index, outcome, lease_epoch, lease_expires_at_ms, terminal_at_ms, worker_instance_id FROM ff_attempt
  WHERE partition_key = $1 AND execution_id = $2 ORDER BY attempt_index`;

async function rowsOf(text: string, id: ExecutionId, ...more: unknown[]): Promise<Record<string, unknown>[]> {
  const { partition, uuid } = parseExecutionId(id);
  return (await bench.database.query(text, [partition, uuid, ...more])).rows;
}

/** Attempts due by the engine's clock. */
async function due(id: ExecutionId): Promise<Record<string, unknown>[]> {
  const { partition, uuid } = parseExecutionId(id);
  const now = await bench.database.query<{ ms: number }>('SELECT ff_now_ms() AS ms');
  const found = await bench.database.query(DUE, [partition, now.rows[0]!.ms, 1_000]);
  return found.rows.filter((row) => row['execution_id'] === uuid);
}

const RETRYING = { retry: { maxRetries: 2, backoff: { type: 'fixed', delay: 5_000 } } } as const;
/** A partition without executions. */
const NO_PARTITION = 256;
const TAGS = { 'cairn.instance_id': 'i-1', 'app.tenant': 'acme' };

describe('labels', () => {
  it('of an event are the namespace and the tag of its execution', async () => {
    const id = await bench.submit({ namespace: 'team-a', tags: TAGS });
    const { partition, uuid } = parseExecutionId(id);
    const found = await bench.database.query(EVENT_LABELS, [uuid, null, 'acquired', 5, partition, uuid]);
    expect(found.rows).toMatchObject([{ namespace: 'team-a', instance_tag: 'i-1' }]);
  });

  it('of an event about an unknown execution are nulls', async () => {
    const nobody = '018f0000-0000-7000-8000-000000000001';
    const found = await bench.database.query(EVENT_LABELS, [nobody, null, 'acquired', 5, 1, nobody]);
    expect(found.rows).toMatchObject([{ namespace: null, instance_tag: null }]);
  });

  it('without tags are the namespace and null', async () => {
    const id = await bench.submit();
    const { partition, uuid } = parseExecutionId(id);
    const found = await bench.database.query(EVENT_LABELS, [uuid, null, 'acquired', 5, partition, uuid]);
    expect(found.rows).toMatchObject([{ namespace: 'default', instance_tag: null }]);
  });

  it('for filters are the namespace and all tags', async () => {
    const id = await bench.submit({ namespace: 'team-b', tags: TAGS });
    expect(await rowsOf(FILTER, id)).toEqual([{ ns: 'team-b', tags: TAGS }]);
    expect(await rowsOf(FILTER, await bench.submit())).toEqual([{ ns: 'default', tags: {} }]);
  });

  it('are not found in another partition', async () => {
    const { partition, uuid } = parseExecutionId(await bench.submit());
    const elsewhere = `{fp:${(partition + 1) % 256}}:${uuid}` as ExecutionId;
    for (const text of [FILTER, CORE, STATE, ATTEMPTS]) expect(await rowsOf(text, elsewhere)).toEqual([]);
  });
});

describe('the policy', () => {
  it('has the number of retries at retry_policy.max_retries', async () => {
    const [core] = await rowsOf(CORE, await bench.submit({ policy: RETRYING }));
    expect(core).toMatchObject({ attempt_index: 0, lifecycle_phase: 'runnable' });
    expect(core!['policy']).toMatchObject({ retry_policy: { max_retries: 2 } });
  });

  it('without retries omits the number', async () => {
    const [core] = await rowsOf(CORE, await bench.submit());
    expect(core!['policy']).not.toHaveProperty('retry_policy');
  });
});

/** Follows one execution through a retry, a lost lease and its outcome, one station after the other. */
describe('through the whole life of an execution', () => {
  const kind = newKind();
  let id: ExecutionId;
  let claim: Claim;

  it('submitted: it waits, and has no attempt', async () => {
    id = await bench.submit({ kind, policy: RETRYING });
    expect(await rowsOf(STATE, id)).toEqual([
      {
        lifecycle_phase: 'runnable',
        ownership_state: 'unowned',
        eligibility_state: 'eligible_now',
        attempt_state: 'pending_first_attempt',
        public_state: 'waiting',
        attempt_index: 0,
        terminal_at_ms: null,
        last_failure_message: null,
      },
    ]);
    expect(await rowsOf(ATTEMPTS, id)).toEqual([]);
    expect(await rowsOf(LEASE_END, id, 0)).toEqual([]);
  });

  it('claimed: its attempt has the expiry of the lease, and is not due', async () => {
    claim = await bench.claimOne(kind);
    const { lease } = await bench.snapshot(id);
    expect(await rowsOf(LEASE_END, id, 0)).toEqual([{ lease_expires_at_ms: lease!.expiresAtMs }]);
    expect(await rowsOf(CORE, id)).toMatchObject([{ attempt_index: 0, lifecycle_phase: 'active' }]);
    expect(await rowsOf(STATE, id)).toMatchObject([
      { ownership_state: 'leased', attempt_state: 'running_attempt', public_state: 'active' },
    ]);
    expect(await rowsOf(ATTEMPTS, id)).toMatchObject([
      {
        attempt_index: 0,
        outcome: null,
        lease_epoch: 1,
        terminal_at_ms: null,
        worker_instance_id: 'worker-1',
      },
    ]);
    expect(await due(id)).toEqual([]);
  });

  it('renewed: the expiry of the lease moved', async () => {
    const [before] = await rowsOf(LEASE_END, id, 0);
    await bench.database.moveClock(1_000);
    await bench.port.renew([claim], LEASE_MS);
    const [after] = await rowsOf(LEASE_END, id, 0);
    expect(Number(after!['lease_expires_at_ms'])).toBeGreaterThan(Number(before!['lease_expires_at_ms']));
  });

  it('released: the attempt is open and has no lease', async () => {
    await bench.port.release(claim);
    expect(await rowsOf(LEASE_END, id, 0)).toEqual([{ lease_expires_at_ms: null }]);
    expect(await rowsOf(ATTEMPTS, id)).toMatchObject([{ attempt_index: 0, outcome: null }]);
    expect(await rowsOf(STATE, id)).toMatchObject([{ attempt_state: 'attempt_interrupted' }]);
  });

  it('resumed: still one attempt, with the new lease', async () => {
    claim = await bench.claimOne(kind);
    expect(await rowsOf(ATTEMPTS, id)).toMatchObject([{ attempt_index: 0, lease_epoch: 2, outcome: null }]);
  });

  it('failed: the attempt is finished, the next one waits for its time', async () => {
    await bench.port.fail(claim, { message: 'ouch' });
    const [state] = await rowsOf(STATE, id);
    expect(state).toMatchObject({
      lifecycle_phase: 'runnable',
      eligibility_state: 'not_eligible_until_time',
      attempt_state: 'pending_retry_attempt',
      public_state: 'delayed',
      attempt_index: 1,
      last_failure_message: 'ouch',
    });
    const [attempt] = await rowsOf(ATTEMPTS, id);
    expect(attempt).toMatchObject({ outcome: 'failed', lease_expires_at_ms: null });
    expect(attempt!['terminal_at_ms']).toEqual(expect.any(Number));
  });

  it('past its lease and not noticed: the attempt is due', async () => {
    await bench.database.moveClock(5_000);
    await bench.port.fireTimers();
    claim = await bench.claimOne(kind);
    await bench.database.moveClock(LEASE_MS + 1);
    expect(await due(id)).toEqual([{ execution_id: parseExecutionId(id).uuid, attempt_index: 1 }]);
  });

  it('lost with a retry left: interrupted, eligible now, the next attempt pending', async () => {
    await bench.reconcile();
    expect(await rowsOf(STATE, id)).toEqual([
      {
        lifecycle_phase: 'runnable',
        ownership_state: 'unowned',
        eligibility_state: 'eligible_now',
        attempt_state: 'pending_retry_attempt',
        public_state: 'waiting',
        attempt_index: 2,
        terminal_at_ms: null,
        last_failure_message: 'attempt_timeout',
      },
    ]);
    expect((await rowsOf(ATTEMPTS, id))[1]).toMatchObject({
      attempt_index: 1,
      outcome: 'interrupted',
      lease_expires_at_ms: null,
      terminal_at_ms: expect.any(Number),
    });
    expect(await due(id)).toEqual([]);
  });

  it('lost with none left: terminal, and the completion names no flow', async () => {
    claim = await bench.claimOne(kind);
    await bench.loseLeases();
    const [state] = await rowsOf(STATE, id);
    expect(state).toMatchObject({
      lifecycle_phase: 'terminal',
      ownership_state: 'unowned',
      eligibility_state: 'not_applicable',
      attempt_state: 'attempt_terminal',
      public_state: 'expired',
      attempt_index: 2,
      last_failure_message: 'attempt_timeout',
    });
    const attempts = await rowsOf(ATTEMPTS, id);
    expect(attempts.map(({ outcome }) => outcome)).toEqual(['failed', 'interrupted', 'interrupted']);
    expect(attempts[2]!['terminal_at_ms']).toBe(state!['terminal_at_ms']);
    const { partition, uuid } = parseExecutionId(id);
    expect(await rowsOf(COMPLETION, id, 99)).toEqual([
      {
        partition_key: partition,
        execution_id: uuid,
        flow_id: null,
        outcome: 'expired',
        namespace: null,
        instance_tag: null,
        occurred_at_ms: 99,
      },
    ]);
    expect(await due(id)).toEqual([]);
  });
});

describe('an execution that finished otherwise', () => {
  it('shows its result and payload as JSON strings', async () => {
    const claim = await bench.running({ payload: { a: 'ü' } });
    await bench.port.complete(claim, [1, 'ö']);
    const [row] = await rowsOf(
      `SELECT convert_from(payload, 'UTF8')::jsonb AS payload, convert_from(result, 'UTF8')::jsonb AS result, public_state
       FROM ff_exec_core WHERE partition_key = $1 AND execution_id = $2`,
      claim.executionId,
    );
    expect(row).toEqual({ payload: { a: 'ü' }, result: [1, 'ö'], public_state: 'completed' });
    expect(await rowsOf(ATTEMPTS, claim.executionId)).toMatchObject([{ outcome: 'success' }]);
  });

  it('shows who cancelled it and why', async () => {
    const { executionId } = await bench.running();
    await bench.engine.cancel(executionId, { reason: 'enough', by: 'ann' });
    const [row] = await rowsOf(
      `SELECT cancellation_reason, cancelled_by, public_state FROM ff_exec_core
       WHERE partition_key = $1 AND execution_id = $2`,
      executionId,
    );
    expect(row).toEqual({ cancellation_reason: 'enough', cancelled_by: 'ann', public_state: 'cancelled' });
    expect(await rowsOf(ATTEMPTS, executionId)).toMatchObject([{ outcome: 'cancelled' }]);
  });

  it('is never due, however long ago its lease would have lapsed', async () => {
    const claims = [await bench.running(), await bench.running(), await bench.running()];
    await bench.port.complete(claims[0]!);
    await bench.port.fail(claims[1]!, { message: 'ouch' });
    await bench.engine.cancel(claims[2]!.executionId, { reason: 'enough' });
    await bench.database.moveClock(LEASE_MS * 2);
    for (const { executionId } of claims) expect(await due(executionId)).toEqual([]);
  });
});

describe('the events of an execution', () => {
  const LEASE_EVENTS = `
    SELECT event_id, execution_id, lease_id, event_type, occurred_at_ms, partition_key, namespace, instance_tag
    FROM ff_lease_event WHERE partition_key = $1 AND event_id > $2 ORDER BY event_id ASC LIMIT $3`;
  const LAST = 'SELECT COALESCE(MAX(event_id), 0) AS last FROM ff_lease_event WHERE partition_key = $1';
  const COMPLETIONS = `
    SELECT partition_key, event_id, execution_id, flow_id, outcome, namespace, instance_tag, occurred_at_ms,
           committed_at_ms, dispatched_at_ms
    FROM ff_completion_event WHERE partition_key = $1 AND execution_id = $2 ORDER BY event_id`;
  /** A partition that nothing else in this file uses. */
  const executionId = '{fp:200}:018f0000-0000-7000-8000-0000000000c8';
  const { partition, uuid } = parseExecutionId(executionId);
  const kind = newKind();
  const claims: Claim[] = [];
  let told: FeedEvent[];

  beforeAll(async () => {
    expect((await bench.database.query(LAST, [partition])).rows).toEqual([{ last: 0 }]);
    const feed = await bench.engine.events.subscribe({ filter: { executionId } });
    await bench.submit({ kind, executionId, namespace: 'team-c', tags: TAGS });
    claims.push(await bench.claimOne(kind));
    await bench.port.renew(claims, LEASE_MS);
    await bench.engine.executions.revokeLease(executionId, { reason: 'slow' });
    claims.push(await bench.claimOne(kind));
    await bench.port.complete(claims[1]!);
    told = await take(feed, 5);
    await feed.close();
  });

  const leaseRow = (index: number, type: string, claim: Claim) => ({
    event_id: Number(told[index]!.position),
    execution_id: uuid,
    lease_id: claim.leaseId,
    event_type: type,
    occurred_at_ms: told[index]!.occurredAtMs,
    partition_key: partition,
    namespace: 'team-c',
    instance_tag: 'i-1',
  });

  it('about its leases are found by partition and position, a page at a time', async () => {
    const [first, second] = claims as [Claim, Claim];
    const rows = [
      leaseRow(0, 'acquired', first),
      leaseRow(1, 'renewed', first),
      leaseRow(2, 'revoked', first),
      leaseRow(3, 'reclaimed', second),
    ];
    expect((await bench.database.query(LEASE_EVENTS, [partition, 0, 100])).rows).toEqual(rows);
    const page = await bench.database.query(LEASE_EVENTS, [partition, rows[1]!.event_id, 1]);
    expect(page.rows).toEqual([rows[2]]);
    expect((await bench.database.query(LEASE_EVENTS, [NO_PARTITION, 0, 100])).rows).toEqual([]);
  });

  it('have a last position, which is where a reader from now starts', async () => {
    const last = await bench.database.query(LAST, [partition]);
    expect(last.rows).toEqual([{ last: Number(told[3]!.position) }]);
    expect((await bench.database.query(LAST, [NO_PARTITION])).rows).toEqual([{ last: 0 }]);
  });

  it('include a completion, at its position in the same order', async () => {
    const [, , , , end] = told;
    expect(await rowsOf(COMPLETIONS, executionId)).toEqual([
      {
        partition_key: partition,
        event_id: Number(end!.position),
        execution_id: uuid,
        flow_id: null,
        outcome: 'success',
        namespace: 'team-c',
        instance_tag: 'i-1',
        occurred_at_ms: end!.occurredAtMs,
        committed_at_ms: expect.any(Number),
        dispatched_at_ms: null,
      },
    ]);
  });

  it('are not shown before they have a position', async () => {
    const claim = await bench.running();
    const count = 'SELECT count(*) AS n FROM ff_lease_event WHERE partition_key = $1 AND execution_id = $2';
    expect(await rowsOf(count, claim.executionId)).toEqual([{ n: 0 }]);
    await (await bench.engine.events.subscribe()).close();
    expect(await rowsOf(count, claim.executionId)).toEqual([{ n: 1 }]);
  });
});
