/**
 * The registry of workers: one row each, written by the worker itself at intervals. For people who look; no operation on
 * executions reads it. Times are the database's.
 */
import { run, type Database } from '../database/database.ts';

export interface WorkerRow {
  worker_instance_id: string;
  worker_id: string;
  version: string | null;
  kinds: string[];
  lanes: string[] | null;
  capabilities: string[];
  concurrency: number;
  running: number;
  started_at_ms: number;
  heartbeat_at_ms: number;
  silent_for_ms: number;
  stopping: boolean;
}

export interface WorkerEntry {
  workerInstanceId: string;
  workerId: string;
  version: string | null;
  kinds: readonly string[];
  lanes: readonly string[] | null;
  capabilities: readonly string[];
  concurrency: number;
  running: number;
  uptimeMs: number;
  stopping: boolean;
}

/** What does not change while a worker lives is written once; a row that was removed meanwhile is written again. */
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

export function listWorkers(database: Database, limit: number): Promise<WorkerRow[]> {
  return run<WorkerRow>(database, {
    doing: 'listing workers',
    text: `SELECT worker_instance_id, worker_id, version, kinds, lanes, capabilities, concurrency, running,
             started_at_ms, heartbeat_at_ms, greatest(${database.prefix}ff_now_ms() - heartbeat_at_ms, 0) AS silent_for_ms,
             stopping
           FROM ${database.prefix}ff_worker ORDER BY started_at_ms DESC, worker_instance_id LIMIT $1`,
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

/** Leaves alone a row that is being refreshed right now. */
export async function forgetWorkersSilentFor(database: Database, silentMs: number): Promise<void> {
  await run(database, {
    doing: 'removing silent workers from the registry',
    text: `SELECT ${database.prefix}ff_forget_silent_workers($1)`,
    params: [silentMs],
    repeatable: 'yes',
  });
}
