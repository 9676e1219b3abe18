/**
 * The store's own frequent statements, on full tables with statistics and the default planner settings: which tables
 * each may read in full, and which index it must use for the rest.
 */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parseIdPrefix } from '../../src/contract/ids.ts';
import type { Database } from '../../src/engine/database/database.ts';
import { readClaims } from '../../src/engine/executions/claiming/claims.sql.ts';
import {
  listFlows,
  readEdges,
  readFlowHead,
  readFlowHeads,
  readFlowOf,
  readMembers,
} from '../../src/engine/flows/reads.sql.ts';
import { findExecutions, readNeighbours } from '../../src/engine/operator/find.sql.ts';
import { readOutcomes, readPayload, readSnapshot } from '../../src/engine/executions/reads.sql.ts';
import { clearSetbacks, takeTickets } from '../../src/engine/upkeep/bookkeeping.sql.ts';
import { listDueTimers, listLapsedLeases } from '../../src/engine/executions/due.sql.ts';
import {
  epochAt,
  readFinishedSteps,
  readFrames,
  readHeads,
  readSummary,
  type FrameRange,
} from '../../src/engine/streams/streams.sql.ts';
import { readParentEnded } from '../../src/engine/streams/parent.sql.ts';
import { readEarlierSteps, readOutside, readPatchRows } from '../../src/engine/streams/written.sql.ts';
import { listSteps } from '../../src/engine/steps/steps.sql.ts';
import type { TestDatabase } from '../../src/testing/test-database.ts';
import { nodesOf, openRecorder, type PlanNode, type RecordedPlan, type Recorder } from './plan-recorder.ts';
import { askStore } from './asked.ts';
import { compiled, findingsOf } from './plan-rules.ts';
import { leadingColumns } from './statements.ts';
import { fullTables } from './table-states.ts';
import { PARTITION } from './workload.ts';

const BAD_ROWS = 2_000;
/** So many that reading the whole table is no longer a sensible choice; with a few thousand it is. */
const TIMERS = 50_000;
let test: TestDatabase;
let recorder: Recorder;

beforeAll(async () => {
  test = await fullTables();
  await test.query(
    `INSERT INTO ff_setback SELECT 'expired-leases', gen_random_uuid(), 7, 1, 0, 'x' FROM generate_series(1, $1::integer)`,
    [BAD_ROWS],
  );
  await test.query(
    `INSERT INTO ff_timer (due_at_ms, execution_id, lease_epoch, attempt_index, kind, partition_key)
     SELECT ff_now_ms() + 3600000 + n, gen_random_uuid(), 0, 0, 'eligible', 0 FROM generate_series(1, $1::integer) n`,
    [TIMERS],
  );
  await test.query(
    `INSERT INTO ff_step (execution_id, recorded_at_ms, lease_epoch, attempt_index, partition_key, kind, name, key)
     SELECT gen_random_uuid(), 0, 1, 0, 0, 'step', 'a', '' FROM generate_series(1, $1::integer)`,
    [TIMERS],
  );
  await test.query(
    `INSERT INTO ff_progress (execution_id, reported_at_ms, partition_key)
     SELECT gen_random_uuid(), 0, 0 FROM generate_series(1, $1::integer)`,
    [TIMERS],
  );
  await test.query(
    `INSERT INTO ff_key (execution_id, partition_key, namespace, key)
     SELECT gen_random_uuid(), 0, 'default', n::text FROM generate_series(1, $1::integer) n`,
    [TIMERS],
  );
  await test.query('ANALYZE ff_setback, ff_timer, ff_step, ff_progress, ff_key');
  recorder = await openRecorder(test, 'planned');
});
afterAll(() => test.drop());

/** The plans of what reads tables, sent directly or run by a function that does not compile it. */
async function plansOf(work: (database: Database) => Promise<unknown>): Promise<RecordedPlan[]> {
  const plans = await recorder.record(() => work(recorder.database));
  const reading = plans.filter(({ text }) => !/ff_read(?:_frames)?\(/.test(text));
  expect(reading).not.toHaveLength(0);
  return reading;
}

async function planOf(work: (database: Database) => Promise<unknown>): Promise<PlanNode[]> {
  const plans = await plansOf(work);
  return plans.flatMap(({ root }) => nodesOf(root));
}

/** Tables read in full, by an index or not. */
async function readWhole(work: (database: Database) => Promise<unknown>): Promise<string[]> {
  const leading = await leadingColumns(test);
  const plans = await plansOf(work);
  const scans = plans.flatMap((plan) =>
    nodesOf(plan.root).map((node) => ({ ...plan, root: { ...node, Plans: [], 'Parent Relationship': '' } })),
  );
  return scans
    .filter(({ root }) => root['Node Type'].endsWith('Scan'))
    .filter((scan) => findingsOf(scan, leading).length > 0)
    .map(({ root }) => `${root['Relation Name'] ?? root['Index Name']}`)
    .toSorted();
}

const key = { uuid: randomUUID(), partition: PARTITION };

describe('on full tables', () => {
  it('nothing is compiled', async () => {
    expect(compiled(await recorder.record(() => askStore(recorder)))).toEqual([]);
  });

  it('a snapshot is read by primary keys', async () => {
    const whole = await readWhole((database) => readSnapshot(database, key));
    // The only two routes are on one page, and so are the few claims and keys.
    const small = ['ff_route', 'ff_grant', 'ff_key'];
    expect(whole.filter((table) => !small.includes(table))).toEqual([]);
  });

  it('an outcome is read by primary keys', async () => {
    expect(await readWhole((database) => readOutcomes(database, [key.uuid]))).toEqual([]);
  });

  it('the steps and the input of an execution are read by primary keys', async () => {
    const window = { limit: 501, valueBytes: 2_048 };
    expect(await readWhole((database) => listSteps(database, key, window))).toEqual([]);
    expect(await readWhole((database) => readPayload(database, key))).toEqual([]);
  });

  it('due timers are found by the index of due times', async () => {
    const nodes = await planOf((database) => listDueTimers(database, 1_000));
    const timers = nodes.filter((node) => node['Index Name']?.startsWith('ff_timer'));
    expect(timers.map((node) => [node['Index Name'], node['Index Cond'] !== undefined])).toEqual([
      ['ff_timer_due', true],
    ]);
    expect(nodes.filter((node) => node['Relation Name'] === 'ff_timer')).toHaveLength(1);
  });

  it('expired leases are found by the claims that are due, without reading a whole table', async () => {
    const whole = await readWhole((database) => listLapsedLeases(database, 1_000));
    expect(whole.filter((table) => table !== 'ff_setback' && table !== 'ff_grant')).toEqual([]);
  });

  it('the leases of a claim whose response was lost are found by reading the claims and no larger table', async () => {
    expect(await readWhole((database) => readClaims(database, [randomUUID()], [], 100))).toEqual([
      'ff_grant',
    ]);
  });

  it('tickets are taken without reading a whole table', async () => {
    expect(await readWhole((database) => takeTickets(database, ['a', 'b'], 'me', 1_000))).toEqual([]);
  });

  it('setbacks are cleared by their primary key', async () => {
    expect(await readWhole((database) => clearSetbacks(database, 'expired-leases', [key]))).toEqual([]);
  });

  const range: FrameRange = {
    attemptIndex: 0,
    from: { tsMs: 0, seq: 0 },
    to: { tsMs: 9e15, seq: 9e15 },
    limit: 500,
    maxBytes: 4_194_304,
    order: 'forward',
    modes: null,
  };

  it.each<[string, FrameRange]>([
    ['forward', range],
    ['backward', { ...range, order: 'backward' }],
    ['of the latest attempt', { ...range, attemptIndex: null }],
    ['of some modes', { ...range, modes: ['durable', 'summary'] }],
  ])('frames are read by primary keys, in the order of the index: %s', async (_, asked) => {
    const work = (database: Database) => readFrames(database, key, asked);
    expect(await readWhole(work)).toEqual([]);
    const nodes = await planOf(work);
    // One for each order, of which one runs.
    const byKey = { 'Node Type': 'Index Scan', 'Index Name': 'ff_frame_pkey' };
    expect(nodes.filter((node) => node['Relation Name'] === 'ff_frame')).toMatchObject([byKey, byKey]);
    // A range of a long stream is not sorted before its first frames are taken.
    const limited = nodes.filter((node) => node['Node Type'] === 'Limit').flatMap(nodesOf);
    expect(limited.map((node) => node['Node Type'])).not.toContain('Sort');
    expect(limited.filter((node) => node['Relation Name'] === 'ff_frame')).toHaveLength(2);
  });

  it('the heads of streams are looked up by primary keys', async () => {
    // Here a thousand of them are one in twenty, for which the whole table would be read.
    const keys = Array.from({ length: 100 }, () => ({ ...key, uuid: randomUUID(), attemptIndex: 0 }));
    expect(await readWhole((database) => readHeads(database, keys))).toEqual([]);
  });

  it('the lease of a frame is the last index entry before its position', async () => {
    const work = (database: Database) => epochAt(database, key, 0, { tsMs: 5, seq: 5 });
    expect(await readWhole(work)).toEqual([]);
    expect((await planOf(work)).map((node) => node['Node Type'])).toEqual(['Limit', 'Index Scan']);
  });

  it('finished steps are found among the frames of one attempt', async () => {
    expect(await readWhole((database) => readFinishedSteps(database, key, 0, 2))).toEqual([]);
  });

  it('what was written before is found by keys', async () => {
    const lease = { ...key, attemptIndex: 1, leaseEpoch: 2 };
    const start = { tsMs: 0, seq: 0 };
    expect(await readWhole((database) => readOutside(database, lease, start, 500))).toEqual([]);
    expect(await readWhole((database) => readEarlierSteps(database, lease))).toEqual([]);
    const patches = (database: Database) => readPatchRows(database, lease, { limit: 500, whole: true });
    expect(await readWhole(patches)).toEqual([]);
    expect((await planOf(patches)).map((node) => node['Index Name'])).toContain('ff_frame_patch');
    expect(await readWhole((database) => readParentEnded(database, lease))).toEqual([]);
  });

  it('a document is read by primary keys', async () => {
    expect(await readWhole((database) => readSummary(database, key, 0))).toEqual([]);
    expect(await readWhole((database) => readSummary(database, key, null))).toEqual([]);
  });

  it.each([
    ['4 digits of an id', '0190'],
    ['13 characters of an id', '01900000-0000'],
    ['a whole uuid', key.uuid],
  ])('%s find executions and flows by primary keys, from the end of the range', async (_, prefix) => {
    const ids = parseIdPrefix(prefix);
    const executions = await planOf((database) => findExecutions(database, ids, 11));
    const flows = await planOf((database) => readFlowHeads(database, ids, 11));
    const byKey = (nodes: readonly PlanNode[], table: string): PlanNode[] =>
      nodes.filter((node) => node['Relation Name'] === table);
    expect(byKey(executions, 'ff_execution')).toMatchObject([
      { 'Node Type': 'Index Scan', 'Index Name': 'ff_execution_pkey', 'Index Cond': expect.any(String) },
    ]);
    expect(byKey(flows, 'ff_flow')).toMatchObject([
      { 'Node Type': 'Index Scan', 'Index Name': 'ff_flow_pkey', 'Index Cond': expect.any(String) },
    ]);
    expect(flows.map((node) => node['Node Type'])).not.toContain('Seq Scan');
  });

  it('ids are shortened by their neighbours in the primary keys', async () => {
    expect(await readWhole((database) => readNeighbours(database, [key.uuid, randomUUID()]))).toEqual([]);
  });

  it('a flow is read by its own rows, and lists of flows start at the newest', async () => {
    expect(await readWhole((database) => readFlowHead(database, key))).toEqual([]);
    expect(await readWhole((database) => readMembers(database, key))).toEqual([]);
    expect(await readWhole((database) => readEdges(database, key))).toEqual([]);
    expect(await readWhole((database) => readFlowOf(database, key))).toEqual([]);
    const query = {
      namespace: 'default',
      name: 'full',
      outcome: 'open',
      after: null,
      limit: 10,
      examined: 100,
    } as const;
    expect(await readWhole((database) => listFlows(database, query))).toEqual([]);
    const after = { createdAtMs: 5_000, uuid: randomUUID() };
    expect(await readWhole((database) => listFlows(database, { ...query, after }))).toEqual([]);
  });
});
