/**
 * Starts workers on a connection. A worker knows only the worker protocol; this passes it the connection's.
 */
import type { WorkerOptions } from '../worker/options.ts';
import { runWorker, type Worker } from '../worker/worker.ts';
import type { Connection } from './connection.ts';
import { workerPort } from './port.ts';

/**
 * Starts a worker, which claims at once. Stop it before closing the connection, so that it can release unfinished work.
 */
export function startWorker(connection: Connection, options: WorkerOptions): Worker {
  return runWorker(workerPort(connection), options);
}
