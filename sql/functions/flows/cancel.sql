-- Stops members of flows: the losers of a join or a whole flow, in chunks that any process can continue. Members are
-- cancelled by the same operation as any other execution.

-- Which of the given locked executions no join except p_but still waits for. Two joins decided concurrently do not see
-- each other; the later caller of this function sees both.
CREATE OR REPLACE FUNCTION ff_needed_by_none(p_ids uuid[], p_but uuid) RETURNS uuid[] LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  RETURN ARRAY(
    SELECT u.id FROM unnest(p_ids) u(id)
    LEFT JOIN LATERAL (
      SELECT true AS is_needed
      FROM (SELECT downstream_eid, state FROM ff_edge WHERE upstream_eid = u.id OFFSET 0) x
      CROSS JOIN LATERAL (
        SELECT 1 FROM ff_edge_group o WHERE o.downstream_eid = x.downstream_eid AND o.group_state = 'pending' OFFSET 0) o
      CROSS JOIN LATERAL (
        SELECT 1 FROM ff_execution WHERE execution_id = x.downstream_eid AND lifecycle_phase <> 'terminal' OFFSET 0) e
      WHERE x.downstream_eid <> p_but AND x.state IN ('pending', 'staged') LIMIT 1) n ON true
    WHERE n.is_needed IS NULL);
END $$;

-- An execution that only a loser waited for loses too: the loser's join is decided, and its upstreams are stopped next.
CREATE OR REPLACE FUNCTION ff_lose_upstreams(p_losers uuid[], p_reason text) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  WITH lost AS MATERIALIZED (
    SELECT g.downstream_eid, g.flow_id, g.partition_key, ARRAY(
      SELECT x.upstream_eid::text FROM ff_edge x WHERE x.downstream_eid = u.id AND x.state = 'pending'
      ORDER BY x.upstream_eid) AS losers
    FROM unnest(p_losers) u(id)
    CROSS JOIN LATERAL (
      SELECT downstream_eid, flow_id, partition_key FROM ff_edge_group
      WHERE downstream_eid = u.id AND group_state = 'pending' OFFSET 0) g),
  flagged AS (
    UPDATE ff_edge_group g SET group_state = 'impossible', decided_at_ms = ff_now_ms(), cancel_siblings_reason = p_reason,
      cancel_siblings_pending_flag = cardinality(l.losers) > 0, cancel_siblings_pending_members = l.losers
    FROM lost l WHERE g.downstream_eid = l.downstream_eid)
  INSERT INTO ff_pending_cancel_groups (partition_key, flow_id, downstream_eid, enqueued_at_ms)
  SELECT partition_key, flow_id, downstream_eid, ff_now_ms() FROM lost WHERE cardinality(losers) > 0 ON CONFLICT DO NOTHING;
END $$;

-- Stops at most p_limit losers of one join, except those another join still waits for. The row in
-- ff_pending_cancel_groups is the ticket: whoever locks it does the work. The first row returned is `dispatched`,
-- `unfinished` (there are more), `orphaned`, `skipped_for_reconciler` or `skipped_locked`; the others are the cancelled
-- executions.
CREATE OR REPLACE FUNCTION ff_cancel_siblings(p_partition smallint, p_flow uuid, p_downstream uuid, p_limit integer)
RETURNS TABLE (execution_id uuid, outcome text, worker_instance_id text) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  g ff_edge_group;
  v_members uuid[];
  v_losers uuid[];
BEGIN
  PERFORM ff_require_read_committed();
  PERFORM 1 FROM ff_pending_cancel_groups
  WHERE partition_key = p_partition AND flow_id = p_flow AND downstream_eid = p_downstream FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    RETURN QUERY SELECT NULL::uuid, 'skipped_locked', NULL::text;
    RETURN;
  END IF;
  SELECT * INTO g FROM ff_edge_group WHERE downstream_eid = p_downstream;
  IF FOUND AND NOT g.cancel_siblings_pending_flag THEN
    RETURN QUERY SELECT NULL::uuid, 'skipped_for_reconciler', NULL::text;
    RETURN;
  END IF;
  v_members := (g.cancel_siblings_pending_members::uuid[])[1:p_limit];
  PERFORM ff_lock_executions(v_members);
  -- Read again under lock: a replay may have reverted the decision, or a member been added after a loser. The join's
  -- own execution is not locked: it may run now, and a claim would skip it.
  SELECT * INTO g FROM ff_edge_group WHERE downstream_eid = p_downstream FOR UPDATE;
  IF g.cancel_siblings_pending_flag AND NOT (g.cancel_siblings_pending_members::uuid[])[1:p_limit] <@ v_members THEN
    RETURN QUERY SELECT NULL::uuid, 'skipped_locked', NULL::text;
    RETURN;
  END IF;
  v_members := (g.cancel_siblings_pending_members::uuid[])[1:p_limit];
  v_losers := CASE WHEN g.cancel_siblings_pending_flag THEN ff_needed_by_none(v_members, p_downstream) ELSE '{}' END;
  RETURN QUERY
  SELECT NULL::uuid, CASE WHEN g.downstream_eid IS NULL THEN 'orphaned'
                          WHEN cardinality(g.cancel_siblings_pending_members) > p_limit THEN 'unfinished' ELSE 'dispatched' END,
         NULL::text
  UNION ALL
  SELECT c.execution_id, c.outcome, c.worker_instance_id
  FROM ff_cancel(v_losers, ARRAY(SELECT p_partition FROM unnest(v_losers)), g.cancel_siblings_reason, 'engine') c
  WHERE c.outcome = 'cancelled';
  PERFORM ff_lose_upstreams(v_losers, g.cancel_siblings_reason);
  IF cardinality(g.cancel_siblings_pending_members) > p_limit THEN
    UPDATE ff_edge_group SET cancel_siblings_pending_members = cancel_siblings_pending_members[p_limit + 1:]
    WHERE downstream_eid = p_downstream;
    RETURN;
  END IF;
  UPDATE ff_edge_group SET cancel_siblings_pending_flag = false, cancel_siblings_pending_members = '{}'
  WHERE downstream_eid = p_downstream;
  DELETE FROM ff_pending_cancel_groups
  WHERE partition_key = p_partition AND flow_id = p_flow AND downstream_eid = p_downstream;
END $$;

-- Repairs what a crash between two transactions could leave: a ticket for a join without losers is removed (`stale`),
-- one whose losers have all ended is finished (`drained`), and a live one is left to the dispatcher (`live`).
CREATE OR REPLACE FUNCTION ff_reconcile_siblings(p_limit integer) RETURNS TABLE (outcome text, n bigint) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_downs uuid[];
  v_held uuid[];
  v_words text[];
BEGIN
  PERFORM ff_require_read_committed();
  SELECT array_agg(t.downstream_eid) INTO v_downs
  FROM (SELECT downstream_eid FROM ff_pending_cancel_groups ORDER BY enqueued_at_ms LIMIT p_limit FOR UPDATE SKIP LOCKED) t;
  -- A join that another transaction is working on is skipped. Judged in a separate statement, on the locked rows.
  v_held := ARRAY(
    SELECT g.downstream_eid FROM (SELECT unnest(v_downs) AS id ORDER BY 1 OFFSET 0) u
    CROSS JOIN LATERAL (SELECT downstream_eid FROM ff_edge_group WHERE downstream_eid = u.id FOR UPDATE SKIP LOCKED) g);
  SELECT array_agg(u.id), array_agg(
    CASE WHEN g.downstream_eid IS NULL THEN 'stale'
         WHEN g.downstream_eid <> ALL (v_held) THEN 'live'
         WHEN NOT g.cancel_siblings_pending_flag THEN 'stale'
         WHEN EXISTS (
           SELECT 1 FROM unnest(g.cancel_siblings_pending_members) m(id)
           CROSS JOIN LATERAL (SELECT lifecycle_phase FROM ff_execution WHERE execution_id = m.id::uuid OFFSET 0) e
           WHERE e.lifecycle_phase <> 'terminal') THEN 'live'
         ELSE 'drained' END)
  INTO v_downs, v_words
  FROM unnest(v_downs) u(id)
  LEFT JOIN LATERAL (SELECT * FROM ff_edge_group WHERE downstream_eid = u.id OFFSET 0) g ON true;
  UPDATE ff_edge_group SET cancel_siblings_pending_flag = false, cancel_siblings_pending_members = '{}'
  WHERE downstream_eid = ANY (ARRAY(SELECT d FROM unnest(v_downs, v_words) u(d, w) WHERE w = 'drained'));
  DELETE FROM ff_pending_cancel_groups
  WHERE downstream_eid = ANY (ARRAY(SELECT d FROM unnest(v_downs, v_words) u(d, w) WHERE w <> 'live'));
  RETURN QUERY SELECT w, count(*) FROM unnest(v_words) w GROUP BY w;
END $$;

-- Cancels a flow: it can no longer grow, and its members are cancelled in chunks according to p_policy. A stronger
-- policy replaces an earlier one.
CREATE OR REPLACE FUNCTION ff_cancel_flow(p_flow uuid, p_partition smallint, p_policy text, p_reason text, p_actor text)
RETURNS TABLE (outcome text, flow_outcome text, policy text, was_open boolean) LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  f ff_flow;
  p ff_flow_progress;
  c_strength CONSTANT text[] := ARRAY['let_finish', 'cancel_pending', 'cancel_all'];
  v_now bigint := ff_now_ms();
  v_ids uuid[];
BEGIN
  PERFORM ff_require_read_committed();
  SELECT * INTO f FROM ff_flow WHERE flow_id = p_flow AND partition_key = p_partition FOR UPDATE;
  IF NOT FOUND THEN
    RETURN QUERY SELECT 'not_found', NULL::text, NULL::text, false;
    RETURN;
  END IF;
  IF f.sealed_at_ms IS NULL THEN
    -- Nothing is added any more: members that can run without further edges may run.
    v_ids := ARRAY(SELECT m.execution_id FROM ff_member m WHERE m.flow_id = p_flow);
    PERFORM ff_lock_executions(v_ids);
    UPDATE ff_flow SET sealed_at_ms = v_now WHERE flow_id = p_flow;
    PERFORM ff_decide_joins(v_ids);
  END IF;
  SELECT * INTO STRICT p FROM ff_flow_progress WHERE flow_id = p_flow FOR UPDATE;
  IF p.outcome IS NOT NULL OR array_position(c_strength, p.cancel_policy) >= array_position(c_strength, p_policy) THEN
    RETURN QUERY SELECT CASE WHEN p.outcome IS NULL OR p.outcome = 'cancelled' THEN 'already_cancelled' ELSE 'already_ended' END,
      p.outcome::text, p.cancel_policy, false;
    RETURN;
  END IF;
  UPDATE ff_flow_progress SET cancel_policy = p_policy, cancel_reason = p_reason, cancelled_by = p_actor, cancelled_at_ms = v_now
  WHERE flow_id = p_flow;
  PERFORM ff_tell_flows(v_now, ARRAY['cancel_requested'], ARRAY[p_flow], ARRAY[p_partition], ARRAY[f.namespace],
    ARRAY[f.tags], ARRAY[jsonb_build_object('by', p_actor, 'reason', p_reason, 'policy', p_policy)]);
  IF p_policy <> 'let_finish' THEN
    INSERT INTO ff_cancel_backlog AS b (flow_id, partition_key, requested_at_ms) VALUES (p_flow, p_partition, v_now)
    ON CONFLICT (flow_id) DO UPDATE SET done_to = NULL;
  END IF;
  PERFORM ff_end_flows(ARRAY[p_flow]);
  RETURN QUERY SELECT 'cancelled', NULL::text, p_policy, f.sealed_at_ms IS NULL;
END $$;

-- Cancels the next members of a flow that is being cancelled, at most p_limit. The first row returned is `done`,
-- `more`, or `held` when another process is at it; the others are the cancelled executions.
CREATE OR REPLACE FUNCTION ff_cancel_members(p_flow uuid, p_limit integer)
RETURNS TABLE (execution_id uuid, outcome text, worker_instance_id text) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  b ff_cancel_backlog;
  p ff_flow_progress;
  v_ids uuid[];
  v_open uuid[];
BEGIN
  PERFORM ff_require_read_committed();
  SELECT * INTO b FROM ff_cancel_backlog WHERE flow_id = p_flow FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    PERFORM 1 FROM ff_cancel_backlog WHERE flow_id = p_flow;
    RETURN QUERY SELECT NULL::uuid, CASE WHEN FOUND THEN 'held' ELSE 'done' END, NULL::text;
    RETURN;
  END IF;
  v_ids := ARRAY(
    SELECT m.execution_id FROM ff_member m WHERE m.flow_id = p_flow AND m.outcome IS NULL
      AND m.execution_id > coalesce(b.done_to, '00000000-0000-0000-0000-000000000000')
    ORDER BY m.execution_id LIMIT p_limit);
  PERFORM ff_lock_executions(v_ids);
  -- Read after the wait: a replay may have withdrawn the cancellation.
  SELECT * INTO p FROM ff_flow_progress WHERE flow_id = p_flow;
  IF p.cancel_policy IS NULL THEN v_ids := '{}'; END IF;
  RETURN QUERY SELECT NULL::uuid, CASE WHEN cardinality(v_ids) < p_limit THEN 'done' ELSE 'more' END, NULL::text;
  v_open := ARRAY(
    SELECT u.id FROM unnest(v_ids) u(id)
    CROSS JOIN LATERAL (
      SELECT 1 FROM ff_execution WHERE execution_id = u.id AND lifecycle_phase <> 'terminal'
        AND (p.cancel_policy = 'cancel_all' OR attempt_state IN ('pending_first_attempt', 'pending_replay_attempt')) OFFSET 0) e);
  RETURN QUERY
  SELECT c.execution_id, c.outcome, c.worker_instance_id
  FROM ff_cancel(v_open, ARRAY(SELECT b.partition_key FROM unnest(v_open)), p.cancel_reason, p.cancelled_by) c
  WHERE c.outcome = 'cancelled';
  IF cardinality(v_ids) < p_limit THEN
    DELETE FROM ff_cancel_backlog WHERE flow_id = p_flow;
  ELSE
    UPDATE ff_cancel_backlog SET done_to = v_ids[cardinality(v_ids)] WHERE flow_id = p_flow;
  END IF;
END $$;
