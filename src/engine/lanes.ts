/**
 * Lanes as operators see them: listed, held and let go. Claims read in the database which lanes are paused, so a pause
 * holds from its commit on; what processes remember about lanes only saves asking, and is renewed here.
 */
import { EngineError } from '../contract/errors.ts';
import { LIMITS } from '../contract/limits.ts';
import type { LaneOutcome, LanePage, LaneSnapshot } from '../contract/operations.ts';
import { pauseLane as pauseRow, readLanes, resumeLane as resumeRow, type LaneRow } from '../store/lanes.ts';
import { checkName, checkWhole } from './checks.ts';
import type { EngineContext } from './context.ts';
import { checkMembers } from './members.ts';

const DEFAULT_PAGE = 100;
/** A cursor is the name of the last lane of its page, marked as such. */
const CURSOR_MARK = 'lanes:';
const CURSOR = /^lanes:([\x20-\x7e]+)$/;

export async function listLanes(
  context: EngineContext,
  request: { limit?: number; cursor?: string } = {},
): Promise<LanePage> {
  checkMembers(request, 'request', ['limit', 'cursor']);
  const { limit = DEFAULT_PAGE, cursor } = request;
  checkWhole(limit, 'request.limit', 1, LIMITS.listPage);
  const after = cursor === undefined ? '' : readCursor(cursor);
  const rows = await readLanes(context.database, after, limit);
  const last = rows.at(-1);
  return { lanes: rows.map(toSnapshot), cursor: last?.has_more === true ? writeCursor(last.lane) : null };
}

export async function pauseLane(context: EngineContext, lane: string): Promise<LaneOutcome> {
  const changed = await pauseRow(context.database, checkLane(lane));
  await relearn(context);
  return { outcome: 'paused', repeated: !changed };
}

export async function resumeLane(context: EngineContext, lane: string): Promise<LaneOutcome> {
  const changed = await resumeRow(context.database, checkLane(lane));
  await relearn(context);
  // Not the routes of the lane: a process that holds it for paused leaves hints about them aside, which spares it the
  // submits to a paused lane. This one makes all processes read the lanes again.
  context.doorbell.ring({ routes: 'all' });
  return { outcome: 'resumed', repeated: !changed };
}

function checkLane(lane: unknown): string {
  return checkName(lane, 'lane', LIMITS.laneBytes);
}

/**
 * A read of the routes that is under way may have begun before the change: it is awaited, and only what is read after it
 * counts. The change itself has been made, so trouble here is the next claim's.
 */
async function relearn({ routes }: EngineContext): Promise<void> {
  await routes.refresh().catch(() => undefined);
  routes.forget();
}

function toSnapshot(row: LaneRow): LaneSnapshot {
  return {
    lane: row.lane,
    paused: row.paused,
    depth: Math.min(row.counted, LIMITS.laneDepth),
    depthIsCapped: row.is_capped,
    running: row.running,
    oldestAgeMs: row.oldest_age_ms,
    arrivalRate: row.arrival_rate,
    completionRate: row.completion_rate,
  };
}

function writeCursor(lane: string): string {
  return Buffer.from(`${CURSOR_MARK}${lane}`).toString('base64url');
}

function readCursor(cursor: unknown): string {
  const text = typeof cursor === 'string' ? Buffer.from(cursor, 'base64url').toString() : '';
  const lane = CURSOR.exec(text)?.[1];
  if (lane !== undefined) return lane;
  throw new EngineError('invalid_cursor', 'request.cursor is not the cursor of a page of lanes.', {
    field: 'request.cursor',
  });
}
