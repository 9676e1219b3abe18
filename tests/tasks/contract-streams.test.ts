/**
 * Streams of a task's contract: written and read by their names and types, and refused where the contract or a chunk is
 * invalid. How they reach their readers is tested in streaming.test.ts.
 */
import { describe, expect, expectTypeOf, test } from 'vitest';
import { z } from 'zod';
import { stream } from '../../src/define/streams.ts';
import { task } from '../../src/define/task.ts';
import { handle } from '../../src/define/handlers.ts';
import { newKind, useCrew } from '../worker/crew.ts';

const crew = useCrew();

async function* numbers(): AsyncGenerator<string> {
  yield* ['0', '1', '2'];
}

async function listed<Item>(items: AsyncIterable<Item>): Promise<Item[]> {
  const found: Item[] = [];
  for await (const item of items) found.push(item);
  return found;
}

/** Chunks, and the types of all other items. */
async function chunks<Chunk>(
  items: AsyncIterable<{ type: 'frame'; payload: Chunk } | { type: Exclude<string, 'frame'> }>,
): Promise<unknown[]> {
  return (await listed(items)).map((item) => ('payload' in item ? item.payload : item.type));
}

describe('streams of the contract', () => {
  interface Draft {
    title: string;
    parts: { [name: string]: number };
  }
  const streams = {
    tokens: stream.durable<string>(),
    points: stream.durable(z.object({ x: z.number(), on: z.coerce.number() })),
    cursor: stream.live<number>({ ttl: '10s' }),
    draft: stream.summary<Draft>(),
  };

  test('are written and read by their names and types', async () => {
    const engine = await crew.connect();
    const writing = task(newKind(), { retry: { maxRetries: 0 }, streams });
    crew.work(engine, {
      handlers: [
        handle(writing, async (_, { streams: { tokens, points, cursor, draft } }) => {
          await tokens.pipe(numbers());
          await points.write({ x: 1, on: '7' });
          const refused = await points.write({ x: 'one' } as never).catch((error: Error) => error.message);
          await cursor.write(3);
          await draft.patch({ title: 'T', parts: { a: 1, b: 2 } });
          await draft.patch({ parts: { a: null } });
          return refused;
        }),
      ],
    });
    const run = await engine.submit(writing, null);
    expect(await run.result()).toMatch(/ctx\.streams\.points\.write: stream points: chunk\.x: /);
    expect(await chunks(run.streams.tokens)).toEqual(['0', '1', '2', 'closed']);
    expect(await chunks(run.streams.points)).toEqual([{ x: 1, on: 7 }, 'closed']);
    const again = engine.execution(writing, run.executionId);
    expect(await chunks(again.streams.cursor)).toEqual([3, 'closed']);
    const first = await listed(run.streams.tokens);
    const after = first[1]!.cursor;
    expect(await chunks(run.streams.tokens.tail({ after }))).toEqual(['2', 'closed']);
    expect(await run.streams.draft.read()).toMatchObject({
      version: 2,
      document: { title: 'T', parts: { b: 2 } },
    });
    expect(await listed(run.streams.draft.watch())).toMatchObject([{ type: 'document' }, { type: 'closed' }]);
  });

  test('have types', () => {
    const typed = task<string, number, typeof streams>(newKind(), { streams });
    handle(typed, async (input, ctx) => {
      // @ts-expect-error: of another type
      void ctx.streams.tokens.write(1);
      // @ts-expect-error: not of the contract
      void ctx.streams.other;
      // @ts-expect-error: a document is patched
      void ctx.streams.draft.write({});
      return input.length;
    });
    const open = task<string, number>(newKind(), { streams, timeout: '1m' });
    handle(open, async (input, ctx) => {
      expectTypeOf(input).toEqualTypeOf<string>();
      expectTypeOf(ctx.streams.tokens).toBeAny();
      return input.length;
    });
    expect(open.streams).toEqual(streams);
  });

  test('that are invalid are refused', () => {
    const wrong = (given: object) => () => task(newKind(), { streams: given as never });
    expect(wrong({ a: stream.summary(), b: stream.summary() })).toThrow(/more than one summary \(a, b\)/);
    expect(wrong({ a: stream.live({ ttl: '5s' }), b: stream.live() })).toThrow(
      /different ttls \(5000 ms, 10000 ms\); give all of them the same/,
    );
    expect(wrong({ a: stream.live({ ttl: '10s' }), b: stream.live(), c: stream.durable() })).not.toThrow();
    expect(wrong({ a: 'durable' })).toThrow(/options\.streams\.a must be made by/);
    expect(wrong({ '': stream.durable() })).toThrow(/has a name/);
    expect(() => stream.live({ ttl: 'soon' })).toThrow(/options\.ttl/);
    expect(() => stream.durable({} as never)).toThrow(/Standard Schema/);
  });
});
