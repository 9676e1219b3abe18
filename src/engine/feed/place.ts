/**
 * Resolves where reading the feed starts: turns a requested start into a position, if the events after it are still
 * kept.
 */
import { encodeCursor } from '../../contract/cursor.ts';
import { EngineError } from '../../contract/errors.ts';
import { unlessAborted } from '../../model/aborting.ts';
import type { Start } from './filter.ts';
import type { FeedBounds, FeedSource } from './source.ts';

export async function boundsUnlessAborted(
  source: FeedSource,
  signal: AbortSignal | undefined,
): Promise<FeedBounds | undefined> {
  if (signal?.aborted) return undefined;
  return unlessAborted<FeedBounds | undefined>(signal, source.bounds()).catch((error: unknown) => {
    if (signal?.aborted) return undefined;
    throw error;
  });
}

export function placeWithout(start: Start): bigint {
  return typeof start === 'bigint' ? start : 0n;
}

export function placeOf(start: Start, { floor, last, isStandby }: FeedBounds): bigint {
  const oldest = floor - 1n;
  if (start === 'now') return last;
  if (start === 'beginning') return oldest;
  // A standby may not have replayed yet what the cursor's event is in: reading waits for it.
  if (start > last && !isStandby) {
    throw new EngineError(
      'cursor_ahead',
      `from is position ${start} but the last event is ${last}: the cursor is from another database, or this one was restored to an earlier time.`,
      { field: 'from' },
    );
  }
  if (start < oldest) {
    throw new EngineError(
      'cursor_expired',
      `from is position ${start} but events up to ${oldest} are no longer kept: continue from error.oldest or from 'beginning'.`,
      { field: 'from', oldest: encodeCursor(oldest) },
    );
  }
  return start;
}
