/**
 * The assertions about suspensions: each one rejects the violation it is for, and a whole life of suspensions passes
 * without tripping one. Those about everything else are in assertions.test.ts.
 */
import { randomUUID } from 'node:crypto';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { TestDatabase } from '../../../src/testing/test-database.ts';
import { testDatabase } from '../../setup/database.ts';
import { PARTITION, rawFunctions, type RawFunctions, type RawLease } from '../../setup/raw-functions.ts';

// Only the engine's functions may change the state in this table; these tests change it directly.
const STATE = 'ff_execution';
const MANY = 1_000;
const HOUR_MS = 3_600_000;
const CONDITION = { kind: 'count', n: 1, by: 'signals', waitpoints: ['here'] };

let database: TestDatabase;
let raw: RawFunctions;

beforeAll(async () => {
  database = await testDatabase();
  raw = rawFunctions(database);
});

afterAll(() => database?.drop());

async function suspend({ id, attempt, epoch }: RawLease, wait: object = {}): Promise<string> {
  const waits = [{ name: 'w', key: '', condition: CONDITION, on_timeout: 'fail', ...wait }];
  const waitpoints = [{ id: randomUUID(), name: 'here', step_name: 'w', step_key: '' }];
  const answer = await database.query<{ outcome: string }>(
    `SELECT outcome FROM ff_suspend($1, $2, $3, $4, 'suspend', false, $5, $6, $7, NULL, NULL, NULL)`,
    [id, PARTITION, attempt, epoch, JSON.stringify(waits), JSON.stringify(waitpoints), MANY],
  );
  return answer.rows[0]!.outcome;
}

async function deliver(id: string): Promise<string> {
  const answer = await database.query<{ effect: string }>(
    `SELECT effect FROM ff_deliver_signal($1, $2, NULL, 'here', NULL, NULL, NULL, gen_random_uuid(), 'go', 'user', 'me', '{}', NULL,
       true, $3::integer, $3::integer)`,
    [id, PARTITION, MANY],
  );
  return answer.rows[0]!.effect;
}

async function suspended(wait: object = {}): Promise<string> {
  const lease = await raw.claim(await raw.submit());
  expect(await suspend(lease, wait)).toBe('suspended');
  return lease.id;
}

async function expectRefused(text: string, id: string, message: RegExp): Promise<void> {
  const error: unknown = await database.query(text, [id]).catch((refusal: unknown) => refusal);
  if (!(error instanceof pg.DatabaseError)) throw new Error(`nothing refused: ${text}`);
  expect({ code: error.code, message: error.message }).toEqual({
    code: 'FFA01',
    message: expect.stringMatching(message),
  });
}

describe('a commit is refused', () => {
  it('when a suspended execution has no suspension row', async () => {
    await expectRefused(
      'DELETE FROM ff_suspension WHERE execution_id = $1',
      await suspended(),
      /is suspended without a suspension/,
    );
  });

  it('when an execution that is not suspended has one', async () => {
    const { id } = await raw.claim(await raw.submit());
    await expectRefused(
      `INSERT INTO ff_suspension (execution_id, suspended_at_ms, lease_epoch, attempt_index, partition_key, waits)
       VALUES ($1, 0, 1, 0, ${PARTITION}, '[]')`,
      id,
      /is not suspended and has a suspension/,
    );
  });

  it('when a suspension with a timeout has no timer', async () => {
    await expectRefused(
      `DELETE FROM ff_timer WHERE kind = 'suspension' AND execution_id = $1`,
      await suspended({ timeout_ms: HOUR_MS }),
      /is suspended for a time without a timer for it/,
    );
  });

  it('when it is resumed or suspended without an event', async () => {
    const runnable = `lifecycle_phase = 'runnable', eligibility_state = 'eligible_now', blocking_reason = 'waiting_for_worker'`;
    await expectRefused(
      `UPDATE ${STATE} SET ${runnable}, lease_epoch = lease_epoch + 1 WHERE execution_id = $1`,
      await suspended(),
      /resume owes one signal event resumed of epoch 1/,
    );
    const { id } = await raw.claim(await raw.submit());
    await expectRefused(
      `UPDATE ${STATE} SET lifecycle_phase = 'suspended', ownership_state = 'unowned', attempt_state = 'attempt_interrupted',
         blocking_reason = 'waiting_for_signal' WHERE execution_id = $1`,
      id,
      /suspend owes one lease event released of epoch 1/,
    );
  });

  it('when a suspended execution is claimed without being resumed', async () => {
    await expectRefused(
      `UPDATE ${STATE} SET lifecycle_phase = 'active', ownership_state = 'leased', blocking_reason = 'none',
         attempt_state = 'running_attempt', lease_epoch = lease_epoch + 1 WHERE execution_id = $1`,
      await suspended(),
      /no transition leads from suspended\/.* to active\//,
    );
  });
});

describe('an execution', () => {
  it('suspends, is signalled, resumes in the same attempt and completes', async () => {
    const id = await suspended({ timeout_ms: HOUR_MS });
    expect(await deliver(id)).toBe('resumed');
    const lease = await raw.claim(id);
    expect(lease.attempt).toBe(0);
    expect(await raw.complete(lease)).toBe('completed');
    expect(await raw.eventsOf(id)).toEqual([
      'lease.acquired',
      'lease.released',
      'signal.suspended',
      'signal.delivered',
      'signal.resumed',
      'lease.acquired',
      'completion.success',
    ]);
  });

  it.each([
    ['fail', 'execution_timed_out', ['signal.timed_out', 'completion.failed']],
    ['cancel', 'execution_timed_out', ['signal.timed_out', 'completion.cancelled']],
    ['expire', 'execution_timed_out', ['signal.timed_out', 'completion.expired']],
    ['resume', 'fired', ['signal.resumed']],
    ['escalate', 'delayed', ['signal.escalated']],
  ])('times out, with %s', async (on_timeout, outcome, events) => {
    const id = await suspended({ timeout_ms: HOUR_MS, on_timeout });
    await database.moveClock(HOUR_MS);
    expect(await raw.fire(id)).toBe(outcome);
    expect((await raw.eventsOf(id)).slice(3)).toEqual(events);
  });

  it('is signalled, waits for its resume delay, and is cancelled', async () => {
    const id = await suspended({ resume_delay_ms: HOUR_MS });
    expect(await deliver(id)).toBe('resumed');
    expect(await raw.cancel(id)).toBe('cancelled');
    const waiting = await suspended();
    expect(await raw.cancel(waiting)).toBe('cancelled');
  });
});
