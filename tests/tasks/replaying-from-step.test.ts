/**
 * A replay from a step: the same id, what was recorded before the step is kept, and the step and everything after it is
 * done again.
 */
import { describe, expect, test } from 'vitest';
import { task } from '../../src/define/task.ts';
import { handle } from '../../src/define/handlers.ts';
import { latch, newKind, SOON, useCrew, uuidOf } from '../worker/crew.ts';

const crew = useCrew();
const WHY = { reason: 'the price was wrong' };
const NO_RETRY = { retry: { maxRetries: 0 } } as const;

describe('a replay from a step', () => {
  test('keeps the steps before it and runs it and the later ones again, as often as asked', async () => {
    const engine = await crew.connect();
    const counting = task<null>(newKind());
    const ran: string[] = [];
    crew.work(engine, {
      handlers: [
        handle(counting, async (_, ctx) => {
          for (const name of ['a', 'b', 'c', 'd']) await ctx.step(name, () => void ran.push(name));
          await ctx.step('e', 'key', () => void ran.push('e'));
          return ran.length;
        }),
      ],
    });
    const run = await engine.submit(counting, null);
    expect(await run.result()).toBe(5);
    const replay = { ...WHY, fromStep: 'c' };
    expect(await engine.executions.replay(run.executionId, replay)).toMatchObject({
      outcome: 'replayed',
      replayCount: 1,
    });
    expect(await run.result()).toBe(8);
    expect(ran.splice(0)).toEqual(['a', 'b', 'c', 'd', 'e', 'c', 'd', 'e']);
    await engine.executions.replay(run.executionId, { ...WHY, fromStep: { name: 'e', key: 'key' } });
    expect(await run.result()).toBe(1);
    await engine.executions.replay(run.executionId, { ...WHY, fromStep: 'a' });
    expect(await run.result()).toBe(6);
    expect(ran).toEqual(['e', 'a', 'b', 'c', 'd', 'e']);
    const events = await engine.events.subscribe({ from: 'beginning', filter: { families: ['operator'] } });
    const { value } = await events[Symbol.asyncIterator]().next();
    expect(value).toMatchObject({ type: 'replayed', from: 'step', reason: WHY.reason });
    await events.close();
  });

  test('keeps children spawned before it, and spawns the later ones anew', async () => {
    const engine = await crew.connect();
    const [parent, child] = [task<null>(newKind()), task<string>(newKind())];
    const seen: string[][] = [];
    let ran = 0;
    crew.work(engine, {
      handlers: [
        handle(child, (which) => `${which} ${(ran += 1)}`),
        handle(parent, async (_, ctx) => {
          const early = await ctx.spawn(child, 'early', { key: 'early' });
          const first = await early.result();
          await ctx.step('between', () => 1);
          const late = await ctx.spawn(child, 'late', { key: 'late' });
          const second = await late.result();
          seen.push([early.executionId, late.executionId]);
          return [first, second];
        }),
      ],
    });
    const run = await engine.submit(parent, null);
    expect(await run.result()).toEqual(['early 1', 'late 2']);
    await engine.executions.replay(run.executionId, { ...WHY, fromStep: 'between' });
    expect(await run.result()).toEqual(['early 1', 'late 3']);
    await engine.executions.replay(run.executionId, { ...WHY, fromStep: 'between' });
    expect(await run.result()).toEqual(['early 1', 'late 4']);
    const last = seen.at(-1)!;
    expect(new Set(seen.map(([early]) => early)).size).toBe(1);
    expect(new Set(seen.map(([, late]) => late)).size).toBe(3);
    await engine.executions.replay(run.executionId, WHY);
    expect(await run.result()).toEqual(['early 1', 'late 4']);
    expect(seen.at(-1)).toEqual(last);
    await engine.executions.replay(run.executionId, { ...WHY, from: 'start' });
    expect(await run.result()).toEqual(['early 5', 'late 6']);
  });

  test('begins children again that had ended with it, unless they are left behind', async () => {
    const engine = await crew.connect();
    const [parent, child] = [task<null>(newKind(), NO_RETRY), task<string>(newKind())];
    const state = { broken: true };
    const ids: Record<string, Set<string>> = { early: new Set(), late: new Set() };
    crew.work(engine, {
      handlers: [
        handle(child, async (which, ctx) => {
          if (state.broken) await ctx.waitFor('never');
          return which;
        }),
        handle(parent, async (_, ctx) => {
          const early = await ctx.spawn(child, 'early', { key: 'early' });
          await ctx.step('between', () => 1);
          const late = await ctx.spawn(child, 'late', { key: 'late' });
          ids['early']!.add(early.executionId);
          ids['late']!.add(late.executionId);
          if (state.broken) throw new Error('broken');
          return ctx.all([early, late]);
        }),
      ],
    });
    const run = await engine.submit(parent, null);
    await run.wait();
    const [lost] = ids['late']!;
    for (const [id] of [ids['early']!, ids['late']!])
      expect(await engine.executions.wait(id!)).toMatchObject({ category: 'parent_ended' });
    state.broken = false;
    await engine.executions.replay(run.executionId, { ...WHY, fromStep: 'between' });
    expect(await run.result()).toEqual(['early', 'late']);
    expect([ids['early']!.size, ids['late']!.size]).toEqual([1, 2]);
    expect(await engine.executions.result(lost!)).toMatchObject({ category: 'parent_ended' });
  });

  test('waits again for what came after it; a waitpoint opened before keeps its token and its signals', async () => {
    const engine = await crew.connect({ signingSecret: 'a secret of the tests, long enough to be one' });
    const asking = task<null>(newKind());
    crew.work(engine, {
      handlers: [
        handle(asking, async (_, ctx) => {
          await ctx.createWaitpoint('early');
          await ctx.step('between', () => 1);
          const early = await ctx.waitFor('early');
          const late = await ctx.waitFor('late');
          return [early.payload, late.payload];
        }),
      ],
    });
    const run = await engine.submit(asking, null);
    await expect.poll(async () => (await run.describe())?.state, SOON).toBe('suspended');
    await run.signal('early', { payload: 'kept' });
    await expect.poll(async () => (await waitingFor()).at(-1), SOON).toBe('late');
    await run.signal('late', { payload: 'first' });
    expect(await run.result()).toEqual(['kept', 'first']);
    await engine.executions.replay(run.executionId, { ...WHY, fromStep: 'between' });
    await expect.poll(async () => (await waitingFor()).at(-1), SOON).toBe('late');
    await run.signal('late', { payload: 'second' });
    expect(await run.result()).toEqual(['kept', 'second']);

    async function waitingFor(): Promise<string[]> {
      const { waitpoints } = await engine.waitpoints.list({ executionId: run.executionId });
      return waitpoints.filter(({ state }) => state === 'waiting').map(({ name }) => name);
    }
  });

  test('keeps the winner of a race before it, and forgets that of one after it', async () => {
    const engine = await crew.connect();
    const racing = task<null>(newKind());
    const winners = { before: 'x', after: 'x' };
    crew.work(engine, {
      handlers: [
        handle(racing, async (_, ctx) => {
          const race = async (when: 'before' | 'after') => {
            const won = latch();
            const step = (which: string) =>
              ctx.step(when, which, async () => {
                if (winners[when] !== which) await won.opened;
                return which;
              });
            const both = [step('x'), step('y')];
            const first = await Promise.race(both);
            won.open();
            await Promise.all(both);
            return first;
          };
          const first = await race('before');
          await ctx.step('between', () => 1);
          return [first, await race('after')];
        }),
      ],
    });
    const run = await engine.submit(racing, null);
    expect(await run.result()).toEqual(['x', 'x']);
    Object.assign(winners, { before: 'y', after: 'y' });
    await engine.executions.replay(run.executionId, { ...WHY, fromStep: 'between' });
    expect(await run.result()).toEqual(['x', 'y']);
    const { rows } = await crew.database.query('SELECT ends FROM ff_end_order WHERE execution_id = $1', [
      uuidOf(run.executionId),
    ]);
    expect(rows.length).toBeGreaterThan(0);
  });

  test('is refused when there is no such step, or when another beginning is named too', async () => {
    const engine = await crew.connect();
    const counting = task<null>(newKind());
    crew.work(engine, { handlers: [handle(counting, (_, ctx) => ctx.step('a', 'key', () => 1))] });
    const run = await engine.submit(counting, null);
    await run.result();
    const { executionId } = run;
    for (const fromStep of ['b', 'a', { name: 'a', key: 'other' }])
      expect(await engine.executions.replay(executionId, { ...WHY, fromStep })).toEqual({
        executionId,
        outcome: 'step_not_found',
      });
    expect(await run.describe()).toMatchObject({ state: 'completed', replayCount: 0 });
    await expect(
      engine.executions.replay(executionId, { ...WHY, from: 'start', fromStep: 'a' }),
    ).rejects.toMatchObject({ code: 'invalid_input', field: 'fromStep' });
    await expect(
      engine.executions.replay(executionId, { ...WHY, fromStep: { key: 'a' } as never }),
    ).rejects.toMatchObject({ code: 'invalid_input', field: 'fromStep.name' });
  });
});
