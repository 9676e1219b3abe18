/**
 * Statements inside a transaction of user code. What the engine writes there must commit together with the rest, so
 * each statement carries the name of its transaction: if that has ended, or never existed, the database refuses the
 * statement. Nothing is retried here; the caller starts the transaction over.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { SqlExecutor } from '../../contract/transactions.ts';
import { EngineError, isEngineError } from '../../contract/errors.ts';
import { run, type Database, type Statement } from './database.ts';
import { toEngineError } from './errors.ts';
import { plainStatement, readPlainRow } from './plain-statement.ts';

/** Raised by `ff_require_transaction`. */
const ENDED_INSIDE = 'FF007';

/** A session reports its end a little early, so it is polled this often. */
const SESSION_POLLS = 5;
const SESSION_POLL_MS = 100;

/** Its transaction id, and the server process that runs it. */
export interface TransactionName {
  transaction: string;
  pid: number;
}

export const NAME_OF_TRANSACTION =
  'SELECT pg_current_xact_id()::text AS transaction, pg_backend_pid() AS pid';

/** Whether the engine saw the transaction begin; if not, there may be none. */
type Whose = 'begun here' | "the caller's";

/** Only for executors made here; how long others are used is unknown. */
const names = new WeakMap<SqlExecutor, TransactionName & { whose: Whose }>();

/** The same executor, bound to this transaction. */
export function executorOf(
  executor: SqlExecutor,
  name: TransactionName,
  whose: Whose = 'begun here',
): SqlExecutor {
  const own: SqlExecutor = (text, params) => executor(text, params);
  names.set(own, { ...name, whose });
  return own;
}

/** The transaction the executor is in now. If it is in none, each statement has its own. */
export async function nameTransaction(executor: SqlExecutor): Promise<TransactionName> {
  const known = names.get(executor);
  if (known !== undefined) return known;
  const rows = await runInside<TransactionName>(executor, {
    doing: 'identifying the transaction',
    text: NAME_OF_TRANSACTION,
    params: [],
    repeatable: 'no',
  });
  return rows[0]!;
}

/** The caller's executor for one call of the engine, bound to the transaction it is in now. */
export async function insideOf(executor: SqlExecutor): Promise<SqlExecutor> {
  if (names.has(executor)) return executor;
  return executorOf(executor, await nameTransaction(executor), "the caller's");
}

/** Runs a statement that names its transaction. */
export async function runNamed<Row>(
  executor: SqlExecutor,
  statementFor: (transaction: string) => Statement<Row>,
): Promise<Row[]> {
  const { transaction } = await nameTransaction(executor);
  try {
    return await runInside<Row>(executor, statementFor(transaction));
  } catch (error) {
    if (names.get(executor)?.whose === 'begun here') throw error;
    if (!isEngineError(error) || error.sqlState !== ENDED_INSIDE) throw error;
    const sentence =
      'options.executor is not inside a transaction, or its transaction changed during the call: begin one on its connection (a pool does not work), or leave the executor out. Nothing was written.';
    throw new EngineError('invalid_input', sentence, { field: 'options.executor', cause: error.cause });
  }
}

/**
 * Runs a statement inside the caller's transaction, once; retrying is up to the caller. It is sent in a form that every
 * library passes on unchanged, whatever its settings.
 */
export async function runInside<Row>(executor: SqlExecutor, statement: Statement<Row>): Promise<Row[]> {
  try {
    const { text, params } = plainStatement(statement.text, statement.params);
    const answer = await executor(text, params);
    if (Array.isArray(answer?.rows)) return answer.rows.map(readPlainRow<Row>);
    throw new EngineError('invalid_input', 'executor must return an object with rows.', {
      field: 'executor',
    });
  } catch (thrown) {
    const error = toEngineError(thrown, statement.doing);
    if (error.code !== 'contention') throw error;
    throw new EngineError('retry_transaction', `While ${statement.doing}: roll back and try again.`, {
      cause: thrown,
      ...(error.sqlState === undefined ? {} : { sqlState: error.sqlState }),
    });
  }
}

/** The connection of a transaction is gone: nothing of it was committed, and it may be started over. */
export function connectionLost(cause: unknown): EngineError {
  const sentence = 'The connection of a transaction was lost before its COMMIT: nothing of it was committed.';
  return new EngineError('unavailable', sentence, { cause });
}

/**
 * Whether the server has ended the connection of a transaction. Uses another connection: not every library survives a
 * query on a dead one.
 */
export async function isSessionGone(database: Database, pid: number): Promise<boolean> {
  for (let polls = 1; ; polls += 1) {
    const rows = await run(database, {
      doing: 'checking the session of a transaction',
      text: 'SELECT FROM pg_stat_activity WHERE pid = $1::integer',
      params: [pid],
      repeatable: 'yes',
    });
    if (rows.length === 0) return true;
    if (polls >= SESSION_POLLS) return false;
    await delay(SESSION_POLL_MS);
  }
}

/** Whether a transaction that has ended was committed. */
export async function isCommitted(database: Database, transaction: string): Promise<boolean> {
  const rows = await run<{ status: string | null }>(database, {
    doing: 'checking whether a transaction was committed',
    text: 'SELECT pg_xact_status($1::text::xid8) AS status',
    params: [transaction],
    repeatable: 'yes',
  });
  return rows[0]?.status === 'committed';
}
