/**
 * One reader of the event feed as an async iterable. It reads on demand: a slow reader keeps a page in memory, not the
 * feed. While a page is yielded, the next one is read ahead. Leaving the loop closes the subscription.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { encodeCursor, type Cursor } from '../../contract/cursor.ts';
import { isOutage } from '../../contract/errors.ts';
import type { FeedEvent } from '../../contract/events.ts';
import type { Disconnected, EventSubscription } from '../../contract/feed.ts';
import { spread } from '../../model/retry.ts';
import type { StoredEventFilter } from './events.sql.ts';
import { whenAborted } from '../../model/aborting.ts';
import type { FeedPage, FeedSource, Outage } from './source.ts';

export interface SubscriptionOptions {
  source: FeedSource;
  /** Events strictly after this position. */
  after: bigint;
  filter: StoredEventFilter;
  /** The last position to yield. Default: no end. */
  until?: bigint | undefined;
  signal?: AbortSignal | undefined;
  /** Called once, when it is closed. */
  onClose?: () => void;
}

export function openSubscription<Event extends FeedEvent>(
  options: SubscriptionOptions,
): EventSubscription<Event> {
  return new Subscription(options) as unknown as EventSubscription<Event>;
}

/** Delay before reading again, after consecutive failures. */
const TROUBLE_WAIT_MS = { min: 100, max: 5_000 };

type Item = FeedEvent | Disconnected;
const OVER: IteratorReturnResult<undefined> = { done: true, value: undefined };

class Subscription implements AsyncIterableIterator<Item> {
  readonly #source: FeedSource;
  readonly #filter: StoredEventFilter;
  readonly #until: bigint | undefined;
  readonly #closing = new AbortController();
  readonly #onClose: (() => void) | undefined;
  readonly #unlink: (() => void) | undefined;
  #ready: Item[] = [];
  #next = 0;
  /** Everything up to here is in `#ready` or was yielded. */
  #readTo: bigint;
  #passed: bigint;
  /** The last outage that was reported to the reader. */
  #reported = 0;
  #troubles = 0;
  #ahead: Promise<FeedPage> | undefined;
  /** Calls of `next()` run one at a time, even when several are made concurrently. */
  #turn: Promise<unknown> = Promise.resolve();

  constructor({ source, after, filter, until, signal, onClose }: SubscriptionOptions) {
    this.#source = source;
    this.#filter = filter;
    this.#until = until;
    this.#onClose = onClose;
    this.#readTo = after;
    this.#passed = after;
    this.#unlink = whenAborted(signal, () => this.#end());
  }

  get cursor(): Cursor {
    return encodeCursor(this.#passed);
  }

  next(): Promise<IteratorResult<Item>> {
    const item = this.#turn.then(() => this.#nextItem());
    this.#turn = item.catch(() => undefined);
    return item;
  }

  async return(): Promise<IteratorResult<Item>> {
    this.#end();
    return OVER;
  }

  async close(): Promise<void> {
    this.#end();
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#end();
  }

  async #nextItem(): Promise<IteratorResult<Item>> {
    try {
      while (this.#next >= this.#ready.length) {
        if (this.#until !== undefined && this.#readTo >= this.#until) this.#end();
        if (this.#closing.signal.aborted) return OVER;
        await this.#unlessClosed(this.#fill());
      }
    } catch (error) {
      if (this.#closing.signal.aborted) return OVER;
      this.#end();
      throw error;
    }
    if (this.#closing.signal.aborted) return OVER;
    const value = this.#ready[this.#next]!;
    this.#next += 1;
    // The last event of a page covers everything examined after it.
    this.#passed = this.#next === this.#ready.length ? this.#readTo : value.position;
    return { done: false, value };
  }

  /** An unresponsive database must not block a reader that has left. */
  #unlessClosed(filling: Promise<void>): Promise<void> {
    return new Promise((resolve, reject) => {
      const stop = whenAborted(this.#closing.signal, resolve);
      filling.then(resolve, reject).finally(stop);
    });
  }

  async #fill(): Promise<void> {
    const page = await this.#page().catch((error: unknown) => {
      if (!isOutage(error)) throw error;
      return this.#source.outage(error.message);
    });
    if (this.#closing.signal.aborted) return;
    if ('reason' in page) return this.#away(page);
    this.#take(page);
    if (page.atEnd) {
      const woken = await this.#source.wait(page.to, this.#closing.signal);
      if (woken !== 'moved') return this.#away(woken);
    } else if (page.events.length > 0) this.#readAhead();
    this.#troubles = 0;
  }

  /** Reports an outage to the reader first, and once; after that it retries. */
  async #away({ number, reason }: Outage): Promise<void> {
    if (this.#reported === number) return this.#rest();
    this.#reported = number;
    const position = this.#readTo;
    this.#ready = [{ type: 'disconnected', reason, cursor: encodeCursor(position), position }];
    this.#next = 0;
  }

  /** Takes events up to `until`. */
  #take({ events, to }: FeedPage): void {
    const until = this.#until ?? to;
    this.#ready = to > until ? events.filter(({ position }) => position <= until) : events;
    this.#next = 0;
    this.#readTo = to < until ? to : until;
    if (this.#ready.length === 0) this.#passed = this.#readTo;
  }

  #page(): Promise<FeedPage> {
    const page = this.#ahead ?? this.#source.read(this.#readTo, this.#filter);
    this.#ahead = undefined;
    return page;
  }

  #readAhead(): void {
    this.#ahead = this.#source.read(this.#readTo, this.#filter);
    // Awaited later; until then its rejection must not count as unhandled.
    this.#ahead.catch(() => undefined);
  }

  /** Some errors return at once; back off between tries. */
  async #rest(): Promise<void> {
    this.#troubles += 1;
    const ms = spread(TROUBLE_WAIT_MS, this.#troubles, Math.random());
    await delay(ms, undefined, { signal: this.#closing.signal }).catch(() => undefined);
  }

  #end(): void {
    if (this.#closing.signal.aborted) return;
    this.#closing.abort();
    this.#unlink?.();
    this.#ready = [];
    this.#ahead = undefined;
    this.#onClose?.();
  }
}
