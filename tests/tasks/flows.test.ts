/**
 * Flows run by real workers: results are passed to downstream handlers, losers are aborted while they run, and running
 * members add others.
 */
import { describe, expect, expectTypeOf, test } from 'vitest';
import {
  join,
  ExecutionFailed,
  flow,
  handle,
  task,
  TaskAborted,
  TaskFailed,
  type Connection,
  type EngineError,
  type ExecutionId,
  type FlowBuilder,
  type TaskContext,
} from '../../src/index.ts';
import { AGAIN, deaf, latch, newKind, SOON, useCrew } from '../worker/crew.ts';
import { workerPort } from '../../src/connect/port.ts';
import type { WorkerPort } from '../../src/contract/protocol.ts';

const crew = useCrew();

/** Resolves when the AbortSignal fires, with its reason. */
function whyStopped({ signal }: TaskContext): Promise<unknown> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve(signal.reason);
    else signal.addEventListener('abort', () => resolve(signal.reason), { once: true });
  });
}

describe('a defined flow', () => {
  test('passes results from handler to handler, for every input it is submitted with', async () => {
    const engine = await crew.connect();
    const length = task<{ text: string }, number>(newKind());
    const sizes = flow(newKind(), (f: FlowBuilder<{ texts: string[] }>) => {
      const lengths = f.each('length', length, ({ texts }) => texts.map((text) => ({ text })));
      const total = f.handle('total', { after: { lengths }, input: { plus: 100 } }, (input) =>
        input.lengths.reduce((sum, each) => sum + each, input.plus),
      );
      return f.handle('say', { after: { total }, input: ({ texts }) => ({ texts }) }, async (input, ctx) => ({
        said: `${input.texts.join(' ')}: ${input.total}`,
        flowId: ctx.flow?.flowId,
      }));
    });
    crew.work(engine, { handlers: [...sizes.handlers, handle(length, ({ text }) => text.length)] });
    const runs = [
      await engine.submitFlow(sizes, { texts: ['a', 'bcd'] }, { tags: { number: 'one' } }),
      await engine.submitFlow(sizes, { texts: [] }),
    ] as const;
    const results = await Promise.all(runs.map((run) => run.result()));
    expectTypeOf(results[0]!.said).toEqualTypeOf<string>();
    expect(results).toEqual([
      { said: 'a bcd: 104', flowId: runs[0].flowId },
      { said: ': 100', flowId: runs[1].flowId },
    ]);
    expect(await runs[0].wait()).toBe('completed');
    expect(await runs[0].describe()).toMatchObject({ tags: { number: 'one' }, counts: { completed: 4 } });
    expect(Object.keys(runs[0].members)).toEqual(['length[0]', 'length[1]', 'total', 'say']);
  });

  test('passes on how a member failed to downstream members that ask for it, and in its result', async () => {
    const engine = await crew.connect();
    const risky = flow(newKind(), (f: FlowBuilder<{ fail: 'yes' | 'no' }>) => {
      const work = f.handle('work', { input: (input) => input }, ({ fail }) => {
        if (fail === 'yes') throw new TaskFailed('broke', { category: 'odd', retry: 'never' });
        return 7;
      });
      f.handle('clean up', { after: { end: work.ended() } }, ({ end }) => end);
      f.handle('mourn', { after: { loss: work.failed() } }, ({ loss }) => loss.message);
      return f.handle('after', { after: { work } }, ({ work: seven }) => seven + 1);
    });
    crew.work(engine, { handlers: risky.handlers });
    const good = await engine.submitFlow(risky, { fail: 'no' });
    expect(await good.result()).toBe(8);
    expect(await good.wait()).toBe('completed');
    const bad = await engine.submitFlow(risky, { fail: 'yes' });
    await expect(bad.result()).rejects.toThrow(ExecutionFailed);
    await expect(bad.result()).rejects.toMatchObject({ end: { outcome: 'skipped' } });
    expect(await bad.wait()).toBe('failed');
    const resultOf = async (run: typeof good, member: string) => {
      const end = await engine.executions.result(run.members[member]!);
      return end.outcome === 'success' ? end.result : end.outcome;
    };
    const nothing = { message: null, category: null };
    expect(await resultOf(good, 'clean up')).toEqual({ outcome: 'success', result: 7, ...nothing });
    expect(await resultOf(good, 'mourn')).toBe('skipped');
    const failed = { outcome: 'failed', result: null, message: 'broke', category: 'odd' };
    expect(await resultOf(bad, 'clean up')).toEqual(failed);
    expect(await resultOf(bad, 'mourn')).toBe('broke');
  });

  test('runs the fallback, and omits results that do not exist', async () => {
    const engine = await crew.connect();
    const careful = flow(newKind(), (f) => {
      const spare = f.handle('spare', {}, () => 'spare');
      const broken = f.handle('broken', { retry: { maxRetries: 0 } }, (): string => {
        throw new Error('no');
      });
      const best = f.handle('best', { after: { broken }, fallback: spare }, (input) => input.broken);
      const ends = { best, spare, all: [broken.failed()] };
      return f.handle('end', { after: ends, join: join.quorum(2) }, (input) => input);
    });
    crew.work(engine, { handlers: careful.handlers });
    const run = await engine.submitFlow(careful);
    expect(await run.result()).toEqual({
      spare: 'spare',
      all: [{ outcome: 'failed', result: null, message: 'no', category: 'transient' }],
    });
  });

  test('is submitted once under its id, and can be cancelled', async () => {
    const engine = await crew.connect();
    const idle = flow(newKind(), (f) => f.add('never', task(newKind()), null));
    const first = await engine.submitFlow(idle);
    const again = await engine.submitFlow(idle, undefined, { flowId: first.flowId });
    expect(again).toMatchObject({ flowId: first.flowId, outcome: 'duplicate', members: first.members });
    expect(await again.cancel({ reason: 'enough', wait: 'end' })).toMatchObject({ outcome: 'cancelled' });
    expect(await first.wait()).toBe('cancelled');
    await expect(engine.submitFlow(idle, undefined, { lane: 'x' } as never)).rejects.toMatchObject({
      code: 'invalid_input',
    });
  });
});

describe('losers', () => {
  test('that run are aborted, and whatever they still report changes nothing', async () => {
    const engine = await crew.connect();
    const seen: unknown[] = [];
    const began = [latch(), latch()];
    const race = flow(newKind(), (f) => {
      const slow = [0, 1].map((n) =>
        f.handle(`slow ${n}`, {}, async (_, ctx) => {
          began[n]!.open();
          seen.push(await whyStopped(ctx));
          return 'too late';
        }),
      );
      const fast = f.handle('fast', {}, async () => {
        await Promise.all(began.map(({ opened }) => opened));
        return 'first';
      });
      return f.handle(
        'judge',
        { after: { answers: [...slow, fast] }, join: join.any() },
        ({ answers }) => answers,
      );
    });
    const worker = crew.work(engine, { handlers: race.handlers });
    const run = await engine.submitFlow(race);
    expect(await run.result()).toEqual(['first']);
    await expect.poll(() => seen.length, SOON).toBe(2);
    for (const reason of seen) {
      expect(reason).toBeInstanceOf(TaskAborted);
      expect(reason).toMatchObject({ code: 'cancelled' });
    }
    await expect.poll(() => worker.running, SOON).toBe(0);
    expect(worker.stats).toMatchObject({ completed: 2, lost: 2 });
    for (const member of ['slow 0', 'slow 1'])
      expect(await engine.executions.result(run.members[member]!)).toMatchObject({
        outcome: 'cancelled',
        message: 'sibling_quorum_satisfied',
      });
    expect(await run.wait()).toBe('completed');
  });

  test('that are not aborted are refused when they complete', async () => {
    const engine = await crew.connect();
    const [began, goOn] = [latch(), latch()];
    const race = flow(newKind(), (f) => {
      const slow = f.handle('slow', {}, async () => {
        began.open();
        await goOn.opened;
        return 'too late';
      });
      const fast = f.handle('fast', {}, async () => {
        await began.opened;
        return 'first';
      });
      return f.handle(
        'judge',
        { after: { answers: [slow, fast] }, join: join.any() },
        ({ answers }) => answers,
      );
    });
    const worker = crew.work(deaf(engine), { handlers: race.handlers, poll: 20 });
    const run = await engine.submitFlow(race);
    expect(await run.wait()).toBe('completed');
    goOn.open();
    await expect.poll(() => worker.running, SOON).toBe(0);
    expect(worker.stats).toMatchObject({ completed: 2, lost: 1 });
    expect(await run.result()).toEqual(['first']);
    expect((await engine.executions.result(run.members['slow']!)).outcome).toBe('cancelled');
  });

  test('are stopped a hundred wide', async () => {
    const engine = await crew.connect();
    const WIDE = 100;
    const stopped: unknown[] = [];
    const allBegan = latch();
    let begun = 0;
    const runner = task<{ n: number }, number>(newKind());
    const race = flow(newKind(), (f) => {
      const runners = f.each(
        'runner',
        runner,
        Array.from({ length: WIDE }, (_, n) => ({ n })),
      );
      return f.handle('judge', { after: { firsts: runners }, join: join.any() }, ({ firsts }) => firsts);
    });
    const run = async ({ n }: { n: number }, ctx: TaskContext) => {
      begun += 1;
      if (begun === WIDE) allBegan.open();
      if (n !== 42) {
        stopped.push(await whyStopped(ctx));
        throw new Error('stopped');
      }
      await allBegan.opened;
      return n;
    };
    const worker = crew.work(engine, {
      concurrency: WIDE,
      handlers: [...race.handlers, handle(runner, run)],
    });
    const submitted = await engine.submitFlow(race);
    expect(await submitted.result()).toEqual([42]);
    expect(await submitted.wait()).toBe('completed');
    await expect.poll(() => stopped.length, SOON).toBe(WIDE - 1);
    expect(stopped.every((reason) => (reason as TaskAborted).code === 'cancelled')).toBe(true);
    await expect.poll(() => worker.running, SOON).toBe(0);
    expect(worker.stats).toMatchObject({ completed: 2, lost: WIDE - 1, failed: 0 });
    const { counts, members } = (await submitted.describe())!;
    expect(counts).toEqual({ completed: 2, cancelled: WIDE - 1 });
    const reasons = members.filter(({ state }) => state === 'cancelled').map(({ message }) => message);
    expect(new Set(reasons)).toEqual(new Set(['sibling_quorum_satisfied']));
    const left = await crew.database.query(
      'SELECT 1 FROM ff_pending_cancel_groups UNION ALL SELECT 1 FROM ff_flow_job',
    );
    expect(left.rows).toEqual([]);
  });
});

describe('a member that extends its flow', () => {
  const part = task<{ n: number }, number>(newKind());
  const sum = task<{ parts: number[]; first?: number }, number>(newKind());
  const first = task<null, number>(newKind());

  test('adds members once, however often it runs', async () => {
    const engine = await crew.connect();
    const outcomes: string[] = [];
    const growing = flow(newKind(), (f) => f.add('first', first, null, { policy: AGAIN }));
    crew.work(engine, {
      handlers: [
        handle(first, async (_, ctx) => {
          const { outcome } = await ctx.flow!.extend((f) => {
            const parts = f.each(
              'part',
              part,
              [1, 2, 3, 4, 5].map((n) => ({ n })),
            );
            const before = f.member('first', first);
            f.add('sum', sum, {}, { after: { parts, first: before } });
            // @ts-expect-error -- a number is not a list
            if (false as boolean) f.add('bad', sum, {}, { after: { parts: before } });
          });
          outcomes.push(outcome);
          if (ctx.attemptIndex === 0) throw new Error('once more');
          return 1_000;
        }),
        handle(part, ({ n }) => n),
        handle(sum, (input) => input.parts.reduce((total, n) => total + n, input.first ?? 0)),
      ],
    });
    const run = await engine.submitFlow(growing);
    expect(await run.wait()).toBe('completed');
    expect(outcomes).toEqual(['submitted', 'duplicate']);
    const { members, edgeCount } = (await run.describe())!;
    expect(members).toHaveLength(7);
    expect(edgeCount).toBe(6);
    const { executionId } = members.find(({ name }) => name === 'sum')!;
    expect(await engine.executions.result(executionId)).toEqual({ outcome: 'success', result: 1_015 });
  });

  const LEASE_MS = 60_000;
  test.each<[string, string, (engine: Connection, id: ExecutionId) => Promise<unknown>]>([
    ['a cancel', 'cancelled', (engine, id) => engine.cancel(id, { reason: 'not needed' })],
    ['a revocation', 'revoked', (engine, id) => engine.executions.revokeLease(id, { reason: 'stuck' })],
    ['a lapsed lease', 'lease_lost', () => crew.database.moveClock(LEASE_MS + 1)],
  ])('adds nothing after %s, and learns that it lost its lease', async (_, code, take) => {
    const engine = await crew.connect();
    const met: unknown[] = [];
    const [began, goOn] = [latch(), latch()];
    const growing = flow(newKind(), (f) => f.add('first', first, null, { policy: AGAIN }));
    // It is not notified before it calls.
    const unheard: WorkerPort = { ...workerPort(engine), watch: () => () => undefined };
    const worker = crew.work(unheard, {
      lease: LEASE_MS,
      poll: 20,
      // Nor does it claim the same work again meanwhile, which would also abort it.
      concurrency: 1,
      handlers: [
        handle(first, async (_input, ctx) => {
          if (ctx.attemptIndex > 0) return 1;
          began.open();
          await goOn.opened;
          const extended = ctx.flow!.extend((f) => void f.add('late', part, { n: 1 }));
          await extended.catch((error: unknown) => met.push(error));
          met.push(ctx.signal.reason);
          return 1;
        }),
      ],
    });
    const run = await engine.submitFlow(growing);
    await began.opened;
    await take(engine, run.members['first']!);
    goOn.open();
    await expect.poll(() => met, SOON).toEqual([expect.any(TaskAborted), expect.any(TaskAborted)]);
    expect(met).toMatchObject([{ code }, { code }]);
    await worker.stop();
    expect((await run.describe())!.members).toHaveLength(1);
  });

  test('learns that its flow accepts no more members, while it may continue itself', async () => {
    const engine = await crew.connect();
    const [began, goOn] = [latch(), latch()];
    const growing = flow(newKind(), (f) => f.add('first', first, null));
    crew.work(engine, {
      handlers: [
        handle(first, async (_, ctx) => {
          began.open();
          await goOn.opened;
          return ctx
            .flow!.extend((f) => void f.add('late', part, { n: 1 }))
            .then(
              () => 0,
              (error: EngineError) => (error.code === 'flow_ended' && !ctx.signal.aborted ? 1 : 2),
            );
        }),
      ],
    });
    const run = await engine.submitFlow(growing);
    await began.opened;
    await run.cancel({ reason: 'enough', policy: 'let_finish' });
    goOn.open();
    expect(await run.result()).toBe(1);
    expect(await run.wait()).toBe('cancelled');
  });

  test('fails terminally when the extension is invalid', async () => {
    const engine = await crew.connect();
    const circular = flow(newKind(), (f) => f.add('first', first, null, { policy: AGAIN }));
    crew.work(engine, {
      handlers: [
        handle(first, async (_, ctx) => {
          await ctx.flow!.extend(
            (f) => void f.add('lost', sum, {}, { after: { parts: [f.member('nobody', part)] } }),
          );
          return 1;
        }),
      ],
    });
    const run = await engine.submitFlow(circular);
    await expect(run.result()).rejects.toMatchObject({ end: { outcome: 'failed', category: 'permanent' } });
    expect((await run.describe())!.members).toHaveLength(1);
  });

  test('has a flow; other executions have none', async () => {
    const engine = await crew.connect();
    const lone = task<null, boolean>(newKind());
    crew.work(engine, { handlers: [handle(lone, (_, ctx) => ctx.flow === null)] });
    const run = await engine.submit(lone, null);
    expect(await run.result()).toBe(true);
  });
});
