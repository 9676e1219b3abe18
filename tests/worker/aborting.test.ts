/**
 * Work that is taken away while it runs: the reason of the handler's AbortSignal says why, and whatever the handler
 * does afterwards changes nothing.
 */
import { describe, expect, test } from 'vitest';
import type { Connection } from '../../src/connect/connection.ts';
import type { ExecutionId } from '../../src/contract/ids.ts';
import type { TaskContext } from '../../src/define/task-context.ts';
import { TaskAborted } from '../../src/worker/task.ts';
import type { Worker } from '../../src/worker/options.ts';
import { AGAIN, deaf, latch, newKind, resultOf, SOON, useCrew } from './crew.ts';
import { workerPort } from '../../src/connect/port.ts';
import type { WorkerPort } from '../../src/contract/protocol.ts';

const crew = useCrew();

interface Running {
  engine: Connection;
  worker: Worker;
  kind: string;
  executionId: ExecutionId;
  task: TaskContext;
  /** Lets the handler return, whatever its AbortSignal says. */
  finish(): void;
}

/** One execution on a worker whose handler ignores its AbortSignal. */
async function oneRunning(options: { leaseMs?: number; hearing?: 'deaf' } = {}): Promise<Running> {
  const engine = await crew.connect();
  const kind = newKind();
  const [started, finished] = [latch<TaskContext>(), latch()];
  const isDeaf = options.hearing === 'deaf';
  const worker = crew.work(isDeaf ? deaf(engine) : engine, {
    lease: options.leaseMs ?? 60_000,
    concurrency: 1,
    ...(isDeaf ? { poll: 20 } : {}),
    handlers: {
      [kind]: async (task) => {
        started.open(task);
        await finished.opened;
        return 'too late';
      },
    },
  });
  const { executionId } = await engine.executions.submit({ kind, policy: AGAIN });
  const task = await started.opened;
  return { engine, worker, kind, executionId, task, finish: () => finished.open() };
}

function abortCode(task: TaskContext): string | undefined {
  const reason = task.signal.reason as unknown;
  return reason instanceof TaskAborted ? reason.code : undefined;
}

/** The handler returns, and its result is discarded. */
async function finishInVain({ worker, finish }: Running): Promise<void> {
  finish();
  await expect.poll(() => worker.stats.lost, SOON).toBe(1);
  expect(worker.stats).toMatchObject({ completed: 0, failed: 0, retryScheduled: 0 });
  await expect.poll(() => worker.running, SOON).toBe(0);
}

describe('the AbortSignal of a task gives the reason why the worker lost it', () => {
  test('cancelled, also by another process', async () => {
    const run = await oneRunning();
    const elsewhere = await crew.connect({ listen: 'off' });
    const cancelled = await elsewhere.cancel(run.executionId, { reason: 'not needed', by: 'ann' });
    expect(cancelled.outcome).toBe('cancelled');
    await expect.poll(() => abortCode(run.task), SOON).toBe('cancelled');
    await finishInVain(run);
    expect(await run.engine.executions.result(run.executionId)).toEqual({
      outcome: 'cancelled',
      message: 'not needed',
      category: 'cancelled',
      by: 'ann',
    });
    expect(await crew.eventsOf(run.executionId)).toEqual([
      'lease.acquired',
      'lease.revoked',
      'completion.cancelled',
    ]);
  });

  test('revoked, and the next worker runs the next attempt', async () => {
    const run = await oneRunning();
    const elsewhere = await crew.connect();
    const revoked = await elsewhere.executions.revokeLease(run.executionId, { reason: 'stuck' });
    expect(revoked.outcome).toBe('revoked');
    await expect.poll(() => abortCode(run.task), SOON).toBe('revoked');
    crew.work(elsewhere, { handlers: { [run.kind]: (task) => [task.attemptIndex, task.reclaimed] } });
    await expect
      .poll(() => run.engine.executions.result(run.executionId), SOON)
      .toEqual({ outcome: 'success', result: [1, true] });
    await finishInVain(run);
  });

  test('lease_lost, when the lease lapsed', async () => {
    const run = await oneRunning({ leaseMs: 3_000 });
    await crew.connect({ reconcile: 'on' });
    await crew.database.moveClock(3_001);
    await expect.poll(() => abortCode(run.task), SOON).toBe('lease_lost');
    await expect
      .poll(() => crew.eventsOf(run.executionId), SOON)
      .toEqual(expect.arrayContaining(['lease.expired']));
    run.finish();
    await expect.poll(() => run.worker.stats.lost, SOON).toBeGreaterThan(0);
    expect(await crew.eventsOf(run.executionId)).not.toContain('completion.failed');
  });

  test('shutdown, when the worker stops before the handler finishes', async () => {
    const run = await oneRunning();
    await run.worker.stop({ deadline: 0 });
    expect(abortCode(run.task)).toBe('shutdown');
    run.finish();
    expect(await run.engine.executions.describe(run.executionId)).toMatchObject({
      state: 'waiting',
      attemptIndex: 0,
    });
  });
});

describe('a worker that was not notified still cannot write', () => {
  test('after a cancel', async () => {
    const run = await oneRunning({ hearing: 'deaf' });
    await run.engine.cancel(run.executionId, { reason: 'no' });
    await finishInVain(run);
    expect(abortCode(run.task)).toBe('cancelled');
    expect(await resultOf(run.engine, run.executionId)).toBe('cancelled');
  });

  test('after a revocation, when only the next owner decides', async () => {
    const run = await oneRunning({ hearing: 'deaf' });
    await run.engine.executions.revokeLease(run.executionId, { reason: 'stuck' });
    const next = crew.work(run.engine, { handlers: { [run.kind]: () => 'by the next' } });
    await expect.poll(() => next.stats.completed, SOON).toBe(1);
    await finishInVain(run);
    expect(abortCode(run.task)).toBe('revoked');
    expect(await run.engine.executions.result(run.executionId)).toEqual({
      outcome: 'success',
      result: 'by the next',
    });
  });

  test('after its lease expired, before that was noticed', async () => {
    const run = await oneRunning({ hearing: 'deaf' });
    await crew.database.moveClock(60_001);
    await finishInVain(run);
    expect(abortCode(run.task)).toBe('lease_lost');
    expect(await crew.eventsOf(run.executionId)).toEqual(['lease.acquired']);
  });

  test('after its lease expired and another worker took over', async () => {
    const run = await oneRunning({ hearing: 'deaf' });
    const rescuer = await crew.connect({ reconcile: 'on' });
    const next = crew.work(rescuer, {
      handlers: { [run.kind]: (task) => [task.attemptIndex, task.reclaimed] },
    });
    await crew.database.moveClock(60_001);
    await expect.poll(() => next.stats.completed, SOON).toBe(1);
    await finishInVain(run);
    expect(await run.engine.executions.result(run.executionId)).toEqual({
      outcome: 'success',
      result: [1, true],
    });
    expect(await crew.eventsOf(run.executionId)).toEqual([
      'lease.acquired',
      'lease.expired',
      'lease.reclaimed',
      'completion.success',
    ]);
  });
});

test('a worker that was frozen past its lease writes nothing, even while the database would still accept it', async () => {
  const engine = await crew.connect();
  const kind = newKind();
  let written = 0;
  const counting = {
    ...workerPort(engine),
    complete: (...args: Parameters<WorkerPort['complete']>) => {
      written += 1;
      return workerPort(engine).complete(...args);
    },
  };
  const worker = crew.work(counting, {
    lease: 400,
    handlers: {
      [kind]: () => {
        // Nothing else in this process runs meanwhile, as if it had been stopped.
        const until = performance.now() + 400;
        while (performance.now() < until);
        return 'too late';
      },
    },
  });
  await crew.database.moveClock(-1_000_000);
  const { executionId } = await engine.executions.submit({ kind });
  await expect.poll(() => worker.stats.lost, SOON).toBe(1);
  await crew.database.moveClock(1_000_000);
  expect(written).toBe(0);
  expect(await crew.eventsOf(executionId)).not.toContain('completion.success');
});

test('a handler that takes longer than its lease keeps it while the worker renews', async () => {
  const run = await oneRunning({ leaseMs: 30_000 });
  await crew.connect({ reconcile: 'on' });
  const renewals = async () =>
    (await crew.eventsOf(run.executionId)).filter((event) => event === 'lease.renewed').length;
  for (let renewed = 1; renewed <= 4; renewed += 1) {
    await crew.database.moveClock(20_000);
    await crew.ringAllWorkers();
    await expect.poll(renewals, SOON).toBe(renewed);
  }
  expect(run.task.signal.aborted).toBe(false);
  run.finish();
  await expect.poll(() => resultOf(run.engine, run.executionId), SOON).toBe('success');
  expect(await run.engine.executions.describe(run.executionId)).toMatchObject({
    attemptIndex: 0,
    reclaimCount: 0,
  });
});
