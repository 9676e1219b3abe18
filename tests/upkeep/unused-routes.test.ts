/**
 * Routes and lanes that nothing refers to any more are forgotten to make room for new ones; referenced ones stay.
 */
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { LIMITS } from '../../src/index.ts';
import { openEngine } from '../../src/engine/open.ts';
import { unusedRoutes } from '../../src/engine/upkeep/unused-routes.ts';
import { newKind, useBench, WAIT } from '../conformance/open.ts';

const HOUR_MS = 3_600_000;
/** A route may be submitted to for a day; an hour later it may be forgotten. */
const IDLE_MS = 26 * HOUR_MS;

const bench = useBench();
let opened: Awaited<ReturnType<typeof openEngine>>;

beforeAll(async () => {
  opened = await openEngine({ databaseUrl: bench.database.url, listen: 'off' });
  await bench.another({ retention: '1h' });
});

afterAll(() => opened?.engine.close());

const chore = unusedRoutes();
const pass = () => chore.run(opened.context, new AbortController().signal);

async function kindsKnown(): Promise<string[]> {
  const { rows } = await bench.database.query<{ kind: string }>(
    'SELECT kind FROM ff_route ORDER BY route_id',
  );
  return rows.map((row) => row.kind);
}

async function lanesKnown(): Promise<string[]> {
  return (await bench.engine.lanes.list()).lanes.map(({ lane }) => lane);
}

/** Runs passes until the kind is forgotten: one may have to wait for transactions of other tests on the same server. */
async function untilForgotten(kind: string): Promise<void> {
  await vi.waitFor(async () => {
    await pass();
    expect(await kindsKnown()).not.toContain(kind);
  }, WAIT);
}

async function ended(kind: string, lane: string): Promise<string> {
  const executionId = await bench.submit({ kind, lane });
  await bench.engine.cancel(executionId, { reason: 'over' });
  return executionId;
}

/** Lets the retention of everything that has ended pass and deletes it, and only then lets the terms of routes end. */
async function goBy(): Promise<void> {
  await bench.database.moveClock(2 * HOUR_MS);
  await bench.reconcile();
  await bench.database.moveClock(IDLE_MS);
}

let kind: string;
beforeEach(() => {
  kind = newKind();
});

describe('at the limit of routes', () => {
  it('a new one is refused with a remedy, and accepted once unused ones are forgotten', async () => {
    await ended(kind, 'tenant-1');
    await bench.database.query(
      `INSERT INTO ff_route (lane, kind, capabilities) SELECT 'default', 'filler-' || n, '{}'
       FROM generate_series(1, $1 - (SELECT count(*) FROM ff_route)) n`,
      [LIMITS.routes],
    );
    await expect(bench.engine.executions.submit({ kind: 'new' })).rejects.toMatchObject({
      code: 'route_limit_reached',
      message: expect.stringMatching(/10,?000.*unused.*tag/s) as string,
    });
    await goBy();
    await vi.waitFor(async () => {
      await pass();
      await bench.engine.executions.submit({ kind: 'new' });
    }, WAIT);
    expect(await kindsKnown()).toEqual(['new']);
    await vi.waitFor(async () => {
      await pass();
      expect(await lanesKnown()).toEqual(['default']);
    }, WAIT);
  });
});

describe('a route', () => {
  it('stays while an execution uses it: a waiting, a delayed or a finished one that is kept', async () => {
    const kinds = [newKind(), newKind(), newKind(), newKind()] as const;
    await bench.submit({ kind: kinds[0] });
    await bench.submit({ kind: kinds[1], delay: 1_000 * HOUR_MS });
    const kept = await bench.submit({ kind: kinds[2], policy: { retention: 1_000 * HOUR_MS } });
    await bench.engine.cancel(kept, { reason: 'over' });
    await ended(kinds[3], 'default');
    await goBy();
    await untilForgotten(kinds[3]);
    expect(await kindsKnown()).toEqual(expect.arrayContaining(kinds.slice(0, 3)));
    // And need not be interned again.
    await bench.submit({ kind: kinds[1] });
    expect(await bench.claim({ kinds: [...kinds] })).toHaveLength(2);
  });

  it('has another number when it is used again, and processes that cached the old one find it', async () => {
    await bench.submit({ kind });
    const claim = await bench.claimOne(kind);
    await bench.port.complete(claim);
    await goBy();
    await untilForgotten(kind);
    const again = await bench.submit({ kind });
    expect(
      (
        await bench.port.claim({
          kinds: [kind],
          limit: 1,
          leaseMs: HOUR_MS,
          workerId: 'w',
          workerInstanceId: 'w-1',
        })
      ).claims,
    ).toMatchObject([{ executionId: again, kind }]);
  });

  it('is still named by events after it was forgotten, as long as there are any', async () => {
    await ended(kind, 'told');
    await goBy();
    await untilForgotten(kind);
    const read = async () =>
      (
        await bench.database.query(
          `SELECT event_type, kind, lane FROM ff_read_events(0, 100000, 100000, false, NULL, NULL, NULL, NULL, $1, 'told', NULL, NULL, NULL)
           WHERE family IS NOT NULL`,
          [kind],
        )
      ).rows;
    expect(await read()).toEqual([expect.objectContaining({ event_type: 'cancelled', kind, lane: 'told' })]);
    await vi.waitFor(async () => {
      await goBy();
      await pass();
      expect(
        (await bench.database.query('SELECT FROM ff_former_route WHERE kind = $1', [kind])).rowCount,
      ).toBe(0);
    }, WAIT);
    expect(await read()).toEqual([]);
  });

  it('stays while the last execution submitted to it may be kept, as long as there is room', async () => {
    const longer = await bench.another({ retention: '100h' });
    await longer.executions
      .submit({ kind, policy: { retention: 0 } })
      .then(({ executionId }) => longer.cancel(executionId, { reason: 'over' }));
    await goBy();
    await pass();
    await pass();
    expect(await kindsKnown()).toContain(kind);
    await bench.another({ retention: '1h' });
    await untilForgotten(kind);
  });
});

describe('a lane', () => {
  it('stays while it has an operator setting', async () => {
    await ended(kind, 'paused');
    await ended(kind, 'quiet');
    await ended(kind, 'plain');
    await bench.engine.lanes.pause('paused');
    await bench.database.query(`UPDATE ff_lane SET renewal_events = false WHERE lane = 'quiet'`);
    await goBy();
    await untilForgotten(kind);
    await vi.waitFor(async () => {
      await pass();
      expect(await lanesKnown()).not.toContain('plain');
    }, WAIT);
    expect(await lanesKnown()).toEqual(expect.arrayContaining(['paused', 'quiet']));
    await bench.engine.lanes.resume('paused');
    await pass();
    expect(await lanesKnown()).not.toContain('paused');
  });
});
