/**
 * Handlers that fail in every way a handler can: each failure is reported, retried according to the policy, and affects
 * nothing else.
 */
import { describe, expect, test } from 'vitest';
import { TaskFailed } from '../../src/worker/task.ts';
import type { ExecutionId } from '../../src/contract/ids.ts';
import type { Connection } from '../../src/connect/connection.ts';
import type { Worker } from '../../src/worker/options.ts';
import { AGAIN, newKind, resultOf, SOON, useCrew, uuidOf } from './crew.ts';

const crew = useCrew();

/** Runs one execution whose first attempt does this and whose later attempts succeed. */
async function failingOnce(
  first: () => unknown,
  policy: object = AGAIN,
): Promise<{ engine: Connection; worker: Worker; executionId: ExecutionId }> {
  const engine = await crew.connect();
  const kind = newKind();
  const worker = crew.work(engine, {
    handlers: { [kind]: ({ attemptIndex }) => (attemptIndex === 0 ? first() : 'later') },
  });
  const { executionId } = await engine.executions.submit({ kind, policy });
  return { engine, worker, executionId };
}

function throwing(thrown: unknown): () => never {
  return () => {
    throw thrown;
  };
}

test('an error is retried according to the policy, and is kept with its attempt', async () => {
  const { engine, executionId } = await failingOnce(throwing(new Error('the disk is full')));
  await expect
    .poll(() => engine.executions.result(executionId), SOON)
    .toEqual({ outcome: 'success', result: 'later' });
  const found = await engine.executions.describe(executionId);
  expect(found).toMatchObject({ attemptIndex: 1, retryCount: 1, reclaimCount: 0 });
  expect(found!.attempts).toMatchObject([
    { attemptIndex: 0, outcome: 'failed', failureMessage: 'the disk is full', failureCategory: 'transient' },
    { attemptIndex: 1, outcome: 'success' },
  ]);
});

class OutOfStock extends Error {}

test('an error keeps its class, its causes and the place it was thrown at, for each attempt', async () => {
  const engine = await crew.connect();
  const kind = newKind();
  crew.work(engine, {
    handlers: {
      [kind]: ({ attemptIndex, step }) =>
        step('reserve', () => {
          const cause = new TypeError('no shelf', { cause: new Error('aisle 7 is closed') });
          throw attemptIndex === 0 ? new OutOfStock('none left', { cause }) : new RangeError('gone');
        }),
    },
  });
  const policy = { retry: { ...AGAIN.retry, maxRetries: 1 } };
  const { executionId } = await engine.executions.submit({ kind, policy });
  await expect.poll(() => resultOf(engine, executionId), SOON).toBe('failed');
  const { attempts } = (await engine.executions.describe(executionId))!;
  const here = /failing\.test\.ts:\d+:\d+/;
  expect(attempts.map(({ failureDetail }) => failureDetail)).toEqual([
    {
      name: 'OutOfStock',
      stack: expect.stringMatching(here),
      causes: [
        { name: 'TypeError', message: 'no shelf', at: expect.stringMatching(here) },
        { name: 'Error', message: 'aisle 7 is closed', at: expect.stringMatching(here) },
      ],
    },
    { name: 'RangeError', stack: expect.stringMatching(here), causes: [] },
  ]);
});

test('a step keeps how long it took', async () => {
  const engine = await crew.connect();
  const kind = newKind();
  crew.work(engine, {
    handlers: {
      async [kind](ctx) {
        await ctx.step('one', () => 1);
        await ctx.tx('two', () => Promise.resolve(2));
        await ctx.sleep('three', 1);
      },
    },
  });
  const { executionId } = await engine.executions.submit({ kind });
  await expect.poll(() => resultOf(engine, executionId), SOON).toBe('success');
  const steps = await engine.executions.listSteps(executionId);
  expect(steps.map(({ name, durationMs }) => [name, durationMs !== null])).toEqual([
    ['one', true],
    ['two', true],
    ['three', false],
  ]);
});

test('an error without retries left is terminal', async () => {
  const { engine, executionId, worker } = await failingOnce(throwing(new Error('no')), {});
  await expect
    .poll(() => engine.executions.result(executionId), SOON)
    .toEqual({
      outcome: 'failed',
      message: 'no',
      category: 'transient',
      by: worker.workerInstanceId,
    });
});

describe('a TaskFailed decides how it is treated', () => {
  test('no retry, whatever the policy allows', async () => {
    const { engine, executionId } = await failingOnce(
      throwing(new TaskFailed('bad card', { retry: 'never', category: 'declined' })),
    );
    await expect
      .poll(() => engine.executions.result(executionId), SOON)
      .toMatchObject({ outcome: 'failed', message: 'bad card', category: 'declined' });
  });

  test('a category the policy does not retry is terminal', async () => {
    const { engine, executionId } = await failingOnce(throwing(new TaskFailed('no', { category: 'b' })), {
      retry: { ...AGAIN.retry, retryableCategories: ['a'] },
    });
    await expect.poll(() => resultOf(engine, executionId), SOON).toBe('failed');
  });

  test('a category the policy retries is retried', async () => {
    const { engine, executionId } = await failingOnce(throwing(new TaskFailed('no', { category: 'a' })), {
      retry: { ...AGAIN.retry, retryableCategories: ['a'] },
    });
    await expect.poll(() => resultOf(engine, executionId), SOON).toBe('success');
  });

  test('its own delay instead of the policy’s', async () => {
    const { engine, executionId } = await failingOnce(
      throwing(new TaskFailed('busy', { retryAfter: 3_600_000 })),
    );
    await expect
      .poll(() => engine.executions.describe(executionId), SOON)
      .toMatchObject({ state: 'delayed', attemptIndex: 1 });
    const found = (await engine.executions.describe(executionId))!;
    // Counted from when the failure was decided, a moment before it was written.
    expect(found.eligibleAtMs!).toBeGreaterThan(found.changedAtMs + 3_500_000);
    expect(found.eligibleAtMs!).toBeLessThanOrEqual(found.changedAtMs + 3_600_000);
  });
});

describe('whatever a handler throws ends its attempt', () => {
  const thrown: [string, unknown][] = [
    ['a string', 'only text'],
    ['nothing', undefined],
    ['null', null],
    ['a symbol', Symbol('thrown')],
    ['an object that cannot be printed', Object.create(null)],
    ['an error without a message', Object.assign(new Error('x'), { message: '' })],
    ['an error whose message is not a string', Object.assign(new Error('x'), { message: 42 })],
    ['an error with a message that Postgres cannot store', new Error('before\u0000after \ud800')],
    ['an error with a very long message', new Error('m'.repeat(100_000))],
    ['a TaskFailed with a delay that is none', new TaskFailed('busy', { retryAfter: 'soon' })],
    ['a TaskFailed with a negative delay', new TaskFailed('busy', { retryAfter: -1 })],
    ['a TaskFailed without a category', new TaskFailed('busy', { category: '' })],
  ];
  test.each(thrown)('%s', async (_, value) => {
    const { engine, worker, executionId } = await failingOnce(throwing(value));
    await expect
      .poll(() => worker.stats.retryScheduled + worker.stats.failed + worker.stats.lost, SOON)
      .toBe(1);
    expect(worker.stats.lost).toBe(0);
    const [attempt] = (await engine.executions.describe(executionId))!.attempts;
    expect(attempt).toMatchObject({ outcome: 'failed', failureMessage: expect.stringMatching(/./) });
  });
});

describe('a result that cannot be stored fails terminally, with a reason', () => {
  const cycle: Record<string, unknown> = {};
  cycle['self'] = cycle;
  const results: [string, () => unknown, RegExp][] = [
    ['a function', () => () => 1, /result is a function, which is not JSON/],
    ['a bigint deep inside', () => ({ a: [{ b: 1n }] }), /result\.a\[0\]\.b is a bigint/],
    ['not a number', () => Number.NaN, /result is NaN/],
    ['a value that contains itself', () => cycle, /nested deeper than/],
    ['too much', () => 'x'.repeat(1_048_577), /the limit is 1048576/],
    [
      'a value that refuses to become JSON',
      () => ({
        toJSON() {
          throw new Error('refuses to become JSON');
        },
      }),
      /result has a toJSON that threw/,
    ],
  ];
  test.each(results)('%s', async (_, make, message) => {
    const { engine, worker, executionId } = await failingOnce(make);
    await expect.poll(() => worker.stats.failed + worker.stats.lost, SOON).toBe(1);
    expect(await engine.executions.result(executionId)).toMatchObject({
      outcome: 'failed',
      category: 'permanent',
      message: expect.stringMatching(message),
    });
  });
});

test('an execution the database refuses to change does not affect others in its batch', async () => {
  const engine = await crew.connect();
  const kind = newKind();
  const all: (() => void)[] = [];
  const worker = crew.work(engine, {
    handlers: { [kind]: () => new Promise<void>((resolve) => all.push(resolve)) },
  });
  const submitted = await engine.executions.submit(Array.from({ length: 4 }, () => ({ kind })));
  await expect.poll(() => all.length, SOON).toBe(4);
  const [bad, ...good] = submitted.map(({ executionId }) => executionId);
  await crew.database.query(`
    CREATE FUNCTION refuse_one() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN RAISE EXCEPTION 'planted' USING ERRCODE = 'ZZ001'; END $$;
    CREATE TRIGGER refuse_one BEFORE UPDATE ON ff_execution FOR EACH ROW
      WHEN (OLD.execution_id = '${uuidOf(bad!)}') EXECUTE FUNCTION refuse_one()`);
  // All in one turn, so that they are reported in one statement.
  for (const finish of all) finish();
  await expect.poll(() => worker.stats.completed, SOON).toBe(3);
  const outcomes = await Promise.all(good.map((id) => resultOf(engine, id)));
  expect(outcomes).toEqual(['success', 'success', 'success']);
  // The handler succeeded, so this is not reported as a failure: its report is retried as long as the lease lasts.
  await crew.database.query('DROP FUNCTION refuse_one CASCADE');
  await expect.poll(() => resultOf(engine, bad!), SOON).toBe('success');
});
