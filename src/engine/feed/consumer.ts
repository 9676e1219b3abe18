/**
 * A consumer: passes events to user code in a transaction and moves its position as the last statement, so that the
 * handler's writes and the position are one commit. Only the stored position decides whether a batch counted: after a
 * failure, a lost race or a lost response it is read again. Holding the name only spares other instances the work.
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import type { Transactor } from '../../contract/transactions.ts';
import { EngineError, isEngineError, isOutage } from '../../contract/errors.ts';
import type { Consumer, EventHandler } from '../../contract/feed.ts';
import { LIMITS } from '../../contract/limits.ts';
import { deadlineOf, LAST_WORD_MS, withDeadline, type StopOptions } from '../../contract/stopping.ts';
import {
  holdConsumer,
  moveConsumer,
  moveConsumerInside,
  readConsumer,
  recordConsumerFailure,
  releaseConsumer,
} from './consumers.sql.ts';
import { spread } from '../../model/retry.ts';
import type { Database } from '../database/database.ts';
import { isConnectionLost, sqlStateOf, toEngineError } from '../database/errors.ts';
import type { StoredEventFilter } from './events.sql.ts';
import { nameTransaction } from '../database/inside.ts';
import { whenAborted } from '../../model/aborting.ts';
import type { FeedPage, FeedSource } from './source.ts';

/** After this long without a renewal another instance takes over the name. */
export const HOLD_MS = 10_000;
/** How often the hold is renewed, and the position moved past events that do not match. */
const RENEW_MS = HOLD_MS / 3;
/** How often a standby instance tries to take over the name. */
const STANDBY_MS = { min: 500, max: 1_500 };
/** Uses the whole range from the first poll on. */
const STANDBY_POLLS = 2;
/** Delay before the handler is called again with the same events. */
const RETRY_WAIT_MS = { min: 200, max: 30_000 };
/** Delay before asking the database again. */
const TROUBLE_WAIT_MS = { min: 200, max: 5_000 };
/**
 * Consecutive lost connections blamed on the database; beyond that on the handler, which may idle or write too much.
 */
const SILENT_TROUBLES = 3;
/** A handler that never finishes must not keep a process alive. */
export const STOP_DEADLINE_MS = 30_000;
/** Positions examined for one batch before the position is moved. */
const WALK = BigInt(LIMITS.eventsExamined * 4);
/** Error names that may be stored with a failure. Messages are not stored, because they may quote data. */
const ERROR_NAME = /^[A-Za-z0-9][\w.]{0,63}$/;

export interface ConsumerOptions {
  database: Database;
  source: FeedSource;
  /** The consumer must exist. */
  name: string;
  filter: StoredEventFilter;
  batch: number;
  transact: Transactor<unknown>;
  handler: EventHandler<unknown>;
  onError: ((error: unknown, failures: number) => void) | undefined;
  signal: AbortSignal | undefined;
}

/** A consumer as its engine sees it. */
export interface OpenConsumer extends Consumer {
  /** Stops, and waits only for the handler. */
  drain(deadlineMs: number): Promise<void>;
}

export function startConsumer(options: ConsumerOptions): OpenConsumer {
  return new EventConsumer(options);
}

type Work = Parameters<Transactor<unknown>>[0];

/** The outcome of a batch. `lost`: another instance moved the position. */
type HandedOver = 'moved' | 'lost' | { error: unknown; by: Culprit };
/** What failed. `nobody`: the handler was not reached. */
type Culprit = 'handler' | 'transaction' | 'nobody';
const CULPRITS: Record<string, Culprit> = { nothing: 'nobody', handler: 'handler' };

class EventConsumer implements OpenConsumer {
  readonly name: string;
  readonly done: Promise<void>;
  readonly #options: ConsumerOptions;
  readonly #database: Database;
  readonly #holder = randomUUID();
  readonly #closing = new AbortController();
  /** The stored position as last seen; undefined when it must be read again. */
  #place: bigint | undefined;
  /** No event between the position and here matches. */
  #readTo = 0n;
  #heldAt = Number.NEGATIVE_INFINITY;
  /** Consecutive failures of the handler, and of the database. */
  #failures = 0;
  #troubles = 0;
  /** Settles when no handler is running. */
  #handling: Promise<unknown> = Promise.resolve();

  constructor(options: ConsumerOptions) {
    this.#options = options;
    this.#database = options.database;
    this.name = options.name;
    this.done = this.#run().catch(async (error: unknown) => {
      void this.#tell(error, 0, 'has stopped');
      // For operators: it did not stop on purpose.
      if (!isClosed(error))
        await recordConsumerFailure(this.#database, this.name, codeOf(error), null).catch(() => undefined);
      throw error;
    });
    // An unobserved rejection must not end the process.
    this.done.catch(() => undefined);
  }

  async stop(options: StopOptions = {}): Promise<void> {
    await this.drain(deadlineOf(options, STOP_DEADLINE_MS));
    await withDeadline(
      this.done.catch(() => undefined),
      LAST_WORD_MS,
    );
  }

  async drain(deadlineMs: number): Promise<void> {
    this.#closing.abort();
    await withDeadline(this.#handling, deadlineMs);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  async #run(): Promise<void> {
    const unlink = whenAborted(this.#options.signal, () => this.#closing.abort());
    try {
      while (!this.#closing.signal.aborted) await this.#roundOrRest();
      // The next instance need not examine these events again.
      await this.#passBy().catch(() => undefined);
    } finally {
      unlink();
      // A hold that cannot be released lapses.
      await releaseConsumer(this.#database, this.name, this.#holder).catch(() => undefined);
    }
  }

  async #roundOrRest(): Promise<void> {
    try {
      await this.#round();
      this.#troubles = 0;
    } catch (error) {
      this.#place = undefined;
      if (isClosed(error) && this.#closing.signal.aborted) return;
      if (!isOutage(error)) throw error;
      this.#troubles += 1;
      // Once, however long it lasts.
      if (this.#troubles === 1) void this.#tell(error, 0, 'waits for the database');
      await this.#rest(spread(TROUBLE_WAIT_MS, this.#troubles, Math.random()));
    }
  }

  async #round(): Promise<void> {
    const now = performance.now();
    const renews = this.#place === undefined || now - this.#heldAt >= RENEW_MS;
    if (renews) {
      const place = await this.#hold();
      if (place === undefined) return this.#standBy();
      this.#heldAt = now;
      if (place !== this.#place) this.#continueFrom(place);
    }
    const page = await this.#walk();
    if (this.#closing.signal.aborted) return;
    if (page.events.length > 0) return this.#handOver(page);
    this.#readTo = page.to;
    // Not for each event that does not match, but with every renewal.
    if (renews || !page.atEnd) await this.#passBy();
    if (page.atEnd && this.#place !== undefined) await this.#waitForMore();
  }

  #hold(): Promise<bigint | undefined> {
    return holdConsumer(this.#database, this.name, this.#holder, HOLD_MS);
  }

  #continueFrom(place: bigint): void {
    this.#place = place;
    this.#readTo = place;
  }

  async #standBy(): Promise<void> {
    this.#place = undefined;
    await this.#currentPlace();
    await this.#rest(spread(STANDBY_MS, STANDBY_POLLS, Math.random()));
  }

  async #currentPlace(): Promise<bigint> {
    const place = await readConsumer(this.#database, this.name);
    if (place !== undefined) return place;
    throw new EngineError('not_found', 'The consumer was forgotten.', { field: 'name' });
  }

  /** Reads on to the next matching events, up to one batch. */
  async #walk(): Promise<FeedPage> {
    const { source, filter, batch } = this.#options;
    const walked: FeedPage = { events: [], to: this.#readTo, atEnd: false };
    do {
      const page = await source.read(walked.to, filter, batch - walked.events.length);
      walked.events.push(...page.events);
      walked.to = page.to;
      walked.atEnd = page.atEnd;
    } while (!walked.atEnd && walked.events.length < batch && walked.to - this.#readTo < WALK);
    return walked;
  }

  async #handOver(page: FeedPage): Promise<void> {
    const from = this.#place!;
    const handing = this.#transact(from, page);
    this.#handling = handing;
    const handed = await this.#renewingMeanwhile(() => handing);
    if (typeof handed === 'object') return this.#failed(from, handed.error, handed.by);
    this.#failures = 0;
    if (handed === 'lost') this.#place = undefined;
    else this.#continueFrom(page.to);
  }

  /**
   * Runs the handler and moves the position in one transaction. A failure is judged by what was reached, because
   * libraries wrap errors.
   */
  async #transact(from: bigint, { events, to }: FeedPage): Promise<HandedOver> {
    const { transact, handler } = this.#options;
    let reached: 'nothing' | 'handler' | 'move' | 'lost' | 'moved' = 'nothing';
    try {
      const work: Work = async (tx, executor) => {
        if (this.#closing.signal.aborted) throw new EngineError('closed', 'The consumer was stopped.');
        const { transaction } = await nameTransaction(executor);
        reached = 'handler';
        await handler(events, tx);
        reached = 'move';
        const place = { from, to, transaction };
        const moved = await moveConsumerInside(executor, this.#database, this.name, place);
        reached = moved ? 'moved' : 'lost';
        if (!moved)
          throw new EngineError('retry_transaction', 'Another instance moved the consumer: roll back.');
      };
      await this.#unlessStoppedBefore(() => reached === 'nothing', transact(work));
    } catch (error) {
      // Assigned in a callback, which the compiler does not follow.
      const at = reached as string;
      if (at === 'lost') return 'lost';
      return { error, by: CULPRITS[at] ?? 'transaction' };
    }
    if ((reached as string) === 'moved') return 'moved';
    const sentence = 'transact must run the work and rethrow what it throws.';
    return { error: new EngineError('invalid_input', sentence, { field: 'transact' }), by: 'handler' };
  }

  /** A consumer stopped while it waits for a connection need not wait any longer. */
  #unlessStoppedBefore(isBefore: () => boolean, transacting: Promise<unknown>): Promise<unknown> {
    return new Promise((resolve, reject) => {
      const stop = whenAborted(this.#closing.signal, () => {
        if (isBefore()) reject(new EngineError('closed', 'The consumer was stopped.'));
      });
      transacting.then(resolve, reject).finally(stop);
    });
  }

  /** Renews the hold while the handler runs, which may take longer than a hold lasts. */
  async #renewingMeanwhile<Value>(work: () => Promise<Value>): Promise<Value> {
    let renewing: Promise<void> | undefined;
    const renew = async (): Promise<void> => {
      const now = performance.now();
      // A lost hold shows when the position is moved.
      const place = await this.#hold().catch(() => undefined);
      if (place !== undefined) this.#heldAt = now;
      renewing = undefined;
    };
    const timer = setInterval(() => (renewing ??= renew()), RENEW_MS);
    try {
      return await work();
    } finally {
      clearInterval(timer);
      // A renewal after the release would take the name again.
      await renewing;
    }
  }

  async #failed(from: bigint, error: unknown, by: Culprit): Promise<void> {
    this.#place = undefined;
    // Another instance that did the same work may be the cause, and a commit whose response was lost has still
    // happened.
    if ((await this.#currentPlace()) !== from) {
      this.#failures = 0;
      return;
    }
    if (by !== 'handler' && isClosed(error)) throw error;
    // Permanent: for example a pool without room for transactions.
    if (by === 'nobody' && isEngineError(error) && error.code === 'invalid_input') throw error;
    if (isTroubleOf(error, by, this.#troubles)) throw toEngineError(error, 'passing on events');
    this.#failures += 1;
    // Without onError, warn at the first failure, the second, the fourth, …
    const isTold = (this.#failures & (this.#failures - 1)) === 0;
    const what = this.#failures === 1 ? 'failed' : `failed ${this.#failures} times in a row`;
    void this.#tell(error, this.#failures, isTold ? what : undefined);
    await recordConsumerFailure(this.#database, this.name, codeOf(error), from);
    await this.#rest(spread(RETRY_WAIT_MS, this.#failures, Math.random()));
  }

  /** Reports to onError; without one it emits a process warning, because a silent failure would look like idleness. */
  async #tell(error: unknown, failures: number, what: string | undefined): Promise<void> {
    const { onError } = this.#options;
    if (onError === undefined) return this.#warn(error, what);
    try {
      await onError(error, failures);
    } catch {
      // A failing onError, even later, must stop neither the consumer nor the process.
    }
  }

  #warn(error: unknown, what: string | undefined): void {
    if (what === undefined || isClosed(error)) return;
    process.emitWarning(
      `Consumer "${this.name}" ${what} (${codeOf(error)}). Give consume() an onError to see why.`,
    );
  }

  /** Moves the position past events that do not match. */
  async #passBy(): Promise<void> {
    const from = this.#place;
    if (from === undefined || from === this.#readTo) return;
    const moved = await moveConsumer(this.#database, this.name, from, this.#readTo);
    this.#place = moved ? this.#readTo : undefined;
  }

  /** Waits until there is more, or the hold must be renewed. */
  async #waitForMore(): Promise<void> {
    const over = new AbortController();
    const onOver = (): void => over.abort();
    const timer = setTimeout(onOver, Math.max(1, this.#heldAt + RENEW_MS - performance.now()));
    this.#closing.signal.addEventListener('abort', onOver, { once: true });
    try {
      if (!this.#closing.signal.aborted) await this.#options.source.wait(this.#readTo, over.signal);
    } catch (error) {
      if (!over.signal.aborted) throw error;
    } finally {
      clearTimeout(timer);
      this.#closing.signal.removeEventListener('abort', onOver);
    }
  }

  async #rest(ms: number): Promise<void> {
    await delay(ms, undefined, { signal: this.#closing.signal }).catch(() => undefined);
  }
}

/**
 * Whether an error is an outage to wait for, not a failure of the handler: anything before the handler was reached, and
 * a connection that broke under it a few times.
 */
function isTroubleOf(error: unknown, by: Culprit, troubles: number): boolean {
  if (codeOf(error) === 'Error') return false;
  if (by === 'nobody') return isOutage(toEngineError(error, 'passing on events'));
  if (troubles >= SILENT_TROUBLES) return false;
  // A handler may use other connections, whose loss does not concern this one.
  if (by === 'handler') return isConnectionLost(error, 'server');
  return toEngineError(error, 'passing on events').code === 'unavailable';
}

function isClosed(error: unknown): boolean {
  return isEngineError(error) && error.code === 'closed';
}

/** Never the message, which may quote data. Anything may have been thrown, and reading its name may throw again. */
function codeOf(error: unknown): string {
  try {
    const code = isEngineError(error) ? error.code : (sqlStateOf(error) ?? (error as Error).name);
    return ERROR_NAME.test(code) ? code : 'Error';
  } catch {
    return 'Error';
  }
}
