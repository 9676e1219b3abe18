-- Everything that decides whether an execution runs, read at once: its state, lane, lease, failures, children, join,
-- suspension, setbacks, the live workers, and its place in the queue. One snapshot, no locks; the model interprets it.
-- The parts are separate functions that take the execution's row; ff_explain carries the settings for all of them.

-- Applies only while the execution waits in the attempt and epoch it paused in. Unknown children count as ended. Each
-- is looked up by its own id: by the parent's, all of them would be read for each. The first five open ones are named.
CREATE OR REPLACE FUNCTION ff_explain_children(e ff_execution) RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF e.eligibility_state NOT IN ('blocked_by_dependencies', 'not_eligible_until_time') AND e.lifecycle_phase <> 'suspended' THEN
    RETURN NULL;
  END IF;
  RETURN (
    SELECT jsonb_build_object('needed', w.needed, 'total', cardinality(w.children), 'open', o.count, 'firstOpen', o.first)
    FROM ff_child_wait w
    CROSS JOIN LATERAL (
      SELECT count(*) AS count, coalesce(jsonb_agg(jsonb_build_object('partition', partition_key, 'uuid', execution_id)
               ORDER BY nth) FILTER (WHERE nth <= 5), '[]') AS first
      FROM (
        SELECT x.execution_id, x.partition_key, row_number() OVER (ORDER BY c.place) AS nth
        FROM unnest(w.children) WITH ORDINALITY c(id, place)
        CROSS JOIN LATERAL (
          SELECT execution_id, partition_key, parent_id, lifecycle_phase FROM ff_execution
          WHERE execution_id = c.id OFFSET 0) x
        WHERE x.parent_id = w.execution_id AND x.lifecycle_phase <> 'terminal') y) o
    WHERE w.execution_id = e.execution_id AND w.attempt_index = e.attempt_index AND w.lease_epoch = e.lease_epoch);
END $$;

-- Edges into a member with their upstreams: the first five unresolved ones by name, or the first five unmet ones.
CREATE OR REPLACE FUNCTION ff_explain_upstreams(e ff_execution, p_pending boolean, p_now bigint) RETURNS jsonb
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN (
    SELECT coalesce(jsonb_agg(jsonb_build_object('name', m.name, 'uuid', x.upstream_eid, 'on', x.condition, 'state',
             ff_public_state(u.lifecycle_phase, u.eligibility_state, u.terminal_outcome, u.eligible_at_ms, p_now))
             ORDER BY CASE WHEN p_pending THEN m.name END, x.nth), '[]')
    FROM (
      SELECT upstream_eid, condition,
             row_number() OVER (ORDER BY CASE WHEN p_pending THEN 0 ELSE resolved_at_ms END, upstream_eid) AS nth
      FROM ff_edge
      WHERE downstream_eid = e.execution_id
        AND CASE WHEN p_pending THEN state IN ('staged', 'pending') ELSE state IN ('failed', 'skipped') END
      ORDER BY nth LIMIT 5) x
    CROSS JOIN LATERAL (SELECT name FROM ff_member WHERE execution_id = x.upstream_eid OFFSET 0) m
    CROSS JOIN LATERAL (SELECT * FROM ff_execution WHERE execution_id = x.upstream_eid OFFSET 0) u);
END $$;

-- Irrelevant once the execution has begun.
CREATE OR REPLACE FUNCTION ff_explain_join(e ff_execution, p_now bigint) RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF e.terminal_outcome <> 'skipped' AND (e.eligibility_state <> 'blocked_by_dependencies'
     OR e.attempt_state NOT IN ('pending_first_attempt', 'pending_replay_attempt')) THEN
    RETURN NULL;
  END IF;
  RETURN (
    SELECT jsonb_build_object('partition', f.partition_key, 'uuid', f.flow_id, 'flow', f.name,
      'isSealed', f.sealed_at_ms IS NOT NULL, 'member', m.name, 'kind', g.join_kind, 'needed', g.k_target, 'edges', g.edge_count,
      'satisfied', g.success_count, 'failed', g.fail_count, 'skipped', g.skip_count,
      'pending', ff_explain_upstreams(e, true, p_now), 'unmet', ff_explain_upstreams(e, false, p_now))
    FROM (SELECT * FROM ff_flow WHERE flow_id = e.flow_id OFFSET 0) f
    CROSS JOIN LATERAL (SELECT name FROM ff_member WHERE execution_id = e.execution_id OFFSET 0) m
    CROSS JOIN LATERAL (SELECT * FROM ff_edge_group WHERE downstream_eid = e.execution_id OFFSET 0) g);
END $$;

-- For each wait, how many satisfiers each of its first 64 leaves has, in the order they are written.
CREATE OR REPLACE FUNCTION ff_explain_suspension(e ff_execution, p_now bigint) RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF e.lifecycle_phase <> 'suspended' THEN
    RETURN NULL;
  END IF;
  RETURN (
    SELECT jsonb_build_object('suspendedAtMs', x.suspended_at_ms, 'suspendedAgoMs', p_now - x.suspended_at_ms,
      'wakeInMs', x.wake_at_ms - p_now, 'waits', (
        SELECT jsonb_agg(jsonb_build_object('name', w.wait -> 'name', 'key', w.wait -> 'key',
          'timeoutInMs', (w.wait ->> 'timeout_at_ms')::bigint - p_now, 'onTimeout', w.wait -> 'on_timeout',
          'condition', w.wait -> 'condition', 'messages', (
            SELECT jsonb_build_object('handed', m.handed, 'isKept', ff_is_kept_waiting(e.execution_id, w.wait))
            FROM ff_mailbox m WHERE m.execution_id = e.execution_id AND w.wait #>> '{condition,kind}' = 'message'), 'counts', (
            SELECT coalesce(jsonb_agg(ff_leaf_count(l.leaf, e.execution_id, 2147483647) ORDER BY l.place), '[]')
            FROM ff_leaves(w.wait -> 'condition') WITH ORDINALITY l(leaf, place) WHERE l.place <= 64)) ORDER BY w.place)
        FROM jsonb_array_elements(x.waits) WITH ORDINALITY w(wait, place)))
    FROM ff_suspension x WHERE x.execution_id = e.execution_id);
END $$;

-- Workers by what they offer of what the route requires: their lists are cut to that, so that few groups are returned.
CREATE OR REPLACE FUNCTION ff_explain_workers(r ff_route, p_alive_since bigint) RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN (
    SELECT coalesce(jsonb_agg(to_jsonb(g)), '[]') FROM (
      SELECT kinds, lanes, capabilities, count(*) AS count,
             count(*) FILTER (WHERE NOT stopping AND running < concurrency) AS free,
             count(*) FILTER (WHERE stopping) AS stopping
      FROM (
        SELECT ARRAY(SELECT k FROM unnest(w.kinds) k WHERE k = r.kind) AS kinds,
               CASE WHEN w.lanes IS NOT NULL THEN ARRAY(SELECT l FROM unnest(w.lanes) l WHERE l = r.lane) END AS lanes,
               ARRAY(SELECT c FROM unnest(w.capabilities) c WHERE c = ANY (r.capabilities) ORDER BY c) AS capabilities,
               w.stopping, w.running, w.concurrency
        FROM ff_worker w WHERE w.heartbeat_at_ms > p_alive_since) w
      GROUP BY kinds, lanes, capabilities) g);
END $$;

-- Stale pointers are skipped, as a claim does. At most 1,000 entries are read. The limit is hidden from the planner, so
-- that it expects a small part and walks the index; otherwise it may read and sort the whole queue.
CREATE OR REPLACE FUNCTION ff_explain_queue(e ff_execution) RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF e.eligibility_state <> 'eligible_now' THEN
    RETURN NULL;
  END IF;
  RETURN (
    SELECT jsonb_build_object(
      'ahead', count(*) FILTER (WHERE fresh AND (own IS NULL OR place < own)),
      'isCapped', max(own) IS NULL AND count(*) = 1000)
    FROM (
      SELECT place, fresh, min(place) FILTER (WHERE fresh AND execution_id = e.execution_id) OVER () AS own
      FROM (
        SELECT row_number() OVER (ORDER BY q.rank, q.seq) AS place, q.execution_id,
               (x.attempt_index, x.lease_epoch, -x.priority)
                 IS NOT DISTINCT FROM (q.attempt_index, q.lease_epoch, q.rank) AS fresh
        FROM (
          SELECT -priority AS rank, seq, execution_id, attempt_index, lease_epoch FROM ff_ready
          WHERE route_id = e.route_id AND -priority <= -e.priority ORDER BY -priority, seq
          LIMIT (SELECT 1000)) q
        LEFT JOIN LATERAL (
          SELECT attempt_index, lease_epoch, priority FROM ff_execution
          WHERE execution_id = q.execution_id OFFSET 0) x ON true) y) z);
END $$;

-- NULL for an unknown execution. A worker seen within p_alive_ms counts as alive.
CREATE OR REPLACE FUNCTION ff_explain(p_id uuid, p_partition smallint, p_alive_ms bigint) RETURNS jsonb LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
DECLARE
  v_now bigint := ff_now_ms();
  e ff_execution;
  r ff_route;
BEGIN
  SELECT * INTO e FROM ff_execution x WHERE x.execution_id = p_id AND x.partition_key = p_partition;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  SELECT * INTO r FROM ff_route x WHERE x.route_id = e.route_id;
  RETURN jsonb_build_object(
    'public_state', ff_public_state(e.lifecycle_phase, e.eligibility_state, e.terminal_outcome, e.eligible_at_ms, v_now),
    'state', jsonb_build_object('lifecyclePhase', e.lifecycle_phase, 'ownershipState', e.ownership_state,
      'eligibilityState', e.eligibility_state, 'blockingReason', e.blocking_reason, 'terminalOutcome', e.terminal_outcome,
      'attemptState', e.attempt_state),
    'attempt_index', e.attempt_index, 'route_id', e.route_id, 'lane', r.lane, 'kind', r.kind, 'capabilities', r.capabilities,
    'eligible_in_ms', e.eligible_at_ms - v_now, 'deadline_in_ms', e.deadline_at_ms - v_now,
    'lane_pause', (
      SELECT jsonb_build_object('pausedAtMs', l.paused_at_ms, 'pausedAgoMs', v_now - l.paused_at_ms, 'by', l.paused_by,
        'reason', l.pause_reason)
      FROM ff_lane l WHERE l.lane = r.lane AND l.paused),
    'lease', (
      SELECT jsonb_build_object('workerInstanceId', g.worker_instance_id, 'expiresInMs', e.lease_expires_at_ms - v_now,
        'silentForMs', (SELECT v_now - w.heartbeat_at_ms FROM ff_worker w WHERE w.worker_instance_id = g.worker_instance_id))
      FROM ff_grant g WHERE g.claim_no = e.claim_no),
    'last_failure', (
      SELECT jsonb_build_object('attemptIndex', h.attempt_index, 'message', ff_shown_text(e.traits, h.outcome, h.failure_message),
        'category', h.failure_category)
      FROM ff_attempt_history h
      WHERE h.execution_id = e.execution_id AND h.partition_key = e.partition_key
        AND h.outcome IN ('failed', 'expired', 'interrupted')
      ORDER BY h.attempt_index DESC LIMIT 1),
    'setbacks', (
      SELECT coalesce(jsonb_agg(jsonb_build_object('reconciler', x.reconciler, 'failures', x.failures,
        'errorCode', x.error_code, 'retryInMs', x.retry_at_ms - v_now) ORDER BY x.reconciler), '[]')
      FROM ff_setback x
      WHERE e.lifecycle_phase <> 'terminal' AND x.execution_id = e.execution_id AND x.partition_key = e.partition_key),
    'ended', (
      SELECT jsonb_build_object('outcome', o.terminal_outcome, 'endedAtMs', o.ended_at_ms, 'endedAgoMs', v_now - o.ended_at_ms,
        'message', ff_shown_text(e.traits, o.outcome, o.failure_message), 'by', coalesce(o.ended_by, o.worker_instance_id))
      FROM ff_attempt_history o
      WHERE e.lifecycle_phase = 'terminal' AND o.execution_id = e.execution_id AND o.partition_key = e.partition_key
        AND o.attempt_index = e.attempt_index),
    'children', ff_explain_children(e), 'join', ff_explain_join(e, v_now), 'suspension', ff_explain_suspension(e, v_now),
    'workers', ff_explain_workers(r, v_now - p_alive_ms), 'queue', ff_explain_queue(e));
END $$;
