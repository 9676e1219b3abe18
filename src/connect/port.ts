/**
 * The other face of a connection: what its workers say to the engine. It is kept beside the connection and not in it, so that applications
 * are not offered it.
 */
import { EngineError } from '../contract/errors.ts';
import type { WorkerPort } from '../contract/protocol.ts';
import type { Connection } from './connection.ts';

const ports = new WeakMap<object, WorkerPort>();

export function keepPort(connection: Connection, port: WorkerPort): void {
  ports.set(connection, port);
}

/** The worker protocol on a connection: for workers of your own, and for tests that play one. */
export function workerPort(connection: Connection): WorkerPort {
  const isObject = typeof connection === 'object' && connection !== null;
  const port = isObject ? ports.get(connection) : undefined;
  if (port !== undefined) return port;
  throw new EngineError('invalid_input', 'connection must come from connect().', { field: 'connection' });
}
