/**
 * Reads in one statement what decides whether an execution runs: its state, lane, lease, failures, children, join, suspension,
 * setbacks, the workers that are alive, and its place in the queue. One snapshot, no locks. What it means is the model's business.
 */
import { formatExecutionId } from '../contract/ids.ts';
import type { PublicState, StateVector } from '../contract/states.ts';
import type { JoinFacts, Upstream } from '../model/blocked-gate.ts';
import { LIVE_WITHIN_MS, type GateFacts } from '../model/gates.ts';
import { run, type Database } from './database.ts';
import type { ExecutionKey } from './executions.ts';

/** Children that are named. */
const CHILDREN_NAMED = 5;
/** Upstreams that are named: of those that were not heard of, and of those that did not say what was asked. */
const UPSTREAMS_NAMED = 5;
/** Leaves of a wait's condition that are counted. */
const LEAVES_COUNTED = 64;
/** Queue entries looked at for its place. */
const QUEUE_EXAMINED = 1_000;

interface ExplainRow {
  public_state: PublicState;
  state: StateVector;
  attempt_index: number;
  route_id: number;
  lane: string;
  kind: string;
  capabilities: string[];
  lane_pause: GateFacts['lanePause'];
  eligible_in_ms: number | null;
  deadline_in_ms: number | null;
  lease: GateFacts['lease'];
  last_failure: GateFacts['lastFailure'];
  children: {
    needed: number;
    total: number;
    open: number;
    firstOpen: { partition: number; uuid: string }[];
  } | null;
  join: StoredJoin | null;
  suspension: GateFacts['suspension'];
  setbacks: GateFacts['setbacks'];
  ended: GateFacts['end'];
  workers: GateFacts['workers'];
  queue: GateFacts['queue'];
}

type StoredUpstream = Omit<Upstream, 'executionId'> & { uuid: string };
type StoredJoin = Omit<JoinFacts, 'pending' | 'unmet' | 'flowId'> & {
  partition: number;
  uuid: string;
  pending: StoredUpstream[];
  unmet: StoredUpstream[];
};

export interface ExplainedExecution {
  publicState: PublicState;
  facts: Omit<GateFacts, 'sessions'>;
}

/**
 * Meant only while the execution still waits in the attempt and epoch it paused in. Unknown children count as ended. Each is
 * looked up by its own id: by the parent's, all of them would be read for each.
 */
const CHILDREN = `
SELECT jsonb_build_object('needed', w.needed, 'total', cardinality(w.children), 'open', o.count, 'firstOpen', o.first)
FROM s.ff_child_wait w
CROSS JOIN LATERAL (
  SELECT count(*) AS count, coalesce(jsonb_agg(jsonb_build_object('partition', partition_key, 'uuid', execution_id)
           ORDER BY nth) FILTER (WHERE nth <= ${CHILDREN_NAMED}), '[]') AS first
  FROM (
    SELECT x.execution_id, x.partition_key, row_number() OVER (ORDER BY c.place) AS nth
    FROM unnest(w.children) WITH ORDINALITY c(id, place)
    CROSS JOIN LATERAL (
      SELECT execution_id, partition_key, parent_id, lifecycle_phase FROM s.ff_execution
      WHERE execution_id = c.id OFFSET 0) x
    WHERE x.parent_id = w.execution_id AND x.lifecycle_phase <> 'terminal') y) o
WHERE w.execution_id = e.execution_id AND w.attempt_index = e.attempt_index AND w.lease_epoch = e.lease_epoch
  AND (e.eligibility_state IN ('blocked_by_dependencies', 'not_eligible_until_time') OR e.lifecycle_phase = 'suspended')`;

/** The first edges in these states into the member, with who they come from. */
const upstreamsIn = (states: string, first: string, shown: string): string => `
(SELECT coalesce(jsonb_agg(jsonb_build_object('name', m.name, 'uuid', x.upstream_eid, 'on', x.condition, 'state',
   s.ff_public_state(u.lifecycle_phase, u.eligibility_state, u.terminal_outcome, u.eligible_at_ms, n.now_ms)) ORDER BY ${shown}), '[]')
 FROM (SELECT upstream_eid, condition, row_number() OVER (ORDER BY ${first}) AS nth FROM s.ff_edge
       WHERE downstream_eid = e.execution_id AND state IN (${states}) ORDER BY nth LIMIT ${UPSTREAMS_NAMED}) x
 CROSS JOIN LATERAL (SELECT name FROM s.ff_member WHERE execution_id = x.upstream_eid OFFSET 0) m
 CROSS JOIN LATERAL (SELECT * FROM s.ff_execution WHERE execution_id = x.upstream_eid OFFSET 0) u)`;

/** Of what has begun it does not matter any more. */
const JOIN = `
SELECT jsonb_build_object('partition', f.partition_key, 'uuid', f.flow_id, 'flow', f.name,
  'isSealed', f.sealed_at_ms IS NOT NULL, 'member', m.name, 'kind', g.join_kind, 'needed', g.k_target, 'edges', g.edge_count,
  'satisfied', g.success_count, 'failed', g.fail_count, 'skipped', g.skip_count,
  'pending', ${upstreamsIn(`'staged', 'pending'`, 'upstream_eid', 'm.name')},
  'unmet', ${upstreamsIn(`'failed', 'skipped'`, 'resolved_at_ms, upstream_eid', 'x.nth')})
FROM (SELECT * FROM s.ff_flow WHERE flow_id = e.flow_id OFFSET 0) f
CROSS JOIN LATERAL (SELECT name FROM s.ff_member WHERE execution_id = e.execution_id OFFSET 0) m
CROSS JOIN LATERAL (SELECT * FROM s.ff_edge_group WHERE downstream_eid = e.execution_id OFFSET 0) g
WHERE e.terminal_outcome = 'skipped' OR (e.eligibility_state = 'blocked_by_dependencies'
  AND e.attempt_state IN ('pending_first_attempt', 'pending_replay_attempt'))`;

/** Counted as ff_leaf_count does, which only functions that know their schema can call. Leaves come in their order. */
const LEAVES = `
SELECT coalesce(jsonb_agg(c.count ORDER BY l.place), '[]')
FROM jsonb_path_query(w.wait -> 'condition', 'strict $.** ? (@.kind == "count")') WITH ORDINALITY l(leaf, place)
CROSS JOIN LATERAL (
  SELECT CASE l.leaf ->> 'by'
    WHEN 'waitpoints' THEN count(DISTINCT g.waitpoint_id)
    WHEN 'sources' THEN count(DISTINCT (g.source_type, g.source_identity))
    ELSE count(*) END AS count
  FROM (SELECT DISTINCT name FROM jsonb_array_elements_text(l.leaf -> 'waitpoints') name) u
  CROSS JOIN LATERAL (
    SELECT waitpoint_id FROM s.ff_waitpoint
    WHERE execution_id = e.execution_id AND retired_by = 0 AND name = u.name OFFSET 0) p
  CROSS JOIN LATERAL (
    SELECT waitpoint_id, source_type, source_identity FROM s.ff_signal
    WHERE execution_id = e.execution_id AND waitpoint_id = p.waitpoint_id
      AND (l.leaf ->> 'match' IS NULL OR name = l.leaf ->> 'match') OFFSET 0) g) c
WHERE l.place <= ${LEAVES_COUNTED}`;

const SUSPENSION = `
SELECT jsonb_build_object('suspendedAtMs', x.suspended_at_ms, 'suspendedAgoMs', n.now_ms - x.suspended_at_ms,
  'wakeInMs', x.wake_at_ms - n.now_ms, 'waits', (
    SELECT jsonb_agg(jsonb_build_object('name', w.wait -> 'name', 'key', w.wait -> 'key',
      'timeoutInMs', (w.wait ->> 'timeout_at_ms')::bigint - n.now_ms, 'onTimeout', w.wait -> 'on_timeout',
      'condition', w.wait -> 'condition', 'counts', (${LEAVES})) ORDER BY w.place)
    FROM jsonb_array_elements(x.waits) WITH ORDINALITY w(wait, place)))
FROM s.ff_suspension x WHERE x.execution_id = e.execution_id AND e.lifecycle_phase = 'suspended'`;

/** Workers by what they offer of what the route asks: the lists are cut to that, so that few groups are answered. */
const WORKERS = `
SELECT jsonb_agg(to_jsonb(g)) FROM (
  SELECT kinds, lanes, capabilities, count(*) AS count,
         count(*) FILTER (WHERE NOT stopping AND running < concurrency) AS free,
         count(*) FILTER (WHERE stopping) AS stopping
  FROM (
    SELECT ARRAY(SELECT k FROM unnest(w.kinds) k WHERE k = r.kind) AS kinds,
           CASE WHEN w.lanes IS NOT NULL THEN ARRAY(SELECT l FROM unnest(w.lanes) l WHERE l = r.lane) END AS lanes,
           ARRAY(SELECT c FROM unnest(w.capabilities) c WHERE c = ANY (r.capabilities) ORDER BY c) AS capabilities,
           w.stopping, w.running, w.concurrency
    FROM s.ff_worker w WHERE w.heartbeat_at_ms > n.now_ms - $3::bigint) w
  GROUP BY kinds, lanes, capabilities) g`;

/**
 * Pointers whose execution has moved on are passed over, as a claim does. The planner is not told the limit, so that it
 * expects a small part and walks the index; told, it may read and sort the whole queue.
 */
const QUEUE = `
SELECT jsonb_build_object(
  'ahead', count(*) FILTER (WHERE fresh AND (own IS NULL OR place < own)),
  'isCapped', max(own) IS NULL AND count(*) = ${QUEUE_EXAMINED})
FROM (
  SELECT place, fresh, min(place) FILTER (WHERE fresh AND execution_id = e.execution_id) OVER () AS own
  FROM (
    SELECT row_number() OVER (ORDER BY q.rank, q.seq) AS place, q.execution_id,
           (x.attempt_index, x.lease_epoch, -x.priority)
             IS NOT DISTINCT FROM (q.attempt_index, q.lease_epoch, q.rank) AS fresh
    FROM (
      SELECT -priority AS rank, seq, execution_id, attempt_index, lease_epoch FROM s.ff_ready
      WHERE route_id = e.route_id AND -priority <= -e.priority ORDER BY -priority, seq
      LIMIT (SELECT ${QUEUE_EXAMINED})) q
    LEFT JOIN LATERAL (
      SELECT attempt_index, lease_epoch, priority FROM s.ff_execution
      WHERE execution_id = q.execution_id OFFSET 0) x ON true) y) z`;

const EXPLAIN = `
WITH clock AS MATERIALIZED (SELECT s.ff_now_ms() AS now_ms)
SELECT
  s.ff_public_state(e.lifecycle_phase, e.eligibility_state, e.terminal_outcome, e.eligible_at_ms, n.now_ms) AS public_state,
  jsonb_build_object(
    'lifecyclePhase', e.lifecycle_phase, 'ownershipState', e.ownership_state, 'eligibilityState', e.eligibility_state,
    'blockingReason', e.blocking_reason, 'terminalOutcome', e.terminal_outcome, 'attemptState', e.attempt_state) AS state,
  e.attempt_index, e.route_id, r.lane, r.kind, r.capabilities,
  (SELECT jsonb_build_object('pausedAtMs', l.paused_at_ms, 'pausedAgoMs', n.now_ms - l.paused_at_ms,
      'by', l.paused_by, 'reason', l.pause_reason)
   FROM s.ff_lane l WHERE l.lane = r.lane AND l.paused) AS lane_pause,
  e.eligible_at_ms - n.now_ms AS eligible_in_ms, e.deadline_at_ms - n.now_ms AS deadline_in_ms,
  (SELECT jsonb_build_object('workerInstanceId', l.worker_instance_id, 'expiresInMs', l.expires_at_ms - n.now_ms)
   FROM s.ff_lease l WHERE l.execution_id = e.execution_id AND l.partition_key = e.partition_key) AS lease,
  (SELECT jsonb_build_object('attemptIndex', h.attempt_index, 'message', h.failure_message, 'category', h.failure_category)
   FROM s.ff_attempt_history h
   WHERE h.execution_id = e.execution_id AND h.partition_key = e.partition_key
     AND h.outcome IN ('failed', 'expired', 'interrupted')
   ORDER BY h.attempt_index DESC LIMIT 1) AS last_failure,
  (${CHILDREN}) AS children,
  (${JOIN}) AS join,
  (${SUSPENSION}) AS suspension,
  coalesce((SELECT jsonb_agg(jsonb_build_object('reconciler', x.reconciler, 'failures', x.failures,
      'errorCode', x.error_code, 'retryInMs', x.retry_at_ms - n.now_ms) ORDER BY x.reconciler)
    FROM s.ff_setback x WHERE e.lifecycle_phase <> 'terminal'
      AND x.execution_id = e.execution_id AND x.partition_key = e.partition_key), '[]') AS setbacks,
  (SELECT jsonb_build_object('outcome', o.outcome, 'endedAtMs', o.ended_at_ms, 'endedAgoMs', n.now_ms - o.ended_at_ms,
      'message', o.failure_message)
   FROM s.ff_outcome o WHERE e.lifecycle_phase = 'terminal' AND o.execution_id = e.execution_id
     AND o.partition_key = e.partition_key AND o.attempt_index = e.attempt_index) AS ended,
  coalesce((${WORKERS}), '[]') AS workers,
  CASE e.eligibility_state WHEN 'eligible_now' THEN (${QUEUE}) END AS queue
FROM clock n
CROSS JOIN LATERAL (SELECT * FROM s.ff_execution WHERE execution_id = $1 AND partition_key = $2 OFFSET 0) e
CROSS JOIN LATERAL (SELECT lane, kind, capabilities FROM s.ff_route WHERE route_id = e.route_id OFFSET 0) r`;

export async function readForExplain(
  database: Database,
  key: ExecutionKey,
): Promise<ExplainedExecution | undefined> {
  const rows = await run<ExplainRow>(database, {
    doing: 'explaining an execution',
    text: EXPLAIN.replaceAll('s.ff_', `${database.prefix}ff_`),
    params: [key.uuid, key.partition, LIVE_WITHIN_MS],
    repeatable: 'yes',
  });
  return rows[0] === undefined ? undefined : { publicState: rows[0].public_state, facts: toFacts(rows[0]) };
}

function toFacts(row: ExplainRow): Omit<GateFacts, 'sessions'> {
  const { children, lane, kind, capabilities } = row;
  return {
    state: row.state,
    attemptIndex: row.attempt_index,
    route: { routeId: row.route_id, lane, kind, capabilities },
    lanePause: row.lane_pause,
    lease: row.lease,
    eligibleInMs: row.eligible_in_ms,
    deadlineInMs: row.deadline_in_ms,
    lastFailure: row.last_failure,
    children: children && {
      ...children,
      firstOpen: children.firstOpen.map(({ partition, uuid }) => formatExecutionId(partition, uuid)),
    },
    join: row.join && toJoin(row.join),
    suspension: row.suspension,
    setbacks: row.setbacks,
    end: row.ended,
    workers: row.workers,
    queue: row.queue,
  };
}

function toJoin({ partition, uuid, pending, unmet, ...join }: StoredJoin): JoinFacts {
  const named = (upstreams: readonly StoredUpstream[]): Upstream[] =>
    upstreams.map(({ uuid: id, ...upstream }) => ({
      ...upstream,
      executionId: formatExecutionId(partition, id),
    }));
  return {
    ...join,
    flowId: formatExecutionId(partition, uuid),
    pending: named(pending),
    unmet: named(unmet),
  };
}
