/**
 * Runs user code in a transaction, on a connection of the engine or through the application's own library, and resolves
 * only after the commit. The transaction is identified when it begins: a step that belongs to it is refused anywhere
 * else.
 */
import type { SqlExecutor, SqlTransaction, Transactor } from '../../contract/transactions.ts';
import { EngineError, isEngineError } from '../../contract/errors.ts';
import { func } from '../../contract/shape/kinds.ts';
import { refuse, shape } from '../../contract/shape/shape.ts';
import { isConnectionLost, toEngineError } from '../database/errors.ts';
import {
  connectionLost,
  executorOf,
  isCommitted,
  isSessionGone,
  nameTransaction,
  type TransactionName,
} from '../database/inside.ts';
import type { EngineContext } from '../kit/context.ts';

type Work<Tx, Value> = (tx: Tx, executor: SqlExecutor) => Promise<Value>;

const transactOptions = shape<{ through?: Transactor<never> }>({ through: func.optional() });

export async function transact<Tx, Value>(
  context: EngineContext,
  work: Work<Tx, Value>,
  options: { through?: Transactor<Tx> },
): Promise<Value> {
  func.check(work, 'work');
  const { through } = transactOptions.check(options, 'options') as { through?: Transactor<Tx> };
  if (through === undefined) {
    return context.transactions.run(work as unknown as Work<SqlTransaction, Value>);
  }
  return transactThrough(context, work, through);
}

/** How far the work got, recorded here because libraries wrap what is thrown in them. */
interface Progress<Value> {
  name?: TransactionName;
  thrown?: { error: unknown };
  returned?: { value: Value };
}

async function transactThrough<Tx, Value>(
  context: EngineContext,
  work: Work<Tx, Value>,
  through: Transactor<Tx>,
): Promise<Value> {
  const progress: Progress<Value> = {};
  try {
    await through(async (tx, executor) => {
      progress.name = await nameTransaction(executor);
      try {
        const value = await work(tx, executorOf(executor, progress.name));
        progress.returned = { value };
        return value;
      } catch (error) {
        progress.thrown = { error };
        throw error;
      }
    });
  } catch (error) {
    throw await reasonOf(context, error, progress);
  }
  const { name, returned } = progress;
  if (returned === undefined) {
    refuse('options.through', 'must run the work and rethrow what it throws');
  }
  // Libraries report success for any reply to COMMIT, even if it was a rollback.
  if (!(await isCommitted(context.database, name!.transaction))) {
    throw new EngineError(
      'retry_transaction',
      'The transaction was rolled back although its library reports no error: a statement in it had failed, or a COMMIT or ROLLBACK inside ended it.',
    );
  }
  return returned.value;
}

/** The work's own error unchanged; a lost connection, whoever noticed it, as the engine's error. */
async function reasonOf<Value>(
  { database }: EngineContext,
  error: unknown,
  { name, thrown, returned }: Progress<Value>,
): Promise<unknown> {
  if (isEngineError(error) || !isConnectionLost(error)) return error;
  if (returned !== undefined) return toEngineError(error, 'committing a transaction');
  if (name === undefined) return toEngineError(error, 'beginning a transaction');
  // The work may use other connections; losing one of those does not concern this transaction.
  if (thrown === undefined || (await isSessionGone(database, name.pid))) return connectionLost(error);
  return error;
}
