/**
 * Lanes for operators: list, pause and resume. Claims read in the database which lanes are paused, so a pause takes
 * effect with its commit; what processes cache about lanes only saves queries, and is refreshed here.
 */
import { choice, parsed } from '../../contract/shape/kinds.ts';
import { LIMITS } from '../../contract/limits.ts';
import {
  LANE_EVENTS,
  type LaneEvents,
  type LaneEventsOutcome,
  type LaneOutcome,
  type LanePage,
} from '../../contract/operations.ts';
import {
  pauseLane as pauseRow,
  readLanes,
  resumeLane as resumeRow,
  setLaneEvents as setEvents,
  type LaneChange,
} from './lanes.sql.ts';
import { refuse, shape } from '../../contract/shape/shape.ts';
import { announce } from '../kit/announce.ts';
import type { EngineContext } from '../kit/context.ts';
import { decodeText, encodeText, invalidCursor } from '../kit/cursor-text.ts';
import { actorName, laneName, pageSize, reasonText } from '../kit/kinds.ts';

const DEFAULT_PAGE = 100;
/** Distinguishes a cursor of lanes from those of other lists. */
const CURSOR_MARK = 'lanes';
/** A valid lane name. */
const LANE_NAME = new RegExp(`^[\\x20-\\x7e]{1,${LIMITS.laneBytes}}$`);

const listRequest = shape<{ limit?: number; cursor?: string }>({
  limit: pageSize.optional(),
  cursor: parsed.optional(),
});
const pauseNote = shape<{ reason?: string; by?: string }>({
  reason: reasonText.optional(),
  by: actorName.optional(),
});

const laneEvents = choice(LANE_EVENTS);

export async function listLanes(
  context: EngineContext,
  request: { limit?: number; cursor?: string } = {},
): Promise<LanePage> {
  const { limit = DEFAULT_PAGE, cursor } = listRequest.check(request, 'request', '');
  const after = cursor === undefined ? '' : readCursor(cursor);
  const { lanes, hasMore } = await readLanes(context.database, after, limit);
  return { lanes, cursor: hasMore ? writeCursor(lanes.at(-1)!.lane) : null };
}

export async function pauseLane(
  context: EngineContext,
  lane: string,
  note: { reason?: string; by?: string } = {},
): Promise<LaneOutcome> {
  laneName.check(lane, 'lane');
  const { by = 'operator', reason = null } = pauseNote.check(note, 'note', '');
  const row = await pauseRow(context.database, lane, { by, reason });
  refuseIfMany(row);
  await relearn(context);
  return { outcome: 'paused', repeated: !row.changed, isNew: row.isNew };
}

/** Read in the database by every submit, so it takes effect with its commit. */
export async function setLaneEvents(
  context: EngineContext,
  lane: string,
  events: LaneEvents,
): Promise<LaneEventsOutcome> {
  laneName.check(lane, 'lane');
  const row = await setEvents(context.database, lane, laneEvents.check(events, 'events') === 'all');
  refuseIfMany(row);
  return { outcome: 'set', repeated: !row.changed, isNew: row.isNew };
}

function refuseIfMany({ isRefused }: LaneChange): void {
  if (!isRefused) return;
  refuse('lane', `is a new lane, and the limit of ${LIMITS.lanes} lanes is reached`, 'too_many');
}

export async function resumeLane(context: EngineContext, lane: string): Promise<LaneOutcome> {
  const changed = await resumeRow(context.database, laneName.check(lane, 'lane'));
  await relearn(context);
  // Not only the routes of the lane: a process that believes it paused ignores hints about them, as it does for submits
  // to a paused lane. This hint makes all processes read the lanes again.
  announce(context, [{ outcome: 'opened', routes: 'all', count: 0 }]);
  return { outcome: 'resumed', repeated: !changed };
}

/**
 * A read of the routes that is under way may have begun before the change, so it is awaited, and the next claim reads
 * again. The change itself is committed, so errors are left to the next claim.
 */
async function relearn({ routes }: EngineContext): Promise<void> {
  await routes.refresh().catch(() => undefined);
  routes.forget();
}

/** A cursor contains the name of the last lane of its page. */
function writeCursor(lane: string): string {
  return encodeText([CURSOR_MARK, lane]);
}

function readCursor(cursor: string): string {
  const [mark, lane, ...rest] = decodeText(cursor);
  if (mark !== CURSOR_MARK) throw invalidCursor('belongs to another list');
  if (typeof lane !== 'string' || !LANE_NAME.test(lane) || rest.length > 0)
    throw invalidCursor('is malformed');
  return lane;
}
