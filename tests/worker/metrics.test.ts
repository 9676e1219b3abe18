/**
 * What a worker reports about itself: its counters by task, how long handlers ran, and its health; and that a process
 * that was blocked past its lease writes nothing under it.
 */
import { describe, expect, test } from 'vitest';
import type { Connection } from '../../src/connect/connection.ts';
import type { TaskContext } from '../../src/define/task-context.ts';
import { TaskAborted, TaskFailed } from '../../src/worker/task.ts';
import { AGAIN, latch, newKind, resultOf, SOON, stall, useCrew } from './crew.ts';
import { workerPort } from '../../src/connect/port.ts';
import type { WorkerPort } from '../../src/contract/protocol.ts';

const crew = useCrew();

describe('metrics', () => {
  test('count runs in total and by task, and name no task without a handler', async () => {
    const engine = await crew.connect();
    const [good, bad] = [newKind(), newKind()];
    const worker = crew.work(engine, {
      concurrency: 4,
      handlers: {
        [good]: () => 'fine',
        [bad]: ({ attemptIndex }) => {
          throw new TaskFailed('no', attemptIndex === 0 ? {} : { retry: 'never' });
        },
      },
    });
    await engine.executions.submit([{ kind: good }, { kind: good }, { kind: bad, policy: AGAIN }]);
    await expect.poll(() => [worker.stats.completed, worker.stats.failed], SOON).toEqual([2, 1]);
    const metrics = worker.metrics();
    expect(metrics).toMatchObject({
      ...worker.stats,
      slots: 4,
      handling: 0,
      running: 0,
      heldLeases: 0,
    });
    expect(Object.keys(metrics.kinds).toSorted()).toEqual([good, bad].toSorted());
    expect(metrics.kinds[good]).toMatchObject({ claimed: 2, completed: 2, failed: 0, retryScheduled: 0 });
    expect(metrics.kinds[bad]).toMatchObject({ claimed: 2, completed: 0, failed: 1, retryScheduled: 1 });
    expect(metrics.durations.count).toBe(4);
    expect(metrics.kinds[good]!.durations.count).toBe(2);
  });

  test('show current runs, and are plain data', async () => {
    const engine = await crew.connect();
    const kind = newKind();
    const finish = latch();
    const worker = crew.work(engine, { concurrency: 3, handlers: { [kind]: () => finish.opened } });
    await engine.executions.submit([{ kind }, { kind }]);
    await expect
      .poll(() => worker.metrics(), SOON)
      .toMatchObject({ slots: 3, handling: 2, running: 2, heldLeases: 2, completed: 0 });
    const before = worker.metrics();
    finish.open();
    await expect
      .poll(() => worker.metrics(), SOON)
      .toMatchObject({ running: 0, heldLeases: 0, completed: 2 });
    expect(before).toMatchObject({ completed: 0, running: 2 });
    expect(JSON.parse(JSON.stringify(before))).toEqual(before);
  });

  test('put each run into the bucket of its duration', async () => {
    const engine = await crew.connect();
    const kind = newKind();
    const worker = crew.work(engine, { handlers: { [kind]: ({ payload }) => stall(payload) } });
    await engine.executions.submit([0, 60].map((payload) => ({ kind, payload })));
    await expect.poll(() => worker.stats.completed, SOON).toBe(2);
    const { boundsMs, counts, count, sumMs } = worker.metrics().durations;
    expect(counts).toHaveLength(boundsMs.length + 1);
    expect(counts.reduce((sum, each) => sum + each, 0)).toBe(count);
    expect(sumMs).toBeGreaterThanOrEqual(60);
    const upTo50 = counts.slice(0, boundsMs.indexOf(50) + 1).reduce((sum, each) => sum + each, 0);
    expect(upTo50).toBeLessThan(2);
  });
});

describe('health', () => {
  test('distinguishes running, stopping and stopped', async () => {
    const engine = await crew.connect();
    const kind = newKind();
    const finish = latch();
    const worker = crew.work(engine, { handlers: { [kind]: () => finish.opened } });
    expect(worker.health().oldestRenewalAgoMs).toBeNull();
    await engine.executions.submit({ kind });
    await expect.poll(() => worker.running, SOON).toBe(1);
    const health = worker.health();
    expect(health).toMatchObject({ state: 'running', claiming: { outcome: 'ok' } });
    expect(health.lastClaimAgoMs).toBeGreaterThanOrEqual(0);
    expect(health.oldestRenewalAgoMs).toBeGreaterThanOrEqual(0);
    const stopped = worker.stop();
    expect(worker.health().state).toBe('stopping');
    finish.open();
    await stopped;
    expect(worker.health()).toMatchObject({ state: 'stopped', oldestRenewalAgoMs: null });
  });

  test('reports that claims fail, and that they succeed again', async () => {
    const engine = await crew.connect();
    const kind = newKind();
    const worker = crew.work(engine, { poll: 20, handlers: { [kind]: () => 'done' } });
    await engine.executions.submit({ kind });
    await expect.poll(() => worker.stats.completed, SOON).toBe(1);
    await crew.database.query('ALTER TABLE ff_ready RENAME TO ff_ready_away');
    await expect
      .poll(() => worker.health().claiming, SOON)
      .toEqual({ outcome: 'failing', forMs: expect.any(Number) })
      .finally(() => crew.database.query('ALTER TABLE ff_ready_away RENAME TO ff_ready'));
    await expect.poll(() => worker.health().claiming, SOON).toEqual({ outcome: 'ok' });
  });

  test('shows the growing age of a lease that is not renewed', async () => {
    const engine = await crew.connect();
    const kind = newKind();
    const finish = latch();
    let away = true;
    const flaky: WorkerPort = {
      ...workerPort(engine),
      renew: (leases, leaseMs) => {
        if (away) return Promise.reject(new Error('away'));
        return workerPort(engine).renew(leases, leaseMs);
      },
    };
    const worker = crew.work(flaky, { handlers: { [kind]: () => finish.opened } });
    const renewedAt = () => performance.now() - worker.health().oldestRenewalAgoMs!;
    await engine.executions.submit({ kind });
    await expect.poll(() => worker.running, SOON).toBe(1);
    const failing = performance.now();
    await crew.ringAllWorkers();
    await expect.poll(() => worker.stats.renewErrors, SOON).toBeGreaterThan(0);
    expect(renewedAt()).toBeLessThan(failing);
    away = false;
    await crew.ringAllWorkers();
    await expect.poll(renewedAt, SOON).toBeGreaterThan(failing);
    finish.open();
    await expect.poll(() => worker.stats.completed, SOON).toBe(1);
  });

  test('shows that the event loop was blocked', async () => {
    const engine = await crew.connect();
    const worker = crew.work(engine, { handlers: { [newKind()]: () => undefined } });
    await expect.poll(() => worker.health().lastClaimAgoMs, SOON).not.toBeNull();
    // Later ticks are measured from the first one.
    await expect
      .poll(() => {
        stall(150);
        return worker.health().eventLoopDelay.maxMs;
      }, SOON)
      .toBeGreaterThan(100);
    const { p99Ms, maxMs } = worker.health().eventLoopDelay;
    expect(p99Ms).toBeLessThanOrEqual(maxMs);
  });
});

describe('a handler that blocks the event loop past its lease', () => {
  const LEASE_MS = 300;

  /** Counts writes under a lease. */
  function counting(connection: Connection): { port: WorkerPort; sent: string[] } {
    const port = workerPort(connection);
    const sent: string[] = [];
    const noted =
      <Args extends unknown[], Answer>(name: string, call: (...args: Args) => Answer) =>
      (...args: Args): Answer => {
        sent.push(name);
        return call(...args);
      };
    return {
      sent,
      port: {
        ...port,
        complete: noted('complete', port.complete),
        fail: noted('fail', port.fail),
        release: noted('release', port.release),
        recordStep: noted('recordStep', port.recordStep),
        reportProgress: noted('reportProgress', port.reportProgress),
      },
    };
  }

  test('sends no result: the run is counted as lost, and the next worker’s result stands', async () => {
    const first = await crew.connect();
    const kind = newKind();
    const { port, sent } = counting(first);
    const stalled = crew.work(port, {
      lease: LEASE_MS,
      concurrency: 1,
      handlers: {
        [kind]: () => {
          stall(LEASE_MS * 2);
          return 'too late';
        },
      },
    });
    const { executionId } = await first.executions.submit({ kind, policy: AGAIN });
    await expect.poll(() => stalled.stats.lost, SOON).toBe(1);
    await stalled.stop();
    const second = await crew.connect({ reconcile: 'on' });
    crew.work(second, { poll: 20, handlers: { [kind]: ({ reclaimed }) => ({ reclaimed }) } });
    await expect
      .poll(() => first.executions.result(executionId), SOON)
      .toEqual({ outcome: 'success', result: { reclaimed: true } });
    expect(sent).toEqual([]);
    expect(stalled.stats).toMatchObject({ completed: 0, failed: 0, retryScheduled: 0 });
  });

  test('can write nothing afterwards, also when another worker has long finished the work', async () => {
    const [first, second] = [await crew.connect(), await crew.connect({ reconcile: 'on' })];
    const kind = newKind();
    const { port, sent } = counting(first);
    const seen: unknown[] = [];
    const work = async (ctx: TaskContext): Promise<string> => {
      if (ctx.attemptIndex > 0) return 'second';
      stall(LEASE_MS * 2);
      await expect.poll(() => resultOf(first, ctx.executionId), SOON).toBe('success');
      seen.push(ctx.signal.reason);
      ctx.progress({ percent: 99 });
      await ctx.step('afterwards', () => 'never kept').catch((error: unknown) => seen.push(error));
      return 'first';
    };
    const stalled = crew.work(port, {
      lease: LEASE_MS,
      concurrency: 1,
      handlers: { [kind]: work },
    });
    const { executionId } = await first.executions.submit({ kind, policy: AGAIN });
    await expect.poll(() => stalled.running, SOON).toBe(1);
    crew.work(second, { poll: 20, handlers: { [kind]: work } });
    await expect.poll(() => stalled.stats.lost, SOON).toBe(1);
    expect(seen).toHaveLength(2);
    for (const reason of seen) expect(reason).toBeInstanceOf(TaskAborted);
    expect(sent).toEqual([]);
    expect(await first.executions.result(executionId)).toEqual({ outcome: 'success', result: 'second' });
    expect(await first.executions.describe(executionId)).toMatchObject({ stepCount: 0, progress: null });
  });
});
