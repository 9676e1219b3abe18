/**
 * What is appended to streams: checked as a whole before anything is written, and turned into what is stored. What one frame
 * may be is decided in model/frames.ts.
 */
import { LIMITS } from '../../contract/limits.ts';
import type { AppendOptions, BestEffortOptions, FrameRequest } from '../../contract/streams.ts';
import { encodeFrame, type EncodedFrame } from '../../model/frames.ts';
import { checkList, checkWhole, refuse } from '../kit/checks.ts';
import { checkMembers } from '../kit/settings.ts';

const UUID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

export function checkFrames(frames: readonly FrameRequest[]): EncodedFrame[] {
  checkList(frames, 'frames', LIMITS.appendFrames);
  if (frames.length === 0) refuse('frames', 'must not be empty');
  const rows = Array.from(frames, (frame, index) => encodeFrame(frame, `frames[${index}]`));
  const patches = patchesIn(rows);
  if (patches > LIMITS.appendPatches)
    refuse('frames', `have ${patches} patches; the limit of a call is ${LIMITS.appendPatches}`, 'too_many');
  const bytes = bytesIn(rows);
  if (bytes > LIMITS.appendBytes)
    refuse('frames', `are ${bytes} bytes together; the limit is ${LIMITS.appendBytes}`, 'payload_too_large');
  return rows;
}

export function patchesIn(rows: readonly EncodedFrame[]): number {
  return rows.filter((row) => row.mode === 'summary').length;
}

export function bytesIn(rows: readonly EncodedFrame[]): number {
  return rows.reduce((sum, row) => sum + row.payload.length, 0);
}

const BEST_EFFORT = { ttlMs: 10_000, floor: 64, ceiling: 16_384, alpha: 0.2 };

/** How an append is to be made: under which name, and how long its best-effort frames are kept. */
export interface AppendPlan {
  appendId: string | undefined;
  bestEffort: Required<BestEffortOptions>;
}

export function checkAppendOptions(options: AppendOptions): AppendPlan {
  checkMembers(options, 'options', ['bestEffort', 'appendId']);
  const { appendId } = options;
  if (appendId !== undefined && (typeof appendId !== 'string' || !UUID.test(appendId)))
    refuse('options.appendId', 'must be a UUID');
  return { appendId, bestEffort: checkBestEffort(options.bestEffort ?? {}, 'options.bestEffort') };
}

function checkBestEffort(given: BestEffortOptions, field: string): Required<BestEffortOptions> {
  checkMembers(given, field, ['ttlMs', 'floor', 'ceiling', 'alpha']);
  const { ttlMs, floor, ceiling, alpha } = { ...BEST_EFFORT, ...given };
  checkWhole(ttlMs, `${field}.ttlMs`, 1, LIMITS.bestEffortTtlMs);
  checkWhole(floor, `${field}.floor`, 1, LIMITS.bestEffortFrames);
  checkWhole(ceiling, `${field}.ceiling`, floor, LIMITS.bestEffortFrames);
  if (typeof alpha !== 'number' || !(alpha > 0 && alpha <= 1))
    refuse(`${field}.alpha`, 'must be over 0 and at most 1');
  return { ttlMs, floor, ceiling, alpha };
}
