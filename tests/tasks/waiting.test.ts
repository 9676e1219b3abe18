/**
 * What a handler may do with its waits besides awaiting them one by one: race them, abandon them, wait for the same
 * child twice. None of it may end the process, occupy a worker forever, or run beside its successor.
 */
import { expect, test } from 'vitest';
import { EngineError } from '../../src/contract/errors.ts';
import { task } from '../../src/define/task.ts';
import { handle } from '../../src/define/handlers.ts';
import { AGAIN, latch, newKind, SOON, useCrew } from '../worker/crew.ts';
import { workerPort } from '../../src/connect/port.ts';
import type { WorkerPort } from '../../src/contract/protocol.ts';

const crew = useCrew();

test('an abandoned branch does not end the process when the execution is paused', async () => {
  const engine = await crew.connect();
  const forked = task<null>(newKind());
  const strays: unknown[] = [];
  const onStray = (reason: unknown): void => void strays.push(reason);
  const others = process.listeners('unhandledRejection');
  const worker = crew.work(engine, {
    handlers: [
      handle(forked, async (_, ctx) => {
        const branch = async (name: string): Promise<void> => {
          await ctx.sleep(name, '1h');
        };
        const [a, b] = [branch('a'), branch('b')];
        await a;
        await b;
      }),
    ],
  });
  // Simulates a process whose only listener is the worker's own.
  const own = process.listeners('unhandledRejection').filter((listener) => !others.includes(listener));
  for (const listener of others) process.off('unhandledRejection', listener);
  try {
    await engine.submit(forked, null);
    await expect.poll(() => worker.stats.paused, SOON).toBe(1);
    await expect.poll(() => worker.running, SOON).toBe(0);
    process.on('unhandledRejection', onStray);
    expect(own).toHaveLength(1);
  } finally {
    process.off('unhandledRejection', onStray);
    for (const listener of others) process.on('unhandledRejection', listener);
  }
  await worker.stop();
  expect(process.listeners('unhandledRejection')).not.toContain(own[0]);
});

test('only children of this run can be awaited together', async () => {
  const engine = await crew.connect();
  const parent = task<null>(newKind(), { retry: { maxRetries: 0 } });
  const other = task<null>(newKind());
  crew.work(engine, {
    handlers: [
      handle(parent, async (_, ctx) => {
        const foreign = await engine.submit(other, null);
        return ctx.all([foreign as never]);
      }),
    ],
  });
  const run = await engine.submit(parent, null);
  expect(await run.wait()).toMatchObject({
    outcome: 'failed',
    message: expect.stringContaining('children that this run has spawned'),
  });
});

test('the same child may be awaited twice', async () => {
  const engine = await crew.connect();
  const parent = task<null>(newKind());
  const child = task<null>(newKind(), { lane: 'later' });
  const worker = crew.work(engine, {
    lanes: ['default'],
    handlers: [
      handle(parent, async (_, ctx) => {
        const one = await ctx.spawn(child, null);
        return ctx.all([one, one]);
      }),
    ],
  });
  const run = await engine.submit(parent, null);
  await expect.poll(() => worker.stats.paused, SOON).toBe(1);
  crew.work(engine, { lanes: ['later'], handlers: [handle(child, () => 7)] });
  expect(await run.result()).toEqual([7, 7]);
});

test('the handler pauses for children beside a deadline, even when some of them have finished', async () => {
  const engine = await crew.connect();
  const parent = task<null>(newKind());
  const quick = task<null>(newKind());
  const slow = task<null>(newKind(), { lane: 'later' });
  const worker = crew.work(engine, {
    lanes: ['default'],
    handlers: [
      handle(quick, () => 'quick'),
      handle(parent, async (_, ctx) => {
        const children = [await ctx.spawn(quick, null), await ctx.spawn(slow, null)];
        return Promise.race([ctx.all(children), ctx.sleep('deadline', '1d')]);
      }),
    ],
  });
  const run = await engine.submit(parent, null);
  await expect.poll(() => worker.stats.paused, SOON).toBe(1);
  crew.work(engine, { lanes: ['later'], handlers: [handle(slow, () => 'slow')] });
  expect(await run.result()).toEqual(['quick', 'slow']);
});

test('a sleep that lost its race does not pause what runs after the handler', async () => {
  const engine = await crew.connect();
  const racing = task<null>(newKind());
  const worker = crew.work(engine, {
    middleware: [
      async (_, next) => {
        const made = await next();
        await workerPort(engine).transact((tx) => tx.query('SELECT 1'));
        return made;
      },
    ],
    handlers: [
      handle(racing, async (_, ctx) =>
        Promise.race([ctx.step('work', () => 'won'), ctx.sleep('limit', '1h')]),
      ),
    ],
  });
  const run = await engine.submit(racing, null);
  expect(await run.result()).toBe('won');
  expect(worker.stats.paused).toBe(0);
});

test('what a failed handler left running can do nothing more, and is aborted', async () => {
  const engine = await crew.connect();
  const forked = task<null>(newKind(), { retry: AGAIN.retry });
  const go = latch();
  const told: unknown[] = [];
  let ran = 0;
  crew.work(engine, {
    handlers: [
      handle(forked, async (_, ctx) => {
        if (ctx.attemptIndex > 0) return 'second try';
        ctx.signal.addEventListener('abort', () => told.push((ctx.signal.reason as { code: string }).code));
        const left = go.opened.then(() =>
          ctx.step('late', () => {
            ran += 1;
          }),
        );
        left.catch((error: { code: string }) => told.push(error.code));
        throw new Error('first try');
      }),
    ],
  });
  const run = await engine.submit(forked, null);
  expect(await run.result()).toBe('second try');
  go.open();
  await expect.poll(() => told, SOON).toEqual(['ended', 'ended']);
  expect(ran).toBe(0);
});

test('an error that no retry can fix is not retried forever', async () => {
  const engine = await crew.connect();
  const parent = task<null>(newKind(), { retry: { maxRetries: 0 } });
  const child = task<null>(newKind());
  let tries = 0;
  const full: WorkerPort = {
    ...workerPort(engine),
    spawn: async () => {
      tries += 1;
      throw new EngineError('route_limit_reached', 'There are already 10000 routes.');
    },
  };
  crew.work(full, { handlers: [handle(parent, async (_, ctx) => void (await ctx.spawn(child, null)))] });
  const run = await engine.submit(parent, null);
  expect(await run.wait()).toMatchObject({ outcome: 'failed', message: 'There are already 10000 routes.' });
  expect(tries).toBe(1);
});

test('many concurrent spawns share statements', async () => {
  const engine = await crew.connect();
  const parent = task<number>(newKind());
  const child = task<number>(newKind(), { lane: 'never' });
  let calls = 0;
  const counting: WorkerPort = {
    ...workerPort(engine),
    spawn: (lease, requests) => {
      calls += 1;
      return workerPort(engine).spawn(lease, requests);
    },
  };
  crew.work(counting, {
    lanes: ['default'],
    handlers: [
      handle(parent, async (count, ctx) => {
        const keys = Array.from({ length: count }, (_, index) => String(index));
        const children = await Promise.all(keys.map((key) => ctx.spawn(child, 1, { key })));
        return children.map(({ executionId }) => executionId);
      }),
    ],
  });
  const run = await engine.submit(parent, 300);
  const ids = (await run.result()) as string[];
  expect(calls).toBe(300);
  const { rows } = await crew.database.query(
    `SELECT count(*)::int AS children, count(DISTINCT created_at_ms)::int AS statements FROM ff_execution
     WHERE execution_id = ANY ($1)`,
    [ids.map((id) => id.slice(id.lastIndexOf(':') + 1))],
  );
  expect(rows[0]).toMatchObject({ children: 300 });
  expect((rows[0] as { statements: number }).statements).toBeLessThan(30);
});

test('an attempt that fails is logged with its error and step, and the stored failure names the step', async () => {
  const engine = await crew.connect();
  const broken = task<null>(newKind(), { retry: { maxRetries: 0 } });
  const lines: unknown[] = [];
  const ignore = (): void => undefined;
  const log = {
    debug: ignore,
    info: ignore,
    warn: ignore,
    error: (...line: unknown[]) => void lines.push(line),
  };
  const thrown = new TypeError('no such thing');
  crew.work(engine, {
    log,
    handlers: [
      handle(broken, (_, ctx) =>
        ctx.step('look', () => {
          throw thrown;
        }),
      ),
    ],
  });
  const run = await engine.submit(broken, null);
  expect(await run.wait()).toMatchObject({ message: 'no such thing (in step "look")' });
  const facts = {
    executionId: run.executionId,
    kind: broken.name,
    attemptIndex: 0,
    attempt: 1,
    maxAttempts: 1,
    outcome: 'failed',
    step: 'look',
    category: 'permanent',
    at: expect.stringMatching(/^tests\/tasks\/waiting\.test\.ts:\d+:\d+$/) as unknown,
    err: thrown,
  };
  await expect.poll(() => lines, SOON).toStrictEqual([[facts, 'The attempt failed, and is not retried.']]);
});

test('what finished before a sleep wins their race again on the next run', async () => {
  const engine = await crew.connect();
  const racing = task<null>(newKind(), { retry: AGAIN.retry });
  const child = task<null>(newKind());
  const winners: string[] = [];
  crew.work(engine, {
    // Longer than the clock is moved.
    lease: 86_400_000,
    handlers: [
      handle(child, () => 1),
      handle(racing, async (_, ctx) => {
        const spawned = await ctx.spawn(child, null);
        const limit = ctx.sleep('limit', '1h').then(() => 'timeout');
        const winner = await Promise.race([limit, spawned.result().then(() => 'child')]);
        winners.push(winner);
        if (ctx.attemptIndex > 0) return winner;
        await crew.database.moveClock(3_600_000);
        throw new Error('after the sleep is over');
      }),
    ],
  });
  const run = await engine.submit(racing, null);
  expect(await run.result()).toBe('child');
  expect(winners).toEqual(['child', 'child']);
});

test('a quick step beside a sleep does not leave the sleep as a reason to pause at once', async () => {
  const engine = await crew.connect();
  const racing = task<null>(newKind());
  const worker = crew.work(engine, {
    handlers: [
      handle(racing, async (_, ctx) => {
        const winner = await Promise.race([ctx.step('work', () => 'won'), ctx.sleep('limit', '1h')]);
        // Work unknown to the context, for some round trips.
        for (let look = 0; look < 50; look += 1) await engine.executions.result(ctx.executionId);
        return winner;
      }),
    ],
  });
  const run = await engine.submit(racing, null);
  expect(await run.result()).toBe('won');
  expect(worker.stats.paused).toBe(0);
});

test('a transaction inside another is refused instead of waiting for a connection', async () => {
  const engine = await crew.connect();
  const nested = task<null>(newKind(), { retry: { maxRetries: 0 } });
  crew.work(engine, {
    handlers: [handle(nested, (_, ctx) => ctx.tx('outer', () => ctx.tx('inner', async () => 1)))],
  });
  const run = await engine.submit(nested, null);
  expect(await run.wait()).toMatchObject({
    outcome: 'failed',
    message: expect.stringContaining(`'inner' is inside another ctx.tx`),
  });
});
