/**
 * Where a reader of a stream is and what it knows there, and what a read or a head adds to that. Pure: what is news to a tail and what
 * it is told must come from one place, or it would be woken for nothing, again and again.
 */
import type { BlockingReason } from '../../contract/states.ts';
import type { FramePlace } from './streams.sql.ts';
import type { AttemptKey, Head, StreamRead } from './source.ts';

/** What a reader knows: where it is, and what it was told there. */
export interface ReaderPlace extends AttemptKey, FramePlace {
  /** `unread`: it wants to hear in any case. `any`: it asks for frames and the end, and for nothing else. */
  told: 'closed' | 'unread' | 'any' | BlockingReason | null;
  /** Of the lease it knows the attempt to run under; null when it knows none. */
  epoch: number | null;
}

/** After it was told all of a read. */
export function placeAfter(place: ReaderPlace, { frames, head, isComplete }: StreamRead): ReaderPlace {
  const last = frames.at(-1);
  const passed = last === undefined ? place : placeAt(place, last);
  return isComplete ? restAt(passed, head) : passed;
}

/** After it was told a frame. */
export function placeAt(place: ReaderPlace, frame: { id: string; leaseEpoch: number }): ReaderPlace {
  const [tsMs, seq] = frame.id.split('-').map(Number) as [number, number];
  if (place.told === 'any') return { ...place, tsMs, seq };
  return { ...place, tsMs, seq, told: null, epoch: Math.max(place.epoch ?? 0, frame.leaseEpoch) };
}

/** After it was told all that a head says, when there are no frames left. */
export function restAt(place: ReaderPlace, head: Head): ReaderPlace {
  const at = isAfter(head, place) ? { tsMs: head.lastTsMs, seq: head.lastSeq } : {};
  return { ...place, ...at, told: toldBy(place, head), epoch: epochBy(place, head) };
}

/** Whether a head says more than the reader at the place knows. */
export function isNews(place: ReaderPlace, head: Head): boolean {
  if (head.currentAttempt > place.attemptIndex || head.phase === 'terminal') return true;
  return isAfter(head, place) || toldBy(place, head) !== place.told || epochBy(place, head) !== place.epoch;
}

function toldBy({ told, attemptIndex }: ReaderPlace, head: Head): ReaderPlace['told'] {
  if (told === 'closed' || head.closed !== null) return 'closed';
  if (told === 'any') return 'any';
  if (head.currentAttempt !== attemptIndex) return null;
  // Of a pause that is about to end it has heard.
  const isAboutToEnd = head.pausedBy === 'waiting_for_worker' && told !== null && told !== 'unread';
  return isAboutToEnd ? told : head.pausedBy;
}

/** A reader that has seen nothing has nothing to take back. */
function epochBy({ epoch, attemptIndex }: ReaderPlace, head: Head): number | null {
  if (epoch === null || head.activeEpoch === null || head.currentAttempt !== attemptIndex) return epoch;
  return Math.max(epoch, head.activeEpoch);
}

/** By its time first: numbers that a crash took back, with frames nobody waited for the disk with, are given out again. */
export function isAfter({ lastTsMs, lastSeq }: Head, { tsMs, seq }: FramePlace): boolean {
  return lastTsMs > tsMs || (lastTsMs === tsMs && lastSeq > seq);
}
