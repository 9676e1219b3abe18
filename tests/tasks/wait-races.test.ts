/**
 * Waits beside other waits, sleeps and steps: a pause accounts for everything that may end it, and a race has the same
 * winner however often the handler runs.
 */
import { expect, test } from 'vitest';
import type { Connection } from '../../src/connect/connection.ts';
import type { Schema } from '../../src/contract/shape/schema.ts';
import { task } from '../../src/define/task.ts';
import type { TaskContext } from '../../src/define/task-context.ts';
import { handle } from '../../src/define/handlers.ts';
import { newKind, SOON, useCrew } from '../worker/crew.ts';
import { workerPort } from '../../src/connect/port.ts';

const crew = useCrew();
const HOUR_MS = 3_600_000;

async function started(work: (ctx: TaskContext) => Promise<unknown>) {
  const engine = await crew.connect();
  const waiting = task<null>(newKind(), { retry: { maxRetries: 0 } });
  crew.work(engine, { handlers: [handle(waiting, (_, ctx) => work(ctx))] });
  const run = await engine.submit(waiting, null);
  return { engine, run, id: run.executionId };
}

async function isSuspended(engine: Connection, id: string): Promise<void> {
  await expect.poll(async () => (await engine.executions.describe(id))?.state, SOON).toBe('suspended');
}

test('an ended sleep is not forgotten because of waits left from earlier iterations', async () => {
  const rounds: number[] = [];
  const { engine, run, id } = await started(async (ctx) => {
    for (const round of [0, 1]) {
      const stopped = ctx.waitFor('stop', String(round));
      await Promise.race([ctx.sleep('tick', String(round), '1h'), stopped]);
      rounds.push(round);
    }
    return 'done';
  });
  let end: unknown;
  void run.wait().then((told) => {
    end = told;
  });
  await expect
    .poll(async () => {
      if ((await engine.executions.describe(id))?.state === 'suspended')
        await crew.database.moveClock(HOUR_MS);
      await workerPort(engine).fireTimers();
      return end;
    }, SOON)
    .toMatchObject({ outcome: 'success', result: 'done' });
  expect(new Set(rounds)).toEqual(new Set([0, 1]));
});

/** Takes its time, and accepts everything. */
const slow: Schema<unknown, unknown> & object = {
  '~standard': {
    version: 1,
    vendor: 'slow',
    async validate(value: unknown) {
      await new Promise((resolve) => setImmediate(() => setImmediate(resolve)));
      return { value };
    },
    jsonSchema: { input: () => ({}) },
  },
} as never;

test.each([
  ['two waits', (ctx: TaskContext) => ctx.waitFor('b', { schema: slow as never }).then(() => 'b'), 'b'],
  ['a wait and a sleep', (ctx: TaskContext) => ctx.sleep('s', '1h').then(() => 's'), 's'],
])('%s: the first winner wins again, even when the other has finished since', async (_, other, winner) => {
  const winners: string[] = [];
  const { engine, run, id } = await started(async (ctx) => {
    const won = await Promise.race([ctx.waitFor('a').then(() => 'a'), other(ctx)]);
    winners.push(won);
    const first = await ctx.step('first', () => won);
    await ctx.waitFor('rest');
    return { won, first };
  });
  await isSuspended(engine, id);
  if (winner === 'b') await engine.waitpoints.approve(id, 'b', { by: 'ann' });
  else await crew.database.moveClock(HOUR_MS);
  await workerPort(engine).fireTimers();
  await expect.poll(() => winners.length, SOON).toBe(1);
  await isSuspended(engine, id);
  await engine.waitpoints.approve(id, 'a', { by: 'ann' });
  await expect.poll(() => winners.length, SOON).toBe(2);
  await isSuspended(engine, id);
  await engine.waitpoints.approve(id, 'rest', { by: 'ann' });
  expect(await run.wait()).toMatchObject({ result: { won: winner, first: winner } });
});

test('a wait inside a step times out, and takes the execution from its worker', async () => {
  const { engine, id, run } = await started((ctx) =>
    ctx.step('asking', () => ctx.waitFor('answer', { timeout: '1s', onTimeout: 'cancel' })),
  );
  await expect
    .poll(async () => (await engine.waitpoints.list({ executionId: id })).waitpoints.length, SOON)
    .toBe(1);
  await crew.database.moveClock(1_000);
  expect(await run.wait()).toMatchObject({ outcome: 'cancelled', message: 'suspension_timeout:answer' });
});

test('a schema that createWaitpoint was not given is refused before anything waits', async () => {
  const engine = await crew.connect({ signingSecret: 'a secret that is used only by these tests' });
  const early = task<null>(newKind(), { retry: { maxRetries: 0 } });
  const schema = { type: 'number' };
  crew.work(engine, {
    handlers: [
      handle(early, async (_, ctx) => {
        await ctx.createWaitpoint('paid');
        await ctx.waitFor('paid', { schema });
      }),
    ],
  });
  const run = await engine.submit(early, null);
  expect(await run.wait()).toMatchObject({
    outcome: 'failed',
    message: expect.stringContaining('must be passed to createWaitpoint, too') as string,
  });
});

test('a payload that the schema’s code refuses fails the execution, and nothing else', async () => {
  const refusing = {
    '~standard': {
      version: 1,
      vendor: 'refusing',
      validate: () => ({ issues: [{ message: 'no' }] }),
      jsonSchema: { input: () => ({}) },
    },
  };
  const strays: unknown[] = [];
  const onStray = (stray: unknown): void => void strays.push(stray);
  process.on('unhandledRejection', onStray);
  const { engine, run, id } = await started((ctx) => ctx.waitFor('a', { schema: refusing as never }));
  await isSuspended(engine, id);
  await engine.waitpoints.approve(id, 'a', { by: 'ann' });
  expect(await run.wait()).toMatchObject({
    outcome: 'failed',
    message: expect.stringContaining('Signal "approved" at "a": payload: no') as string,
  });
  process.off('unhandledRejection', onStray);
  expect(strays).toEqual([]);
});
