/**
 * Sleeps outlive their worker and their server: a sleep ends at its original time, by the database's clock, and what
 * was done before it is not done again.
 */
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { connect } from '../../../src/connect/connect.ts';
import type { Connection } from '../../../src/connect/connection.ts';
import type { ExecutionId } from '../../../src/contract/ids.ts';
import { startEmbedded, type EmbeddedServer } from '../../../src/embedded/index.ts';
import { createTestDatabase, type TestDatabase } from '../../../src/testing/test-database.ts';
import { AGAIN, newKind, SOON } from '../../worker/crew.ts';
import { faultsOf } from '../checker.ts';
import { createEffects, effectsOf, LEASE_MS, startTaskProcess, type TaskProcess } from './task-processes.ts';
import { workerPort } from '../../../src/connect/port.ts';
import { patiently } from '../../setup/patience.ts';

/** Tolerance for what the engine adds to a time: far less than starting over would add. */
const LATER_MS = 60_000;
const LIMIT_MS = patiently(60_000);

let parent: string;
let server: EmbeddedServer;
let database: TestDatabase;
let engine: Connection;

beforeAll(async () => {
  parent = await mkdtemp(join(tmpdir(), 'flowfabric-sleep-'));
  // Run by root, the server drops to another account, which must be able to enter its directory.
  await chmod(parent, 0o755);
  server = await startEmbedded({ dataDir: join(parent, 'postgres') });
  database = await createTestDatabase({ serverUrl: server.url });
  await createEffects(database);
  engine = await connect({ databaseUrl: database.url, reconcile: 'off' });
}, LIMIT_MS);

afterAll(async () => {
  await engine.close();
  await database.drop();
  await server.stop('immediate');
  await rm(parent, { recursive: true, force: true, maxRetries: 3 });
}, LIMIT_MS);

async function submitSleeper(duration: string): Promise<{ kind: string; executionId: ExecutionId }> {
  const kind = newKind();
  const { executionId } = await engine.executions.submit({ kind, payload: duration, policy: AGAIN });
  return { kind, executionId };
}

function sleepers(kinds: readonly string[], name: string, hold = false): TaskProcess {
  return startTaskProcess({ url: database.url, mode: 'sleeper', kinds, name, hold });
}

async function paused(executionId: ExecutionId): Promise<void> {
  await expect.poll(async () => (await engine.executions.describe(executionId))?.state, SOON).toBe('delayed');
}

/** The original end of the sleep, as soon as it has begun. */
async function dueOf(executionId: ExecutionId): Promise<number> {
  await expect
    .poll(async () => (await engine.executions.listSteps(executionId)).map(({ kind }) => kind), SOON)
    .toContain('sleep');
  const found = await database.query<{ due: number }>(
    `SELECT (value #>> '{}')::bigint AS due FROM ff_step
     WHERE execution_id = split_part($1, ':', 3)::uuid AND kind = 'sleep'`,
    [executionId],
  );
  return found.rows[0]!.due;
}

async function moveClockTo(ms: number): Promise<void> {
  const found = await database.query<{ now: number }>('SELECT ff_now_ms() AS now');
  await database.moveClock(ms - found.rows[0]!.now);
}

async function checkRested(kind: string, executionId: ExecutionId): Promise<void> {
  expect(await engine.executions.wait(executionId)).toEqual({ outcome: 'success', result: 'rested' });
  const steps = (await effectsOf(database, executionId)).map(({ step }) => step);
  expect(steps).toEqual(['before', 'after']);
  expect(await faultsOf(database.url, kind)).toEqual([]);
}

test('killing a worker while the execution is paused does not change when the sleep ends', async () => {
  const { kind, executionId } = await submitSleeper('2h');
  const doomed = sleepers([kind], 'doomed');
  await paused(executionId);
  await doomed.kill();
  const due = await dueOf(executionId);
  sleepers([kind], 'rescuer');
  await moveClockTo(due - LATER_MS);
  await workerPort(engine).fireTimers();
  expect(await engine.executions.describe(executionId)).toMatchObject({
    state: 'delayed',
    attemptIndex: 0,
  });
  await moveClockTo(due + LATER_MS);
  await checkRested(kind, executionId);
  expect(await dueOf(executionId)).toBe(due);
});

test('after a worker is killed while it sleeps and works, the next attempt sleeps only for the rest', async () => {
  const { kind, executionId } = await submitSleeper('3h');
  const doomed = sleepers([kind], 'doomed', true);
  await expect.poll(() => doomed.started(), SOON).toEqual([executionId]);
  const due = await dueOf(executionId);
  await doomed.kill();
  await database.moveClock(LEASE_MS + LATER_MS);
  sleepers([kind], 'rescuer');
  await paused(executionId);
  const { eligibleAtMs, attemptIndex } = (await engine.executions.describe(executionId))!;
  expect(attemptIndex).toBe(1);
  // A slightly early wake-up waits for the rest.
  expect(eligibleAtMs).toBeGreaterThan(due - LATER_MS);
  expect(eligibleAtMs).toBeLessThan(due + LATER_MS);
  await moveClockTo(due + LATER_MS);
  await checkRested(kind, executionId);
  expect(await dueOf(executionId)).toBe(due);
});

test('a Postgres crash during sleeps does not change when they end', { timeout: LIMIT_MS }, async () => {
  const [resting, working] = [await submitSleeper('2h'), await submitSleeper('2h')];
  const dues: number[] = [];
  sleepers([resting.kind], 'resting');
  const busy = sleepers([working.kind], 'working', true);
  await paused(resting.executionId);
  await expect.poll(() => busy.started(), SOON).toEqual([working.executionId]);
  for (const { executionId } of [resting, working]) dues.push(await dueOf(executionId));
  await server.stop('immediate');
  server = await startEmbedded({ dataDir: server.dataDir });
  for (const [index, { executionId }] of [resting, working].entries()) {
    expect(await dueOf(executionId)).toBe(dues[index]);
  }
  busy.go();
  await paused(working.executionId);
  expect((await engine.executions.describe(working.executionId))?.eligibleAtMs).toBeLessThan(
    dues[1]! + LATER_MS,
  );
  await moveClockTo(Math.min(...dues) - LATER_MS);
  await workerPort(engine).fireTimers();
  expect(await engine.executions.describe(resting.executionId)).toMatchObject({ state: 'delayed' });
  await moveClockTo(Math.max(...dues) + LATER_MS);
  for (const { kind, executionId } of [resting, working]) await checkRested(kind, executionId);
  expect((await engine.executions.describe(resting.executionId))?.attemptIndex).toBe(0);
});
