/**
 * Runs the function of one `ctx.tx` and records its step in the same transaction. A transaction whose connection is
 * lost before its COMMIT has done nothing, so the function is called again, under the same lease and a few times; if
 * the reply to the COMMIT was lost, the stored step tells what happened.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { WorkerPort } from '../../contract/protocol.ts';
import type { SqlExecutor, Transactor } from '../../contract/transactions.ts';
import { EngineError, isEngineError, isPassingTrouble } from '../../contract/errors.ts';
import { LIMITS } from '../../contract/limits.ts';
import { spread } from '../../model/retry.ts';
import type { Logger } from '../../define/task-context.ts';
import { insistOnConnection } from './insist.ts';
import type { HeldLease } from '../loop/lease-watch.ts';
import { stepDuration } from './run-step.ts';
import type { StepBook } from './step-book.ts';
import { subjectOf } from '../task.ts';

/** Delay before the function is called again; a server that restarts is back within seconds. */
const RETRY_WAIT_MS = { min: 50, max: 2_000 };

export interface TransactionRun<Tx> {
  port: WorkerPort;
  lease: HeldLease;
  book: StepBook;
  name: string;
  key: string;
  through: Transactor<Tx> | undefined;
  work: (tx: Tx) => Promise<unknown>;
  log: Logger;
}

/** The result of one try. `isBegun`: user code was called. */
interface Tried {
  isBegun: boolean;
  isRecorded: boolean;
  /** Set when the step had been committed before: then this transaction was rolled back. */
  earlier?: { value: unknown };
  outcome: { value: unknown } | { error: unknown };
}

export async function runTransaction<Tx>(run: TransactionRun<Tx>): Promise<unknown> {
  const { lease, book, name, key } = run;
  const report = ({ code, message }: EngineError): void => run.log.warn({ code }, `ctx.tx waits. ${message}`);
  let isDoubtful = false;
  for (let tries = 1; ; tries += 1) {
    lease.throwIfStopped();
    const tried = await insistOnConnection(lease, () => tryOnce(run), report);
    if (tried.earlier !== undefined) return tried.earlier.value;
    if ('value' in tried.outcome) return tried.outcome.value;
    const { error } = tried.outcome;
    // Only the reply to the COMMIT may have been lost, not the COMMIT; and the COMMIT may arrive during the next try.
    isDoubtful ||= tried.isRecorded;
    const committed = isDoubtful ? await book.readAgain(name, key) : undefined;
    if (committed !== undefined) return committed.value;
    if (!isEngineError(error) || error.code !== 'unavailable') throw error;
    if (tries >= LIMITS.transactionTries) throw lostTooOften(run, error);
    const waitMs = spread(RETRY_WAIT_MS, tries, Math.random());
    await delay(waitMs, undefined, { signal: lease.signal }).catch(() => undefined);
  }
}

/** Throws only transient errors that kept the transaction from starting. */
async function tryOnce<Tx>({
  port,
  lease,
  book,
  name,
  key,
  through,
  work,
}: TransactionRun<Tx>): Promise<Tried> {
  const tried: Tried = { isBegun: false, isRecorded: false, outcome: { value: undefined } };
  const inside = async (tx: Tx, executor: SqlExecutor): Promise<unknown> => {
    tried.isBegun = true;
    lease.throwIfStopped();
    const begunMs = performance.now();
    const value = await work(tx);
    const done = { name, key, value, durationMs: stepDuration(begunMs) };
    const { repeated, step } = await book.recordInside(done, executor);
    tried.isRecorded = true;
    if (repeated) {
      tried.earlier = { value: step.value };
      throw new EngineError('retry_transaction', 'The step is stored already: roll back.');
    }
    return step.value;
  };
  try {
    tried.outcome = { value: await port.transact(inside, through === undefined ? {} : { through }) };
  } catch (error) {
    if (!tried.isBegun && isPassingTrouble(error)) throw error;
    tried.outcome = { error };
  }
  return tried;
}

function lostTooOften(
  { lease, name }: Pick<TransactionRun<never>, 'lease' | 'name'>,
  { code, sqlState, cause }: EngineError,
): EngineError {
  const sentence = `the connection of ctx.tx('${name}') was lost ${LIMITS.transactionTries} times in a row; nothing of it was committed`;
  return new EngineError(code, `${subjectOf(lease.claim)}: ${sentence}.`, {
    cause,
    ...(sqlState === undefined ? {} : { sqlState }),
  });
}
