/**
 * Places in streams as texts: `start` and `end` for ranges, `<ms>`, `<ms>-<seq>`, and `<attempt>/<ms>-<seq>` in an execution. What is
 * none of these is refused with a sentence.
 */
import { refuse } from '../../contract/shape.ts';
import type { FramePlace } from './streams.sql.ts';
import { END_PLACE } from './source.ts';
import type { TailStart } from './tail.ts';

const PLACE = /^([0-9]{1,16})(?:-([0-9]{1,16}))?$/;
const START_PLACE: FramePlace = { tsMs: 0, seq: 0 };

/** A `<ms>` begins with its first frame. */
export function lowerPlace(cursor: unknown, field: string): FramePlace {
  if (cursor === 'start') return START_PLACE;
  if (cursor === 'end') return END_PLACE;
  return parsed(cursor, field, 0);
}

/** A `<ms>` ends with its last frame. */
export function upperPlace(cursor: unknown, field: string): FramePlace {
  if (cursor === 'start') return START_PLACE;
  if (cursor === 'end') return END_PLACE;
  return parsed(cursor, field, Number.MAX_SAFE_INTEGER);
}

/** Where a tail goes on after: a place, and neither end. */
export function afterPlace(cursor: unknown, field: string): FramePlace {
  if (cursor === 'start' || cursor === 'end')
    refuse(
      field,
      `cannot be ${cursor}: a tail goes on after a frame; from the beginning it is 0-0`,
      'invalid_cursor',
    );
  return parsed(cursor, field, 0);
}

/** Where a tail of an attempt, or of an execution, begins. */
export function startOf(cursor: unknown, attemptIndex: number | null): TailStart {
  const field = 'request.after';
  if (cursor === undefined) return { attemptIndex: attemptIndex ?? 0, ...START_PLACE, isExact: true };
  if (typeof cursor !== 'string') refuse(field, 'must be a string', 'invalid_cursor');
  const slash = cursor.indexOf('/');
  if (slash === -1) {
    if (attemptIndex === null)
      refuse(field, 'must have the form <attempt>/<ms>-<seq> where no attempt is named', 'invalid_cursor');
    return { attemptIndex, ...afterPlace(cursor, field), isExact: cursor.includes('-') };
  }
  const attempt = cursor.slice(0, slash);
  if (!/^(0|[1-9][0-9]{0,8})$/.test(attempt))
    refuse(field, 'has an attempt that is not a whole number', 'invalid_cursor');
  if (attemptIndex !== null && Number(attempt) !== attemptIndex)
    refuse(field, `is of attempt ${attempt}, and attempt ${attemptIndex} is asked for`, 'invalid_cursor');
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
