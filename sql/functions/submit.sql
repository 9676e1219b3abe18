-- Creates executions: state, body and their place in the queue or a timer.
-- Runs on a caller's transaction as well, at any isolation level: it inserts, and decides nothing on what others wrote.

-- The number of a route, interning it on first use. Two callers may meet here; the unique key makes one of them wait.
CREATE OR REPLACE FUNCTION ff_intern_route(p_lane text, p_kind text, p_capabilities text[], p_max integer)
RETURNS integer LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_route integer;
BEGIN
  SELECT route_id INTO v_route FROM ff_route
  WHERE lane = p_lane AND kind = p_kind AND capabilities = p_capabilities;
  IF FOUND THEN RETURN v_route; END IF;
  IF (SELECT count(*) FROM ff_route) >= p_max THEN
    RAISE EXCEPTION 'there are already % routes', p_max USING ERRCODE = 'FF003';
  END IF;
  IF NOT EXISTS (SELECT 1 FROM ff_lane WHERE lane = p_lane) THEN
    INSERT INTO ff_lane (lane) VALUES (p_lane) ON CONFLICT DO NOTHING;
  END IF;
  INSERT INTO ff_route (lane, kind, capabilities) VALUES (p_lane, p_kind, p_capabilities)
  ON CONFLICT DO NOTHING RETURNING route_id INTO v_route;
  IF v_route IS NULL THEN
    SELECT route_id INTO v_route FROM ff_route
    WHERE lane = p_lane AND kind = p_kind AND capabilities = p_capabilities;
  END IF;
  IF v_route IS NULL THEN
    RAISE EXCEPTION 'the route was interned by a transaction this one cannot see' USING ERRCODE = '40001';
  END IF;
  RETURN v_route;
END $$;

-- p_routes: [{lane, kind, capabilities}]. p_templates: [{route, namespace, priority, policy, tags}], what many executions
-- of one call have in common; route points into p_routes and p_template_ordinals into p_templates, both from 1.
-- p_channel: where to ring inside this transaction, or NULL when the caller rings after its commit.
-- p_parent: the execution that is told when these end.
CREATE OR REPLACE FUNCTION ff_submit(
  p_routes jsonb, p_max_routes integer, p_templates jsonb, p_ids uuid[], p_partitions smallint[],
  p_template_ordinals integer[], p_delays bigint[], p_payloads jsonb[], p_channel text,
  p_parent uuid DEFAULT NULL, p_parent_partition smallint DEFAULT NULL
) RETURNS TABLE (execution_id uuid, outcome text, route_id integer, due_in_ms bigint) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
-- A caller's open transaction may hold a new route; better to let the connection go and try again than to wait with it.
SET lock_timeout = '2s' SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  s ff_transition%ROWTYPE;
  d ff_transition%ROWTYPE;
  v_now bigint := ff_now_ms();
  v_routes integer[];
  v_template_routes integer[];
  v_namespaces text[];
  v_priorities integer[];
  v_policies jsonb[];
  v_tags jsonb[];
  v_new uuid[];
BEGIN
  SELECT * INTO STRICT s FROM ff_transition WHERE transition = 'submit';
  SELECT * INTO STRICT d FROM ff_transition WHERE transition = 'submit_delayed';
  -- Interned in one order for all callers, so that two that bring the same new routes never wait in a circle.
  v_routes := ARRAY(
    SELECT i.route FROM (
      SELECT x.ord, ff_intern_route(x.lane, x.kind, x.capabilities, p_max_routes) AS route
      FROM (SELECT ord, r ->> 'lane' AS lane, r ->> 'kind' AS kind,
                   ARRAY(SELECT jsonb_array_elements_text(r -> 'capabilities')) AS capabilities
            FROM jsonb_array_elements(p_routes) WITH ORDINALITY e(r, ord)
            ORDER BY lane, kind, capabilities OFFSET 0) x
      OFFSET 0) i
    ORDER BY i.ord);
  SELECT array_agg(v_routes[(t ->> 'route')::integer] ORDER BY ord), array_agg(t ->> 'namespace' ORDER BY ord),
         array_agg((t ->> 'priority')::integer ORDER BY ord), array_agg(t -> 'policy' ORDER BY ord),
         array_agg(t -> 'tags' ORDER BY ord)
  INTO v_template_routes, v_namespaces, v_priorities, v_policies, v_tags
  FROM jsonb_array_elements(p_templates) WITH ORDINALITY e(t, ord);
  WITH inserted AS (
    INSERT INTO ff_execution (
      execution_id, partition_key, route_id, priority, namespace, created_at_ms, changed_at_ms, eligible_at_ms,
      lifecycle_phase, ownership_state, eligibility_state, blocking_reason, terminal_outcome, attempt_state, parent_id,
      parent_partition)
    SELECT id, part, v_template_routes[of], v_priorities[of], v_namespaces[of], v_now, v_now, CASE WHEN delay > 0 THEN v_now + delay END,
           s.lifecycle_phase, s.ownership_state,
           CASE WHEN delay > 0 THEN d.eligibility_state ELSE s.eligibility_state END,
           CASE WHEN delay > 0 THEN d.blocking_reason ELSE s.blocking_reason END, s.terminal_outcome, s.attempt_state,
           p_parent, p_parent_partition
    FROM unnest(p_ids, p_partitions, p_template_ordinals, p_delays) u(id, part, of, delay)
    ORDER BY id
    ON CONFLICT DO NOTHING RETURNING execution_id)
  SELECT array_agg(execution_id) INTO v_new FROM inserted;
  IF cardinality(v_new) IS DISTINCT FROM cardinality(p_ids) AND EXISTS (
    SELECT 1 FROM unnest(p_ids, p_partitions) u(id, part)
    CROSS JOIN LATERAL (SELECT partition_key FROM ff_execution WHERE execution_id = u.id OFFSET 0) e
    WHERE e.partition_key <> u.part) THEN
    RAISE EXCEPTION 'a uuid already names an execution of another partition' USING ERRCODE = 'FF004';
  END IF;
  -- CASE keeps the test a hashed look-up; with every id new (the usual case) it is skipped altogether.
  WITH i AS MATERIALIZED (
    SELECT * FROM unnest(p_ids, p_partitions, p_template_ordinals, p_delays, p_payloads)
      WITH ORDINALITY u(id, part, of, delay, payload, ord)
    WHERE CASE WHEN cardinality(v_new) = cardinality(p_ids) THEN true
               WHEN u.id IN (SELECT unnest(v_new)) THEN true ELSE false END),
  bodies AS (
    INSERT INTO ff_body (execution_id, partition_key, payload, policy, tags)
    SELECT id, part, payload, v_policies[of], v_tags[of] FROM i),
  queued AS (
    INSERT INTO ff_ready (execution_id, partition_key, route_id, priority, attempt_index, lease_epoch, ready_at_ms)
    SELECT id, part, v_template_routes[of], v_priorities[of], 0, 0, v_now FROM i WHERE delay <= 0 ORDER BY ord)
  INSERT INTO ff_timer (kind, due_at_ms, execution_id, partition_key, attempt_index, lease_epoch)
  SELECT 'eligible', v_now + delay, id, part, 0, 0 FROM i WHERE delay > 0;
  IF p_channel IS NOT NULL AND v_new IS NOT NULL THEN
    -- A notification holds 8,000 bytes; with more routes than fit it says "look everywhere".
    PERFORM pg_notify(p_channel, jsonb_strip_nulls(jsonb_build_object(
      'routes', CASE WHEN cardinality(v_routes) <= 500 THEN to_jsonb(v_routes) ELSE '"all"'::jsonb END,
      'due', (SELECT min(x) FROM unnest(p_delays) x WHERE x > 0)))::text);
  END IF;
  RETURN QUERY
  SELECT u.id,
         CASE WHEN cardinality(v_new) = cardinality(p_ids) THEN 'submitted'
              WHEN u.id IN (SELECT unnest(v_new)) THEN 'submitted' ELSE 'duplicate' END,
         v_template_routes[u.of], CASE WHEN u.delay > 0 THEN u.delay END
  FROM unnest(p_ids, p_template_ordinals, p_delays) WITH ORDINALITY u(id, of, delay, ord) ORDER BY u.ord;
END $$;
