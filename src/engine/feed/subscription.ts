/**
 * One reader of the event feed as an async iterable. It reads when it is read from: a reader that is slow holds a page, not
 * the feed. While a page is handed over the next one is read already, if there is one. Leaving the loop ends it; nothing of it stays.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { encodeCursor, type Cursor } from '../../contract/cursor.ts';
import { isOutage } from '../../contract/errors.ts';
import type { FeedEvent } from '../../contract/events.ts';
import type { Disconnected, EventSubscription } from '../../contract/feed.ts';
import { LIMITS } from '../../contract/limits.ts';
import { spread } from '../../model/retry.ts';
import type { StoredEventFilter } from './events.sql.ts';
import { whenAborted } from '../../model/aborting.ts';
import type { FeedPage, FeedSource, Outage } from './source.ts';

export interface SubscriptionOptions {
  source: FeedSource;
  /** Events strictly after this position. */
  after: bigint;
  filter: StoredEventFilter;
  /** The last position that is yielded; without it there is none. */
  until?: bigint | undefined;
  signal?: AbortSignal | undefined;
  /** Called once, when it is over. */
  onClose?: () => void;
}

export function openSubscription<Event extends FeedEvent>(
  options: SubscriptionOptions,
): EventSubscription<Event> {
  return new Subscription(options) as unknown as EventSubscription<Event>;
}

/** Before the database is asked again, in a row of failures. */
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
  /** Everything up to here is in `#ready` or was handed over. */
  #readTo: bigint;
  #passed: bigint;
  /** The last outage its reader was told of. */
  #toldOf = 0;
  #troubles = 0;
  #ahead: Promise<FeedPage> | undefined;
  /** Reads are answered one after another, however many are asked for at once. */
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
    const answer = this.#turn.then(() => this.#answer());
    this.#turn = answer.catch(() => undefined);
    return answer;
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

  async #answer(): Promise<IteratorResult<Item>> {
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
    // The last of a page stands for all that was looked at behind it.
    this.#passed = this.#next === this.#ready.length ? this.#readTo : value.position;
    return { done: false, value };
  }

  /** A database that gives no answer must not keep a reader that has left. */
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

  /** Its reader is told first, and once: a database that stays away is asked again and again. */
  async #away({ number, reason }: Outage): Promise<void> {
    if (this.#toldOf === number) return this.#rest();
    this.#toldOf = number;
    const position = this.#readTo;
    this.#ready = [{ type: 'disconnected', reason, cursor: encodeCursor(position), position }];
    this.#next = 0;
  }

  /** Up to the last position that is wanted. */
  #take({ events, to }: FeedPage): void {
    const until = this.#until ?? to;
    this.#ready = to > until ? events.filter(({ position }) => position <= until) : events;
    this.#next = 0;
    this.#readTo = to < until ? to : until;
    if (this.#ready.length === 0) this.#passed = this.#readTo;
  }

  #page(): Promise<FeedPage> {
    const page = this.#ahead ?? this.#source.read(this.#readTo, this.#filter, LIMITS.eventPage);
    this.#ahead = undefined;
    return page;
  }

  #readAhead(): void {
    this.#ahead = this.#source.read(this.#readTo, this.#filter, LIMITS.eventPage);
    // Awaited when it is asked for; until then nobody may trip over its failure.
    this.#ahead.catch(() => undefined);
  }

  /** Not all trouble of a database takes its time. */
  async #rest(): Promise<void> {
    this.#troubles += 1;
    const ms = spread(TROUBLE_WAIT_MS, this.#troubles, Math.random());
    await pause(ms, undefined, { signal: this.#closing.signal }).catch(() => undefined);
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
