/**
 * Time limits as a worker and its handlers see them: the abort with `deadline`, the result that is too late, the retry
 * that runs, and no timers left over. Workers here notice short limits themselves; long ones by a moved clock.
 */
import { describe, expect, test } from 'vitest';
import type { ExecutionPolicy } from '../../src/contract/policy.ts';
import type { ExecutionId } from '../../src/contract/ids.ts';
import { task } from '../../src/define/task.ts';
import { handle } from '../../src/define/handlers.ts';
import { TaskAborted } from '../../src/worker/task.ts';
import type { TaskContext } from '../../src/define/task-context.ts';
import { AGAIN, deaf, latch, newKind, resultOf, SOON, useCrew, uuidOf } from './crew.ts';
import { workerPort } from '../../src/connect/port.ts';

const crew = useCrew();
const SHORT_MS = 150;
const MINUTE_MS = 60_000;
/** Longer than any move of the clock here. */
const LEASE_MS = 86_400_000;

function codeOf({ signal }: TaskContext): string | undefined {
  const reason = signal.reason as unknown;
  return reason instanceof TaskAborted ? reason.code : undefined;
}

async function timersOf(...ids: ExecutionId[]): Promise<string[]> {
  const found = await crew.database.query<{ kind: string }>(
    'SELECT kind::text FROM ff_timer WHERE execution_id = ANY ($1)',
    [ids.map(uuidOf)],
  );
  return found.rows.map(({ kind }) => kind);
}

/** Resolves when the AbortSignal has fired; for a handler that stops when it is aborted. */
const untilAborted = ({ signal }: TaskContext): Promise<never> =>
  new Promise((_, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason as Error));
  });

describe('a handler that hangs past the limit of its attempt', () => {
  test('is aborted with `deadline`; the retry runs beside it, and its late result is refused', async () => {
    const engine = await crew.connect();
    const kind = newKind();
    const [hanging, finish] = [latch<TaskContext>(), latch()];
    const worker = crew.work(engine, {
      concurrency: 2,
      handlers: {
        [kind]: async (ctx) => {
          if (ctx.attemptIndex > 0) return 'in time';
          hanging.open(ctx);
          await finish.opened;
          return 'too late';
        },
      },
    });
    const policy = { ...AGAIN, attemptTimeout: SHORT_MS };
    const { executionId } = await engine.executions.submit({ kind, policy });
    const ctx = await hanging.opened;
    // Only the worker itself checks the clock here.
    await expect.poll(() => codeOf(ctx), SOON).toBe('deadline');
    expect(await engine.executions.wait(executionId)).toEqual({ outcome: 'success', result: 'in time' });
    finish.open();
    await expect.poll(() => worker.stats.lost, SOON).toBe(1);
    expect(await engine.executions.result(executionId)).toEqual({ outcome: 'success', result: 'in time' });
    expect(await engine.executions.describe(executionId)).toMatchObject({
      attemptIndex: 1,
      retryCount: 1,
      attempts: [{ outcome: 'expired', failureCategory: 'timeout' }, { outcome: 'success' }],
    });
    expect(await crew.eventsOf(executionId)).toEqual([
      'lease.acquired',
      'lease.revoked',
      'lease.acquired',
      'completion.success',
    ]);
    expect(await timersOf(executionId)).toEqual([]);
  });

  test('and stops when it is aborted makes room for the retry, and fails terminally when no retry is left', async () => {
    const engine = await crew.connect();
    const kind = newKind();
    const attempts: number[] = [];
    crew.work(engine, {
      concurrency: 2,
      handlers: {
        [kind]: (ctx) => {
          attempts.push(ctx.attemptIndex);
          return untilAborted(ctx);
        },
      },
    });
    const retry = { maxRetries: 1, backoff: { type: 'fixed', delay: 1 } } as const;
    const { executionId } = await engine.executions.submit({
      kind,
      policy: { retry, attemptTimeout: SHORT_MS },
    });
    expect(await engine.executions.wait(executionId)).toEqual({
      outcome: 'expired',
      message: 'attempt_time_limit',
      category: 'timeout',
      by: 'engine',
    });
    expect(attempts).toEqual([0, 1]);
    expect(await timersOf(executionId)).toEqual([]);
  });

  test('in the only slot of its worker is still aborted, by that worker alone', async () => {
    const engine = await crew.connect();
    const kind = newKind();
    const hanging = latch<TaskContext>();
    crew.work(engine, {
      concurrency: 1,
      handlers: {
        [kind]: (ctx) => {
          hanging.open(ctx);
          return untilAborted(ctx);
        },
      },
    });
    await engine.executions.submit({ kind, policy: { attemptTimeout: SHORT_MS } });
    const ctx = await hanging.opened;
    await expect.poll(() => codeOf(ctx), SOON).toBe('deadline');
  });

  test('in the only slot of its worker is aborted by another process’s reconciler', async () => {
    const engine = await crew.connect({ reconcile: 'on' });
    const kind = newKind();
    crew.work(engine, {
      concurrency: 1,
      handlers: { [kind]: (ctx) => ctx.attemptIndex || untilAborted(ctx) },
    });
    const { executionId } = await engine.executions.submit({
      kind,
      policy: { ...AGAIN, attemptTimeout: SHORT_MS },
    });
    expect(await engine.executions.wait(executionId)).toEqual({ outcome: 'success', result: 1 });
  });

  test('is also aborted when another process noticed', async () => {
    const engine = await crew.connect();
    const kind = newKind();
    const hanging = latch<TaskContext>();
    crew.work(engine, {
      lease: LEASE_MS,
      handlers: {
        [kind]: (ctx) => {
          hanging.open(ctx);
          return untilAborted(ctx);
        },
      },
    });
    const { executionId } = await engine.executions.submit({ kind, policy: { attemptTimeout: MINUTE_MS } });
    const ctx = await hanging.opened;
    const elsewhere = await crew.connect({ listen: 'off' });
    await crew.database.moveClock(MINUTE_MS);
    expect(await workerPort(elsewhere).fireTimers()).toBeGreaterThan(0);
    await expect.poll(() => codeOf(ctx), SOON).toBe('deadline');
    expect(await resultOf(engine, executionId)).toBe('expired');
  });

  test('that was not aborted still cannot write', async () => {
    const engine = await crew.connect();
    const kind = newKind();
    const [hanging, finish] = [latch<TaskContext>(), latch()];
    const worker = crew.work(deaf(engine), {
      lease: LEASE_MS,
      poll: 20,
      handlers: {
        [kind]: async (ctx) => {
          hanging.open(ctx);
          await finish.opened;
          return 'too late';
        },
      },
    });
    const { executionId } = await engine.executions.submit({ kind, policy: { attemptTimeout: MINUTE_MS } });
    const ctx = await hanging.opened;
    await crew.database.moveClock(MINUTE_MS);
    await expect.poll(() => resultOf(engine, executionId), SOON).toBe('expired');
    finish.open();
    await expect.poll(() => worker.stats.lost, SOON).toBe(1);
    expect(codeOf(ctx)).toBe('deadline');
    expect(await resultOf(engine, executionId)).toBe('expired');
  });

  test('does nothing more through its context: a step started after the limit does not run', async () => {
    const engine = await crew.connect();
    const slow = task<null>(newKind());
    const [begun, go, told] = [latch<TaskContext>(), latch(), latch<string>()];
    let ran = 0;
    crew.work(engine, {
      lease: LEASE_MS,
      handlers: [
        handle(slow, async (_, ctx) => {
          begun.open(ctx);
          await go.opened;
          const late = ctx.step('late', () => {
            ran += 1;
          });
          await late.catch((error: { code: string }) => told.open(error.code));
        }),
      ],
    });
    const run = await engine.submit(slow, null, { policy: { attemptTimeout: MINUTE_MS } });
    const ctx = await begun.opened;
    await crew.database.moveClock(MINUTE_MS);
    await workerPort(engine).fireTimers();
    expect(await run.wait()).toMatchObject({ outcome: 'expired' });
    await expect.poll(() => codeOf(ctx), SOON).toBe('deadline');
    go.open();
    expect(await told.opened).toBe('deadline');
    expect(ran).toBe(0);
    expect(await engine.executions.listSteps(run.executionId)).toEqual([]);
  });
});

describe('the deadline of an execution', () => {
  const policy: ExecutionPolicy = { deadline: MINUTE_MS, ...AGAIN };
  const OVER = { outcome: 'expired', message: 'execution_deadline', category: 'timeout', by: 'engine' };

  test('ends a task that sleeps: it wakes neither for the deadline nor at the end of its sleep', async () => {
    const engine = await crew.connect();
    const sleeper = task<null>(newKind());
    let runs = 0;
    const worker = crew.work(engine, {
      handlers: [
        handle(sleeper, async (_, ctx) => {
          runs += 1;
          await ctx.sleep('long', '1h');
          return 'slept';
        }),
      ],
    });
    const run = await engine.submit(sleeper, null, { policy });
    await expect.poll(() => worker.stats.paused, SOON).toBe(1);
    await crew.database.moveClock(MINUTE_MS);
    await workerPort(engine).fireTimers();
    expect(await run.wait()).toEqual(OVER);
    await crew.database.moveClock(3_600_000);
    await workerPort(engine).fireTimers();
    expect(await timersOf(run.executionId)).toEqual([]);
    expect(await engine.executions.result(run.executionId)).toEqual(OVER);
    expect(runs).toBe(1);
  });

  test('ends one that is delayed and never started', async () => {
    const engine = await crew.connect();
    const kind = newKind();
    let runs = 0;
    crew.work(engine, {
      handlers: {
        [kind]: () => {
          runs += 1;
        },
      },
    });
    const { executionId } = await engine.executions.submit({ kind, policy, delay: 2 * MINUTE_MS });
    await crew.database.moveClock(MINUTE_MS);
    await crew.connect({ reconcile: 'on' });
    await expect.poll(() => engine.executions.result(executionId), SOON).toEqual(OVER);
    await crew.database.moveClock(MINUTE_MS);
    await expect.poll(() => timersOf(executionId), SOON).toEqual([]);
    expect(runs).toBe(0);
    expect(await engine.executions.describe(executionId)).toMatchObject({ startedAtMs: null, attempts: [] });
  });

  test('if short, is enforced by the worker that runs it, without any other process', async () => {
    const engine = await crew.connect();
    const kind = newKind();
    const hanging = latch<TaskContext>();
    crew.work(engine, {
      handlers: {
        [kind]: (ctx) => {
          hanging.open(ctx);
          return untilAborted(ctx);
        },
      },
    });
    // The queue is polled before the execution exists, so that its deadline is news to the worker.
    const { executionId } = await engine.executions.submit({ kind, policy: { deadline: 400 } });
    const ctx = await hanging.opened;
    await expect.poll(() => codeOf(ctx), SOON).toBe('deadline');
    expect(await engine.executions.result(executionId)).toEqual(OVER);
  });

  test('ends a parent that waits for its children, and detached ones continue', async () => {
    const engine = await crew.connect();
    const [parent, child] = [task<null>(newKind()), task<null>(newKind(), { lane: 'later' })];
    const spawned = latch<string>();
    const worker = crew.work(engine, {
      lanes: ['default'],
      handlers: [
        handle(parent, async (_, ctx) => {
          const one = await ctx.spawn(child, null, { detached: true });
          spawned.open(one.executionId);
          return one.result();
        }),
      ],
    });
    const run = await engine.submit(parent, null, { policy });
    const childId = await spawned.opened;
    await expect.poll(() => worker.stats.paused, SOON).toBe(1);
    await crew.database.moveClock(MINUTE_MS);
    await workerPort(engine).fireTimers();
    expect(await run.wait()).toEqual(OVER);
    crew.work(engine, { lanes: ['later'], handlers: [handle(child, () => 'done')] });
    expect(await engine.execution(child, childId).result()).toBe('done');
    // The worker fires timers too: one that it is already firing is skipped here.
    const left = async () => [await workerPort(engine).fireTimers(), await timersOf(run.executionId)].at(1);
    await expect.poll(left, SOON).toEqual([]);
    expect(await engine.executions.result(run.executionId)).toEqual(OVER);
  });
});

test('limits that were kept leave no timer, however the work finished', async () => {
  const engine = await crew.connect();
  const mixed = task<number>(newKind());
  crew.work(engine, {
    handlers: [
      handle(mixed, async (number, ctx) => {
        if (number % 3 === 1 && ctx.attemptIndex === 0) throw new Error('once');
        if (number % 3 === 2) await ctx.sleep('short', { milliseconds: 5 });
        return number;
      }),
    ],
  });
  const policy = { ...AGAIN, attemptTimeout: LEASE_MS, deadline: LEASE_MS };
  const runs = await engine.submitMany(
    mixed,
    Array.from({ length: 30 }, (_, input) => ({ input, policy })),
  );
  expect(await Promise.all(runs.map((run) => run.result()))).toEqual(runs.map((_, index) => index));
  expect(await timersOf(...runs.map(({ executionId }) => executionId))).toEqual([]);
});
