/**
 * Waiting for signals, as a handler sees it: each signal reaches it once, whether it arrived before or during the wait,
 * and no worker is occupied meanwhile. What signals and timeouts do to an execution is tested with the engine.
 */
import { describe, expect, expectTypeOf, test } from 'vitest';
import { z } from 'zod';
import type { Connection } from '../../src/connect/connection.ts';
import { allOf, anyOf, atLeast } from '../../src/define/conditions.ts';
import type { Json } from '../../src/contract/json.ts';
import { EngineError } from '../../src/contract/errors.ts';
import { task } from '../../src/define/task.ts';
import type { TaskContext } from '../../src/define/task-context.ts';
import { handle } from '../../src/define/handlers.ts';
import { latch, newKind, SOON, useCrew } from '../worker/crew.ts';
import { workerPort } from '../../src/connect/port.ts';
import type { WorkerPort } from '../../src/contract/protocol.ts';

const crew = useCrew();
const signingSecret = 'a secret that is used only by these tests';
const HOUR_MS = 3_600_000;
const Decision = z.object({ approved: z.boolean(), on: z.string().transform((day) => new Date(day)) });

async function stateOf(engine: Connection, id: string): Promise<string | undefined> {
  return (await engine.executions.describe(id))?.state;
}

async function openWaitpoints(engine: Connection, executionId: string): Promise<string[]> {
  const { waitpoints } = await engine.waitpoints.list({ executionId });
  return waitpoints.map(({ name }) => name).toSorted();
}

/** A run of a handler that is suspended, and another task of the same worker, whose concurrency is 1. */
async function suspended(work: (ctx: TaskContext) => Promise<unknown>) {
  const engine = await crew.connect({ signingSecret });
  const waiting = task<null>(newKind(), { retry: { maxRetries: 0 } });
  const other = task<null>(newKind());
  const worker = crew.work(engine, {
    concurrency: 1,
    handlers: [handle(waiting, (_, ctx) => work(ctx)), handle(other, () => 'ran')],
  });
  const run = await engine.submit(waiting, null);
  await expect.poll(() => stateOf(engine, run.executionId), SOON).toBe('suspended');
  await expect.poll(() => worker.running, SOON).toBe(0);
  return { engine, run, other, id: run.executionId };
}

describe('a wait', () => {
  test('frees the worker, and resumes in the same attempt with the signal', async () => {
    const attempts: [number, boolean][] = [];
    const { engine, run, other, id } = await suspended(async (ctx) => {
      attempts.push([ctx.attemptIndex, ctx.resumed]);
      const approval = await ctx.createWaitpoint('approval', { schema: Decision });
      const { payload, signals } = await ctx.waitFor(approval, { reason: 'approval' });
      return {
        year: payload.on.getUTCFullYear(),
        approved: payload.approved,
        by: signals[0]?.source.identity,
      };
    });
    expect(await (await engine.submit(other, null)).result()).toBe('ran');
    const wrong = engine.waitpoints.approve(id, 'approval', { by: 'ann', payload: { approved: 'yes' } });
    await expect(wrong).rejects.toMatchObject({ code: 'invalid_input' });
    const payload = { approved: true, on: '2031-05-06' };
    expect(await engine.waitpoints.approve(id, 'approval', { by: 'ann', payload })).toMatchObject({
      effect: 'resumed',
    });
    expect(await run.result()).toEqual({ year: 2031, approved: true, by: 'ann' });
    expect(attempts).toEqual([
      [0, false],
      [0, true],
    ]);
  });

  test('finishes at once when the signal arrived before', async () => {
    const engine = await crew.connect({ signingSecret });
    const asking = task<null>(newKind());
    const worker = crew.work(engine, {
      handlers: [
        handle(asking, async (_, ctx) => {
          const { token } = await ctx.createWaitpoint('answer', { schema: z.number(), expiresIn: '1h' });
          const again = await ctx.createWaitpoint('answer');
          await ctx.step('ask', () => engine.signal({ token: again.token, payload: 7 }));
          const { payload } = await ctx.waitFor('answer', { schema: z.number() });
          expectTypeOf(payload).toEqualTypeOf<number>();
          return { payload, same: token === again.token };
        }),
      ],
    });
    const run = await engine.submit(asking, null);
    expect(await run.result()).toEqual({ payload: 7, same: true });
    expect(worker.stats.paused).toBe(0);
  });

  test('for two approvers does not finish when one of them approves twice', async () => {
    const { engine, run, id } = await suspended(async (ctx) => {
      const by = anyOf(atLeast(2).distinctSources().named('approved'), atLeast(1).named('vetoed'));
      const { signals } = await ctx.waitFor('release', { by });
      return signals.map(({ source }) => source.identity);
    });
    const effects = [];
    for (const by of ['ann', 'ann', 'bob']) {
      const said = await engine.waitpoints.approve(id, 'release', { by });
      effects.push('effect' in said ? said.effect : said.outcome);
    }
    expect(effects).toEqual(['counted', 'not_counted', 'resumed']);
    expect(await run.result()).toEqual(['ann', 'ann', 'bob']);
  });

  test('has payloads of the types they come back with', () => {
    const types = async (ctx: TaskContext): Promise<void> => {
      const plain = await ctx.waitFor<{ at: Date }>('plain', { timeout: '1h' });
      expectTypeOf(plain.payload).toEqualTypeOf<{ at: string }>();
      const parsed = await ctx.waitFor('parsed', { schema: Decision, timeout: '1h', onTimeout: 'resume' });
      expectTypeOf(parsed.payload).toEqualTypeOf<z.output<typeof Decision> | undefined>();
      const opened = await ctx.waitFor(await ctx.createWaitpoint('opened', { schema: Decision }));
      expectTypeOf(opened.payload).toEqualTypeOf<z.output<typeof Decision>>();
      const untyped = await ctx.waitFor('keyed', 'key');
      expectTypeOf(untyped.payload).toEqualTypeOf<Json>();
    };
    expect(types).toBeTypeOf('function');
  });

  test('may be for signals at several waitpoints', async () => {
    const { engine, run, id } = await suspended(async (ctx) => {
      const by = allOf(atLeast(1), atLeast(2).at('north', 'south').distinctWaitpoints());
      return (await ctx.waitFor('all', { by })).payload;
    });
    expect(await openWaitpoints(engine, id)).toEqual(['all', 'north', 'south']);
    for (const name of ['south', 'all', 'north'])
      await engine.waitpoints.approve(id, name, { by: 'ann', payload: name });
    expect(await run.result()).toBe('north');
  });

  test('that times out continues without a signal, if configured', async () => {
    const { engine, run } = await suspended(async (ctx) => {
      const { outcome, payload } = await ctx.waitFor('word', { timeout: '1h', onTimeout: 'resume' });
      return { outcome, said: payload !== undefined };
    });
    await crew.database.moveClock(HOUR_MS);
    await workerPort(engine).fireTimers();
    expect(await run.result()).toEqual({ outcome: 'timed_out', said: false });
  });

  test('has a waitpoint for each iteration of a loop', async () => {
    const { engine, run, id } = await suspended(async (ctx) => {
      const words: Json[] = [];
      for (const round of ['0', '1']) {
        words.push((await ctx.waitFor('round', round, { match: 'word' })).payload);
      }
      return words;
    });
    for (const round of ['0', '1']) {
      await expect.poll(() => openWaitpoints(engine, id), SOON).toContain(`round:${round}`);
      const say = (name: string) =>
        engine.waitpoints.approve(id, `round:${round}`, { by: 'ann', name, payload: round });
      await say('noise');
      await say('word');
    }
    expect(await run.result()).toEqual(['0', '1']);
  });
});

describe('beside other things', () => {
  test('a signal wins a race with a long sleep', async () => {
    const { engine, run, id } = await suspended((ctx) =>
      Promise.race([
        ctx.waitFor('word').then(({ payload }) => payload),
        ctx.sleep('limit', '1h').then(() => 'too late'),
      ]),
    );
    await engine.waitpoints.approve(id, 'word', { by: 'ann', payload: 'in time' });
    expect(await run.result()).toBe('in time');
  });

  test('a sleep wins a race with a wait that receives nothing', async () => {
    const { engine, run } = await suspended((ctx) =>
      Promise.race([ctx.waitFor('word'), ctx.sleep('limit', '1h').then(() => 'too late')]),
    );
    await crew.database.moveClock(HOUR_MS);
    await workerPort(engine).fireTimers();
    expect(await run.result()).toBe('too late');
  });

  test('two waits are pending together, whichever finishes first', async () => {
    const { engine, run, id } = await suspended(async (ctx) => {
      const both = await Promise.all([ctx.waitFor('a'), ctx.waitFor('b')]);
      return both.map(({ payload }) => payload);
    });
    for (const name of ['b', 'a']) await engine.waitpoints.approve(id, name, { by: 'ann', payload: name });
    expect(await run.result()).toEqual(['a', 'b']);
  });

  test('signals are polled while a step occupies the worker, also after a poll that failed', async () => {
    const engine = await crew.connect({ signingSecret });
    const racing = task<null>(newKind());
    const never = latch();
    const looks = { begun: 0, ended: 0, most: 0 };
    const shaky: WorkerPort = {
      ...workerPort(engine),
      suspend: async (lease, request) => {
        looks.begun += 1;
        looks.most = Math.max(looks.most, looks.begun - looks.ended);
        try {
          if (looks.begun === 1) throw new EngineError('unavailable', 'The database is away.');
          return await workerPort(engine).suspend(lease, request);
        } finally {
          looks.ended += 1;
        }
      },
    };
    const worker = crew.work(shaky, {
      handlers: [
        handle(racing, (_, ctx) =>
          Promise.race([
            ctx.step('work', () => never.opened),
            ctx.waitFor('stop').then(({ payload }) => payload),
          ]),
        ),
      ],
    });
    const run = await engine.submit(racing, null);
    await expect.poll(() => openWaitpoints(engine, run.executionId), SOON).toEqual(['stop']);
    const said = await engine.waitpoints.approve(run.executionId, 'stop', { by: 'ann', payload: 'enough' });
    expect(said).toMatchObject({ outcome: 'accepted', effect: 'buffered' });
    expect(await run.result()).toBe('enough');
    expect(worker.stats.paused).toBe(0);
    expect(looks.most).toBe(1);
    never.open();
  });

  test('a child or a signal ends the wait for both', async () => {
    const engine = await crew.connect({ signingSecret });
    const [parent, child] = [task<null>(newKind()), task<null>(newKind(), { lane: 'later' })];
    const worker = crew.work(engine, {
      lanes: ['default'],
      handlers: [
        handle(parent, async (_, ctx) => {
          const spawned = await ctx.spawn(child, null);
          return Promise.race([spawned.result(), ctx.waitFor('word').then(() => 'word')]);
        }),
      ],
    });
    const run = await engine.submit(parent, null);
    await expect.poll(() => stateOf(engine, run.executionId), SOON).toBe('suspended');
    await expect.poll(() => worker.stats.paused, SOON).toBe(1);
    crew.work(engine, { lanes: ['later'], handlers: [handle(child, () => 'child')] });
    expect(await run.result()).toBe('child');
  });
});

describe('misuse rejects with a message that shows how to write it:', () => {
  const loose = { '~standard': { version: 1, vendor: 'loose', validate: (value: unknown) => ({ value }) } };
  const cases: [string, (ctx: TaskContext) => Promise<unknown>, string][] = [
    [
      'the same name twice',
      (ctx) => Promise.all([ctx.waitFor('twice'), ctx.waitFor('twice')]),
      `"twice" is used twice in one run; in a loop give each round a key: ctx.waitFor('twice', String(i), …)`,
    ],
    [
      'an unknown option',
      (ctx) => ctx.waitFor('word', { until: '1h' } as object),
      `ctx.waitFor('word'): options.until is not a known setting`,
    ],
    [
      'a schema that cannot be converted to JSON Schema',
      (ctx) => ctx.waitFor('word', { schema: loose as object as Record<string, unknown> }),
      'options.schema of loose cannot be converted to JSON Schema',
    ],
    [
      'a schema beside that of the waitpoint',
      async (ctx) => ctx.waitFor(await ctx.createWaitpoint('word'), { schema: { type: 'string' } } as object),
      'ctx.waitFor(waitpoint) takes neither a key nor a schema: those of the waitpoint are used',
    ],
    [
      'a waitpoint that this run has not opened',
      async (ctx) => ctx.waitFor({ ...(await ctx.createWaitpoint('word')) }),
      'ctx.waitFor needs a name, or a waitpoint that this run opened with ctx.createWaitpoint',
    ],
    [
      'both a match and a condition',
      (ctx) => ctx.waitFor('word', { match: 'a', by: atLeast(2) }),
      'options.match cannot be combined with by',
    ],
    [
      'a condition that cannot be satisfied',
      (ctx) => ctx.waitFor('word', { by: atLeast(0) }),
      'not a whole number of at least 1',
    ],
    [
      'a waitpoint of another wait',
      (ctx) => Promise.all([ctx.waitFor('a'), ctx.waitFor('b', { by: atLeast(1).at('a') })]),
      'share a waitpoint',
    ],
    [
      'more waits than one suspension may have',
      (ctx) => Promise.all(Array.from({ length: 17 }, (_, index) => ctx.waitFor('many', String(index)))),
      'can have at most 16 open waits',
    ],
  ];

  test.each(cases)('%s', async (_, work, sentence) => {
    const engine = await crew.connect({ signingSecret });
    const broken = task<null>(newKind(), { retry: { maxRetries: 3 } });
    crew.work(engine, { handlers: [handle(broken, (_input, ctx) => work(ctx))] });
    const run = await engine.submit(broken, null);
    expect(await run.wait()).toMatchObject({ outcome: 'failed', message: expect.stringContaining(sentence) });
    expect(await run.wait()).toMatchObject({ message: expect.stringContaining(run.executionId) });
  });
});
