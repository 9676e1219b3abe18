/**
 * The answers of the database that callers wait for. Once they are given up, every pending wait and every later one
 * rejects at once.
 */
import { EngineError } from '../../contract/errors.ts';

export class Answers {
  readonly #waiting = new Set<(error: EngineError) => void>();
  #isGivenUp = false;

  /** Resolves as `ask` does, or rejects with `closed` once answers are given up. `ask` must reject, not throw. */
  wait<Answer>(ask: () => Promise<Answer>): Promise<Answer> {
    if (this.#isGivenUp) return Promise.reject(engineClosed());
    return new Promise((resolve, reject) => {
      this.#waiting.add(reject);
      ask().then(
        (answer) => {
          this.#waiting.delete(reject);
          resolve(answer);
        },
        (error: unknown) => {
          this.#waiting.delete(reject);
          reject(error);
        },
      );
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
