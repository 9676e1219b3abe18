/**
 * What subscriptions and consumers read from: pages of the event log by position, and a way to wait for more.
 */
import type { FeedEvent } from '../../contract/events.ts';
import type { StoredEventFilter } from './events.sql.ts';

/** Told about the event feed. Hints may be lost, doubled or late as everywhere. */
export interface FeedWatcher {
  /** Positions were given out, up to this one. */
  moved(last: bigint): void;
  /** Something happened, here or elsewhere: there may be events without a position. */
  stirred(): void;
  /** Hints from other processes can no longer be heard, for a while. */
  lost(): void;
  /** They can be heard, for the first time or again. */
  found(): void;
}

/** A time in which the database cannot be heard. Readers tell of each once. */
export interface Outage {
  number: number;
  /** A sentence. */
  reason: string;
}

export type Woken = 'moved' | Outage;

export interface FeedPage {
  /** Those that match, in order. */
  events: FeedEvent[];
  /** Everything up to this position was looked at. */
  to: bigint;
  /** Nothing followed when it was read. */
  atEnd: boolean;
}

export interface FeedSource {
  /**
   * Events after a position. Looks at a bounded number of them, so a page may be empty and not at the end. Throws
   * `cursor_expired` when they are no longer kept, `undecodable_event` for one it does not know.
   */
  read(after: bigint, filter: StoredEventFilter, limit: number): Promise<FeedPage>;
  /**
   * Until something after the position may be there to read, or the database cannot be heard: then whoever waits tells its reader, and
   * continues reading. Rejects with the signal's reason.
   */
  wait(after: bigint, signal: AbortSignal): Promise<Woken>;
  /** The outage that a read which failed belongs to. */
  outage(reason: string): Outage;
  /** The first position that is kept and the last one there is; everything committed before the call has its position. */
  ends(): Promise<{ floor: bigint; last: bigint }>;
}
