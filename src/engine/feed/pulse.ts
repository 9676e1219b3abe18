/**
 * Waiting for events. While a reader waits, this process assigns positions itself: soon after a hint, continuously
 * while there are events and for a moment longer, and less often while nothing happens. Losing every hint costs at most
 * the longest interval. On a standby, where no hint arrives and nothing is assigned, the same polls read what the primary
 * assigned.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { EngineError, isOutage } from '../../contract/errors.ts';
import { spread } from '../../model/retry.ts';
import type { Database } from '../database/database.ts';
import { sequenceEvents } from './events.sql.ts';
import { whenAborted } from '../../model/aborting.ts';
import type { FeedWatcher, Outage, Woken } from './source.ts';

/** Poll interval: the shortest while there are events, doubled up to the longest while there are none. */
const POLL_MS = { shortest: 2, longest: 100 };
/** How long the interval stays the shortest after anything moved: more usually follows. */
const ALERT_MS = 50;
/** Delay before asking an unreachable database again, after consecutive failures. */
const TROUBLE_WAIT_MS = { min: 100, max: 5_000 };
const CLOSE_LIMIT_MS = 2_000;
const UNHEARD =
  'The listening connection was lost: hints from other processes do not arrive until it is open again.';

interface Waiter {
  after: bigint;
  resolve(woken: Woken): void;
  reject(error: unknown): void;
}

/** Wakes readers of the feed when there are new positions. */
export class Pulse {
  readonly #database: Database;
  readonly #unwatch: () => void;
  readonly #onPoll: (last: bigint) => void;
  readonly #waiters = new Set<Waiter>();
  #last = -1n;
  #waitMs = POLL_MS.shortest;
  #polledAt = Number.NEGATIVE_INFINITY;
  /** When something was last assigned, or a hint said that there may be something. */
  #movedAt = Number.NEGATIVE_INFINITY;
  #timer: NodeJS.Timeout | undefined;
  #polling: Promise<void> | undefined;
  /** Set when a read failed or hints stopped arriving, until both work again. */
  #isAway = false;
  #outages = 0;
  #isUnheard = false;
  #troubles = 0;
  #closed = false;

  constructor(
    database: Database,
    watchFeed: (watcher: FeedWatcher) => () => void,
    onPoll: (last: bigint) => void,
  ) {
    this.#database = database;
    this.#onPoll = onPoll;
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

  /** Waits until a position after this one is assigned, or an outage starts. */
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
      // A hint named a position that the read did not find: it came too late, or was wrong. Ask the database.
      if (this.#last > after) this.#stir();
      else if (this.#timer === undefined && this.#polling === undefined) this.#pollIn(this.#waitMs);
    });
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#unwatch();
    clearTimeout(this.#timer);
    for (const waiter of this.#waiters) waiter.reject(new EngineError('closed', 'The engine was closed.'));
    this.#waiters.clear();
    // An unresponsive server must not keep the engine open.
    await Promise.race([this.#polling, delay(CLOSE_LIMIT_MS, undefined, { ref: false })]);
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
    // Hints do not make an unreachable database be polled more often.
    if (this.#troubles === 0) this.#waitMs = POLL_MS.shortest;
    // A poll under way may have missed what the hint is about; another follows it soon.
    this.#movedAt = performance.now();
    if (this.#polling === undefined && this.#waiters.size > 0) this.#pollIn(this.#waitMs);
  }

  /** Counted from the last poll, so that many hints do not cause many polls. */
  #pollIn(ms: number): void {
    if (this.#closed) return;
    clearTimeout(this.#timer);
    const wait = Math.max(0, this.#polledAt + ms - performance.now());
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.#polling = this.#poll().finally(() => {
        this.#polling = undefined;
        if (this.#waiters.size > 0) this.#pollIn(this.#waitMs);
      });
    }, wait);
  }

  async #poll(): Promise<void> {
    this.#polledAt = performance.now();
    try {
      const { last, stamped } = await sequenceEvents(this.#database, 'skip');
      if ((stamped ?? 0) > 0 || last > this.#last) this.#movedAt = performance.now();
      this.#waitMs = this.#polledAt - this.#movedAt < ALERT_MS ? POLL_MS.shortest : this.#longerWait();
      // Not the maximum of both: a hint may be wrong, and a server after a failover may know less.
      this.#last = last;
      this.#onPoll(last);
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

  /** Jittered, so that waiting processes do not poll at the same moment. */
  #longerWait(): number {
    return Math.min(this.#waitMs * 2, POLL_MS.longest) * (0.8 + Math.random() * 0.2);
  }
}
