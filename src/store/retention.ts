/**
 * Finds and forgets what has been kept long enough. All of it goes in batches, oldest first, and never waits for a row
 * somebody works on.
 */
import { run, type Database } from './database.ts';
import { setbackJoin, type DueRow } from './reconciling.ts';

/** Executions that ended longer ago than they are to be kept, oldest first. */
export async function listForgettable(
  database: Database,
  retentionMs: number,
  limit: number,
): Promise<DueRow[]> {
  const rows = await run<{ execution_id: string; partition_key: number; had_setback: boolean }>(database, {
    doing: 'looking for what has been kept long enough',
    text: `WITH clock AS MATERIALIZED (SELECT ${database.prefix}ff_now_ms() AS now_ms),
           old AS MATERIALIZED (
             (SELECT t.execution_id, t.partition_key, b.failures IS NOT NULL AS had_setback
              FROM ${database.prefix}ff_outcome t ${setbackJoin(database, 'retention', 't')}
              WHERE t.retain_ms IS NULL AND t.ended_at_ms <= (SELECT now_ms FROM clock) - $1::bigint
                AND (b.retry_at_ms IS NULL OR b.retry_at_ms <= (SELECT now_ms FROM clock))
              ORDER BY t.ended_at_ms LIMIT $2)
             UNION ALL
             (SELECT t.execution_id, t.partition_key, b.failures IS NOT NULL
              FROM ${database.prefix}ff_outcome t ${setbackJoin(database, 'retention', 't')}
              WHERE t.retain_ms IS NOT NULL AND t.ended_at_ms + t.retain_ms <= (SELECT now_ms FROM clock)
                AND (b.retry_at_ms IS NULL OR b.retry_at_ms <= (SELECT now_ms FROM clock))
              ORDER BY t.ended_at_ms + t.retain_ms LIMIT $2))
           SELECT DISTINCT execution_id, partition_key, had_setback FROM old LIMIT $2`,
    params: [retentionMs, limit],
    repeatable: 'yes',
  });
  return rows.map((row) => ({
    uuid: row.execution_id,
    partition: row.partition_key,
    hadSetback: row.had_setback,
  }));
}

/** Answers the uuids that were looked at: forgotten, or put off because something still needs them. */
export async function forgetExecutions(
  database: Database,
  items: readonly DueRow[],
  retentionMs: number,
  againMs: number,
): Promise<string[]> {
  const rows = await run<{ execution_id: string }>(database, {
    doing: 'forgetting executions',
    text: `SELECT execution_id FROM ${database.prefix}ff_forget($1::uuid[], $2::smallint[], $3, $4)`,
    params: [items.map((item) => item.uuid), items.map((item) => item.partition), retentionMs, againMs],
    repeatable: 'yes',
  });
  return rows.map((row) => row.execution_id);
}

/** Removes one batch of events that are older than this; answers how many. */
export async function forgetEvents(database: Database, olderThanMs: number, limit: number): Promise<number> {
  const rows = await run<{ n: number }>(database, {
    doing: 'forgetting events',
    text: `WITH old AS MATERIALIZED (
             SELECT ev_id FROM (
               SELECT ev_id, occurred_at_ms FROM ${database.prefix}ff_event ORDER BY ev_id LIMIT $2) e
             WHERE occurred_at_ms <= (SELECT ${database.prefix}ff_now_ms()) - $1::bigint),
           gone AS (
             DELETE FROM ${database.prefix}ff_event WHERE ev_id = ANY (ARRAY(SELECT ev_id FROM old)) RETURNING 1)
           SELECT count(*)::integer AS n FROM gone`,
    params: [olderThanMs, limit],
    repeatable: 'yes',
  });
  return rows[0]!.n;
}

/**
 * Looks at one batch of idempotency keys whose time is over and removes them; answers how many. One whose execution has
 * not ended is kept for a while more, so that it does not stand before those that can go.
 */
export async function forgetKeys(database: Database, limit: number, againMs: number): Promise<number> {
  const rows = await run<{ n: number }>(database, {
    doing: 'forgetting idempotency keys',
    text: `WITH due AS MATERIALIZED (
             SELECT namespace, key, partition_key, execution_id FROM ${database.prefix}ff_idempotency
             WHERE expires_at_ms <= (SELECT ${database.prefix}ff_now_ms())
             ORDER BY expires_at_ms LIMIT $1 FOR UPDATE SKIP LOCKED),
           old AS MATERIALIZED (
             SELECT d.*, coalesce(e.lifecycle_phase, 'terminal') = 'terminal' AS is_over FROM due d
             LEFT JOIN LATERAL (
               SELECT lifecycle_phase FROM ${database.prefix}ff_execution
               WHERE execution_id = d.execution_id OFFSET 0) e ON true),
           gone AS (
             DELETE FROM ${database.prefix}ff_idempotency k USING old
             WHERE old.is_over AND k.namespace = old.namespace AND k.key = old.key
               AND k.partition_key = old.partition_key RETURNING 1),
           kept AS (
             UPDATE ${database.prefix}ff_idempotency k SET expires_at_ms = ${database.prefix}ff_now_ms() + $2::bigint FROM old
             WHERE NOT old.is_over AND k.namespace = old.namespace AND k.key = old.key
               AND k.partition_key = old.partition_key)
           SELECT count(*)::integer AS n FROM gone`,
    params: [limit, againMs],
    repeatable: 'yes',
  });
  return rows[0]!.n;
}
