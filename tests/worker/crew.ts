/**
 * What tests of running workers share: a database for the file, connections and workers that are closed after each
 * test, and ways to wait for a condition instead of for time to pass.
 */
import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, beforeAll } from 'vitest';
import { connect, type ConnectOptions } from '../../src/connect/connect.ts';
import type { Connection } from '../../src/connect/connection.ts';
import type { ExecutionResult } from '../../src/contract/executions.ts';
import type { ExecutionId } from '../../src/contract/ids.ts';
import { hintChannel } from '../../src/engine/database/names.ts';
import type { TestDatabase } from '../../src/testing/test-database.ts';
import { task } from '../../src/define/task.ts';
import type { TaskContext } from '../../src/define/task-context.ts';
import { handle, type TaskHandler } from '../../src/define/handlers.ts';
import type { Worker, WorkerOptions } from '../../src/worker/options.ts';
import { runWorker } from '../../src/worker/worker.ts';
import { testDatabase } from '../setup/database.ts';
import { workerPort } from '../../src/connect/port.ts';
import type { WorkerPort } from '../../src/contract/protocol.ts';
import { patiently } from '../setup/patience.ts';

/** How long a condition may take on a busy machine before the test fails. */
export const SOON = { timeout: patiently(15_000), interval: 15 };
/** So long that no test sees a second poll. */
export const NEVER_MS = 3_600_000;
/** Retries almost immediately. */
export const AGAIN = { retry: { maxRetries: 3, backoff: { type: 'fixed', delay: 20 } } } as const;

export interface Latch<Value = void> {
  readonly opened: Promise<Value>;
  open(value: Value): void;
}

export function latch<Value = void>(): Latch<Value> {
  let open!: (value: Value) => void;
  const opened = new Promise<Value>((resolve) => {
    open = resolve;
  });
  return { opened, open };
}

/** Handlers as plain functions of their context, by kind: what most of these tests need. */
// oxlint-disable-next-line no-explicit-any -- payloads of every shape
export type PlainHandlers = Record<string, (ctx: TaskContext & { payload: any }) => unknown>;

export interface CrewOptions extends Omit<WorkerOptions, 'handlers'> {
  handlers: PlainHandlers | readonly TaskHandler[];
}

export function plain(handlers: PlainHandlers): TaskHandler[] {
  return Object.entries(handlers).map(([kind, run]) => handle(task(kind), (_, ctx) => run(ctx)));
}

export interface Crew {
  readonly database: TestDatabase;
  /** A connection as another process would have one. It runs no reconcilers unless asked to. */
  connect(options?: Partial<ConnectOptions>): Promise<Connection>;
  /** A worker that, unless asked to, never polls without a hint and logs nothing. */
  work(engine: Connection | WorkerPort, options: CrewOptions): Worker;
  /** Events of an execution, oldest first, as `family.type`. */
  eventsOf(id: ExecutionId): Promise<string[]>;
  /** Makes all workers renew their leases now. */
  ringAllWorkers(): Promise<void>;
}

/** Call it at the top of a file; it installs its own hooks. */
export function useCrew(): Crew {
  let database: TestDatabase;
  const connections: Connection[] = [];
  const workers: Worker[] = [];
  beforeAll(async () => {
    database = await testDatabase();
  });
  afterEach(async () => {
    await Promise.all(workers.splice(0).map((worker) => worker.stop({ deadline: 0 })));
    await Promise.all(connections.splice(0).map((connection) => connection.close()));
  });
  afterAll(() => database.drop());
  return {
    get database() {
      return database;
    },
    async connect(options = {}) {
      const connection = await connect({
        databaseUrl: database.url,
        reconcile: 'off',
        defaultPolicy: {},
        poolSize: 4,
        ...options,
      });
      connections.push(connection);
      return connection;
    },
    work(engine, options) {
      const handlers = Array.isArray(options.handlers)
        ? options.handlers
        : plain(options.handlers as PlainHandlers);
      const port = 'claim' in engine ? engine : workerPort(engine);
      const worker = runWorker(port, { poll: NEVER_MS, log: 'silent', ...options, handlers });
      workers.push(worker);
      return worker;
    },
    async eventsOf(id) {
      const found = await database.query<{ event: string }>(
        `SELECT family || '.' || event_type AS event FROM ff_event WHERE execution_id = $1 ORDER BY ev_id`,
        [uuidOf(id)],
      );
      return found.rows.map(({ event }) => event);
    },
    async ringAllWorkers() {
      await database.query('SELECT pg_notify($1, $2)', [
        hintChannel(database.schema),
        JSON.stringify({ workers: ['*'] }),
      ]);
    },
  };
}

/** Blocks the event loop. */
export function stall(ms: number): void {
  const until = performance.now() + ms;
  while (performance.now() < until);
}

/** A kind that nothing else in the database uses. */
export function newKind(): string {
  return `kind-${randomUUID()}`;
}

export function uuidOf(id: ExecutionId): string {
  return id.slice(id.lastIndexOf(':') + 1);
}

export async function resultOf(engine: Connection, id: ExecutionId): Promise<ExecutionResult['outcome']> {
  return (await engine.executions.result(id)).outcome;
}

/** The same engine for a worker that receives no hints and believes its leases are always renewed. */
export function deaf(engine: Connection): WorkerPort {
  return {
    ...workerPort(engine),
    watch: () => () => undefined,
    renew: async (leases) => leases.map(() => ({ outcome: 'renewed' })),
  };
}
