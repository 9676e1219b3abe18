-- Creates executions, each with its queue row or timer.
-- Also runs in a caller's transaction, at any isolation level: it locks or inserts a key or id before it decides on it,
-- and a snapshot too old for that fails with 40001.

-- Whether a tag is indexed. Trace tags differ for every execution, and nobody searches for them.
CREATE OR REPLACE FUNCTION ff_is_listed_tag(p_key text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN p_key NOT IN ('traceparent', 'tracestate');

-- The numbers of policies that are interned; NULL for the others, which are stored with each execution. A submit never
-- interns: it would make whoever brings the same policy wait for the caller's transaction.
CREATE OR REPLACE FUNCTION ff_known_policies(p_policies jsonb[]) RETURNS integer[] LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  RETURN ARRAY(
    SELECT f.policy_id FROM unnest(p_policies) WITH ORDINALITY u(policy, ord)
    LEFT JOIN LATERAL (SELECT policy_id FROM ff_policy WHERE hash = md5(u.policy::text)::uuid OFFSET 0) f ON true
    ORDER BY u.ord);
END $$;

-- Interns policies in a transaction of its own, while there are fewer than p_max. It only saves space: nobody waits for
-- it, and nothing depends on it. In one order, so that two callers cannot deadlock.
CREATE OR REPLACE FUNCTION ff_intern_policies(p_policies jsonb[], p_max integer) RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
BEGIN
  IF (SELECT count(*) FROM ff_policy) >= p_max THEN RETURN; END IF;
  INSERT INTO ff_policy (hash, policy)
  SELECT u.hash, u.policy FROM (SELECT md5(policy::text)::uuid AS hash, policy FROM unnest(p_policies) policy) u
  LEFT JOIN LATERAL (SELECT 1 AS found FROM ff_policy WHERE hash = u.hash OFFSET 0) f ON true
  WHERE f.found IS NULL ORDER BY u.hash ON CONFLICT DO NOTHING;
END $$;

-- What the policy says about an execution that is going to have more than its row, as bits of ff_execution.traits:
--   1    it has limits of time, and so it may have timers of them
--   8    it redacts values
--   16   all its events are told (also where the lane says so)
--   256  it does not end with its parent
-- and what is not of the policy:
--   2    it was submitted with a key
--   4    it may have children that end with it (ff_spawn)
--   32   it has a mailbox (ff_send_message)
--   64   it has waited for topics, and may do so now
--   128  it has continued as a new run (ff_continue)
CREATE OR REPLACE FUNCTION ff_traits_of(p_policy jsonb) RETURNS smallint LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
  RETURN CASE WHEN p_policy -> 'timeout_policy' ?| '{execution_deadline_ms,attempt_timeout_ms}' THEN 1 ELSE 0 END
    + CASE WHEN p_policy ? 'redact' THEN 8 ELSE 0 END + CASE WHEN p_policy ? 'events' THEN 16 ELSE 0 END
    + CASE WHEN p_policy ? 'detached' THEN 256 ELSE 0 END;
END $$;

-- Whether a payload is kept beside the row of its execution. Up to about this size, a row and an index entry of its own
-- cost more than the space it takes in a page that is mostly empty.
CREATE OR REPLACE FUNCTION ff_is_large(p_payload jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN pg_column_size(p_payload) > 256;

-- Takes idempotency keys for executions about to be submitted, in one order for all callers. Returns which execution
-- holds each key now: the one submitted, or an earlier one. A rival that has not committed is waited for. A key that
-- has expired and whose execution has ended or is gone is taken over. One key for two different bodies is an error, and
-- nothing is written.
CREATE OR REPLACE FUNCTION ff_take_keys(
  p_namespaces text[], p_keys text[], p_hashes text[], p_windows bigint[], p_ids uuid[], p_partitions smallint[]
) RETURNS uuid[] LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_now bigint := ff_now_ms();
  c_rounds CONSTANT integer := 10;
  v_wanted bigint := cardinality(array_remove(p_keys, NULL));
  v_locked bigint;
  v_holders uuid[];
  v_faulty bigint;
BEGIN
  -- Retried when an expired key that had blocked our insert was removed afterwards.
  FOR round IN 1..c_rounds LOOP
    INSERT INTO ff_idempotency (namespace, key, partition_key, execution_id, body_hash, expires_at_ms)
    SELECT n, k, part, id, decode(h, 'hex'), v_now + w
    FROM unnest(p_namespaces, p_keys, p_hashes, p_windows, p_ids, p_partitions) u(n, k, h, w, id, part)
    WHERE k IS NOT NULL ORDER BY n, k ON CONFLICT DO NOTHING;
    -- Separate statements: what a rival committed during the wait must be visible.
    SELECT count(*) INTO v_locked
    FROM (SELECT * FROM unnest(p_namespaces, p_keys, p_partitions) u(n, k, part) WHERE k IS NOT NULL
          ORDER BY n, k OFFSET 0) u
    CROSS JOIN LATERAL (
      SELECT 1 FROM ff_idempotency WHERE namespace = u.n AND key = u.k AND partition_key = u.part FOR UPDATE) i;
    EXIT WHEN v_locked = v_wanted;
    IF round = c_rounds THEN
      RAISE EXCEPTION 'idempotency keys were removed again and again' USING ERRCODE = '40001';
    END IF;
  END LOOP;
  WITH free AS MATERIALIZED (
    SELECT u.n, u.k, u.part, u.id, decode(u.h, 'hex') AS hash, u.w
    FROM unnest(p_namespaces, p_keys, p_hashes, p_windows, p_ids, p_partitions) u(n, k, h, w, id, part)
    CROSS JOIN LATERAL (
      SELECT execution_id FROM ff_idempotency
      WHERE namespace = u.n AND key = u.k AND partition_key = u.part AND execution_id <> u.id AND expires_at_ms <= v_now
      OFFSET 0) i
    LEFT JOIN LATERAL (
      SELECT lifecycle_phase FROM ff_execution WHERE execution_id = i.execution_id OFFSET 0) e ON true
    WHERE e.lifecycle_phase IS NULL OR e.lifecycle_phase = 'terminal')
  UPDATE ff_idempotency i SET execution_id = f.id, body_hash = f.hash, expires_at_ms = v_now + f.w
  FROM free f WHERE i.namespace = f.n AND i.key = f.k AND i.partition_key = f.part;
  SELECT array_agg(i.execution_id ORDER BY u.ord), min(u.ord) FILTER (WHERE i.body_hash <> decode(u.h, 'hex'))
  INTO v_holders, v_faulty
  FROM unnest(p_namespaces, p_keys, p_hashes, p_partitions) WITH ORDINALITY u(n, k, h, part, ord)
  LEFT JOIN LATERAL (
    SELECT execution_id, body_hash FROM ff_idempotency
    WHERE namespace = u.n AND key = u.k AND partition_key = u.part OFFSET 0) i ON true;
  IF v_faulty IS NOT NULL THEN
    RAISE EXCEPTION 'an idempotency key stands for another request' USING ERRCODE = 'FF005', DETAIL = v_faulty::text;
  END IF;
  RETURN v_holders;
END $$;

-- The submitted executions that exist already, and those whose key another execution holds.
CREATE OR REPLACE FUNCTION ff_known_ids(p_ids uuid[], p_holders uuid[]) RETURNS uuid[] LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  RETURN ARRAY(
    SELECT u.id FROM unnest(p_ids, p_holders) u(id, holder)
    LEFT JOIN LATERAL (SELECT execution_id FROM ff_execution WHERE execution_id = u.id OFFSET 0) e ON true
    WHERE e.execution_id IS NOT NULL OR u.holder <> u.id);
END $$;

-- Writes what submitted executions have beside their rows: tags, by which they are found, and large payloads.
CREATE OR REPLACE FUNCTION ff_submit_beside(
  p_now bigint, p_ids uuid[], p_partitions smallint[], p_payloads jsonb[], p_known uuid[], p_template_ordinals integer[], p_tags jsonb[]
) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  INSERT INTO ff_payload (execution_id, partition_key, payload)
  SELECT id, part, payload FROM unnest(p_ids, p_partitions, p_payloads) u(id, part, payload)
  WHERE ff_is_large(payload) AND id <> ALL (p_known) ORDER BY id;
  INSERT INTO ff_tag (tag_key, tag_value, created_at_ms, execution_id, partition_key)
  SELECT t.key, t.value, p_now, u.id, u.part
  FROM unnest(p_ids, p_partitions, p_template_ordinals) u(id, part, of)
  CROSS JOIN LATERAL jsonb_each_text(p_tags[u.of]) t
  WHERE ff_is_listed_tag(t.key) AND CASE WHEN cardinality(p_known) = 0 THEN true
                                         WHEN u.id IN (SELECT unnest(p_known)) THEN false ELSE true END;
END $$;

-- p_routes: [{lane, kind, capabilities}], interned before; while one is missing, nothing is written and `unknown_route`
-- is returned. p_templates: [{route, namespace, priority, policy, tags}], what many executions of one call have in
-- common; route points into p_routes and p_template_ordinals into p_templates, both from 1.
-- p_channel: where to notify inside this transaction, or NULL when the caller notifies after its commit.
-- p_flow: the flow they are members of; p_blocked: those that wait for other members.
-- p_transaction: the caller's transaction they belong to, or NULL when they are a transaction of their own.
-- p_parent, p_spawn_place: the execution to notify when these end, and where in its life they are spawned. p_keys, p_hashes,
-- p_windows: idempotency keys, the hash of the request each stands for and how long it is valid, or NULL when there are
-- none. existing_id holds a taken key.
-- p_own_keys, p_if_exists: the keys that are to name them, and what to do where one names an open execution; or NULL. Such
-- a row returns `attached`, `refused` or `replaced`, with that execution as existing_id, and with the worker that ran it if
-- it was replaced.
-- p_patience_ms: how long to wait for a key or id that another transaction holds.
CREATE OR REPLACE FUNCTION ff_submit(
  p_routes jsonb, p_templates jsonb, p_ids uuid[], p_partitions smallint[],
  p_template_ordinals integer[], p_delays bigint[], p_payloads jsonb[], p_channel text,
  p_parent uuid DEFAULT NULL, p_keys text[] DEFAULT NULL,
  p_hashes text[] DEFAULT NULL, p_windows bigint[] DEFAULT NULL, p_flow uuid DEFAULT NULL, p_blocked boolean[] DEFAULT NULL,
  p_patience_ms integer DEFAULT NULL, p_transaction text DEFAULT NULL, p_own_keys text[] DEFAULT NULL,
  p_if_exists text[] DEFAULT NULL, p_spawn_place bigint DEFAULT NULL
) RETURNS TABLE (
  execution_id uuid, outcome text, route_id integer, due_in_ms bigint, existing_id uuid, worker_instance_id text
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
-- A long transaction may hold a key or an id; releasing the connection is better than waiting with it.
SET lock_timeout = '2s' SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  s ff_transition%ROWTYPE;
  d ff_transition%ROWTYPE;
  b ff_transition%ROWTYPE;
  -- Taken before the clock is read, so that a submit within a route's term is known to be running when the term ends.
  v_xid xid8 := pg_current_xact_id();
  v_now bigint := ff_now_ms();
  v_routes integer[];
  v_template_routes integer[];
  v_namespaces text[];
  v_priorities integer[];
  v_policies jsonb[];
  v_policy_ids integer[];
  v_tags jsonb[];
  v_deadlines bigint[];
  v_limits bigint[];
  v_retains bigint[];
  v_traits smallint[];
  v_all_traits smallint;
  v_holders uuid[];
  v_keyed ff_keyed[];
  -- Of p_ids: those that exist already, or whose key another execution holds.
  v_known uuid[] := '{}';
  v_tried uuid[];
BEGIN
  IF p_transaction IS NOT NULL THEN PERFORM ff_require_transaction(p_transaction); END IF;
  SELECT * INTO STRICT s FROM ff_transition WHERE transition = 'submit';
  SELECT * INTO STRICT d FROM ff_transition WHERE transition = 'submit_delayed';
  SELECT * INTO STRICT b FROM ff_transition WHERE transition = 'submit_blocked';
  v_routes := ff_find_routes(p_routes, v_now);
  IF array_position(v_routes, NULL) IS NOT NULL THEN
    -- What was already written for the flow must be rolled back; the retry finds this out before it writes.
    IF p_flow IS NOT NULL THEN RAISE EXCEPTION 'the term of a route has ended' USING ERRCODE = '40001'; END IF;
    RETURN QUERY SELECT NULL::uuid, 'unknown_route', NULL::integer, NULL::bigint, NULL::uuid, NULL;
    RETURN;
  END IF;
  IF p_patience_ms IS NOT NULL THEN PERFORM set_config('lock_timeout', p_patience_ms::text, true); END IF;
  SELECT array_agg(v_routes[(t ->> 'route')::integer] ORDER BY ord), array_agg(t ->> 'namespace' ORDER BY ord),
         array_agg((t ->> 'priority')::integer ORDER BY ord), array_agg(t -> 'policy' ORDER BY ord),
         array_agg(t -> 'tags' ORDER BY ord),
         array_agg((t #>> '{policy,timeout_policy,execution_deadline_ms}')::bigint ORDER BY ord),
         array_agg((t #>> '{policy,timeout_policy,attempt_timeout_ms}')::bigint ORDER BY ord),
         array_agg((t #>> '{policy,retention_ms}')::bigint ORDER BY ord), array_agg(traits ORDER BY ord), bit_or(traits)
  INTO v_template_routes, v_namespaces, v_priorities, v_policies, v_tags, v_deadlines, v_limits, v_retains, v_traits, v_all_traits
  FROM (SELECT t, ord, ff_traits_of(t -> 'policy') AS traits
        FROM jsonb_array_elements(p_templates) WITH ORDINALITY e(t, ord) OFFSET 0) e;
  IF EXISTS (SELECT 1 FROM ff_lane WHERE all_events) THEN
    v_traits := ff_traits_in_lanes(v_traits, p_routes, p_templates);
    v_all_traits := 16;
  END IF;
  v_policy_ids := ff_known_policies(v_policies);
  IF p_keys IS NOT NULL OR p_own_keys IS NOT NULL THEN
    SELECT t.holders, t.keyed, t.known INTO v_holders, v_keyed, v_known FROM ff_take_names(
      ARRAY(SELECT v_namespaces[of] FROM unnest(p_template_ordinals) WITH ORDINALITY u(of, ord) ORDER BY ord),
      ARRAY(SELECT v_template_routes[of] FROM unnest(p_template_ordinals) WITH ORDINALITY u(of, ord) ORDER BY ord),
      p_ids, p_partitions, p_keys, p_hashes, p_windows, p_own_keys, p_if_exists) t;
  END IF;
  -- Without ON CONFLICT, which would look up every row first and write one more record for each: an id that exists
  -- already is rare. In that case the insert is rolled back and repeated for the others.
  LOOP
    BEGIN
      INSERT INTO ff_execution (
        execution_id, partition_key, route_id, priority, namespace, created_at_ms, changed_at_ms, eligible_at_ms,
        deadline_at_ms, attempt_limit_ms, retain_ms, lifecycle_phase, ownership_state, eligibility_state, blocking_reason,
        terminal_outcome, attempt_state, parent_id, spawn_place, flow_id, policy_id, policy, tags, payload, traits)
      SELECT id, part, v_template_routes[of], v_priorities[of], v_namespaces[of], v_now, v_now,
             CASE WHEN delay > 0 THEN v_now + delay END, v_now + v_deadlines[of], v_limits[of], v_retains[of],
             s.lifecycle_phase, s.ownership_state,
             CASE WHEN blocked THEN b.eligibility_state WHEN delay > 0 THEN d.eligibility_state ELSE s.eligibility_state END,
             CASE WHEN blocked THEN b.blocking_reason WHEN delay > 0 THEN d.blocking_reason ELSE s.blocking_reason END,
             s.terminal_outcome, s.attempt_state, p_parent, p_spawn_place, p_flow, v_policy_ids[of],
             CASE WHEN v_policy_ids[of] IS NULL THEN v_policies[of] END, v_tags[of],
             CASE WHEN ff_is_large(payload) THEN NULL ELSE coalesce(payload, 'null') END,
             CASE WHEN own IS NULL THEN v_traits[of] ELSE v_traits[of] | 2::smallint END
      FROM unnest(p_ids, p_partitions, p_template_ordinals, p_delays, p_blocked, p_payloads, p_own_keys)
        u(id, part, of, delay, blocked, payload, own)
      WHERE id <> ALL (v_known) ORDER BY id;
      EXIT;
    EXCEPTION WHEN unique_violation THEN
      v_tried := v_known;
      v_known := ff_known_ids(p_ids, v_holders);
      IF v_known = v_tried THEN
        RAISE EXCEPTION 'an execution was submitted by a transaction this one cannot see' USING ERRCODE = '40001';
      END IF;
    END;
  END LOOP;
  IF cardinality(v_known) > 0 AND EXISTS (
    SELECT 1 FROM unnest(p_ids, p_partitions) u(id, part)
    CROSS JOIN LATERAL (SELECT partition_key FROM ff_execution WHERE execution_id = u.id OFFSET 0) e
    WHERE e.partition_key <> u.part) THEN
    RAISE EXCEPTION 'a uuid already names an execution of another partition' USING ERRCODE = 'FF004';
  END IF;
  -- CASE keeps the test a hashed lookup; when every id is new (the usual case) it is skipped altogether.
  WITH i AS MATERIALIZED (
    SELECT * FROM unnest(p_ids, p_partitions, p_template_ordinals, p_delays, p_blocked)
      WITH ORDINALITY u(id, part, of, delay, blocked, ord)
    WHERE CASE WHEN cardinality(v_known) = 0 THEN true WHEN u.id IN (SELECT unnest(v_known)) THEN false ELSE true END),
  queued AS (
    INSERT INTO ff_ready (execution_id, partition_key, route_id, priority, attempt_index, lease_epoch, ready_at_ms)
    SELECT id, part, v_template_routes[of], v_priorities[of], 0, 0, v_now FROM i
    WHERE delay <= 0 AND blocked IS NOT TRUE ORDER BY ord)
  INSERT INTO ff_timer (kind, due_at_ms, execution_id, partition_key, attempt_index, lease_epoch)
  SELECT 'eligible'::ff_timer_kind, v_now + delay, id, part, 0, 0 FROM i WHERE delay > 0
  UNION ALL
  SELECT 'deadline', v_now + v_deadlines[of], id, part, 0, 0 FROM i WHERE v_deadlines[of] IS NOT NULL;
  IF EXISTS (SELECT 1 FROM unnest(v_tags) x WHERE x <> '{}') OR EXISTS (SELECT 1 FROM unnest(p_payloads) x WHERE ff_is_large(x)) THEN
    PERFORM ff_submit_beside(v_now, p_ids, p_partitions, p_payloads, v_known, p_template_ordinals, v_tags);
  END IF;
  IF v_all_traits & 16 <> 0 THEN
    PERFORM ff_tell_submits(s, v_now, p_ids, p_partitions, p_delays, v_known, p_parent, p_flow, p_template_ordinals, v_traits,
      v_template_routes, v_namespaces, v_tags, v_priorities);
  END IF;
  IF p_channel IS NOT NULL AND cardinality(v_known) < cardinality(p_ids) THEN
    -- A notification holds 8,000 bytes; when the routes do not fit, it names all of them.
    PERFORM pg_notify(p_channel, jsonb_strip_nulls(jsonb_build_object(
      'routes', CASE WHEN cardinality(v_routes) <= 500 THEN to_jsonb(v_routes) ELSE '"all"'::jsonb END,
      'due', (SELECT min(x) FROM unnest(p_delays || v_deadlines) x WHERE x > 0)))::text);
  END IF;
  RETURN QUERY
  SELECT u.id,
         CASE WHEN v_keyed IS NOT NULL AND (v_keyed[u.ord]).outcome <> 'submitted' THEN (v_keyed[u.ord]).outcome
              WHEN cardinality(v_known) = 0 THEN 'submitted'
              WHEN u.id IN (SELECT unnest(v_known)) THEN 'duplicate' ELSE 'submitted' END,
         v_template_routes[u.of], CASE WHEN u.delay > 0 THEN u.delay END,
         CASE WHEN v_keyed IS NULL THEN nullif(u.holder, u.id) ELSE coalesce((v_keyed[u.ord]).replaced, nullif(u.holder, u.id)) END,
         CASE WHEN v_keyed IS NOT NULL THEN (v_keyed[u.ord]).worker_instance_id END
  FROM unnest(p_ids, p_template_ordinals, p_delays, v_holders) WITH ORDINALITY u(id, of, delay, holder, ord)
  ORDER BY u.ord;
END $$;

-- Submits one execution without a key, which most single calls do: the same rows as ff_submit writes, from single values
-- in half the time. Returns the number of its route, or NULL if that is not known; then nothing is written. An id that
-- exists is a unique violation: ff_submit then returns what it means.
CREATE OR REPLACE FUNCTION ff_submit_one(
  p_lane text, p_kind text, p_capabilities text[], p_namespace text, p_priority integer, p_policy jsonb, p_tags jsonb,
  p_id uuid, p_partition smallint, p_delay bigint, p_payload jsonb
) RETURNS integer LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off SET lock_timeout = '2s'
SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  s ff_transition%ROWTYPE;
  -- Taken before the clock is read, as in ff_submit.
  v_xid xid8 := pg_current_xact_id();
  v_now bigint := ff_now_ms();
  v_due bigint := CASE WHEN p_delay > 0 THEN v_now + p_delay END;
  v_deadline bigint := v_now + (p_policy #>> '{timeout_policy,execution_deadline_ms}')::bigint;
  v_route integer;
  v_policy integer;
  v_traits smallint;
BEGIN
  SELECT (SELECT route_id FROM ff_route
          WHERE lane = p_lane AND kind = p_kind AND capabilities = p_capabilities AND usable_until_ms > v_now),
         (SELECT policy_id FROM ff_policy WHERE hash = md5(p_policy::text)::uuid),
         ff_traits_of(p_policy) | coalesce((SELECT 16 FROM ff_lane WHERE lane = p_lane AND all_events), 0)
  INTO v_route, v_policy, v_traits;
  IF v_route IS NULL THEN RETURN NULL; END IF;
  SELECT * INTO STRICT s FROM ff_transition
  WHERE transition = CASE WHEN v_due IS NULL THEN 'submit' ELSE 'submit_delayed' END;
  INSERT INTO ff_execution (
    execution_id, partition_key, route_id, priority, namespace, created_at_ms, changed_at_ms, eligible_at_ms,
    deadline_at_ms, attempt_limit_ms, retain_ms, lifecycle_phase, ownership_state, eligibility_state, blocking_reason,
    terminal_outcome, attempt_state, policy_id, policy, tags, payload, traits)
  VALUES (
    p_id, p_partition, v_route, p_priority, p_namespace, v_now, v_now, v_due, v_deadline,
    (p_policy #>> '{timeout_policy,attempt_timeout_ms}')::bigint, (p_policy ->> 'retention_ms')::bigint, s.lifecycle_phase,
    s.ownership_state, s.eligibility_state, s.blocking_reason, s.terminal_outcome, s.attempt_state, v_policy,
    CASE WHEN v_policy IS NULL THEN p_policy END, p_tags,
    CASE WHEN ff_is_large(p_payload) THEN NULL ELSE coalesce(p_payload, 'null') END, v_traits);
  IF ff_is_large(p_payload) THEN
    INSERT INTO ff_payload (execution_id, partition_key, payload) VALUES (p_id, p_partition, p_payload);
  END IF;
  IF v_due IS NULL THEN
    INSERT INTO ff_ready (execution_id, partition_key, route_id, priority, attempt_index, lease_epoch, ready_at_ms)
    VALUES (p_id, p_partition, v_route, p_priority, 0, 0, v_now);
  ELSE
    INSERT INTO ff_timer (kind, due_at_ms, execution_id, partition_key, attempt_index, lease_epoch)
    VALUES ('eligible', v_due, p_id, p_partition, 0, 0);
  END IF;
  IF v_deadline IS NOT NULL THEN
    INSERT INTO ff_timer (kind, due_at_ms, execution_id, partition_key, attempt_index, lease_epoch)
    VALUES ('deadline', v_deadline, p_id, p_partition, 0, 0);
  END IF;
  IF p_tags <> '{}' THEN
    INSERT INTO ff_tag (tag_key, tag_value, created_at_ms, execution_id, partition_key)
    SELECT key, value, v_now, p_id, p_partition FROM jsonb_each_text(p_tags) WHERE ff_is_listed_tag(key);
  END IF;
  IF v_traits & 16 <> 0 THEN
    PERFORM ff_tell_submits(s, v_now, ARRAY[p_id], ARRAY[p_partition], ARRAY[p_delay], '{}', NULL, NULL, '{1}', ARRAY[v_traits],
      ARRAY[v_route], ARRAY[p_namespace], ARRAY[p_tags], ARRAY[p_priority]);
  END IF;
  RETURN v_route;
END $$;

-- Submits each execution on its own: one whose key or id is held by an open transaction returns `held` and does not
-- block the others.
CREATE OR REPLACE FUNCTION ff_submit_each(
  p_routes jsonb, p_templates jsonb, p_ids uuid[], p_partitions smallint[], p_template_ordinals integer[], p_delays bigint[],
  p_payloads jsonb[], p_keys text[], p_hashes text[], p_windows bigint[], p_patience_ms integer, p_own_keys text[],
  p_if_exists text[]
) RETURNS TABLE (
  execution_id uuid, outcome text, route_id integer, due_in_ms bigint, existing_id uuid, worker_instance_id text
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_template jsonb;
BEGIN
  IF ff_has_unknown_route(p_routes) THEN
    RETURN QUERY SELECT NULL::uuid, 'unknown_route', NULL::integer, NULL::bigint, NULL::uuid, NULL;
    RETURN;
  END IF;
  FOR i IN 1..cardinality(p_ids) LOOP
    v_template := p_templates -> (p_template_ordinals[i] - 1);
    BEGIN
      RETURN QUERY
      SELECT coalesce(s.execution_id, p_ids[i]), s.outcome, s.route_id, s.due_in_ms, s.existing_id, s.worker_instance_id
      FROM ff_submit(jsonb_build_array(p_routes -> ((v_template ->> 'route')::integer - 1)),
        jsonb_build_array(v_template || '{"route": 1}'), p_ids[i:i], p_partitions[i:i], '{1}', p_delays[i:i], p_payloads[i:i], NULL,
        p_keys => p_keys[i:i], p_hashes => p_hashes[i:i], p_windows => p_windows[i:i], p_patience_ms => p_patience_ms,
        p_own_keys => p_own_keys[i:i], p_if_exists => p_if_exists[i:i]) s;
    EXCEPTION WHEN lock_not_available THEN
      RETURN QUERY SELECT p_ids[i], 'held', NULL::integer, NULL::bigint, NULL::uuid, NULL;
    END;
  END LOOP;
END $$;
