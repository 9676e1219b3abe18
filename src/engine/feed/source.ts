/**
 * What subscriptions and consumers read from: pages of the event log by position, and a way to wait for more.
 */
import type { FeedEvent } from '../../contract/events.ts';
import type { StoredEventFilter } from './events.sql.ts';

/** Receives hints about the event feed. Hints may be lost, doubled or late. */
export interface FeedWatcher {
  /** Positions were assigned, up to this one. */
  moved(last: bigint): void;
  /** Something was committed, here or elsewhere: there may be events without a position. */
  stirred(): void;
  /** Hints from other processes no longer arrive. */
  lost(): void;
  /** Hints from other processes arrive, for the first time or again. */
  found(): void;
}

/** A period in which the database cannot be reached. Readers report each once. */
export interface Outage {
  number: number;
  /** Why, as a sentence. */
  reason: string;
}

/** Why a wait ended: there may be events to read, or an outage started. */
export type Woken = 'moved' | Outage;

/** A page of the feed. */
export interface FeedPage {
  /** The matching events, in order. */
  events: FeedEvent[];
  /** Everything up to this position was examined. */
  to: bigint;
  /** There was nothing after it when it was read. */
  atEnd: boolean;
}

/** Which positions can be read. */
export interface FeedBounds {
  /** The first position that is kept. */
  floor: bigint;
  /** The last position; on a standby, the last that has arrived there. */
  last: bigint;
  isStandby: boolean;
}

/** Where subscriptions and consumers read events. */
export interface FeedSource {
  /**
   * Reads events after a position, at most `limit` or else a page. Examines a bounded number, so a page may be empty and
   * not at the end. Throws
   * `cursor_expired` when they are no longer kept, and `undecodable_event` for an event this version does not know.
   */
  read(after: bigint, filter: StoredEventFilter, limit?: number): Promise<FeedPage>;
  /**
   * Waits until there may be events after the position, or the database cannot be reached: the waiter then reports the
   * outage and continues reading. Rejects with the signal's reason.
   */
  wait(after: bigint, signal: AbortSignal): Promise<Woken>;
  /** Returns the outage that a failed read belongs to. */
  outage(reason: string): Outage;
  /** Everything committed before the call has a position, unless the server is a standby. */
  bounds(): Promise<FeedBounds>;
}
