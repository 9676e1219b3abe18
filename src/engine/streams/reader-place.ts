/**
 * The position of a stream's reader, what it knows there, and what a read or a head adds to that. Waking a tail and
 * telling it something must be decided by the same code, or it would be woken for nothing again and again.
 */
import type { BlockingReason } from '../../contract/states.ts';
import type { FramePlace } from './streams.sql.ts';
import type { AttemptKey, Head, StreamRead } from './source.ts';

/** A reader's position, and what it was told there. */
export interface ReaderPlace extends AttemptKey, FramePlace {
  /** `unread`: it wants a read in any case. `any`: it wants frames and the close, and nothing else. */
  told: 'closed' | 'unread' | 'any' | BlockingReason | null;
  /** The epoch of the lease it has seen last; null when it has seen none. */
  epoch: number | null;
}

/** The reader's position after a whole read. */
export function placeAfter(place: ReaderPlace, { frames, head, isComplete }: StreamRead): ReaderPlace {
  const last = frames.at(-1);
  const passed = last === undefined ? place : placeAt(place, last);
  return isComplete ? restAt(passed, head) : passed;
}

/** The same, if the read has frames and nothing else to report; then all readers at one position share the next one. */
export function calmAfter(
  place: ReaderPlace,
  { frames, head, isComplete }: StreamRead,
): ReaderPlace | undefined {
  const last = frames.at(-1);
  if (!isComplete || last === undefined) return undefined;
  const passed = placeAt(place, last);
  return isNews(passed, head) ? undefined : passed;
}

/** The reader's position after a frame. */
export function placeAt(
  place: ReaderPlace,
  frame: { id: string; leaseEpoch: number; child: string | null },
): ReaderPlace {
  const { tsMs, seq } = framePlace(frame);
  // A child writes under no lease of this attempt.
  if (place.told === 'any' || frame.child !== null) return { ...place, tsMs, seq };
  return { ...place, tsMs, seq, told: null, epoch: Math.max(place.epoch ?? 0, frame.leaseEpoch) };
}

/** Frames are shared by readers, so their ids are parsed once. */
const places = new WeakMap<object, FramePlace>();

function framePlace(frame: { id: string }): FramePlace {
  const known = places.get(frame);
  if (known !== undefined) return known;
  const [tsMs, seq] = frame.id.split('-').map(Number) as [number, number];
  const place = { tsMs, seq };
  places.set(frame, place);
  return place;
}

export function seqOf(frame: { id: string }): number {
  return framePlace(frame).seq;
}

/** The reader's position after a head, when there are no frames left. */
export function restAt(place: ReaderPlace, head: Head): ReaderPlace {
  const at = isAfter(head, place) ? { tsMs: head.lastTsMs, seq: head.lastSeq } : {};
  return { ...place, ...at, told: toldBy(place, head), epoch: epochBy(place, head) };
}

/** Whether a head contains more than the reader knows. */
export function isNews(place: ReaderPlace, head: Head): boolean {
  if (head.currentAttempt > place.attemptIndex || head.phase === 'terminal') return true;
  return isAfter(head, place) || toldBy(place, head) !== place.told || epochBy(place, head) !== place.epoch;
}

function toldBy({ told, attemptIndex }: ReaderPlace, head: Head): ReaderPlace['told'] {
  if (told === 'closed' || head.closed !== null) return 'closed';
  if (told === 'any') return 'any';
  if (head.currentAttempt !== attemptIndex) return null;
  // It was told of this pause; that it is about to end is not news.
  const isAboutToEnd = head.pausedBy === 'waiting_for_worker' && told !== null && told !== 'unread';
  return isAboutToEnd ? told : head.pausedBy;
}

/** A reader that has seen nothing need not learn of a restart. */
function epochBy({ epoch, attemptIndex }: ReaderPlace, head: Head): number | null {
  if (epoch === null || head.activeEpoch === null || head.currentAttempt !== attemptIndex) return epoch;
  return Math.max(epoch, head.activeEpoch);
}

/** Compares times first: after a crash that lost best-effort frames, their sequence numbers are assigned again. */
export function isAfter({ lastTsMs, lastSeq }: Head, { tsMs, seq }: FramePlace): boolean {
  return lastTsMs > tsMs || (lastTsMs === tsMs && lastSeq > seq);
}
