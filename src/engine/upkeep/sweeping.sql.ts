/**
 * Removes stale pointers from the queue and the timers. Each call examines some, in the order of an index, and returns
 * the key to resume after.
 */
import { columns, columnsOf, withColumns } from '../database/columns.ts';
import { run, type Database } from '../database/database.ts';

export interface QueueKey {
  routeId: number;
  rank: number;
  seq: number;
}

export interface Swept<Key> {
  /** Null when the end was reached. */
  next: Key | null;
  removed: number;
}

const SWEPT = columnsOf<{ removed: number }>()('removed');
const QUEUE = withColumns(
  columnsOf<{ [Part in keyof QueueKey]: QueueKey[Part] | null }>()('routeId', 'rank', 'seq'),
  SWEPT,
);

export async function sweepQueue(
  database: Database,
  after: QueueKey,
  limit: number,
): Promise<Swept<QueueKey>> {
  const rows = await run(database, {
    doing: 'sweeping the queue',
    columns: QUEUE,
    text: `SELECT ${QUEUE.list} FROM ${database.prefix}ff_sweep_queue($1, $2, $3, $4)`,
    params: [after.routeId, after.rank, after.seq, limit],
    repeatable: 'yes',
  });
  const { routeId, rank, seq, removed } = rows[0]!;
  return { next: routeId === null ? null : { routeId, rank: rank ?? 0, seq: seq ?? 0 }, removed };
}

const TIMERS = withColumns(columns<{ next: number | null }>({ next: 'timer_id' }), SWEPT);

export async function sweepTimers(database: Database, after: number, limit: number): Promise<Swept<number>> {
  const rows = await run(database, {
    doing: 'sweeping the timers',
    columns: TIMERS,
    text: `SELECT ${TIMERS.list} FROM ${database.prefix}ff_sweep_timers($1, $2)`,
    params: [after, limit],
    repeatable: 'yes',
  });
  return rows[0]!;
}
