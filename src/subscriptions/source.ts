/**
 * What subscriptions and consumers read from: pages of the event log by position, and a way to wait for more.
 */
import { isEngineError } from '../contract/errors.ts';
import type { FeedEvent } from '../contract/events.ts';
import type { StoredEventFilter } from '../store/events.ts';

/** Told about the event feed. Hints may be lost, doubled or late as everywhere. */
export interface FeedWatcher {
  /** Positions were given out, up to this one. */
  moved(last: bigint): void;
  /** Something happened, here or elsewhere: there may be events without a position. */
  stirred(): void;
  /** Hints from other processes can no longer be heard, for a while. */
  lost(): void;
}

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
   * Until something after the position may be there to read. `disconnected`: the database could not be heard meanwhile; whoever
   * waits tells its reader, and goes on reading. Rejects with the signal's reason.
   */
  wait(after: bigint, signal: AbortSignal): Promise<'moved' | 'disconnected'>;
  /** The first position that is kept and the last one there is; everything committed before the call has its position. */
  ends(): Promise<{ floor: bigint; last: bigint }>;
}

/** The database cannot be reached or is busy with itself: what was asked for is asked again. */
export function isOutage(error: unknown): boolean {
  return isEngineError(error) && (error.code === 'unavailable' || error.code === 'contention');
}
