/**
 * Limits one wait for the database or for a connection to it: the caller gets an answer or an error by then.
 * The work itself is not stopped; that is up to the owner of the connection.
 */
import type { EngineError } from '../../contract/errors.ts';

/** Rejects when there is no answer in time. An answer that arrived while the process was busy still counts. */
export function within<Answer>(
  limitMs: number,
  answer: Promise<Answer>,
  late: () => EngineError,
): Promise<Answer> {
  return new Promise((resolve, reject) => {
    // Pending input is read before an immediate runs.
    const timer = setTimeout(() => setImmediate(() => reject(late())), limitMs);
    answer.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}
