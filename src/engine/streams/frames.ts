/**
 * Checks a whole append before anything is written, and encodes its frames. model/frames.ts decides what one frame may
 * be.
 */
import { list, parsed, whole } from '../../contract/shape/kinds.ts';
import { LIMITS } from '../../contract/limits.ts';
import { fault, faultAt, Kind, refuse, shape } from '../../contract/shape/shape.ts';
import type { AppendOptions, BestEffortOptions, FrameRequest } from '../../contract/streams.ts';
import { encodeFrame, type EncodedFrame } from '../../model/frames.ts';

const UUID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

const frameList = list(parsed, LIMITS.appendFrames, 1);

/** Encodes the frames of one append. Throws when they are malformed or over a limit. */
export function checkFrames(frames: readonly FrameRequest[]): EncodedFrame[] {
  frameList.check(frames, 'frames');
  const rows = frames.map((frame, index) => encodeFrame(frame, `frames[${index}]`));
  const patches = patchesIn(rows);
  if (patches > LIMITS.appendPatches)
    refuse('frames', `have ${patches} patches; the limit per call is ${LIMITS.appendPatches}`, 'too_many');
  const bytes = bytesIn(rows);
  if (bytes > LIMITS.appendBytes)
    refuse('frames', `have ${bytes} bytes together; the limit is ${LIMITS.appendBytes}`, 'payload_too_large');
  return rows;
}

export function patchesIn(rows: readonly EncodedFrame[]): number {
  return rows.filter((row) => row.mode === 'summary').length;
}

export function bytesIn(rows: readonly EncodedFrame[]): number {
  return rows.reduce((sum, row) => sum + row.payload.length, 0);
}

const BEST_EFFORT = { ttlMs: 10_000, floor: 64, ceiling: 16_384, alpha: 0.2 };

/** The checked options of an append. */
export interface AppendPlan {
  appendId: string | undefined;
  bestEffort: Required<BestEffortOptions>;
}

const someFrames = whole(1, LIMITS.bestEffortFrames);
const NO_ALPHA = fault('must be above 0 and at most 1');
const NO_UUID = fault('must be a UUID');

const appendOptions = shape<AppendOptions>({
  bestEffort: shape<BestEffortOptions>({
    ttlMs: whole(1, LIMITS.bestEffortTtlMs).optional(),
    floor: someFrames.optional(),
    ceiling: someFrames.optional(),
    alpha: new Kind<number>((alpha) =>
      typeof alpha === 'number' && alpha > 0 && alpha <= 1 ? undefined : NO_ALPHA,
    ).optional(),
  })
    .and(({ floor = BEST_EFFORT.floor, ceiling = BEST_EFFORT.ceiling }) => {
      const found = whole(floor, LIMITS.bestEffortFrames).faultOf(ceiling);
      return found === undefined ? undefined : faultAt('.ceiling', found);
    })
    .optional(),
  // Upper case is accepted, too: the caller chose it.
  appendId: new Kind<string>((id) =>
    typeof id === 'string' && UUID.test(id) ? undefined : NO_UUID,
  ).optional(),
});

export function appendPlan(options: AppendOptions): AppendPlan {
  const { appendId, bestEffort = {} } = appendOptions.check(options, 'options');
  const {
    ttlMs = BEST_EFFORT.ttlMs,
    floor = BEST_EFFORT.floor,
    ceiling = BEST_EFFORT.ceiling,
    alpha = BEST_EFFORT.alpha,
  } = bestEffort;
  return { appendId, bestEffort: { ttlMs, floor, ceiling, alpha } };
}

/** Whether frames of both are kept by the same best-effort options, so that one statement can write them. */
export function keepsAlike(one: Required<BestEffortOptions>, other: Required<BestEffortOptions>): boolean {
  return (
    one.ttlMs === other.ttlMs &&
    one.floor === other.floor &&
    one.ceiling === other.ceiling &&
    one.alpha === other.alpha
  );
}
