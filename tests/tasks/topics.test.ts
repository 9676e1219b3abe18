/**
 * `ctx.topic` in handlers: what it returns, that a long wait frees the worker, and that the same topic can be waited for
 * again.
 */
import { expect, test } from 'vitest';
import { handle } from '../../src/define/handlers.ts';
import { task } from '../../src/define/task.ts';
import { workerPort } from '../../src/connect/port.ts';
import { newKind, SOON, useCrew } from '../worker/crew.ts';

const crew = useCrew();
let topics = 0;
const newTopic = (): string => `shipment.packed:${(topics += 1)}`;

test('a handler waits for a topic without a worker, and receives what is published, once for each call', async () => {
  const engine = await crew.connect();
  const topic = newTopic();
  const shipping = task<null, string[]>(newKind());
  const worker = crew.work(engine, {
    handlers: [
      handle(shipping, async (_, ctx) => {
        const first = await ctx.topic<string>(topic);
        const second = await ctx.topic<string>(topic);
        return [first.data, second.data];
      }),
    ],
  });
  const run = await engine.submit(shipping, null);
  await expect
    .poll(async () => (await engine.executions.describe(run.executionId))?.state, SOON)
    .toBe('suspended');
  await expect.poll(() => worker.running, SOON).toBe(0);
  await engine.publish(topic, 'packed');
  await expect.poll(async () => (await engine.executions.describe(run.executionId))?.stepCount, SOON).toBe(2);
  await expect
    .poll(async () => (await engine.executions.describe(run.executionId))?.state, SOON)
    .toBe('suspended');
  await engine.publish(topic, 'shipped');
  expect(await run.result()).toEqual(['packed', 'shipped']);
});

test('what was published before is returned at once, parsed by the schema', async () => {
  const engine = await crew.connect();
  const topic = newTopic();
  await engine.publish(topic, { at: 5 });
  const later = task<null, number>(newKind());
  const schema = {
    '~standard': {
      version: 1 as const,
      vendor: 'test',
      validate: (value: unknown) => ({ value: (value as { at: number }).at * 2 }),
    },
  };
  crew.work(engine, {
    handlers: [handle(later, async (_, ctx) => (await ctx.topic(topic, { schema })).data)],
  });
  expect(await (await engine.submit(later, null)).result()).toBe(10);
});

test('a timeout is an outcome', async () => {
  const engine = await crew.connect();
  const topic = newTopic();
  const impatient = task<null, string>(newKind());
  crew.work(engine, {
    handlers: [
      handle(impatient, async (_, ctx) => {
        const { outcome, data } = await ctx.topic(topic, { timeout: '1h' });
        return `${outcome} ${data}`;
      }),
    ],
  });
  const run = await engine.submit(impatient, null);
  await expect
    .poll(async () => (await engine.executions.describe(run.executionId))?.state, SOON)
    .toBe('suspended');
  await crew.database.moveClock(3_600_000);
  await workerPort(engine).fireTimers();
  expect(await run.result()).toBe('timed_out undefined');
});

test('a topic that cannot be one fails the execution with a sentence', async () => {
  const engine = await crew.connect();
  const wrong = task<null, string>(newKind(), { retry: { maxRetries: 0 } });
  crew.work(engine, {
    handlers: [handle(wrong, async (_, ctx) => (await ctx.topic<string>('')).data)],
  });
  expect(await (await engine.submit(wrong, null)).wait()).toMatchObject({
    outcome: 'failed',
    message: expect.stringContaining('topic must be a string of 1 to 120 bytes'),
  });
});
