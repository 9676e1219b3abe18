/**
 * `ctx.parent`: children change the document of their parent, each change once, whatever happens to either of them.
 */
import { describe, expect, test } from 'vitest';
import { workerPort } from '../../src/connect/port.ts';
import type { WorkerPort } from '../../src/contract/protocol.ts';
import { handle } from '../../src/define/handlers.ts';
import { task } from '../../src/define/task.ts';
import type { TaskContext } from '../../src/define/task-context.ts';
import { AGAIN, latch, newKind, SOON, useCrew } from '../worker/crew.ts';

const crew = useCrew();
const NO_RETRY = { retry: { maxRetries: 0 } } as const;

/** A parent and its children, each a function of its context. */
async function family(
  parent: (ctx: TaskContext, child: ReturnType<typeof task<number, unknown>>) => Promise<unknown>,
  child: (n: number, ctx: TaskContext) => Promise<unknown>,
  seen: (port: WorkerPort) => WorkerPort = (port) => port,
) {
  const engine = await crew.connect();
  const [parents, children] = [task<null>(newKind(), AGAIN), task<number>(newKind(), AGAIN)];
  crew.work(seen(workerPort(engine)), {
    poll: 50,
    handlers: [handle(parents, (_, ctx) => parent(ctx, children)), handle(children, child)],
  });
  const run = await engine.submit(parents, null);
  const document = async (): Promise<unknown> =>
    (await engine.streams.readSummary(run.executionId))?.document;
  return { engine, run, document };
}

const COUNT = 6;
const numbers = Array.from({ length: COUNT }, (_, n) => n);

const spawnAll = async (ctx: TaskContext, child: ReturnType<typeof task<number, unknown>>): Promise<void> => {
  const children = await Promise.all(numbers.map((n) => ctx.spawn(child, n, { key: String(n) })));
  await ctx.all(children);
};

describe('a change of the parent', () => {
  test('is made once, though children fail, and stays over the attempts of the parent', async () => {
    const { run, document, engine } = await family(
      async (ctx, child) => {
        await ctx.stream.patch({ done: 0, total: COUNT });
        await spawnAll(ctx, child);
        await ctx.stream.patch({ all: true });
        if (ctx.attemptIndex === 0) throw new Error('once more');
      },
      async (n, ctx) => {
        await ctx.step('work', async () => {
          await ctx.parent.increment('done');
          await ctx.parent.patch({ parts: { [n]: 'done' } });
          if (ctx.attemptIndex === 0 && n % 2 === 0) throw new Error('not yet');
        });
        if (ctx.attemptIndex < 2 && n % 3 === 0) throw new Error('after the step');
      },
    );
    await run.result();
    const parts = Object.fromEntries(numbers.map((n) => [n, 'done']));
    expect(await document()).toEqual({ done: COUNT, total: COUNT, parts, all: true });
    const { frames } = await engine.streams.read(run.executionId, { attemptIndex: 0 });
    const written = frames.filter(({ child }) => child !== null);
    expect(written).toHaveLength(2 * COUNT);
    expect(new Set(written.map(({ child }) => child)).size).toBe(COUNT);
  });

  test('whose reply was lost is made once', async () => {
    const lost = new Set<string>();
    const { run, document } = await family(
      spawnAll,
      (_, ctx) => ctx.step('work', async () => void (await ctx.parent.increment(['sum', 'of', 'all'], 2))),
      (port) => ({
        ...port,
        async recordForParent(lease, step, changes) {
          const outcome = await port.recordForParent(lease, step, changes);
          if (lost.has(lease.executionId)) return outcome;
          lost.add(lease.executionId);
          throw Object.assign(new Error('the connection is gone'), { code: 'ECONNRESET' });
        },
      }),
    );
    await run.result();
    expect(lost.size).toBe(COUNT);
    expect(await document()).toEqual({ sum: { of: { all: 2 * COUNT } } });
  });

  test('is given to whoever watches the parent', async () => {
    const { engine, run } = await family(
      async (ctx, child) => void (await (await ctx.spawn(child, 1)).result()),
      (_, ctx) => ctx.step('work', async () => void (await ctx.parent.patch({ child: 'was here' }))),
    );
    const documents: unknown[] = [];
    for await (const item of engine.streams.watch(run.executionId))
      if (item.type === 'document') documents.push(item.document);
    expect(documents.at(-1)).toEqual({ child: 'was here' });
  });

  test('is refused outside of steps, in transactions, without a parent, and when it is malformed', async () => {
    const engine = await crew.connect();
    const lonely = task<null>(newKind(), NO_RETRY);
    const told = async (call: () => Promise<unknown>): Promise<unknown> =>
      call().then(
        (value) => value,
        ({ code, message }: { code: string; message: string }) => [code, message],
      );
    crew.work(engine, {
      handlers: [
        handle(lonely, async (_, ctx) => [
          await told(() => ctx.parent.patch({ a: 1 })),
          await ctx.tx('tx', () => told(() => ctx.parent.increment('a'))),
          await ctx.step('none', () => told(() => ctx.parent.increment('a'))),
          await ctx.step('bad patch', () => told(() => ctx.parent.patch([] as never))),
          await ctx.step('bad number', () => told(() => ctx.parent.increment('a', Number.NaN))),
          await ctx.step('bad path', () => told(() => ctx.parent.increment([]))),
        ]),
      ],
    });
    const run = await engine.submit(lonely, null);
    const inside = ['invalid_step', expect.stringContaining('inside the function of a ctx.step only')];
    expect(await run.result()).toEqual([
      inside,
      inside,
      ['invalid_step', expect.stringContaining('it has no parent')],
      ['invalid_input', expect.stringContaining('ctx.parent.patch: change')],
      ['invalid_input', expect.stringContaining('change.by must be a finite number')],
      ['invalid_input', expect.stringContaining('change.path must be a list')],
    ]);
  });
});

test('a parent that has ended is changed no more by a detached child, and the step is stored all the same', async () => {
  const [begun, goOn] = [latch(), latch()];
  const { engine, run, document } = await family(
    async (ctx, child) => {
      await ctx.spawn(child, 1, { detached: true });
      await begun.opened;
    },
    async (_, ctx) => {
      const first = await ctx.step('early', () => ctx.parent.patch({ early: true }));
      begun.open();
      const late = await ctx.step('too late to be applied', async () => {
        const taken = await ctx.parent.patch({ late: true });
        await goOn.opened;
        return taken;
      });
      const last = await ctx.step('refused', () => ctx.parent.patch({ last: true }));
      return [first, late, last];
    },
  );
  await run.wait();
  goOn.open();
  const page = await engine.executions.list({ filter: { parentId: run.executionId } });
  const { executionId } = page.executions[0]!;
  const child = await engine.executions.wait(executionId).catch(() => null);
  await expect
    .poll(() => engine.executions.result(executionId), SOON)
    .toMatchObject({ result: [{ outcome: 'taken' }, expect.anything(), { outcome: 'not_active' }] });
  expect(child).toMatchObject({ outcome: 'success' });
  expect(await document()).toMatchObject({ early: true });
  expect(await document()).not.toHaveProperty('last');
});
