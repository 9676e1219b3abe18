-- Builds flows. Whoever changes a graph locks its flow first, then every execution it touches in one pass in id order;
-- then its edges and joins cannot change concurrently. A refused call writes nothing: it raises FF008 with the refusal
-- code as its message and its subject as the detail.

CREATE OR REPLACE FUNCTION ff_refuse_flow(p_code text, p_detail text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'FF008', MESSAGE = p_code, DETAIL = coalesce(p_detail, '');
END $$;

-- Locks executions in one pass, in id order. Their leases are not locked.
CREATE OR REPLACE FUNCTION ff_lock_executions(p_ids uuid[]) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  PERFORM 1 FROM (SELECT DISTINCT unnest(p_ids) AS id ORDER BY 1 OFFSET 0) u
  CROSS JOIN LATERAL (SELECT 1 FROM ff_execution WHERE execution_id = u.id FOR UPDATE) e;
END $$;

-- Locks a flow in order to change its graph.
CREATE OR REPLACE FUNCTION ff_lock_flow(p_flow uuid, p_partition smallint) RETURNS ff_flow LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  f ff_flow;
BEGIN
  SELECT * INTO f FROM ff_flow WHERE flow_id = p_flow AND partition_key = p_partition FOR UPDATE;
  IF NOT FOUND THEN PERFORM ff_refuse_flow('not_found', NULL); END IF;
  RETURN f;
END $$;

-- Refuses a change to a locked flow that has ended, is being cancelled, or is not at the expected revision.
CREATE OR REPLACE FUNCTION ff_require_open(f ff_flow, p_revision bigint) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  PERFORM 1 FROM ff_flow_progress WHERE flow_id = f.flow_id AND (outcome IS NOT NULL OR cancel_policy IS NOT NULL);
  IF FOUND THEN PERFORM ff_refuse_flow('flow_ended', NULL); END IF;
  IF p_revision IS NOT NULL AND f.graph_revision <> p_revision THEN
    PERFORM ff_refuse_flow('stale_revision', f.graph_revision::text);
  END IF;
END $$;

-- Refuses executions that are not members of the flow.
CREATE OR REPLACE FUNCTION ff_require_members(p_flow uuid, p_ids uuid[]) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_stranger uuid;
BEGIN
  SELECT u.id INTO v_stranger FROM unnest(p_ids) u(id)
  LEFT JOIN LATERAL (SELECT flow_id FROM ff_member WHERE execution_id = u.id OFFSET 0) m ON true
  WHERE m.flow_id IS DISTINCT FROM p_flow LIMIT 1;
  IF v_stranger IS NOT NULL THEN PERFORM ff_refuse_flow('not_a_member', v_stranger::text); END IF;
END $$;

-- Whether the existing edges among these members form a cycle: nodes without upstreams are removed until none is left,
-- or every remaining one comes after another. Nodes are numbered, so that each edge is visited once.
CREATE OR REPLACE FUNCTION ff_has_circle(p_nodes uuid[]) RETURNS boolean LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_numbers jsonb;
  v_from integer[];
  v_to integer[];
  v_first integer[] := array_fill(NULL::integer, ARRAY[cardinality(p_nodes)]);
  v_before integer[] := array_fill(0, ARRAY[cardinality(p_nodes)]);
  v_free integer[] := '{}';
  v_taken integer := 0;
  v_node integer;
  v_edge integer;
BEGIN
  SELECT jsonb_object_agg(id, n) INTO v_numbers FROM unnest(p_nodes) WITH ORDINALITY u(id, n);
  SELECT array_agg(u.n ORDER BY u.n), array_agg((v_numbers ->> x.downstream_eid::text)::integer ORDER BY u.n) INTO v_from, v_to
  FROM unnest(p_nodes) WITH ORDINALITY u(id, n)
  CROSS JOIN LATERAL (SELECT downstream_eid FROM ff_edge WHERE upstream_eid = u.id OFFSET 0) x;
  FOR v_edge IN 1..coalesce(cardinality(v_from), 0) LOOP
    v_first[v_from[v_edge]] := coalesce(v_first[v_from[v_edge]], v_edge);
    v_before[v_to[v_edge]] := v_before[v_to[v_edge]] + 1;
  END LOOP;
  FOR v_node IN 1..cardinality(p_nodes) LOOP
    IF v_before[v_node] = 0 THEN v_free := v_free || v_node; END IF;
  END LOOP;
  WHILE v_taken < cardinality(v_free) LOOP
    v_taken := v_taken + 1;
    v_node := v_free[v_taken];
    v_edge := v_first[v_node];
    WHILE v_from[v_edge] = v_node LOOP
      v_before[v_to[v_edge]] := v_before[v_to[v_edge]] - 1;
      IF v_before[v_to[v_edge]] = 0 THEN v_free := v_free || v_to[v_edge]; END IF;
      v_edge := v_edge + 1;
    END LOOP;
  END LOOP;
  RETURN v_taken < cardinality(p_nodes);
END $$;

-- Refuses new edges (p_ups, p_downs, already inserted) that close a cycle. Only what can be reached from the ends of
-- the new edges is examined.
CREATE OR REPLACE FUNCTION ff_refuse_circle(p_ups uuid[], p_downs uuid[]) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_reached uuid[];
  v_up uuid;
  v_down uuid;
BEGIN
  v_reached := ARRAY(
    WITH RECURSIVE reached AS (
      SELECT DISTINCT unnest(p_downs) AS id
      UNION
      SELECT g.downstream_eid FROM reached r
      CROSS JOIN LATERAL (SELECT downstream_eid FROM ff_edge WHERE upstream_eid = r.id OFFSET 0) g)
    SELECT id FROM reached);
  IF NOT ff_has_circle(v_reached) THEN RETURN; END IF;
  -- Finds one new edge in the cycle to name it: its downstream leads back to its upstream.
  FOR v_up, v_down IN SELECT up, down FROM unnest(p_ups, p_downs) u(up, down)
    WHERE CASE WHEN up IN (SELECT unnest(v_reached)) THEN true ELSE false END LOOP
    IF EXISTS (
      WITH RECURSIVE reached AS (
        SELECT v_down AS id
        UNION
        SELECT g.downstream_eid FROM reached r
        CROSS JOIN LATERAL (SELECT downstream_eid FROM ff_edge WHERE upstream_eid = r.id OFFSET 0) g)
      SELECT 1 FROM reached WHERE id = v_up) THEN
      PERFORM ff_refuse_flow('cycle', v_up::text || ' ' || v_down::text);
    END IF;
  END LOOP;
END $$;

-- Inserts members: the existing executions p_ids, and the joins of those that have one.
CREATE OR REPLACE FUNCTION ff_insert_members(
  f ff_flow, p_ids uuid[], p_names text[], p_kinds text[], p_ks integer[], p_cancels boolean[]
) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_taken text;
BEGIN
  SELECT u.n INTO v_taken FROM unnest(p_names) u(n)
  CROSS JOIN LATERAL (SELECT 1 FROM ff_member WHERE flow_id = f.flow_id AND name = u.n OFFSET 0) m LIMIT 1;
  IF v_taken IS NOT NULL THEN PERFORM ff_refuse_flow('name_taken', v_taken); END IF;
  INSERT INTO ff_member (flow_id, execution_id, partition_key, name)
  SELECT f.flow_id, id, f.partition_key, n FROM unnest(p_ids, p_names) u(id, n);
  INSERT INTO ff_edge_group (downstream_eid, flow_id, partition_key, join_kind, k_target, edge_count, cancels_rest)
  SELECT id, f.flow_id, f.partition_key, kind::ff_join_kind, k, 0, cancels
  FROM unnest(p_ids, p_kinds, p_ks, p_cancels) u(id, kind, k, cancels) WHERE kind IS NOT NULL;
  UPDATE ff_flow_progress SET open_count = open_count + cardinality(p_ids) WHERE flow_id = f.flow_id;
END $$;

-- Inserts edges between existing, locked members.
CREATE OR REPLACE FUNCTION ff_insert_edges(
  f ff_flow, p_state ff_edge_state, p_edge_ids uuid[], p_ups uuid[], p_downs uuid[], p_conditions text[], p_input_names text[],
  p_input_places integer[]
) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_known uuid;
BEGIN
  SELECT u.up INTO v_known FROM unnest(p_ups, p_downs) u(up, down)
  CROSS JOIN LATERAL (SELECT 1 FROM ff_edge WHERE upstream_eid = u.up AND downstream_eid = u.down OFFSET 0) g LIMIT 1;
  IF v_known IS NOT NULL THEN PERFORM ff_refuse_flow('edge_exists', v_known::text); END IF;
  INSERT INTO ff_edge (upstream_eid, downstream_eid, flow_id, edge_id, created_at_ms, input_place, partition_key, condition,
                       state, input_name)
  SELECT up, down, f.flow_id, id, ff_now_ms(),
         -- After the existing inputs, whichever call added them.
         place + coalesce((SELECT max(x.input_place) + 1 FROM ff_edge x WHERE x.downstream_eid = down), 0), f.partition_key, condition::ff_edge_condition, p_state, name
  FROM unnest(p_edge_ids, p_ups, p_downs, p_conditions, p_input_names, p_input_places) u(id, up, down, condition, name, place);
  PERFORM ff_require_room(ARRAY(SELECT DISTINCT d FROM unnest(p_downs, p_input_names) u(d, n) WHERE n IS NOT NULL));
  IF p_state = 'pending' THEN PERFORM ff_add_to_joins(f, p_downs); END IF;
END $$;

-- Refuses edges whose value cannot be put into the payload of the member they lead to, or whose name is taken.
CREATE OR REPLACE FUNCTION ff_require_room(p_downs uuid[]) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_full uuid;
BEGIN
  SELECT u.id INTO v_full FROM unnest(p_downs) u(id)
  CROSS JOIN LATERAL (
    SELECT 1 FROM ff_execution WHERE execution_id = u.id AND jsonb_typeof(ff_payload_of(payload, u.id)) NOT IN ('object', 'null') OFFSET 0) b LIMIT 1;
  IF v_full IS NOT NULL THEN PERFORM ff_refuse_flow('no_room', v_full::text); END IF;
  SELECT u.id INTO v_full FROM unnest(p_downs) u(id)
  CROSS JOIN LATERAL (
    SELECT 1 FROM ff_edge WHERE downstream_eid = u.id AND input_name IS NOT NULL
    GROUP BY input_name HAVING count(*) > 1 AND bool_or(input_place IS NULL) LIMIT 1) x LIMIT 1;
  IF v_full IS NOT NULL THEN PERFORM ff_refuse_flow('input_taken', v_full::text); END IF;
END $$;

-- Adds one edge to the joins of each of p_downs, locked. A member that has begun or was decided cannot wait any more.
CREATE OR REPLACE FUNCTION ff_add_to_joins(f ff_flow, p_downs uuid[]) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_late uuid;
BEGIN
  INSERT INTO ff_edge_group (downstream_eid, flow_id, partition_key, join_kind, k_target, edge_count, cancels_rest)
  SELECT DISTINCT u.id, f.flow_id, f.partition_key, 'all'::ff_join_kind, 0, 0, false FROM unnest(p_downs) u(id)
  LEFT JOIN LATERAL (SELECT 1 AS found FROM ff_edge_group WHERE downstream_eid = u.id OFFSET 0) g ON true
  WHERE g.found IS NULL;
  UPDATE ff_edge_group g SET edge_count = edge_count + c.n
  FROM (SELECT u.id, count(*) AS n FROM unnest(p_downs) u(id) GROUP BY u.id) c WHERE g.downstream_eid = c.id;
  PERFORM ff_settle('block', ff_unbegun_rows(p_downs, 'eligible_now'), NULL, NULL, NULL, NULL, NULL);
  SELECT u.id INTO v_late FROM unnest(p_downs) u(id)
  CROSS JOIN LATERAL (SELECT group_state FROM ff_edge_group WHERE downstream_eid = u.id OFFSET 0) g
  CROSS JOIN LATERAL (
    SELECT 1 FROM ff_execution WHERE execution_id = u.id
      AND (g.group_state <> 'pending' OR eligibility_state <> 'blocked_by_dependencies' OR attempt_state = 'attempt_interrupted')
    OFFSET 0) e
  LIMIT 1;
  IF v_late IS NOT NULL THEN PERFORM ff_refuse_flow('already_started', v_late::text); END IF;
END $$;

-- Records a change of the graph in its flow.
CREATE OR REPLACE FUNCTION ff_bump_flow(f ff_flow, p_nodes integer, p_edges integer) RETURNS bigint LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_revision bigint;
BEGIN
  UPDATE ff_flow SET graph_revision = graph_revision + 1, node_count = node_count + p_nodes, edge_count = edge_count + p_edges,
    changed_at_ms = ff_now_ms()
  WHERE flow_id = f.flow_id RETURNING graph_revision INTO v_revision;
  RETURN v_revision;
END $$;

-- Creates a flow, sealed or open. Returns whether it is new.
CREATE OR REPLACE FUNCTION ff_create_flow(
  p_flow uuid, p_partition smallint, p_name text, p_namespace text, p_tags jsonb, p_sealed boolean
) RETURNS boolean LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_now bigint := ff_now_ms();
BEGIN
  PERFORM ff_require_read_committed();
  INSERT INTO ff_flow (flow_id, partition_key, created_at_ms, changed_at_ms, sealed_at_ms, graph_revision, node_count, edge_count,
                       name, namespace, tags)
  VALUES (p_flow, p_partition, v_now, v_now, CASE WHEN p_sealed THEN v_now END, 0, 0, 0, p_name, p_namespace, p_tags)
  ON CONFLICT DO NOTHING;
  IF NOT FOUND THEN
    PERFORM 1 FROM ff_flow WHERE flow_id = p_flow AND partition_key = p_partition;
    IF NOT FOUND THEN PERFORM ff_refuse_flow('wrong_partition', NULL); END IF;
    RETURN false;
  END IF;
  INSERT INTO ff_flow_progress (flow_id, partition_key, open_count) VALUES (p_flow, p_partition, 0);
  PERFORM ff_tell_flows(v_now, ARRAY['submitted'], ARRAY[p_flow], ARRAY[p_partition], ARRAY[p_namespace], ARRAY[p_tags],
    ARRAY[jsonb_build_object('name', p_name)]);
  RETURN true;
END $$;

-- Adds members to a flow with their edges, all or none. p_ids, p_partitions, p_template_ordinals, p_delays, p_payloads,
-- p_routes, p_templates: as in ff_submit. p_kinds: how each member joins, NULL for one that waits for nothing. With a
-- lease (a member's execution, attempt and epoch) also to a sealed flow. Members are identified by name: if all of them
-- exist already, they are returned as `duplicate`.
CREATE OR REPLACE FUNCTION ff_grow_flow(
  p_flow uuid, p_partition smallint, p_revision bigint, p_member uuid, p_attempt integer, p_epoch bigint,
  p_routes jsonb, p_templates jsonb, p_ids uuid[], p_partitions smallint[], p_template_ordinals integer[],
  p_delays bigint[], p_payloads jsonb[], p_names text[], p_kinds text[], p_ks integer[], p_cancels boolean[],
  p_edge_ids uuid[], p_ups uuid[], p_downs uuid[], p_conditions text[], p_input_names text[], p_input_places integer[]
) RETURNS TABLE (execution_id uuid, outcome text, route_id integer, due_in_ms bigint, name text, graph_revision bigint)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET lock_timeout = '2s' SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  f ff_flow;
  v_revision bigint;
  v_old uuid[];
BEGIN
  PERFORM ff_require_read_committed();
  IF ff_has_unknown_route(p_routes) THEN
    RETURN QUERY SELECT NULL::uuid, 'unknown_route', NULL::integer, NULL::bigint, NULL::text, NULL::bigint;
    RETURN;
  END IF;
  f := ff_lock_flow(p_flow, p_partition);
  IF cardinality(p_names) > 0 AND cardinality(p_names) = (
    SELECT count(*) FROM unnest(p_names) u(n)
    CROSS JOIN LATERAL (SELECT 1 FROM ff_member WHERE flow_id = p_flow AND name = u.n OFFSET 0) m) THEN
    RETURN QUERY
    SELECT m.execution_id, 'duplicate', NULL::integer, NULL::bigint, u.n, f.graph_revision FROM unnest(p_names) u(n)
    CROSS JOIN LATERAL (SELECT execution_id FROM ff_member WHERE flow_id = p_flow AND name = u.n OFFSET 0) m;
    RETURN;
  END IF;
  PERFORM ff_require_open(f, p_revision);
  -- The existing executions; nobody else can see the new ones yet.
  v_old := ARRAY(
    SELECT DISTINCT x FROM unnest(p_ups || p_downs) x
    -- CASE keeps this a hashed lookup.
    WHERE CASE WHEN x IN (SELECT unnest(p_ids)) THEN false ELSE true END);
  PERFORM ff_lock_executions(v_old || p_member);
  IF p_member IS NOT NULL THEN
    IF cardinality(ff_share_leases(ARRAY[p_member], ARRAY[p_partition], ARRAY[p_attempt], ARRAY[p_epoch])) = 0 THEN
      PERFORM ff_refuse_flow('lease_lost', p_member::text);
    END IF;
    PERFORM ff_require_members(p_flow, ARRAY[p_member]);
  ELSIF f.sealed_at_ms IS NOT NULL AND f.node_count > 0 THEN
    PERFORM ff_refuse_flow('flow_sealed', NULL);
  END IF;
  PERFORM ff_require_members(p_flow, v_old);
  RETURN QUERY
  SELECT s.execution_id, s.outcome, CASE WHEN p_kinds[s.ord] IS NULL THEN s.route_id END, s.due_in_ms, p_names[s.ord], NULL::bigint
  FROM ff_submit(p_routes, p_templates, p_ids, p_partitions, p_template_ordinals, p_delays, p_payloads, NULL,
    p_flow => p_flow, p_blocked => ARRAY(SELECT k IS NOT NULL FROM unnest(p_kinds) WITH ORDINALITY u(k, ord) ORDER BY ord))
    WITH ORDINALITY s(execution_id, outcome, route_id, due_in_ms, existing_id, worker_instance_id, ord);
  PERFORM ff_insert_members(f, p_ids, p_names, p_kinds, p_ks, p_cancels);
  PERFORM ff_insert_edges(f, 'pending', p_edge_ids, p_ups, p_downs, p_conditions, p_input_names, p_input_places);
  IF cardinality(v_old) > 0 THEN PERFORM ff_refuse_circle(p_ups, p_downs); END IF;
  v_revision := ff_bump_flow(f, cardinality(p_ids), cardinality(p_ups));
  -- Resolves edges whose upstream had already ended.
  RETURN QUERY
  SELECT a.execution_id, a.outcome, a.route_id, NULL::bigint, NULL::text, NULL::bigint FROM ff_advance(v_old, p_downs) a;
  RETURN QUERY SELECT NULL::uuid, 'grown', NULL::integer, NULL::bigint, NULL::text, v_revision;
END $$;

-- Submits a whole flow at once, sealed. Returns what ff_grow_flow does; for a flow that exists, its members as
-- `duplicate`.
CREATE OR REPLACE FUNCTION ff_submit_flow(
  p_flow uuid, p_partition smallint, p_flow_name text, p_namespace text, p_tags jsonb,
  p_routes jsonb, p_templates jsonb, p_ids uuid[], p_partitions smallint[], p_template_ordinals integer[],
  p_delays bigint[], p_payloads jsonb[], p_names text[], p_kinds text[], p_ks integer[], p_cancels boolean[],
  p_edge_ids uuid[], p_ups uuid[], p_downs uuid[], p_conditions text[], p_input_names text[], p_input_places integer[]
) RETURNS TABLE (execution_id uuid, outcome text, route_id integer, due_in_ms bigint, name text, graph_revision bigint)
LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
BEGIN
  IF ff_has_unknown_route(p_routes) THEN
    RETURN QUERY SELECT NULL::uuid, 'unknown_route', NULL::integer, NULL::bigint, NULL::text, NULL::bigint;
    RETURN;
  END IF;
  IF ff_create_flow(p_flow, p_partition, p_flow_name, p_namespace, p_tags, true) THEN
    RETURN QUERY
    SELECT * FROM ff_grow_flow(p_flow, p_partition, NULL, NULL, NULL, NULL, p_routes, p_templates, p_ids,
      p_partitions, p_template_ordinals, p_delays, p_payloads, p_names, p_kinds, p_ks, p_cancels, p_edge_ids, p_ups, p_downs,
      p_conditions, p_input_names, p_input_places);
    RETURN;
  END IF;
  RETURN QUERY
  SELECT m.execution_id, 'duplicate', NULL::integer, NULL::bigint, m.name, NULL::bigint FROM ff_member m WHERE m.flow_id = p_flow
  UNION ALL
  SELECT NULL, 'known', NULL, NULL, NULL, f.graph_revision FROM ff_flow f WHERE f.flow_id = p_flow;
END $$;
