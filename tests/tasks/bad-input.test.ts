/**
 * What users of tasks can get wrong, and the messages they get: each names the task, the execution if there is one,
 * what is wrong and, where it is not obvious, what to do.
 */
import { describe, expect, test } from 'vitest';
import type { Connection } from '../../src/connect/connection.ts';
import type { ExecutionEnd } from '../../src/contract/executions.ts';
import type { ExecutionId } from '../../src/contract/ids.ts';
import type { Schema } from '../../src/contract/shape/schema.ts';
import { task, type TaskOptions } from '../../src/define/task.ts';
import type { TaskContext } from '../../src/define/task-context.ts';
import { handle } from '../../src/define/handlers.ts';
import { startWorker } from '../../src/connect/worker.ts';
import { AGAIN, newKind, useCrew, uuidOf } from '../worker/crew.ts';

const crew = useCrew();

/** A hand-written Standard Schema: an object with a positive `amount`, which is rounded to a whole number. */
const PRICE: Schema<{ amount: number }, { amount: number }> = {
  '~standard': {
    version: 1,
    vendor: 'by hand',
    validate(value) {
      const { amount } = (value ?? {}) as { amount?: unknown };
      if (typeof amount !== 'number') return { issues: [{ message: 'must be a number', path: ['amount'] }] };
      if (amount > 0) return { value: { amount: Math.round(amount) } };
      return {
        issues: [
          { message: 'must be more than nothing', path: [{ key: 'amount' }] },
          { message: 'was refused by the bank too' },
        ],
      };
    },
  },
};

interface Ended {
  engine: Connection;
  name: string;
  executionId: ExecutionId;
  end: ExecutionEnd;
  message: string;
  attempts: number;
}

/** Submits one execution without any check of its input, and waits until it finishes. */
async function runOnce(
  run: (input: never, ctx: TaskContext) => unknown,
  options: TaskOptions<never, never, unknown, unknown> = {},
  payload: unknown = null,
): Promise<Ended> {
  const engine = await crew.connect();
  const name = newKind();
  const contract = task<never, never, unknown, unknown>(name, { retry: AGAIN.retry, ...options });
  crew.work(engine, { handlers: [handle(contract, run)] });
  const { executionId } = await engine.executions.submit({ ...contract.defaults, payload });
  const end = await engine.executions.wait(executionId);
  const attempts = (await engine.executions.describe(executionId))!.attemptIndex + 1;
  const message = end.outcome === 'success' ? '' : (end.message ?? '');
  return { engine, name, executionId, end, message, attempts };
}

describe('input and output against their schemas', () => {
  test('input that does not match its schema is refused at submit, with the path and the count', async () => {
    const engine = await crew.connect();
    const pay = task('pay', { input: PRICE });
    await expect(engine.submit(pay, { amount: 'ten' as never })).rejects.toMatchObject({
      code: 'invalid_input',
      field: 'input.amount',
      message: 'Task pay: input.amount: must be a number.',
    });
    await expect(
      engine.submitMany(pay, [{ input: { amount: 1 } }, { input: { amount: -1 } }]),
    ).rejects.toThrow('input.amount: must be more than nothing (and 1 more).');
    const { rows } = await crew.database.query(
      `SELECT 1 FROM ff_execution JOIN ff_route USING (route_id) WHERE kind = 'pay'`,
    );
    expect(rows).toEqual([]);
  });

  test('stored input that does not match fails the execution without a retry', async () => {
    const { name, executionId, end, message, attempts } = await runOnce(
      () => 'unreached',
      { input: PRICE as never },
      { amount: 'ten' },
    );
    expect(end).toMatchObject({ outcome: 'failed', category: 'invalid_input' });
    expect(message).toBe(`Task ${name} (${executionId}): input.amount: must be a number.`);
    expect(attempts).toBe(1);
  });

  test('output that does not match fails it too', async () => {
    const { name, executionId, end, message, attempts } = await runOnce(() => ({ amount: 0 }), {
      output: PRICE as never,
    });
    expect(end).toMatchObject({ outcome: 'failed', category: 'invalid_output' });
    expect(message).toContain(`Task ${name} (${executionId}): output.amount: must be more than nothing`);
    expect(attempts).toBe(1);
  });

  test('the handler gets the parsed input, and the parsed output is stored', async () => {
    const { end } = await runOnce(
      (input: { amount: number }) => ({ amount: input.amount + 0.4 }),
      { input: PRICE as never, output: PRICE as never },
      { amount: 1.6 },
    );
    expect(end).toEqual({ outcome: 'success', result: { amount: 2 } });
  });

  test('an invalid schema is refused when the task is defined', () => {
    expect(() => task('pay', { input: { parse: () => undefined } as never })).toThrow(
      'options.input must be a Standard Schema, such as one of zod, valibot or arktype.',
    );
    expect(() => task('pay', { timeout: '500' })).toThrow(
      "options.timeout must be a duration from 0 to 315360000000 ms, such as '90s', '1h30m', { minutes: 5 } or 500.",
    );
    expect(() => task('pay', { retries: 3 } as never)).toThrow(
      /options.retries is not a known setting \(known: .*retry/,
    );
    expect(() => task('')).toThrow('name must be a string of 1 to 128 printable ASCII characters');
    expect(() => task('pay', { retry: { maxRetries: -1 } })).toThrow('options.retry.maxRetries must be');
  });
});

/** Values that JSON cannot represent. */
function cycle(): object {
  const loop: Record<string, unknown> = {};
  loop['self'] = loop;
  return loop;
}

const NOT_JSON: [string, () => unknown, RegExp][] = [
  ['a bigint', () => ({ total: 10n }), /\.total is a bigint, which is not JSON/],
  ['a cycle', cycle, /is nested deeper than 64 levels, or contains itself/],
  ['a Map', () => ({ by: new Map() }), /\.by is a Map, of which JSON would keep nothing/],
  ['a function', () => () => 1, /is a function, which is not JSON/],
];

describe.each(NOT_JSON)('%s', (_, make, said) => {
  test('as a result is a terminal failure that says so', async () => {
    const { name, executionId, end, message, attempts } = await runOnce(make);
    expect(end).toMatchObject({ outcome: 'failed', category: 'permanent' });
    expect(message).toMatch(said);
    expect(message).toContain(`Task ${name} (${executionId}): result`);
    expect(attempts).toBe(1);
  });

  test('as the value of a step rejects in the handler, and the error names the step', async () => {
    const { name, executionId, end, engine } = await runOnce(async (_input, ctx) =>
      Promise.all(
        [ctx.step('total', 'a', make), ctx.tx('total', 'b', async () => make())].map((made) =>
          made.catch((error: unknown) => (error as Error).message),
        ),
      ),
    );
    expect(end.outcome).toBe('success');
    const { result } = end as { result: string[] };
    expect(result[0]).toContain(
      `Task ${name} (${executionId}): step "total [a]" cannot be stored: step.value`,
    );
    expect(result[1]).toContain(
      `Task ${name} (${executionId}): step "total [b]" cannot be stored: step.value`,
    );
    for (const sentence of result) expect(sentence).toMatch(said);
    expect(await engine.executions.listSteps(executionId)).toEqual([]);
  });
});

test('a thrown value that is not an Error is stored, and retried like one', async () => {
  const { message, attempts } = await runOnce(() => {
    // oxlint-disable-next-line no-throw-literal -- what is tested here
    throw { code: 7 };
  });
  expect(message).toBe('A handler threw a value that is not an Error: { code: 7 }');
  expect(attempts).toBe(AGAIN.retry.maxRetries + 1);
});

describe('steps used in a way that cannot be replayed', () => {
  const fails = (run: (ctx: TaskContext) => unknown) =>
    runOnce((_, ctx) => run(ctx), { retry: { maxRetries: 0 } });

  test('the same name and key twice', async () => {
    const { name, executionId, message } = await fails(async (ctx) => {
      for (const part of [1, 2]) await ctx.step('charge', 'card', () => part);
    });
    expect(message).toBe(
      `Task ${name} (${executionId}): "charge [card]" is used twice in one run; ` +
        `in a loop give each round a key: ctx.step('charge', String(i), …).`,
    );
  });

  test('a step and a sleep with the same name', async () => {
    const { message } = await fails(async (ctx) => {
      await ctx.step('same', () => 1);
      await ctx.sleep('same', '1ms');
    });
    expect(message).toContain('"same" is used twice in one run');
  });

  test('two children of one task without keys', async () => {
    const child = task<null>(newKind());
    const { message } = await fails((ctx) => Promise.all([ctx.spawn(child, null), ctx.spawn(child, null)]));
    expect(message).toContain(
      `"${child.name}" is used twice in one run; tell the children apart by a key: ctx.spawn(task, input, { key })`,
    );
  });

  test('a step that an earlier run stored as a sleep', async () => {
    const { name, executionId, message } = await runOnce(async (_, ctx) => {
      if (ctx.attemptIndex > 0) return ctx.step('wait', () => 1);
      await ctx.sleep('wait', '1ms');
      throw new Error('again');
    });
    expect(message).toBe(
      `Task ${name} (${executionId}): "wait" was stored as a sleep by an earlier run and is now used as a step; ` +
        'give the new one another name.',
    );
  });

  test.each([
    ['no name', (ctx: TaskContext) => ctx.step('', () => 1), 'ctx.step needs a name first'],
    ['no function', (ctx: TaskContext) => ctx.step('a', 5 as never), 'ctx.step needs a function'],
    [
      'a transaction without a function',
      (ctx: TaskContext) => ctx.tx('a', 5 as never),
      'ctx.tx needs a function',
    ],
    [
      'a sleep without a unit',
      (ctx: TaskContext) => ctx.sleep('a', '5'),
      "ctx.sleep('a'): duration must be a duration from 0 to 315360000000 ms",
    ],
    [
      'a sleep until no date',
      (ctx: TaskContext) => ctx.sleepUntil('a', new Date('tomorrow')),
      "ctx.sleepUntil('a'): date must be a valid Date",
    ],
    [
      'a key that is not a string',
      (ctx: TaskContext) => ctx.step('a', 5 as never, () => 1),
      'ctx.step needs a string as the key of "a": use String(…)',
    ],
    [
      'a name that is too long',
      (ctx: TaskContext) => ctx.step('n'.repeat(200), () => 1),
      'ctx.step: name must be a string of 1 to 128 bytes without NUL',
    ],
    [
      'no task',
      (ctx: TaskContext) => ctx.spawn('child' as never, null),
      'ctx.spawn needs a task made by task()',
    ],
    [
      'retries that are not a number',
      (ctx: TaskContext) => ctx.step('a', () => 1, { retry: { maxRetries: -1 } }),
      "ctx.step('a'): options.retry.maxRetries must be a whole number",
    ],
  ])('%s', async (_, misuse, said) => {
    const { name, executionId, message } = await fails(misuse);
    expect(message).toContain(`Task ${name} (${executionId}): `);
    expect(message).toContain(said);
  });

  test('a child whose input does not match its schema', async () => {
    const child = task(newKind(), { input: PRICE });
    const { message } = await fails((ctx) => ctx.spawn(child, { amount: -1 }));
    expect(message).toContain(`Task ${child.name}: input.amount: must be more than nothing`);
  });
});

describe('workers and what they can run', () => {
  test('work of a kind without a handler waits, and runs once a worker has one', async () => {
    const engine = await crew.connect({ reconcile: 'on' });
    const [known, unknown] = [newKind(), newKind()];
    crew.work(engine, { poll: 10, handlers: { [known]: () => 'done' } });
    const [first, second] = await engine.executions.submit([{ kind: unknown }, { kind: known }]);
    await engine.executions.wait(second!.executionId);
    expect(await engine.executions.describe(first!.executionId)).toMatchObject({
      state: 'waiting',
      attemptIndex: 0,
    });
    expect(await crew.eventsOf(first!.executionId)).toEqual([]);
    crew.work(engine, { handlers: { [unknown]: () => 'at last' } });
    expect(await engine.executions.wait(first!.executionId)).toEqual({
      outcome: 'success',
      result: 'at last',
    });
  });

  test('two handlers for one task are refused before anything is claimed', async () => {
    const engine = await crew.connect();
    const twice = task<null>('twice');
    const handlers = [handle(twice, () => 1), handle(twice, () => 2)];
    expect(() => startWorker(engine, { handlers })).toThrow(
      'handlers[1] is a second handler for task twice.',
    );
    expect(() => startWorker(engine, { handlers: [] })).toThrow(/at least one handle\(task, function\)/);
    expect(() => startWorker(engine, { handlers: [() => 1] as never })).toThrow(
      'handlers[0] must come from handle(task, function).',
    );
    expect(() => handle(twice, 'run' as never)).toThrow('run of task twice must be a function.');
  });
});

describe('time limits', () => {
  test('a handler that blocks its process past the lease writes nothing', async () => {
    const engine = await crew.connect({ reconcile: 'on' });
    const busy = task<null>(newKind(), { retry: AGAIN.retry });
    crew.work(engine, {
      lease: 200,
      handlers: [
        handle(busy, (_, ctx) =>
          ctx.step('block', () => {
            if (ctx.attemptIndex > 0) return 'in time';
            const until = performance.now() + 400;
            while (performance.now() < until);
            return 'too late';
          }),
        ),
      ],
    });
    const { executionId } = await engine.submit(busy, null);
    expect(await engine.executions.wait(executionId)).toEqual({ outcome: 'success', result: 'in time' });
    const { rows } = await crew.database.query(
      'SELECT attempt_index, value FROM ff_step WHERE execution_id = $1',
      [uuidOf(executionId)],
    );
    expect(rows).toEqual([{ attempt_index: expect.toSatisfy((n: number) => n > 0), value: 'in time' }]);
  });

  test('a step that takes too long is aborted, and its failure names it', async () => {
    let reason: unknown;
    const { message, end } = await runOnce(
      (_, ctx) =>
        ctx.step(
          'slow',
          ({ signal }) =>
            new Promise(() => {
              signal.addEventListener('abort', () => {
                reason = signal.reason;
              });
            }),
          { timeout: '20ms' },
        ),
      { retry: { maxRetries: 0 } },
    );
    expect(end).toMatchObject({ outcome: 'failed', category: 'timeout' });
    expect(message).toBe('Step "slow" took longer than 20 ms. (in step "slow")');
    expect(reason).toMatchObject({ message: 'Step "slow" took longer than 20 ms.' });
  });

  test('a step is retried in place as often as its options allow, and then fails its attempt', async () => {
    const tries: [attempt: number, index: number][] = [];
    const { attempts, message } = await runOnce(
      (_, ctx) =>
        ctx.step(
          'flaky',
          ({ tryIndex }) => {
            tries.push([ctx.attemptIndex, tryIndex]);
            throw new Error(`no luck at try ${tryIndex}`);
          },
          { retry: { maxRetries: 2, backoff: { type: 'fixed', delay: 1 } } },
        ),
      { retry: { maxRetries: 1, backoff: { type: 'fixed', delay: 1 } } },
    );
    expect(tries).toEqual([
      [0, 0],
      [0, 1],
      [0, 2],
      [1, 0],
      [1, 1],
      [1, 2],
    ]);
    expect([attempts, message]).toEqual([2, expect.stringMatching(/^no luck at try 2 \(in step ".*"\)$/)]);
  });

  test('an attempt that takes too long fails as a timeout and is retried according to the policy', async () => {
    const codes: unknown[] = [];
    const { end, attempts } = await runOnce(
      (_, ctx) => {
        if (ctx.attemptIndex > 0) return 'in time';
        return new Promise(() => {
          ctx.signal.addEventListener('abort', () =>
            codes.push((ctx.signal.reason as { code: string }).code),
          );
        });
      },
      { timeout: '20ms' },
    );
    expect(end).toEqual({ outcome: 'success', result: 'in time' });
    expect([codes, attempts]).toEqual([['deadline'], 2]);
  });
});
