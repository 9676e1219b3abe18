/**
 * One pass of a reconciler over rows of which some fail: the batch is split, the rest is processed, and failing rows
 * are counted, backed off, reported, and forgotten once they succeed.
 */
import { afterEach, describe, expect, test } from 'vitest';
import type { EngineContext } from '../../src/engine/kit/context.ts';
import type { Claim } from '../../src/contract/protocol.ts';
import type { ExecutionId } from '../../src/contract/ids.ts';
import { openEngine, type Engine } from '../../src/engine/open.ts';
import { dueTimers } from '../../src/engine/upkeep/due-timers.ts';
import { expiredLeases } from '../../src/engine/upkeep/expired-leases.ts';
import { runPass, type PassReport } from '../../src/engine/upkeep/pass.ts';
import { startReconcilers } from '../../src/engine/upkeep/runner.ts';
import type { LapsedLease } from '../../src/engine/executions/due.sql.ts';
import type { Reconciler } from '../../src/engine/upkeep/reconciler.ts';
import { AGAIN, newKind, SOON, useCrew, uuidOf } from '../worker/crew.ts';

const LEASE_MS = 10_000;
const crew = useCrew();
const opened: Engine[] = [];

afterEach(async () => {
  await crew.database.query('DROP FUNCTION IF EXISTS refuse_planted CASCADE');
  // What a test left behind must not be due in the next one.
  await crew.database.query(
    'TRUNCATE ff_execution, ff_ready, ff_timer, ff_grant, ff_attempt_history, ff_setback',
  );
  await Promise.all(opened.splice(0).map((engine) => engine.close()));
});

/** Acts on all, but only after a millisecond of the clock has passed. */
async function untilRoundsPass(items: readonly { uuid: string }[]): Promise<string[]> {
  const started = performance.now();
  await expect.poll(() => performance.now() - started, { interval: 1 }).toBeGreaterThan(2);
  return items.map(({ uuid }) => uuid);
}

async function open(): Promise<{ engine: Engine; context: EngineContext }> {
  const found = await openEngine({ databaseUrl: crew.database.url, listen: 'off', poolSize: 2 });
  opened.push(found.engine);
  return found;
}

function pass<Item extends Awaited<ReturnType<Reconciler['due']>>[number]>(
  context: EngineContext,
  reconciler: Reconciler<Item>,
  batch = reconciler.batch,
): Promise<PassReport> {
  return runPass(context, reconciler, batch, new AbortController().signal);
}

/** Runs passes until no row was locked by another transaction; returns what they did in total. */
async function passes<Item extends Awaited<ReturnType<Reconciler['due']>>[number]>(
  context: EngineContext,
  reconciler: Reconciler<Item>,
  batch = reconciler.batch,
): Promise<PassReport> {
  const total: PassReport = { acted: 0, failed: 0, skipped: 0, splits: 0, unfinished: 0 };
  await expect
    .poll(async () => {
      const report = await pass(context, reconciler, batch);
      total.acted += report.acted;
      total.failed += report.failed;
      total.splits += report.splits;
      return report.skipped;
    }, SOON)
    .toBe(0);
  return total;
}

/** Claimed executions with expired leases, in id order. */
async function lapsed(engine: Engine, count: number, policy: object = AGAIN): Promise<Claim[]> {
  const kind = newKind();
  await engine.executions.submit(Array.from({ length: count }, () => ({ kind, policy })));
  const request = { workerId: 'gone', workerInstanceId: 'gone-1', kinds: [kind], leaseMs: LEASE_MS };
  const { claims } = await engine.worker.claim({ ...request, limit: count });
  expect(claims).toHaveLength(count);
  await crew.database.moveClock(LEASE_MS);
  return claims.toSorted((a, b) => (uuidOf(a.executionId) < uuidOf(b.executionId) ? -1 : 1));
}

/** Every change of these executions fails from now on. */
async function plant(...ids: ExecutionId[]): Promise<void> {
  await crew.database.query(`
    CREATE FUNCTION refuse_planted() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN RAISE EXCEPTION 'planted' USING ERRCODE = 'ZZ001'; END $$;
    CREATE TRIGGER refuse_planted BEFORE UPDATE ON ff_execution FOR EACH ROW
      WHEN (OLD.execution_id IN (${ids.map((id) => `'${uuidOf(id)}'`).join(', ')}))
      EXECUTE FUNCTION refuse_planted()`);
}

async function statesOf(engine: Engine, claims: readonly Claim[]): Promise<string[]> {
  return Promise.all(
    claims.map(async ({ executionId }) => (await engine.executions.describe(executionId))!.state),
  );
}

async function nowMs(): Promise<number> {
  const answer = await crew.database.query<{ now: number }>('SELECT ff_now_ms() AS now');
  return answer.rows[0]!.now;
}

describe('a failing row', () => {
  test('is found by halving, and every other row is processed', async () => {
    const { engine, context } = await open();
    const claims = await lapsed(engine, 8);
    const bad = claims[5]!.executionId;
    await plant(bad);
    const report = await passes(context, expiredLeases);
    expect(report).toMatchObject({ acted: 7, failed: 1 });
    expect(report.splits).toBeGreaterThan(0);
    const states = await statesOf(engine, claims);
    expect(states.filter((state) => state === 'waiting')).toHaveLength(7);
    expect(states[5]).toBe('active');
    expect((await engine.executions.describe(bad))!.setbacks).toEqual([
      { reconciler: 'expired-leases', failures: 1, errorCode: 'ZZ001' },
    ]);
  });

  test('is found in one pass: locks of the failed statement are released before its halves are tried', async () => {
    const { engine, context } = await open();
    for (let round = 0; round < 5; round += 1) {
      const claims = await lapsed(engine, 8);
      await plant(claims[5]!.executionId);
      expect(await pass(context, expiredLeases)).toEqual({
        acted: 7,
        failed: 1,
        skipped: 0,
        splits: 3,
        unfinished: 0,
      });
      await crew.database.query('DROP FUNCTION refuse_planted CASCADE');
      await engine.executions.cancel(claims[5]!.executionId, { reason: 'next round' });
    }
  });

  test('may be one of several', async () => {
    const { engine, context } = await open();
    const claims = await lapsed(engine, 9);
    await plant(...[0, 1, 4, 8].map((index) => claims[index]!.executionId));
    expect(await passes(context, expiredLeases)).toMatchObject({ acted: 5, failed: 4 });
    expect((await statesOf(engine, claims)).join()).toBe(
      'active,active,waiting,waiting,active,waiting,waiting,waiting,active',
    );
  });

  test('is retried with a delay that doubles each time, up to an hour', async () => {
    const { engine, context } = await open();
    const [claim] = await lapsed(engine, 1);
    await plant(claim!.executionId);
    for (let failures = 1; failures <= 14; failures += 1) {
      const before = await nowMs();
      expect(await pass(context, expiredLeases)).toMatchObject({ acted: 0, failed: 1 });
      const after = await nowMs();
      const found = await crew.database.query<{ failures: number; retry_at_ms: number }>(
        'SELECT failures, retry_at_ms FROM ff_setback',
      );
      const wait = Math.min(1_000 * 2 ** (failures - 1), 3_600_000);
      expect(found.rows).toHaveLength(1);
      expect(found.rows[0]!.failures).toBe(failures);
      expect(found.rows[0]!.retry_at_ms).toBeGreaterThanOrEqual(before + wait);
      expect(found.rows[0]!.retry_at_ms).toBeLessThanOrEqual(after + wait);
      // It is not touched while it waits.
      expect(await pass(context, expiredLeases)).toEqual({
        acted: 0,
        failed: 0,
        skipped: 0,
        splits: 0,
        unfinished: 0,
      });
      await crew.database.moveClock(wait);
    }
  });

  test('is forgotten once it succeeds', async () => {
    const { engine, context } = await open();
    const claims = await lapsed(engine, 3);
    await plant(claims[1]!.executionId);
    await passes(context, expiredLeases);
    await crew.database.query('DROP FUNCTION refuse_planted CASCADE');
    await crew.database.moveClock(1_000);
    expect(await pass(context, expiredLeases)).toEqual({
      acted: 1,
      failed: 0,
      skipped: 0,
      splits: 0,
      unfinished: 0,
    });
    expect(await engine.executions.describe(claims[1]!.executionId)).toMatchObject({
      state: 'waiting',
      attemptIndex: 1,
      setbacks: [],
    });
  });

  test('is not forgotten because it was locked during a pass', async () => {
    const { engine, context } = await open();
    const [claim] = await lapsed(engine, 1);
    await plant(claim!.executionId);
    await pass(context, expiredLeases);
    await crew.database.moveClock(1_000);
    const client = await crew.database.connect();
    await client.query('BEGIN');
    await client.query('SELECT FROM ff_execution WHERE execution_id = $1 FOR UPDATE', [
      uuidOf(claim!.executionId),
    ]);
    expect(await pass(context, expiredLeases)).toMatchObject({ acted: 0, skipped: 1 });
    await client.end();
    expect((await engine.executions.describe(claim!.executionId))!.setbacks).toMatchObject([{ failures: 1 }]);
  });

  test('is forgotten when its execution ends some other way', async () => {
    const { engine, context } = await open();
    const [claim] = await lapsed(engine, 1);
    await plant(claim!.executionId);
    await pass(context, expiredLeases);
    await crew.database.query('DROP FUNCTION refuse_planted CASCADE');
    await engine.executions.cancel(claim!.executionId, { reason: 'enough' });
    await crew.database.moveClock(3_600_000);
    await pass(context, expiredLeases);
    expect(await engine.executions.describe(claim!.executionId)).toMatchObject({
      state: 'cancelled',
      setbacks: [],
    });
  });

  test('among timers delays no other timer', async () => {
    const { engine, context } = await open();
    const kind = newKind();
    const submitted = await engine.executions.submit(
      Array.from({ length: 6 }, () => ({ kind, delay: 5_000 })),
    );
    const bad = submitted[2]!.executionId;
    await plant(bad);
    await crew.database.moveClock(5_000);
    expect(await passes(context, dueTimers)).toMatchObject({ acted: 5, failed: 1 });
    expect((await engine.executions.describe(bad))!.setbacks).toMatchObject([
      { reconciler: 'due-timers', failures: 1 },
    ]);
    const { claims } = await engine.worker.claim({
      workerId: 'w',
      workerInstanceId: 'w-1',
      kinds: [kind],
      limit: 10,
      leaseMs: LEASE_MS,
    });
    expect(claims).toHaveLength(5);
    await crew.database.query('DROP FUNCTION refuse_planted CASCADE');
    await crew.database.moveClock(1_000);
    expect(await pass(context, dueTimers)).toMatchObject({ acted: 1, failed: 0 });
    expect((await engine.executions.describe(bad))!.setbacks).toEqual([]);
  });
});

describe('a pass', () => {
  test('continues after a full batch until nothing is due', async () => {
    const { engine, context } = await open();
    const claims = await lapsed(engine, 8);
    expect(await pass(context, expiredLeases, 3)).toEqual({
      acted: 8,
      failed: 0,
      skipped: 0,
      splits: 0,
      unfinished: 0,
    });
    expect(new Set(await statesOf(engine, claims))).toEqual(new Set(['waiting']));
  });

  test('full of failing rows continues with the rest', async () => {
    const { engine, context } = await open();
    const claims = await lapsed(engine, 7);
    await plant(...claims.slice(0, 3).map(({ executionId }) => executionId));
    expect(await passes(context, expiredLeases, 3)).toMatchObject({ acted: 4, failed: 3 });
  });

  test('skips locked rows without waiting for them', async () => {
    const { engine, context } = await open();
    const claims = await lapsed(engine, 3);
    const client = await crew.database.connect();
    await client.query('BEGIN');
    await client.query('SELECT FROM ff_execution WHERE execution_id = $1 FOR UPDATE', [
      uuidOf(claims[0]!.executionId),
    ]);
    expect(await pass(context, expiredLeases)).toEqual({
      acted: 2,
      failed: 0,
      skipped: 1,
      splits: 0,
      unfinished: 0,
    });
    await client.end();
    expect(await pass(context, expiredLeases)).toMatchObject({ acted: 1 });
  });

  test('skips a lease that was renewed after it was listed', async () => {
    const { engine, context } = await open();
    const claims = await lapsed(engine, 2);
    await crew.database.moveClock(-LEASE_MS);
    const early: typeof expiredLeases = {
      ...expiredLeases,
      due: async (given, limit) => {
        await crew.database.moveClock(LEASE_MS);
        const listed = await expiredLeases.due(given, limit);
        await crew.database.moveClock(-LEASE_MS);
        const [renewed] = await engine.worker.renew([claims[0]!], 10 * LEASE_MS);
        expect(renewed).toEqual({ outcome: 'renewed' });
        await crew.database.moveClock(LEASE_MS);
        return listed;
      },
    };
    expect(await pass(context, early)).toMatchObject({ acted: 1, skipped: 0, failed: 0 });
    expect(await statesOf(engine, claims)).toEqual(['active', 'waiting']);
  });

  test('ends executions that have no retries left', async () => {
    const { engine, context } = await open();
    const [claim] = await lapsed(engine, 1, {});
    expect(await pass(context, expiredLeases)).toMatchObject({ acted: 1 });
    expect(await engine.executions.result(claim!.executionId)).toMatchObject({
      outcome: 'expired',
      message: 'attempt_timeout',
    });
  });

  test('asked to stop starts nothing', async () => {
    const { engine, context } = await open();
    await lapsed(engine, 1);
    const report = await runPass(context, expiredLeases, 10, AbortSignal.abort());
    expect(report).toEqual({ acted: 0, failed: 0, skipped: 0, splits: 0, unfinished: 0 });
  });

  test('blames no row for a database failure', async () => {
    const { engine, context } = await open();
    await lapsed(engine, 4);
    await engine.close();
    await expect(pass(context, expiredLeases)).rejects.toMatchObject({ name: 'EngineError' });
    const found = await crew.database.query('SELECT FROM ff_setback');
    expect(found.rows).toHaveLength(0);
  });
});

test('a pass that has run out of time leaves the remaining rows for the next', async () => {
  const { engine, context } = await open();
  await lapsed(engine, 8);
  const limit = new AbortController();
  const slow: Reconciler<LapsedLease> = {
    ...expiredLeases,
    batch: 2,
    act(each, items) {
      limit.abort();
      return expiredLeases.act(each, items);
    },
  };
  expect(await runPass(context, slow, 2, limit.signal)).toMatchObject({ acted: 2 });
  expect(await passes(context, expiredLeases)).toMatchObject({ acted: 6 });
});

test('a runner counts a pass that took too long and takes fewer rows at once', async () => {
  const { context } = await open();
  const batches: number[] = [];
  const runner = startReconcilers(
    context,
    [
      {
        name: 'endless',
        everyMs: 1,
        batch: 8,
        due: (_, limit) => {
          batches.push(limit);
          return Promise.resolve([{ uuid: 'x', partition: 0, hadSetback: false }]);
        },
        act: (_, items) => untilRoundsPass(items),
      },
    ],
    { passTimeoutMs: 1 },
  );
  await expect.poll(() => batches.includes(4), SOON).toBe(true);
  expect(runner.report()[0]!.timeouts).toBeGreaterThan(0);
  await runner.close();
});
