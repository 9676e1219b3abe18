/**
 * Answers of the database that somebody waits for, until they are given up: then every wait ends at once, and so does
 * whatever is asked afterwards.
 */
import { EngineError } from '../../contract/errors.ts';

export class Answers {
  readonly #waiting = new Set<(error: EngineError) => void>();
  #isGivenUp = false;

  /** What is awaited (by a function that does not throw, but rejects), or `closed` as soon as answers are given up. */
  wait<Answer>(ask: () => Promise<Answer>): Promise<Answer> {
    if (this.#isGivenUp) return Promise.reject(engineClosed());
    return new Promise((resolve, reject) => {
      this.#waiting.add(reject);
      ask()
        .then(resolve, reject)
        .finally(() => this.#waiting.delete(reject));
    });
  }

  giveUp(): void {
    this.#isGivenUp = true;
    for (const reject of this.#waiting) reject(engineClosed());
    this.#waiting.clear();
  }
}

export function engineClosed(): EngineError {
  return new EngineError('closed', 'The engine was closed before the database answered.');
}
