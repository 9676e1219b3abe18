/**
 * The generic-plan trap, reproduced: a connection makes its plans while the tables are empty and keeps them when rows
 * arrive. Buffers and rows are counted, never time: both must grow with the batch and not with the tables.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Database } from '../../src/engine/database/database.ts';
import { listDueTimers } from '../../src/engine/executions/due.sql.ts';
import type { TestDatabase } from '../../src/testing/test-database.ts';
import { buffersOf, mostRowsOf, openRecorder, type Recorder } from './plan-recorder.ts';
import { fill, FULL_ROWS, resetFunctionSettings, storeOf, vacuumedEmptyTables } from './table-states.ts';
import { callsOn, claimBatch, NO_LEASE_MS, submitBatch, until, type Calls } from './workload.ts';
import { walk } from './walk.ts';

const BATCH = 500;
/** A row is read, locked and written in at most six tables, each with its indexes a few levels deep. */
const BUFFERS_PER_ROW = 60;
/** No node reads a row of the batch more often than this. */
const LOOKS_PER_ROW = 4;
const KINDS = ['trap-a', 'trap-b'];
/** How many times to set up the trap before concluding that plans are never kept. */
const TRIES = 5;

interface Trap {
  test: TestDatabase;
  recorder: Recorder;
  store: Database;
}

/**
 * Plans made on tables that were vacuumed while empty, then rows added without ANALYZE. The server keeps limited room for
 * invalidations, so a connection that is idle while many tables and databases change may drop its plans: the trap does
 * not always close.
 */
async function openTrap(prepare: (test: TestDatabase) => Promise<void>): Promise<Trap> {
  const test = await vacuumedEmptyTables();
  await prepare(test);
  const recorder = await openRecorder(test, 'counted');
  const rival = await openRecorder(test, 'planned');
  await walk(recorder, rival, 1);
  const store = storeOf(test);
  await fill(store, FULL_ROWS);
  return { test, recorder, store };
}

/** Forces plans to be kept, as connections do sooner or later, depending on use and estimated cost. */
async function withoutSettings(test: TestDatabase): Promise<void> {
  await resetFunctionSettings(test);
  await test.query(`ALTER DATABASE ${test.name} SET plan_cache_mode = force_generic_plan`);
}

async function dueTimers(store: Database, count: number): Promise<number[]> {
  // Those that the walk has left are no part of this.
  const own = new Set((await submitBatch(store, { kinds: KINDS, count, delayMs: 1 })).uuids);
  let due: number[] = [];
  await until(async () => {
    const timers = await listDueTimers(store, 20 * count);
    due = timers.filter(({ uuid }) => own.has(uuid)).map(({ timerId }) => timerId);
    return due.length === count;
  });
  return due;
}

describe('plans made on empty tables, used on full ones', () => {
  let trap: Trap;
  let calls: Calls;
  let routes: number[];

  beforeAll(async () => {
    trap = await openTrap(async () => undefined);
    calls = callsOn(trap.recorder.database);
    ({ routes } = await submitBatch(trap.store, { kinds: KINDS, count: 10 * BATCH }));
  });
  afterAll(() => trap.test.drop());

  const expectLinear = async (work: () => Promise<{ length: number }>): Promise<void> => {
    let answered = 0;
    const plans = await trap.recorder.record(async () => (answered = (await work()).length));
    const { rows, at } = mostRowsOf(plans);
    expect(answered).toBe(BATCH);
    expect(buffersOf(plans), 'buffers').toBeLessThan(BATCH * BUFFERS_PER_ROW);
    expect(rows, `rows looked at by ${at}`).toBeLessThanOrEqual(BATCH * LOOKS_PER_ROW);
  };
  const held = async (leaseMs?: number) => await claimBatch(trap.store, routes, BATCH, leaseMs);

  it('claim', () => expectLinear(() => claimBatch(trap.recorder.database, routes, BATCH)));

  it('submit', () =>
    expectLinear(
      async () => (await submitBatch(trap.recorder.database, { kinds: KINDS, count: BATCH })).uuids,
    ));

  it.each(['renew', 'complete', 'fail', 'retry', 'release', 'revoke', 'cancel'] as const)(
    '%s',
    async (call) => {
      const leases = await held();
      await expectLinear(() => calls[call](leases));
    },
  );

  it('lapse', async () => {
    const leases = await held(NO_LEASE_MS);
    await expectLinear(() => calls.lapse(leases));
  });

  it('fire', async () => {
    const timers = await dueTimers(trap.store, BATCH);
    await expectLinear(() => calls.fire(timers));
  });

  it('fail, when every row is refused', async () => {
    const leases = await held();
    await calls.complete(leases);
    await expectLinear(() => calls.fail(leases));
  });
});

describe('without the settings the functions carry', () => {
  const isTrapped = (cost: { buffers: number; rows: number }): boolean =>
    cost.buffers > BATCH * BUFFERS_PER_ROW && cost.rows > BATCH * LOOKS_PER_ROW;

  /** What a completion costs with plans made before. The server may have dropped some of them meanwhile. */
  async function costOfCompletion(): Promise<{ buffers: number; rows: number }> {
    const { test, recorder, store } = await openTrap(withoutSettings);
    try {
      const { routes } = await submitBatch(store, { kinds: KINDS, count: BATCH });
      const leases = await claimBatch(store, routes, BATCH);
      const plans = await recorder.record(() => callsOn(recorder.database).complete(leases));
      return { buffers: buffersOf(plans), rows: mostRowsOf(plans).rows };
    } finally {
      await test.drop();
    }
  }

  it('the trap is real and is detected', async () => {
    let cost = await costOfCompletion();
    for (let tries = 1; !isTrapped(cost) && tries < TRIES; tries += 1) cost = await costOfCompletion();
    expect(cost).toSatisfy(isTrapped);
  });
});
