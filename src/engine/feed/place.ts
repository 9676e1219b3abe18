/**
 * Where reading the feed begins: a start that was asked for, made into a position, if what comes after it is still kept.
 */
import { encodeCursor } from '../../contract/cursor.ts';
import { EngineError } from '../../contract/errors.ts';
import { unlessAborted } from '../../model/aborting.ts';
import type { Start } from './filter.ts';
import type { FeedSource } from './source.ts';

/** The position to go on after. Asking for the ends first makes `now` mean: not what was committed before the call. */
export async function findPlace(source: FeedSource, start: Start): Promise<bigint> {
  return placeOf(start, await source.ends());
}

export async function endsUnlessAborted(
  source: FeedSource,
  signal: AbortSignal | undefined,
): Promise<FeedEnds | undefined> {
  if (signal?.aborted) return undefined;
  return unlessAborted<FeedEnds | undefined>(signal, source.ends()).catch((error: unknown) => {
    if (signal?.aborted) return undefined;
    throw error;
  });
}

export function placeWithout(start: Start): bigint {
  return typeof start === 'bigint' ? start : 0n;
}

type FeedEnds = Awaited<ReturnType<FeedSource['ends']>>;

export function placeOf(start: Start, { floor, last }: FeedEnds): bigint {
  const oldest = floor - 1n;
  if (start === 'now') return last;
  if (start === 'beginning') return oldest;
  if (start > last) {
    throw new EngineError(
      'cursor_ahead',
      `from stands for position ${start}, and the last event has ${last}: it is of another database, or this one was restored to an earlier time.`,
      { field: 'from' },
    );
  }
  if (start < oldest) {
    throw new EngineError(
      'cursor_expired',
      `from stands for position ${start}, and events up to ${oldest} are no longer kept: go on from error.oldest, or from 'beginning'.`,
      { field: 'from', oldest: encodeCursor(oldest) },
    );
  }
  return start;
}
