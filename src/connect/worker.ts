/**
 * Starts workers on a connection. A worker knows the protocol and not the connection; this is where the two meet.
 */
import type { WorkerOptions } from '../worker/options.ts';
import { runWorker, type Worker } from '../worker/worker.ts';
import type { Connection } from './connection.ts';
import { workerPort } from './port.ts';

/** Starts a worker that claims at once. Stop it before the connection is closed, so that it can hand back what it has not finished. */
export function startWorker(connection: Connection, options: WorkerOptions): Worker {
  return runWorker(workerPort(connection), options);
}
