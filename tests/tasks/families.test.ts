/**
 * Families as a handler sees them: children that end with it, handles, how all of them went, and a sliding window over
 * many items.
 */
import { describe, expect, test } from 'vitest';
import { task } from '../../src/define/task.ts';
import { handle } from '../../src/define/handlers.ts';
import { ExecutionFailed } from '../../src/index.ts';
import { workerPort } from '../../src/connect/port.ts';
import { latch, newKind, SOON, useCrew, type Latch } from '../worker/crew.ts';

const crew = useCrew();
const NO_RETRY = { retry: { maxRetries: 0 } } as const;
const WHY = { reason: 'for a test' };

describe('a handler that returns', () => {
  test('aborts the handlers of children it has not waited for, also losers of a race; not of detached ones', async () => {
    const engine = await crew.connect();
    const [parent, slow, quick] = [task<null>(newKind()), task<string>(newKind()), task<null>(newKind())];
    const begun: Record<string, Latch> = { loser: latch(), detached: latch() };
    const aborted: string[] = [];
    const end = latch();
    crew.work(engine, {
      handlers: [
        handle(quick, () => 'quick'),
        handle(slow, async (which, ctx) => {
          begun[which]!.open();
          ctx.signal.addEventListener('abort', () => aborted.push(which));
          await end.opened;
          return which;
        }),
        handle(parent, async (_, ctx) => {
          const loser = await ctx.spawn(slow, 'loser', { key: 'loser' });
          const detached = await ctx.spawn(slow, 'detached', { key: 'detached', detached: true });
          await Promise.all([begun['loser']!.opened, begun['detached']!.opened]);
          const won = await Promise.race([(await ctx.spawn(quick, null)).result(), loser.result()]);
          return [won, loser.executionId, detached.executionId];
        }),
      ],
    });
    const run = await engine.submit(parent, null);
    const [won, loser, detached] = (await run.result()) as string[];
    expect(won).toBe('quick');
    expect(await engine.executions.wait(loser!)).toMatchObject({
      outcome: 'cancelled',
      category: 'parent_ended',
    });
    await expect.poll(() => aborted, SOON).toEqual(['loser']);
    end.open();
    expect(await engine.executions.wait(detached!)).toMatchObject({ outcome: 'success', result: 'detached' });
  });

  test('is replayed with its children: the handler waits for them as if they had never ended', async () => {
    const engine = await crew.connect();
    const [parent, child] = [task<null>(newKind(), NO_RETRY), task<null>(newKind())];
    const state = { broken: true };
    const ids: string[] = [];
    crew.work(engine, {
      handlers: [
        handle(child, async (_, ctx) => {
          if (state.broken) await ctx.waitFor('never');
          return 'done';
        }),
        handle(parent, async (_, ctx) => {
          const one = await ctx.spawn(child, null);
          ids.push(one.executionId);
          if (state.broken) throw new Error('broken');
          return one.result();
        }),
      ],
    });
    const run = await engine.submit(parent, null);
    expect(await run.wait()).toMatchObject({ outcome: 'failed' });
    expect(await engine.executions.wait(ids[0]!)).toMatchObject({ category: 'parent_ended' });
    state.broken = false;
    await engine.executions.replay(run.executionId, WHY);
    expect(await run.result()).toBe('done');
    expect(new Set(ids).size).toBe(1);
  });
});

describe('handles', () => {
  test('of a run cancel it, describe it and send it signals', async () => {
    const engine = await crew.connect();
    const asking = task<null>(newKind());
    crew.work(engine, {
      handlers: [handle(asking, async (_, ctx) => (await ctx.waitFor('answer')).payload)],
    });
    const told = await engine.submit(asking, null);
    await expect.poll(async () => (await told.describe())?.state, SOON).toBe('suspended');
    expect(await told.describe({ include: ['waits'] })).toMatchObject({
      waits: { items: [{ name: 'answer' }] },
    });
    expect(await told.signal('answer', { payload: 42 })).toMatchObject({ effect: 'resumed' });
    expect(await told.result()).toBe(42);
    const other = engine.execution(asking, (await engine.submit(asking, null)).executionId);
    expect(await other.cancel()).toMatchObject({ outcome: 'cancelled' });
    expect(await other.wait()).toMatchObject({ outcome: 'cancelled', by: 'operator' });
    expect(await other.cancel({ reason: 'once more', by: 'me' })).toMatchObject({
      outcome: 'already_cancelled',
    });
  });

  test('of a child do the same, by its parent', async () => {
    const engine = await crew.connect();
    const [parent, child] = [task<null>(newKind()), task<null>(newKind())];
    const [spawned, waiting] = [latch<string>(), latch()];
    crew.work(engine, {
      handlers: [
        handle(child, async (_, ctx) => (await ctx.waitFor('answer')).signals[0]!.source),
        handle(parent, async (_, ctx) => {
          const one = await ctx.spawn(child, null, { key: 'one' });
          const two = await ctx.spawn(child, null, { key: 'two' });
          spawned.open(one.executionId);
          await waiting.opened;
          await one.signal('answer', { payload: 1 });
          const cancelled = await two.cancel();
          return [await one.result(), cancelled.outcome, (await two.describe()).state];
        }),
      ],
    });
    const run = await engine.submit(parent, null);
    const first = await spawned.opened;
    await expect.poll(async () => (await engine.executions.describe(first))?.state, SOON).toBe('suspended');
    waiting.open();
    expect(await run.result()).toEqual([
      { type: 'operator', identity: run.executionId },
      'cancelled',
      'cancelled',
    ]);
  });

  test('of a child reach no other execution', async () => {
    const engine = await crew.connect();
    const foreign = await engine.submit(task<null>(newKind()), null);
    const kind = newKind();
    await engine.executions.submit({ kind });
    const port = workerPort(engine);
    const request = { workerId: 'w', workerInstanceId: 'w-1', kinds: [kind], limit: 1, leaseMs: 60_000 };
    const [claim] = (await port.claim(request)).claims;
    const by = 'me';
    for (const call of [
      () => port.cancelChild(claim!, foreign.executionId, { reason: 'no', by }),
      () => port.describeChild(claim!, foreign.executionId),
      () => port.signalChild(claim!, foreign.executionId, 'answer', { by }),
    ])
      await expect(call()).rejects.toMatchObject({ code: 'not_found' });
    expect(await foreign.describe()).toMatchObject({ state: 'waiting' });
  });
});

test('allSettled returns how each child went, in their order, and throws for none', async () => {
  const engine = await crew.connect();
  const [parent, child] = [task<null>(newKind()), task<number, number>(newKind(), NO_RETRY)];
  crew.work(engine, {
    handlers: [
      handle(child, (n) => {
        if (n === 2) throw new Error('two is bad');
        return n;
      }),
      handle(parent, async (_, ctx) => {
        const children = [];
        for (const n of [1, 2, 3]) children.push(await ctx.spawn(child, n, { key: String(n) }));
        const outcomes = await ctx.allSettled(children);
        return outcomes.map((one) =>
          one.status === 'fulfilled'
            ? one.value
            : [one.reason instanceof ExecutionFailed, (one.reason as Error).message],
        );
      }),
    ],
  });
  const run = await engine.submit(parent, null);
  expect(await run.result()).toEqual([1, [true, expect.stringContaining('two is bad')], 3]);
});

describe('map', () => {
  test('keeps so many in progress, starts the next when one is done, and keeps the order of results', async () => {
    const engine = await crew.connect();
    const mapping = task<null>(newKind());
    const gates = Array.from({ length: 5 }, () => latch());
    const begun: number[] = [];
    crew.work(engine, {
      handlers: [
        handle(mapping, async (_, ctx) => {
          const results = await ctx.map(
            gates,
            (gate, index) =>
              ctx.step('wait', String(index), async () => {
                begun.push(index);
                await gate.opened;
                if (index === 3) throw new Error('three is bad');
                return index * 10;
              }),
            { concurrency: 2 },
          );
          return results.map((one) => (one.status === 'fulfilled' ? one.value : String(one.reason)));
        }),
      ],
    });
    const run = await engine.submit(mapping, null);
    await expect.poll(() => begun, SOON).toEqual([0, 1]);
    gates[1]!.open();
    await expect.poll(() => begun, SOON).toEqual([0, 1, 2]);
    gates[2]!.open();
    gates[3]!.open();
    await expect.poll(() => begun, SOON).toEqual([0, 1, 2, 3, 4]);
    gates[4]!.open();
    gates[0]!.open();
    expect(await run.result()).toEqual([0, 10, 20, expect.stringContaining('three is bad'), 40]);
  });

  test('over children pauses like any wait, and a later run begins the same items', async () => {
    const engine = await crew.connect();
    const [mapping, child] = [task<null>(newKind()), task<number, number>(newKind())];
    const asked: number[] = [];
    let runs = 0;
    crew.work(engine, {
      handlers: [
        handle(child, async (n, ctx) => {
          asked.push(n);
          await ctx.waitFor('go');
          return n;
        }),
        handle(mapping, async (_, ctx) => {
          runs += 1;
          const results = await ctx.map(
            [1, 2, 3],
            async (n) => (await ctx.spawn(child, n, { key: String(n) })).result(),
            { concurrency: 2 },
          );
          return results.map((one) => (one.status === 'fulfilled' ? one.value : 'failed'));
        }),
      ],
    });
    const run = await engine.submit(mapping, null);
    await expect.poll(async () => (await run.describe())?.state, SOON).toBe('waiting_children');
    expect(asked.toSorted()).toEqual([1, 2]);
    for (let done = 0; done < 3; done += 1) {
      await expect.poll(async () => (await suspended(run.executionId)).length, SOON).toBeGreaterThan(0);
      const [next] = await suspended(run.executionId);
      await engine.waitpoints.approve(next!, 'go', { by: 'me' });
      await engine.executions.wait(next!);
    }
    expect(await run.result()).toEqual([1, 2, 3]);
    expect(asked.toSorted()).toEqual([1, 1, 2, 2, 3, 3]);
    expect(runs).toBeGreaterThan(1);

    async function suspended(parentId: string): Promise<string[]> {
      const page = await engine.executions.list({ filter: { parentId, states: ['suspended'] } });
      return page.executions.map(({ executionId }) => executionId);
    }
  });

  test.each([
    ['no list', (map: (...args: unknown[]) => unknown) => map('items', () => 1)],
    ['no function', (map: (...args: unknown[]) => unknown) => map([1], 1)],
    ['no room', (map: (...args: unknown[]) => unknown) => map([1], () => 1, { concurrency: 0 })],
    ['another option', (map: (...args: unknown[]) => unknown) => map([1], () => 1, { parallel: 2 })],
  ])('refuses %s', async (_, call) => {
    const engine = await crew.connect();
    const mapping = task<null>(newKind(), NO_RETRY);
    crew.work(engine, { handlers: [handle(mapping, (__, ctx) => call(ctx.map as never) as null)] });
    const run = await engine.submit(mapping, null);
    expect(await run.wait()).toMatchObject({
      outcome: 'failed',
      message: expect.stringContaining('ctx.map'),
    });
  });
});
