/**
 * The registry of workers: one row each, written by the worker itself at intervals. It informs operators; no operation
 * on executions reads it. Times are the database's.
 */
import type { WorkerSnapshot } from '../../contract/operations.ts';
import type { WorkerRegistration } from '../../contract/protocol.ts';
import { columns, inSchema } from '../database/columns.ts';
import { run, type Database } from '../database/database.ts';

export type WorkerEntry = Omit<WorkerSnapshot, 'startedAtMs' | 'heartbeatAtMs' | 'silentForMs'> &
  Pick<WorkerRegistration, 'uptimeMs'>;

/** What never changes for a worker is written once; a row that was removed meanwhile is written again. */
export async function registerWorker(database: Database, entry: WorkerEntry): Promise<void> {
  await run(database, {
    doing: 'registering a worker',
    text: `SELECT ${database.prefix}ff_register_worker($1, $2, $3, $4::text[], $5::text[], $6::text[], $7, $8, $9, $10)`,
    params: [
      entry.workerInstanceId,
      entry.workerId,
      entry.version,
      entry.kinds,
      entry.lanes,
      entry.capabilities,
      entry.concurrency,
      entry.running,
      entry.stopping,
      entry.uptimeMs,
    ],
    repeatable: 'yes',
  });
}

const WORKER = columns<WorkerSnapshot>({
  workerInstanceId: 'worker_instance_id',
  workerId: 'worker_id',
  version: 'version',
  kinds: 'kinds',
  lanes: 'lanes',
  capabilities: 'capabilities',
  concurrency: 'concurrency',
  running: 'running',
  startedAtMs: 'started_at_ms',
  heartbeatAtMs: 'heartbeat_at_ms',
  silentForMs: 'greatest(s.ff_now_ms() - heartbeat_at_ms, 0)',
  stopping: 'stopping',
});

export function listWorkers(database: Database, limit: number): Promise<WorkerSnapshot[]> {
  return run(database, {
    doing: 'listing workers',
    columns: WORKER,
    text: inSchema(
      database,
      `SELECT ${WORKER.list} FROM s.ff_worker ORDER BY started_at_ms DESC, worker_instance_id LIMIT $1`,
    ),
    params: [limit],
    repeatable: 'yes',
  });
}

export async function forgetWorker(database: Database, workerInstanceId: string): Promise<void> {
  await run(database, {
    doing: 'removing a worker from the registry',
    text: `SELECT ${database.prefix}ff_forget_worker($1)`,
    params: [workerInstanceId],
    repeatable: 'yes',
  });
}

/** Skips a row that is being refreshed right now. */
export async function forgetWorkersSilentFor(database: Database, silentMs: number): Promise<void> {
  await run(database, {
    doing: 'removing silent workers from the registry',
    text: `SELECT ${database.prefix}ff_forget_silent_workers($1)`,
    params: [silentMs],
    repeatable: 'yes',
  });
}
