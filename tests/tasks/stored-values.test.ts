/**
 * Values that pass through JSON on their way back to a handler or a reader: the first run gets what every later run
 * gets, and their types say so.
 */
import { expect, expectTypeOf, test } from 'vitest';
import { z } from 'zod';
import { stream } from '../../src/define/streams.ts';
import { task } from '../../src/define/task.ts';
import type { TaskContext } from '../../src/define/task-context.ts';
import { handle } from '../../src/define/handlers.ts';
import type { Connection } from '../../src/connect/connection.ts';
import { AGAIN, newKind, useCrew } from '../worker/crew.ts';

const crew = useCrew();

class Money {
  constructor(readonly cents: number) {}
  get euros(): number {
    return this.cents / 100;
  }
  toJSON(): string {
    return `${this.euros} EUR`;
  }
}

/** Each in the form that JSON gives it. */
const VALUES: Record<string, { made: () => unknown; stored: unknown }> = {
  nothing: { made: () => undefined, stored: null },
  date: { made: () => new Date(0), stored: '1970-01-01T00:00:00.000Z' },
  'own JSON': { made: () => ({ price: new Money(250) }), stored: { price: '2.5 EUR' } },
  'undefined members': { made: () => ({ a: 1, b: undefined }), stored: { a: 1 } },
  'negative zero': { made: () => -0, stored: 0 },
  'an instance': {
    made: () =>
      new (class Point {
        x = 1;
        move() {}
      })(),
    stored: { x: 1 },
  },
  text: { made: () => 'text', stored: 'text' },
  bytes: { made: () => Buffer.from('a'), stored: { type: 'Buffer', data: [97] } },
};

test('the first run of a step or a transaction gets what later runs get', async () => {
  const engine = await crew.connect();
  const storing = task<null>(newKind(), { retry: AGAIN.retry });
  const seen: Record<string, unknown>[] = [];
  crew.work(engine, {
    handlers: [
      handle(storing, async (_, ctx) => {
        const got: Record<string, unknown> = {};
        for (const [name, { made }] of Object.entries(VALUES)) {
          got[name] = await ctx.step('step', name, made);
          got[`${name} in a transaction`] = await ctx.tx('tx', name, async () => made());
        }
        seen.push(got);
        if (ctx.attemptIndex === 0) throw new Error('once more');
      }),
    ],
  });
  await (await engine.submit(storing, null)).result();
  const expected = Object.entries(VALUES).flatMap(([name, { stored }]) => [
    [name, stored],
    [`${name} in a transaction`, stored],
  ]);
  expect(seen).toHaveLength(2);
  expect(seen[0]).toStrictEqual(Object.fromEntries(expected));
  expect(seen[1]).toStrictEqual(seen[0]);
});

test('what a handler gets back has the type it comes back with', () => {
  const types = async (ctx: TaskContext): Promise<void> => {
    expectTypeOf(await ctx.step('at', () => new Date())).toEqualTypeOf<string>();
    expectTypeOf(
      await ctx.step('at', 'key', async ({ signal }) => ({ at: new Date(), signal }).at),
    ).toEqualTypeOf<string>();
    expectTypeOf(await ctx.step('none', async () => {})).toEqualTypeOf<null>();
    expectTypeOf(
      await ctx.tx('at', async (tx) => ({ n: (await tx.query('SELECT 1')).rowCount, at: new Date() })),
    ).toEqualTypeOf<{ n: number | null; at: string }>();
    const child = await ctx.spawn(task<{ at: Date }, { at: Date }>('child'), { at: new Date() });
    expectTypeOf(await child.result()).toEqualTypeOf<{ at: string }>();
    const [one] = await ctx.all([child]);
    expectTypeOf(one).toEqualTypeOf<{ at: string }>();
    // @ts-expect-error: a Map cannot be stored
    await ctx.step('map', () => new Map());
    // @ts-expect-error: a bigint cannot be stored
    await ctx.tx('big', 'key', async () => ({ id: 1n }));
  };
  expect(types).toBeTypeOf('function');
});

test('a task without schemas hands over its input and result as JSON, in its types too', () => {
  const plain = task<{ at: Date; note?: string }, { at: Date }>('plain');
  handle(plain, (input) => {
    expectTypeOf(input).toEqualTypeOf<{ at: string; note?: string }>();
    return { at: new Date() };
  });
  const parsed = task('parsed', {
    input: z.object({ at: z.coerce.date() }),
    output: z.object({ at: z.date() }),
  });
  handle(parsed, (input) => {
    expectTypeOf(input).toEqualTypeOf<{ at: Date }>();
    return input;
  });
  const types = async (engine: Connection): Promise<void> => {
    const run = await engine.submit(plain, { at: new Date() });
    expectTypeOf(await run.result()).toEqualTypeOf<{ at: string }>();
    expectTypeOf(await engine.execution(parsed, run.executionId).result()).toEqualTypeOf<{ at: string }>();
    // @ts-expect-error: a Map cannot be stored
    await engine.submit(task<Map<string, number>>('map'), new Map());
    // @ts-expect-error: nor be a result
    handle(task<null, Map<string, number>>('map'), () => new Map());
  };
  expect(types).toBeTypeOf('function');
});

test('readers of streams get chunks as JSON, in their types too', () => {
  const streams = {
    tokens: stream.durable<string>(),
    bytes: stream.live<Uint8Array>(),
    points: stream.durable<{ at: Date }>(),
    draft: stream.summary<{ at: Date }>(),
  };
  const writing = task<null, null, typeof streams>('writing', { streams });
  const types = async (engine: Connection): Promise<void> => {
    const { tokens, bytes, points, draft } = engine.execution(writing, 'id').streams;
    for await (const item of tokens)
      if (item.type === 'frame') expectTypeOf(item.payload).toEqualTypeOf<string>();
    for await (const item of bytes)
      if (item.type === 'frame') expectTypeOf(item.payload).toExtend<Uint8Array>();
    for await (const item of points)
      if (item.type === 'frame') expectTypeOf(item.payload).toEqualTypeOf<{ at: string }>();
    expectTypeOf((await draft.read())!.document).toEqualTypeOf<{ at?: string }>();
  };
  expect(types).toBeTypeOf('function');
});
