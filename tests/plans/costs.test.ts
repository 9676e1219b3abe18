/**
 * What operations cost when there is much that they do not want: duplicates, other routes' work, timers that are not
 * due. Counted in buffers and rows, never in time.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { LeaseKey } from '../../src/engine/executions/executions.sql.ts';
import type { TestDatabase } from '../../src/testing/test-database.ts';
import { buffersOf, mostRowsOf, openRecorder, type RecordedPlan } from './plan-recorder.ts';
import { storeOf, vacuumedEmptyTables } from './table-states.ts';
import { callsOn, claimBatch, PARTITION, submitBatch } from './workload.ts';
import { patiently } from '../setup/patience.ts';

const MANY = 100_000;

describe('submitting', () => {
  const COUNT = 10_000;
  const LOOKS_PER_ROW = 2;
  let test: TestDatabase;

  beforeAll(async () => {
    test = await vacuumedEmptyTables();
  });
  afterAll(() => test.drop());

  it('10,000 executions, some of which exist, has linear and not quadratic cost', async () => {
    const recorder = await openRecorder(test, 'counted');
    const batch = { kinds: ['dup'], count: COUNT };
    const first = await submitBatch(storeOf(test), { ...batch, count: COUNT / 10 });
    const outcomes: string[] = [];
    const plans = await recorder.record(async () => {
      outcomes.push(...(await submitBatch(recorder.database, { ...batch, uuids: first.uuids })).outcomes);
    });
    const { rows, at } = mostRowsOf(plans);
    expect(outcomes.filter((outcome) => outcome === 'duplicate')).toHaveLength(COUNT / 10);
    expect(rows, `rows looked at by ${at}`).toBeLessThanOrEqual(COUNT * LOOKS_PER_ROW);
  });
});

describe('the state rows', () => {
  const COUNT = 5_000;
  const BATCH = 500;
  const SHARE_IN_PAGE = 0.95;
  let test: TestDatabase;

  beforeAll(async () => {
    test = await vacuumedEmptyTables();
  });
  afterAll(() => test.drop());

  it('are updated within their page while executions are claimed and completed', async () => {
    // One connection, because each counts separately until it flushes its statistics.
    const { client, database } = await openRecorder(test, 'planned');
    const { routes } = await submitBatch(database, { kinds: ['hot'], count: COUNT });
    for (let done = 0; done < COUNT; done += BATCH) {
      const held = await claimBatch(database, routes, BATCH);
      await callsOn(database).complete(held);
    }
    await client.query('SELECT pg_stat_force_next_flush()');
    const stats = await client.query<{ updates: number; in_page: number }>(
      `SELECT n_tup_upd AS updates, n_tup_hot_upd AS in_page FROM pg_stat_user_tables WHERE relname = 'ff_execution'`,
    );
    const { updates = 0, in_page: inPage = 0 } = stats.rows[0] ?? {};
    expect(updates).toBe(2 * COUNT);
    expect(inPage / updates).toBeGreaterThan(SHARE_IN_PAGE);
  });
});

describe('claiming', () => {
  const LIMIT = 50;
  const BUFFERS_PER_ROW = 60;
  const MANY_ROUTES = 1_000;
  let test: TestDatabase;

  beforeAll(async () => {
    test = await vacuumedEmptyTables();
  });
  afterAll(() => test.drop());

  /** On a new connection, and again once it has its plans: both kinds of connection exist. */
  const claimTwice = async (routes: readonly number[]): Promise<RecordedPlan[][]> => {
    const recorder = await openRecorder(test, 'counted');
    const claim = () => recorder.record(() => claimBatch(recorder.database, routes, LIMIT));
    const answer = [await claim(), await claim()];
    await recorder.client.end();
    return answer;
  };
  const expectBounded = (claims: RecordedPlan[][]): void => {
    for (const plans of claims) {
      const { rows, at } = mostRowsOf(plans);
      expect(rows, `rows looked at by ${at}`).toBeLessThanOrEqual(LIMIT * 2);
    }
    // The first claim of a connection also reads the catalog, to make its plans.
    expect(buffersOf(claims.at(-1) ?? []), 'buffers').toBeLessThan(LIMIT * BUFFERS_PER_ROW);
  };

  it('is not slowed by 100,000 heads of other routes', async () => {
    const { routes } = await submitBatch(storeOf(test), { kinds: ['own-a', 'own-b'], count: 20 * LIMIT });
    await test.query(
      `INSERT INTO ff_ready (execution_id, lease_epoch, ready_at_ms, route_id, priority, attempt_index, partition_key)
       SELECT gen_random_uuid(), 0, 0, 1000000 + n % $2, 9000, 0, 0 FROM generate_series(1, $1::integer) n`,
      [MANY, MANY_ROUTES],
    );
    expectBounded(await claimTwice(routes));
    expectBounded(await claimTwice(routes.slice(0, 1)));
  });

  it('is not slowed by 100,000 timers that are not due', async () => {
    const { routes } = await submitBatch(storeOf(test), { kinds: ['timed-a', 'timed-b'], count: 10 * LIMIT });
    await test.query(
      `INSERT INTO ff_timer (due_at_ms, execution_id, lease_epoch, attempt_index, kind, partition_key)
       SELECT ff_now_ms() + 3600000 + n, gen_random_uuid(), 0, 0, 'eligible', 0 FROM generate_series(1, $1::integer) n`,
      [MANY],
    );
    expectBounded(await claimTwice(routes));
  });

  it('reads only the head of a route that is 100,000 deep', async () => {
    const { routes } = await submitBatch(storeOf(test), { kinds: ['deep-a', 'deep-b'], count: 10 * LIMIT });
    await test.query(
      `INSERT INTO ff_ready (execution_id, lease_epoch, ready_at_ms, route_id, priority, attempt_index, partition_key)
       SELECT gen_random_uuid(), 0, 0, $2, 0, 0, 0 FROM generate_series(1, $1::integer) n`,
      [MANY, routes[0]],
    );
    expectBounded(await claimTwice(routes));
  });

  it('over many routes reads each of them once, not once per row', async () => {
    const kinds = Array.from({ length: MANY_ROUTES }, (_, index) => `many-${index}`);
    const { routes } = await submitBatch(storeOf(test), { kinds, count: 2 * MANY_ROUTES });
    for (const plans of await claimTwice(routes)) {
      const { rows, at } = mostRowsOf(plans);
      expect(rows, `rows looked at by ${at}`).toBeLessThanOrEqual(MANY_ROUTES * 2 + LIMIT);
    }
  });

  it.each([
    ['whose execution was cancelled', 'cancelled'],
    ['whose execution is locked', 'locked'],
  ] as const)('over many deep routes is not slowed by one head %s', async (_, state) => {
    const kinds = Array.from({ length: 20 }, (__, index) => `${state}-${index}`);
    const { routes, uuids } = await submitBatch(storeOf(test), { kinds, count: 200 * kinds.length });
    // Priorities take turns, so the third one is at the head.
    const head = { uuid: uuids[2]!, partition: PARTITION };
    const rival = await test.connect();
    await rival.query('BEGIN');
    if (state === 'cancelled') await callsOn(storeOf(test)).cancel([head]);
    else await rival.query('SELECT 1 FROM ff_execution WHERE execution_id = $1 FOR UPDATE', [head.uuid]);
    for (const plans of await claimTwice(routes)) {
      const { rows, at } = mostRowsOf(plans);
      // The peek may read as many rows per route as were requested, and the sweep a fixed number per requested route.
      expect(rows, `rows looked at by ${at}`).toBeLessThanOrEqual(kinds.length * 200);
    }
    const locked = await rival.query(
      'SELECT count(*) AS free FROM (SELECT 1 FROM ff_ready FOR UPDATE SKIP LOCKED) r',
    );
    expect(locked.rows[0].free).toBeGreaterThan(0);
    await rival.query('ROLLBACK');
  });
});

describe('beside a million finished executions', () => {
  const FINISHED = 1_000_000;
  const BATCH = 50;
  const BUFFERS_PER_ROW = { claim: 60, complete: 60, cancel: 80 };
  let test: TestDatabase;

  beforeAll(async () => {
    test = await vacuumedEmptyTables();
    // Only the tables these operations read by key and append to; ids in order, as they are generated.
    await test.query(
      `INSERT INTO ff_execution (execution_id, created_at_ms, changed_at_ms, route_id, priority, lifecycle_phase,
         ownership_state, eligibility_state, blocking_reason, terminal_outcome, attempt_state, partition_key, namespace)
       SELECT lpad(to_hex(n), 32, '0')::uuid, 0, 0, 1, 0, 'terminal', 'unowned', 'not_applicable', 'none', 'success',
         'attempt_terminal', 0, 'default' FROM generate_series(1, $1::integer) n`,
      [FINISHED],
    );
    await test.query(
      `INSERT INTO ff_attempt_history (execution_id, lease_epoch, ended_at_ms, attempt_index, terminal_outcome, partition_key, namespace)
       SELECT lpad(to_hex(n), 32, '0')::uuid, 1, n, 0, 'success', 0, 'default' FROM generate_series(1, $1::integer) n`,
      [FINISHED],
    );
  }, patiently(120_000));
  afterAll(() => test.drop());

  it('claim, complete and cancel touch no more than beside none', async () => {
    const recorder = await openRecorder(test, 'counted');
    const { database } = recorder;
    const calls = callsOn(database);
    const { routes } = await submitBatch(database, { kinds: ['among-many'], count: 4 * BATCH });
    const buffers: Record<keyof typeof BUFFERS_PER_ROW, number> = { claim: 0, complete: 0, cancel: 0 };
    // Twice: the first call of a connection also reads the catalog, to make its plans.
    for (let round = 0; round < 2; round += 1) {
      let held: LeaseKey[] = [];
      const claimed = await recorder.record(async () => {
        held = await claimBatch(database, routes, BATCH);
      });
      const completed = await recorder.record(() => calls.complete(held));
      const others = await claimBatch(database, routes, BATCH);
      const cancelled = await recorder.record(() => calls.cancel(others));
      buffers.claim = buffersOf(claimed) / BATCH;
      buffers.complete = buffersOf(completed) / BATCH;
      buffers.cancel = buffersOf(cancelled) / BATCH;
    }
    const over = (Object.keys(buffers) as (keyof typeof buffers)[]).filter(
      (name) => buffers[name] > BUFFERS_PER_ROW[name],
    );
    expect(over, `buffers a row: ${JSON.stringify(buffers)}`).toEqual([]);
  });
});
