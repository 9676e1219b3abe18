/**
 * Transactions of user code. They run on connections of their own, so that however long they take, the engine's pool
 * stays free for renewals; with the application's pool they share it, and are few.
 */
import pg from 'pg';
import { EngineError } from '../contract/errors.ts';
import { LIMITS } from '../contract/limits.ts';
import type { SqlExecutor, SqlTransaction } from '../contract/engine.ts';
import { CONNECT_LIMIT_MS, type ClientLike, type PoolLike } from './database.ts';
import { toEngineError } from './database-errors.ts';

export interface Transactions {
  run<Value>(work: (tx: SqlTransaction, executor: SqlExecutor) => Promise<Value>): Promise<Value>;
  close(): Promise<void>;
}

export function openTransactions(source: { databaseUrl?: string; pool?: PoolLike }): Transactions {
  let own: pg.Pool | undefined;
  const connect = async (): Promise<ClientLike> => {
    if (source.pool !== undefined) return connectThrough(source.pool);
    own ??= openPool(source.databaseUrl!);
    return (await own.connect()) as unknown as ClientLike;
  };
  const slots = new Slots(LIMITS.transactions);
  return {
    run: (work) => slots.use(async () => transact(await connected(connect), work)),
    close: async () => own?.end(),
  };
}

function openPool(databaseUrl: string): pg.Pool {
  const pool = new pg.Pool({
    connectionString: databaseUrl,
    max: LIMITS.transactions,
    application_name: 'flowfabric transactions',
    keepAlive: true,
    connectionTimeoutMillis: CONNECT_LIMIT_MS,
  });
  pool.on('error', () => undefined);
  return pool;
}

async function connectThrough(pool: PoolLike): Promise<ClientLike> {
  if (pool.connect !== undefined) return pool.connect();
  throw new EngineError('invalid_input', 'pool must have connect() to run transactions.', { field: 'pool' });
}

async function connected(connect: () => Promise<ClientLike>): Promise<ClientLike> {
  try {
    return await connect();
  } catch (error) {
    throw toEngineError(error, 'beginning a transaction');
  }
}

/** What the work throws is thrown as it is: it is the caller's own. */
async function transact<Value>(
  client: ClientLike,
  work: (tx: SqlTransaction, executor: SqlExecutor) => Promise<Value>,
): Promise<Value> {
  let broken = false;
  // A connection that breaks between two statements says so as an event; unheard, it would end the process.
  const onError = (): void => {
    broken = true;
  };
  client.on?.('error', onError);
  const tx = { query: (text: string, params?: unknown[]) => client.query(text, params) } as SqlTransaction;
  try {
    await control(client, 'BEGIN ISOLATION LEVEL READ COMMITTED');
    const value = await work(tx, (text, params) => client.query(text, params));
    await control(client, 'COMMIT');
    return value;
  } catch (error) {
    await client.query('ROLLBACK').catch(onError);
    throw error;
  } finally {
    client.off?.('error', onError);
    client.release(broken);
  }
}

async function control(client: ClientLike, statement: string): Promise<void> {
  const answer = await client.query(statement).catch((error: unknown) => {
    throw toEngineError(error, `running ${statement}`);
  });
  // A transaction in which a statement failed is rolled back by its COMMIT, without an error.
  if (statement === 'COMMIT' && answer.command === 'ROLLBACK') {
    throw new EngineError(
      'retry_transaction',
      'A statement of the transaction had failed: nothing was committed.',
    );
  }
}

/** Lets a number of callers in at a time; the others wait in order. */
class Slots {
  readonly #waiting: (() => void)[] = [];
  #free: number;

  constructor(count: number) {
    this.#free = count;
  }

  async use<Value>(work: () => Promise<Value>): Promise<Value> {
    if (this.#free > 0) this.#free -= 1;
    else await new Promise<void>((resolve) => this.#waiting.push(resolve));
    try {
      return await work();
    } finally {
      const next = this.#waiting.shift();
      if (next === undefined) this.#free += 1;
      else next();
    }
  }
}
