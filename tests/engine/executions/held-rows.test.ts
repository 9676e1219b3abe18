/**
 * Transactions that stay open over an execution's rows: an idle one of `ctx.tx` is terminated by the server, and a
 * caller that acts for a person learns which session blocks the row instead of waiting.
 */
import type pg from 'pg';
import { afterEach, describe, expect, it } from 'vitest';
import { connect, migrate, type SqlExecutor } from '../../../src/index.ts';
import type { Claim } from '../../../src/protocol/index.ts';
import { LIMITS } from '../../../src/contract/limits.ts';
import { newKind, useBench, WAIT } from '../../conformance/open.ts';
import { uuidOf } from '../../worker/crew.ts';
import { useRoles } from '../database/roles.ts';
import { workerPort } from '../../../src/connect/port.ts';

const SHORT_LEASE_MS = 2_000;
const bench = useBench();
const roles = useRoles();
const clients: pg.Client[] = [];

afterEach(async () => {
  await Promise.all(clients.splice(0).map((client) => client.end()));
});

interface Session {
  client: pg.Client;
  executor: SqlExecutor;
  pid: number;
  /** Resolves when the server terminates it. */
  ended: Promise<Error>;
}

/** A session inside a transaction. */
async function begin(): Promise<Session> {
  const client = await bench.database.connect();
  clients.push(client);
  const ended = new Promise<Error>((resolve) => client.once('error', resolve));
  await client.query('BEGIN');
  const { rows } = await client.query<{ pid: number }>('SELECT pg_backend_pid() AS pid');
  return { client, executor: (text, params) => client.query(text, params), pid: rows[0]!.pid, ended };
}

/** A session that has recorded a step and does not commit. */
async function recordedBy(claim: Claim): Promise<Session> {
  const session = await begin();
  const { executor } = session;
  expect(await bench.port.recordStep(claim, { name: 'a' }, { executor })).toMatchObject({
    outcome: 'recorded',
  });
  return session;
}

async function runningFor(leaseMs: number): Promise<Claim> {
  const kind = newKind();
  await bench.submit({ kind, policy: { retry: { maxRetries: 1 } } });
  return bench.claimOne(kind, { leaseMs });
}

/** A session that locks the execution itself. */
async function lockedBy(executionId: string): Promise<Session> {
  const session = await begin();
  await session.client.query('SELECT FROM ff_execution WHERE execution_id = $1 FOR UPDATE', [
    uuidOf(executionId as Claim['executionId']),
  ]);
  return session;
}

describe('a transaction that has recorded a step', () => {
  it('and idles is terminated by the server, and its lease lapses', async () => {
    const claim = await runningFor(SHORT_LEASE_MS);
    const session = await recordedBy(claim);
    await bench.database.moveClock(SHORT_LEASE_MS);
    expect(await session.ended).toMatchObject({ code: '25P03' });
    await bench.reconcile();
    expect(await bench.snapshot(claim.executionId)).toMatchObject({
      state: 'waiting',
      attemptIndex: 1,
    });
    expect(await bench.engine.executions.listSteps(claim.executionId)).toEqual([]);
  });

  it('and idles keeps no deadline from firing', async () => {
    const kind = newKind();
    await bench.submit({ kind, policy: { deadline: 60_000 } });
    const claim = await bench.claimOne(kind, { leaseMs: SHORT_LEASE_MS });
    const session = await recordedBy(claim);
    await bench.database.moveClock(60_000);
    await session.ended;
    await bench.port.fireTimers();
    expect(await bench.engine.executions.result(claim.executionId)).toMatchObject({ outcome: 'expired' });
  });

  it.each([
    [600_000, '0', '10s'],
    [8_000, '0', '4s'],
    [100, '0', '1s'],
    [600_000, '3s', '3s'],
    [8_000, '1min', '4s'],
  ])('under a lease of %i ms, where %s was set, may idle for %s', async (leaseMs, before, during) => {
    const claim = await runningFor(leaseMs);
    const { client, executor } = await begin();
    await client.query(`SET idle_in_transaction_session_timeout = '${before}'`);
    await bench.port.recordStep(claim, { name: 'a' }, { executor });
    expect(await limitOf(client)).toBe(during);
    await client.query('COMMIT');
    expect(await limitOf(client)).toBe(before);
  });
});

async function limitOf(client: pg.Client): Promise<string> {
  const { rows } = await client.query('SHOW idle_in_transaction_session_timeout');
  return (rows[0] as { idle_in_transaction_session_timeout: string }).idle_in_transaction_session_timeout;
}

describe('a row that a session locks', () => {
  it('is reported to callers that act for a person, with the session', async () => {
    const { engine } = bench;
    const claim = await bench.running();
    const { executionId } = claim;
    await workerPort(engine).createWaitpoint(claim, { name: 'approval' });
    const { pid } = await lockedBy(executionId);
    const verbs = {
      cancel: engine.cancel(executionId, { reason: 'test' }),
      revokeLease: engine.executions.revokeLease(executionId, { reason: 'test' }),
      changePriority: engine.executions.changePriority(executionId, { priority: 1 }),
      setTags: engine.executions.setTags(executionId, { set: { a: 'b' } }),
      replay: engine.executions.replay(executionId, { reason: 'test' }),
      approve: engine.waitpoints.approve(executionId, 'approval', { by: 'ada' }),
    };
    const told = await Promise.allSettled(Object.values(verbs));
    expect(told.map(({ status }) => status)).toEqual(Object.keys(verbs).map(() => 'rejected'));
    for (const { reason } of told as PromiseRejectedResult[])
      expect(reason).toMatchObject({
        name: 'EngineError',
        code: 'contention',
        message: expect.stringMatching(new RegExp(`session ${pid}, open for \\d+s, idle in its transaction`)),
      });
  });

  it('by the step of an uncommitted transaction is reported as such', async () => {
    const claim = await runningFor(600_000);
    const { client, pid } = await recordedBy(claim);
    // As in the time before the server terminates it.
    await client.query('SET LOCAL idle_in_transaction_session_timeout = 0');
    await client.query('/* ff_record_steps */ SELECT 1');
    await expect(bench.engine.cancel(claim.executionId, { reason: 'test' })).rejects.toMatchObject({
      code: 'contention',
      message: expect.stringMatching(
        new RegExp(`session ${pid}, .* idle after it recorded a step of ctx\\.tx`),
      ),
    });
  });

  it('by several sessions is reported with each', async () => {
    const claim = await runningFor(600_000);
    const pids: number[] = [];
    for (const session of [await begin(), await begin()]) {
      pids.push(session.pid);
      await session.client.query('SELECT FROM ff_execution WHERE execution_id = $1 FOR KEY SHARE', [
        uuidOf(claim.executionId),
      ]);
    }
    const error = await bench.engine.executions
      .revokeLease(claim.executionId, { reason: 'test' })
      .catch(String);
    for (const pid of pids) expect(error).toContain(`session ${pid}, `);
  });

  it('and that itself waits is reported with the session at the head of the line', async () => {
    const claim = await runningFor(600_000);
    const { client, pid } = await begin();
    await client.query('SELECT FROM ff_execution WHERE execution_id = $1 FOR KEY SHARE', [
      uuidOf(claim.executionId),
    ]);
    const completing = bench.port.complete(claim);
    const waiting = `SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%ff_complete%'
      AND datname = current_database()`;
    await expect.poll(async () => (await bench.database.query(waiting)).rows.length, WAIT).toBe(1);
    await expect(
      bench.engine.executions.setTags(claim.executionId, { set: { a: 'b' } }),
    ).rejects.toMatchObject({
      message: expect.stringContaining(`session ${pid}, `),
    });
    await client.query('ROLLBACK');
    expect(await completing).toMatchObject({ outcome: 'completed' });
  });

  it('is reported by explain once it has been locked for long', async () => {
    const { executionId } = await bench.running();
    const { client, pid } = await lockedBy(executionId);
    const holding = async () => {
      const explained = await bench.engine.executions.explain(executionId);
      return explained.outcome === 'explained' ? explained.holding : null;
    };
    await expect.poll(holding, WAIT).toMatchObject({
      gate: 'held',
      facts: { sessions: [{ pid, doing: 'idle', ageMs: expect.any(Number) }] },
    });
    await client.query('ROLLBACK');
    expect(await holding()).toMatchObject({ gate: 'running' });
  });
});

it('functions wait for locks as long as their errors state', async () => {
  const { rows } = await bench.database.query(
    `SELECT proname AS name, substring(setting FROM '=(.*)')::interval = $1::bigint * interval '1 ms' AS same
     FROM pg_proc, unnest(proconfig) setting
     WHERE pronamespace = $2::regnamespace AND setting LIKE 'lock\\_timeout=%'`,
    [LIMITS.heldWaitMs, bench.database.schema],
  );
  expect(rows).toContainEqual({ name: 'ff_submit', same: true });
  expect(rows.filter(({ same }) => same !== true)).toEqual([]);
});

it('a session that the role may not inspect is reported by its pid', async () => {
  const role = await roles.create();
  await migrate({ databaseUrl: roles.database.url, grantTo: role.name });
  await using engine = await connect({ databaseUrl: role.url, reconcile: 'off', listen: 'off' });
  const { executionId } = await engine.executions.submit({ kind: newKind() });
  const client = await roles.database.connect();
  await client.query('BEGIN');
  const { rows } = await client.query<{ pid: number }>(
    'SELECT pg_backend_pid() AS pid FROM ff_execution FOR UPDATE',
  );
  await expect(engine.cancel(executionId, { reason: 'test' })).rejects.toMatchObject({
    code: 'contention',
    message: expect.stringContaining(`session ${rows[0]!.pid}, whose transaction this role may not see.`),
  });
  expect(await engine.executions.explain(executionId)).toMatchObject({
    holding: { gate: 'held', facts: { sessions: [{ pid: rows[0]!.pid, ageMs: null, doing: null }] } },
  });
  await client.query('ROLLBACK');
});
