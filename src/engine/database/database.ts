/**
 * The connection to Postgres: a pool (ours or the user's), the schema, and one way to run a statement. Conflicts the
 * database asks to be retried are retried here, with jitter; a lost connection is retried only for statements
 * that may safely happen twice.
 */
import { setTimeout as pause } from 'node:timers/promises';
import pg from 'pg';
import { EngineError, isEngineError } from '../../contract/errors.ts';
import { spread } from '../../model/retry.ts';
import { Answers } from './answers.ts';
import type { Columns } from './columns.ts';
import { DEFAULT_POOL_SIZE } from './connection-budget.ts';
import type { Retry } from './conditions.ts';
import { conditionOf, sqlStateOf, toEngineError } from './errors.ts';
import { quoteIdentifier, validDatabaseUrl, validSchemaName } from './names.ts';
import { trackSockets } from './sockets.ts';
import { VALUE_PARSERS } from './value-parsers.ts';

/** What is needed of a pool; `pg.Pool` has it, whichever copy of `pg` it came from. */
export interface PoolLike {
  query(config: { text: string; values: unknown[]; types: unknown }): Promise<{ rows: unknown[] }>;
  /** Needed for transactions of handlers (`ctx.tx`). */
  connect?(): Promise<ClientLike>;
  /** Where `pg.Pool` says how many connections it may have. */
  options?: { max?: number };
}

/** What is needed of a connection of that pool. */
export interface ClientLike {
  query(
    text: string,
    params?: unknown[],
  ): Promise<{ rows: unknown[]; command?: string; rowCount?: number | null }>;
  /** With a truthy argument the connection is thrown away instead of going back to the pool. */
  release(broken?: boolean): void;
  on?(event: 'error', heard: (error: Error) => void): unknown;
  end?(): Promise<void>;
  off?(event: 'error', heard: (error: Error) => void): unknown;
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
  /** It is the application's own: whoever calls may hold its last connection. */
  readonly isShared: boolean;
  /** What statements wait for. */
  readonly answers: Answers;
  /** Ends the engine's own connections when what is under way has its answer. */
  close(): Promise<void>;
  /** Ends every wait for an answer at once, and the engine's own connections with it. */
  abandon(): void;
}

/** `repeatable` statements may be sent again when it is unknown whether the first one happened. */
export interface Statement<Row = unknown> {
  doing: string;
  text: string;
  /** What it answers, when that is more than one value: `text` selects their list. */
  columns?: Columns<Row>;
  params: unknown[];
  repeatable: 'yes' | 'no';
  /** `once`: a lock that was not to be had in time is not waited for again. */
  waits?: 'once';
}

/** How often, and after which waits. A restarting server is back within seconds; after that long the caller should know. */
const TRIES: Record<Retry, { most: number; waitMs: { min: number; max: number } }> = {
  conflict: { most: 8, waitMs: { min: 5, max: 200 } },
  outage: { most: 12, waitMs: { min: 20, max: 800 } },
  briefly: { most: 3, waitMs: { min: 20, max: 200 } },
  never: { most: 1, waitMs: { min: 0, max: 0 } },
};

/** A connection that gives no answer for this long is given up; the statement counts as unknown. */
export const ANSWER_LIMIT_MS = 60_000;
export const CONNECT_LIMIT_MS = 10_000;

/** SQLSTATE of a lock that was waited for as long as `lock_timeout` says. */
export const LOCK_TIMEOUT = '55P03';

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
      answers,
      close: async () => undefined,
      abandon,
    };
  }
  if (options.databaseUrl === undefined) {
    throw new EngineError('invalid_input', 'Give either databaseUrl or pool.', { field: 'databaseUrl' });
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
  // An idle connection that breaks is replaced at its next use; without a listener it would end the process.
  pool.on('error', () => undefined);
  return {
    schema,
    prefix,
    pool: pool as unknown as PoolLike,
    isShared: false,
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
      const { text, params: values } = statement;
      const ask = async () => database.pool.query({ text, values, types: VALUE_PARSERS });
      return (await database.answers.wait(ask)).rows as Row[];
    } catch (thrown) {
      const wait = retryWait(thrown, tries, statement);
      if (wait === undefined) throw explained(thrown, statement.doing, database);
      await database.answers.wait(() => pause(wait));
    }
  }
}

/** Of a statement that always answers one. */
export function onlyRow<Row>(doing: string, [row]: readonly Row[]): Row {
  if (row === undefined) throw new EngineError('database_error', `While ${doing}: nothing was answered.`);
  return row;
}

function explained(thrown: unknown, doing: string, { pool }: Database): EngineError {
  const error = toEngineError(thrown, doing);
  const max = pool.options?.max;
  if (error.code !== 'no_connection' || error.sqlState !== undefined || max === undefined) return error;
  return new EngineError(error.code, `${error.message} It has ${max}.`, { cause: thrown });
}

function retryWait<Row>(thrown: unknown, tries: number, statement: Statement<Row>): number | undefined {
  if (statement.waits === 'once' && sqlStateOf(thrown) === LOCK_TIMEOUT) return undefined;
  const retry = conditionOf(thrown)?.retry ?? 'never';
  if (retry !== 'conflict' && statement.repeatable === 'no') return undefined;
  const { most, waitMs } = TRIES[retry];
  return tries < most ? spread(waitMs, tries, Math.random()) : undefined;
}

/** A lock was not to be had in time. */
export function isLockTimeout(error: unknown): error is EngineError {
  return isEngineError(error) && error.sqlState === LOCK_TIMEOUT;
}
