/**
 * A handler takes the same branch on every run, whatever its races consist of: random handlers are paused, killed and
 * retried at random, and each run must agree with what the first one recorded.
 */
import { expect, test } from 'vitest';
import type { Connection } from '../../src/connect/connection.ts';
import { task } from '../../src/define/task.ts';
import type { TaskContext } from '../../src/define/task-context.ts';
import { handle } from '../../src/define/handlers.ts';
import { newKind, SOON, useCrew } from '../worker/crew.ts';
import { chance } from '../setup/chance.ts';
import { perform, randomHandler, turns, type Surroundings } from './random-handlers.ts';
import { workerPort } from '../../src/connect/port.ts';
import type { WorkerPort } from '../../src/contract/protocol.ts';
import { patiently } from '../setup/patience.ts';

const crew = useCrew();
const HISTORIES = Number(process.env['FLOWFABRIC_TEST_HISTORIES'] ?? 60);
const SEED = Number(process.env['FLOWFABRIC_TEST_SEED'] ?? 1);
const AT_ONCE = 60;
const HOUR_MS = 3_600_000;
const POLICY = {
  retry: { maxRetries: 1_000, backoff: { type: 'fixed', delay: 5 } },
} as const;

/** Starts an execution of this handler, with the ways a test can act on it. */
async function started(work: (ctx: TaskContext, note: (what: string) => void) => Promise<unknown>) {
  const engine = await crew.connect();
  const racing = task<null>(newKind(), { retry: { maxRetries: 0 } });
  const notes: string[] = [];
  const handler = (_: null, ctx: TaskContext): Promise<unknown> => work(ctx, (what) => notes.push(what));
  crew.work(engine, { handlers: [handle(racing, handler)] });
  const run = await engine.submit(racing, null);
  const done = {
    engine,
    notes,
    fire: () => workerPort(engine).fireTimers(),
    async approve(waitpoint: string) {
      const approve = () => engine.waitpoints.approve(run.executionId, waitpoint, { by: 'ann' });
      await expect.poll(() => approve().catch(() => null), SOON).not.toBeNull();
    },
    async paused() {
      const isHeld = async () =>
        ['suspended', 'delayed'].includes((await engine.executions.describe(run.executionId))!.state);
      await expect.poll(isHeld, SOON).toBe(true);
    },
  };
  return { run, done };
}

interface Verdict {
  histories: number;
  runs: number;
  contradictions: string[];
}

/** Runs the handlers of seeds concurrently; workers may be given a modified engine. */
async function runHistories(count: number, seen: (engine: Connection) => WorkerPort): Promise<Verdict> {
  const engine = await crew.connect({ poolSize: 8 });
  const parent = task<number>(newKind(), POLICY);
  const child = task<number>(newKind(), POLICY);
  const verdict: Verdict = { histories: 0, runs: 0, contradictions: [] };
  const wanted = new Map<string, { id: string; waitpoint: string }>();
  const living = new Set<string>();
  const seenNames = new Set<string>();
  const around: Surroundings = {
    child,
    wanted: (ctx, waitpoint) =>
      void wanted.set(`${ctx.executionId} ${waitpoint}`, { id: ctx.executionId, waitpoint }),
    isFirst(ctx, name) {
      const known = seenNames.has(`${ctx.executionId} ${name}`);
      seenNames.add(`${ctx.executionId} ${name}`);
      return !known;
    },
    onContradiction: (ctx, race, stored, taken) =>
      void verdict.contradictions.push(
        `seed ${String(ctx.payload)}: ${race} was won by ${String(stored)}, then by ${String(taken)}`,
      ),
  };
  const handler = async (seed: number, ctx: TaskContext): Promise<void> => {
    verdict.runs += 1;
    living.add(ctx.executionId);
    await perform(randomHandler(seed), ctx, around);
  };
  crew.work(seen(engine), {
    concurrency: AT_ONCE * 2,
    poll: 200,
    handlers: [handle(parent, handler), handle(child, turns)],
  });
  const stop = new AbortController();
  const disturbing = disturb(engine, { wanted, living, stop: stop.signal });
  for (let from = 0; from < count; from += AT_ONCE) {
    const seeds = Array.from(
      { length: Math.min(AT_ONCE, count - from) },
      (_, index) => SEED * 100_000 + from + index,
    );
    await Promise.all(
      seeds.map(async (seed) => {
        const run = await engine.submit(parent, seed);
        const end = await run.wait();
        expect({ ...end }).toMatchObject({ outcome: 'success' });
        living.delete(run.executionId);
        verdict.histories += 1;
      }),
    );
  }
  stop.abort();
  await disturbing;
  return verdict;
}

interface Scene {
  wanted: Map<string, { id: string; waitpoint: string }>;
  living: Set<string>;
  stop: AbortSignal;
}

/** Sends the awaited signals, some late, and takes leases away at random. */
async function disturb(engine: Connection, { wanted, living, stop }: Scene): Promise<void> {
  const next = chance(SEED);
  while (!stop.aborted) {
    // One pass per round trip.
    await engine.upkeep.serverTimeMs();
    const answers = [...wanted].filter(() => next() < 0.1);
    await Promise.all(
      answers.map(async ([key, { id, waitpoint }]) => {
        // Nothing waits there yet: the next pass tries again.
        const answer = await engine.waitpoints.approve(id, waitpoint, { by: 'ann' }).catch(() => null);
        if (answer !== null) wanted.delete(key);
      }),
    );
    const victims = [...living].filter(() => next() < 0.003);
    await Promise.all(
      victims.map((id) => engine.executions.revokeLease(id, { reason: 'chance' }).catch(() => undefined)),
    );
  }
}

test(
  'random handlers that are paused, killed and retried take the branch of the first run',
  { timeout: patiently(HISTORIES * 2_000) },
  async () => {
    const verdict = await runHistories(HISTORIES, (engine) => workerPort(engine));
    console.log(
      `branches: ${verdict.histories} histories, ${verdict.runs} runs, ${verdict.contradictions.length} contradictions`,
    );
    expect(verdict.contradictions).toEqual([]);
    expect(verdict.runs).toBeGreaterThan(verdict.histories * 2);
  },
);

test('without the stored order they do not', { timeout: patiently(120_000) }, async () => {
  const forgetful = (engine: Connection): WorkerPort => ({
    ...workerPort(engine),
    readOrder: async () => [],
  });
  const verdict = await runHistories(20, forgetful);
  expect(verdict.contradictions.length).toBeGreaterThan(0);
});

test('an approval that beat a sleep stays the winner, even when a later pause outlasts the sleep', async () => {
  const { run, done } = await started(async (ctx, note) => {
    const winner = await Promise.race([
      ctx.waitFor('approval').then(() => 'paid'),
      ctx.sleep('patience', '2s').then(() => 'refused'),
    ]);
    note(winner);
    await ctx.step(winner, () => null);
    await ctx.sleep('cooling off', '1h');
    return winner;
  });
  await done.approve('approval');
  await done.paused();
  await crew.database.moveClock(HOUR_MS);
  await done.fire();
  expect(await run.wait()).toMatchObject({ outcome: 'success', result: 'paid' });
  expect(done.notes).toEqual(['paid', 'paid']);
  const steps = await done.engine.executions.listSteps(run.executionId);
  expect(steps.filter(({ kind }) => kind === 'step').map(({ name }) => name)).toEqual(['paid']);
});

test('a sleep that has ended stays ended when the database clock is set back', async () => {
  const { run, done } = await started(async (ctx, note) => {
    const asked = ctx.waitFor('asked');
    await Promise.race([ctx.sleep('first', '1h'), asked]);
    note('slept');
    await ctx.step('after', () => null);
    await asked;
    return 'done';
  });
  await done.paused();
  await crew.database.moveClock(HOUR_MS);
  await done.fire();
  await expect.poll(() => done.notes, SOON).toEqual(['slept']);
  await done.paused();
  await crew.database.moveClock(-HOUR_MS);
  await done.approve('asked');
  expect(await run.wait()).toMatchObject({ outcome: 'success', result: 'done' });
  expect(done.notes).toEqual(['slept', 'slept']);
});

test('the winner is stored before its branch does anything', async () => {
  let orders: string[] = [];
  const { run, done } = await started(async (ctx) => {
    await Promise.race([ctx.sleep('long', '1h'), ctx.step('short', () => null)]);
    await ctx.step('branch', async () => {
      orders = await workerPort(done.engine).readOrder(ctx.executionId);
    });
  });
  expect(await run.wait()).toMatchObject({ outcome: 'success' });
  expect(orders).toEqual([JSON.stringify(['step', 'short'])]);
});

test('a handler that awaits one thing at a time stores no order', async () => {
  const { run, done } = await started(async (ctx) => {
    await ctx.step('one', () => null);
    await ctx.step('two', () => null);
    await ctx.sleep('three', { milliseconds: 1 });
  });
  expect(await run.wait()).toMatchObject({ outcome: 'success' });
  expect(await workerPort(done.engine).readOrder(run.executionId)).toEqual([]);
});

test('changed code that no longer awaits what was delivered first still completes', async () => {
  const { run, done } = await started(async (ctx, note) => {
    const left = ctx.waitFor('left');
    if (done.notes.length === 0) await Promise.race([left, ctx.step('removed', () => null)]);
    note('ran');
    await Promise.race([left, ctx.step('kept', () => null)]);
    await left;
    return 'done';
  });
  await done.paused();
  await done.approve('left');
  expect(await run.wait()).toMatchObject({ outcome: 'success', result: 'done' });
  const order = await workerPort(done.engine).readOrder(run.executionId);
  expect(order.map((end) => (JSON.parse(end) as string[])[1])).toEqual(['kept', 'left']);
});

test('a step that fails in one run and not in the next does not change later winners', async () => {
  let calls = 0;
  const flaky = (): void => {
    calls += 1;
    if (calls === 1) throw new Error('the first time only');
  };
  const { run, done } = await started(async (ctx, note) => {
    const deadline = ctx.sleep('deadline', '30m').then(() => 'deadline');
    await ctx.step('flaky', flaky).catch(() => undefined);
    // Work of the handler's own, which the context cannot see.
    await turns(500);
    const won = await Promise.race([ctx.step('work', () => null).then(() => 'work'), deadline]);
    note(won);
    await ctx.step(`won ${won}`, () => null);
    await ctx.sleep('rest', '1h');
    return won;
  });
  await done.paused();
  await crew.database.moveClock(HOUR_MS);
  await done.fire();
  expect(await run.wait()).toMatchObject({ outcome: 'success', result: 'work' });
  expect([calls, done.notes]).toEqual([2, ['work', 'work']]);
});
