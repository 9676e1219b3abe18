/**
 * Readers of streams that wait at one position: what the hub knows of them, and how they are served.
 */
import type { Carried } from './carried.ts';
import type { ReaderPlace } from './reader-place.ts';
import type { StreamRead } from './source.ts';

/** Readers served before the event loop gets a turn. */
const SLICE = 500;

/** A reader that waits. */
export interface Waiter {
  /** With news: undefined when the execution is gone. `calm`: where they lead, if they are frames and nothing else. */
  resolve(read: StreamRead | undefined, calm: ReaderPlace | undefined): void;
  reject(error: unknown): void;
}

/** Readers at one position. */
export interface Group {
  name: string;
  place: ReaderPlace;
  waiters: Set<Waiter>;
  /** Must be read: something happened since its last read started, or it was never read. */
  stirred: boolean;
  reading: boolean;
  /** The latest read, while it has no news. */
  latest: StreamRead | undefined;
  /** The read for readers that timed out before there was one. */
  late: Promise<StreamRead | undefined> | undefined;
}

/** Settles many waiters in slices, so that the event loop gets turns in between. */
export async function release(group: Group, settle: (waiter: Waiter) => void): Promise<void> {
  let settled = 0;
  for (const waiter of group.waiters) {
    settle(waiter);
    settled += 1;
    if (settled % SLICE === 0) await new Promise((resolve) => setImmediate(resolve));
  }
  group.waiters.clear();
}

/**
 * Whether the frames are the next after a position that was read to its end. The time of the frame before must match,
 * too: after a crash that lost best-effort frames, their sequence numbers are assigned again.
 */
export function isFollowedBy({ place, waiters, stirred, reading, latest }: Group, carried: Carried): boolean {
  if (waiters.size === 0 || stirred || reading || latest === undefined) return false;
  const { attemptIndex, leaseEpoch, after } = carried;
  const isRunning =
    place.told === 'any' || (place.told === null && (place.epoch ?? leaseEpoch) === leaseEpoch);
  const isNext = place.seq === after.seq && place.tsMs === after.tsMs;
  return isRunning && isNext && place.attemptIndex === attemptIndex;
}

export function nameOf({ partition, uuid, attemptIndex, tsMs, seq, told, epoch }: ReaderPlace): string {
  return `${partition}/${uuid}/${attemptIndex}/${tsMs}-${seq}/${told}/${epoch}`;
}
