/**
 * The one place where this folder connects: a database per file and an engine on it, configured by the environment.
 * FLOWFABRIC_TEST_POOL sets the size of the engine's pool, FLOWFABRIC_TEST_LISTEN=off removes its listening connection;
 * every test must pass under any of them. Tests use the two faces only: the connection and the worker protocol.
 */
import { afterAll, beforeAll, expect, vi } from 'vitest';
import { connect, type ConnectOptions } from '../../src/connect/connect.ts';
import type { Connection } from '../../src/connect/connection.ts';
import { workerPort, type Claim, type ClaimRequest, type WorkerPort } from '../../src/protocol/index.ts';
import type { ExecutionId, ExecutionSnapshot, SubmitRequest } from '../../src/index.ts';
import type { TestDatabase } from '../../src/testing/test-database.ts';
import { testDatabase } from '../setup/database.ts';
import { patiently } from '../setup/patience.ts';

/** Whether a hint of another process can reach this one. */
export const LISTENING = process.env['FLOWFABRIC_TEST_LISTEN'] !== 'off';

export const LEASE_MS = 30_000;
export const SIGNING_SECRET = 'a secret of the tests, long enough to be one';
export const WAIT = { timeout: patiently(30_000), interval: 10 } as const;

function connectOptions(database: TestDatabase): ConnectOptions {
  const poolSize = process.env['FLOWFABRIC_TEST_POOL'];
  return {
    databaseUrl: database.url,
    // Tests set the policy they need.
    defaultPolicy: {},
    signingSecret: SIGNING_SECRET,
    ...(poolSize === undefined || poolSize === '' ? {} : { poolSize: Number(poolSize) }),
    ...(LISTENING ? {} : { listen: 'off' as const }),
  };
}

let kinds = 0;

/** A kind that no other test uses, so that a claim finds only what its own test submitted. */
export function newKind(): string {
  kinds += 1;
  return `kind-${kinds}`;
}

export interface Bench {
  readonly database: TestDatabase;
  /** Runs no reconcilers: a test moves time and calls them itself. */
  readonly engine: Connection;
  /** The worker protocol on that connection. */
  readonly port: WorkerPort;
  /** Another connection, as in another process; closed with the file. */
  another(options?: ConnectOptions): Promise<Connection>;
  /** Submits one execution, of a new kind by default. */
  submit(request?: Partial<SubmitRequest>): Promise<ExecutionId>;
  /** Claims up to `limit` of these kinds, even if the engine has not seen them before. */
  claim(request: Partial<ClaimRequest> & { kinds: readonly string[] }): Promise<Claim[]>;
  claimOne(kind: string, request?: Partial<ClaimRequest>): Promise<Claim>;
  /** Submits and claims one execution. */
  running(request?: Partial<SubmitRequest>): Promise<Claim>;
  /** The current state of the execution, which must exist. */
  snapshot(id: ExecutionId): Promise<ExecutionSnapshot>;
  /** One pass of every reconciler. */
  reconcile(): Promise<void>;
  /** Lets the leases of the file lapse and the reconcilers notice. */
  loseLeases(): Promise<void>;
}

/** Opens a bench for the tests of one file. */
export function useBench(create: () => Promise<TestDatabase> = testDatabase): Bench {
  const opened: Connection[] = [];
  let database: TestDatabase;
  let engine: Connection;
  const open = async (options: ConnectOptions): Promise<Connection> => {
    const connection = await connect({ ...connectOptions(database), ...options });
    opened.push(connection);
    return connection;
  };
  beforeAll(async () => {
    database = await create();
    engine = await open({ reconcile: 'off' });
  });
  afterAll(async () => {
    await Promise.all(opened.map((connection) => connection.close()));
    await database?.drop();
  });
  return {
    get database() {
      return database;
    },
    get engine() {
      return engine;
    },
    get port() {
      return workerPort(engine);
    },
    another: (options = {}) => open({ reconcile: 'off', ...options }),
    ...workOn(() => engine),
    reconcile: () => reconcileOnce(database),
    async loseLeases() {
      await database.moveClock(LEASE_MS);
      await reconcileOnce(database);
    },
  };
}

type Work = Pick<Bench, 'submit' | 'claim' | 'claimOne' | 'running' | 'snapshot'>;

function workOn(engine: () => Connection): Work {
  const work: Work = {
    submit: async (request = {}) =>
      (await engine().executions.submit({ kind: newKind(), ...request })).executionId,
    async claim(request) {
      const full = { ...claimRequest(), ...request };
      const port = workerPort(engine());
      const { claims } = await port.claim(full);
      return claims.length > 0 ? claims : (await port.claim(full)).claims;
    },
    async claimOne(kind, request = {}) {
      const [claim] = await work.claim({ kinds: [kind], limit: 1, ...request });
      if (claim === undefined) throw new Error(`nothing of ${kind} could be claimed`);
      return claim;
    },
    async running(request = {}) {
      const kind = request.kind ?? newKind();
      await work.submit({ ...request, kind });
      return work.claimOne(kind, request.capabilities ? { capabilities: request.capabilities } : {});
    },
    async snapshot(id) {
      const snapshot = await engine().executions.describe(id);
      if (snapshot === null) throw new Error(`${id} does not exist`);
      return snapshot;
    },
  };
  return work;
}

export function claimRequest(): Omit<ClaimRequest, 'kinds'> {
  return { workerId: 'worker', workerInstanceId: 'worker-1', limit: 100, leaseMs: LEASE_MS };
}

async function reconcileOnce(database: TestDatabase): Promise<void> {
  const connection = await connect({ ...connectOptions(database), reconcile: 'on' });
  try {
    await vi.waitFor(() => {
      for (const report of connection.upkeep.reports()) expect(report.passes).toBeGreaterThan(0);
    }, WAIT);
    for (const report of connection.upkeep.reports()) expect(report).toMatchObject({ errors: 0, failed: 0 });
  } finally {
    await connection.close();
  }
}

/** The id with another partition number: the same uuid, in a partition where it does not exist. */
export function misplaced(id: ExecutionId): ExecutionId {
  const [, partition, uuid] = /^\{fp:(\d+)\}:(.*)$/.exec(id) ?? [];
  return `{fp:${(Number(partition) + 1) % 256}}:${uuid}`;
}
