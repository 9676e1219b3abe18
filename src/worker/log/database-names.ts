/**
 * Which database is behind a port, for the start line of a worker. Kept beside the port: it is no call, and a port of
 * another transport need not know it.
 */
import type { DatabaseName } from '../../contract/database-name.ts';
import type { WorkerPort } from '../../contract/protocol.ts';

const names = new WeakMap<WorkerPort, DatabaseName>();

export function nameDatabase(port: WorkerPort, name: DatabaseName | undefined): void {
  if (name !== undefined) names.set(port, name);
}

export function databaseOf(port: WorkerPort): DatabaseName | undefined {
  return names.get(port);
}
