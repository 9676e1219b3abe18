/**
 * The assertions that guard every other database test: each one rejects the violation it is for, and the engine's own
 * functions pass through a whole life without tripping one.
 */
import { randomUUID } from 'node:crypto';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { TestDatabase } from '../../../src/testing/test-database.ts';
import { testDatabase } from '../../setup/database.ts';
import { leaseArrays, PARTITION, rawFunctions, type RawFunctions } from '../../setup/raw-functions.ts';

const HOUR_MS = 3_600_000;
const RETRYING = {
  retry_policy: { max_retries: 5, backoff: { type: 'fixed', delay_ms: HOUR_MS } },
};

// Only the engine's functions may change the state in this table; these tests change it directly.
const STATE = 'ff_execution';

let database: TestDatabase;
let client: pg.Client;
let raw: RawFunctions;

beforeAll(async () => {
  database = await testDatabase();
  client = await database.connect();
  raw = rawFunctions(database);
});

afterAll(() => database?.drop());

/** The error of a statement; deferred assertions raise it at the commit. */
async function refusalOf(text: string, params: unknown[]): Promise<{ code: string; message: string }> {
  const error: unknown = await database.query(text, params).catch((refusal: unknown) => refusal);
  if (!(error instanceof pg.DatabaseError)) throw new Error(`nothing refused: ${text}`);
  return { code: error.code ?? '', message: error.message };
}

async function expectRefused(id: string, set: string, message: RegExp): Promise<void> {
  const refusal = await refusalOf(`UPDATE ${STATE} SET ${set} WHERE execution_id = $1`, [id]);
  expect(refusal).toEqual({ code: 'FFA01', message: expect.stringMatching(message) });
  expect(refusal.message).toContain(id);
}

const COMPLETED = `lifecycle_phase = 'terminal', ownership_state = 'unowned', terminal_outcome = 'success',
  attempt_state = 'attempt_terminal'`;
const RUNNING = `lifecycle_phase = 'active', ownership_state = 'leased', eligibility_state = 'not_applicable',
  blocking_reason = 'none', attempt_state = 'running_attempt', lease_epoch = lease_epoch + 1`;
const WAITING = `lifecycle_phase = 'runnable', ownership_state = 'unowned', eligibility_state = 'eligible_now',
  blocking_reason = 'waiting_for_worker', terminal_outcome = 'none'`;
const CANCELLED_UNSTARTED = `lifecycle_phase = 'terminal', eligibility_state = 'not_applicable',
  blocking_reason = 'none', terminal_outcome = 'cancelled', lease_epoch = lease_epoch + 1`;

describe('a change of state', () => {
  it('is refused when no transition leads there', async () => {
    const id = await raw.submit();
    await expectRefused(
      id,
      `eligibility_state = 'not_applicable', blocking_reason = 'none', ${COMPLETED}`,
      /no transition leads from runnable\/unowned\/eligible_now\/.* to terminal\//,
    );
  });

  it('is refused when it re-opens a finished execution', async () => {
    const id = await raw.submit();
    await raw.complete(await raw.claim(id));
    await expectRefused(id, `${WAITING}, attempt_state = 'pending_retry_attempt'`, /it had ended/);
  });

  it('is refused when the lease epoch goes down', async () => {
    const id = await raw.submit();
    await raw.claim(id);
    await expectRefused(id, 'lease_epoch = lease_epoch - 1', /the lease epoch went down from 1 to 0/);
  });

  it('is refused when a counter changes by another amount than in the transition', async () => {
    const id = await raw.submit();
    await expectRefused(
      id,
      `${RUNNING}, attempt_index = 1`,
      /moved by \{1,1,0,0\}, legal are: claim \{1,0,0,0\}/,
    );
  });

  it('is refused when a counter changes and the state does not', async () => {
    const id = await raw.submit();
    for (const counter of ['lease_epoch', 'attempt_index', 'retry_count', 'reclaim_count']) {
      await expectRefused(id, `${counter} = ${counter} + 1`, /legal are: change_priority \{0,0,0,0\}/);
    }
  });

  it('is allowed for columns outside the state', async () => {
    const id = await raw.submit();
    await raw.claim(id);
    await database.query(`UPDATE ${STATE} SET changed_at_ms = changed_at_ms + 1 WHERE execution_id = $1`, [
      id,
    ]);
  });

  it('is refused when an execution is created as anything but submitted', async () => {
    const id = await raw.submit();
    const copied = `INSERT INTO ff_execution SELECT (jsonb_populate_record(e, jsonb_build_object(
      'execution_id', $2::uuid) || $3)).* FROM ff_execution e WHERE execution_id = $1`;
    const running = {
      lifecycle_phase: 'active',
      ownership_state: 'leased',
      eligibility_state: 'not_applicable',
      blocking_reason: 'none',
      attempt_state: 'running_attempt',
    };
    for (const [change, message] of [
      [running, /no transition leads from nothing to active/],
      [{ lease_epoch: 3 }, /moved by \{3,0,0,0\}, legal are: submit/],
    ] as const) {
      const refusal = await refusalOf(copied, [id, randomUUID(), change]);
      expect(refusal).toEqual({ code: 'FFA01', message: expect.stringMatching(message) });
    }
  });
});

describe('a commit', () => {
  it('is refused without the completion event', async () => {
    await expectRefused(
      await raw.submit(),
      CANCELLED_UNSTARTED,
      /cancel_unstarted owes one completion event cancelled/,
    );
  });

  it('is refused without the events that an execution asks for', async () => {
    const id = await raw.submit();
    const copied = `INSERT INTO ff_execution SELECT (jsonb_populate_record(e, jsonb_build_object(
      'execution_id', $2::uuid, 'traits', 16))).* FROM ff_execution e WHERE execution_id = $1`;
    expect(await refusalOf(copied, [id, randomUUID()])).toEqual({
      code: 'FFA01',
      message: expect.stringMatching(/submit owes 1 events submitted, which was not written/),
    });
  });

  it('is refused without the event of a lease that was granted', async () => {
    await expectRefused(await raw.submit(), RUNNING, /claim owes one lease event acquired of epoch 1/);
  });

  it('is refused without the event of a lease that ended', async () => {
    const id = await raw.submit();
    await raw.claim(id);
    await expectRefused(
      id,
      `${WAITING}, attempt_state = 'attempt_interrupted'`,
      /release owes one lease event released of epoch 1/,
    );
  });

  it('is refused when the events were written by an earlier transaction', async () => {
    const id = await raw.submit();
    const lease = await raw.claim(id);
    await client.query('BEGIN');
    await client.query('SET LOCAL session_replication_role = replica');
    await client.query(
      `UPDATE ${STATE} SET ${WAITING}, attempt_state = 'pending_first_attempt', lease_epoch = 0,
         claim_no = NULL, lease_expires_at_ms = NULL WHERE execution_id = $1`,
      [lease.id],
    );
    await client.query('COMMIT');
    expect(await raw.eventsOf(id)).toEqual(['lease.acquired']);
    await expectRefused(id, RUNNING, /claim owes one lease event acquired of epoch 1/);
  });

  it('is refused when an event was written twice', async () => {
    const id = await raw.submit();
    await client.query('BEGIN');
    await client.query(`SELECT * FROM ff_cancel($1, $2, 'why', 'me')`, [[id], [PARTITION]]);
    await client.query(
      `CREATE TEMP TABLE copy ON COMMIT DROP AS SELECT * FROM ff_event_pack WHERE execution_id = $1`,
      [id],
    );
    const log = 'ff_event_pack';
    await client.query(`INSERT INTO ${log} OVERRIDING SYSTEM VALUE SELECT (jsonb_populate_record(
      c, jsonb_build_object('ev_id', nextval(pg_get_serial_sequence('ff_event_pack', 'ev_id'))))).* FROM copy c`);
    await expect(client.query('COMMIT')).rejects.toMatchObject({ code: 'FFA01' });
    expect(await raw.eventsOf(id)).toEqual([]);
  });

  it.each([
    ['a running execution has no lease', `UPDATE ${STATE} SET claim_no = NULL`, /is active without a lease/],
    [
      'a claim is removed that still has a lease',
      'DELETE FROM ff_grant USING ff_execution e WHERE ff_grant.claim_no = e.claim_no AND e.execution_id = $1 --',
      /is active without a lease/,
    ],
    [
      'a lease never lapses',
      `UPDATE ${STATE} SET lease_expires_at_ms = NULL`,
      /has a lease that never lapses/,
    ],
    [
      'an outcome row names an attempt that is still open',
      `INSERT INTO ff_attempt_history (execution_id, lease_epoch, ended_at_ms, attempt_index, terminal_outcome, partition_key,
         namespace)
       SELECT execution_id, lease_epoch, 0, attempt_index, 'failed', partition_key, namespace FROM ff_execution`,
      /has an outcome row/,
    ],
  ])('is refused when %s', async (_, text, message) => {
    const id = await raw.submit();
    await raw.claim(id);
    const refusal = await refusalOf(`${text} WHERE execution_id = $1`, [id]);
    expect(refusal).toEqual({ code: 'FFA01', message: expect.stringMatching(message) });
  });

  it('is refused when a lease is left on an execution that does not run', async () => {
    await raw.claim(await raw.submit());
    const left = `UPDATE ${STATE} SET claim_no = (SELECT max(claim_no) FROM ff_grant) WHERE execution_id = $1`;
    const refusal = await refusalOf(left, [await raw.submit()]);
    expect(refusal).toEqual({ code: 'FFA01', message: expect.stringContaining('still has a lease') });
  });

  it('is refused when a finished execution has no outcome row', async () => {
    const id = await raw.submit();
    await raw.cancel(id);
    const refusal = await refusalOf('DELETE FROM ff_attempt_history WHERE execution_id = $1', [id]);
    expect(refusal).toEqual({ code: 'FFA01', message: expect.stringContaining('without an outcome row') });
  });

  it('is refused when claimable work is missing from the queue', async () => {
    const id = await raw.submit();
    const refusal = await refusalOf('DELETE FROM ff_ready WHERE execution_id = $1', [id]);
    expect(refusal).toEqual({ code: 'FFA01', message: expect.stringContaining('without a fresh queue row') });
    await expectRefused(id, 'priority = priority + 1', /without a fresh queue row/);
  });

  it('is refused when work that is not claimable has a fresh queue row', async () => {
    const id = await raw.submit({ delayMs: HOUR_MS });
    await client.query(
      `INSERT INTO ff_ready (execution_id, lease_epoch, ready_at_ms, route_id, priority, attempt_index, partition_key)
       SELECT execution_id, 0, 0, route_id, priority, 0, partition_key FROM ff_execution WHERE execution_id = $1`,
      [id],
    );
    await expectRefused(id, 'changed_at_ms = 0', /is not claimable and has a fresh queue row/);
  });

  it('is refused when a delay has no timer, or one for another time', async () => {
    const id = await raw.submit({ delayMs: HOUR_MS });
    const refusal = await refusalOf('DELETE FROM ff_timer WHERE execution_id = $1', [id]);
    expect(refusal).toEqual({ code: 'FFA01', message: expect.stringContaining('without a timer') });
    await expectRefused(id, 'eligible_at_ms = eligible_at_ms + 1', /without a timer for it/);
  });

  it('is refused when a live timer points to work that waits for no time', async () => {
    const id = await raw.submit();
    await client.query(
      `INSERT INTO ff_timer (due_at_ms, execution_id, lease_epoch, attempt_index, kind, partition_key)
       VALUES (0, $1, 0, 0, 'eligible', $2)`,
      [id, PARTITION],
    );
    await expectRefused(id, 'changed_at_ms = 0', /does not wait for a time and has a live timer/);
  });

  it('leaves nothing of what it refused', async () => {
    const id = await raw.submit();
    await expectRefused(id, CANCELLED_UNSTARTED, /owes/);
    const found = await database.query(
      'SELECT lifecycle_phase::text FROM ff_execution WHERE execution_id = $1',
      [id],
    );
    expect(found.rows).toEqual([{ lifecycle_phase: 'runnable' }]);
    expect(await raw.complete(await raw.claim(id))).toBe('completed');
  });
});

describe('the engine', () => {
  it('submits, claims and completes', async () => {
    const id = await raw.submit();
    expect(await raw.complete(await raw.claim(id))).toBe('completed');
    expect(await raw.eventsOf(id)).toEqual(['lease.acquired', 'completion.success']);
  });

  it('delays, fails, backs off and fails for good', async () => {
    const id = await raw.submit({
      delayMs: HOUR_MS,
      policy: { retry_policy: { ...RETRYING.retry_policy, max_retries: 1 } },
    });
    expect(await raw.fire(id)).toBe('fired');
    expect(await raw.fail(await raw.claim(id))).toBe('retry_scheduled');
    expect(await raw.fire(id)).toBe('fired');
    expect(await raw.fail(await raw.claim(id))).toBe('failed');
    expect(await raw.eventsOf(id)).toEqual([
      'lease.acquired',
      'lease.released',
      'lease.acquired',
      'completion.failed',
    ]);
  });

  it('releases and resumes, even in one transaction', async () => {
    const id = await raw.submit();
    expect(await raw.release(await raw.claim(id))).toBe('released');
    const lease = await raw.claim(id);
    await client.query('BEGIN');
    await client.query('SELECT * FROM ff_release($1, $2, $3, $4)', leaseArrays(lease));
    await client.query(`SELECT * FROM ff_cancel($1, $2, 'why', 'me')`, [[id], [PARTITION]]);
    await client.query('COMMIT');
    expect(await raw.eventsOf(id)).toEqual([
      'lease.acquired',
      'lease.released',
      'lease.acquired',
      'lease.released',
      'completion.cancelled',
    ]);
  });

  it('lapses, reclaims, releases, lapses and expires', async () => {
    const id = await raw.submit({ policy: { retry_policy: { ...RETRYING.retry_policy, max_retries: 1 } } });
    expect(await raw.lapse(await raw.claim(id))).toBe('lapsed');
    expect(await raw.release(await raw.claim(id))).toBe('released');
    expect(await raw.lapse(await raw.claim(id))).toBe('expired');
    expect(await raw.eventsOf(id)).toEqual([
      'lease.acquired',
      'lease.expired',
      'lease.reclaimed',
      'lease.released',
      'lease.acquired',
      'lease.expired',
      'completion.expired',
    ]);
  });

  it('revokes until the reclaims are used up', async () => {
    const id = await raw.submit();
    for (const outcome of ['revoked', 'revoked', 'reclaims_exhausted']) {
      await raw.claim(id);
      expect(await raw.revoke(id)).toBe(outcome);
    }
    expect((await raw.eventsOf(id)).slice(-3)).toEqual([
      'lease.reclaimed',
      'lease.revoked',
      'completion.failed',
    ]);
  });

  it('cancels from every state it can be in, and discards what that leaves behind', async () => {
    const waiting = await raw.submit();
    const delayed = await raw.submit({ delayMs: HOUR_MS });
    const running = await raw.submit();
    await raw.claim(running);
    const backingOff = await raw.submit({ policy: RETRYING });
    await raw.fail(await raw.claim(backingOff));
    const released = await raw.submit();
    await raw.release(await raw.claim(released));
    const reclaimable = await raw.submit({ policy: RETRYING });
    await raw.lapse(await raw.claim(reclaimable));
    for (const id of [waiting, delayed, running, backingOff, released, reclaimable]) {
      expect(await raw.cancel(id)).toBe('cancelled');
      expect((await raw.eventsOf(id)).at(-1)).toBe('completion.cancelled');
    }
    expect(await raw.eventsOf(running)).toContain('lease.revoked');
    expect(await raw.fire(delayed)).toBe('discarded');
    expect(await raw.fire(backingOff)).toBe('discarded');
  });
});
