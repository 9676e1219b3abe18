/**
 * Following the event feed: subscriptions yield events in commit order from a cursor; consumers commit their position
 * together with what their handler wrote.
 */
import type { SqlTransaction, Transactor } from './transactions.ts';
import type { Cursor } from './cursor.ts';
import type { EventFamily, FeedEvent } from './events.ts';
import type { StopOptions } from './stopping.ts';

/** Which events to receive. Every key that is given must match. */
export interface EventFilter {
  namespace?: string;
  /** Tags the execution must have, key and value. */
  tags?: Record<string, string>;
  /** Of executions: their kind (the task's name) and lane. */
  kind?: string;
  lane?: string;
  executionId?: string;
  flowId?: string;
  /** Logical partitions, 0 to 255. */
  partitions?: readonly number[];
  /** Event types of the chosen families, for example `success`. */
  types?: readonly string[];
}

/** An event filter over several families. */
export interface EventsFilter extends EventFilter {
  families?: readonly EventFamily[];
}

/**
 * Where to start reading. `now`: events committed after the call. `beginning`: the oldest event that is kept. A cursor:
 * events strictly after it; an empty one means `now`.
 */
export type FeedStart = 'now' | 'beginning' | Cursor | Uint8Array;

/** Where a subscription starts, what it yields and when it stops. */
export interface SubscribeOptions<Filter = EventFilter> {
  /** Default `now`. */
  from?: FeedStart;
  filter?: Filter;
  /** `now`: the iteration stops once everything committed before the call has been yielded. Default: it never stops. */
  until?: 'now';
  /** Closes the subscription: a pending `next()` resolves and the iteration stops. */
  signal?: AbortSignal;
}

/**
 * The database cannot be reached: yielded once per outage. Nothing is lost: the subscription continues from the cursor
 * by itself when the database is back.
 */
export interface Disconnected {
  type: 'disconnected';
  /** Why, and the remedy where there is one, as a sentence. */
  reason: string;
  cursor: Cursor;
  position: bigint;
}

/** Yields events as they are committed, for as long as it is read. Leaving the loop releases everything. */
export interface EventSubscription<Event> extends AsyncIterableIterator<Event | Disconnected> {
  /** How far it has read, including events the filter dropped. Subscribing from here continues without a gap. */
  readonly cursor: Cursor;
  close(): Promise<void>;
  [Symbol.asyncIterator](): EventSubscription<Event>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** Where a consumer starts, which events it receives and in which transaction. */
export interface ConsumeOptions<Tx = SqlTransaction> {
  /** Where a new consumer starts; an existing one continues from its position. Default `beginning`. */
  from?: FeedStart;
  filter?: EventsFilter;
  /** Most events passed to the handler in one call, 1 to 1,024. Default 256. */
  batch?: number;
  /**
   * Runs the handler in a transaction of the application's own library; see the adapters. Default: a `pg` transaction.
   */
  transact?: Transactor<Tx>;
  signal?: AbortSignal;
  /**
   * Called for every failure of the handler; the same events are then passed to it again, after a growing delay. Called
   * with 0 failures once per outage of the database, after which it continues by itself, and for an error that stops
   * the consumer.
   */
  onError?: (error: unknown, failures: number) => void;
}

/** Handles the next events, in the transaction that moves the consumer's position past them. */
export type EventHandler<Tx = SqlTransaction> = (events: readonly FeedEvent[], tx: Tx) => Promise<void>;

/** A consumer that runs in this process. */
export interface Consumer {
  readonly name: string;
  /** Resolves when it has stopped; rejects when it cannot continue (for example `cursor_expired`). */
  readonly done: Promise<void>;
  /**
   * Stops the consumer, giving the handler until the deadline (default 30 s) to finish the current batch. Resolves at
   * most one second after the deadline, even when the database does not respond; what was not committed is handled
   * again later. Its own handler must not await it.
   */
  stop(options?: StopOptions): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** A consumer as stored: its position and how far behind it is. */
export interface ConsumerSnapshot {
  name: string;
  cursor: Cursor;
  position: bigint;
  /** Events after its position, matching its filter or not. Positions that were never assigned do not count. */
  lag: bigint;
  /** Age of the first event after its position, by the event's own time; 0 when there is none. */
  lagMs: number;
  /** The instance that is active for it now; null when none is. */
  holder: string | null;
  movedAtMs: number;
  /** Consecutive failures of the handler, and the error code of the last one. */
  failures: number;
  errorCode: string | null;
}
