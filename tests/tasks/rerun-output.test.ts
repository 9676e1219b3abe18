/**
 * A handler that runs again from the top writes nothing twice: what readers see moves forward, and only a handler that
 * writes something else than before takes anything back.
 */
import { describe, expect, test } from 'vitest';
import type { Connection } from '../../src/connect/connection.ts';
import { workerPort } from '../../src/connect/port.ts';
import type { WorkerPort } from '../../src/contract/protocol.ts';
import type { StreamItem, WatchItem } from '../../src/contract/streams.ts';
import { handle } from '../../src/define/handlers.ts';
import { task } from '../../src/define/task.ts';
import type { TaskContext } from '../../src/define/task-context.ts';
import { foldStream } from '../../src/model/fold-stream.ts';
import { AGAIN, newKind, useCrew } from '../worker/crew.ts';

const crew = useCrew();
/** Long enough to free the worker. */
const PAUSE_MS = 300;

async function started(
  work: (ctx: TaskContext) => Promise<unknown>,
  seen: (port: WorkerPort) => WorkerPort = (port) => port,
) {
  const engine = await crew.connect();
  const writing = task<null>(newKind(), AGAIN);
  crew.work(seen(workerPort(engine)), { poll: 50, handlers: [handle(writing, (_, ctx) => work(ctx))] });
  const run = await engine.submit(writing, null);
  return { engine, run, id: run.executionId };
}

async function readAll<Item>(items: AsyncIterable<Item>): Promise<Item[]> {
  const all: Item[] = [];
  for await (const item of items) all.push(item);
  return all;
}

const shown = (items: readonly StreamItem[]): unknown[] =>
  foldStream(items)
    .filter(({ mode }) => mode !== 'summary')
    .map(({ payload }) => payload);

async function patchesOf(engine: Connection, id: string): Promise<unknown[]> {
  const items = await readAll(engine.streams.watchSummary(id));
  return items.flatMap((item) => (item.type === 'patch' ? [item.patch] : []));
}

describe('after a pause', () => {
  test('progress does not run backwards', async () => {
    const { engine, run, id } = await started(async (ctx) => {
      for (let done = 0; done < 4; done += 1) {
        await ctx.stream.patch({ done });
        await ctx.stream.write(`part ${done}`);
        await ctx.sleep('rest', String(done), PAUSE_MS);
      }
    });
    const [items, patches] = await Promise.all([readAll(engine.streams.tail(id)), patchesOf(engine, id)]);
    await run.result();
    expect(patches).toEqual([{ done: 0 }, { done: 1 }, { done: 2 }, { done: 3 }]);
    expect(items.filter(({ type }) => type === 'restarted')).toEqual([]);
    const written = items.flatMap((item) => (item.type === 'frame' ? [item.frame.payload] : []));
    const expected = [0, 1, 2, 3].flatMap((done) => [{ done }, `part ${done}`]);
    expect(written).toEqual(expected);
  });

  test('something else supersedes its own stream from the first difference on', async () => {
    const { engine, run, id } = await started(async (ctx) => {
      await ctx.stream.write('the same', { type: 'log' });
      await ctx.stream.write(`run of ${ctx.resumed ? 'later' : 'earlier'}`, { type: 'log' });
      await ctx.stream.write('untouched', { type: 'other' });
      await ctx.step('in between', () => ctx.stream.write('in a step', { type: 'log' }));
      await ctx.sleep('rest', PAUSE_MS);
      await ctx.stream.write('the end', { type: 'log' });
    });
    await run.result();
    const items = await readAll(engine.streams.tail(id));
    const frames = items.flatMap((item) => (item.type === 'frame' ? [item.frame] : []));
    const replaced = frames.find(({ payload }) => payload === 'run of earlier')!;
    const restarts = items.filter(({ type }) => type === 'restarted');
    expect(restarts).toMatchObject([{ stream: 'log', mode: 'durable', from: replaced.id }]);
    expect(shown(items)).toEqual(['the same', 'untouched', 'in a step', 'run of later', 'the end']);
    // A reader that comes back learns of it, too.
    const { cursor } = items[items.indexOf(restarts[0]!) - 1]!;
    const rest = await readAll(engine.streams.tail(id, { after: cursor }));
    expect(rest.slice(0, 2).map(({ type }) => type)).toEqual(['resumed', 'restarted']);
    expect(rest[1]).toMatchObject({ stream: 'log', from: replaced.id });
  });

  test('the third run is compared with what counts of the first two', async () => {
    let runs = 0;
    const { engine, run, id } = await started(async (ctx) => {
      runs += 1;
      for (const word of ['a', runs === 1 ? 'b1' : 'b', runs === 1 ? 'c1' : 'c'])
        await ctx.stream.write(word);
      await ctx.stream.patch({ run: Math.min(runs, 2), [`only ${Math.min(runs, 2)}`]: true });
      await ctx.sleep('one', PAUSE_MS);
      await ctx.sleep('two', PAUSE_MS);
    });
    await run.result();
    const items = await readAll(engine.streams.tail(id));
    expect(runs).toBe(3);
    expect(items.filter(({ type }) => type === 'restarted')).toHaveLength(2);
    expect(shown(items)).toEqual(['a', 'b', 'c']);
    expect((await engine.streams.readSummary(id))!.document).toEqual({ run: 2, 'only 2': true });
  });

  test('best-effort frames are dropped until the run has come as far as the one before', async () => {
    const { engine, run, id } = await started(async (ctx) => {
      const live = (text: string): Promise<void> => ctx.stream.write(text, { mode: 'best_effort' });
      await live('begin');
      await ctx.step('one', () => live('in one'));
      await live('after one');
      await ctx.sleep('rest', PAUSE_MS);
      await live('after the rest');
    });
    await run.result();
    const items = await readAll(engine.streams.tail(id));
    expect(shown(items)).toEqual(['begin', 'in one', 'after one', 'after the rest']);
    expect(items.filter(({ type }) => type === 'frame')).toHaveLength(4);
  });

  test('a first run asks for nothing, and a handler that writes nothing neither', async () => {
    const asked: string[] = [];
    const counting = (port: WorkerPort): WorkerPort => ({
      ...port,
      readWritten(lease) {
        asked.push('written');
        return port.readWritten(lease);
      },
      readPatches(lease) {
        asked.push('patches');
        return port.readPatches(lease);
      },
    });
    const first = await started(async (ctx) => void (await ctx.stream.patch({ a: 1 })), counting);
    await first.run.result();
    const silent = await started((ctx) => ctx.sleep('rest', PAUSE_MS), counting);
    await silent.run.result();
    expect(asked).toEqual([]);
    const plain = await started(async (ctx) => {
      await ctx.stream.patch({ a: 1 });
      await ctx.step('b', () => ctx.stream.patch({ a: 2 }));
      await ctx.sleep('rest', PAUSE_MS);
      await ctx.stream.patch({ a: 3 });
    }, counting);
    await plain.run.result();
    expect(asked).toEqual(['written']);
  });
});

describe('another attempt', () => {
  test('puts its output before and after that of finished steps, and its patches as well', async () => {
    const { engine, run, id } = await started(async (ctx) => {
      await ctx.stream.write('begin');
      await ctx.stream.patch({ done: 0, first: true });
      for (const done of [1, 2]) {
        await ctx.step('part', String(done), async () => {
          await ctx.stream.write(`part ${done}`);
          await ctx.stream.patch({ done });
        });
        await ctx.stream.write(`after ${done}`);
      }
      if (ctx.attemptIndex === 0) throw new Error('once more');
      await ctx.stream.write('end');
    });
    await run.result();
    const items = await readAll(engine.streams.tail(id));
    expect(shown(items)).toEqual(['begin', 'part 1', 'after 1', 'part 2', 'after 2', 'end']);
    const attempt = items.findIndex(({ type }) => type === 'superseded');
    expect(shown(items.slice(0, attempt + 1))).toEqual(['part 1', 'part 2']);
    const { document } = (await engine.streams.readSummary(id))!;
    expect(document).toEqual({ done: 2, first: true });
    // What was written is kept as it was written; what was applied did not take progress back.
    const { frames } = await engine.streams.read(id);
    const patch = frames.find(({ mode }) => mode === 'summary');
    expect(patch).toMatchObject({ payload: { done: 0, first: true }, applied: { first: true } });
  });
});

test('whoever watches an execution gets document, progress and state, and then it is over', async () => {
  const { engine, id } = await started(async (ctx) => {
    ctx.progress({ percent: 50, message: 'half' });
    await ctx.stream.patch({ a: 1 });
    await ctx.sleep('rest', PAUSE_MS);
    await ctx.stream.patch({ a: 2 });
    ctx.progress({ percent: 100 });
    if (ctx.attemptIndex === 0) throw new Error('once more');
    return 'done';
  });
  const items: WatchItem[] = await readAll(engine.streams.watch(id));
  const last = (type: WatchItem['type']): WatchItem | undefined =>
    items.findLast((item) => item.type === type);
  expect(items.at(-1)).toEqual({ type: 'state', state: 'completed', attemptIndex: 1 });
  expect(last('document')).toMatchObject({ document: { a: 2 }, attemptIndex: 1 });
  expect(last('progress')).toMatchObject({ percent: expect.any(Number) });
  // One that comes later gets what there is.
  const late = await readAll(engine.streams.watch(id));
  expect(late.map(({ type }) => type)).toEqual(['document', 'progress', 'state']);
});

test('a watch ends quietly when it is aborted, and refuses what does not exist', async () => {
  const engine = await crew.connect();
  const { executionId } = await engine.submit(task<null>(newKind()), null);
  const stop = new AbortController();
  const seen: WatchItem[] = [];
  for await (const item of engine.streams.watch(executionId, { signal: stop.signal })) {
    seen.push(item);
    stop.abort();
  }
  expect(seen).toEqual([{ type: 'state', state: 'waiting', attemptIndex: 0 }]);
  const gone = engine.streams.watch('{fp:7}:00000000-0000-7000-8000-000000000000');
  await expect(readAll(gone)).rejects.toMatchObject({ code: 'not_found' });
  expect(() => engine.streams.watch('no id')).toThrow(/\.$/);
});
