/**
 * Starts workers on a connection. A worker knows only the worker protocol; this passes it the connection's, and keeps
 * what it does for the rest of its life out of the span that is active now.
 */
import type { Worker, WorkerOptions } from '../worker/options.ts';
import { runWorker } from '../worker/worker.ts';
import type { Connection } from './connection.ts';
import { keptFor } from './port.ts';

/**
 * Starts a worker, which claims at once. Stop it before closing the connection, so that it can release unfinished work.
 */
export function startWorker(connection: Connection, options: WorkerOptions): Worker {
  const { ownPort, outsideSpans } = keptFor(connection);
  return outsideSpans(() => runWorker(ownPort, options));
}
