-- Builds an open flow step by step: adds executions, stages edges, applies them, and seals it. No join is decided
-- before the flow is sealed. The rules are those of graph.sql.

-- Adds existing executions to an open flow. Those that have ended are counted at once.
CREATE OR REPLACE FUNCTION ff_adopt_members(p_flow uuid, p_partition smallint, p_revision bigint, p_ids uuid[], p_names text[])
RETURNS bigint LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  f ff_flow;
  v_found record;
  v_written bigint;
  v_revision bigint;
BEGIN
  PERFORM ff_require_read_committed();
  f := ff_lock_flow(p_flow, p_partition);
  PERFORM ff_require_open(f, p_revision);
  IF f.sealed_at_ms IS NOT NULL THEN PERFORM ff_refuse_flow('flow_sealed', NULL); END IF;
  PERFORM ff_lock_executions(p_ids);
  FOR v_found IN
    SELECT u.id, e.execution_id, e.partition_key, e.flow_id, e.traits FROM unnest(p_ids) u(id)
    LEFT JOIN LATERAL (SELECT execution_id, partition_key, flow_id, traits FROM ff_execution WHERE execution_id = u.id OFFSET 0) e ON true
  LOOP
    IF v_found.execution_id IS NULL OR v_found.partition_key <> p_partition THEN
      PERFORM ff_refuse_flow('execution_not_found', v_found.id::text);
    ELSIF v_found.flow_id IS NOT NULL THEN
      PERFORM ff_refuse_flow('member_of_a_flow', v_found.id::text);
    ELSIF v_found.traits & 2 <> 0 THEN
      PERFORM ff_refuse_flow('key_not_here', v_found.id::text);
    END IF;
  END LOOP;
  UPDATE ff_execution SET flow_id = p_flow WHERE execution_id = ANY (p_ids);
  GET DIAGNOSTICS v_written = ROW_COUNT;
  PERFORM ff_require_equal('adopted members', cardinality(p_ids), v_written);
  PERFORM ff_insert_members(f, p_ids, p_names, ARRAY(SELECT NULL::text FROM unnest(p_ids)), NULL, NULL);
  v_revision := ff_bump_flow(f, cardinality(p_ids), 0);
  PERFORM ff_count_members(p_ids);
  RETURN v_revision;
END $$;

-- Sets how a member joins, before it has edges.
CREATE OR REPLACE FUNCTION ff_set_join(
  p_flow uuid, p_partition smallint, p_id uuid, p_kind text, p_k integer, p_cancels boolean
) RETURNS text LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  f ff_flow;
  v_old record;
BEGIN
  PERFORM ff_require_read_committed();
  f := ff_lock_flow(p_flow, p_partition);
  PERFORM ff_require_open(f, NULL);
  IF f.sealed_at_ms IS NOT NULL THEN PERFORM ff_refuse_flow('flow_sealed', NULL); END IF;
  PERFORM ff_lock_executions(ARRAY[p_id]);
  PERFORM ff_require_members(p_flow, ARRAY[p_id]);
  SELECT join_kind::text, k_target, cancels_rest INTO v_old FROM ff_edge_group WHERE downstream_eid = p_id;
  IF v_old.join_kind = p_kind AND v_old.k_target = p_k AND v_old.cancels_rest = p_cancels THEN RETURN 'already_set'; END IF;
  PERFORM 1 FROM ff_edge WHERE downstream_eid = p_id LIMIT 1;
  IF FOUND THEN PERFORM ff_refuse_flow('join_fixed', p_id::text); END IF;
  INSERT INTO ff_edge_group AS g (downstream_eid, flow_id, partition_key, join_kind, k_target, edge_count, cancels_rest)
  VALUES (p_id, p_flow, p_partition, p_kind::ff_join_kind, p_k, 0, p_cancels)
  ON CONFLICT (downstream_eid) DO UPDATE SET join_kind = EXCLUDED.join_kind, k_target = EXCLUDED.k_target,
    cancels_rest = EXCLUDED.cancels_rest;
  RETURN 'set';
END $$;

-- Inserts edges that do not count yet. Cycles are refused now.
CREATE OR REPLACE FUNCTION ff_stage_edges(
  p_flow uuid, p_partition smallint, p_revision bigint, p_edge_ids uuid[], p_ups uuid[], p_downs uuid[], p_conditions text[],
  p_input_names text[], p_input_places integer[]
) RETURNS bigint LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  f ff_flow;
BEGIN
  PERFORM ff_require_read_committed();
  f := ff_lock_flow(p_flow, p_partition);
  PERFORM ff_require_open(f, p_revision);
  IF f.sealed_at_ms IS NOT NULL THEN PERFORM ff_refuse_flow('flow_sealed', NULL); END IF;
  PERFORM ff_require_members(p_flow, p_ups || p_downs);
  PERFORM ff_insert_edges(f, 'staged', p_edge_ids, p_ups, p_downs, p_conditions, p_input_names, p_input_places);
  PERFORM ff_refuse_circle(p_ups, p_downs);
  RETURN ff_bump_flow(f, 0, cardinality(p_ups));
END $$;

-- Removes staged edges; applied ones stay. Returns how many.
CREATE OR REPLACE FUNCTION ff_unstage_edges(p_flow uuid, p_partition smallint, p_edge_ids uuid[]) RETURNS integer LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  f ff_flow;
  v_removed integer;
BEGIN
  PERFORM ff_require_read_committed();
  f := ff_lock_flow(p_flow, p_partition);
  PERFORM ff_require_open(f, NULL);
  DELETE FROM ff_edge WHERE edge_id = ANY (p_edge_ids) AND flow_id = p_flow AND state = 'staged';
  GET DIAGNOSTICS v_removed = ROW_COUNT;
  PERFORM ff_bump_flow(f, 0, -v_removed);
  RETURN v_removed;
END $$;

-- Makes downstream members wait for their staged edges; an edge whose upstream has ended is resolved at once. Returns
-- how many were applied; edges applied before are left alone.
CREATE OR REPLACE FUNCTION ff_apply_edges(p_flow uuid, p_partition smallint, p_edge_ids uuid[]) RETURNS integer
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  f ff_flow;
  v_unknown uuid;
  v_ups uuid[];
  v_downs uuid[];
BEGIN
  PERFORM ff_require_read_committed();
  f := ff_lock_flow(p_flow, p_partition);
  PERFORM ff_require_open(f, NULL);
  SELECT u.id INTO v_unknown FROM unnest(p_edge_ids) u(id)
  LEFT JOIN LATERAL (SELECT flow_id FROM ff_edge WHERE edge_id = u.id OFFSET 0) g ON true
  WHERE g.flow_id IS DISTINCT FROM p_flow LIMIT 1;
  IF v_unknown IS NOT NULL THEN PERFORM ff_refuse_flow('edge_not_found', v_unknown::text); END IF;
  -- The flow is locked, so nobody else applies them.
  SELECT array_agg(g.upstream_eid), array_agg(g.downstream_eid) INTO v_ups, v_downs FROM unnest(p_edge_ids) u(id)
  CROSS JOIN LATERAL (SELECT upstream_eid, downstream_eid FROM ff_edge WHERE edge_id = u.id AND state = 'staged' OFFSET 0) g;
  IF v_ups IS NULL THEN RETURN 0; END IF;
  PERFORM ff_lock_executions(v_ups || v_downs);
  UPDATE ff_edge x SET state = 'pending' FROM unnest(v_ups, v_downs) u(up, down)
  WHERE x.upstream_eid = u.up AND x.downstream_eid = u.down;
  PERFORM ff_add_to_joins(f, v_downs);
  PERFORM ff_bump_flow(f, 0, 0);
  PERFORM ff_advance(v_ups, v_downs);
  RETURN cardinality(v_ups);
END $$;

-- Seals a flow: joins are decided from now on, and those that can be are decided here. Returns what ff_advance does.
CREATE OR REPLACE FUNCTION ff_seal_flow(p_flow uuid, p_partition smallint, p_revision bigint)
RETURNS TABLE (execution_id uuid, outcome text, route_id integer) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  f ff_flow;
  v_ids uuid[];
  v_fault uuid;
BEGIN
  PERFORM ff_require_read_committed();
  f := ff_lock_flow(p_flow, p_partition);
  IF f.sealed_at_ms IS NOT NULL THEN RETURN; END IF;
  PERFORM ff_require_open(f, p_revision);
  SELECT array_agg(m.execution_id) INTO v_ids FROM ff_member m WHERE m.flow_id = p_flow;
  IF v_ids IS NULL THEN PERFORM ff_refuse_flow('no_members', NULL); END IF;
  PERFORM ff_lock_executions(v_ids);
  SELECT x.edge_id INTO v_fault FROM unnest(v_ids) u(id)
  CROSS JOIN LATERAL (SELECT edge_id FROM ff_edge WHERE upstream_eid = u.id AND state = 'staged' LIMIT 1) x LIMIT 1;
  IF v_fault IS NOT NULL THEN PERFORM ff_refuse_flow('edges_staged', v_fault::text); END IF;
  SELECT g.downstream_eid INTO v_fault FROM unnest(v_ids) u(id)
  CROSS JOIN LATERAL (
    SELECT downstream_eid FROM ff_edge_group WHERE downstream_eid = u.id AND join_kind <> 'all' AND k_target > edge_count OFFSET 0) g
  LIMIT 1;
  IF v_fault IS NOT NULL THEN PERFORM ff_refuse_flow('too_few_edges', v_fault::text); END IF;
  UPDATE ff_flow SET sealed_at_ms = ff_now_ms() WHERE flow_id = p_flow;
  PERFORM ff_bump_flow(f, 0, 0);
  RETURN QUERY SELECT * FROM ff_decide_joins(v_ids);
  PERFORM 1 FROM ff_flow_progress WHERE flow_id = p_flow FOR UPDATE;
  PERFORM ff_end_flows(ARRAY[p_flow]);
  RETURN QUERY SELECT NULL::uuid, 'more', NULL::integer;
END $$;
