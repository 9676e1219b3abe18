/**
 * Consumers of the event feed: their names, positions and current holders. A position is moved only from where the
 * reader found it, in the reader's own transaction. That makes two readers of one name safe; holding the name only
 * spares them work that would be rolled back.
 */
import type { SqlExecutor } from '../../contract/transactions.ts';
import type { ConsumerSnapshot } from '../../contract/feed.ts';
import { columns } from '../database/columns.ts';
import { nextEventMs } from '../kit/consumer-lag.sql.ts';
import { run, type Database } from '../database/database.ts';
import { runInside } from '../database/inside.ts';
import { readUncompiled } from '../database/uncompiled.ts';

/** Positions are passed as strings. */
type Positions = 'position' | 'lag';
export type StoredConsumer = Omit<ConsumerSnapshot, Positions | 'cursor'> & Record<Positions, string>;

/** Inserts a consumer unless it exists or there are `max` others. Returns whether it exists now. */
export async function enterConsumer(
  database: Database,
  name: string,
  position: bigint,
  max: number,
): Promise<boolean> {
  const rows = await run(database, {
    doing: 'entering a consumer',
    // If another process inserted it meanwhile, the update returns its row and changes nothing.
    text: `INSERT INTO ${database.prefix}ff_consumer (name, position, moved_at_ms, held_until_ms)
           SELECT $1, $2::bigint, ${database.prefix}ff_now_ms(), 0
           WHERE (SELECT count(*) FROM ${database.prefix}ff_consumer WHERE name <> $1) < $3::integer
           ON CONFLICT (name) DO UPDATE SET name = EXCLUDED.name RETURNING 1`,
    params: [name, String(position), max],
    repeatable: 'yes',
  });
  return rows.length > 0;
}

/** Returns a consumer's position; undefined when it does not exist. */
export async function readConsumer(database: Database, name: string): Promise<bigint | undefined> {
  const rows = await run<{ position: string }>(database, {
    doing: 'reading the position of a consumer',
    text: `SELECT position::text FROM ${database.prefix}ff_consumer WHERE name = $1`,
    params: [name],
    repeatable: 'yes',
  });
  return rows[0] === undefined ? undefined : BigInt(rows[0].position);
}

/**
 * Acquires or renews the hold on a consumer and returns its position. Undefined: another holds it, or it does not
 * exist.
 */
export async function holdConsumer(
  database: Database,
  name: string,
  holder: string,
  holdMs: number,
): Promise<bigint | undefined> {
  const rows = await run<{ position: string }>(database, {
    doing: 'holding a consumer',
    text: `UPDATE ${database.prefix}ff_consumer SET holder = $2, held_until_ms = ${database.prefix}ff_now_ms() + $3::bigint
           -- A hold further ahead is from a clock that was set back since, and must not last.
           WHERE name = $1 AND (holder IS NULL OR holder = $2 OR held_until_ms <= ${database.prefix}ff_now_ms()
             OR held_until_ms > ${database.prefix}ff_now_ms() + $3::bigint)
           RETURNING position::text`,
    params: [name, holder, holdMs],
    repeatable: 'yes',
  });
  return rows[0] === undefined ? undefined : BigInt(rows[0].position);
}

export async function releaseConsumer(database: Database, name: string, holder: string): Promise<void> {
  await run(database, {
    doing: 'releasing a consumer',
    text: `UPDATE ${database.prefix}ff_consumer SET holder = NULL, held_until_ms = 0 WHERE name = $1 AND holder = $2`,
    params: [name, holder],
    repeatable: 'yes',
  });
}

function moveStatement(
  database: Database,
  name: string,
  from: bigint,
  to: bigint,
  transaction: string | null,
) {
  return {
    doing: 'moving a consumer',
    text: `SELECT ${database.prefix}ff_move_consumer($1, $2::bigint, $3::bigint, $4) AS moved`,
    params: [name, String(from), String(to), transaction],
    repeatable: 'no' as const,
  };
}

/**
 * Moves the position in the handler's transaction, as its last statement. Returns false when another instance moved it:
 * then roll back.
 */
export async function moveConsumerInside(
  executor: SqlExecutor,
  database: Database,
  name: string,
  { from, to, transaction }: { from: bigint; to: bigint; transaction: string },
): Promise<boolean> {
  const rows = await runInside<{ moved: boolean }>(
    executor,
    moveStatement(database, name, from, to, transaction),
  );
  return rows[0]!.moved;
}

/** Moves the position past events that do not match. */
export async function moveConsumer(
  database: Database,
  name: string,
  from: bigint,
  to: bigint,
): Promise<boolean> {
  const rows = await run<{ moved: boolean }>(database, moveStatement(database, name, from, to, null));
  return rows[0]!.moved;
}

/** Moves a consumer from any position; a batch in progress then fails to move it. Returns whether it exists. */
export async function resetConsumer(database: Database, name: string, to: bigint): Promise<boolean> {
  const rows = await run(database, {
    doing: 'moving a consumer',
    text: `UPDATE ${database.prefix}ff_consumer
           SET position = $2::bigint, moved_at_ms = ${database.prefix}ff_now_ms(), failures = 0, error_code = NULL
           WHERE name = $1 RETURNING 1`,
    params: [name, String(to)],
    repeatable: 'yes',
  });
  return rows.length > 0;
}

/** Counts a failure of the handler, for operators. Ignored when the consumer was moved away from `at` meanwhile. */
export async function recordConsumerFailure(
  database: Database,
  name: string,
  errorCode: string,
  at: bigint | null,
): Promise<void> {
  await run(database, {
    doing: 'counting a failure of a consumer',
    text: `UPDATE ${database.prefix}ff_consumer SET failures = failures + 1, error_code = $2
           WHERE name = $1 AND position = coalesce($3::bigint, position)`,
    params: [name, errorCode, at === null ? null : String(at)],
    repeatable: 'yes',
  });
}

/** Lists consumers by name. `last` is the last assigned position. */
export function listConsumers(database: Database, last: bigint, limit: number): Promise<StoredConsumer[]> {
  const consumer = columns<StoredConsumer>({
    name: 'c.name',
    position: 'c.position::text',
    lag: 'greatest($1::bigint - greatest(c.position, q.floor_position - 1) - jumped.n, 0)::text',
    lagMs: `CASE WHEN c.position < $1::bigint
      THEN greatest(n.now_ms - coalesce(${nextEventMs(database)}, n.now_ms), 0) ELSE 0 END`,
    holder: 'CASE WHEN c.held_until_ms > n.now_ms THEN c.holder END',
    movedAtMs: 'c.moved_at_ms',
    failures: 'c.failures',
    errorCode: 'c.error_code',
  });
  return readUncompiled(database, {
    doing: 'listing consumers',
    columns: consumer,
    text: `SELECT ${consumer.list}
           FROM (SELECT ${database.prefix}ff_now_ms() AS now_ms) n
           CROSS JOIN ${database.prefix}ff_sequencer q
           CROSS JOIN (SELECT * FROM ${database.prefix}ff_consumer ORDER BY name LIMIT $2::bigint) c
           CROSS JOIN LATERAL (
             -- Positions that were never assigned.
             SELECT coalesce(sum(j.seq_from - greatest(b.last, c.position)), 0) AS n
             FROM ${database.prefix}ff_event_run j
             CROSS JOIN LATERAL (
               SELECT coalesce(max(p.seq_from + p.n - 1), 0) AS last FROM (
                 SELECT x.seq_from, x.n FROM ${database.prefix}ff_event_run x WHERE x.seq_from < j.seq_from
                 ORDER BY x.seq_from DESC LIMIT 1) p) b
             WHERE j.ev_from IS NULL AND j.seq_from > c.position AND j.seq_from > 0) jumped
           ORDER BY c.name`,
    params: [String(last), limit],
    repeatable: 'yes',
  });
}

/** Returns whether it existed. */
export async function forgetConsumer(database: Database, name: string): Promise<boolean> {
  const rows = await run(database, {
    doing: 'forgetting a consumer',
    text: `DELETE FROM ${database.prefix}ff_consumer WHERE name = $1 RETURNING 1`,
    params: [name],
    repeatable: 'yes',
  });
  return rows.length > 0;
}
