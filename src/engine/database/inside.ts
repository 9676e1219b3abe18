/**
 * Statements inside a transaction of somebody else's code. What the engine writes there is meant to be one commit with the rest, so
 * each is sent with the name of the transaction it belongs to: where that has been ended meanwhile, or where there never was one, the
 * database refuses it. Nothing is tried again here: what fails is the caller's to begin anew.
 */
import { setTimeout as pause } from 'node:timers/promises';
import type { SqlExecutor } from '../../contract/transactions.ts';
import { EngineError, isEngineError } from '../../contract/errors.ts';
import { run, type Database, type Statement } from './database.ts';
import { toEngineError } from './errors.ts';
import { plainStatement, readPlainRow } from './plain-statement.ts';

/** Raised by `ff_require_transaction`. */
const ENDED_INSIDE = 'FF007';

/** A session says that it ends before it has; so it is looked for this often, with a rest between. */
const SESSION_LOOKS = 5;
const SESSION_WAIT_MS = 100;

/** Its transaction id, and the process of the server that runs it. */
export interface TransactionName {
  transaction: string;
  pid: number;
}

export const NAME_OF_TRANSACTION =
  'SELECT pg_current_xact_id()::text AS transaction, pg_backend_pid() AS pid';

/** Whose transaction it is: of one that the engine has seen begin it is known that there is one. */
type Whose = 'begun here' | "the caller's";

/** Only of executors made here: of others it is not known how long they are used. */
const names = new WeakMap<SqlExecutor, TransactionName & { whose: Whose }>();

/** The same executor, known to belong to this transaction. */
export function executorOf(
  executor: SqlExecutor,
  name: TransactionName,
  whose: Whose = 'begun here',
): SqlExecutor {
  const own: SqlExecutor = (text, params) => executor(text, params);
  names.set(own, { ...name, whose });
  return own;
}

/** Which transaction the executor is in now; where it is in none, each statement has one of its own. */
export async function nameTransaction(executor: SqlExecutor): Promise<TransactionName> {
  const known = names.get(executor);
  if (known !== undefined) return known;
  const rows = await runInside<TransactionName>(executor, {
    doing: 'looking which transaction this is',
    text: NAME_OF_TRANSACTION,
    params: [],
    repeatable: 'no',
  });
  return rows[0]!;
}

/** The caller's executor for one call of the engine, all statements of which belong to the transaction it is in now. */
export async function insideOf(executor: SqlExecutor): Promise<SqlExecutor> {
  if (names.has(executor)) return executor;
  return executorOf(executor, await nameTransaction(executor), "the caller's");
}

/** Runs a statement that is made for one transaction. */
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
      'options.executor is inside no transaction, or not inside the same one throughout: begin one on its connection (a pool will not do), or leave the executor out. Nothing was written.';
    throw new EngineError('invalid_input', sentence, { field: 'options.executor', cause: error.cause });
  }
}

/**
 * Runs a statement inside the caller's transaction: once, and what fails there is the caller's to try again. It is sent as one that any
 * library and any settings of it carry unchanged.
 */
export async function runInside<Row>(executor: SqlExecutor, statement: Statement<Row>): Promise<Row[]> {
  try {
    const { text, params } = plainStatement(statement.text, statement.params);
    const answer = await executor(text, params);
    if (Array.isArray(answer?.rows)) return answer.rows.map(readPlainRow<Row>);
    throw new EngineError('invalid_input', 'executor must answer an object with rows.', {
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

/** The connection of a transaction is gone; so nothing of it was committed, and it may be begun anew. */
export function connectionLost(cause: unknown): EngineError {
  const sentence = 'The connection of a transaction was lost before its COMMIT: nothing of it was committed.';
  return new EngineError('unavailable', sentence, { cause });
}

/** Whether the server has ended the connection of a transaction. Asked elsewhere: not every library survives a question on a dead one. */
export async function isSessionGone(database: Database, pid: number): Promise<boolean> {
  for (let looks = 1; ; looks += 1) {
    const rows = await run(database, {
      doing: 'looking for the session of a transaction',
      text: 'SELECT FROM pg_stat_activity WHERE pid = $1::integer',
      params: [pid],
      repeatable: 'yes',
    });
    if (rows.length === 0) return true;
    if (looks >= SESSION_LOOKS) return false;
    await pause(SESSION_WAIT_MS);
  }
}

/** Whether a transaction that is over was committed. */
export async function isCommitted(database: Database, transaction: string): Promise<boolean> {
  const rows = await run<{ status: string | null }>(database, {
    doing: 'looking whether a transaction was committed',
    text: 'SELECT pg_xact_status($1::text::xid8) AS status',
    params: [transaction],
    repeatable: 'yes',
  });
  return rows[0]?.status === 'committed';
}
