/**
 * Handlers that ignore their AbortSignal and continue: whatever they try through their context, and whatever they
 * return, none of it is in the database afterwards. Some are aborted when they lose their lease, some are not notified.
 */
import { afterEach, beforeAll, describe, expect, test } from 'vitest';
import type { Connection } from '../../src/connect/connection.ts';
import type { ExecutionId } from '../../src/contract/ids.ts';
import { task } from '../../src/define/task.ts';
import type { TaskContext } from '../../src/define/task-context.ts';
import { handle, type TaskHandler } from '../../src/define/handlers.ts';
import { TaskAborted } from '../../src/worker/task.ts';
import { AGAIN, deaf, latch, newKind, SOON, useCrew, uuidOf } from '../worker/crew.ts';

const LEASE_MS = 60_000;
const crew = useCrew();
const orphan = task<null>(newKind());

beforeAll(async () => {
  await crew.database.query('CREATE TABLE public.late (execution_id text)');
});
afterEach(async () => {
  await crew.database.query('TRUNCATE public.late');
});

/** Each in its own execution, because a run remembers its first refusal. */
const VERBS: Record<string, (ctx: TaskContext) => unknown> = {
  step: (ctx) => ctx.step('late', () => 'late'),
  tx: (ctx) =>
    ctx.tx('late', async (tx) => {
      await tx.query('INSERT INTO public.late VALUES ($1)', [ctx.executionId]);
    }),
  spawn: (ctx) => ctx.spawn(orphan, null),
  'short sleep': (ctx) => ctx.sleep('late', '1ms'),
  'long sleep': (ctx) => ctx.sleep('late', '1h'),
  progress: (ctx) => ctx.progress({ percent: 99, message: 'late' }),
  return: () => undefined,
};
const SILENT_VERBS = ['progress', 'return'];

/** Why the verb was refused, or that it was not. */
async function tryVerb(verb: string, ctx: TaskContext): Promise<string> {
  try {
    await VERBS[verb]!(ctx);
    return 'nothing was said';
  } catch (error) {
    return error instanceof TaskAborted ? 'aborted' : `not a TaskAborted: ${String(error)}`;
  }
}

interface Zombies {
  engine: Connection;
  ids: ExecutionId[];
  kind: string;
  contexts: TaskContext[];
  /** Lets them continue; returns what each verb met, once all handlers have returned. */
  goOn(): Promise<Record<string, string>>;
}

/** One running execution per verb, whose handler waits, tries its verb and returns. */
async function startZombies(hearing: 'told' | 'deaf'): Promise<Zombies> {
  const engine = await crew.connect();
  const kind = newKind();
  const contexts: TaskContext[] = [];
  const met: Record<string, string> = {};
  const awake = latch();
  const worker = crew.work(hearing === 'deaf' ? deaf(engine) : engine, {
    lease: LEASE_MS,
    poll: 20,
    concurrency: Object.keys(VERBS).length,
    handlers: [
      handle(task<string>(kind), async (verb, ctx) => {
        contexts.push(ctx);
        await awake.opened;
        met[verb] = await tryVerb(verb, ctx);
        return 'by a zombie';
      }),
    ],
  });
  const requests = Object.keys(VERBS).map((payload) => ({ kind, payload, policy: AGAIN }));
  const ids = (await engine.executions.submit(requests)).map(({ executionId }) => executionId);
  await expect.poll(() => contexts.length, SOON).toBe(ids.length);
  const goOn = async () => {
    const left = worker.stop({ deadline: Infinity });
    awake.open();
    await left;
    await engine.close();
    return met;
  };
  return { engine, ids, kind, contexts, goOn };
}

const ALL_REFUSED = Object.fromEntries(
  Object.keys(VERBS).map((verb) => [verb, SILENT_VERBS.includes(verb) ? 'nothing was said' : 'aborted']),
);

/** Checks that nothing a verb could have written exists. */
async function checkUntouched(ids: readonly ExecutionId[]): Promise<void> {
  const uuids = ids.map((id) => uuidOf(id));
  const left = await crew.database.query(
    `SELECT 'step' AS what FROM ff_step WHERE execution_id = ANY ($1)
     UNION ALL SELECT 'child' FROM ff_execution WHERE parent_id = ANY ($1)
     UNION ALL SELECT 'progress' FROM ff_progress WHERE execution_id = ANY ($1)
     UNION ALL SELECT 'result' FROM ff_attempt_history WHERE execution_id = ANY ($1) AND result = '"by a zombie"'
     UNION ALL SELECT 'row' FROM public.late`,
    [uuids],
  );
  expect(left.rows).toEqual([]);
}

async function endsOf(ids: readonly ExecutionId[]): Promise<Set<string>> {
  const engine = await crew.connect();
  const results = await Promise.all(ids.map((id) => engine.executions.result(id)));
  return new Set(
    results.map((result) => (result.outcome === 'success' ? String(result.result) : result.outcome)),
  );
}

/** Another worker runs what was taken away, to completion. */
async function takeOver({ kind, ids }: Zombies): Promise<void> {
  const engine = await crew.connect({ reconcile: 'on' });
  crew.work(engine, { handlers: [handle(task(kind), () => 'by the next')] });
  await Promise.all(ids.map((id) => engine.executions.wait(id)));
}

const WAYS: Record<string, { take: (zombies: Zombies) => Promise<unknown>; end: string }> = {
  'a cancel': {
    take: ({ engine, ids }) => engine.cancel(ids, { reason: 'not needed' }),
    end: 'cancelled',
  },
  'a revocation, with somebody else taking over': {
    async take(zombies) {
      await Promise.all(
        zombies.ids.map((id) => zombies.engine.executions.revokeLease(id, { reason: 'stuck' })),
      );
      await takeOver(zombies);
    },
    end: 'by the next',
  },
  'a lapsed lease nobody has noticed': {
    take: () => crew.database.moveClock(LEASE_MS + 1),
    end: 'pending',
  },
  'a lapsed lease, with somebody else taking over': {
    async take(zombies) {
      await crew.database.moveClock(LEASE_MS + 1);
      await takeOver(zombies);
    },
    end: 'by the next',
  },
};

describe.each(Object.keys(WAYS))('after %s', (way) => {
  const { take, end } = WAYS[way]!;

  test('a handler that was not notified changes nothing', async () => {
    const zombies = await startZombies('deaf');
    await take(zombies);
    expect(zombies.contexts.filter((ctx) => ctx.signal.aborted)).toEqual([]);
    expect(await zombies.goOn()).toEqual(ALL_REFUSED);
    await checkUntouched(zombies.ids);
    expect(await endsOf(zombies.ids)).toEqual(new Set([end]));
  });

  test('a handler that ignores its AbortSignal changes nothing', async () => {
    const zombies = await startZombies('told');
    await take(zombies);
    await crew.ringAllWorkers();
    await expect.poll(() => zombies.contexts.every((ctx) => ctx.signal.aborted), SOON).toBe(true);
    expect(await zombies.goOn()).toEqual(ALL_REFUSED);
    await checkUntouched(zombies.ids);
    expect(await endsOf(zombies.ids)).toEqual(new Set([end]));
  });
});

/** One execution per verb of this handler, which leaves its context behind; all have finished when it returns. */
async function leftBehind(
  make: (kind: string, keep: (verb: string, ctx: TaskContext) => void) => TaskHandler,
  over: (engine: Connection, id: ExecutionId) => Promise<unknown>,
): Promise<{ engine: Connection; ids: ExecutionId[]; contexts: Map<string, TaskContext> }> {
  const engine = await crew.connect();
  const kind = newKind();
  const contexts = new Map<string, TaskContext>();
  crew.work(engine, { handlers: [make(kind, (verb, ctx) => contexts.set(verb, ctx))] });
  const requests = Object.keys(VERBS).map((payload) => ({ kind, payload }));
  const ids = (await engine.executions.submit(requests)).map(({ executionId }) => executionId);
  await Promise.all(ids.map((id) => over(engine, id)));
  return { engine, ids, contexts };
}

test('a context that outlives its handler writes nothing', async () => {
  const { engine, ids, contexts } = await leftBehind(
    (kind, keep) => handle(task<string>(kind), (verb, ctx) => keep(verb, ctx)),
    (connection, id) => connection.executions.wait(id),
  );
  const met = await Promise.all([...contexts].map(async ([verb, ctx]) => [verb, await tryVerb(verb, ctx)]));
  expect(Object.fromEntries(met)).toEqual(ALL_REFUSED);
  await engine.close();
  await checkUntouched(ids);
});

test('a handler that continues after the time limit of its attempt writes nothing', async () => {
  const held = latch();
  const met: Record<string, string> = {};
  const { engine, ids } = await leftBehind(
    (kind) =>
      handle(task<string>(kind, { timeout: '50ms', retry: { maxRetries: 0 } }), async (verb, ctx) => {
        await held.opened;
        met[verb] = await tryVerb(verb, ctx);
        return 'by a zombie';
      }),
    (connection, id) => connection.executions.wait(id),
  );
  held.open();
  await expect.poll(() => met, SOON).toEqual(ALL_REFUSED);
  await engine.close();
  await checkUntouched(ids);
  expect(await endsOf(ids)).toEqual(new Set(['failed']));
});

test('pending waits that a handler does not await yet harm nothing when it loses its lease', async () => {
  const engine = await crew.connect();
  const [child, parent] = [task<null>(newKind()), task<null>(newKind())];
  const [waiting, stuck] = [latch(), latch()];
  const worker = crew.work(engine, {
    handlers: [
      handle(parent, async (_, ctx) => {
        const spawned = await ctx.spawn(child, null);
        const waits = [ctx.sleep('nap', '1h'), spawned.result(), ctx.all([spawned])];
        await ctx.step('stuck', () => {
          waiting.open();
          return stuck.opened;
        });
        await Promise.all(waits);
      }),
    ],
  });
  const { executionId } = await engine.submit(parent, null);
  await waiting.opened;
  // An unhandled rejection would end the process, and fails this test run.
  await engine.cancel(executionId, { reason: 'not needed' });
  await crew.ringAllWorkers();
  stuck.open();
  await expect.poll(() => [worker.running, worker.stats.lost], SOON).toEqual([0, 1]);
});
