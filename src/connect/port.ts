/**
 * The worker protocol of a connection. It is kept beside the connection, not in it, so that applications are not
 * offered it.
 */
import { EngineError } from '../contract/errors.ts';
import type { WorkerPort } from '../contract/protocol.ts';
import type { Connection } from './connection.ts';

const ports = new WeakMap<object, WorkerPort>();

export function keepPort(connection: Connection, port: WorkerPort): void {
  ports.set(connection, port);
}

/** Returns the worker protocol of a connection: for your own workers, and for tests that act as one. */
export function workerPort(connection: Connection): WorkerPort {
  const isObject = typeof connection === 'object' && connection !== null;
  const port = isObject ? ports.get(connection) : undefined;
  if (port !== undefined) return port;
  throw new EngineError('invalid_input', 'connection must come from connect().', { field: 'connection' });
}
