-- Replays members of flows: what their ends had decided for others is reverted as far as nothing has acted on it. A
-- satisfied join stays satisfied. A skipped member waits again if its join can still be satisfied, and so do the
-- members skipped because of it.

-- What a replay of members may change, to be locked with them: the members after them whose joins are not satisfied,
-- and in turn those after the ones that were skipped.
CREATE OR REPLACE FUNCTION ff_held_back_by(p_ids uuid[]) RETURNS uuid[] LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  PERFORM 1 FROM ff_flow LIMIT 1;
  IF NOT FOUND THEN RETURN '{}'; END IF;
  RETURN ARRAY(
    WITH RECURSIVE held AS (
      SELECT DISTINCT unnest(p_ids) AS id, true AS goes_on
      UNION
      SELECT x.downstream_eid, e.terminal_outcome = 'skipped' FROM held h
      CROSS JOIN LATERAL (SELECT downstream_eid FROM ff_edge WHERE upstream_eid = h.id OFFSET 0) x
      CROSS JOIN LATERAL (
        SELECT 1 FROM ff_edge_group WHERE downstream_eid = x.downstream_eid AND group_state <> 'satisfied' OFFSET 0) g
      CROSS JOIN LATERAL (
        SELECT terminal_outcome FROM ff_execution WHERE execution_id = x.downstream_eid OFFSET 0) e
      WHERE h.goes_on)
    SELECT DISTINCT id FROM held);
END $$;

-- Locks the ended executions to be replayed and what that may change; returns both. An execution skipped during the
-- wait for the lock belongs to them too: then the locks are released and taken again in order.
CREATE OR REPLACE FUNCTION ff_lock_replayed(p_ids uuid[], p_partitions smallint[], OUT held uuid[], OUT rows ff_locked[])
LANGUAGE plpgsql AS $$
DECLARE
  c_rounds CONSTANT integer := 10;
BEGIN
  FOR round IN 1..c_rounds LOOP
    BEGIN
      held := ff_held_back_by(p_ids);
      rows := ff_lock_open(p_ids, p_partitions, true, held);
      IF ff_held_back_by(p_ids) <@ held THEN RETURN; END IF;
      RAISE EXCEPTION 'more was skipped while the lock was waited for' USING ERRCODE = '40001';
    EXCEPTION WHEN serialization_failure THEN
      IF round = c_rounds THEN RAISE; END IF;
    END;
  END LOOP;
END $$;

-- Counts edges that were resolved after their joins had been decided: the joins are decided anew.
CREATE OR REPLACE FUNCTION ff_count_edges(p_downs uuid[]) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  UPDATE ff_edge SET is_counted = true WHERE edge_id = ANY (ARRAY(
    SELECT x.edge_id FROM unnest(p_downs) u(id)
    CROSS JOIN LATERAL (SELECT edge_id, state FROM ff_edge WHERE downstream_eid = u.id OFFSET 0) x
    WHERE x.state NOT IN ('staged', 'pending')));
END $$;

-- Reverts what the ends of p_ids contributed to the joins in p_locked; returns which skipped executions wait again.
CREATE OR REPLACE FUNCTION ff_take_back_edges(p_ids uuid[], p_locked uuid[]) RETURNS uuid[] LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_ups uuid[];
  v_downs uuid[];
  v_states ff_edge_state[];
  v_again uuid[];
BEGIN
  WITH said AS MATERIALIZED (
    SELECT x.* FROM unnest(p_ids) u(id)
    CROSS JOIN LATERAL (
      SELECT upstream_eid, downstream_eid, state FROM ff_edge
      WHERE upstream_eid = u.id AND state NOT IN ('staged', 'pending') OFFSET 0) x
    CROSS JOIN LATERAL (
      SELECT 1 FROM ff_edge_group WHERE downstream_eid = x.downstream_eid AND group_state <> 'satisfied' OFFSET 0) g)
  SELECT array_agg(upstream_eid), array_agg(downstream_eid), array_agg(state) INTO v_ups, v_downs, v_states FROM said
  WHERE CASE WHEN downstream_eid IN (SELECT unnest(p_locked)) THEN true ELSE false END;
  IF v_ups IS NULL THEN RETURN '{}'; END IF;
  UPDATE ff_edge x SET state = 'pending', resolved_at_ms = NULL, upstream_attempt = NULL, is_counted = false
  FROM unnest(v_ups, v_downs) u(up, down) WHERE x.upstream_eid = u.up AND x.downstream_eid = u.down;
  UPDATE ff_edge_group g SET success_count = success_count - c.satisfied, fail_count = fail_count - c.failed,
    skip_count = skip_count - c.skipped
  FROM (SELECT down, count(*) FILTER (WHERE s = 'satisfied') AS satisfied, count(*) FILTER (WHERE s = 'failed') AS failed,
               count(*) FILTER (WHERE s = 'skipped') AS skipped
        FROM unnest(v_downs, v_states) u(down, s) GROUP BY down) c
  WHERE g.downstream_eid = c.down;
  WITH again AS (
    UPDATE ff_edge_group SET group_state = 'pending', decided_at_ms = NULL, cancel_siblings_pending_flag = false,
      cancel_siblings_pending_members = '{}'
    WHERE downstream_eid = ANY (v_downs) AND group_state = 'impossible'
      AND ff_join_state(join_kind, k_target, edge_count, success_count, fail_count + skip_count) = 'pending'
    RETURNING downstream_eid)
  SELECT coalesce(array_agg(a.downstream_eid), '{}') INTO v_again FROM again a;
  -- A ticket held by another transaction is not waited for: that one waits for the locks taken here, and then finds
  -- nothing left to do.
  DELETE FROM ff_pending_cancel_groups WHERE downstream_eid = ANY (ARRAY(
    SELECT downstream_eid FROM ff_pending_cancel_groups WHERE downstream_eid = ANY (v_again) FOR UPDATE SKIP LOCKED));
  PERFORM ff_count_edges(v_again);
  SELECT coalesce(array_agg(u.id), '{}') INTO v_again FROM unnest(v_again) u(id)
  CROSS JOIN LATERAL (
    SELECT 1 FROM ff_execution WHERE execution_id = u.id AND terminal_outcome = 'skipped' OFFSET 0) e;
  RETURN v_again;
END $$;

-- Counts members that had ended as open again and reopens their flows.
CREATE OR REPLACE FUNCTION ff_recount_members(p_ids uuid[]) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_flows uuid[];
  v_outcomes text[];
BEGIN
  SELECT array_agg(m.flow_id), array_agg(m.outcome::text) INTO v_flows, v_outcomes FROM unnest(p_ids) u(id)
  CROSS JOIN LATERAL (SELECT flow_id, outcome FROM ff_member WHERE execution_id = u.id OFFSET 0) m;
  UPDATE ff_member SET outcome = NULL WHERE execution_id = ANY (p_ids);
  IF v_flows IS NULL THEN RETURN; END IF;
  PERFORM 1 FROM (SELECT DISTINCT unnest(v_flows) AS id ORDER BY 1 OFFSET 0) u
  CROSS JOIN LATERAL (SELECT 1 FROM ff_flow_progress WHERE flow_id = u.id FOR UPDATE) p;
  PERFORM ff_tell_flows(ff_now_ms(), ARRAY['reopened'], array_agg(f.flow_id), array_agg(f.partition_key),
    array_agg(f.namespace), array_agg(f.tags), NULL)
  FROM (SELECT DISTINCT unnest(v_flows) AS id) u
  CROSS JOIN LATERAL (SELECT 1 FROM ff_flow_progress WHERE flow_id = u.id AND outcome IS NOT NULL OFFSET 0) p
  CROSS JOIN LATERAL (SELECT flow_id, partition_key, namespace, tags FROM ff_flow WHERE flow_id = u.id OFFSET 0) f;
  -- Replaying a member of a cancelled flow withdraws the cancellation; a process busy cancelling it sees that and
  -- stops.
  UPDATE ff_flow_progress p SET open_count = open_count + c.n, success_count = success_count - c.success,
    failed_count = failed_count - c.failed, cancelled_count = cancelled_count - c.cancelled,
    expired_count = expired_count - c.expired, skipped_count = skipped_count - c.skipped, outcome = NULL, ended_at_ms = NULL,
    cancel_policy = NULL, cancel_reason = NULL, cancelled_by = NULL, cancelled_at_ms = NULL
  FROM (SELECT f, count(o) AS n, count(*) FILTER (WHERE o = 'success') AS success, count(*) FILTER (WHERE o = 'failed') AS failed,
               count(*) FILTER (WHERE o = 'cancelled') AS cancelled, count(*) FILTER (WHERE o = 'expired') AS expired,
               count(*) FILTER (WHERE o = 'skipped') AS skipped
        FROM unnest(v_flows, v_outcomes) u(f, o) GROUP BY f) c
  WHERE p.flow_id = c.f;
END $$;

-- Replays locked rows. A member that was skipped because of others replayed with it waits for them again instead of
-- running beside them, unless its join still cannot be satisfied.
CREATE OR REPLACE FUNCTION ff_replay_rows(
  p_rows ff_locked[], p_details jsonb[], p_deadlines bigint[], p_held uuid[], p_actor text, p_reason text
) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_ids uuid[] := ARRAY(SELECT r.execution_id FROM unnest(p_rows) r);
  v_after uuid[];
  v_now uuid[];
BEGIN
  v_after := CASE WHEN cardinality(p_held) = 0 THEN '{}' ELSE ARRAY(
    SELECT u.id FROM unnest(v_ids) u(id)
    CROSS JOIN LATERAL (SELECT 1 FROM ff_execution WHERE execution_id = u.id AND terminal_outcome = 'skipped' OFFSET 0) e
    CROSS JOIN LATERAL (
      SELECT 1 FROM ff_edge WHERE downstream_eid = u.id AND state <> 'satisfied' AND upstream_eid = ANY (v_ids) LIMIT 1) x) END;
  v_now := ARRAY(SELECT id FROM unnest(v_ids) id WHERE id <> ALL (v_after));
  -- The second round replays those that did not go back to waiting in the first.
  FOR round IN 1..2 LOOP
    PERFORM ff_settle('replay', ARRAY(SELECT r FROM unnest(p_rows) r WHERE r.execution_id = ANY (v_now)), NULL, NULL, NULL, NULL, p_actor,
      ARRAY(SELECT p_details[n] FROM generate_subscripts(p_rows, 1) n WHERE p_rows[n].execution_id = ANY (v_now) ORDER BY n),
      ARRAY(SELECT p_deadlines[n] FROM generate_subscripts(p_rows, 1) n WHERE p_rows[n].execution_id = ANY (v_now) ORDER BY n));
    PERFORM ff_reopen_flows(
      ARRAY(SELECT r.execution_id FROM unnest(p_rows) r WHERE r.flow_id IS NOT NULL AND r.execution_id = ANY (v_now)), p_held,
      jsonb_build_object('by', p_actor, 'reason', p_reason, 'from', 'failed_step', 'previous_outcome', 'skipped'));
    v_now := ARRAY(
      SELECT u.id FROM unnest(v_after) u(id)
      CROSS JOIN LATERAL (SELECT 1 FROM ff_execution WHERE execution_id = u.id AND lifecycle_phase = 'terminal' OFFSET 0) e);
    EXIT WHEN cardinality(v_now) = 0;
  END LOOP;
END $$;

-- Runs after members p_ids were replayed; p_locked are locked with them. A replayed member runs whatever its join says.
CREATE OR REPLACE FUNCTION ff_reopen_flows(p_ids uuid[], p_locked uuid[], p_details jsonb) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_open uuid[] := p_ids;
  v_next uuid[] := p_ids;
  v_rows ff_locked[];
  v_details jsonb[];
  v_deadlines bigint[];
BEGIN
  IF cardinality(p_ids) = 0 THEN RETURN; END IF;
  PERFORM ff_count_edges(ARRAY(
    SELECT u.id FROM unnest(p_ids) u(id)
    CROSS JOIN LATERAL (SELECT 1 FROM ff_edge_group WHERE downstream_eid = u.id AND group_state <> 'satisfied' OFFSET 0) g));
  UPDATE ff_edge_group SET group_state = 'satisfied', decided_at_ms = ff_now_ms()
  WHERE downstream_eid = ANY (p_ids) AND group_state <> 'satisfied';
  WHILE cardinality(v_next) > 0 LOOP
    v_next := ff_take_back_edges(v_next, p_locked);
    v_open := v_open || v_next;
    SELECT array_agg(ROW(NULL::integer, e.execution_id, e.partition_key, e.route_id, e.priority, e.namespace, e.attempt_index,
                 e.lease_epoch, e.retry_count, e.attempt_state, NULL::bigint, NULL::text, NULL::text, e.attempt_started_at_ms, e.tags,
                 e.retain_ms, e.flow_id, e.attempt_paused,
                 e.parent_id, e.traits)::ff_locked),
           array_agg(p_details || jsonb_build_object('replay_count', e.replay_count + 1)),
           array_agg(ff_now_ms() + (ff_policy_of(e.policy, e.policy_id) #>> '{timeout_policy,execution_deadline_ms}')::bigint)
    INTO v_rows, v_details, v_deadlines FROM unnest(v_next) u(id)
    CROSS JOIN LATERAL (SELECT * FROM ff_execution WHERE execution_id = u.id OFFSET 0) e;
    PERFORM ff_settle('reopen', v_rows, NULL, NULL, NULL, NULL, NULL, v_details, v_deadlines);
  END LOOP;
  PERFORM ff_recount_members(v_open);
END $$;
