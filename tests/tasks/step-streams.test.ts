/**
 * Output that is written in tries of steps, around transactions, and as many concurrent patches. Other output is tested
 * in streaming.test.ts.
 */
import { describe, expect, test } from 'vitest';
import type { Connection } from '../../src/connect/connection.ts';
import type { EngineError } from '../../src/contract/errors.ts';
import { stream } from '../../src/define/streams.ts';
import { task } from '../../src/define/task.ts';
import type { TaskContext } from '../../src/define/task-context.ts';
import { handle } from '../../src/define/handlers.ts';
import { TaskAborted } from '../../src/worker/task.ts';
import { latch, newKind, useCrew } from '../worker/crew.ts';
import { workerPort } from '../../src/connect/port.ts';
import type { WorkerPort } from '../../src/contract/protocol.ts';

const crew = useCrew();
const NO_RETRY = { retry: { maxRetries: 0 } } as const;

/** One run of a handler. */
async function running(work: (ctx: TaskContext) => Promise<unknown>) {
  const engine = await crew.connect();
  const writing = task<null>(newKind(), NO_RETRY);
  crew.work(engine, { handlers: [handle(writing, (_, ctx) => work(ctx))] });
  const run = await engine.submit(writing, null);
  return { engine, run, id: run.executionId };
}

async function payloadsOf(engine: Connection, id: string): Promise<unknown[]> {
  return (await engine.streams.read(id)).frames.map(({ payload }) => payload);
}

async function* words(): AsyncGenerator<string> {
  yield 'word';
}

function aborted(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason as Error)));
}

describe('a step that is retried', () => {
  const AT_ONCE = { maxRetries: 1, backoff: { type: 'fixed', delay: 0 } } as const;

  test('records for each frame which try wrote it', async () => {
    const { engine, run, id } = await running(async (ctx) => {
      const trying = async ({ tryIndex }: { tryIndex: number }) => {
        await ctx.stream.write(`try ${tryIndex}`);
        if (tryIndex === 0) throw new Error('not yet');
      };
      await ctx.step('ask', 'a', trying, { retry: AT_ONCE });
      await ctx.stream.write('outside');
    });
    await run.result();
    const { frames } = await engine.streams.read(id);
    expect(frames.map(({ payload, step }) => [payload, step])).toEqual([
      ['try 0', { name: 'ask', key: 'a', tryIndex: 0 }],
      ['try 1', { name: 'ask', key: 'a', tryIndex: 1 }],
      ['outside', null],
    ]);
  });

  test('lets the try that timed out write nothing more', async () => {
    const [late, cancelled] = [latch<unknown>(), latch<unknown>()];
    const { engine, run, id } = await running(async (ctx) => {
      const trying = async ({ signal, tryIndex }: { signal: AbortSignal; tryIndex: number }) => {
        await ctx.stream.write(`try ${tryIndex}`);
        if (tryIndex === 1) return late.opened;
        void ctx.stream.pipe(new ReadableStream<string>({ cancel: cancelled.open }));
        await aborted(signal).catch(() => cancelled.opened);
        late.open(await ctx.stream.write('late').catch((error: unknown) => error));
        return undefined;
      };
      const met = await ctx.step('ask', (scope) => trying(scope).then(String), {
        retry: AT_ONCE,
        timeout: '500ms',
      });
      return met;
    });
    expect(await run.result()).toMatch(/^TaskAborted: Try 0 of step "ask" has finished/);
    expect(await cancelled.opened).toBeInstanceOf(TaskAborted);
    expect(await payloadsOf(engine, id)).toEqual(['try 0', 'try 1']);
  });
});

describe('a transaction', () => {
  test('writes nothing to streams, and starts once earlier output is stored', async () => {
    const engine = await crew.connect({ poolSize: 1 });
    const writing = task<null, unknown, { tokens: ReturnType<typeof stream.durable<string>> }>(newKind(), {
      ...NO_RETRY,
      streams: { tokens: stream.durable<string>() },
    });
    crew.work(engine, {
      handlers: [
        handle(writing, async (_, ctx) => {
          void ctx.stream.write('just before');
          void ctx.streams.tokens.write('too');
          const found = await ctx.tx('look', async () => {
            const { rows } = await crew.database.query(
              `SELECT count(*)::integer AS stored FROM ff_frame WHERE payload IN ('just before', 'too')`,
            );
            const refused = [
              ctx.stream.write('inside'),
              ctx.stream.patch({ inside: true }),
              ctx.stream.pipe(words()),
              ctx.stream.flush(),
              ctx.streams.tokens.write('inside'),
            ].map((call) => call.then(String, ({ code, message }: EngineError) => [code, message]));
            return { rows, refused: await Promise.all(refused) };
          });
          await ctx.stream.write('after');
          return found;
        }),
      ],
    });
    const run = await engine.submit(writing, null);
    const refused = ['invalid_step', expect.stringContaining('write before or after it')];
    expect(await run.result()).toEqual({
      rows: [{ stored: 2 }],
      refused: Array.from({ length: 5 }, () => refused),
    });
    expect(await payloadsOf(engine, run.executionId)).toEqual(['just before', 'too', 'after']);
  });
});

test('more patches than one append may contain are sent in several', async () => {
  const engine = await crew.connect();
  const sizes: number[] = [];
  const counting: WorkerPort['appendFrames'] = (lease, frames, options) => {
    sizes.push(frames.length);
    return workerPort(engine).appendFrames(lease, frames, options);
  };
  const patching = task<null>(newKind(), NO_RETRY);
  const work = async (ctx: TaskContext): Promise<void> => {
    for (let n = 0; n < 120; n += 1) void ctx.stream.patch({ [`n${n}`]: n });
    await ctx.stream.flush();
  };
  crew.work(
    { ...workerPort(engine), appendFrames: counting },
    { handlers: [handle(patching, (_, ctx) => work(ctx))] },
  );
  const run = await engine.submit(patching, null);
  await run.result();
  expect(sizes).toEqual([50, 50, 20]);
  const summary = await engine.streams.readSummary(run.executionId);
  expect(summary).toMatchObject({ version: 120, document: { n0: 0, n119: 119 } });
});
