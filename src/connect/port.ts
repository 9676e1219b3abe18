/**
 * The worker protocol of a connection. It is kept beside the connection, not in it, so that applications are not
 * offered it.
 */
import { EngineError } from '../contract/errors.ts';
import type { OwnPort, WorkerPort } from '../contract/protocol.ts';
import type { Connection } from './connection.ts';

/** Runs something that outlives the call that starts it: in no span of OpenTelemetry. */
type OutsideSpans = <Value>(work: () => Value) => Value;

interface Kept {
  port: WorkerPort;
  /** The same for the worker of this library. */
  ownPort: OwnPort;
  outsideSpans: OutsideSpans;
}

const kept = new WeakMap<object, Kept>();

export function keepPort(connection: Connection, keeping: Kept): void {
  kept.set(connection, keeping);
}

/** Returns the worker protocol of a connection: for your own workers, and for tests that act as one. */
export function workerPort(connection: Connection): WorkerPort {
  return keptFor(connection).port;
}

export function keptFor(connection: Connection): Kept {
  const isObject = typeof connection === 'object' && connection !== null;
  const found = isObject ? kept.get(connection) : undefined;
  if (found !== undefined) return found;
  throw new EngineError('invalid_input', 'connection must come from connect().', { field: 'connection' });
}
