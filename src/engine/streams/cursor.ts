/**
 * Cursors of streams: `start` and `end` for ranges, `<ms>`, `<ms>-<seq>`, and `<attempt>/<ms>-<seq>` across the
 * attempts of an execution. Anything else is refused with `invalid_cursor`.
 */
import { refuse } from '../../contract/shape/shape.ts';
import type { FramePlace } from './streams.sql.ts';
import { END_PLACE } from './source.ts';
import type { TailStart } from './tail-items.ts';

const PLACE = /^([0-9]{1,16})(?:-([0-9]{1,16}))?$/;
const START_PLACE: FramePlace = { tsMs: 0, seq: 0 };

/** The lower bound of a range; `<ms>` includes all frames of that millisecond. */
export function lowerPlace(cursor: unknown, field: string): FramePlace {
  if (cursor === 'start') return START_PLACE;
  if (cursor === 'end') return END_PLACE;
  return parsed(cursor, field, 0);
}

/** The upper bound of a range; `<ms>` includes all frames of that millisecond. */
export function upperPlace(cursor: unknown, field: string): FramePlace {
  if (cursor === 'start') return START_PLACE;
  if (cursor === 'end') return END_PLACE;
  return parsed(cursor, field, Number.MAX_SAFE_INTEGER);
}

/** The cursor a tail resumes after; `start` and `end` are not valid here. */
export function afterPlace(cursor: unknown, field: string): FramePlace {
  if (cursor === 'start' || cursor === 'end')
    refuse(
      field,
      `cannot be ${cursor}: a tail resumes after a frame; use 0-0 for the beginning`,
      'invalid_cursor',
    );
  return parsed(cursor, field, 0);
}

/** Where a tail of an attempt or an execution starts. */
export function startOf(cursor: unknown, attemptIndex: number | null): TailStart {
  const field = 'request.after';
  if (cursor === undefined) return { attemptIndex: attemptIndex ?? 0, ...START_PLACE, isExact: true };
  if (typeof cursor !== 'string') refuse(field, 'must be a string', 'invalid_cursor');
  const slash = cursor.indexOf('/');
  if (slash === -1) {
    if (attemptIndex === null)
      refuse(
        field,
        'must have the form <attempt>/<ms>-<seq> when attemptIndex is not given',
        'invalid_cursor',
      );
    return { attemptIndex, ...afterPlace(cursor, field), isExact: cursor.includes('-') };
  }
  const attempt = cursor.slice(0, slash);
  if (!/^(0|[1-9][0-9]{0,8})$/.test(attempt))
    refuse(field, 'has an attempt that is not a whole number', 'invalid_cursor');
  if (attemptIndex !== null && Number(attempt) !== attemptIndex)
    refuse(field, `belongs to attempt ${attempt}, but attemptIndex is ${attemptIndex}`, 'invalid_cursor');
  const place = cursor.slice(slash + 1);
  return { attemptIndex: Number(attempt), ...afterPlace(place, field), isExact: place.includes('-') };
}

function parsed(cursor: unknown, field: string, seq: number): FramePlace {
  const found = typeof cursor === 'string' ? PLACE.exec(cursor) : null;
  if (found === null) refuse(field, 'must have the form <ms> or <ms>-<seq>', 'invalid_cursor');
  const place = { tsMs: Number(found[1]), seq: found[2] === undefined ? seq : Number(found[2]) };
  if (!Number.isSafeInteger(place.tsMs) || !Number.isSafeInteger(place.seq))
    refuse(field, 'is too large', 'invalid_cursor');
  return place;
}
