/**
 * Limits how many callers work at the same time. The others wait in order, up to a limit. A long wait is reported once,
 * and again only after the queue was empty.
 */
import { ConnectionWaitOver, EngineError } from '../../contract/errors.ts';
import { LIMITS } from '../../contract/limits.ts';
import { engineClosed } from './answers.ts';

export interface SlotsOptions {
  count: number;
  /** A sentence on where the limit comes from, for the error and the process warning. */
  describe(): string;
}

interface Waiting {
  enter(): void;
  refuse(error: EngineError): void;
}

export class Slots {
  readonly #waiting = new Set<Waiting>();
  readonly #options: SlotsOptions;
  #free: number;
  #isReported = false;
  #isClosed = false;

  constructor(options: SlotsOptions) {
    this.#options = options;
    this.#free = options.count;
  }

  async use<Value>(work: () => Promise<Value>): Promise<Value> {
    if (this.#isClosed) throw engineClosed();
    if (this.#options.count < 1) {
      throw new EngineError('invalid_input', 'pool needs at least two connections to run transactions.', {
        field: 'pool',
      });
    }
    if (this.#free > 0) this.#free -= 1;
    else await this.#wait();
    try {
      return await work();
    } finally {
      this.#leave();
    }
  }

  /** Refuses new callers and those that wait. */
  close(): void {
    this.#isClosed = true;
    for (const waiting of this.#waiting) waiting.refuse(engineClosed());
  }

  #wait(): Promise<void> {
    return new Promise((resolve, reject) => {
      const report = setTimeout(() => this.#report(), LIMITS.connectionReportMs);
      const limit = setTimeout(
        () => waiting.refuse(new ConnectionWaitOver(this.#sentence(LIMITS.connectionWaitMs))),
        LIMITS.connectionWaitMs,
      );
      const leave = (): void => {
        clearTimeout(report);
        clearTimeout(limit);
        this.#waiting.delete(waiting);
      };
      const waiting: Waiting = {
        enter() {
          leave();
          resolve();
        },
        refuse(error) {
          leave();
          reject(error);
        },
      };
      this.#waiting.add(waiting);
    });
  }

  #leave(): void {
    const [next] = this.#waiting;
    if (next === undefined) this.#free += 1;
    else next.enter();
    if (this.#waiting.size === 0) this.#isReported = false;
  }

  #report(): void {
    if (this.#isReported) return;
    this.#isReported = true;
    process.emitWarning(this.#sentence(LIMITS.connectionReportMs), { code: 'FLOWFABRIC_NO_CONNECTION' });
  }

  #sentence(waitedMs: number): string {
    const taken = `A transaction got no connection within ${waitedMs / 1_000} s: all ${this.#options.count} are in use by other transactions.`;
    return `${taken} Make transactions shorter, or start another process. ${this.#options.describe()}`;
  }
}
