/**
 * Following what happens: subscriptions, which yield events in commit order from where they stopped, and consumers, which
 * commit their place together with what they did.
 */
import type { SqlTransaction, Transactor } from './transactions.ts';
import type { Cursor } from './cursor.ts';
import type { EventFamily, FeedEvent } from './events.ts';
import type { StopOptions } from './stopping.ts';

/** Which events are wanted. Every member that is given must match. */
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
  /** Event types of the families that are asked for, for example `success`. */
  types?: readonly string[];
}

/** The same, for events of several families. */
export interface EventsFilter extends EventFilter {
  families?: readonly EventFamily[];
}

/**
 * `now`: what is committed after the call. `beginning`: the oldest event that is kept. Or a cursor: what comes strictly after it;
 * an empty one is `now`.
 */
export type FeedStart = 'now' | 'beginning' | Cursor | Uint8Array;

/** Where a subscription begins, what it yields and when it is over. */
export interface SubscribeOptions<Filter = EventFilter> {
  /** Default `now`. */
  from?: FeedStart;
  filter?: Filter;
  /** `now`: the iteration is over when everything that was committed before the call has been yielded. Default: never. */
  until?: 'now';
  /** Ends the subscription: a parked reader is let go, and the iteration is over. */
  signal?: AbortSignal;
}

/**
 * The database cannot be heard: yielded once for each outage. Nothing is lost: the subscription continues from the cursor by itself
 * when the trouble is over.
 */
export interface Disconnected {
  type: 'disconnected';
  /** A sentence: why, and where there is one, the remedy. */
  reason: string;
  cursor: Cursor;
  position: bigint;
}

/** Yields events as they are committed, for as long as it is read. Leaving the loop releases everything. */
export interface EventSubscription<Event> extends AsyncIterableIterator<Event | Disconnected> {
  /** How far it has read, also past what the filter drops. Subscribing from here goes on without a gap. */
  readonly cursor: Cursor;
  close(): Promise<void>;
  [Symbol.asyncIterator](): EventSubscription<Event>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** Where a consumer begins, what it is handed and in which transaction. */
export interface ConsumeOptions<Tx = SqlTransaction> {
  /** Where a name that is new begins; one that is known goes on from its place. Default `beginning`. */
  from?: FeedStart;
  filter?: EventsFilter;
  /** Most events handed over at once. Default 256. */
  batch?: number;
  /** Runs the handler in a transaction of the application's own library; see the adapters. Default: one of `pg`. */
  transact?: Transactor<Tx>;
  signal?: AbortSignal;
  /**
   * Called for every failure of the handler, after which the same events are handed over again, with a growing wait. With 0
   * failures: once for each outage of the database, after which it continues by itself; and for what ends the consumer.
   */
  onError?: (error: unknown, failures: number) => void;
}

/** Called with the next events and the transaction in which the consumer's place is moved past them. */
export type EventHandler<Tx = SqlTransaction> = (events: readonly FeedEvent[], tx: Tx) => Promise<void>;

/** A consumer that runs in this process. */
export interface Consumer {
  readonly name: string;
  /** Settles when it has stopped; rejects when it cannot go on (for example `cursor_expired`). */
  readonly done: Promise<void>;
  /**
   * Lets the handler finish the batch under way, by the deadline (30 s unless told otherwise). Resolves by then and one second, whether or not the
   * database answers: what was not committed is handed over again. Not to be awaited by its own handler.
   */
  stop(options?: StopOptions): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** A consumer, as the database has it: its place and how far behind it is. */
export interface ConsumerSnapshot {
  name: string;
  cursor: Cursor;
  position: bigint;
  /** Events it has not passed yet, matching or not. Positions that were never given out do not count. */
  lag: bigint;
  /** How long ago the next event it has not passed happened, by the event's own time; 0 when there is none. */
  lagMs: number;
  /** The instance that reads for it now; null when none does. */
  holder: string | null;
  movedAtMs: number;
  /** Failures of the handler in a row, and the code of the last. */
  failures: number;
  errorCode: string | null;
}
