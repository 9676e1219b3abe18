/**
 * The connection to Postgres: a pool (ours or the user's), the schema, and one way to run a statement. Conflicts are
 * retried here, with jitter; after a lost connection, only statements that may safely happen twice are retried.
 */
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import { EngineError, isEngineError } from '../../contract/errors.ts';
import { spread } from '../../model/retry.ts';
import { Answers } from './answers.ts';
import type { Columns } from './columns.ts';
import { DEFAULT_POOL_SIZE } from './connection-budget.ts';
import type { Retry } from './conditions.ts';
import { conditionOf, sqlStateOf, toEngineError } from './errors.ts';
import { quoteIdentifier, validDatabaseUrl, validSchemaName } from './names.ts';
import { sentParam } from './plain-statement.ts';
import { trackSockets } from './sockets.ts';
import { StatementNames } from './statement-names.ts';
import { VALUE_PARSERS } from './value-parsers.ts';

/** What the engine needs of a pool. Any `pg.Pool` has it, whichever copy of `pg` it came from. */
export interface PoolLike {
  query(config: {
    /** Only on the engine's own pool. */
    name?: string;
    text: string;
    values: unknown[];
    types: unknown;
  }): Promise<{ rows: unknown[] }>;
  /** Needed for transactions of handlers (`ctx.tx`). */
  connect?(): Promise<ClientLike>;
  /** Where `pg.Pool` has its limit of connections. */
  options?: { max?: number };
}

/** What the engine needs of a connection of that pool. */
export interface ClientLike {
  query(
    text: string,
    params?: unknown[],
  ): Promise<{ rows: unknown[]; command?: string; rowCount?: number | null }>;
  /** With a truthy argument the connection is closed instead of returned to the pool. */
  release(broken?: boolean): void;
  on?(event: 'error', listener: (error: Error) => void): unknown;
  end?(): Promise<void>;
  off?(event: 'error', listener: (error: Error) => void): unknown;
}

export interface DatabaseOptions {
  databaseUrl?: string;
  /** The user's own pool. It is used, never configured and never closed. */
  pool?: PoolLike;
  schema: string;
  poolSize?: number;
}

export interface Database {
  readonly schema: string;
  /** The schema quoted, with a dot: what table and function names are prefixed with. */
  readonly prefix: string;
  readonly pool: PoolLike;
  /** The pool is the application's own: the caller may have its last connection. */
  readonly isShared: boolean;
  /** Undefined on the application's pool: its connections, and the names on them, are not ours. */
  readonly names: StatementNames | undefined;
  /** The statements under way. */
  readonly answers: Answers;
  /** Closes the engine's own connections once the statements under way have finished. */
  close(): Promise<void>;
  /** Rejects every wait for an answer at once and closes the engine's own connections. */
  abandon(): void;
}

/** `repeatable` statements may be sent again when it is unknown whether the first one happened. */
export interface Statement<Row = unknown> {
  doing: string;
  text: string;
  /** What it returns, when that is more than one value: `text` selects this list. */
  columns?: Columns<Row>;
  params: unknown[];
  repeatable: 'yes' | 'no';
  /** `once`: not retried when a lock was not available in time. */
  waits?: 'once';
}

/** How often, and after which delays. A restarting server is back within seconds; after that the caller should know. */
const TRIES: Record<Retry, { most: number; waitMs: { min: number; max: number } }> = {
  conflict: { most: 8, waitMs: { min: 5, max: 200 } },
  outage: { most: 12, waitMs: { min: 20, max: 800 } },
  briefly: { most: 3, waitMs: { min: 20, max: 200 } },
  never: { most: 1, waitMs: { min: 0, max: 0 } },
};

/** A connection that is silent for this long is given up; whether the statement happened is then unknown. */
export const ANSWER_LIMIT_MS = 60_000;
export const CONNECT_LIMIT_MS = 10_000;

/** SQLSTATE of a wait for a lock that exceeded `lock_timeout`. */
export const LOCK_TIMEOUT = '55P03';
const UNIQUE_VIOLATION = '23505';

export function openDatabase(options: DatabaseOptions): Database {
  const schema = validSchemaName(options.schema);
  const prefix = `${quoteIdentifier(schema)}.`;
  const answers = new Answers();
  if (options.pool !== undefined) {
    const abandon = (): void => answers.giveUp();
    return {
      schema,
      prefix,
      pool: options.pool,
      isShared: true,
      names: undefined,
      answers,
      close: async () => undefined,
      abandon,
    };
  }
  if (options.databaseUrl === undefined) {
    const what =
      'databaseUrl' in options
        ? 'databaseUrl is not set (is DATABASE_URL set?): give databaseUrl or pool.'
        : 'Give either databaseUrl or pool.';
    throw new EngineError('invalid_input', what, { field: 'databaseUrl' });
  }
  const sockets = trackSockets();
  const pool = new pg.Pool({
    connectionString: validDatabaseUrl(options.databaseUrl),
    stream: () => sockets.open(),
    max: options.poolSize ?? DEFAULT_POOL_SIZE,
    application_name: 'flowfabric',
    keepAlive: true,
    connectionTimeoutMillis: CONNECT_LIMIT_MS,
    query_timeout: ANSWER_LIMIT_MS,
  });
  // An idle connection that breaks is replaced at its next use. Without a listener the error would crash the process.
  pool.on('error', () => undefined);
  return {
    schema,
    prefix,
    pool: pool as unknown as PoolLike,
    isShared: false,
    names: new StatementNames(prefix),
    answers,
    close: () => pool.end(),
    abandon() {
      answers.giveUp();
      sockets.destroyAll();
    },
  };
}

/** Runs a statement on the engine's pool, in a transaction of its own. */
export async function run<Row>(database: Database, statement: Statement<Row>): Promise<Row[]> {
  for (let tries = 1; ; tries += 1) {
    try {
      const values = statement.params.map(sentParam);
      return (await database.answers.wait(() => sent(database, statement.text, values))).rows as Row[];
    } catch (thrown) {
      const wait = retryWait(thrown, tries, statement);
      if (wait === undefined) throw explained(thrown, statement.doing, database);
      await database.answers.wait(() => delay(wait));
    }
  }
}

async function sent(
  { pool, names }: Database,
  text: string,
  values: unknown[],
): Promise<{ rows: unknown[] }> {
  const name = names?.nameOf(text);
  if (name !== undefined) {
    try {
      return await pool.query({ name, text, values, types: VALUE_PARSERS });
    } catch (error) {
      if (!names!.refusedBy(error)) throw error;
    }
  }
  return pool.query({ text, values, types: VALUE_PARSERS });
}

/** The row of a statement that always returns one. */
export function onlyRow<Row>(doing: string, [row]: readonly Row[]): Row {
  if (row === undefined)
    throw new EngineError('database_error', `While ${doing}: the database returned no row.`);
  return row;
}

function explained(thrown: unknown, doing: string, { pool }: Database): EngineError {
  const error = toEngineError(thrown, doing);
  const max = pool.options?.max;
  if (error.code !== 'no_connection' || error.sqlState !== undefined || max === undefined) return error;
  return new EngineError(error.code, `${error.message} The pool has ${max}.`, { cause: thrown });
}

function retryWait<Row>(thrown: unknown, tries: number, statement: Statement<Row>): number | undefined {
  if (statement.waits === 'once' && sqlStateOf(thrown) === LOCK_TIMEOUT) return undefined;
  const retry = conditionOf(thrown)?.retry ?? 'never';
  if (retry !== 'conflict' && statement.repeatable === 'no') return undefined;
  const { most, waitMs } = TRIES[retry];
  return tries < most ? spread(waitMs, tries, Math.random()) : undefined;
}

/** A lock was not available in time. */
export function isLockTimeout(error: unknown): error is EngineError {
  return isEngineError(error) && error.sqlState === LOCK_TIMEOUT;
}

/** What was to be inserted exists already. */
export function isUniqueViolation(error: unknown): error is EngineError {
  return isEngineError(error) && error.sqlState === UNIQUE_VIOLATION;
}
