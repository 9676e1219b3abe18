/**
 * Work that is due because time passed: lapsed leases and timers, listed without locks, and the functions that act on them.
 */
import { run, type Database } from '../database/database.ts';
import { readUncompiled } from '../database/uncompiled.ts';
import type { ExecutionKey } from './executions.sql.ts';

/** A row a reconciler should act on. */
export interface DueRow extends ExecutionKey {
  /** It resisted before; when it is acted on at last, that is forgotten. */
  hadSetback: boolean;
}

export interface LapsedLease extends DueRow {
  leaseEpoch: number;
}

interface LapsedRow {
  execution_id: string;
  partition_key: number;
  lease_epoch: number;
  had_setback: boolean;
}

/** Leases past their expiry, in id order. The table is as small as the number of running executions: read whole. */
export async function listLapsedLeases(database: Database, limit: number): Promise<LapsedLease[]> {
  const rows = await readUncompiled<LapsedRow>(database, {
    doing: 'looking for lapsed leases',
    text: `SELECT l.execution_id, l.partition_key, l.lease_epoch, b.failures IS NOT NULL AS had_setback
           FROM ${database.prefix}ff_lease l ${setbackJoin(database, 'expired-leases', 'l')}
           WHERE l.expires_at_ms <= (SELECT ${database.prefix}ff_now_ms())
             AND (b.retry_at_ms IS NULL OR b.retry_at_ms <= (SELECT ${database.prefix}ff_now_ms()))
           ORDER BY l.execution_id LIMIT $1::bigint`,
    params: [limit],
    repeatable: 'yes',
  });
  return rows.map((row) => ({
    uuid: row.execution_id,
    partition: row.partition_key,
    leaseEpoch: row.lease_epoch,
    hadSetback: row.had_setback,
  }));
}

export function setbackJoin(
  database: Database,
  reconciler: 'expired-leases' | 'due-timers' | 'retention',
  alias: string,
): string {
  return `LEFT JOIN ${database.prefix}ff_setback b ON b.reconciler = '${reconciler}'
    AND b.execution_id = ${alias}.execution_id AND b.partition_key = ${alias}.partition_key`;
}

export interface MovedAnswer {
  execution_id: string;
  outcome: string;
  route_id: number | null;
}

export function lapseLeases(database: Database, leases: readonly LapsedLease[]): Promise<MovedAnswer[]> {
  return run<MovedAnswer>(database, {
    doing: 'ending lapsed leases',
    text: `SELECT * FROM ${database.prefix}ff_lapse_leases($1::uuid[], $2::smallint[], $3::bigint[])`,
    params: [
      leases.map((lease) => lease.uuid),
      leases.map((lease) => lease.partition),
      leases.map((lease) => lease.leaseEpoch),
    ],
    repeatable: 'yes',
  });
}

export interface DueTimer extends DueRow {
  timerId: number;
}

interface TimerRow {
  timer_id: number;
  execution_id: string;
  partition_key: number;
  had_setback: boolean;
}

export async function listDueTimers(database: Database, limit: number): Promise<DueTimer[]> {
  const rows = await run<TimerRow>(database, {
    doing: 'looking for due timers',
    text: `SELECT t.timer_id, t.execution_id, t.partition_key, b.failures IS NOT NULL AS had_setback
           FROM ${database.prefix}ff_timer t ${setbackJoin(database, 'due-timers', 't')}
           WHERE t.due_at_ms <= (SELECT ${database.prefix}ff_now_ms())
             AND (b.retry_at_ms IS NULL OR b.retry_at_ms <= (SELECT ${database.prefix}ff_now_ms()))
           ORDER BY t.due_at_ms LIMIT $1`,
    params: [limit],
    repeatable: 'yes',
  });
  return rows.map((row) => ({
    timerId: row.timer_id,
    uuid: row.execution_id,
    partition: row.partition_key,
    hadSetback: row.had_setback,
  }));
}

export interface FiredAnswer extends MovedAnswer {
  worker_instance_id: string | null;
  due_in_ms: number | null;
}

export function fireTimers(database: Database, timerIds: readonly number[]): Promise<FiredAnswer[]> {
  return run<FiredAnswer>(database, {
    doing: 'firing timers',
    text: `SELECT * FROM ${database.prefix}ff_fire_timers($1::bigint[])`,
    params: [timerIds],
    repeatable: 'yes',
  });
}
