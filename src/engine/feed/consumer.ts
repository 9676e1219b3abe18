/**
 * A consumer: hands events to user code in a transaction and moves its place as the last statement of it, so that what the
 * handler wrote and the place are one commit. Whether a batch counted is decided by the place in the database and nothing else:
 * after a failure, a lost race or an answer that never came it is read again. Holding the name only spares rivals the work.
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
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

/** After this long without a word of its holder another instance takes the name. */
export const HOLD_MS = 10_000;
/** How often the hold is renewed, and the place moved past events that do not concern it. */
const RENEW_MS = HOLD_MS / 3;
/** How often an instance that does not hold the name looks whether it can. */
const STANDBY_MS = { min: 500, max: 1_500 };
/** Over the whole range from the first look on. */
const STANDBY_LOOKS = 2;
/** Before the same events are handed over again. */
const RETRY_WAIT_MS = { min: 200, max: 30_000 };
/** Before the database is asked again. */
const TROUBLE_WAIT_MS = { min: 200, max: 5_000 };
/** So often in a row a broken connection is not the handler's doing; then it may be, by staying idle or writing too much. */
const SILENT_TROUBLES = 3;
/** A handler that does not come to its end must not keep a process from ending. */
export const STOP_DEADLINE_MS = 30_000;
/** Positions walked through for one batch before the place is moved. */
const WALK = BigInt(LIMITS.eventsExamined * 4);
/** What is stored of a failure besides a code of ours or the database's: a name, and nothing that may quote data. */
const ERROR_NAME = /^[A-Za-z0-9][\w.]{0,63}$/;

export interface ConsumerOptions {
  database: Database;
  source: FeedSource;
  /** Is entered already. */
  name: string;
  filter: StoredEventFilter;
  batch: number;
  transact: Transactor<unknown>;
  handler: EventHandler<unknown>;
  onError: ((error: unknown, failures: number) => void) | undefined;
  signal: AbortSignal | undefined;
}

/** For the engine it ends with. */
export interface OpenConsumer extends Consumer {
  /** Stops, and waits for the handler and nothing else. */
  drain(deadlineMs: number): Promise<void>;
}

export function startConsumer(options: ConsumerOptions): OpenConsumer {
  return new EventConsumer(options);
}

type Work = Parameters<Transactor<unknown>>[0];

/** How a batch went. `lost`: somebody else has moved the place. */
type HandedOver = 'moved' | 'lost' | { error: unknown; by: Culprit };
/** `nobody`: it did not come to the handler. */
type Culprit = 'handler' | 'transaction' | 'nobody';
const CULPRITS: Record<string, Culprit> = { nothing: 'nobody', handler: 'handler' };

class EventConsumer implements OpenConsumer {
  readonly name: string;
  readonly done: Promise<void>;
  readonly #options: ConsumerOptions;
  readonly #database: Database;
  readonly #holder = randomUUID();
  readonly #closing = new AbortController();
  /** As it is in the database, if nobody moved it; undefined when it must be read again. */
  #place: bigint | undefined;
  /** Between the place and here nothing concerns it. */
  #readTo = 0n;
  #heldAt = Number.NEGATIVE_INFINITY;
  /** In a row: of the handler, and of the database. */
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
      // For people who look: it did not just stop.
      if (!isClosed(error))
        await recordConsumerFailure(this.#database, this.name, codeOf(error), null).catch(() => undefined);
      throw error;
    });
    // Whoever does not look at it has not asked to be ended by it.
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
      // Who comes next need not walk through it again.
      await this.#passBy().catch(() => undefined);
    } finally {
      unlink();
      // What cannot be released runs out by itself.
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
      if (place !== this.#place) this.#goOnFrom(place);
    }
    const page = await this.#walk();
    if (this.#closing.signal.aborted) return;
    if (page.events.length > 0) return this.#handOver(page);
    this.#readTo = page.to;
    // Not for each event that does not concern it, but with every renewal.
    if (renews || !page.atEnd) await this.#passBy();
    if (page.atEnd && this.#place !== undefined) await this.#waitForMore();
  }

  #hold(): Promise<bigint | undefined> {
    return holdConsumer(this.#database, this.name, this.#holder, HOLD_MS);
  }

  #goOnFrom(place: bigint): void {
    this.#place = place;
    this.#readTo = place;
  }

  async #standBy(): Promise<void> {
    this.#place = undefined;
    await this.#currentPlace();
    await this.#rest(spread(STANDBY_MS, STANDBY_LOOKS, Math.random()));
  }

  async #currentPlace(): Promise<bigint> {
    const place = await readConsumer(this.#database, this.name);
    if (place !== undefined) return place;
    throw new EngineError('not_found', 'The consumer was forgotten.', { field: 'name' });
  }

  /** On to the next events that concern it, as many as are handed over at once. */
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
    else this.#goOnFrom(page.to);
  }

  /** Handler and place in one transaction. What went wrong is told by what was reached: libraries wrap what is thrown in them. */
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
        if (!moved) throw new EngineError('retry_transaction', 'Another instance was faster: roll back.');
      };
      await this.#unlessStoppedBefore(() => reached === 'nothing', transact(work));
    } catch (error) {
      // Assigned in a callback, which the compiler does not follow.
      const at = reached as string;
      if (at === 'lost') return 'lost';
      return { error, by: CULPRITS[at] ?? 'transaction' };
    }
    if ((reached as string) === 'moved') return 'moved';
    const sentence = 'transact must run the work, and throw what it throws.';
    return { error: new EngineError('invalid_input', sentence, { field: 'transact' }), by: 'handler' };
  }

  /** One that waits for a connection, of which there are few, need not get one when it is stopped. */
  #unlessStoppedBefore(isBefore: () => boolean, transacting: Promise<unknown>): Promise<unknown> {
    return new Promise((resolve, reject) => {
      const stop = whenAborted(this.#closing.signal, () => {
        if (isBefore()) reject(new EngineError('closed', 'The consumer was stopped.'));
      });
      transacting.then(resolve, reject).finally(stop);
    });
  }

  /** A handler may take longer than a hold lasts. */
  async #renewingMeanwhile<Value>(work: () => Promise<Value>): Promise<Value> {
    let renewing: Promise<void> | undefined;
    const renew = async (): Promise<void> => {
      const now = performance.now();
      // Losing it is found out when the place is moved.
      const place = await this.#hold().catch(() => undefined);
      if (place !== undefined) this.#heldAt = now;
      renewing = undefined;
    };
    const timer = setInterval(() => (renewing ??= renew()), RENEW_MS);
    try {
      return await work();
    } finally {
      clearInterval(timer);
      // One that comes after the release would take the name again.
      await renewing;
    }
  }

  async #failed(from: bigint, error: unknown, by: Culprit): Promise<void> {
    this.#place = undefined;
    // A rival that did the same work may be why it failed, and a commit whose answer was lost has happened all the same.
    if ((await this.#currentPlace()) !== from) {
      this.#failures = 0;
      return;
    }
    if (by !== 'handler' && isClosed(error)) throw error;
    // A pool that has no room for transactions, for example: that does not pass.
    if (by === 'nobody' && isEngineError(error) && error.code === 'invalid_input') throw error;
    if (isTroubleOf(error, by, this.#troubles)) throw toEngineError(error, 'handing events over');
    this.#failures += 1;
    // Without onError at the first failure, the second, the fourth, …
    const isTold = (this.#failures & (this.#failures - 1)) === 0;
    const what = this.#failures === 1 ? 'failed' : `failed ${this.#failures} times in a row`;
    void this.#tell(error, this.#failures, isTold ? what : undefined);
    await recordConsumerFailure(this.#database, this.name, codeOf(error), from);
    await this.#rest(spread(RETRY_WAIT_MS, this.#failures, Math.random()));
  }

  /** Where nobody asked to be told, silence would look like idleness: then the process is warned of what happened. */
  async #tell(error: unknown, failures: number, what: string | undefined): Promise<void> {
    const { onError } = this.#options;
    if (onError === undefined) return this.#warn(error, what);
    try {
      await onError(error, failures);
    } catch {
      // Its owner's trouble, also when it comes later: it must end neither the consumer nor the process.
    }
  }

  #warn(error: unknown, what: string | undefined): void {
    if (what === undefined || isClosed(error)) return;
    process.emitWarning(
      `Consumer "${this.name}" ${what} (${codeOf(error)}). Give consume() an onError to see why.`,
    );
  }

  /** Moves the place past what does not concern it. */
  async #passBy(): Promise<void> {
    const from = this.#place;
    if (from === undefined || from === this.#readTo) return;
    const moved = await moveConsumer(this.#database, this.name, from, this.#readTo);
    this.#place = moved ? this.#readTo : undefined;
  }

  /** Until there is more, or the hold must be renewed. */
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
    await pause(ms, undefined, { signal: this.#closing.signal }).catch(() => undefined);
  }
}

/**
 * Whether it is the database's trouble, which is waited for, and no failure. Before the handler was reached it is; a connection that
 * broke under it a few times, too.
 */
function isTroubleOf(error: unknown, by: Culprit, troubles: number): boolean {
  if (codeOf(error) === 'Error') return false;
  if (by === 'nobody') return isOutage(toEngineError(error, 'handing events over'));
  if (troubles >= SILENT_TROUBLES) return false;
  // A handler may have other connections, whose loss says nothing about this one.
  if (by === 'handler') return isConnectionLost(error, 'server');
  return toEngineError(error, 'handing events over').code === 'unavailable';
}

function isClosed(error: unknown): boolean {
  return isEngineError(error) && error.code === 'closed';
}

/** Never the message: it may quote data. Whatever was thrown, asking for its name may throw again. */
function codeOf(error: unknown): string {
  try {
    const code = isEngineError(error) ? error.code : (sqlStateOf(error) ?? (error as Error).name);
    return ERROR_NAME.test(code) ? code : 'Error';
  } catch {
    return 'Error';
  }
}
