/**
 * Finds and forgets what has been kept long enough: in batches, oldest first, never waiting for a locked row. How long
 * that is applies to all processes, so it is stored in the database.
 */
import { columns, columnsOf, inSchema, partOf, withColumns } from '../database/columns.ts';
import { run, type Database } from '../database/database.ts';
import { setbackJoin, type DueRow } from '../executions/due.sql.ts';
import { BEFORE_ALL_LISTS, ENDED, endedLists } from '../executions/ended.sql.ts';
import { readUncompiled } from '../database/uncompiled.ts';

const RETENTION = 'retention_ms';

/** Null means for ever. */
export async function writeRetention(database: Database, retentionMs: number | null): Promise<void> {
  await run(database, {
    doing: 'setting the retention',
    text: `INSERT INTO ${database.prefix}ff_setting (name, value) VALUES ('${RETENTION}', $1::text::jsonb)
           ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value`,
    params: [JSON.stringify(retentionMs)],
    repeatable: 'yes',
  });
}

/** Null means for ever; undefined means not set. */
export async function readRetention(database: Database): Promise<number | null | undefined> {
  const rows = await run<{ value: number | null }>(database, {
    doing: 'reading the retention',
    text: `SELECT value FROM ${database.prefix}ff_setting WHERE name = '${RETENTION}'`,
    params: [],
    repeatable: 'yes',
  });
  return rows[0]?.value;
}

/** Lists walked by one statement: pairs of namespace and outcome. */
const LISTS_WALKED = 1_000;
/** Of these, how many are read: the ones with the oldest due rows. */
const LISTS_READ = 16;

/** The list a walk stopped at. */
export type ListPlace = typeof BEFORE_ALL_LISTS;

const DUE = columnsOf<DueRow>('d')('uuid', 'partition', 'hadSetback');
const FOUND = withColumns(
  DUE,
  columns<{ next: ListPlace | null }>({
    next: `(SELECT jsonb_build_object('namespace', namespace, 'outcome', terminal_outcome) FROM lists
      WHERE nth = ${LISTS_WALKED})`,
  }),
);

const SETBACK_IS_OVER = '(b.retry_at_ms IS NULL OR b.retry_at_ms <= (SELECT now_ms FROM clock))';
const KEPT_UNTIL = 'coalesce(t.look_again_at_ms, t.ended_at_ms + t.retain_ms)';

const forgettable = (setback: string): string => `
WITH clock AS MATERIALIZED (SELECT s.ff_now_ms() AS now_ms),
lists AS MATERIALIZED (
  ${endedLists(ENDED.keptByDefault, { after: '$3::text, $4::s.ff_terminal_outcome', most: LISTS_WALKED })}),
oldest AS MATERIALIZED (
  SELECT namespace, terminal_outcome FROM lists
  WHERE ended_at_ms <= (SELECT now_ms FROM clock) - $1::bigint ORDER BY ended_at_ms LIMIT ${LISTS_READ}),
due AS MATERIALIZED (
  (SELECT x.execution_id, x.partition_key, x.had_setback FROM oldest o
   CROSS JOIN LATERAL (
     SELECT t.execution_id, t.partition_key, t.ended_at_ms, b.failures IS NOT NULL AS had_setback
     FROM s.ff_attempt_history t ${setback}
     WHERE ${ENDED.keptByDefault} AND t.namespace = o.namespace AND t.terminal_outcome = o.terminal_outcome
       AND t.ended_at_ms <= (SELECT now_ms FROM clock) - $1::bigint AND ${SETBACK_IS_OVER}
     ORDER BY t.ended_at_ms LIMIT $2::bigint) x
   ORDER BY x.ended_at_ms LIMIT $2::bigint)
  UNION ALL
  (SELECT t.execution_id, t.partition_key, b.failures IS NOT NULL
   FROM s.ff_attempt_history t ${setback}
   WHERE ${ENDED.keptOtherwise} AND ${KEPT_UNTIL} <= (SELECT now_ms FROM clock) AND ${SETBACK_IS_OVER}
   ORDER BY ${KEPT_UNTIL} LIMIT $2::bigint))
SELECT ${FOUND.list} FROM (SELECT 1) one
LEFT JOIN (
  SELECT DISTINCT execution_id, partition_key, had_setback FROM due LIMIT $2::bigint) d ON true`;

/**
 * Executions that were kept long enough, from the oldest lists first, oldest first; and the list to resume after, null
 * when the last one was reached. With null, only those that have a retention of their own.
 */
export async function listForgettable(
  database: Database,
  retentionMs: number | null,
  limit: number,
  after: ListPlace = BEFORE_ALL_LISTS,
): Promise<{ due: DueRow[]; next: ListPlace | null }> {
  const rows = await readUncompiled(database, {
    columns: FOUND,
    doing: 'finding what has been kept long enough',
    text: inSchema(database, forgettable(setbackJoin(database, 'retention', 't'))),
    params: [retentionMs, limit, after.namespace, after.outcome],
    repeatable: 'yes',
  });
  const due = rows.filter((row) => row.uuid !== null).map((row) => partOf(DUE, row));
  return { due, next: rows[0]!.next };
}

/** Returns the uuids that were handled: forgotten, or postponed because something still needs them. */
export async function forgetExecutions(
  database: Database,
  items: readonly DueRow[],
  retentionMs: number | null,
  againMs: number,
): Promise<string[]> {
  const rows = await run<{ uuid: string }>(database, {
    doing: 'forgetting executions',
    text: `SELECT execution_id AS uuid FROM ${database.prefix}ff_forget($1::uuid[], $2::smallint[], $3, $4)`,
    params: [items.map((item) => item.uuid), items.map((item) => item.partition), retentionMs, againMs],
    repeatable: 'yes',
  });
  return rows.map((row) => row.uuid);
}

/** Drops the oldest slot of the event log, if it was kept long enough; returns whether it did. */
export async function dropEventSlot(
  database: Database,
  retentionMs: number,
  graceMs: number,
): Promise<boolean> {
  const rows = await run<{ dropped: boolean }>(database, {
    doing: 'dropping old events',
    text: `SELECT ${database.prefix}ff_drop_slot($1, $2) AS dropped`,
    params: [retentionMs, graceMs],
    repeatable: 'yes',
  });
  return rows[0]!.dropped;
}

/** Removes one batch of the positions of dropped events; returns how many. */
export async function forgetRuns(database: Database, limit: number): Promise<number> {
  const rows = await run<{ removed: number }>(database, {
    doing: 'forgetting the positions of old events',
    text: `SELECT ${database.prefix}ff_forget_runs($1) AS removed`,
    params: [limit],
    repeatable: 'yes',
  });
  return rows[0]!.removed;
}

/** Opens the next slot of the event log, if it is time; returns whether it did. */
export async function openEventSlot(database: Database, retentionMs: number): Promise<boolean> {
  const rows = await run<{ opened: boolean }>(database, {
    doing: 'opening a slot of the event log',
    text: `SELECT ${database.prefix}ff_open_slot($1) AS opened`,
    params: [retentionMs],
    repeatable: 'yes',
  });
  return rows[0]!.opened;
}

/** Removes one batch of idempotency keys that were kept long enough; returns how many. */
export async function forgetKeys(database: Database, limit: number, againMs: number): Promise<number> {
  const rows = await run<{ removed: number }>(database, {
    doing: 'forgetting idempotency keys',
    text: `SELECT ${database.prefix}ff_forget_keys($1, $2) AS removed`,
    params: [limit, againMs],
    repeatable: 'yes',
  });
  return rows[0]!.removed;
}
