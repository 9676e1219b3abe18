/**
 * The states a table can be in when a plan is made. Autovacuum is disabled for them, so that each stays in its state
 * during a test.
 */
import pg from 'pg';
import { migrate } from '../../src/engine/database/migrations/migrate.ts';
import { openDatabase, type Database, type PoolLike } from '../../src/engine/database/database.ts';
import type { TestDatabase } from '../../src/testing/test-database.ts';
import { emptyDatabase, plainDatabase } from '../setup/database.ts';
import { callsOn, claimBatch, submitBatch } from './workload.ts';

export const FULL_ROWS = 20_000;
const ROWS_PER_SUBMIT = 5_000;
const CLAIMED_AT_ONCE = 500;

/** Written by the functions under test; the rest is filled once and stays small. */
const GROWING_TABLES = [
  'ff_execution',
  'ff_ready',
  'ff_timer',
  'ff_grant',
  'ff_attempt_history',
  'ff_event_0',
  'ff_suspension',
  'ff_waitpoint',
  'ff_signal',
  'ff_stream_meta',
  'ff_frame',
  'ff_stream_summary',
  'ff_flow',
  'ff_flow_progress',
  'ff_member',
  'ff_edge',
  'ff_edge_group',
  'ff_pending_cancel_groups',
  'ff_flow_job',
  'ff_cancel_backlog',
] as const;

export interface TableStats {
  relname: string;
  relpages: number;
  reltuples: number;
}

/** Runs the store's calls on connections that record nothing. */
export function storeOf(test: TestDatabase): Database {
  const pool: PoolLike = {
    query: ({ text, values }) => test.query(text, values),
  };
  return openDatabase({ pool, schema: test.schema });
}

async function keepAutovacuumAway(test: TestDatabase): Promise<void> {
  const tables = await test.query<{ name: string }>(
    `SELECT relname AS name FROM pg_class WHERE relkind = 'r' AND relnamespace = $1::regnamespace`,
    [test.schema],
  );
  for (const { name } of tables.rows) {
    await test.query(`ALTER TABLE ${pg.escapeIdentifier(name)} SET (autovacuum_enabled = off)`);
  }
}

/** As a first installation leaves it: no statistics at all. */
export async function freshTables(): Promise<TestDatabase> {
  const test = await emptyDatabase();
  await migrate({ databaseUrl: test.url });
  await keepAutovacuumAway(test);
  return test;
}

/** Vacuumed while empty: the planner believes they are empty until the next ANALYZE. */
export async function vacuumedEmptyTables(): Promise<TestDatabase> {
  const test = await plainDatabase();
  await keepAutovacuumAway(test);
  await test.query('VACUUM ANALYZE');
  return test;
}

/** As many suspensions, of executions that do not exist: each has two waitpoints, and two signals at one of them. */
const WAITING = [
  `INSERT INTO ff_suspension (execution_id, suspended_at_ms, lease_epoch, attempt_index, partition_key, waits)
   SELECT lpad(to_hex(n), 32, '0')::uuid, n, 1, 0, 0, '[]' FROM generate_series(1, $1::integer) n`,
  `INSERT INTO ff_waitpoint (execution_id, waitpoint_id, token_id, created_at_ms, partition_key, name)
   SELECT lpad(to_hex(n), 32, '0')::uuid, lpad(to_hex(n), 32, '0')::uuid, gen_random_uuid(), n, 0, name
   FROM generate_series(1, $1::integer) n, unnest('{here,there}'::text[]) name`,
  `INSERT INTO ff_signal (execution_id, waitpoint_id, signal_id, accepted_at_ms, seq, partition_key, name, source_type,
     source_identity, idempotency_key, effect, payload)
   SELECT lpad(to_hex(n), 32, '0')::uuid, lpad(to_hex(n), 32, '0')::uuid, gen_random_uuid(), n, seq, 0, 'go', 'user', 'me',
     seq::text, 'buffered', '{}'
   FROM generate_series(1, $1::integer) n, generate_series(0, 1) seq`,
];

/** As many streams, of executions that do not exist: each with two frames and a document. */
const WRITTEN = [
  `INSERT INTO ff_stream_meta (execution_id, created_at_ms, last_append_ts_ms, last_seq, total_bytes, lease_epoch,
     attempt_index, live_count, partition_key)
   SELECT lpad(to_hex(n), 32, '0')::uuid, n, n, 2, 2, 1, 0, 1, 0 FROM generate_series(1, $1::integer) n`,
  `INSERT INTO ff_frame (execution_id, ts_ms, seq, lease_epoch, attempt_index, partition_key, mode, encoding, frame_type, step_name,
     step_key, payload)
   SELECT lpad(to_hex(n), 32, '0')::uuid, n, seq, 1, 0, 0, CASE seq WHEN 1 THEN 'durable' ELSE 'best_effort' END::ff_frame_mode, 'text',
     'event', 's', 'a', 'x'
   FROM generate_series(1, $1::integer) n, generate_series(1, 2) seq`,
  `INSERT INTO ff_stream_summary (execution_id, first_applied_ms, last_updated_ms, attempt_index, version, partition_key, document_json)
   SELECT lpad(to_hex(n), 32, '0')::uuid, n, n, 0, 1, 0, '{}' FROM generate_series(1, $1::integer) n`,
];

const UUID = (n: string): string => `lpad(to_hex(${n}), 32, '0')::uuid`;

/** As many flows, of executions that do not exist: each with two members and an edge, and as many old jobs for them. */
const JOINED = [
  `INSERT INTO ff_flow (flow_id, created_at_ms, changed_at_ms, sealed_at_ms, graph_revision, node_count, edge_count, partition_key, name,
     namespace, tags)
   SELECT ${UUID('n')}, n, n, n, 1, 2, 1, 0, 'full', 'default', '{}' FROM generate_series(1, $1::integer) n`,
  `INSERT INTO ff_flow_progress (flow_id, partition_key, open_count) SELECT ${UUID('n')}, 0, 2 FROM generate_series(1, $1::integer) n`,
  `INSERT INTO ff_member (flow_id, execution_id, partition_key, name)
   SELECT ${UUID('n')}, ${UUID('2 * n + i')}, 0, i::text FROM generate_series(1, $1::integer) n, generate_series(0, 1) i`,
  `INSERT INTO ff_edge (upstream_eid, downstream_eid, flow_id, edge_id, created_at_ms, partition_key, condition, state)
   SELECT ${UUID('2 * n')}, ${UUID('2 * n + 1')}, ${UUID('n')}, ${UUID('n')}, n, 0, 'success', 'pending'
   FROM generate_series(1, $1::integer) n`,
  `INSERT INTO ff_edge_group (downstream_eid, flow_id, k_target, edge_count, partition_key, join_kind, cancels_rest)
   SELECT ${UUID('2 * n + 1')}, ${UUID('n')}, 0, 1, 0, 'all', false FROM generate_series(1, $1::integer) n`,
];

/** Queues are short: the jobs of flows are done at once. */
const LEFT = [
  `INSERT INTO ff_pending_cancel_groups SELECT 0, ${UUID('n')}, ${UUID('2 * n + 1')}, 9e15::bigint FROM generate_series(1, 500) n`,
  `INSERT INTO ff_flow_job (created_at_ms, execution_id, flow_id, partition_key)
   SELECT n, ${UUID('2 * n')}, ${UUID('n')}, 0 FROM generate_series(1, 500) n`,
  `INSERT INTO ff_cancel_backlog SELECT ${UUID('n')}, 9e15::bigint, NULL, 0 FROM generate_series(1, 500) n`,
];

export async function fullTables(): Promise<TestDatabase> {
  const test = await vacuumedEmptyTables();
  await fill(storeOf(test), FULL_ROWS);
  for (const statement of [...WAITING, ...WRITTEN, ...JOINED]) await test.query(statement, [FULL_ROWS]);
  for (const statement of LEFT) await test.query(statement);
  await test.query('VACUUM ANALYZE');
  return test;
}

/**
 * Drained, then vacuumed as the engine does it: the files keep their length. No page is skipped, so the count is exact.
 */
export async function emptiedTables(): Promise<TestDatabase> {
  const test = await fullTables();
  for (const table of GROWING_TABLES) {
    await test.query(`DELETE FROM ${table}`);
    await test.query(`VACUUM (TRUNCATE OFF, INDEX_CLEANUP ON, DISABLE_PAGE_SKIPPING) ${table}`);
  }
  return test;
}

/** Half are delayed, a quarter leased, the rest either ready or ended. */
export async function fill(database: Database, rows: number): Promise<void> {
  const kinds = ['full-a', 'full-b'];
  let routes: number[] = [];
  for (let done = 0; done < rows; done += ROWS_PER_SUBMIT) {
    const delay = done < rows / 2 ? { delayMs: 3_600_000, delayStepMs: 10 } : {};
    ({ routes } = await submitBatch(database, { kinds, count: ROWS_PER_SUBMIT, ...delay }));
  }
  for (let taken = 0; taken < (rows * 3) / 8; taken += CLAIMED_AT_ONCE) {
    const held = await claimBatch(database, routes, CLAIMED_AT_ONCE);
    if (taken < rows / 8) await callsOn(database).complete(held);
  }
}

export async function tableStats(test: TestDatabase): Promise<TableStats[]> {
  const stats = await test.query<TableStats>(
    `SELECT relname, relpages, reltuples FROM pg_class
     WHERE relnamespace = $1::regnamespace AND relname = ANY ($2) ORDER BY relname`,
    [test.schema, GROWING_TABLES],
  );
  return stats.rows;
}

/** Removes the planner settings of the functions, to show what they are for. */
export async function resetFunctionSettings(test: TestDatabase): Promise<void> {
  const functions = await test.query<{ name: string }>(
    `SELECT oid::regprocedure::text AS name FROM pg_proc
     WHERE pronamespace = $1::regnamespace AND proconfig IS NOT NULL`,
    [test.schema],
  );
  for (const { name } of functions.rows) await test.query(`ALTER FUNCTION ${name} RESET ALL`);
}
