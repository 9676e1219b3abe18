/**
 * Output as a handler writes it and as others read it: in order, once, no faster than the database accepts it, and
 * stored before the handler's outcome, its pause or its finished step becomes visible.
 */
import { describe, expect, test } from 'vitest';
import type { Connection } from '../../src/connect/connection.ts';
import { EngineError } from '../../src/contract/errors.ts';
import type { StreamItem } from '../../src/contract/streams.ts';
import { task } from '../../src/define/task.ts';
import type { TaskContext } from '../../src/define/task-context.ts';
import { handle } from '../../src/define/handlers.ts';
import { TaskAborted } from '../../src/worker/task.ts';
import { deaf, latch, newKind, SOON, useCrew } from '../worker/crew.ts';
import { workerPort } from '../../src/connect/port.ts';
import type { WorkerPort } from '../../src/contract/protocol.ts';

const crew = useCrew();
const NO_RETRY = { retry: { maxRetries: 0 } } as const;
const LEASE_MS = 86_400_000;
const NUMBERS = Array.from({ length: 5_000 }, (_, n) => `${n}`);

/** What a tail yields, in short form. */
function spoken(item: StreamItem): string {
  if (item.type === 'frame') return String(item.frame.payload);
  if (item.type === 'resumed' || item.type === 'superseded')
    return `${item.type} but for ${item.finishedSteps.map(({ name }) => name).join(' ')}`;
  return item.type;
}

async function readAll(items: AsyncIterable<StreamItem>): Promise<string[]> {
  const told: string[] = [];
  for await (const item of items) told.push(spoken(item));
  return told;
}

/** Frames of the first attempt. */
async function framesOf(engine: Connection, id: string): Promise<unknown[]> {
  const { frames } = await engine.streams.read(id, { attemptIndex: 0 });
  return frames.map(({ payload }) => payload);
}

/** Blocks every append until the returned function is called. */
async function holdUp(): Promise<() => Promise<void>> {
  const rival = await crew.database.connect();
  await rival.query('BEGIN');
  await rival.query('LOCK TABLE ff_frame IN SHARE MODE');
  return async () => {
    await rival.query('COMMIT');
    await rival.end();
  };
}

async function appendsHeldUp(): Promise<number> {
  const found = await crew.database.query<{ count: number }>(
    `SELECT count(*) AS count FROM pg_stat_activity
     WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%ff_append_frame%'`,
  );
  return found.rows[0]!.count;
}

/** One run of a handler. */
async function running(work: (ctx: TaskContext) => Promise<unknown>, hearing: 'told' | 'deaf' = 'told') {
  const engine = await crew.connect();
  const writing = task<null>(newKind(), NO_RETRY);
  const worker = crew.work(hearing === 'deaf' ? deaf(engine) : engine, {
    lease: LEASE_MS,
    poll: 20,
    handlers: [handle(writing, (_, ctx) => work(ctx))],
  });
  const run = await engine.submit(writing, null);
  return { engine, worker, run, id: run.executionId };
}

async function* numbered(count: number): AsyncGenerator<string> {
  for (const number of NUMBERS.slice(0, count)) yield number;
}

function aborted(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason as Error)));
}

describe('output', () => {
  test('is read in order by every tail, before the outcome is known', async () => {
    const { engine, run, id } = await running(async (ctx) => {
      const piped = await ctx.stream.pipe(numbered(2_500), { type: 'token' });
      const web = await ctx.stream.pipe(ReadableStream.from(['x', 'y']));
      void ctx.stream.write('z');
      return piped + web;
    });
    const tailing = readAll(engine.streams.tail(id));
    expect(await run.result()).toBe(2_502);
    expect(await tailing).toEqual([...NUMBERS.slice(0, 2_500), 'x', 'y', 'z', 'closed']);
  });

  test('is stored as it was when it was written, with its type and encoding', async () => {
    const { engine, run, id } = await running(async (ctx) => {
      const [value, bytes] = [{ n: 1 }, Uint8Array.of(0, 255)];
      const writes = [
        ctx.stream.write(value, { correlationId: 'c' }),
        ctx.stream.write(bytes, { mode: 'best_effort', type: 'level' }),
        ctx.stream.patch({ done: false }),
      ];
      value.n = 2;
      bytes.fill(1);
      await Promise.all(writes);
    });
    await run.result();
    const { frames } = await engine.streams.read(id);
    expect(frames).toMatchObject([
      { payload: { n: 1 }, correlationId: 'c', mode: 'durable', frameType: 'event', step: null },
      { payload: Buffer.of(0, 255), mode: 'best_effort', frameType: 'level' },
      { payload: { done: false }, mode: 'summary', summaryVersion: 1 },
    ]);
  });

  test('is also delivered when the handler fails', async () => {
    const { engine, run, id } = await running(async (ctx) => {
      void ctx.stream.write('last words');
      throw new Error('broken');
    });
    expect(await run.wait()).toMatchObject({ outcome: 'failed' });
    expect(await framesOf(engine, id)).toEqual(['last words']);
  });

  test('waits for a blocked database, and so does the handler', async () => {
    const release = await holdUp();
    const taken = { count: 0 };
    const { engine, run, id } = await running(async (ctx) => {
      for await (const chunk of numbered(5_000)) {
        await ctx.stream.write(chunk);
        taken.count += 1;
      }
    });
    await expect.poll(appendsHeldUp, SOON).toBe(1);
    // The append in progress, and as much again in the buffer.
    await expect.poll(() => taken.count, SOON).toBe(2_000);
    expect(await appendsHeldUp()).toBe(1);
    expect(taken.count).toBe(2_000);
    await release();
    await run.result();
    const { frames } = await engine.streams.read(id, { limit: 10_000 });
    expect(frames.map(({ payload }) => payload)).toEqual(NUMBERS);
  });
});

test('an append whose reply was lost is repeated and written once', async () => {
  const engine = await crew.connect();
  const names: unknown[] = [];
  const lossy: WorkerPort['appendFrames'] = async (lease, frames, options) => {
    const outcome = await workerPort(engine).appendFrames(lease, frames, options);
    names.push(options?.appendId);
    if (names.length === 1) throw new EngineError('unavailable', 'The answer was lost.');
    return outcome;
  };
  const writing = task<null>(newKind(), NO_RETRY);
  crew.work(
    { ...workerPort(engine), appendFrames: lossy },
    { handlers: [handle(writing, (_, ctx) => ctx.stream.write('once'))] },
  );
  const run = await engine.submit(writing, null);
  await run.result();
  expect(names).toHaveLength(2);
  expect(new Set(names).size).toBe(1);
  expect(await framesOf(engine, run.executionId)).toEqual(['once']);
});

describe('a frame that cannot be stored', () => {
  test('is refused by the call that wrote it, and no other', async () => {
    const { engine, run, id } = await running(async (ctx) => {
      const writes = [
        ctx.stream.write('a'),
        ctx.stream.write('x'.repeat(65_537)),
        ctx.stream.write(Number.NaN),
        ctx.stream.patch({ __proto__: 1, ['constructor']: 1 }),
        ctx.stream.write('b', { mode: 'summary' as never }),
        ctx.stream.pipe('not a source' as never),
        ctx.stream.write('c'),
      ];
      const ends = await Promise.allSettled(writes);
      return ends.map((end) => (end.status === 'rejected' ? (end.reason as { code: string }).code : 'taken'));
    });
    const bad = 'invalid_input';
    expect(await run.result()).toEqual(['taken', 'payload_too_large', bad, bad, bad, bad, 'taken']);
    expect(await framesOf(engine, id)).toEqual(['a', 'c']);
  });

  test('fails the attempt when the call is not awaited', async () => {
    const { run } = await running(async (ctx) => {
      void ctx.stream.write('x'.repeat(65_537));
      await ctx.stream.write('fine');
    });
    expect(await run.wait()).toMatchObject({
      outcome: 'failed',
      message: expect.stringContaining('the limit of a frame is 65536'),
    });
  });

  test('because it makes the document too large is dropped alone', async () => {
    const large = 'x'.repeat(60_000);
    const { engine, run, id } = await running(async (ctx) => {
      for (let n = 0; n < 20; n += 1) void ctx.stream.patch({ [n]: large });
      await ctx.stream.patch({ small: 1 });
      return ctx.stream.flush().catch((error: { code: string }) => error.code);
    });
    expect(await run.result()).toBe('payload_too_large');
    const { document } = (await engine.streams.readSummary(id))!;
    expect(document).toMatchObject({ 0: large, 16: large, small: 1 });
    expect(document).not.toHaveProperty('19');
  });
});

describe('a run that is started again', () => {
  test('after a crash does not repeat the output of finished steps, and readers are notified about the rest', async () => {
    const [stuck, runs] = [latch(), { count: 0 }];
    const engine = await crew.connect();
    const writing = task<null>(newKind());
    const handlers = [
      handle(writing, async (_, ctx) => {
        runs.count += 1;
        await ctx.stream.write('outside');
        await Promise.all(
          ['left', 'right'].map((name) => ctx.step(name, () => ctx.stream.write(`in ${name}`))),
        );
        await ctx.stream.write('after');
        await ctx.stream.flush();
        if (runs.count === 1) await stuck.opened;
      }),
    ];
    crew.work(deaf(engine), { lease: LEASE_MS, poll: 20, handlers });
    const run = await engine.submit(writing, null);
    await expect.poll(() => framesOf(engine, run.executionId), SOON).toContain('after');
    await engine.executions.revokeLease(run.executionId, { reason: 'as if it had crashed' });
    crew.work(await crew.connect(), { lease: LEASE_MS, poll: 20, handlers });
    expect(await readAll(engine.streams.tail(run.executionId))).toEqual([
      'outside',
      'in left',
      'in right',
      'after',
      'closed',
      'superseded but for left right',
      'outside',
      'after',
      'closed',
    ]);
    const { frames } = await engine.streams.read(run.executionId, { attemptIndex: 0 });
    expect(frames.map(({ step }) => step?.name)).toEqual([undefined, 'left', 'right', undefined]);
    stuck.open();
  });

  test('repeats the output of an unfinished step, and later readers are notified too', async () => {
    const [engine, begun] = [await crew.connect(), latch()];
    const writing = task<null>(newKind());
    const handlers = [
      handle(writing, async (_, ctx) => {
        await ctx.step('first', () => ctx.stream.write('first'));
        await ctx.step('second', async ({ signal }) => {
          await ctx.stream.write(ctx.resumed ? 'whole' : 'half');
          await ctx.stream.flush();
          begun.open();
          if (!ctx.resumed) await aborted(signal);
        });
      }),
    ];
    const worker = crew.work(engine, { handlers });
    const run = await engine.submit(writing, null);
    await begun.opened;
    await worker.stop({ deadline: 0 });
    crew.work(engine, { poll: 20, handlers });
    await run.result();
    expect(await readAll(engine.streams.tail(run.executionId))).toEqual([
      'first',
      'half',
      'resumed but for first',
      'whole',
      'closed',
    ]);
  });

  test('after a wait continues for a reader that reconnects', async () => {
    const engine = await crew.connect({ signingSecret: 'a secret that is used only by these tests' });
    const writing = task<null>(newKind());
    crew.work(engine, {
      handlers: [
        handle(writing, async (_, ctx) => {
          await ctx.step('before', () => ctx.stream.write('before'));
          void ctx.stream.write('asking');
          await ctx.waitFor('word');
          await ctx.stream.write('after');
        }),
      ],
    });
    const { executionId } = await engine.submit(writing, null);
    const [told, left] = [[] as string[], { cursor: '' }];
    for await (const item of engine.streams.tail(executionId)) {
      told.push(spoken(item));
      left.cursor = item.cursor;
      if (item.type === 'paused') break;
    }
    expect(told).toEqual(['before', 'asking', 'paused']);
    await engine.waitpoints.approve(executionId, 'word', { by: 'ann' });
    const rest = await readAll(engine.streams.tail(executionId, { after: left.cursor }));
    expect(rest.filter((word) => word !== 'paused')).toEqual(['resumed but for before', 'after', 'closed']);
  });
});

describe('a handler that lost its lease', () => {
  test('has its source cancelled even if it starts to pipe too late', async () => {
    const [begun, cancelled] = [latch(), latch<unknown>()];
    const { engine, id } = await running(async (ctx) => {
      begun.open();
      await aborted(ctx.signal).catch(() => undefined);
      await ctx.stream.pipe(new ReadableStream<string>({ cancel: cancelled.open }));
    });
    await begun.opened;
    await engine.cancel(id, { reason: 'no longer wanted' });
    expect(await cancelled.opened).toMatchObject({ name: 'TaskAborted', code: 'cancelled' });
  });

  test.each(['told', 'deaf'] as const)('writes nothing more when it is %s', async (hearing) => {
    const [begun, goOn, met] = [latch(), latch(), [] as unknown[]];
    const cancelled = latch();
    const { engine, worker, id } = await running(async (ctx) => {
      if (ctx.attemptIndex > 0) return;
      await ctx.stream.write('before');
      await ctx.stream.flush();
      const endless = new ReadableStream<string>({ cancel: () => cancelled.open() });
      const piping = ctx.stream.pipe(endless);
      begun.open();
      await goOn.opened;
      for (const late of [
        () => ctx.stream.write('late').then(() => ctx.stream.flush()),
        () => ctx.stream.patch({ late: true }),
        () => piping,
      ])
        met.push(await late().catch((error: unknown) => error));
    }, hearing);
    await begun.opened;
    await engine.executions.revokeLease(id, { reason: 'another one is to do it' });
    if (hearing === 'told') await cancelled.opened;
    goOn.open();
    await expect.poll(() => worker.stats.lost, SOON).toBe(1);
    await cancelled.opened;
    expect(met.map((error) => error instanceof TaskAborted)).toEqual([true, true, true]);
    expect(await framesOf(engine, id)).toEqual(['before']);
  });

  test('is aborted at once while it waits for room, and accepted frames are written', async () => {
    const release = await holdUp();
    const [engine, met] = [await crew.connect(), latch<unknown>()];
    const slow = task<null>(newKind(), { ...NO_RETRY, timeout: '200ms' });
    crew.work(engine, {
      lease: LEASE_MS,
      handlers: [
        handle(slow, async (_, ctx) => {
          const writes = NUMBERS.slice(0, 3_000).map((n) => ctx.stream.write(n));
          met.open(await writes.at(-1)!.catch((error: unknown) => error));
        }),
      ],
    });
    const run = await engine.submit(slow, null);
    expect(await met.opened).toMatchObject({ name: 'TaskAborted', code: 'deadline' });
    await release();
    expect(await run.wait()).toMatchObject({ outcome: 'failed', category: 'timeout' });
    expect((await engine.streams.read(run.executionId)).frameCount).toBe(2_000);
  });
});
