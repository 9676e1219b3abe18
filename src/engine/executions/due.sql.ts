/**
 * Work that is due because time passed: lapsed leases and timers, listed without locks, and the functions that act on
 * them.
 */
import { run, type Database } from '../database/database.ts';
import { readUncompiled } from '../database/uncompiled.ts';
import { columns, columnsOf, withColumns, type RowOf } from '../database/columns.ts';
import type { Answered } from './answered.sql.ts';
import type { ExecutionKey, LeaseKey } from './executions.sql.ts';

/** A row a reconciler should act on. */
export interface DueRow extends ExecutionKey {
  /** Acting on it failed before; the record of that is cleared once it succeeds. */
  hadSetback: boolean;
}

/** Of the setback b, if there is one. */
const SETBACK = columns<Pick<DueRow, 'hadSetback'>>({ hadSetback: 'b.failures IS NOT NULL' });

const LAPSED = withColumns(columnsOf<LeaseKey>('e')('uuid', 'partition', 'leaseEpoch'), SETBACK);
export type LapsedLease = RowOf<typeof LAPSED>;

/**
 * Leases past their expiry, of the claims whose time has come. In any order: those that somebody holds for long must not
 * come before all others each time.
 */
export function listLapsedLeases(database: Database, limit: number): Promise<LapsedLease[]> {
  return readUncompiled(database, {
    doing: 'finding lapsed leases',
    columns: LAPSED,
    text: `SELECT ${LAPSED.list}
           FROM ${database.prefix}ff_grant g CROSS JOIN LATERAL unnest(g.execution_ids) x(id)
           CROSS JOIN LATERAL (
             SELECT execution_id, partition_key, lease_epoch FROM ${database.prefix}ff_execution
             WHERE execution_id = x.id AND claim_no = g.claim_no
               AND lease_expires_at_ms <= (SELECT ${database.prefix}ff_now_ms()) OFFSET 0) e
           ${setbackJoin(database, 'expired-leases', 'e')}
           WHERE g.look_at_ms <= (SELECT ${database.prefix}ff_now_ms())
             AND (b.retry_at_ms IS NULL OR b.retry_at_ms <= (SELECT ${database.prefix}ff_now_ms()))
           ORDER BY random() LIMIT $1::bigint`,
    params: [limit],
    repeatable: 'yes',
  });
}

export function setbackJoin(
  database: Database,
  reconciler: 'expired-leases' | 'due-timers' | 'retention',
  alias: string,
): string {
  return `LEFT JOIN ${database.prefix}ff_setback b ON b.reconciler = '${reconciler}'
    AND b.execution_id = ${alias}.execution_id AND b.partition_key = ${alias}.partition_key`;
}

const MOVED = columnsOf<Answered>()('uuid', 'outcome', 'routeId');

export function lapseLeases(
  database: Database,
  leases: readonly LapsedLease[],
): Promise<RowOf<typeof MOVED>[]> {
  return run(database, {
    doing: 'ending lapsed leases',
    columns: MOVED,
    text: `SELECT ${MOVED.list} FROM ${database.prefix}ff_lapse_leases($1::uuid[], $2::smallint[], $3::bigint[])`,
    params: [
      leases.map((lease) => lease.uuid),
      leases.map((lease) => lease.partition),
      leases.map((lease) => lease.leaseEpoch),
    ],
    repeatable: 'yes',
  });
}

/** Where a sweep of claims stopped: the time at which it was to be looked into, and its number. */
export interface ClaimKey {
  lookAtMs: number;
  claimNo: number;
}

const SWEPT_CLAIMS = withColumns(
  columnsOf<{ [Part in keyof ClaimKey]: ClaimKey[Part] | null }>()('lookAtMs', 'claimNo'),
  columnsOf<{ done: number }>()('done'),
);

/**
 * Looks into claims whose time has come, after this one. Returns how many are no longer due, and where it stopped: null
 * at the end.
 */
export async function sweepGrants(
  database: Database,
  after: ClaimKey,
  limit: number,
): Promise<{ next: ClaimKey | null; done: number }> {
  const rows = await run(database, {
    doing: 'sweeping claims',
    columns: SWEPT_CLAIMS,
    text: `SELECT ${SWEPT_CLAIMS.list} FROM ${database.prefix}ff_sweep_grants($1, $2, $3)`,
    params: [after.lookAtMs, after.claimNo, limit],
    repeatable: 'yes',
  });
  const { lookAtMs, claimNo, done } = rows[0]!;
  return { next: lookAtMs === null || claimNo === null ? null : { lookAtMs, claimNo }, done };
}

const TIMER = withColumns(
  withColumns(
    columnsOf<ExecutionKey & { timerId: number }>('t')('uuid', 'partition', 'timerId'),
    /** What is due are children, and not the execution itself. */
    columns<{ isFamily: boolean }>({ isFamily: "t.kind = 'family'" }),
  ),
  SETBACK,
);
export type DueTimer = RowOf<typeof TIMER>;

export function listDueTimers(database: Database, limit: number): Promise<DueTimer[]> {
  return run(database, {
    doing: 'finding due timers',
    columns: TIMER,
    text: `SELECT ${TIMER.list}
           FROM ${database.prefix}ff_timer t ${setbackJoin(database, 'due-timers', 't')}
           WHERE t.due_at_ms <= (SELECT ${database.prefix}ff_now_ms())
             AND (b.retry_at_ms IS NULL OR b.retry_at_ms <= (SELECT ${database.prefix}ff_now_ms()))
           ORDER BY t.due_at_ms LIMIT $1`,
    params: [limit],
    repeatable: 'yes',
  });
}

const FIRED = columnsOf<Answered>()('uuid', 'outcome', 'routeId', 'workerInstanceId', 'dueInMs');

export function fireTimers(database: Database, timerIds: readonly number[]): Promise<RowOf<typeof FIRED>[]> {
  return run(database, {
    doing: 'firing timers',
    columns: FIRED,
    text: `SELECT ${FIRED.list} FROM ${database.prefix}ff_fire_timers($1::bigint[])`,
    params: [timerIds],
    repeatable: 'yes',
  });
}
