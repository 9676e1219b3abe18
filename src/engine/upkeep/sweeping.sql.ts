/**
 * Walks the queue and the timers for pointers whose execution has moved on. Each call looks at some, in the order of an
 * index, and answers where the next is to begin.
 */
import { run, type Database } from '../database/database.ts';

export interface QueuePlace {
  routeId: number;
  rank: number;
  seq: number;
}

export interface Swept<Place> {
  /** Null when the end was reached. */
  next: Place | null;
  removed: number;
}

export async function sweepQueue(
  database: Database,
  { routeId, rank, seq }: QueuePlace,
  limit: number,
): Promise<Swept<QueuePlace>> {
  const rows = await run<{
    route_id: number | null;
    rank: number | null;
    seq: number | null;
    removed: number;
  }>(database, {
    doing: 'sweeping the queue',
    text: `SELECT * FROM ${database.prefix}ff_sweep_queue($1, $2, $3, $4)`,
    params: [routeId, rank, seq, limit],
    repeatable: 'yes',
  });
  const row = rows[0]!;
  const next =
    row.route_id === null ? null : { routeId: row.route_id, rank: row.rank ?? 0, seq: row.seq ?? 0 };
  return { next, removed: row.removed };
}

export async function sweepTimers(database: Database, after: number, limit: number): Promise<Swept<number>> {
  const rows = await run<{ timer_id: number | null; removed: number }>(database, {
    doing: 'sweeping the timers',
    text: `SELECT * FROM ${database.prefix}ff_sweep_timers($1, $2)`,
    params: [after, limit],
    repeatable: 'yes',
  });
  return { next: rows[0]!.timer_id, removed: rows[0]!.removed };
}
