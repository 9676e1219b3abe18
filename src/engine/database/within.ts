/**
 * The limit of one wait for the database or for a connection to it: whoever asked hears of it by then.
 * What was asked for is not stopped by it; that is the affair of whoever holds the connection.
 */
import type { EngineError } from '../../contract/errors.ts';

/** Rejects when there is no answer in time. One that has arrived while this process was busy elsewhere still counts. */
export function within<Answer>(
  limitMs: number,
  answer: Promise<Answer>,
  late: () => EngineError,
): Promise<Answer> {
  return new Promise((resolve, reject) => {
    // What has arrived is read before an immediate runs.
    const timer = setTimeout(() => setImmediate(() => reject(late())), limitMs);
    answer.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}
