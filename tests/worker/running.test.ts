/**
 * The normal operation of a worker: what it claims and how much at once, what happens to results, what it counts, and
 * which options it refuses.
 */
import { describe, expect, test } from 'vitest';
import type { ClaimRequest, LeaseRef } from '../../src/contract/protocol.ts';
import { AGAIN, latch, newKind, NEVER_MS, plain, resultOf, SOON, useCrew } from './crew.ts';
import { startWorker } from '../../src/connect/worker.ts';
import type { WorkerOptions } from '../../src/worker/options.ts';
import { task as contract } from '../../src/define/task.ts';
import type { TaskContext } from '../../src/define/task-context.ts';
import { handle } from '../../src/define/handlers.ts';
import { TaskFailed } from '../../src/worker/task.ts';
import { workerPort } from '../../src/connect/port.ts';

const crew = useCrew();

test('handlers run with what was submitted, and what they return is the result', async () => {
  const engine = await crew.connect();
  const kind = newKind();
  const tasks: TaskContext[] = [];
  const aborted: boolean[] = [];
  crew.work(engine, {
    handlers: {
      [kind]: (task) => {
        tasks.push(task);
        aborted.push(task.signal.aborted);
        return { doubled: task.payload.n * 2 };
      },
    },
  });
  const { executionId } = await engine.executions.submit({
    kind,
    payload: { n: 21 },
    namespace: 'shop',
    lane: 'fast',
    tags: { a: 'b' },
  });
  await expect
    .poll(() => engine.executions.result(executionId), SOON)
    .toEqual({
      outcome: 'success',
      result: { doubled: 42 },
    });
  expect(tasks).toHaveLength(1);
  expect(tasks[0]).toMatchObject({
    executionId,
    kind,
    lane: 'fast',
    namespace: 'shop',
    tags: { a: 'b' },
    attemptIndex: 0,
    resumed: false,
    reclaimed: false,
  });
  expect(tasks[0]!.fence).toBe(`${executionId}/0/1`);
  expect(aborted).toEqual([false]);
  // The run is finished: whatever the handler may have left running is aborted.
  await expect.poll(() => tasks[0]!.signal.reason, SOON).toMatchObject({ code: 'ended' });
});

test('a handler that returns nothing completes with null', async () => {
  const engine = await crew.connect();
  const kind = newKind();
  crew.work(engine, { handlers: { [kind]: () => undefined } });
  const { executionId } = await engine.executions.submit({ kind });
  await expect
    .poll(() => engine.executions.result(executionId), SOON)
    .toEqual({ outcome: 'success', result: null });
});

test('the concurrency is never exceeded and fully used', async () => {
  const engine = await crew.connect();
  const kind = newKind();
  const waiting: (() => void)[] = [];
  let most = 0;
  const worker = crew.work(engine, {
    concurrency: 3,
    handlers: {
      [kind]: async () => {
        const door = latch();
        waiting.push(door.open);
        most = Math.max(most, waiting.length);
        await door.opened;
      },
    },
  });
  const submitted = await engine.executions.submit(Array.from({ length: 12 }, () => ({ kind })));
  for (let done = 0; done < submitted.length; done += 1) {
    await expect.poll(() => waiting.length, SOON).toBe(Math.min(3, submitted.length - done));
    waiting.shift()!();
    await expect.poll(() => worker.stats.completed, SOON).toBe(done + 1);
  }
  expect(most).toBe(3);
  for (const { executionId } of submitted) expect(await resultOf(engine, executionId)).toBe('success');
});

test('a worker ignores kinds without a handler, other lanes and work beyond its capabilities', async () => {
  const engine = await crew.connect();
  const [mine, foreign] = [newKind(), newKind()];
  const seen: string[] = [];
  crew.work(engine, {
    handlers: { [mine]: ({ payload }) => void seen.push(payload) },
    lanes: ['mine'],
    capabilities: ['gpu'],
  });
  const left = await engine.executions.submit([
    { kind: foreign, lane: 'mine', payload: 'other kind' },
    { kind: mine, lane: 'theirs', payload: 'other lane' },
    { kind: mine, lane: 'mine', capabilities: ['gpu', 'disk'], payload: 'too much' },
  ]);
  const taken = await engine.executions.submit([
    { kind: mine, lane: 'mine', payload: 'plain' },
    { kind: mine, lane: 'mine', capabilities: ['gpu'], payload: 'gpu' },
  ]);
  for (const { executionId } of taken) {
    await expect.poll(() => resultOf(engine, executionId), SOON).toBe('success');
  }
  expect(seen.toSorted()).toEqual(['gpu', 'plain']);
  for (const { executionId } of left) {
    expect(await engine.executions.describe(executionId)).toMatchObject({
      state: 'waiting',
      leaseEpoch: 0,
    });
  }
});

test('executions submitted in one call start in the order given', async () => {
  const engine = await crew.connect();
  const kind = newKind();
  const order: number[] = [];
  const worker = crew.work(engine, {
    concurrency: 1,
    handlers: { [kind]: ({ payload }) => void order.push(payload) },
  });
  await engine.executions.submit([0, 1, 2, 3, 4].map((payload) => ({ kind, payload })));
  await expect.poll(() => worker.stats.completed, SOON).toBe(5);
  expect(order).toEqual([0, 1, 2, 3, 4]);
});

test('two workers of one process share the work, each on its own leases', async () => {
  const engine = await crew.connect();
  const kind = newKind();
  const done = latch();
  const handlers = { [kind]: () => done.opened };
  const first = crew.work(engine, { handlers, concurrency: 1 });
  const second = crew.work(engine, { handlers, concurrency: 1 });
  const submitted = await engine.executions.submit([{ kind }, { kind }]);
  await expect.poll(() => [first.running, second.running], SOON).toEqual([1, 1]);
  const owners = await Promise.all(
    submitted.map(
      async ({ executionId }) => (await engine.executions.describe(executionId))!.lease!.workerInstanceId,
    ),
  );
  expect(owners.toSorted()).toEqual([first.workerInstanceId, second.workerInstanceId].toSorted());
  done.open();
  await expect.poll(() => [first.stats.completed, second.stats.completed], SOON).toEqual([1, 1]);
});

test('a worker counts the outcomes of its runs', async () => {
  const engine = await crew.connect();
  const kind = newKind();
  const worker = crew.work(engine, {
    workerId: 'counting',
    handlers: {
      [kind]: ({ payload, attemptIndex }) => {
        if (payload === 'fail') throw new TaskFailed('no', { retry: 'never' });
        if (payload === 'retry' && attemptIndex === 0) throw new Error('once more');
      },
    },
  });
  await engine.executions.submit(
    ['ok', 'fail', 'retry'].map((payload) => ({ kind, payload, policy: AGAIN })),
  );
  const expected = { claimed: 4, completed: 2, failed: 1, retryScheduled: 1 };
  await expect
    .poll(() => worker.stats, SOON)
    .toEqual({
      ...expected,
      paused: 0,
      lost: 0,
      released: 0,
      claimErrors: 0,
      renewErrors: 0,
    });
  expect(worker.workerInstanceId).toMatch(/^counting-/);
  expect(worker.running).toBe(0);
});

test('a worker counts claims that fail at the database, and continues when the database is back', async () => {
  const engine = await crew.connect();
  const kind = newKind();
  const worker = crew.work(engine, { poll: 20, handlers: { [kind]: () => 'done' } });
  await engine.executions.submit({ kind });
  await expect.poll(() => worker.stats.completed, SOON).toBe(1);
  await crew.database.query('ALTER TABLE ff_ready RENAME TO ff_ready_away');
  await expect
    .poll(() => worker.stats.claimErrors, SOON)
    .toBeGreaterThan(0)
    .finally(() => crew.database.query('ALTER TABLE ff_ready_away RENAME TO ff_ready'));
  const { executionId } = await engine.executions.submit({ kind });
  await expect.poll(() => resultOf(engine, executionId), SOON).toBe('success');
});

describe('invalid options are refused at once', () => {
  const fine = { handlers: plain({ a: () => undefined }) };
  const cases: [string, string, WorkerOptions][] = [
    ['handlers', 'none', { handlers: [] }],
    ['handlers', 'a table', { handlers: { a: () => undefined } as never }],
    ['handlers', 'not made by handle()', { handlers: [() => undefined] as never }],
    ['handlers', 'two for one task', { handlers: [...fine.handlers, ...fine.handlers] }],
    ['concurrency', 'of a task, none', { handlers: [handle(contract('a'), () => 1, { concurrency: 0 })] }],
    ['concurrency', 'of a lane, a half', { ...fine, lanes: [{ lane: 'x', concurrency: 0.5 }] }],
    ['concurrency', 'none', { ...fine, concurrency: 0 }],
    ['concurrency', 'a half', { ...fine, concurrency: 1.5 }],
    ['concurrency', 'too many', { ...fine, concurrency: 100_001 }],
    ['lease', 'too short', { ...fine, lease: 49 }],
    ['lease', 'not a number', { ...fine, lease: Number.NaN }],
    ['lease', 'too long', { ...fine, lease: 86_400_001 }],
    ['poll', 'none', { ...fine, poll: 0 }],
    ['poll', 'too long', { ...fine, poll: NEVER_MS + 1 }],
    ['lanes', 'an empty name', { ...fine, lanes: [''] }],
    ['lanes', 'not a list', { ...fine, lanes: 'default' as never }],
    ['capabilities', 'a malformed token', { ...fine, capabilities: ['with space'] }],
    ['workerId', 'empty', { ...fine, workerId: '' }],
    ['workerId', 'too long', { ...fine, workerId: 'w'.repeat(257) }],
  ];
  test.each(cases)('%s: %s', async (field, _, options) => {
    const engine = await crew.connect({ listen: 'off' });
    let started: ReturnType<typeof startWorker> | undefined;
    try {
      expect(() => {
        started = startWorker(engine, options);
      }).toThrow(
        expect.objectContaining({
          name: 'EngineError',
          field: expect.stringMatching(field === 'handlers' ? /^(handlers|kinds)/ : new RegExp(`^${field}`)),
        }),
      );
    } finally {
      await started?.stop({ deadline: 0 });
    }
  });
});

test('a worker renews many leases in statements of a thousand', async () => {
  const kind = newKind();
  const engine = await crew.connect();
  const sizes: number[] = [];
  const counted = {
    ...workerPort(engine),
    renew: (leases: readonly LeaseRef[], leaseMs: number) => {
      sizes.push(leases.length);
      return workerPort(engine).renew(leases, leaseMs);
    },
  };
  const held = latch();
  const worker = crew.work(counted, {
    concurrency: 1_500,
    lease: 6_000,
    handlers: { [kind]: () => held.opened },
  });
  await engine.executions.submit(Array.from({ length: 1_500 }, () => ({ kind })));
  await expect.poll(() => sizes.length, SOON).toBeGreaterThanOrEqual(2);
  expect(Math.max(...sizes)).toBeLessThanOrEqual(1_000);
  expect(worker.stats.renewErrors).toBe(0);
  held.open();
});

test('a worker reports why a claim failed, and continues', async () => {
  const kind = newKind();
  const engine = await crew.connect();
  const heard: unknown[] = [];
  let broken = true;
  const worker = crew.work(
    {
      ...workerPort(engine),
      claim: (request: ClaimRequest) =>
        broken ? Promise.reject(new Error('planted')) : workerPort(engine).claim(request),
    },
    { poll: 20, onError: (error) => heard.push(error), handlers: { [kind]: () => 1 } },
  );
  await expect.poll(() => heard.length, SOON).toBeGreaterThan(0);
  broken = false;
  await engine.executions.submit({ kind });
  await expect.poll(() => worker.stats.completed, SOON).toBe(1);
  expect(worker.stats.claimErrors).toBe(heard.length);
});
