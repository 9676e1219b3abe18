/**
 * Continuing as a new run: the same id, another input, nothing of the last run but a summary; messages that were not
 * received stay.
 */
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import type { Connection } from '../../src/connect/connection.ts';
import { workerPort } from '../../src/connect/port.ts';
import type { ExecutionId } from '../../src/contract/ids.ts';
import { handle } from '../../src/define/handlers.ts';
import { task } from '../../src/define/task.ts';
import type { TaskContext } from '../../src/define/task-context.ts';
import { AGAIN, newKind, SOON, useCrew, uuidOf } from '../worker/crew.ts';

const crew = useCrew();

async function stateOf(engine: Connection, id: string): Promise<string | undefined> {
  return (await engine.executions.describe(id))?.state;
}

/** Submits a task that begins with 0. */
async function running(work: (n: number, ctx: TaskContext<number>) => Promise<unknown>) {
  const engine = await crew.connect();
  const kind = task<number>(newKind(), AGAIN);
  const run = await engine.submit(kind, 0);
  const worker = crew.work(engine, { handlers: [handle(kind, work)] });
  return { engine, run, worker, id: run.executionId, kind };
}

async function countOf(id: ExecutionId, table: string): Promise<number> {
  const { rows } = await crew.database.query<{ n: number }>(
    `SELECT count(*)::integer AS n FROM ${table} WHERE execution_id = $1`,
    [uuidOf(id)],
  );
  return rows[0]!.n;
}

describe('a run that continues', () => {
  test('begins again with its new input, without the steps of the last run and with new retries', async () => {
    const seen: [number, number, boolean][] = [];
    const { engine, run, id } = await running(async (n, ctx) => {
      seen.push([n, ctx.attemptIndex, ctx.resumed]);
      const made = await ctx.step('same name', () => n * 10);
      if (n === 1 && ctx.attemptIndex < 3) throw new Error('once more');
      return n < 3 ? ctx.continueAs(n + 1) : made;
    });
    expect(await run.result()).toBe(30);
    expect(seen).toEqual([
      [0, 0, false],
      [1, 1, false],
      [1, 2, false],
      [1, 3, false],
      [2, 4, false],
      [3, 5, false],
    ]);
    const described = (await engine.executions.describe(id, { include: ['runs', 'steps', 'input'] }))!;
    expect(described).toMatchObject({ retryCount: 0, replayCount: 0, input: 3, stepCount: 1 });
    expect(described.runs).toMatchObject({
      truncated: false,
      items: [
        { run: 1n, attempts: 1, steps: 1, messages: 0 },
        { run: 2n, attempts: 3, steps: 1 },
        { run: 3n, attempts: 1, steps: 1 },
      ],
    });
    expect((await crew.eventsOf(id)).filter((event) => event === 'signal.continued')).toHaveLength(3);
  });

  test('keeps the messages that it has not received, in order', async () => {
    const received: string[] = [];
    const { engine, run, id } = await running(async (n, ctx) => {
      for await (const { payload } of ctx.inbox('in')) {
        if (payload === 'stop') return received.length;
        received.push(`${n}:${String(payload)}`);
        if ((payload as number) % 3 === 0) return ctx.continueAs(n + 1);
      }
      return null;
    });
    for (let n = 1; n <= 8; n += 1) await engine.send(id, 'in', n, { id: `m${n}` });
    expect(await engine.send(id, 'in', 1, { id: 'm1' })).toMatchObject({ outcome: 'duplicate' });
    await engine.send(id, 'in', 'stop');
    await run.result();
    expect(new Set(received)).toEqual(new Set(['0:1', '0:2', '0:3', '1:4', '1:5', '1:6', '2:7', '2:8']));
    expect(await engine.send(id, 'in', 1, { id: 'm1' })).toMatchObject({ outcome: 'duplicate' });
  });

  test('spawns other children than the runs before', async () => {
    const child = task<number>(newKind());
    const engine = await crew.connect();
    const parent = task<number>(newKind());
    const run = await engine.submit(parent, 0);
    crew.work(engine, {
      handlers: [
        handle(child, (n) => n * 2),
        handle(parent, async (n, ctx) => {
          const made = await (await ctx.spawn(child, n)).result();
          return n < 2 ? ctx.continueAs(n + 1) : made;
        }),
      ],
    });
    expect(await run.result()).toBe(4);
  });

  test('receives what a topic keeps, like the run before', async () => {
    const engine = await crew.connect();
    const topic = newKind();
    await engine.publish(topic, 'kept');
    const kind = task<number>(newKind());
    const run = await engine.submit(kind, 0);
    crew.work(engine, {
      handlers: [
        handle(kind, async (n, ctx) => {
          const { data } = await ctx.topic(topic);
          return n === 0 ? ctx.continueAs(1) : data;
        }),
      ],
    });
    expect(await run.result()).toBe('kept');
  });

  test('fails the requests that it received and did not answer', async () => {
    const { engine, id } = await running(async (n, ctx) => {
      await ctx.receive('in');
      return n === 0 ? ctx.continueAs(1) : null;
    });
    await expect(engine.request(id, 'in', 'a question')).rejects.toMatchObject({ code: 'execution_ended' });
    await expect.poll(() => stateOf(engine, id), SOON).toBe('suspended');
  });

  test('keeps summaries of the last 20 runs only, and no attempts of earlier ones', async () => {
    const { engine, run, id } = await running(async (n, ctx) => {
      await ctx.stream.write('one');
      return n < 25 ? ctx.continueAs(n + 1) : n;
    });
    expect(await run.result()).toBe(25);
    const { runs } = (await engine.executions.describe(id, { include: ['runs'] }))!;
    expect(runs.truncated).toBe(true);
    expect(runs.items.map((item) => item.run)).toEqual(Array.from({ length: 20 }, (_, n) => BigInt(n + 6)));
    const { attempts } = await engine.executions.listAttempts(id);
    expect(attempts.map(({ attemptIndex }) => attemptIndex).toSorted((a, b) => a - b)[0]).toBe(5);
    expect(await countOf(id, 'ff_frame')).toBe(21);
  });

  test('refuses an input that does not match its task, for good', async () => {
    const engine = await crew.connect();
    const kind = task(newKind(), { ...AGAIN, input: z.object({ n: z.number() }) });
    const run = await engine.submit(kind, { n: 0 });
    crew.work(engine, { handlers: [handle(kind, (_, ctx) => ctx.continueAs({ n: 'one' } as never))] });
    expect(await run.wait()).toMatchObject({ outcome: 'failed', category: 'invalid_input' });
    expect((await engine.executions.describe(run.executionId))?.attemptIndex).toBe(0);
  });

  test('parses no result, and an input that cannot be stored fails it', async () => {
    const engine = await crew.connect();
    const kind = task(newKind(), { output: z.number(), input: z.number() });
    const run = await engine.submit(kind, 0);
    crew.work(engine, {
      handlers: [
        handle(kind, (n, ctx) => (n === 0 ? ctx.continueAs(1) : (ctx.continueAs(1n as never) as never))),
      ],
    });
    expect(await run.wait()).toMatchObject({ outcome: 'failed' });
    expect((await engine.executions.describe(run.executionId))?.attemptIndex).toBe(1);
  });

  test('that is not returned fails with a sentence that says so', async () => {
    const { run } = await running(async (_, ctx) => {
      const unused: unknown = ctx.continueAs(1);
      return typeof unused;
    });
    const end = await run.wait();
    expect(end).toMatchObject({ outcome: 'failed', category: 'permanent' });
    expect(end).toHaveProperty('message', expect.stringContaining('write return ctx.continueAs(…)'));
  });
});

describe('the worker protocol', () => {
  async function leased() {
    const engine = await crew.connect();
    const kind = newKind();
    const { executionId: id } = await engine.executions.submit({ kind, payload: 0 });
    const port = workerPort(engine);
    const claim = async () => {
      const request = { workerId: 'w', workerInstanceId: 'w-1', kinds: [kind], limit: 1, leaseMs: 60_000 };
      return (await port.claim(request)).claims[0]!;
    };
    return { engine, id, port, claim, lease: await claim() };
  }

  test('continuing twice is the same; another outcome by the same lease is a conflict', async () => {
    const { port, lease, claim } = await leased();
    expect(await port.continueAs(lease, 1)).toEqual({ outcome: 'continued', repeated: false });
    expect(await port.continueAs(lease, 1)).toEqual({ outcome: 'continued', repeated: true });
    expect(await port.complete(lease)).toMatchObject({ outcome: 'conflict' });
    const next = await claim();
    expect(next).toMatchObject({
      payload: 1,
      attemptIndex: 1,
      resumed: false,
      reclaimed: false,
      retryCount: 0,
    });
    await port.complete(next, 'done');
    expect(await port.continueAs(next, 2)).toMatchObject({ outcome: 'conflict' });
    expect(await port.complete(next, 'done')).toMatchObject({ outcome: 'completed', repeated: true });
  });

  /** More than is deleted at once. */
  const leaveSteps = (id: ExecutionId) =>
    crew.database.query(
      `INSERT INTO ff_step (execution_id, partition_key, attempt_index, lease_epoch, recorded_at_ms, kind, name, key, value)
       SELECT execution_id, partition_key, 0, 1, 1, 'step', 's', n::text, '1'
       FROM ff_execution, generate_series(1, 2500) n WHERE execution_id = $1`,
      [uuidOf(id)],
    );

  test('what a run leaves behind is deleted in parts, and the next run begins after the last', async () => {
    const { engine, port, lease, claim, id } = await leased();
    await leaveSteps(id);
    await port.continueAs(lease, 1);
    expect(await countOf(id, 'ff_step')).toBe(1_500);
    expect(await claim()).toBeUndefined();
    const left: number[] = [];
    while ((await port.fireTimers()) > 0) left.push(await countOf(id, 'ff_step'));
    expect(left.at(-1)).toBe(0);
    expect(await claim()).toMatchObject({ payload: 1, attemptIndex: 1 });
    const { runs } = (await engine.executions.describe(id, { include: ['runs'] }))!;
    expect(runs.items).toMatchObject([{ run: 1n, steps: 2_500 }]);
  });

  test('one that was cancelled before that begins without them when it is replayed', async () => {
    const { engine, port, lease, claim, id } = await leased();
    await leaveSteps(id);
    await port.continueAs(lease, 1);
    await engine.cancel(id, { by: 'ann', reason: 'over' });
    await engine.executions.replay(id, { by: 'ann', reason: 'again' });
    expect(await countOf(id, 'ff_step')).toBe(0);
    expect(await claim()).toMatchObject({ payload: 1 });
  });

  test('a lease that is gone continues nothing', async () => {
    const { engine, port, lease, id } = await leased();
    await engine.executions.revokeLease(id, { by: 'ann', reason: 'stuck' });
    expect(await port.continueAs(lease, 1)).toMatchObject({ outcome: 'lease_revoked' });
    expect((await engine.executions.describe(id, { include: ['runs', 'input'] }))!).toMatchObject({
      input: 0,
      runs: { items: [] },
    });
  });
});
