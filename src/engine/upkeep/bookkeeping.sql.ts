/**
 * The bookkeeping of the reconcilers: tickets, setbacks, and the vacuum of the queue tables.
 */
import { run, type Database } from '../database/database.ts';
import type { ExecutionKey } from '../executions/executions.sql.ts';

/**
 * Takes or keeps the named tickets that no other process holds; returns the ones held from now on. A ticket that is
 * held for longer than possible was taken before the clock went back.
 */
export async function takeTickets(
  database: Database,
  names: readonly string[],
  holder: string,
  holdMs: number,
): Promise<string[]> {
  const rows = await run<{ name: string }>(database, {
    doing: 'taking reconciler tickets',
    text: `INSERT INTO ${database.prefix}ff_reconciler AS r (name, holder, held_until_ms)
           SELECT n, $2, n0.now_ms + $3 FROM unnest($1::text[]) n, (SELECT ${database.prefix}ff_now_ms() AS now_ms) n0
           ORDER BY n
           ON CONFLICT (name) DO UPDATE SET holder = EXCLUDED.holder, held_until_ms = EXCLUDED.held_until_ms
             WHERE r.holder = EXCLUDED.holder OR r.held_until_ms <= EXCLUDED.held_until_ms - $3
               OR r.held_until_ms > EXCLUDED.held_until_ms + $3
           RETURNING name`,
    params: [names, holder, holdMs],
    repeatable: 'yes',
  });
  return rows.map((row) => row.name);
}

/** Returns tickets, so that another process need not wait for them to lapse. */
export async function returnTickets(database: Database, holder: string): Promise<void> {
  await run(database, {
    doing: 'returning reconciler tickets',
    text: `UPDATE ${database.prefix}ff_reconciler SET holder = NULL, held_until_ms = 0 WHERE holder = $1`,
    params: [holder],
    repeatable: 'yes',
  });
}

const SETBACK_FIRST_MS = 1_000;
const SETBACK_MAX_MS = 3_600_000;

/** Counts a row a reconciler could not act on, and backs it off, twice as long each time. */
export async function recordSetback(
  database: Database,
  reconciler: string,
  key: ExecutionKey,
  errorCode: string,
): Promise<void> {
  await run(database, {
    doing: 'recording a setback',
    text: `INSERT INTO ${database.prefix}ff_setback AS b (reconciler, execution_id, partition_key, failures, retry_at_ms, error_code)
           VALUES ($1, $2, $3, 1, ${database.prefix}ff_now_ms() + $5::bigint, $4)
           ON CONFLICT (execution_id, partition_key, reconciler) DO UPDATE SET
             failures = b.failures + 1, error_code = EXCLUDED.error_code,
             retry_at_ms = ${database.prefix}ff_now_ms() + least($6::bigint, $5::bigint * (2 ^ least(b.failures, 30))::bigint)`,
    params: [reconciler, key.uuid, key.partition, errorCode, SETBACK_FIRST_MS, SETBACK_MAX_MS],
    repeatable: 'no',
  });
}

/** Forgets setbacks of rows that were finally acted on. */
export async function clearSetbacks(
  database: Database,
  reconciler: string,
  keys: readonly ExecutionKey[],
): Promise<void> {
  await run(database, {
    doing: 'clearing setbacks',
    text: `DELETE FROM ${database.prefix}ff_setback WHERE reconciler = $1 AND execution_id = ANY ($2::uuid[])`,
    params: [reconciler, keys.map((key) => key.uuid)],
    repeatable: 'yes',
  });
}

/** A row that still failed would have been tried and recorded again by then. */
const SETBACK_FORGOTTEN_MS = 3_600_000;

/** Forgets setbacks of rows that finished or changed in another way. */
export async function forgetOldSetbacks(database: Database): Promise<void> {
  await run(database, {
    doing: 'forgetting old setbacks',
    text: `DELETE FROM ${database.prefix}ff_setback WHERE retry_at_ms < ${database.prefix}ff_now_ms() - $1::bigint`,
    params: [SETBACK_FORGOTTEN_MS],
    repeatable: 'yes',
  });
}

/** Without truncating the files: the planner prefers sequential scans on a tiny table. */
export async function vacuumQueues(database: Database): Promise<void> {
  for (const table of ['ff_ready', 'ff_grant', 'ff_timer']) {
    await run(database, {
      doing: 'vacuuming the queue',
      text: `VACUUM (TRUNCATE OFF, INDEX_CLEANUP ON, SKIP_LOCKED) ${database.prefix}${table}`,
      params: [],
      repeatable: 'yes',
    });
  }
}
