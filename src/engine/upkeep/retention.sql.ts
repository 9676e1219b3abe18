/**
 * Finds and forgets what has been kept long enough: in batches, oldest first, never waiting for a locked row. How long
 * that is applies to all processes, so it is stored in the database.
 */
import { columnsOf } from '../database/columns.ts';
import { run, type Database } from '../database/database.ts';
import { setbackJoin, type DueRow } from '../executions/due.sql.ts';
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

const DUE = columnsOf<DueRow>()('uuid', 'partition', 'hadSetback');

/** Executions that were kept long enough, oldest first. With null, only those that have a retention of their own. */
export function listForgettable(
  database: Database,
  retentionMs: number | null,
  limit: number,
): Promise<DueRow[]> {
  return readUncompiled(database, {
    columns: DUE,
    doing: 'finding what has been kept long enough',
    text: `WITH clock AS MATERIALIZED (SELECT ${database.prefix}ff_now_ms() AS now_ms),
           old AS MATERIALIZED (
             (SELECT t.execution_id, t.partition_key, b.failures IS NOT NULL AS had_setback
              FROM ${database.prefix}ff_outcome t ${setbackJoin(database, 'retention', 't')}
              WHERE t.retain_ms IS NULL AND t.look_again_at_ms IS NULL
                AND t.ended_at_ms <= (SELECT now_ms FROM clock) - $1::bigint
                AND (b.retry_at_ms IS NULL OR b.retry_at_ms <= (SELECT now_ms FROM clock))
              ORDER BY t.ended_at_ms LIMIT $2::bigint)
             UNION ALL
             (SELECT t.execution_id, t.partition_key, b.failures IS NOT NULL
              FROM ${database.prefix}ff_outcome t ${setbackJoin(database, 'retention', 't')}
              WHERE (t.retain_ms IS NOT NULL OR t.look_again_at_ms IS NOT NULL)
                AND coalesce(t.look_again_at_ms, t.ended_at_ms + t.retain_ms) <= (SELECT now_ms FROM clock)
                AND (b.retry_at_ms IS NULL OR b.retry_at_ms <= (SELECT now_ms FROM clock))
              ORDER BY coalesce(t.look_again_at_ms, t.ended_at_ms + t.retain_ms) LIMIT $2::bigint))
           SELECT DISTINCT ${DUE.list} FROM old LIMIT $2::bigint`,
    params: [retentionMs, limit],
    repeatable: 'yes',
  });
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
