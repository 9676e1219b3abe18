/**
 * Steps, sleeps and children as a handler sees them: done once, and remembered across retries, crashes and pauses.
 */
import { expect, test } from 'vitest';
import { ExecutionFailed } from '../../src/contract/errors.ts';
import { LIMITS } from '../../src/contract/limits.ts';
import type { ExecutionId } from '../../src/contract/ids.ts';
import { task } from '../../src/define/task.ts';
import { handle } from '../../src/define/handlers.ts';
import { AGAIN, latch, newKind, SOON, useCrew } from '../worker/crew.ts';
import { workerPort } from '../../src/connect/port.ts';

const crew = useCrew();
const RETRY = { retry: AGAIN.retry };

test('a finished step does not run again in the next attempt, and returns the same value', async () => {
  const engine = await crew.connect();
  const charge = task<{ amount: number }>(newKind(), RETRY);
  const ran: string[] = [];
  crew.work(engine, {
    handlers: [
      handle(charge, async (input, ctx) => {
        const receipt = await ctx.step('charge', () => {
          ran.push('charge');
          return { amount: input.amount, at: new Date(0) };
        });
        await ctx.step('mail', () => {
          ran.push('mail');
          if (ctx.attemptIndex === 0) throw new Error('mail server away');
        });
        return receipt;
      }),
    ],
  });
  const run = await engine.submit(charge, { amount: 7 });
  expect(await run.result()).toEqual({ amount: 7, at: '1970-01-01T00:00:00.000Z' });
  expect(ran).toEqual(['charge', 'mail', 'mail']);
});

test('parallel steps are recorded separately', async () => {
  const engine = await crew.connect();
  const many = task<number>(newKind());
  crew.work(engine, {
    handlers: [
      handle(many, async (count, ctx) =>
        Promise.all(
          Array.from({ length: count }, (_, index) => ctx.step('part', String(index), () => index * 2)),
        ),
      ),
    ],
  });
  const run = await engine.submit(many, 20);
  expect(await run.result()).toEqual(Array.from({ length: 20 }, (_, index) => index * 2));
  expect((await engine.executions.describe(run.executionId))?.stepCount).toBe(20);
});

test('a sleep until a date lasts until the date of the first run, and not at all if that has passed', async () => {
  const engine = await crew.connect();
  const HOUR_MS = 3_600_000;
  const nap = task<{ untilMs: number }>(newKind());
  const worker = crew.work(engine, {
    handlers: [
      handle(nap, async ({ untilMs }, ctx) => {
        await ctx.sleepUntil('past', new Date(-1));
        await ctx.sleepUntil('nap', 'key', new Date(ctx.resumed ? untilMs + HOUR_MS : untilMs));
        return ctx.resumed;
      }),
    ],
  });
  const untilMs = (await engine.upkeep.serverTimeMs()) + HOUR_MS;
  const run = await engine.submit(nap, { untilMs });
  const described = () => engine.executions.describe(run.executionId);
  await expect.poll(async () => (await described())?.state, SOON).toBe('delayed');
  await expect.poll(() => worker.running, SOON).toBe(0);
  const [past, stored] = ['past', 'nap'].map(async (name) =>
    (await engine.executions.listSteps(run.executionId)).find((step) => step.name === name),
  );
  expect((await stored)!.value).toBe(untilMs);
  expect((await past)!.value).toBeGreaterThan(untilMs - 2 * HOUR_MS);
  await crew.database.moveClock(HOUR_MS);
  await workerPort(engine).fireTimers();
  expect(await run.result()).toBe(true);
});

test('a sleep until a date further ahead than a timer reaches is slept in parts', async () => {
  const engine = await crew.connect();
  const nap = task<{ untilMs: number }>(newKind());
  const sleeps = handle(nap, async ({ untilMs }, ctx) => {
    await ctx.sleepUntil('nap', new Date(untilMs));
    return 'awake';
  });
  const worker = crew.work(engine, { handlers: [sleeps] });
  const untilMs = (await engine.upkeep.serverTimeMs()) + LIMITS.delayMs + 3_600_000;
  const run = await engine.submit(nap, { untilMs });
  const dueInMs = async (): Promise<number> => {
    const found = await engine.executions.describe(run.executionId);
    return (found?.eligibleAtMs ?? 0) - (await engine.upkeep.serverTimeMs());
  };
  await expect.poll(dueInMs, SOON).toBeGreaterThan(LIMITS.delayMs - 60_000);
  await expect.poll(() => worker.running, SOON).toBe(0);
  await crew.database.moveClock(LIMITS.delayMs);
  await workerPort(engine).fireTimers();
  await expect.poll(dueInMs, SOON).toBeGreaterThan(3_600_000 - 60_000);
  expect(await dueInMs()).toBeLessThanOrEqual(3_600_000);
  await expect.poll(() => worker.running, SOON).toBe(0);
  await crew.database.moveClock(3_600_000);
  await workerPort(engine).fireTimers();
  expect(await run.result()).toBe('awake');
});

test('a long sleep frees the worker, and the same attempt resumes after it', async () => {
  const engine = await crew.connect();
  const nap = task<null>(newKind());
  const runs: [attempt: number, resumed: boolean][] = [];
  let before = 0;
  const worker = crew.work(engine, {
    handlers: [
      handle(nap, async (_, ctx) => {
        runs.push([ctx.attemptIndex, ctx.resumed]);
        await ctx.step('before', () => {
          before += 1;
        });
        await ctx.sleep('nap', '1h');
        return 'rested';
      }),
    ],
  });
  const run = await engine.submit(nap, null);
  await expect
    .poll(async () => (await engine.executions.describe(run.executionId))?.state, SOON)
    .toBe('delayed');
  await expect.poll(() => worker.running, SOON).toBe(0);
  expect(worker.stats.paused).toBe(1);
  await crew.database.moveClock(3_600_000);
  await workerPort(engine).fireTimers();
  expect(await run.result()).toBe('rested');
  expect(runs).toEqual([
    [0, false],
    [0, true],
  ]);
  expect(before).toBe(1);
  expect(await crew.eventsOf(run.executionId)).toEqual([
    'lease.acquired',
    'lease.released',
    'lease.acquired',
    'completion.success',
  ]);
});

test('children are spawned once and awaited across a pause of their parent', async () => {
  const engine = await crew.connect();
  const child = task<number>(newKind(), { lane: 'children' });
  const parent = task<null>(newKind());
  let parentRuns = 0;
  const worker = crew.work(engine, {
    lanes: ['default'],
    handlers: [
      handle(parent, async (_, ctx) => {
        parentRuns += 1;
        const children = await Promise.all([1, 2, 3].map((n) => ctx.spawn(child, n, { key: String(n) })));
        return ctx.all(children);
      }),
    ],
  });
  const run = await engine.submit(parent, null);
  await expect
    .poll(async () => (await engine.executions.describe(run.executionId))?.state, SOON)
    .toBe('waiting_children');
  await expect.poll(() => worker.running, SOON).toBe(0);
  crew.work(engine, { lanes: ['children'], handlers: [handle(child, (n) => n * 10)] });
  expect(await run.result()).toEqual([10, 20, 30]);
  expect(parentRuns).toBe(2);
});

test('a handler that runs again finds its children, in the partition of the parent', async () => {
  const engine = await crew.connect();
  const child = task<null>(newKind(), { lane: 'never' });
  const parent = task<null>(newKind(), AGAIN);
  const runs: ExecutionId[][] = [];
  crew.work(engine, {
    lanes: ['default'],
    handlers: [
      handle(parent, async (_, ctx) => {
        const keys = ['a', 'b', 'c', 'd'];
        const children = await Promise.all(keys.map((key) => ctx.spawn(child, null, { key })));
        runs.push(children.map(({ executionId }) => executionId));
        if (runs.length === 1) throw new Error('again');
      }),
    ],
  });
  const { executionId, result } = await engine.submit(parent, null);
  await result();
  expect(runs).toHaveLength(2);
  expect(runs[1]).toEqual(runs[0]);
  const home = /^.*}/.exec(executionId)![0];
  expect(runs[0]!.map((id) => /^.*}/.exec(id)![0])).toEqual(Array(4).fill(home));
  const { executions } = await engine.executions.list({ filter: { parentId: executionId } });
  expect(executions).toHaveLength(4);
});

test('awaiting a child that fails rejects with its outcome', async () => {
  const engine = await crew.connect();
  const child = task<null>(newKind(), { retry: { maxRetries: 0 } });
  const parent = task<null>(newKind());
  const seen: unknown[] = [];
  crew.work(engine, {
    handlers: [
      handle(child, () => {
        throw new Error('no luck');
      }),
      handle(parent, async (_, ctx) => {
        const spawned = await ctx.spawn(child, null);
        await spawned.result().catch((error: unknown) => seen.push(error));
        return 'went on';
      }),
    ],
  });
  const run = await engine.submit(parent, null);
  expect(await run.result()).toBe('went on');
  expect(seen[0]).toBeInstanceOf(ExecutionFailed);
  expect((seen[0] as ExecutionFailed).end).toMatchObject({ outcome: 'failed', message: 'no luck' });
});

test('using a name and key twice is refused with a message that shows how to write it', async () => {
  const engine = await crew.connect();
  const twice = task<null>(newKind(), { retry: { maxRetries: 0 } });
  crew.work(engine, {
    handlers: [
      handle(twice, async (_, ctx) => {
        await ctx.step('same', () => 1);
        await ctx.step('same', () => 2);
      }),
    ],
  });
  const run = await engine.submit(twice, null);
  const end = await run.wait();
  expect(end).toMatchObject({ outcome: 'failed' });
  expect((end as { message: string }).message).toMatch(
    /"same" is used twice in one run; in a loop give each round a key/,
  );
});

test('the writes of a transaction and its step are committed together, once', async () => {
  const engine = await crew.connect();
  await crew.database.query('CREATE TABLE IF NOT EXISTS paid (id text)');
  const pay = task<null>(newKind(), RETRY);
  crew.work(engine, {
    handlers: [
      handle(pay, async (_, ctx) => {
        const rows = await ctx.tx('pay', async (tx) => {
          await tx.query(`INSERT INTO ${crew.database.schema}.paid VALUES ($1)`, [ctx.executionId]);
          return (await tx.query('SELECT 1 AS one')).rows;
        });
        if (ctx.attemptIndex === 0) throw new Error('after the commit');
        return rows;
      }),
    ],
  });
  const run = await engine.submit(pay, null);
  expect(await run.result()).toEqual([{ one: 1 }]);
  const { rows } = await crew.database.query('SELECT count(*)::int AS n FROM paid WHERE id = $1', [
    run.executionId,
  ]);
  expect(rows).toEqual([{ n: 1 }]);
});

test('a sleep beside a step ends in time, however long the step takes', async () => {
  const engine = await crew.connect();
  const both = task<null>(newKind());
  crew.work(engine, {
    handlers: [
      handle(both, async (_, ctx) => {
        const rested = latch();
        const sleep = ctx.sleep('nap', '300ms').then(() => rested.open());
        const value = await ctx.step('until rested', async () => {
          await rested.opened;
          return 'rested';
        });
        await sleep;
        return [value, ctx.resumed];
      }),
    ],
  });
  const run = await engine.submit(both, null);
  expect(await run.result()).toEqual(['rested', false]);
});

test('a sleep inside a step keeps the worker and ends', async () => {
  const engine = await crew.connect();
  const nested = task<null>(newKind());
  crew.work(engine, {
    handlers: [
      handle(nested, async (_, ctx) =>
        ctx.step('outer', async () => {
          await ctx.sleep('inner', '300ms');
          return ctx.resumed;
        }),
      ),
    ],
  });
  const run = await engine.submit(nested, null);
  expect(await run.result()).toBe(false);
});

test('time limits longer than a timer supports are kept', async () => {
  const engine = await crew.connect();
  const patient = task<null>(newKind(), { timeout: '60d' });
  const lookAround = async () => {
    for (let look = 0; look < 10; look += 1) await engine.executions.result(run.executionId);
    return 'in time';
  };
  crew.work(engine, {
    handlers: [handle(patient, async (_, ctx) => ctx.step('look', lookAround, { timeout: '30d' }))],
  });
  const run = await engine.submit(patient, null);
  expect(await run.wait()).toEqual({ outcome: 'success', result: 'in time' });
});
