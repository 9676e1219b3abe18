/**
 * Forgetting: executions are deleted when their retention is over, with everything that belongs to them, unless
 * something still needs them. Events and idempotency keys follow rules of their own. Concurrent cases are in
 * tests/races/executions/retention.test.ts.
 */
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import type { EngineContext } from '../../../src/engine/kit/context.ts';
import type { Claim } from '../../../src/protocol/index.ts';
import type { ExecutionId, SubmitRequest } from '../../../src/index.ts';
import { openEngine } from '../../../src/engine/open.ts';
import { setRetention } from '../../../src/engine/upkeep/retention-setting.ts';
import { eventPositions, oldEvents } from '../../../src/engine/upkeep/event-log.ts';
import { oldKeys } from '../../../src/engine/upkeep/old-keys.ts';
import { runPass } from '../../../src/engine/upkeep/pass.ts';
import { retention } from '../../../src/engine/upkeep/retention.ts';
import { forgetKeys, openEventSlot } from '../../../src/engine/upkeep/retention.sql.ts';
import { newKind, useBench, WAIT } from '../open.ts';

const bench = useBench();
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
/** Keys that must stay are checked again at once. */
const AGAIN_MS = 0;
const WHY = { reason: 'not needed' };
const signal = new AbortController().signal;
let context: EngineContext;
let close: () => Promise<void>;

beforeAll(async () => {
  const opened = await openEngine({ databaseUrl: bench.database.url, listen: 'off', poolSize: 2 });
  context = opened.context;
  close = () => opened.engine.close();
  await setRetention(context, DAY_MS);
});

afterEach(async () => {
  await bench.database.query('DROP FUNCTION IF EXISTS refuse_planted CASCADE');
});

afterAll(() => close?.());

const uuidOf = (id: ExecutionId): string => id.slice(id.lastIndexOf(':') + 1);
const exists = async (id: ExecutionId): Promise<boolean> =>
  (await bench.engine.executions.describe(id)) !== null;

/** One pass with a default retention of a day. */
function forget(batch = 500): ReturnType<typeof runPass> {
  return runPass(context, retention(), batch, signal);
}

async function ended(request: Partial<SubmitRequest> = {}): Promise<Claim> {
  const claim = await bench.running(request);
  await bench.port.complete(claim, 'done');
  return claim;
}

/** The number of rows per table that refer to an execution. */
async function tracesOf(id: ExecutionId): Promise<Record<string, number>> {
  const tables = await bench.database.query<{ name: string }>(
    `SELECT table_name AS name FROM information_schema.columns JOIN information_schema.tables USING (table_schema, table_name)
     WHERE column_name = 'execution_id' AND table_schema = $1 AND table_name LIKE 'ff\\_%'
       AND CASE table_name WHEN 'ff_event' THEN true WHEN 'ff_event_pack' THEN false ELSE table_type = 'BASE TABLE' END
       AND NOT (SELECT relispartition FROM pg_class WHERE oid = to_regclass(table_name))`,
    [bench.database.schema],
  );
  const counts: Record<string, number> = {};
  for (const { name } of tables.rows) {
    const found = await bench.database.query<{ n: number }>(
      `SELECT count(*)::int AS n FROM ${name} WHERE execution_id = $1`,
      [uuidOf(id)],
    );
    if (found.rows[0]!.n > 0) counts[name] = found.rows[0]!.n;
  }
  return counts;
}

describe('a finished execution', () => {
  it('is forgotten when the retention of the deployment is over, and not before', async () => {
    const { executionId } = await ended();
    await bench.database.moveClock(DAY_MS - HOUR_MS);
    await forget();
    expect(await bench.engine.executions.result(executionId)).toEqual({ outcome: 'success', result: 'done' });
    await bench.database.moveClock(HOUR_MS);
    expect(await forget()).toMatchObject({ acted: 1, failed: 0 });
    expect(await bench.engine.executions.describe(executionId)).toBeNull();
    expect(await bench.engine.executions.result(executionId)).toEqual({ outcome: 'not_found' });
  });

  it('is kept for shorter or longer when its policy sets that', async () => {
    const shorter = await ended({ policy: { retention: HOUR_MS } });
    const longer = await ended({ policy: { retention: 3 * DAY_MS } });
    const atOnce = await ended({ policy: { retention: 0 } });
    await forget();
    expect(await exists(atOnce.executionId)).toBe(false);
    expect(await exists(shorter.executionId)).toBe(true);
    await bench.database.moveClock(HOUR_MS);
    await forget();
    expect(await exists(shorter.executionId)).toBe(false);
    await bench.database.moveClock(2 * DAY_MS);
    await forget();
    expect(await exists(longer.executionId)).toBe(true);
    await bench.database.moveClock(DAY_MS);
    await forget();
    expect(await exists(longer.executionId)).toBe(false);
  });

  it('leaves nothing in any table but its events and its idempotency key', async () => {
    const [kind, childKind] = [newKind(), newKind()];
    const policy = { retry: { maxRetries: 1, backoff: { type: 'fixed', delay: 0 } } } as const;
    await bench.submit({
      kind,
      policy,
      tags: { team: 'a', traceparent: 'x' },
      idempotencyKey: kind,
      payload: 1,
    });
    const first = await bench.claimOne(kind);
    const { executionId } = first;
    await bench.port.recordStep(first, { name: 'paid', value: 1 });
    const spawned = await bench.port.spawn(first, [{ kind: childKind }]);
    const executionIds = spawned.outcome === 'spawned' ? spawned.children.map((c) => c.executionId) : [];
    await bench.port.pause(first, { children: { executionIds, needed: 1 } });
    await bench.port.complete(await bench.claimOne(childKind));
    await bench.port.fireTimers();
    await bench.port.fail(await bench.claimOne(kind), { message: 'once' });
    await bench.port.fireTimers();
    await bench.engine.executions.setTags(executionId, { set: { more: 'b' } });
    await bench.port.complete(await bench.claimOne(kind));
    await bench.engine.executions.replay(executionId, { ...WHY, from: 'start' });
    const last = await bench.claimOne(kind);
    await bench.port.reportProgress(last, { percent: 5 });
    await bench.port.complete(last);
    await bench.port.fireTimers();
    await bench.database.query(
      `INSERT INTO ff_setback SELECT 'due-timers', execution_id, partition_key, 1, 0, 'X' FROM ff_execution
       WHERE execution_id = $1`,
      [uuidOf(executionId)],
    );
    const before = await tracesOf(executionId);
    expect(Object.keys(before).toSorted()).toEqual([
      'ff_attempt_history',
      'ff_child_wait',
      'ff_event',
      'ff_execution',
      'ff_generation',
      'ff_idempotency',
      'ff_progress',
      'ff_setback',
      'ff_step',
      'ff_tag',
    ]);
    await bench.database.moveClock(DAY_MS);
    await forget();
    expect(await tracesOf(executionId)).toEqual({
      ff_event: before['ff_event'],
      ff_idempotency: 1,
    });
  });

  it('leaves entries in the queue and among the timers, which have no effect and are deleted when they are reached', async () => {
    const kind = newKind();
    const queued = await bench.submit({ kind });
    const delayed = await bench.submit({ delay: 400 * DAY_MS });
    await bench.engine.cancel([queued, delayed], WHY);
    await bench.database.moveClock(DAY_MS);
    await forget();
    expect([await exists(queued), await exists(delayed)]).toEqual([false, false]);
    expect(await tracesOf(queued)).toEqual({ ff_event: 1, ff_ready: 1 });
    expect(await tracesOf(delayed)).toEqual({ ff_event: 1, ff_timer: 1 });
    expect(await bench.claim({ kinds: [kind] })).toEqual([]);
    await bench.database.moveClock(400 * DAY_MS);
    await bench.port.fireTimers();
    expect(await tracesOf(queued)).toEqual({ ff_event: 1 });
    expect(await tracesOf(delayed)).toEqual({ ff_event: 1 });
  });

  it('is not forgotten early when a clock that ran ahead is set back', async () => {
    await bench.database.moveClock(2 * DAY_MS);
    const { executionId } = await ended();
    await bench.database.moveClock(-2 * DAY_MS);
    await forget();
    expect(await exists(executionId)).toBe(true);
    await bench.database.moveClock(3 * DAY_MS);
    await forget();
    expect(await exists(executionId)).toBe(false);
  });
});

describe('an unfinished execution', () => {
  it.each(['waiting', 'running', 'paused'] as const)(
    'is not forgotten, however long it is %s',
    async (how) => {
      const kind = newKind();
      const policy = { retention: 0 };
      const executionId = await bench.submit({ kind, policy });
      const claim = how === 'waiting' ? null : await bench.claimOne(kind);
      if (how === 'paused') await bench.port.pause(claim!, { wakeInMs: 100 * DAY_MS });
      await bench.database.moveClock(30 * DAY_MS);
      await forget();
      expect(await exists(executionId)).toBe(true);
    },
  );

  it('that was replayed is not forgotten by its first outcome, and later kept from its next one', async () => {
    const { executionId, kind } = await ended();
    await bench.engine.executions.replay(executionId, WHY);
    await bench.database.moveClock(2 * DAY_MS);
    await forget();
    expect(await exists(executionId)).toBe(true);
    await bench.port.complete(await bench.claimOne(kind), 'second');
    await bench.database.moveClock(DAY_MS - HOUR_MS);
    await forget();
    expect(await bench.engine.executions.result(executionId)).toEqual({
      outcome: 'success',
      result: 'second',
    });
    await bench.database.moveClock(HOUR_MS);
    await forget();
    expect(await exists(executionId)).toBe(false);
    expect(Object.keys(await tracesOf(executionId))).toEqual(['ff_event']);
  });
});

describe('a child', () => {
  async function family(): Promise<{ parent: Claim; child: ExecutionId }> {
    const parent = await bench.running();
    const kind = newKind();
    const spawned = await bench.port.spawn(parent, [{ kind }]);
    expect(spawned.outcome).toBe('spawned');
    const claim = await bench.claimOne(kind);
    await bench.port.complete(claim, 'for its parent');
    return { parent, child: claim.executionId };
  }

  it('is kept as long as its parent, which may read its result, even when it is replayed', async () => {
    const { parent, child } = await family();
    await bench.port.release(parent);
    await bench.database.moveClock(5 * DAY_MS);
    await forget();
    expect(await bench.engine.executions.result(child)).toEqual({
      outcome: 'success',
      result: 'for its parent',
    });
    await bench.port.complete(await bench.claimOne(parent.kind));
    await bench.database.moveClock(HOUR_MS);
    await forget();
    expect([await exists(child), await exists(parent.executionId)]).toEqual([true, true]);
    await bench.database.moveClock(DAY_MS);
    await forget();
    await bench.database.moveClock(HOUR_MS);
    await forget();
    expect([await exists(child), await exists(parent.executionId)]).toEqual([false, false]);
  });

  it('that must stay does not block what finished after it', async () => {
    const { child } = await family();
    const { executionId } = await ended();
    await bench.database.moveClock(DAY_MS);
    // One at a time, oldest first.
    await vi.waitFor(async () => {
      await forget(1);
      expect(await exists(executionId)).toBe(false);
    }, WAIT);
    expect(await exists(child)).toBe(true);
  });

  it('that finishes after its parent was forgotten leaves no timer for it', async () => {
    const parent = await bench.running({ policy: { retention: 0 } });
    const kind = newKind();
    await bench.port.spawn(parent, [{ kind }]);
    const claim = await bench.claimOne(kind);
    await bench.port.complete(parent);
    await forget();
    expect(await exists(parent.executionId)).toBe(false);
    await bench.port.complete(claim);
    expect(Object.keys(await tracesOf(parent.executionId)).toSorted()).toEqual(['ff_event', 'ff_timer']);
    expect(await bench.port.fireTimers()).toBeGreaterThan(0);
    expect(Object.keys(await tracesOf(parent.executionId))).toEqual(['ff_event']);
  });
});

it('an execution that cannot be deleted does not block the next', async () => {
  const bad = await ended();
  const good = await ended();
  await bench.database.moveClock(DAY_MS);
  await bench.database.query(`
    CREATE FUNCTION refuse_planted() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN RAISE EXCEPTION 'planted' USING ERRCODE = 'ZZ001'; END $$;
    CREATE TRIGGER refuse_planted BEFORE DELETE ON ff_execution FOR EACH ROW
      WHEN (OLD.execution_id = '${uuidOf(bad.executionId)}') EXECUTE FUNCTION refuse_planted()`);
  for (let round = 0; round < 3; round += 1) await forget(1);
  expect(await exists(good.executionId)).toBe(false);
  expect((await bench.snapshot(bad.executionId)).setbacks).toMatchObject([{ reconciler: 'retention' }]);
});

describe('events', () => {
  const count = async (id: ExecutionId): Promise<number> => (await tracesOf(id))['ff_event'] ?? 0;

  it('are deleted by age, a slot of the log at a time, including those of running executions', async () => {
    await setRetention(context, 7 * HOUR_MS);
    const claim = await bench.running();
    await bench.port.renew([claim], DAY_MS);
    await eventPositions.run(context, signal);
    await bench.database.moveClock(HOUR_MS);
    expect(await oldEvents.run(context, signal)).toBe(1);
    await bench.port.renew([claim], DAY_MS);
    await eventPositions.run(context, signal);
    expect(await count(claim.executionId)).toBe(3);
    await bench.database.moveClock(6 * HOUR_MS - 1_000);
    await oldEvents.run(context, signal);
    expect(await count(claim.executionId)).toBe(3);
    await bench.database.moveClock(2_000);
    await oldEvents.run(context, signal);
    expect(await count(claim.executionId)).toBe(1);
    expect(await bench.port.complete(claim)).toMatchObject({ outcome: 'completed' });
    await setRetention(context, DAY_MS);
  });
});

describe('idempotency keys', () => {
  const keyOf = async (id: ExecutionId): Promise<number> => (await tracesOf(id))['ff_idempotency'] ?? 0;
  const keyed = (): Partial<SubmitRequest> => ({
    idempotencyKey: newKind(),
    policy: { dedupWindow: HOUR_MS },
  });

  it('are deleted when their window is over and their execution has finished or is gone, and not before', async () => {
    await forgetKeys(context.database, 100, AGAIN_MS);
    const done = await ended(keyed());
    const gone = await ended({ ...keyed(), policy: { dedupWindow: HOUR_MS, retention: 0 } });
    const open = await bench.running(keyed());
    await forget();
    expect(await forgetKeys(context.database, 100, AGAIN_MS)).toBe(0);
    await bench.database.moveClock(HOUR_MS);
    expect(await forgetKeys(context.database, 100, AGAIN_MS)).toBe(2);
    expect(await keyOf(done.executionId)).toBe(0);
    expect(await keyOf(gone.executionId)).toBe(0);
    expect(await keyOf(open.executionId)).toBe(1);
    await bench.engine.cancel(open.executionId, WHY);
    expect(await forgetKeys(context.database, 100, AGAIN_MS)).toBe(1);
  });

  it('are deleted in a pass of their own', async () => {
    const done = await ended(keyed());
    await bench.database.moveClock(HOUR_MS);
    expect(await oldKeys.run(context, signal)).toBeGreaterThan(0);
    expect(await keyOf(done.executionId)).toBe(0);
  });

  it('that must stay do not block those behind them', async () => {
    await forgetKeys(context.database, 100, AGAIN_MS);
    const open = await bench.submit(keyed());
    await bench.database.moveClock(1_000);
    const done = await ended(keyed());
    await bench.database.moveClock(HOUR_MS);
    for (let round = 0; round < 3; round += 1) await forgetKeys(context.database, 1, AGAIN_MS);
    expect(await keyOf(open)).toBe(1);
    expect(await keyOf(done.executionId)).toBe(0);
  });
});

describe('a connection', () => {
  it('without a limit forgets only executions with a retention of their own, and so does one by default', async () => {
    const { executionId } = await ended();
    const own = await ended({ policy: { retention: DAY_MS } });
    await bench.database.moveClock(10 * DAY_MS);
    const keeping = await bench.another({ reconcile: 'on', retention: 'forever' });
    await vi.waitFor(async () => expect(await exists(own.executionId)).toBe(false), WAIT);
    await keeping.close();
    expect(await exists(executionId)).toBe(true);
    const later = await ended({ policy: { retention: DAY_MS } });
    await bench.database.moveClock(DAY_MS);
    const silent = await bench.another({ reconcile: 'on' });
    await vi.waitFor(async () => expect(await exists(later.executionId)).toBe(false), WAIT);
    await silent.close();
    expect(await exists(executionId)).toBe(true);
  });

  it('forgets by the retention it is given', async () => {
    const { executionId } = await ended();
    await eventPositions.run(context, signal);
    await bench.database.moveClock(DAY_MS);
    expect(await openEventSlot(context.database, DAY_MS)).toBe(true);
    await bench.database.moveClock(10 * DAY_MS);
    const forgetting = await bench.another({ reconcile: 'on', retention: '2d' });
    await vi.waitFor(async () => expect(await exists(executionId)).toBe(false), WAIT);
    await vi.waitFor(async () => expect(await tracesOf(executionId)).toEqual({}), WAIT);
    await forgetting.close();
  });

  it('refuses an invalid retention', async () => {
    await expect(bench.another({ retention: 'soon' as never })).rejects.toMatchObject({
      code: 'invalid_input',
      field: 'retention',
    });
  });
});
