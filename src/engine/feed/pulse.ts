/**
 * Waiting for events. While somebody waits, this process gives positions out itself: soon after something stirred, at once again
 * while there is much, and less and less often while nothing happens. Losing every hint costs no more than the longest interval.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { EngineError, isOutage } from '../../contract/errors.ts';
import { spread } from '../../model/retry.ts';
import type { Database } from '../database/database.ts';
import { sequenceEvents } from './events.sql.ts';
import { whenAborted } from '../../model/aborting.ts';
import type { FeedWatcher, Outage, Woken } from './source.ts';

/** Between two looks: so long when there is much, doubled up to the longest while there is nothing. */
const LOOK_MS = { shortest: 10, longest: 100 };
/** Before a database that is away is asked again, in a row of failures. */
const TROUBLE_WAIT_MS = { min: 100, max: 5_000 };
const CLOSE_LIMIT_MS = 2_000;
const UNHEARD =
  'The listening connection was lost: hints of other processes are not heard until it is open again.';

interface Waiter {
  after: bigint;
  resolve(woken: Woken): void;
  reject(error: unknown): void;
}

export class Pulse {
  readonly #database: Database;
  readonly #unwatch: () => void;
  readonly #onLook: (last: bigint) => void;
  readonly #waiters = new Set<Waiter>();
  #last = -1n;
  #waitMs = LOOK_MS.shortest;
  #lookedAt = Number.NEGATIVE_INFINITY;
  #timer: NodeJS.Timeout | undefined;
  #looking: Promise<void> | undefined;
  /** Something stirred while a look was under way: it may have come too late for it. */
  #stirred = false;
  /** It began when something could not be read or heard, and lasts until everything can. */
  #isAway = false;
  #outages = 0;
  #isUnheard = false;
  #troubles = 0;
  #closed = false;

  constructor(
    database: Database,
    watchFeed: (watcher: FeedWatcher) => () => void,
    onLook: (last: bigint) => void,
  ) {
    this.#database = database;
    this.#onLook = onLook;
    this.#unwatch = watchFeed({
      moved: (last) => this.#moved(last),
      stirred: () => this.#stir(),
      lost: () => {
        this.#isUnheard = true;
        this.#wake(this.outage(UNHEARD), () => true);
      },
      found: () => {
        this.#isUnheard = false;
      },
    });
  }

  /** Until a position after this one is known to be given out, or nothing can be heard. */
  wait(after: bigint, signal: AbortSignal): Promise<Woken> {
    if (signal.aborted) return Promise.reject(signal.reason as Error);
    if (this.#closed) return Promise.reject(new EngineError('closed', 'The engine was closed.'));
    return new Promise((resolve, reject) => {
      const waiter: Waiter = {
        after,
        resolve(woken) {
          stop();
          resolve(woken);
        },
        reject(error) {
          stop();
          reject(error as Error);
        },
      };
      const stop = whenAborted(signal, () => {
        this.#waiters.delete(waiter);
        reject(signal.reason as Error);
      });
      this.#waiters.add(waiter);
      // Heard of something that was not there to read: too late for the read, or never true. The database knows.
      if (this.#last > after) this.#stir();
      else if (this.#timer === undefined && this.#looking === undefined) this.#lookIn(this.#waitMs);
    });
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#unwatch();
    clearTimeout(this.#timer);
    for (const waiter of this.#waiters) waiter.reject(new EngineError('closed', 'The engine was closed.'));
    this.#waiters.clear();
    // A server that gives no answer must not keep the engine open.
    await Promise.race([this.#looking, pause(CLOSE_LIMIT_MS, undefined, { ref: false })]);
  }

  #moved(last: bigint): void {
    if (last > this.#last) this.#last = last;
    this.#wake('moved', (waiter) => waiter.after < this.#last);
  }

  #wake(woken: Woken, whom: (waiter: Waiter) => boolean): void {
    for (const waiter of this.#waiters) {
      if (!whom(waiter)) continue;
      this.#waiters.delete(waiter);
      waiter.resolve(woken);
    }
  }

  outage(reason: string): Outage {
    if (!this.#isAway) this.#outages += 1;
    this.#isAway = true;
    return { number: this.#outages, reason };
  }

  #stir(): void {
    // However much is heard of, a database that is away is not asked more often.
    if (this.#troubles === 0) this.#waitMs = LOOK_MS.shortest;
    if (this.#looking !== undefined) this.#stirred = true;
    else if (this.#waiters.size > 0) this.#lookIn(this.#waitMs);
  }

  /** Counted from the last look, so that many hints do not make many looks. */
  #lookIn(ms: number): void {
    if (this.#closed) return;
    clearTimeout(this.#timer);
    const wait = Math.max(0, this.#lookedAt + ms - performance.now());
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.#looking = this.#look().finally(() => {
        this.#looking = undefined;
        if (this.#waiters.size > 0) this.#lookIn(this.#waitMs);
      });
    }, wait);
  }

  async #look(): Promise<void> {
    this.#stirred = false;
    this.#lookedAt = performance.now();
    try {
      const { last, stamped } = await sequenceEvents(this.#database, 'skip');
      const busy = stamped > 0 || last > this.#last || this.#stirred;
      this.#waitMs = busy ? LOOK_MS.shortest : this.#longerWait();
      // Not the highest ever heard of: a hint may be wrong, and a server that took over may know less.
      this.#last = last;
      this.#onLook(last);
      this.#troubles = 0;
      this.#isAway = this.#isUnheard;
      this.#moved(last);
    } catch (error) {
      this.#troubles += 1;
      this.#waitMs = spread(TROUBLE_WAIT_MS, this.#troubles, Math.random());
      if (isOutage(error)) return this.#wake(this.outage(error.message), () => true);
      for (const waiter of this.#waiters) waiter.reject(error);
      this.#waiters.clear();
    }
  }

  /** Spread, so that processes that wait for the same do not look at the same moment. */
  #longerWait(): number {
    return Math.min(this.#waitMs * 2, LOOK_MS.longest) * (0.8 + Math.random() * 0.2);
  }
}
