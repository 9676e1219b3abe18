/**
 * A replay as a handler sees it: finished steps, sleeps and children return what they returned before, or, from the
 * start, everything is done again; and what is left of the earlier run can do nothing more.
 */
import { describe, expect, test } from 'vitest';
import { task } from '../../src/define/task.ts';
import { handle } from '../../src/define/handlers.ts';
import { latch, newKind, SOON, useCrew } from '../worker/crew.ts';
import { workerPort } from '../../src/connect/port.ts';

const crew = useCrew();
const WHY = { reason: 'the bug is fixed' };
const HOUR_MS = 3_600_000;
/** Longer than any move of the clock here. */
const LEASE_MS = 86_400_000;
const NO_RETRY = { retry: { maxRetries: 0 } } as const;

/** A task of three steps whose second fails until it is repaired; counts how often each ran. */
function brittle() {
  const ran = { first: 0, second: 0, third: 0 };
  const state = { mended: false };
  const name = task<null>(newKind(), NO_RETRY);
  const handler = handle(name, async (_, ctx) => {
    const first = await ctx.step('first', () => (ran.first += 1));
    const second = await ctx.step('second', () => {
      ran.second += 1;
      if (!state.mended) throw new Error('broken');
      return ran.second;
    });
    const third = await ctx.step('third', () => (ran.third += 1));
    return { first, second, third };
  });
  return { ran, state, name, handler };
}

describe('a replay from the failed step', () => {
  test('does not run finished steps again', async () => {
    const engine = await crew.connect();
    const { ran, state, name, handler } = brittle();
    crew.work(engine, { handlers: [handler] });
    const run = await engine.submit(name, null);
    expect(await run.wait()).toMatchObject({ outcome: 'failed', message: expect.stringContaining('broken') });
    state.mended = true;
    expect(await engine.executions.replay(run.executionId, WHY)).toMatchObject({ outcome: 'replayed' });
    expect(await run.result()).toEqual({ first: 1, second: 2, third: 1 });
    expect(ran).toEqual({ first: 1, second: 2, third: 1 });
  });

  test('does not spawn a child again, nor wait for one that has finished', async () => {
    const engine = await crew.connect();
    const [parent, child] = [task<null>(newKind(), NO_RETRY), task<null>(newKind())];
    const [children, state] = [[] as string[], { mended: false, ran: 0 }];
    crew.work(engine, {
      handlers: [
        handle(child, () => {
          state.ran += 1;
          return state.ran;
        }),
        handle(parent, async (_, ctx) => {
          const one = await ctx.spawn(child, null);
          children.push(one.executionId);
          const value = await one.result();
          if (!state.mended) throw new Error('broken');
          return value;
        }),
      ],
    });
    const run = await engine.submit(parent, null);
    expect(await run.wait()).toMatchObject({ outcome: 'failed' });
    state.mended = true;
    await engine.executions.replay(run.executionId, WHY);
    expect(await run.result()).toBe(1);
    expect(new Set(children).size).toBe(1);
    expect(state.ran).toBe(1);
  });

  test('does not repeat a finished sleep, and continues after a deadline that interrupted one', async () => {
    const engine = await crew.connect();
    const sleeper = task<null>(newKind());
    const worker = crew.work(engine, {
      lease: LEASE_MS,
      handlers: [
        handle(sleeper, async (_, ctx) => {
          await ctx.sleep('long', '2h');
          return ctx.attemptIndex;
        }),
      ],
    });
    const run = await engine.submit(sleeper, null, { policy: { deadline: HOUR_MS } });
    await expect.poll(() => worker.stats.paused, SOON).toBe(1);
    await crew.database.moveClock(HOUR_MS);
    await workerPort(engine).fireTimers();
    expect(await run.wait()).toMatchObject({ outcome: 'expired' });
    await crew.database.moveClock(HOUR_MS);
    await engine.executions.replay(run.executionId, WHY);
    expect(await run.result()).toBe(1);
    expect(worker.stats.paused).toBe(1);
  });
});

describe('a replay from the start', () => {
  test('runs everything again', async () => {
    const engine = await crew.connect();
    const { ran, state, name, handler } = brittle();
    state.mended = true;
    crew.work(engine, { handlers: [handler] });
    const run = await engine.submit(name, null);
    expect(await run.result()).toEqual({ first: 1, second: 1, third: 1 });
    expect(await engine.executions.replay(run.executionId, { ...WHY, from: 'start' })).toMatchObject({
      replayCount: 1,
    });
    expect(await run.result()).toEqual({ first: 2, second: 2, third: 2 });
    expect(ran).toEqual({ first: 2, second: 2, third: 2 });
  });

  test('spawns new children and waits for those, each time', async () => {
    const engine = await crew.connect();
    const [parent, child] = [task<null>(newKind()), task<null>(newKind())];
    const children: string[] = [];
    let ran = 0;
    crew.work(engine, {
      handlers: [
        handle(child, () => (ran += 1)),
        handle(parent, async (_, ctx) => {
          const one = await ctx.spawn(child, null);
          if (children.at(-1) !== one.executionId) children.push(one.executionId);
          return one.result();
        }),
      ],
    });
    const run = await engine.submit(parent, null);
    expect(await run.result()).toBe(1);
    for (const again of [2, 3]) {
      await engine.executions.replay(run.executionId, { ...WHY, from: 'start' });
      expect(await run.result()).toBe(again);
    }
    expect(new Set(children).size).toBe(3);
    const parents = await Promise.all(children.map((id) => engine.executions.describe(id)));
    expect(parents.map((each) => each?.parentId)).toEqual(children.map(() => run.executionId));
  });

  test('sleeps again', async () => {
    const engine = await crew.connect();
    const sleeper = task<null>(newKind());
    const worker = crew.work(engine, {
      lease: LEASE_MS,
      handlers: [
        handle(sleeper, async (_, ctx) => {
          await ctx.sleep('long', '1h');
          return ctx.attemptIndex;
        }),
      ],
    });
    const run = await engine.submit(sleeper, null);
    for (const round of [1, 2]) {
      await expect.poll(() => worker.stats.paused, SOON).toBe(round);
      await crew.database.moveClock(HOUR_MS);
      await workerPort(engine).fireTimers();
      expect(await run.result()).toBe(round - 1);
      await engine.executions.replay(run.executionId, { ...WHY, from: 'start' });
    }
  });

  test('of a task without steps starts it with its original payload', async () => {
    const engine = await crew.connect();
    const echo = task<{ n: number }>(newKind());
    crew.work(engine, { handlers: [handle(echo, (input, ctx) => [input.n, ctx.attemptIndex])] });
    const run = await engine.submit(echo, { n: 7 });
    expect(await run.result()).toEqual([7, 0]);
    await engine.executions.replay(run.executionId, { ...WHY, from: 'start' });
    expect(await run.result()).toEqual([7, 1]);
  });
});

test('a cancelled run that continues anyway can change nothing beside the replay', async () => {
  const engine = await crew.connect();
  const stubborn = task<null>(newKind());
  const [begun, go, told] = [latch(), latch(), latch<string>()];
  const ran: string[] = [];
  const worker = crew.work(engine, {
    concurrency: 2,
    handlers: [
      handle(stubborn, async (_, ctx) => {
        if (ctx.attemptIndex > 0) return ctx.step('work', () => ran.push('replay'));
        begun.open();
        await go.opened;
        const late = ctx.step('work', () => ran.push('zombie'));
        await late.catch((error: { code: string }) => told.open(error.code));
        return 'too late';
      }),
    ],
  });
  const run = await engine.submit(stubborn, null);
  await begun.opened;
  await engine.cancel(run.executionId, { reason: 'stuck' });
  expect(await run.wait()).toMatchObject({ outcome: 'cancelled' });
  await engine.executions.replay(run.executionId, { ...WHY, from: 'start' });
  expect(await run.result()).toBe(1);
  go.open();
  expect(await told.opened).toBe('cancelled');
  await expect.poll(() => worker.stats.lost, SOON).toBe(1);
  expect(ran).toEqual(['replay']);
  expect(await engine.executions.result(run.executionId)).toEqual({ outcome: 'success', result: 1 });
});
