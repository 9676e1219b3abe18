/**
 * Facts about a server and a schema, read for the doctor, and the statements that repair what it may find. Everything
 * here works with few rights and changes nothing; what the facts mean is decided in doctor-judgements.ts.
 */
import type { ExecutionSnapshot } from '../../contract/executions.ts';
import type { ExecutionId } from '../../contract/ids.ts';
import { columns, idText, inSchema, partOf, withColumns } from '../database/columns.ts';
import { onlyRow, run, type Database, type Statement } from '../database/database.ts';
import { nextEventMs } from '../kit/consumer-lag.sql.ts';
import { quoteIdentifier } from '../database/names.ts';
import { readUncompiled } from '../database/uncompiled.ts';

type Reading<Row> = Pick<Statement<Row>, 'doing' | 'columns' | 'text'> & { params?: unknown[] };

function readRows<Row>(database: Database, { params = [], ...reading }: Reading<Row>): Promise<Row[]> {
  return run(database, { ...reading, params, repeatable: 'yes' });
}

async function readOne<Row>(database: Database, reading: Reading<Row>): Promise<Row> {
  return onlyRow(reading.doing, await readRows(database, reading));
}

/** Reads the engine's tables, which may be large. */
async function readLarge<Row>(
  database: Database,
  reading: Omit<Reading<Row>, 'params'>,
  param: number,
): Promise<Row> {
  const { doing } = reading;
  return onlyRow(doing, await readUncompiled(database, { ...reading, params: [param], repeatable: 'yes' }));
}

const SETTINGS = [
  'array_nulls',
  'autovacuum',
  'default_transaction_isolation',
  'default_transaction_read_only',
  'fsync',
  'full_page_writes',
  'max_connections',
  'reserved_connections',
  'server_encoding',
  'superuser_reserved_connections',
  'synchronous_commit',
] as const;
type Setting = (typeof SETTINGS)[number];

export interface ServerFacts {
  version: string;
  versionNumber: number;
  role: string;
  isSuperuser: boolean;
  isStandby: boolean;
  /** In effect for this role; a setting the server does not know is missing. */
  settings: Partial<Record<Setting, string>>;
  /** Connections in use on the whole server. */
  connections: number;
  /** -1: no limit. */
  roleLimit: number;
  databaseLimit: number;
}

const SERVER = columns<ServerFacts>({
  version: "current_setting('server_version')",
  versionNumber: "current_setting('server_version_num')::integer",
  role: 'r.rolname',
  isSuperuser: 'r.rolsuper',
  isStandby: 'pg_is_in_recovery()',
  settings: '(SELECT jsonb_object_agg(name, setting) FROM pg_settings WHERE name = ANY ($1::text[]))',
  connections: '(SELECT sum(numbackends)::integer FROM pg_stat_database)',
  roleLimit: 'r.rolconnlimit',
  databaseLimit: 'd.datconnlimit',
});

export function readServer(database: Database): Promise<ServerFacts> {
  return readOne(database, {
    doing: 'reading the settings of the server',
    columns: SERVER,
    text: `SELECT ${SERVER.list}
     FROM pg_roles r, pg_database d WHERE r.rolname = current_user AND d.datname = current_database()`,
    params: [SETTINGS],
  });
}

/** Tables a running engine only reads. */
const READ_ONLY_TABLES = ['ff_clock', 'ff_function_set', 'ff_migration', 'ff_transition'];

/** What this role lacks to run the engine, each as `RIGHT on thing`. */
export async function readMissingRights(database: Database): Promise<string[]> {
  const rows = await readRows<{ lacking: string }>(database, {
    doing: 'reading the rights of the role',
    text: `WITH ours AS (SELECT oid FROM pg_namespace WHERE nspname = $1)
     SELECT 'USAGE on schema ' || $1 AS lacking FROM ours WHERE NOT has_schema_privilege(oid, 'USAGE')
     UNION ALL
     SELECT p || ' on ' || c.relname FROM ours, pg_class c, unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) p
     WHERE c.relnamespace = ours.oid AND starts_with(c.relname, 'ff_') AND c.relkind IN ('r', 'p', 'v')
       AND (p = 'SELECT' OR (c.relkind = 'r' AND NOT c.relispartition AND c.relname <> ALL ($2::text[])))
       AND NOT has_table_privilege(c.oid, p)
     UNION ALL
     SELECT p || ' on ' || c.relname FROM ours, pg_class c, unnest(ARRAY['INSERT', 'TRUNCATE']) p
     WHERE c.relnamespace = ours.oid AND starts_with(c.relname, 'ff_') AND (c.relkind = 'p' OR (c.relispartition AND p = 'TRUNCATE'))
       AND c.relkind IN ('r', 'p')
       AND NOT CASE p WHEN 'INSERT' THEN has_any_column_privilege(c.oid, p) ELSE has_table_privilege(c.oid, p) END
     UNION ALL
     SELECT 'EXECUTE on ' || f.proname FROM ours, pg_proc f
     WHERE f.pronamespace = ours.oid AND starts_with(f.proname, 'ff_') AND NOT has_function_privilege(f.oid, 'EXECUTE')
     ORDER BY 1`,
    params: [database.schema, READ_ONLY_TABLES],
  });
  return rows.map(({ lacking }) => lacking);
}

export interface TableFacts {
  table: string;
  live: number;
  dead: number;
}

const TABLE = columns<TableFacts>({ table: 'relname', live: 'n_live_tup', dead: 'n_dead_tup' });

/** The tables with a high turnover of rows, by the server's own estimates. */
export function readQueueTables(database: Database): Promise<TableFacts[]> {
  return readRows(database, {
    doing: 'reading the statistics of the queue tables',
    columns: TABLE,
    text: `SELECT ${TABLE.list} FROM pg_stat_user_tables
     WHERE schemaname = $1 AND relname IN ('ff_ready', 'ff_grant', 'ff_timer', 'ff_execution') ORDER BY relname`,
    params: [database.schema],
  });
}

export interface OldTransaction {
  /** The process id of a session, or the name of a prepared transaction. */
  pid: number | null;
  prepared: string | null;
  application: string;
  role: string;
  state: string;
  ageMs: number;
}

export interface TransactionFacts {
  /** The one that has prevented the removal of dead rows for longest, in this database. */
  oldest: OldTransaction | undefined;
  /** Sessions of other roles that this role may not see. */
  hidden: number;
}

const SESSION = columns<OldTransaction>({
  pid: 'pid',
  prepared: 'NULL',
  application: "coalesce(application_name, '')",
  role: 'usename',
  state: "coalesce(state, 'active')",
  ageMs: '(extract(epoch FROM clock_timestamp() - xact_start) * 1000)::bigint',
});
const PREPARED = columns<OldTransaction>({
  pid: 'NULL',
  prepared: 'gid',
  application: "''",
  role: 'owner',
  state: "'prepared'",
  ageMs: '(extract(epoch FROM clock_timestamp() - prepared) * 1000)::bigint',
});

export async function readTransactions(database: Database): Promise<TransactionFacts> {
  const doing = 'finding old transactions';
  const [oldest] = await readRows(database, {
    doing,
    columns: SESSION,
    text: `SELECT ${SESSION.list} FROM pg_stat_activity
     WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type <> 'autovacuum worker'
       AND xact_start IS NOT NULL AND (backend_xid IS NOT NULL OR backend_xmin IS NOT NULL)
     UNION ALL
     SELECT ${PREPARED.list} FROM pg_prepared_xacts WHERE database = current_database()
     ORDER BY "ageMs" DESC LIMIT 1`,
  });
  const { hidden } = await readOne<{ hidden: number }>(database, {
    doing,
    text: `SELECT count(*) AS hidden FROM pg_stat_activity
     WHERE datname = current_database() AND query = '<insufficient privilege>'`,
  });
  return { oldest, hidden };
}

type StuckRow = ExecutionSnapshot['setbacks'][number] & { executionId: ExecutionId };

export interface StuckFacts {
  count: number;
  /** Those that failed most often. */
  worst: StuckRow[];
}

const WORST_SHOWN = 5;

const STUCK = columns<StuckRow>({
  executionId: idText('s.partition_key', 's.execution_id'),
  reconciler: 's.reconciler',
  failures: 's.failures',
  errorCode: 's.error_code',
});
const COUNTED = withColumns(STUCK, columns<Pick<StuckFacts, 'count'>>({ count: 'count(*) OVER ()' }));

/** Rows the reconcilers could not act on, of unfinished executions. */
export async function readStuck(database: Database): Promise<StuckFacts> {
  const rows = await readUncompiled(database, {
    doing: 'finding stuck rows',
    columns: COUNTED,
    text: `SELECT ${COUNTED.list}
     FROM ${database.prefix}ff_setback s JOIN ${database.prefix}ff_execution e USING (execution_id, partition_key)
     WHERE e.lifecycle_phase <> 'terminal' ORDER BY s.failures DESC, s.execution_id LIMIT $1::bigint`,
    params: [WORST_SHOWN],
    repeatable: 'yes',
  });
  return { count: rows[0]?.count ?? 0, worst: rows.map((row) => partOf(STUCK, row)) };
}

export interface UpkeepFacts {
  tickets: { name: string; isHeld: boolean }[];
  /** Leases and timers that are long overdue. */
  lapsedLeases: number;
  dueTimers: number;
  /** There are executions that need workers or reconcilers. */
  isBusy: boolean;
}

const UPKEEP = columns<UpkeepFacts>({
  tickets: `coalesce((SELECT jsonb_agg(jsonb_build_object('name', name, 'isHeld', held_until_ms > now_ms) ORDER BY name)
    FROM s.ff_reconciler), '[]')`,
  lapsedLeases: `(SELECT count(*) FROM s.ff_grant g, unnest(g.execution_ids) x(id)
      JOIN s.ff_execution e ON e.execution_id = x.id
    WHERE g.look_at_ms < now_ms - $1::bigint AND e.claim_no = g.claim_no
      AND e.lease_expires_at_ms < now_ms - $1::bigint)`,
  dueTimers: '(SELECT count(*) FROM s.ff_timer WHERE due_at_ms < now_ms - $1::bigint)',
  isBusy: `EXISTS (SELECT 1 FROM s.ff_ready) OR EXISTS (SELECT 1 FROM s.ff_grant)
    OR EXISTS (SELECT 1 FROM s.ff_timer)`,
});

export function readUpkeep(database: Database, overdueMs: number): Promise<UpkeepFacts> {
  const text = inSchema(database, `SELECT ${UPKEEP.list} FROM (SELECT s.ff_now_ms() AS now_ms) clock`);
  return readLarge(database, { doing: 'checking the reconcilers', columns: UPKEEP, text }, overdueMs);
}

/** Combinations of lane, kind and capabilities that are or recently were in use. */
export async function readRouteCount(database: Database): Promise<number> {
  const text = `SELECT count(*) AS count FROM ${database.prefix}ff_route`;
  return (await readOne<{ count: number }>(database, { doing: 'counting routes', text })).count;
}

export interface FeedFacts {
  /** Committed events that are overdue for a position. */
  unstamped: number;
  /** How often positions had to jump, because the database was moved or lost its newest data. */
  epoch: number;
  consumers: number;
  /** The one furthest behind, and the one that failed most often. */
  late: { name: string; lagMs: number } | null;
  failing: { name: string; failures: number; errorCode: string | null } | null;
}

export function readFeed(database: Database, overdueMs: number): Promise<FeedFacts> {
  const feed = columns<FeedFacts>({
    epoch: 'q.epoch',
    unstamped: 's.ff_count_unstamped($1::bigint)',
    consumers: '(SELECT count(*) FROM s.ff_consumer)',
    late: `(SELECT jsonb_build_object('name', c.name, 'lagMs',
        greatest(n.now_ms - coalesce(${nextEventMs(database)}, n.now_ms), 0))
      FROM s.ff_consumer c ORDER BY c.position LIMIT 1)`,
    failing: `(SELECT jsonb_build_object('name', c.name, 'failures', c.failures, 'errorCode', c.error_code)
      FROM s.ff_consumer c ORDER BY c.failures DESC LIMIT 1)`,
  });
  const text = `SELECT ${feed.list} FROM s.ff_sequencer q CROSS JOIN (SELECT s.ff_now_ms() AS now_ms) n`;
  const reading = { doing: 'checking the event feed', columns: feed, text: inSchema(database, text) };
  return readLarge(database, reading, overdueMs);
}

function quoteText(text: string): string {
  return `'${text.replaceAll("'", "''")}'`;
}

/** Statements for an operator to run. Nothing here runs them. */
export const REPAIRS = {
  endSession: (pid: number) => `SELECT pg_terminate_backend(${pid});`,
  rollBackPrepared: (name: string) => `ROLLBACK PREPARED ${quoteText(name)};`,
  vacuum: (schema: string, table: string) => `VACUUM (TRUNCATE OFF) ${quoteIdentifier(schema)}.${table};`,
  setForServer: (setting: Setting) => `ALTER SYSTEM SET ${setting} TO on; SELECT pg_reload_conf();`,
  setForRole: (role: string, setting: Setting, value: string) =>
    `ALTER ROLE ${quoteIdentifier(role)} SET ${setting} TO ${quoteText(value)};`,
  createInUtf8: `CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0;`,
  seeAllSessions: (role: string) => `GRANT pg_read_all_stats TO ${quoteIdentifier(role)};`,
} as const;
