/**
 * A separate database for one test file: copied from a template or freshly migrated, with a movable clock and
 * assertions that watch every state change, removed by `drop()`. Needs a server and a role that may create databases;
 * works with any test runner.
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import { EngineError } from '../contract/errors.ts';
import { msOf, type Duration } from '../contract/shape/duration.ts';
import { refuse } from '../contract/shape/shape.ts';
import { sqlStateOf, toEngineError } from '../engine/database/errors.ts';
import { DEFAULT_SCHEMA, migrate } from '../engine/database/migrations/migrate.ts';
import { quoteIdentifier } from '../engine/database/names.ts';
import { installAssertions } from './assertions.ts';

/** On which server, and with what inside. */
export interface TestDatabaseOptions {
  /** Connection string of a server; the database it names is only used to create and drop others. */
  serverUrl: string;
  /**
   * A database to copy as it is, without open connections. Without one, an empty database is migrated, with the movable
   * clock and the assertions.
   */
  template?: string;
  /** Default: a unique name. */
  name?: string;
}

/** A database of its own for a test, with a clock that can be moved. */
export interface TestDatabase {
  readonly name: string;
  /** Connection string of this database. */
  readonly url: string;
  /** The engine's schema in it. */
  readonly schema: string;
  /** Moves the engine's clock forward (or back, by a negative number of milliseconds) for all connections at once. */
  moveClock(by: Duration): Promise<void>;
  /** Sets how far the engine's clock is ahead of the real one. */
  setClockOffset(ms: number): Promise<void>;
  /** Runs a statement with the schema on the search path. int8 is returned as a number. */
  query<Row extends pg.QueryResultRow = pg.QueryResultRow>(
    text: string,
    params?: unknown[],
  ): Promise<pg.QueryResult<Row>>;
  /** A connection with the schema on its search path. The caller may end it; `drop()` ends the rest. */
  connect(): Promise<pg.Client>;
  /** Ends all connections and removes the database. */
  drop(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

const POOL_SIZE = 4;
/** A template in use, because its last user is still disconnecting, is retried for this long. */
const TEMPLATE_WAIT_LIMIT_MS = 30_000;
const TEMPLATE_POLL_MS = 50;
/** How long ended connections have to close before the rest are terminated. */
const LEAVE_LIMIT_MS = 1_000;
const LEAVE_POLL_MS = 5;
const OBJECT_IN_USE = '55006';
const UNDEFINED_TABLE = '42P01';
const INT8_OID = 20;

const TYPES: pg.CustomTypesConfig = {
  getTypeParser: ((oid: number, format?: 'text' | 'binary') =>
    oid === INT8_OID
      ? Number
      : pg.types.getTypeParser(oid, format as 'text')) as typeof pg.types.getTypeParser,
};

/** Creates a database for tests on a running server. */
export async function createTestDatabase(options: TestDatabaseOptions): Promise<TestDatabase> {
  const name = options.name ?? `ff_test_${randomUUID().replaceAll('-', '')}`;
  await onServer(options.serverUrl, (server) => createDatabase(server, name, options.template));
  const url = databaseUrl(options.serverUrl, name);
  try {
    if (options.template === undefined) await prepare(url);
  } catch (error) {
    await onServer(options.serverUrl, (server) => dropDatabase(server, name));
    throw error;
  }
  return openTestDatabase(options.serverUrl, name, url);
}

function openTestDatabase(serverUrl: string, name: string, url: string): TestDatabase {
  const config = { connectionString: url, types: TYPES, options: `-c search_path=${DEFAULT_SCHEMA}` };
  const pool = new pg.Pool({ ...config, max: POOL_SIZE, application_name: 'test-database' });
  // Tests break idle connections on purpose.
  pool.on('error', () => undefined);
  const clients = new Set<pg.Client>();
  const setClock = async (expression: string, ms: number): Promise<void> => {
    try {
      await pool.query(`UPDATE ff_clock SET offset_ms = ${expression}`, [ms]);
    } catch (error) {
      throw clockError(error);
    }
  };
  const connect = async (): Promise<pg.Client> => {
    const client = new pg.Client(config);
    client.on('error', () => undefined);
    client.once('end', () => clients.delete(client));
    await client.connect();
    clients.add(client);
    return client;
  };
  let dropped: Promise<void> | undefined;
  const drop = (): Promise<void> => {
    dropped ??= (async () => {
      await Promise.all([pool.end(), ...[...clients].map((client) => client.end())]);
      await onServer(serverUrl, (server) => dropDatabase(server, name));
    })();
    return dropped;
  };
  return {
    name,
    url,
    schema: DEFAULT_SCHEMA,
    moveClock: async (by) => setClock('offset_ms + $1::bigint', movedMs(by)),
    setClockOffset: (ms) => setClock('$1::bigint', ms),
    query: (text, params) => pool.query(text, params),
    connect,
    drop,
    [Symbol.asyncDispose]: drop,
  };
}

async function prepare(url: string): Promise<void> {
  await migrate({ databaseUrl: url, clock: 'movable' });
  await onServer(url, (client) => installAssertions(client, DEFAULT_SCHEMA));
}

async function createDatabase(server: pg.Client, name: string, template = 'template1'): Promise<void> {
  const deadline = performance.now() + TEMPLATE_WAIT_LIMIT_MS;
  for (;;) {
    try {
      await server.query(`CREATE DATABASE ${quoteIdentifier(name)} TEMPLATE ${quoteIdentifier(template)}`);
      return;
    } catch (error) {
      if (sqlStateOf(error) !== OBJECT_IN_USE || performance.now() > deadline) throw error;
    }
    await delay(TEMPLATE_POLL_MS);
  }
}

/**
 * A pool's end resolves before its connections are closed. One terminated meanwhile emits an error, which ends the
 * process if nobody listens to the pool.
 */
async function untilAllLeft(server: pg.Client, name: string): Promise<void> {
  const deadline = performance.now() + LEAVE_LIMIT_MS;
  const connected = 'SELECT FROM pg_stat_activity WHERE datname = $1 LIMIT 1';
  while ((await server.query(connected, [name])).rowCount !== 0 && performance.now() < deadline) {
    await delay(LEAVE_POLL_MS);
  }
}

async function dropDatabase(server: pg.Client, name: string): Promise<void> {
  await untilAllLeft(server, name);
  // Forced, because the server may take a while to notice a connection that a test broke.
  await server.query(`DROP DATABASE IF EXISTS ${quoteIdentifier(name)} WITH (FORCE)`);
}

async function onServer(url: string, work: (client: pg.Client) => Promise<void>): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  client.on('error', () => undefined);
  try {
    await client.connect();
    await work(client);
  } catch (error) {
    throw toEngineError(error, 'preparing a test database');
  } finally {
    await client.end().catch(() => undefined);
  }
}

function databaseUrl(serverUrl: string, name: string): string {
  const url = new URL(serverUrl);
  url.pathname = `/${encodeURIComponent(name)}`;
  return url.href;
}

function clockError(error: unknown): unknown {
  if (sqlStateOf(error) !== UNDEFINED_TABLE) return error;
  return new EngineError(
    'invalid_input',
    "This database runs on the server's own clock, which cannot be moved.",
    {
      cause: error,
    },
  );
}

function movedMs(by: Duration): number {
  const ms = msOf(by);
  if (Number.isNaN(ms)) refuse('by', "must be a duration such as '1h', or a number of milliseconds");
  return ms;
}
