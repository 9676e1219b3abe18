/**
 * Lanes: pausing and resuming them, and how full and how busy they are. Every count is bounded, by rows examined or by
 * the number of running executions, so that listing costs the same whatever has piled up. Stale queue entries, which
 * claims remove when they meet them, are examined but not counted.
 */
import { LIMITS } from '../../contract/limits.ts';
import type { LaneSnapshot } from '../../contract/operations.ts';
import { columns, columnsOf, inSchema, partOf, withColumns } from '../database/columns.ts';
import { run, type Database } from '../database/database.ts';
import { ENDED, endedLists } from '../executions/ended.sql.ts';
import { readUncompiled } from '../database/uncompiled.ts';

/** Priorities examined per route for the entry that has waited longest, highest first. */
const PRIORITIES_EXAMINED = 100;
/** Queue entries examined for one page, divided evenly among its lanes; a lane takes no more than its own limit. */
const PAGE_ENTRIES_EXAMINED = 100_000;
/** Pairs of namespace and outcome whose newest executions are examined. */
const OUTCOME_LISTS_EXAMINED = 1_000;

export interface LaneNote {
  by: string;
  reason: string | null;
}

/** What a call did to a lane. */
export interface LaneChange {
  /** It was not so before. */
  changed: boolean;
  isNew: boolean;
  /** The lane is unknown, and the limit of lanes is reached. */
  isRefused: boolean;
}

const CHANGE = columnsOf<LaneChange>()('changed', 'isNew', 'isRefused');

/** A lane can be paused before its first use. One that is already paused keeps its note. */
export async function pauseLane(database: Database, lane: string, note: LaneNote): Promise<LaneChange> {
  const rows = await run(database, {
    doing: 'pausing a lane',
    columns: CHANGE,
    text: `SELECT ${CHANGE.list} FROM ${database.prefix}ff_pause_lane($1, $2, $3, $4)`,
    params: [lane, note.by, note.reason, LIMITS.lanes],
    repeatable: 'yes',
  });
  return rows[0]!;
}

/** Of executions that are submitted to the lane from now on. */
export async function setLaneEvents(database: Database, lane: string, isAll: boolean): Promise<LaneChange> {
  const rows = await run(database, {
    doing: 'setting the events of a lane',
    columns: CHANGE,
    text: `SELECT ${CHANGE.list} FROM ${database.prefix}ff_set_lane_events($1, $2, $3)`,
    params: [lane, isAll, LIMITS.lanes],
    repeatable: 'yes',
  });
  return rows[0]!;
}

/** Returns whether the lane was paused before. */
export async function resumeLane(database: Database, lane: string): Promise<boolean> {
  const rows = await run<{ changed: boolean }>(database, {
    doing: 'resuming a lane',
    text: `SELECT ${database.prefix}ff_resume_lane($1) AS changed`,
    params: [lane],
    repeatable: 'yes',
  });
  return rows[0]!.changed;
}

/** Waiting executions are counted among the examined queue entries; when the depth is capped, there are more. */
const LANE = columns<LaneSnapshot>({
  lane: 'p.lane',
  paused: 'p.paused',
  pausedAtMs: 'p.paused_at_ms',
  pausedBy: 'p.paused_by',
  pauseReason: 'p.pause_reason',
  depth: 'least(d.counted, (SELECT entries FROM share))',
  depthIsCapped: 'd.is_capped',
  running: 'coalesce(running.count, 0)',
  oldestAgeMs: `CASE WHEN d.counted > 0 THEN greatest((SELECT now_ms FROM clock)
    - least(d.ready_at_ms, o.ready_at_ms), 0) END`,
  arrivalRate: 'coalesce(arrivals.rate, 0)::float8',
  completionRate: 'coalesce(completions.rate, 0)::float8',
  events: `CASE WHEN p.all_events THEN 'all' ELSE 'usual' END`,
});
const LISTED = withColumns(
  LANE,
  columns<{ hasMore: boolean }>({
    hasMore: 'EXISTS (SELECT 1 FROM s.ff_lane WHERE lane > (SELECT max(lane) FROM page))',
  }),
);

/** The first entry of each priority of a route: the index is walked from one priority to the next. */
const HEADS = `
WITH RECURSIVE heads AS (
  (SELECT -priority AS rank, ready_at_ms, 1 AS nth FROM s.ff_ready WHERE route_id = r.route_id
   ORDER BY -priority, seq LIMIT 1)
  UNION ALL
  SELECT next.rank, next.ready_at_ms, h.nth + 1 FROM heads h
  CROSS JOIN LATERAL (
    SELECT -priority AS rank, ready_at_ms FROM s.ff_ready WHERE route_id = r.route_id AND -priority > h.rank
    ORDER BY -priority, seq LIMIT 1) next
  WHERE h.nth < ${PRIORITIES_EXAMINED})
SELECT ready_at_ms FROM heads`;

/**
 * The executions that finished last. The indexes are ordered by time only within a namespace and outcome, so these are
 * merged.
 */
const endsOf = (part: string): string => `
SELECT x.execution_id, x.ended_at_ms AS at_ms FROM (${endedLists(part, { most: OUTCOME_LISTS_EXAMINED })}) p
CROSS JOIN LATERAL (
  SELECT execution_id, ended_at_ms FROM s.ff_attempt_history
  WHERE ${part} AND namespace = p.namespace AND terminal_outcome = p.terminal_outcome
    AND ended_at_ms > (SELECT now_ms FROM clock) - $3::bigint
  ORDER BY ended_at_ms DESC LIMIT (SELECT $4::integer)) x`;
const ENDS = `${endsOf(ENDED.keptByDefault)} UNION ALL ${endsOf(ENDED.keptOtherwise)}
ORDER BY at_ms DESC LIMIT $4::integer`;

/** Seconds that a sample spans: the whole span, unless the sample is full. */
const SECONDS = `
SELECT greatest(CASE WHEN count(*) < $4::integer THEN $3::bigint ELSE (SELECT now_ms FROM clock) - min(at_ms) END, 1) / 1000.0::float8`;

/**
 * Where many rows may be read in the order of an index, the limit is hidden from the planner: it then expects a small
 * part and walks the index. If it knew the limit, it might read and sort all rows.
 */
const LANES = `
WITH clock AS MATERIALIZED (SELECT s.ff_now_ms() AS now_ms),
page AS MATERIALIZED (
  SELECT lane, paused, paused_at_ms, paused_by, pause_reason, all_events FROM s.ff_lane WHERE lane > $1::text ORDER BY lane LIMIT $2::bigint),
share AS MATERIALIZED (
  SELECT least($5::bigint, ${PAGE_ENTRIES_EXAMINED} / greatest(count(*), 1)) AS entries FROM page),
leases AS MATERIALIZED (
  SELECT e.route_id, count(*) AS count FROM s.ff_grant g
  CROSS JOIN LATERAL unnest(g.execution_ids) x(id)
  CROSS JOIN LATERAL (
    SELECT route_id FROM s.ff_execution WHERE execution_id = x.id AND claim_no = g.claim_no OFFSET 0) e
  GROUP BY e.route_id),
running AS MATERIALIZED (
  SELECT r.lane, sum(l.count)::bigint AS count FROM leases l
  CROSS JOIN LATERAL (SELECT lane FROM s.ff_route WHERE route_id = l.route_id OFFSET 0) r GROUP BY r.lane),
created AS MATERIALIZED (
  SELECT route_id, created_at_ms AS at_ms FROM s.ff_execution
  WHERE created_at_ms > (SELECT now_ms FROM clock) - $3::bigint ORDER BY created_at_ms DESC
  LIMIT (SELECT $4::integer)),
ends AS MATERIALIZED (${ENDS}),
arrivals AS MATERIALIZED (
  SELECT r.lane, sum(c.count) / (${SECONDS} FROM created) AS rate
  FROM (SELECT route_id, count(*) AS count FROM created GROUP BY route_id) c
  CROSS JOIN LATERAL (SELECT lane FROM s.ff_route WHERE route_id = c.route_id OFFSET 0) r GROUP BY r.lane),
completions AS MATERIALIZED (
  SELECT r.lane, sum(c.count) / (${SECONDS} FROM ends) AS rate
  FROM (
    SELECT e.route_id, count(*) AS count FROM ends x
    CROSS JOIN LATERAL (SELECT route_id FROM s.ff_execution WHERE execution_id = x.execution_id OFFSET 0) e
    GROUP BY e.route_id) c
  CROSS JOIN LATERAL (SELECT lane FROM s.ff_route WHERE route_id = c.route_id OFFSET 0) r GROUP BY r.lane)
SELECT ${LISTED.list}
FROM page p
CROSS JOIN LATERAL (
  SELECT count(e.priority) AS counted, count(*) > (SELECT entries FROM share) AS is_capped,
         min(x.ready_at_ms) FILTER (WHERE e.priority IS NOT NULL) AS ready_at_ms
  FROM (
    SELECT q.* FROM (SELECT route_id FROM s.ff_route WHERE lane = p.lane OFFSET 0) r
    CROSS JOIN LATERAL (
      SELECT execution_id, attempt_index, lease_epoch, priority, ready_at_ms FROM s.ff_ready WHERE route_id = r.route_id
      ORDER BY -priority, seq LIMIT (SELECT entries + 1 FROM share)) q
    LIMIT (SELECT entries + 1 FROM share)) x
  LEFT JOIN LATERAL (
    SELECT priority FROM s.ff_execution
    WHERE execution_id = x.execution_id AND attempt_index = x.attempt_index AND lease_epoch = x.lease_epoch
      AND priority = x.priority AND eligibility_state = 'eligible_now' OFFSET 0) e ON true) d
CROSS JOIN LATERAL (
  SELECT min(x.ready_at_ms) AS ready_at_ms FROM (
    SELECT h.ready_at_ms FROM (SELECT route_id FROM s.ff_route WHERE lane = p.lane AND d.is_capped OFFSET 0) r
    CROSS JOIN LATERAL (${HEADS}) h LIMIT (SELECT entries FROM share)) x) o
LEFT JOIN running USING (lane)
LEFT JOIN arrivals USING (lane)
LEFT JOIN completions USING (lane)
ORDER BY p.lane`;

/** Lanes by name, after the given one; the empty name comes before all. */
export async function readLanes(
  database: Database,
  after: string,
  limit: number,
): Promise<{ lanes: LaneSnapshot[]; hasMore: boolean }> {
  const rows = await readUncompiled(database, {
    doing: 'listing lanes',
    columns: LISTED,
    text: inSchema(database, LANES),
    params: [after, limit, LIMITS.rateSpanMs, LIMITS.rateSample, LIMITS.laneDepth],
    repeatable: 'yes',
  });
  return { lanes: rows.map((row) => partOf(LANE, row)), hasMore: rows[0]?.hasMore ?? false };
}
