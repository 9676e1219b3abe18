/**
 * Transactions of user code. They run on connections of their own, so that however long they take, the engine's pool
 * stays free for renewals. With the application's pool they share it, and their number is limited.
 */
import type { Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import { ConnectionWaitOver, EngineError, isEngineError } from '../../contract/errors.ts';
import { LIMITS } from '../../contract/limits.ts';
import type { SqlExecutor, SqlTransaction } from '../../contract/transactions.ts';
import { ANSWER_LIMIT_MS, CONNECT_LIMIT_MS, type ClientLike, type PoolLike } from './database.ts';
import { Answers, engineClosed } from './answers.ts';
import { describeBudget, type ConnectionBudget } from './connection-budget.ts';
import { isConnectionLost, toEngineError } from './errors.ts';
import { connectionLost, executorOf, NAME_OF_TRANSACTION, type TransactionName } from './inside.ts';
import { Slots } from './slots.ts';
import { trackSockets } from './sockets.ts';
import { within } from './within.ts';

/** A peer that silently disappeared must not keep the process from exiting. */
const CLOSE_LIMIT_MS = 2_000;
const BEGIN = 'BEGIN ISOLATION LEVEL READ COMMITTED';

type Work<Value> = (tx: SqlTransaction, executor: SqlExecutor) => Promise<Value>;

/** The statements around the work. */
interface Frame {
  /** Returns the name of the transaction. */
  begin: string;
  commit(transaction: string): string;
}

export interface Transactions {
  run<Value>(work: Work<Value>): Promise<Value>;
  close(): Promise<void>;
  /** Rejects every wait at once and closes our own connections: uncommitted work is rolled back. */
  abandon(): void;
}

interface Source {
  databaseUrl?: string;
  pool?: PoolLike;
}

/**
 * Where transactions of user code run: those of `ctx.tx`, and those of handlers of consumers. With an application's
 * pool they share their slots. `prefix` is that of the schema, whose function checks that the transaction is still the
 * one that was begun.
 */
export function openTransactions(
  source: Source,
  prefix: string,
  budget: ConnectionBudget,
): { transactions: Transactions; handlings: Transactions } {
  const openWith = (slots: Slots): Transactions => openOne(source, prefix, budget, slots);
  if (source.pool !== undefined) {
    const count = slotsOf(source.pool, budget);
    const describe = (): string => 'One connection of the given pool is reserved for the engine.';
    const slots = new Slots({ count, describe });
    return { transactions: openWith(slots), handlings: openWith(slots) };
  }
  const slotsFor = (count: number) => new Slots({ count, describe: () => describeBudget(budget) });
  return {
    transactions: openWith(slotsFor(budget.transactions)),
    handlings: openWith(slotsFor(budget.handlings)),
  };
}

function openOne(source: Source, prefix: string, budget: ConnectionBudget, slots: Slots): Transactions {
  let own: pg.Pool | undefined;
  const sockets = trackSockets();
  const answers = new Answers();
  const arrivals = new Answers();
  let isClosed = false;
  const beginNoMore = (): void => {
    isClosed = true;
    slots.close();
    arrivals.giveUp();
  };
  const connect = async (): Promise<ClientLike> => {
    if (source.pool !== undefined) return connectThrough(source.pool);
    own ??= openPool(source.databaseUrl!, budget.transactions, () => sockets.open());
    return (await own.connect()) as unknown as ClientLike;
  };
  // Settings that user code made on our connection must not leak into the next use; on the application's own pool that
  // is its concern.
  const begin = source.pool === undefined ? `RESET ALL; ${BEGIN} READ WRITE` : BEGIN;
  const frame: Frame = {
    begin: `${begin}; ${NAME_OF_TRANSACTION}`,
    // In one message, so that nothing runs in between.
    commit: (transaction) => `SELECT ${prefix}ff_require_transaction('${transaction}'); COMMIT`,
  };
  const open = new Set<ClientLike>();
  const runOn = async <Value>(client: ClientLike, work: Work<Value>): Promise<Value> => {
    open.add(client);
    try {
      return await transact(client, frame, (tx, executor) => {
        if (isClosed) throw engineClosed();
        return work(tx, executor);
      });
    } finally {
      open.delete(client);
    }
  };
  return {
    run: (work) =>
      answers.wait(() => slots.use(async () => runOn(await connected(connect, arrivals, budget), work))),
    async close() {
      beginNoMore();
      if (own === undefined) return;
      const ended = own.end();
      // Work that does not finish must not keep the process from exiting: closing rolls it back.
      const ends = Promise.all([...open].map((client) => client.end?.()));
      await Promise.race([ends, delay(CLOSE_LIMIT_MS, undefined, { ref: false })]);
      if (open.size === 0) await ended;
    },
    abandon() {
      beginNoMore();
      answers.giveUp();
      sockets.destroyAll();
    },
  };
}

/** One connection of the application's pool is reserved for the engine, so that leases can be renewed meanwhile. */
function slotsOf(pool: PoolLike, budget: ConnectionBudget): number {
  const max = pool.options?.max;
  const wanted = budget.transactions + budget.handlings;
  return max === undefined ? LIMITS.transactions : Math.min(wanted, max - 1);
}

function openPool(databaseUrl: string, max: number, stream: () => Socket): pg.Pool {
  const pool = new pg.Pool({
    connectionString: databaseUrl,
    stream,
    max,
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

async function connected(
  connect: () => Promise<ClientLike>,
  arrivals: Answers,
  budget: ConnectionBudget,
): Promise<ClientLike> {
  try {
    return await arrived(connect(), arrivals);
  } catch (thrown) {
    const error = toEngineError(thrown, 'beginning a transaction');
    if (error.code !== 'no_connection' || error.sqlState === undefined) throw error;
    throw new EngineError(error.code, `${error.message} ${describeBudget(budget)}`, {
      cause: thrown,
      sqlState: error.sqlState,
    });
  }
}

/** An application's pool may have no time limit of its own. A connection that arrives too late is returned to it. */
async function arrived(arriving: Promise<ClientLike>, arrivals: Answers): Promise<ClientLike> {
  const { connectionWaitMs } = LIMITS;
  const sentence = `A transaction got no connection of the pool within ${connectionWaitMs / 1_000} s: all are in use. Release them sooner, or raise the max of the pool.`;
  try {
    const arrival = arrivals.wait(() => arriving);
    return await within(connectionWaitMs, arrival, () => new ConnectionWaitOver(sentence));
  } catch (error) {
    void arriving.then(
      (client) => client.release(),
      () => undefined,
    );
    throw error;
  }
}

/** Errors of the work are rethrown unchanged, except for the loss of the connection, which the work did not cause. */
async function transact<Value>(client: ClientLike, frame: Frame, work: Work<Value>): Promise<Value> {
  let broken = false;
  let begun = false;
  let over = false;
  // A connection that breaks between two statements emits an error; without a listener it would crash the process.
  const onError = (): void => {
    broken = true;
  };
  client.on?.('error', onError);
  // The connection is reused: code that kept `tx` must not write into the next transaction.
  const query = async (text: string, params?: unknown[]) => {
    if (over)
      throw new EngineError('invalid_step', 'The transaction has ended: await every query that uses it.');
    const { rows, rowCount = null } = await client.query(text, params);
    return { rows, rowCount };
  };
  const tx = { query } as SqlTransaction;
  try {
    const name = nameIn(await control(client, frame.begin, 'beginning a transaction', onError));
    begun = true;
    const value = await work(tx, executorOf(query, name));
    over = true;
    await control(client, frame.commit(name.transaction), 'committing a transaction', onError);
    return value;
  } catch (error) {
    over = true;
    if (!broken) await control(client, 'ROLLBACK', 'rolling a transaction back', onError).catch(onError);
    throw broken && !isEngineError(error) && isConnectionLost(error) ? connectionLost(error) : error;
  } finally {
    client.off?.('error', onError);
    // If BEGIN failed, the state of the connection is unknown.
    client.release(broken || !begun);
  }
}

/** A connection that does not answer is useless: `onSilence` is called before the error is thrown. */
async function control(
  client: ClientLike,
  statements: string,
  doing: string,
  onSilence: () => void,
): Promise<unknown> {
  const silent = new EngineError(
    'unavailable',
    `While ${doing}: the database did not answer within ${ANSWER_LIMIT_MS / 1_000} s.`,
  );
  try {
    return await within(ANSWER_LIMIT_MS, client.query(statements), () => silent);
  } catch (error) {
    if (error === silent) onSilence();
    throw toEngineError(error, doing);
  }
}

/** Several statements in one message return as many results. */
function nameIn(answers: unknown): TransactionName {
  const [last] = [answers].flat().slice(-1) as { rows?: TransactionName[] }[];
  const name = last?.rows?.[0];
  if (name !== undefined && /^\d+$/.test(name.transaction)) return name;
  throw new EngineError('invalid_input', 'pool must return query results as pg does.', { field: 'pool' });
}
