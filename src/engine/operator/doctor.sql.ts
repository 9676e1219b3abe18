/**
 * Facts about a server and a schema, read for whoever examines an installation, and the statements that repair what
 * may be found. Everything here works under a role with few rights and changes nothing; what the facts mean is
 * decided elsewhere.
 */
import { randomUUID } from 'node:crypto';
import { EngineError } from '../../contract/errors.ts';
import { formatExecutionId } from '../../contract/ids.ts';
import { run, type ClientLike, type Database } from '../database/database.ts';
import { toEngineError } from '../database/errors.ts';
import { nextEventMs } from '../kit/consumer-lag.sql.ts';
import { quoteIdentifier } from '../database/names.ts';
import { listenForHints, sendHint } from '../database/notify.ts';
import { readUncompiled } from '../database/uncompiled.ts';

async function readRows<Row>(
  database: Database,
  doing: string,
  text: string,
  params: unknown[] = [],
): Promise<Row[]> {
  return run<Row>(database, { doing, text, params, repeatable: 'yes' });
}

async function readOne<Row>(
  database: Database,
  doing: string,
  text: string,
  params: unknown[] = [],
): Promise<Row> {
  return only(doing, await readRows<Row>(database, doing, text, params));
}

/** Of the engine's tables, which may be large. */
function readMany<Row>(database: Database, doing: string, text: string, params: number[]): Promise<Row[]> {
  return readUncompiled<Row>(database, { doing, text, params, repeatable: 'yes' });
}

function only<Row>(doing: string, [row]: readonly Row[]): Row {
  if (row === undefined) throw new EngineError('database_error', `While ${doing}: nothing was answered.`);
  return row;
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
  /** As this role has them here; a setting the server does not know is missing. */
  settings: Partial<Record<Setting, string>>;
  /** Connections in use on the whole server. */
  connections: number;
  /** -1: no limit. */
  roleLimit: number;
  databaseLimit: number;
}

export function readServer(database: Database): Promise<ServerFacts> {
  return readOne<ServerFacts>(
    database,
    'asking the server about itself',
    `SELECT current_setting('server_version') AS version, r.rolname AS role, r.rolsuper AS "isSuperuser",
       current_setting('server_version_num')::integer AS "versionNumber", pg_is_in_recovery() AS "isStandby",
       (SELECT jsonb_object_agg(name, setting) FROM pg_settings WHERE name = ANY ($1::text[])) AS settings,
       (SELECT sum(numbackends)::integer FROM pg_stat_database) AS connections,
       r.rolconnlimit AS "roleLimit", d.datconnlimit AS "databaseLimit"
     FROM pg_roles r, pg_database d WHERE r.rolname = current_user AND d.datname = current_database()`,
    [SETTINGS],
  );
}

/** Tables a running engine only reads. */
const READ_ONLY_TABLES = ['ff_clock', 'ff_function_set', 'ff_migration', 'ff_transition'];

/** What this role lacks to run the engine, each as `RIGHT on thing`. */
export async function readMissingRights(database: Database): Promise<string[]> {
  const rows = await readRows<{ lacking: string }>(
    database,
    'looking at the rights of the role',
    `WITH ours AS (SELECT oid FROM pg_namespace WHERE nspname = $1)
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
    [database.schema, READ_ONLY_TABLES],
  );
  return rows.map(({ lacking }) => lacking);
}

export interface TableFacts {
  table: string;
  live: number;
  dead: number;
}

/** The tables whose rows come and go, by the server's own estimates. */
export function readQueueTables(database: Database): Promise<TableFacts[]> {
  return readRows<TableFacts>(
    database,
    'reading the statistics of the queue tables',
    `SELECT relname AS "table", n_live_tup AS live, n_dead_tup AS dead FROM pg_stat_user_tables
     WHERE schemaname = $1 AND relname IN ('ff_ready', 'ff_lease', 'ff_timer', 'ff_execution') ORDER BY relname`,
    [database.schema],
  );
}

export interface OldTransaction {
  /** Of a session its process id, of a prepared transaction its name. */
  pid: number | null;
  prepared: string | null;
  application: string;
  role: string;
  state: string;
  ageMs: number;
}

export interface TransactionFacts {
  /** The one that has kept dead rows from being removed for longest, in this database. */
  oldest: OldTransaction | undefined;
  /** Sessions of other roles that this one may not look at. */
  hidden: number;
}

export async function readTransactions(database: Database): Promise<TransactionFacts> {
  const doing = 'looking for old transactions';
  const oldest = await readRows<OldTransaction>(
    database,
    doing,
    `SELECT pid, NULL AS prepared, coalesce(application_name, '') AS application, usename AS role,
       coalesce(state, 'active') AS state, (extract(epoch FROM clock_timestamp() - xact_start) * 1000)::bigint AS "ageMs"
     FROM pg_stat_activity
     WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type <> 'autovacuum worker'
       AND xact_start IS NOT NULL AND (backend_xid IS NOT NULL OR backend_xmin IS NOT NULL)
     UNION ALL
     SELECT NULL, gid, '', owner, 'prepared', (extract(epoch FROM clock_timestamp() - prepared) * 1000)::bigint
     FROM pg_prepared_xacts WHERE database = current_database()
     ORDER BY "ageMs" DESC LIMIT 1`,
  );
  const { hidden } = await readOne<{ hidden: number }>(
    database,
    doing,
    `SELECT count(*) AS hidden FROM pg_stat_activity
     WHERE datname = current_database() AND query = '<insufficient privilege>'`,
  );
  return { oldest: oldest[0], hidden };
}

export interface StuckFacts {
  count: number;
  /** Those that resisted most often. */
  worst: { executionId: string; reconciler: string; failures: number; errorCode: string }[];
}

const WORST_SHOWN = 5;

/** Rows the reconcilers could not act on, of executions that have not ended. */
export async function readStuck(database: Database): Promise<StuckFacts> {
  const rows = await readMany<{
    uuid: string;
    partition: number;
    reconciler: string;
    failures: number;
    error_code: string;
    count: number;
  }>(
    database,
    'looking for stuck rows',
    `SELECT s.execution_id AS uuid, s.partition_key AS partition, s.reconciler, s.failures, s.error_code,
       count(*) OVER () AS count
     FROM ${database.prefix}ff_setback s JOIN ${database.prefix}ff_execution e USING (execution_id, partition_key)
     WHERE e.lifecycle_phase <> 'terminal' ORDER BY s.failures DESC, s.execution_id LIMIT $1::bigint`,
    [WORST_SHOWN],
  );
  const worst = rows.map(({ uuid, partition, reconciler, failures, error_code: errorCode }) => ({
    executionId: formatExecutionId(partition, uuid),
    reconciler,
    failures,
    errorCode,
  }));
  return { count: rows[0]?.count ?? 0, worst };
}

export interface UpkeepFacts {
  tickets: { name: string; isHeld: boolean }[];
  /** Leases and timers that somebody should have dealt with long ago. */
  lapsedLeases: number;
  dueTimers: number;
  /** There are executions that somebody should run or watch over. */
  isBusy: boolean;
}

export async function readUpkeep(database: Database, overdueMs: number): Promise<UpkeepFacts> {
  const { prefix } = database;
  const doing = 'looking at the reconcilers';
  const rows = await readMany<UpkeepFacts>(
    database,
    doing,
    `SELECT coalesce((SELECT jsonb_agg(jsonb_build_object('name', name, 'isHeld', held_until_ms > now_ms) ORDER BY name)
         FROM ${prefix}ff_reconciler), '[]') AS tickets,
       (SELECT count(*) FROM ${prefix}ff_lease WHERE expires_at_ms < now_ms - $1::bigint) AS "lapsedLeases",
       (SELECT count(*) FROM ${prefix}ff_timer WHERE due_at_ms < now_ms - $1::bigint) AS "dueTimers",
       EXISTS (SELECT 1 FROM ${prefix}ff_ready) OR EXISTS (SELECT 1 FROM ${prefix}ff_lease)
         OR EXISTS (SELECT 1 FROM ${prefix}ff_timer) AS "isBusy"
     FROM (SELECT ${prefix}ff_now_ms() AS now_ms) clock`,
    [overdueMs],
  );
  return only(doing, rows);
}

/** Combinations of lane, kind and capabilities that are in use, or were until lately. */
export async function readRouteCount(database: Database): Promise<number> {
  const text = `SELECT count(*) AS count FROM ${database.prefix}ff_route`;
  return (await readOne<{ count: number }>(database, 'counting routes', text)).count;
}

export interface FeedFacts {
  /** Events that were written this long ago, are committed, and have no position. */
  unstamped: number;
  /** How often positions had to jump, because the database was moved or lost its newest part. */
  epoch: number;
  consumers: number;
  /** The one furthest behind, and the one that failed most often. */
  late: { name: string; lagMs: number } | null;
  failing: { name: string; failures: number; errorCode: string | null } | null;
}

export async function readFeed(database: Database, overdueMs: number): Promise<FeedFacts> {
  const { prefix } = database;
  const doing = 'looking at the event feed';
  const rows = await readMany<FeedFacts>(
    database,
    doing,
    `SELECT q.epoch, ${prefix}ff_count_unstamped($1::bigint) AS unstamped,
       (SELECT count(*) FROM ${prefix}ff_consumer) AS consumers,
       (SELECT jsonb_build_object('name', c.name, 'lagMs', greatest(n.now_ms - coalesce(${nextEventMs(database)}, n.now_ms), 0)) FROM ${prefix}ff_consumer c ORDER BY c.position LIMIT 1) AS late,
       (SELECT jsonb_build_object('name', c.name, 'failures', c.failures, 'errorCode', c.error_code)
        FROM ${prefix}ff_consumer c ORDER BY c.failures DESC LIMIT 1) AS failing
     FROM ${prefix}ff_sequencer q
     CROSS JOIN (SELECT ${prefix}ff_now_ms() AS now_ms) n`,
    [overdueMs],
  );
  return only(doing, rows);
}

/** `unopened`: the listening connection did not come about. */
export type Echo = 'heard' | 'unheard' | 'unopened';

/** Sends a hint through the pool and waits for it on a listening connection. Workers take it for an empty one. */
export async function hearOwnHint(
  database: Database,
  options: { listenUrl: string; limitMs: number },
): Promise<Echo> {
  const payload = JSON.stringify({ probe: randomUUID() });
  let echo: Echo = 'unopened';
  let settle: () => void = () => undefined;
  const settled = new Promise<void>((resolve) => {
    settle = resolve;
  });
  const limit = setTimeout(settle, options.limitMs);
  const listener = listenForHints(options.listenUrl, database.schema, {
    open() {
      if (echo === 'unopened') echo = 'unheard';
      sendHint(database, payload).catch(settle);
    },
    hint(heard) {
      if (heard !== payload) return;
      echo = 'heard';
      settle();
    },
  });
  await settled;
  clearTimeout(limit);
  await listener.close();
  return echo;
}

/** The server processes that answered two connections; those of direct connections stay the same and are not shared. */
export interface AnsweringPids {
  first: number[];
  second: number[];
}

/** Needs two connections of the pool at once. */
export async function readAnsweringPids(database: Database): Promise<AnsweringPids> {
  const first = await connectOnce(database);
  try {
    const second = await connectOnce(database);
    try {
      const pids: AnsweringPids = { first: [], second: [] };
      for (const name of ['first', 'second', 'first', 'second'] as const)
        pids[name].push(await pidOf({ first, second }[name]));
      return pids;
    } finally {
      second.release();
    }
  } finally {
    first.release();
  }
}

async function connectOnce(database: Database): Promise<ClientLike> {
  try {
    return await database.pool.connect!();
  } catch (error) {
    throw toEngineError(error, 'opening a second connection');
  }
}

async function pidOf(client: ClientLike): Promise<number> {
  try {
    const { rows } = await client.query('SELECT pg_backend_pid()::text AS pid');
    return Number((rows[0] as { pid: string }).pid);
  } catch (error) {
    throw toEngineError(error, 'asking which process answers');
  }
}

function quoteText(text: string): string {
  return `'${text.replaceAll("'", "''")}'`;
}

/** Statements for a person to run. Nothing here runs them. */
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
