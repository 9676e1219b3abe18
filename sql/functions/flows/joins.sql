-- What the end of a member means for those after it: edges, joins, which members may run or are skipped, whose work is
-- no longer needed, and whether the flow has ended. The caller holds locks on the ended members and the executions
-- after them; edges and joins change only under those locks, except satisfied joins, which only count. A flow's
-- progress is locked last.

-- How an outcome resolves an edge, by the same rules as the model's.
CREATE OR REPLACE FUNCTION ff_edge_result(p_condition ff_edge_condition, p_outcome ff_terminal_outcome) RETURNS ff_edge_state
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
  WHEN p_condition = 'always' THEN 'satisfied'::ff_edge_state
  WHEN p_condition = 'success' THEN
    CASE p_outcome WHEN 'success' THEN 'satisfied'::ff_edge_state WHEN 'skipped' THEN 'skipped' ELSE 'failed' END
  WHEN p_condition = 'failure' AND p_outcome IN ('failed', 'cancelled', 'expired') THEN 'satisfied'
  WHEN p_condition = 'skipped' AND p_outcome = 'skipped' THEN 'satisfied'
  ELSE 'skipped' END;

-- The state of a join, by the same rules as the model's.
CREATE OR REPLACE FUNCTION ff_join_state(
  p_kind ff_join_kind, p_k integer, p_edges integer, p_satisfied integer, p_unmet integer
) RETURNS ff_group_state LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
  WHEN p_kind = 'all' AND p_unmet > 0 THEN 'impossible'::ff_group_state
  WHEN p_kind = 'all' THEN CASE WHEN p_satisfied = p_edges THEN 'satisfied'::ff_group_state ELSE 'pending' END
  WHEN p_satisfied >= p_k THEN 'satisfied'
  WHEN p_unmet > p_edges - p_k THEN 'impossible'
  ELSE 'pending' END;

-- The executions after some that are about to end, to be locked with them, at most p_limit. The rest are handled later
-- by a job. One whose join is satisfied is not locked: it stays satisfied, and a claim would skip it.
CREATE OR REPLACE FUNCTION ff_downstreams(p_ids uuid[], p_limit integer) RETURNS uuid[] LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  -- Without flows there is nothing to look up.
  PERFORM 1 FROM ff_flow LIMIT 1;
  IF NOT FOUND THEN RETURN '{}'; END IF;
  RETURN ARRAY(
    SELECT DISTINCT x.downstream_eid FROM unnest(p_ids) u(id)
    CROSS JOIN LATERAL (
      SELECT downstream_eid FROM ff_edge WHERE upstream_eid = u.id AND state = 'pending' LIMIT p_limit) x
    CROSS JOIN LATERAL (
      SELECT 1 FROM ff_edge_group WHERE downstream_eid = x.downstream_eid AND group_state <> 'satisfied' OFFSET 0) g
    LIMIT p_limit);
END $$;

-- The locked rows of executions whose attempt has not begun: those that wait for a join (blocked_by_dependencies), or
-- for a worker (eligible_now).
CREATE OR REPLACE FUNCTION ff_unbegun_rows(p_ids uuid[], p_eligibility ff_eligibility_state) RETURNS ff_locked[] LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  RETURN ARRAY(
    SELECT ROW(NULL::integer, e.execution_id, e.partition_key, e.route_id, e.priority, e.namespace, e.attempt_index,
               e.lease_epoch, e.retry_count, e.attempt_state, NULL::bigint, NULL::text, NULL::text, e.attempt_started_at_ms, e.tags,
               e.retain_ms, e.flow_id, e.attempt_paused, e.parent_id, e.traits)::ff_locked
    FROM (SELECT DISTINCT unnest(p_ids) AS id) u
    CROSS JOIN LATERAL (
      SELECT execution_id, partition_key, route_id, priority, namespace, attempt_index, lease_epoch, retry_count,
             attempt_state, attempt_started_at_ms, attempt_paused, retain_ms, flow_id, lifecycle_phase, eligibility_state, tags,
             parent_id, traits
      FROM ff_execution WHERE execution_id = u.id OFFSET 0) e
    WHERE e.lifecycle_phase = 'runnable' AND e.eligibility_state = p_eligibility
      AND e.attempt_state IN ('pending_first_attempt', 'pending_replay_attempt'));
END $$;

-- The input of an execution: its payload, and the results of the edges that decided its join under their names. An edge
-- whose condition is not success passes on how its upstream ended.
CREATE OR REPLACE FUNCTION ff_input(p_id uuid, p_payload jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_inputs jsonb;
BEGIN
  SELECT jsonb_object_agg(v.name, v.value) INTO v_inputs FROM (
    SELECT x.input_name AS name,
           CASE WHEN bool_or(x.input_place IS NOT NULL) THEN jsonb_agg(o.value ORDER BY x.input_place)
                ELSE (array_agg(o.value))[1] END AS value
    FROM ff_edge x
    CROSS JOIN LATERAL (
      SELECT CASE x.condition WHEN 'success' THEN coalesce(result, 'null')
        ELSE jsonb_build_object('outcome', terminal_outcome, 'result', result, 'message', failure_message, 'category', failure_category) END AS value
      FROM ff_attempt_history WHERE execution_id = x.upstream_eid AND partition_key = x.partition_key
        AND attempt_index = x.upstream_attempt OFFSET 0) o
    WHERE x.downstream_eid = p_id AND x.state = 'satisfied' AND x.is_counted AND x.input_name IS NOT NULL
    GROUP BY x.input_name) v;
  RETURN CASE WHEN v_inputs IS NULL THEN p_payload ELSE coalesce(nullif(p_payload, 'null'), '{}') || v_inputs END;
END $$;

-- Which executions would get an input over the size limit.
CREATE OR REPLACE FUNCTION ff_overfed(p_ids uuid[]) RETURNS uuid[] LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  c_bytes CONSTANT integer := 4194304;
BEGIN
  RETURN ARRAY(
    SELECT u.id FROM unnest(p_ids) u(id)
    CROSS JOIN LATERAL (
      SELECT sum(o.bytes) AS bytes FROM ff_edge x
      CROSS JOIN LATERAL (
        SELECT octet_length(result::text) AS bytes FROM ff_attempt_history
        WHERE execution_id = x.upstream_eid AND partition_key = x.partition_key AND attempt_index = x.upstream_attempt OFFSET 0) o
      WHERE x.downstream_eid = u.id AND x.state = 'satisfied' AND x.input_name IS NOT NULL) s
    WHERE s.bytes > c_bytes);
END $$;

-- Skips locked executions and records why.
CREATE OR REPLACE FUNCTION ff_skip(p_transition text, p_rows ff_locked[], p_overfed uuid[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM ff_settle(p_transition, p_rows, NULL, NULL,
    ARRAY(SELECT CASE WHEN r.execution_id = ANY (p_overfed) THEN 'input_too_large' ELSE 'dependency_impossible' END FROM unnest(p_rows) r),
    ARRAY(SELECT 'dependency'::text FROM unnest(p_rows) r), 'engine');
END $$;

-- Unblocks or skips the locked executions p_ids, whose joins have just been decided.
CREATE OR REPLACE FUNCTION ff_act_on_joins(p_ids uuid[])
RETURNS TABLE (execution_id uuid, outcome text, route_id integer) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_satisfied uuid[];
  v_impossible uuid[];
  v_overfed uuid[];
  v_free ff_locked[];
  v_skip ff_locked[];
BEGIN
  SELECT coalesce(array_agg(u.id) FILTER (WHERE g.group_state = 'satisfied'), '{}'),
         coalesce(array_agg(u.id) FILTER (WHERE g.group_state = 'impossible'), '{}')
  INTO v_satisfied, v_impossible FROM unnest(p_ids) u(id)
  CROSS JOIN LATERAL (SELECT group_state FROM ff_edge_group WHERE downstream_eid = u.id OFFSET 0) g;
  v_overfed := ff_overfed(v_satisfied);
  v_free := ff_unbegun_rows(ARRAY(SELECT id FROM unnest(v_satisfied) id WHERE id <> ALL (v_overfed)), 'blocked_by_dependencies');
  PERFORM ff_settle('unblock', v_free, NULL, NULL, NULL, NULL, NULL);
  v_skip := ff_unbegun_rows(v_impossible || v_overfed, 'blocked_by_dependencies');
  PERFORM ff_skip('skip_unstarted', ARRAY(SELECT r FROM unnest(v_skip) r WHERE r.attempt_state = 'pending_first_attempt'), v_overfed);
  PERFORM ff_skip('skip', ARRAY(SELECT r FROM unnest(v_skip) r WHERE r.attempt_state <> 'pending_first_attempt'), v_overfed);
  -- Members whose work this join no longer needs. Whether another join needs them is checked when they are stopped.
  WITH losing AS MATERIALIZED (
    SELECT g.*, ARRAY(
      SELECT x.upstream_eid::text FROM ff_edge x WHERE x.downstream_eid = u.id AND x.state = 'pending'
      ORDER BY x.upstream_eid) AS losers
    FROM unnest(p_ids) u(id)
    CROSS JOIN LATERAL (
      SELECT flow_id, partition_key, downstream_eid, group_state, cancels_rest FROM ff_edge_group
      WHERE downstream_eid = u.id OFFSET 0) g
    WHERE g.cancels_rest),
  flagged AS (
    UPDATE ff_edge_group g SET cancel_siblings_pending_flag = true, cancel_siblings_pending_members = l.losers,
      cancel_siblings_reason = 'sibling_quorum_' || l.group_state
    FROM losing l WHERE g.downstream_eid = l.downstream_eid AND cardinality(l.losers) > 0)
  INSERT INTO ff_pending_cancel_groups (partition_key, flow_id, downstream_eid, enqueued_at_ms)
  SELECT partition_key, flow_id, downstream_eid, ff_now_ms() FROM losing WHERE cardinality(losers) > 0 ON CONFLICT DO NOTHING;
  RETURN QUERY
  SELECT r.execution_id, 'unblocked', r.route_id FROM unnest(v_free) r
  UNION ALL SELECT r.execution_id, 'skipped', r.route_id FROM unnest(v_skip) r;
END $$;

-- The longest retention any member of the flow asked for.
CREATE OR REPLACE FUNCTION ff_longest_retention(p_flow uuid) RETURNS bigint LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  RETURN (
    SELECT max(e.retain_ms) FROM ff_member m
    CROSS JOIN LATERAL (SELECT retain_ms FROM ff_execution WHERE execution_id = m.execution_id OFFSET 0) e
    WHERE m.flow_id = p_flow);
END $$;

-- Writes events about flows: p_types names one for all of them, or one for each.
CREATE OR REPLACE FUNCTION ff_tell_flows(
  p_now bigint, p_types text[], p_flows uuid[], p_partitions smallint[], p_namespaces text[], p_tags jsonb[], p_details jsonb[]
) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
  RETURN ff_log_events('flow', p_now, coalesce(cardinality(p_flows), 0), p_types, NULL, p_partitions, NULL, NULL, NULL,
    p_namespaces, p_tags, p_details, NULL, p_flows);
END $$;

-- Ends flows without open members, their progress locked: as cancelled if the flow was cancelled, as failed if one of
-- its last members ended badly, otherwise as completed.
CREATE OR REPLACE FUNCTION ff_end_flows(p_flows uuid[]) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_told bigint;
  v_now bigint := ff_now_ms();
BEGIN
  WITH ending AS MATERIALIZED (
    SELECT f.flow_id, f.partition_key, f.namespace, f.tags, p.cancel_policy
    FROM (SELECT DISTINCT unnest(p_flows) AS id) u
    CROSS JOIN LATERAL (
      SELECT cancel_policy FROM ff_flow_progress WHERE flow_id = u.id AND open_count = 0 AND outcome IS NULL OFFSET 0) p
    CROSS JOIN LATERAL (
      SELECT flow_id, partition_key, namespace, tags FROM ff_flow
      WHERE flow_id = u.id AND sealed_at_ms IS NOT NULL OFFSET 0) f),
  decided AS MATERIALIZED (
    SELECT e.*, CASE WHEN e.cancel_policy IS NOT NULL THEN 'cancelled'
                     WHEN ff_ended_badly(e.flow_id) THEN 'failed' ELSE 'completed' END::ff_flow_outcome AS outcome
    FROM ending e),
  ended AS (
    UPDATE ff_flow_progress p SET outcome = d.outcome, ended_at_ms = v_now, retain_ms = ff_longest_retention(d.flow_id)
    FROM decided d WHERE p.flow_id = d.flow_id)
  SELECT ff_tell_flows(v_now, array_agg(outcome::text), array_agg(flow_id), array_agg(partition_key), array_agg(namespace),
    array_agg(tags), NULL) INTO v_told FROM decided;
END $$;

-- Whether one of the last members of a flow failed, expired, was cancelled other than as a loser, or was skipped
-- because of a failure. A last member has no outgoing edge that is satisfied or has the condition success. A member
-- skipped because it was not needed (a clean-up, a fallback) is fine, and so is a failure that a later member tolerated
-- or handled.
CREATE OR REPLACE FUNCTION ff_ended_badly(p_flow uuid) RETURNS boolean LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_skipped uuid[];
  v_bad boolean;
BEGIN
  SELECT array_agg(m.execution_id) FILTER (WHERE m.outcome = 'skipped'),
         bool_or(CASE m.outcome WHEN 'skipped' THEN o.is_overfed WHEN 'cancelled' THEN NOT o.is_loser ELSE true END)
  INTO v_skipped, v_bad FROM ff_member m
  CROSS JOIN LATERAL (
    SELECT ended_by = 'engine' AND failure_message LIKE 'sibling_quorum_%' AS is_loser, failure_message = 'input_too_large' AS is_overfed
    FROM ff_attempt_history WHERE execution_id = m.execution_id ORDER BY attempt_index DESC LIMIT 1) o
  LEFT JOIN LATERAL (
    SELECT 1 AS found FROM ff_edge WHERE upstream_eid = m.execution_id AND (state = 'satisfied' OR condition = 'success') LIMIT 1) x ON true
  WHERE m.flow_id = p_flow AND m.outcome <> 'success' AND x.found IS NULL;
  RETURN coalesce(v_bad, false) OR EXISTS (
    WITH RECURSIVE skipped AS (
      SELECT unnest(v_skipped) AS id
      UNION
      SELECT x.upstream_eid FROM skipped s
      CROSS JOIN LATERAL (
        SELECT upstream_eid FROM ff_edge
        WHERE downstream_eid = s.id AND state = 'skipped' AND condition = 'success' OFFSET 0) x)
    SELECT 1 FROM skipped s
    CROSS JOIN LATERAL (
      SELECT 1 FROM ff_edge WHERE downstream_eid = s.id AND state = 'failed'
      UNION ALL
      SELECT 1 FROM (
        SELECT terminal_outcome, failure_message FROM ff_attempt_history WHERE execution_id = s.id OFFSET 0) h
      WHERE h.terminal_outcome = 'skipped' AND h.failure_message = 'input_too_large' LIMIT 1) x);
END $$;

-- Counts members that have ended, each once, and ends the flows that are finished with them.
CREATE OR REPLACE FUNCTION ff_count_members(p_ended uuid[]) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_ids uuid[];
  v_flows uuid[];
  v_outcomes text[];
BEGIN
  SELECT array_agg(u.id), array_agg(m.flow_id), array_agg(e.terminal_outcome::text) INTO v_ids, v_flows, v_outcomes
  FROM (SELECT DISTINCT unnest(p_ended) AS id) u
  CROSS JOIN LATERAL (SELECT flow_id, outcome FROM ff_member WHERE execution_id = u.id OFFSET 0) m
  CROSS JOIN LATERAL (
    SELECT terminal_outcome FROM ff_execution WHERE execution_id = u.id AND lifecycle_phase = 'terminal' OFFSET 0) e
  WHERE m.outcome IS NULL;
  IF v_ids IS NULL THEN RETURN; END IF;
  UPDATE ff_member m SET outcome = (SELECT e.terminal_outcome FROM ff_execution e WHERE e.execution_id = m.execution_id)
  WHERE m.execution_id = ANY (v_ids);
  PERFORM 1 FROM (SELECT DISTINCT unnest(v_flows) AS id ORDER BY 1 OFFSET 0) u
  CROSS JOIN LATERAL (SELECT 1 FROM ff_flow_progress WHERE flow_id = u.id FOR UPDATE) p;
  UPDATE ff_flow_progress p SET open_count = open_count - c.n, success_count = success_count + c.success,
    failed_count = failed_count + c.failed, cancelled_count = cancelled_count + c.cancelled,
    expired_count = expired_count + c.expired, skipped_count = skipped_count + c.skipped
  FROM (SELECT f, count(*) AS n, count(*) FILTER (WHERE o = 'success') AS success, count(*) FILTER (WHERE o = 'failed') AS failed,
               count(*) FILTER (WHERE o = 'cancelled') AS cancelled, count(*) FILTER (WHERE o = 'expired') AS expired,
               count(*) FILTER (WHERE o = 'skipped') AS skipped
        FROM unnest(v_flows, v_outcomes) u(f, o) GROUP BY f) c
  WHERE p.flow_id = c.f;
  PERFORM ff_end_flows(v_flows);
END $$;

-- Resolves the edges of members that ended: p_ended, and of those after them p_locked. Returns what may run now
-- (`unblocked`), what never will (`skipped`), and whether work is left (`more`): an edge into an execution that was not
-- locked, or losers to stop. An edge is resolved once; a join is decided once, and later results are only counted.
CREATE OR REPLACE FUNCTION ff_advance(p_ended uuid[], p_locked uuid[])
RETURNS TABLE (execution_id uuid, outcome text, route_id integer) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_now bigint := ff_now_ms();
  v_ups uuid[];
  v_downs uuid[];
  v_states ff_edge_state[];
  v_pending uuid[];
  v_more boolean := false;
BEGIN
  WITH told AS MATERIALIZED (
    SELECT x.upstream_eid, x.downstream_eid, ff_edge_result(x.condition, e.terminal_outcome) AS state,
           g.group_state = 'satisfied' AS is_late
    FROM unnest(p_ended) u(id)
    CROSS JOIN LATERAL (
      SELECT terminal_outcome FROM ff_execution WHERE execution_id = u.id AND lifecycle_phase = 'terminal' OFFSET 0) e
    CROSS JOIN LATERAL (
      SELECT upstream_eid, downstream_eid, condition FROM ff_edge WHERE upstream_eid = u.id AND state = 'pending' OFFSET 0) x
    CROSS JOIN LATERAL (SELECT group_state FROM ff_edge_group WHERE downstream_eid = x.downstream_eid OFFSET 0) g)
  SELECT array_agg(upstream_eid), array_agg(downstream_eid), array_agg(state) INTO v_ups, v_downs, v_states FROM told
  -- CASE keeps this a hashed lookup.
  WHERE CASE WHEN is_late THEN true WHEN downstream_eid IN (SELECT unnest(p_locked)) THEN true ELSE false END;
  IF v_ups IS NOT NULL THEN
    -- In one order for all callers: the executions of satisfied joins are not locked.
    PERFORM 1 FROM (SELECT DISTINCT unnest(v_downs) AS id ORDER BY 1 OFFSET 0) u
    CROSS JOIN LATERAL (SELECT 1 FROM ff_edge_group WHERE downstream_eid = u.id FOR UPDATE) g;
    v_pending := ARRAY(
      SELECT DISTINCT u.id FROM unnest(v_downs) u(id)
      CROSS JOIN LATERAL (
        SELECT flow_id FROM ff_edge_group WHERE downstream_eid = u.id AND group_state = 'pending' OFFSET 0) g
      CROSS JOIN LATERAL (SELECT 1 FROM ff_flow WHERE flow_id = g.flow_id AND sealed_at_ms IS NOT NULL OFFSET 0) f);
    UPDATE ff_edge x SET state = u.state, resolved_at_ms = v_now,
      upstream_attempt = (SELECT e.attempt_index FROM ff_execution e WHERE e.execution_id = x.upstream_eid),
      is_counted = (SELECT g.group_state = 'pending' FROM ff_edge_group g WHERE g.downstream_eid = x.downstream_eid)
    FROM unnest(v_ups, v_downs, v_states) u(up, down, state) WHERE x.upstream_eid = u.up AND x.downstream_eid = u.down;
    UPDATE ff_edge_group g SET success_count = success_count + c.satisfied, fail_count = fail_count + c.failed,
      skip_count = skip_count + c.skipped
    FROM (SELECT down, count(*) FILTER (WHERE s = 'satisfied') AS satisfied, count(*) FILTER (WHERE s = 'failed') AS failed,
                 count(*) FILTER (WHERE s = 'skipped') AS skipped
          FROM unnest(v_downs, v_states) u(down, s) GROUP BY down) c
    WHERE g.downstream_eid = c.down;
    RETURN QUERY SELECT * FROM ff_decide_joins(v_pending);
    v_more := EXISTS (
      SELECT 1 FROM unnest(v_pending) u(id)
      CROSS JOIN LATERAL (
        SELECT cancel_siblings_pending_flag AS is_left FROM ff_edge_group WHERE downstream_eid = u.id OFFSET 0) g
      CROSS JOIN LATERAL (
        SELECT 1 FROM ff_execution WHERE execution_id = u.id AND (g.is_left OR lifecycle_phase = 'terminal') OFFSET 0) e);
  END IF;
  INSERT INTO ff_flow_job (created_at_ms, execution_id, flow_id, partition_key)
  SELECT v_now, m.execution_id, m.flow_id, m.partition_key
  FROM unnest(p_ended) u(id)
  CROSS JOIN LATERAL (SELECT execution_id, flow_id, partition_key FROM ff_member WHERE execution_id = u.id OFFSET 0) m
  CROSS JOIN LATERAL (
    SELECT 1 FROM ff_execution WHERE execution_id = u.id AND lifecycle_phase = 'terminal' OFFSET 0) e
  CROSS JOIN LATERAL (SELECT 1 FROM ff_edge WHERE upstream_eid = u.id AND state = 'pending' LIMIT 1) g;
  v_more := v_more OR FOUND;
  PERFORM ff_count_members(p_ended);
  IF v_more THEN RETURN QUERY SELECT NULL::uuid, 'more', NULL::integer; END IF;
END $$;

-- Decides the pending joins of p_ids, locked members of sealed flows, that can be decided.
CREATE OR REPLACE FUNCTION ff_decide_joins(p_ids uuid[])
RETURNS TABLE (execution_id uuid, outcome text, route_id integer) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_decided uuid[];
BEGIN
  WITH decided AS (
    UPDATE ff_edge_group g SET decided_at_ms = ff_now_ms(),
      group_state = ff_join_state(join_kind, k_target, edge_count, success_count, fail_count + skip_count)
    WHERE downstream_eid = ANY (p_ids) AND group_state = 'pending'
      AND ff_join_state(join_kind, k_target, edge_count, success_count, fail_count + skip_count) <> 'pending'
    RETURNING downstream_eid)
  SELECT array_agg(downstream_eid) INTO v_decided FROM decided;
  IF v_decided IS NOT NULL THEN RETURN QUERY SELECT * FROM ff_act_on_joins(v_decided); END IF;
END $$;

-- Resolves remaining edges from jobs, oldest first: of at most p_limit members, into at most p_edges executions. Jobs
-- another process holds are skipped. Returns what ff_advance does, and `told` if there was anything to do.
CREATE OR REPLACE FUNCTION ff_tell_ends(p_limit integer, p_edges integer)
RETURNS TABLE (execution_id uuid, outcome text, route_id integer) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_jobs bigint[];
  v_ended uuid[];
  v_after uuid[];
BEGIN
  PERFORM ff_require_read_committed();
  SELECT array_agg(job_id), array_agg(DISTINCT execution_id) INTO v_jobs, v_ended
  FROM (SELECT job_id, execution_id FROM ff_flow_job ORDER BY job_id LIMIT p_limit FOR UPDATE SKIP LOCKED) j;
  IF v_jobs IS NULL THEN RETURN; END IF;
  v_after := ff_downstreams(v_ended, p_edges);
  PERFORM ff_lock_executions(v_after || v_ended);
  DELETE FROM ff_flow_job WHERE job_id = ANY (v_jobs);
  RETURN QUERY SELECT * FROM ff_advance(v_ended, v_after);
  RETURN QUERY SELECT NULL::uuid, 'told', NULL::integer;
END $$;

-- Creates jobs for ended members whose edges were missed and that have no job. None is ever expected: an end and its
-- job are written together, so one statement reads both. Examines the next p_limit uncounted members after p_flow and
-- p_execution; returns how many it found and where it stopped, or NULL when it reached the last one.
CREATE OR REPLACE FUNCTION ff_tell_lost_ends(p_flow uuid, p_execution uuid, p_limit integer)
RETURNS TABLE (found bigint, flow_id uuid, execution_id uuid) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_looked bigint;
BEGIN
  PERFORM ff_require_read_committed();
  WITH looked AS MATERIALIZED (
    SELECT m.execution_id, m.flow_id, m.partition_key FROM ff_member m
    WHERE m.outcome IS NULL AND (m.flow_id, m.execution_id) > (p_flow, p_execution)
    ORDER BY m.flow_id, m.execution_id LIMIT p_limit),
  lost AS (
    INSERT INTO ff_flow_job (created_at_ms, execution_id, flow_id, partition_key)
    SELECT ff_now_ms(), l.execution_id, l.flow_id, l.partition_key FROM looked l
    CROSS JOIN LATERAL (
      SELECT 1 FROM ff_execution e WHERE e.execution_id = l.execution_id AND e.lifecycle_phase = 'terminal' OFFSET 0) e
    WHERE CASE WHEN l.execution_id IN (SELECT j.execution_id FROM ff_flow_job j) THEN false ELSE true END RETURNING 1)
  SELECT count(*), (SELECT count(*) FROM lost), (array_agg(l.flow_id))[count(*)], (array_agg(l.execution_id))[count(*)]
  INTO v_looked, found, flow_id, execution_id FROM looked l;
  IF v_looked < p_limit THEN
    flow_id := NULL;
    execution_id := NULL;
  END IF;
  RETURN NEXT;
END $$;
