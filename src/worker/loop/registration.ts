/**
 * A worker's row in the registry: written when it starts, refreshed at an interval, removed when it stops. The registry
 * is informational; nothing depends on it, so its errors are reported and never stop the worker from working.
 */
import type { WorkerPort, WorkerRegistration } from '../../contract/protocol.ts';
import { isEngineError } from '../../contract/errors.ts';
import { LAST_WORD_MS, withDeadline } from '../../contract/stopping.ts';

/** Time between two refreshes, jittered so that workers started together do not stay in step. */
const REFRESH_MS = 10_000;

export interface RegistrationOptions {
  /** The current state of the worker. */
  describe(): WorkerRegistration;
  onError(error: unknown): void;
  /** Called before each refresh. */
  onBeat?(): void;
  /** Default 10 s. */
  refreshMs?: number;
}

export class Registration {
  readonly #port: WorkerPort;
  readonly #options: RegistrationOptions;
  readonly #refreshMs: number;
  #timer: NodeJS.Timeout | undefined;
  /** Statements run one after the other: a late refresh must not restore a row that was removed. */
  #last: Promise<void> = Promise.resolve();
  #closed = false;

  constructor(port: WorkerPort, options: RegistrationOptions) {
    this.#port = port;
    this.#options = options;
    this.#refreshMs = options.refreshMs ?? REFRESH_MS;
    this.#beat();
  }

  /** Writes the current state now. */
  refresh(): void {
    this.#send(() => this.#port.registerWorker(this.#options.describe()));
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    clearTimeout(this.#timer);
    const { workerInstanceId } = this.#options.describe();
    this.#last = this.#last.then(() => this.#try(() => this.#port.forgetWorker(workerInstanceId)));
    // A row that is left over is removed later, as that of a silent worker.
    await withDeadline(this.#last, LAST_WORD_MS);
  }

  #beat(): void {
    this.#options.onBeat?.();
    this.refresh();
    void this.#last.then(() => this.#arm());
  }

  /** Starts after the previous statement, so that refreshes never queue up; does not keep the process alive. */
  #arm(): void {
    if (this.#closed) return;
    this.#timer = setTimeout(() => this.#beat(), this.#refreshMs * (0.8 + Math.random() * 0.4));
    this.#timer.unref();
  }

  #send(call: () => Promise<void>): void {
    this.#last = this.#last.then(() => (this.#closed ? undefined : this.#try(call)));
  }

  async #try(call: () => Promise<void>): Promise<void> {
    try {
      await call();
    } catch (error) {
      if (isEngineError(error) && error.code === 'closed') {
        // The claim loop reports this error; the registry can no longer be written.
        this.#closed = true;
        return;
      }
      this.#options.onError(error);
    }
  }
}
