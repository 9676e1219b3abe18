-- Keys: business names of executions, one open execution for each. A key is taken and lost here alone, under the lock of
-- its row. Lock order: key, then execution. Also runs in a caller's transaction, at any isolation level, except to replace:
-- that ends an execution, whose row would stay locked until the caller commits.

-- Locks the executions that keys name, in id order: those to be replaced, and of the others those that have ended, so
-- that they stay ended until the key has moved on. Returns the latter. An open one that is not replaced is not locked:
-- it counts as open, even if it ends now.
CREATE OR REPLACE FUNCTION ff_lock_holders(p_holders uuid[], p_replace boolean[]) RETURNS uuid[] LANGUAGE plpgsql AS $$
DECLARE
  v_holder uuid;
  v_replace boolean;
  v_ended uuid[] := '{}';
BEGIN
  FOR v_holder, v_replace IN
    SELECT h, r FROM unnest(p_holders, p_replace) u(h, r) WHERE h IS NOT NULL ORDER BY h
  LOOP
    IF v_replace THEN
      PERFORM 1 FROM ff_execution WHERE execution_id = v_holder FOR UPDATE;
    ELSE
      PERFORM 1 FROM ff_execution WHERE execution_id = v_holder AND lifecycle_phase = 'terminal' FOR KEY SHARE;
      IF FOUND THEN v_ended := v_ended || v_holder; END IF;
    END IF;
  END LOOP;
  RETURN v_ended;
END $$;

-- Gives keys to executions about to be submitted, in one order for all callers; entries without a key are NULL. A rival
-- that has not committed is waited for. A key whose execution has ended is taken over; one that names an open execution
-- is decided by p_if_exists: `attached` and `refused` submit nothing, `replaced` cancels it. `duplicate`: this very
-- execution was submitted before. Attaching to an execution of another kind is an error, and nothing is written.
CREATE OR REPLACE FUNCTION ff_give_keys(
  p_namespaces text[], p_keys text[], p_if_exists text[], p_ids uuid[], p_partitions smallint[], p_routes integer[]
) RETURNS ff_keyed[] LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  c_rounds CONSTANT integer := 10;
  v_wanted bigint := cardinality(array_remove(p_keys, NULL));
  v_locked bigint;
  v_holders uuid[];
  v_ended uuid[];
  v_keyed ff_keyed[];
  v_faulty bigint;
  v_cancelled ff_locked[];
  v_workers jsonb;
BEGIN
  IF 'replace' = ANY (p_if_exists) THEN PERFORM ff_require_read_committed(); END IF;
  -- Retried when a key that had blocked our insert was removed afterwards, with its execution.
  FOR round IN 1..c_rounds LOOP
    INSERT INTO ff_key (namespace, key, partition_key, execution_id)
    SELECT n, k, part, id FROM unnest(p_namespaces, p_keys, p_partitions, p_ids) u(n, k, part, id)
    WHERE k IS NOT NULL ORDER BY n, k ON CONFLICT DO NOTHING;
    -- Separate statements: what a rival committed during the wait must be visible.
    SELECT count(*) INTO v_locked
    FROM (SELECT * FROM unnest(p_namespaces, p_keys, p_partitions) u(n, k, part) WHERE k IS NOT NULL ORDER BY n, k OFFSET 0) u
    CROSS JOIN LATERAL (
      SELECT 1 FROM ff_key WHERE namespace = u.n AND key = u.k AND partition_key = u.part FOR UPDATE) i;
    EXIT WHEN v_locked = v_wanted;
    IF round = c_rounds THEN
      RAISE EXCEPTION 'keys were removed again and again' USING ERRCODE = '40001';
    END IF;
  END LOOP;
  SELECT array_agg(i.execution_id ORDER BY u.ord) INTO v_holders
  FROM unnest(p_namespaces, p_keys, p_partitions) WITH ORDINALITY u(n, k, part, ord)
  LEFT JOIN LATERAL (
    SELECT execution_id FROM ff_key WHERE namespace = u.n AND key = u.k AND partition_key = u.part OFFSET 0) i ON true;
  v_ended := ff_lock_holders(ARRAY(SELECT nullif(h, id) FROM unnest(v_holders, p_ids) WITH ORDINALITY u(h, id, ord) ORDER BY ord),
    ARRAY(SELECT x = 'replace' FROM unnest(p_if_exists) WITH ORDINALITY u(x, ord) ORDER BY ord));
  SELECT array_agg(ROW(d.outcome, CASE WHEN k IS NULL THEN NULL WHEN d.outcome IN ('attached', 'refused') THEN h ELSE id END,
                       CASE d.outcome WHEN 'replaced' THEN h END, NULL)::ff_keyed ORDER BY u.ord),
         min(u.ord) FILTER (WHERE d.outcome = 'attached' AND r.kind <> own.kind)
  INTO v_keyed, v_faulty
  FROM unnest(v_holders, p_keys, p_if_exists, p_ids, p_routes) WITH ORDINALITY u(h, k, if_exists, id, route, ord)
  LEFT JOIN LATERAL (SELECT lifecycle_phase, route_id FROM ff_execution WHERE execution_id = u.h OFFSET 0) e ON true
  LEFT JOIN LATERAL (SELECT true AS is_there FROM ff_execution WHERE execution_id = u.id AND u.k IS NOT NULL OFFSET 0) x ON true
  LEFT JOIN LATERAL (SELECT kind FROM ff_route WHERE route_id = e.route_id OFFSET 0) r ON true
  LEFT JOIN LATERAL (SELECT kind FROM ff_route WHERE route_id = u.route OFFSET 0) own ON true
  CROSS JOIN LATERAL (
    SELECT CASE WHEN u.k IS NULL THEN NULL
                WHEN x.is_there THEN 'duplicate'
                WHEN u.h = u.id OR e.lifecycle_phase IS NULL OR u.h = ANY (v_ended) THEN 'submitted'
                WHEN u.if_exists = 'replace' AND e.lifecycle_phase = 'terminal' THEN 'submitted'
                WHEN u.if_exists = 'replace' THEN 'replaced'
                WHEN u.if_exists = 'refuse' THEN 'refused' ELSE 'attached' END AS outcome OFFSET 0) d;
  IF v_faulty IS NOT NULL THEN
    RAISE EXCEPTION 'a key names an execution of another task' USING ERRCODE = 'FF009', DETAIL = v_faulty::text;
  END IF;
  IF EXISTS (SELECT FROM unnest(v_keyed) k WHERE k.replaced IS NOT NULL) THEN
    SELECT ff_lock_open(array_agg(k.replaced), array_agg(u.part)) INTO v_cancelled
    FROM unnest(p_partitions) WITH ORDINALITY u(part, ord)
    CROSS JOIN LATERAL (SELECT (v_keyed[u.ord]).replaced OFFSET 0) k WHERE k.replaced IS NOT NULL;
    PERFORM ff_cancel_locked(v_cancelled, 'replaced', 'engine');
    SELECT jsonb_object_agg(r.execution_id, r.worker_instance_id) INTO v_workers FROM unnest(v_cancelled) r;
    v_keyed := ARRAY(
      SELECT ROW(k.outcome, k.holder, k.replaced, v_workers ->> k.replaced::text)::ff_keyed
      FROM unnest(v_keyed) WITH ORDINALITY k(outcome, holder, replaced, worker, ord) ORDER BY k.ord);
  END IF;
  UPDATE ff_key i SET execution_id = u.id
  FROM unnest(p_namespaces, p_keys, p_partitions, p_ids, v_holders) WITH ORDINALITY u(n, k, part, id, h, ord)
  WHERE i.namespace = u.n AND i.key = u.k AND i.partition_key = u.part AND u.h <> u.id
    AND (v_keyed[u.ord]).outcome IN ('submitted', 'replaced');
  RETURN v_keyed;
END $$;

-- Idempotency keys that were taken for executions whose key then decided otherwise: where it attached, they stand for the
-- execution it named; where it refused, for nothing.
CREATE OR REPLACE FUNCTION ff_move_idempotency(p_namespaces text[], p_keys text[], p_partitions smallint[], p_ids uuid[], p_keyed ff_keyed[])
RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  UPDATE ff_idempotency i SET execution_id = (p_keyed[u.ord]).holder
  FROM unnest(p_namespaces, p_keys, p_partitions, p_ids) WITH ORDINALITY u(n, k, part, id, ord)
  WHERE i.namespace = u.n AND i.key = u.k AND i.partition_key = u.part AND i.execution_id = u.id
    AND (p_keyed[u.ord]).outcome = 'attached';
  DELETE FROM ff_idempotency i
  USING unnest(p_namespaces, p_keys, p_partitions, p_ids) WITH ORDINALITY u(n, k, part, id, ord)
  WHERE i.namespace = u.n AND i.key = u.k AND i.partition_key = u.part AND i.execution_id = u.id
    AND (p_keyed[u.ord]).outcome = 'refused';
END $$;

-- Takes the idempotency keys and then the keys of executions about to be submitted. holders: who has the idempotency
-- key or key of each; keyed: what became of its key; known: those that are not submitted, because others have them.
CREATE OR REPLACE FUNCTION ff_take_names(
  p_namespaces text[], p_routes integer[], p_ids uuid[], p_partitions smallint[], p_keys text[], p_hashes text[], p_windows bigint[],
  p_own_keys text[], p_if_exists text[], OUT holders uuid[], OUT keyed ff_keyed[], OUT known uuid[]
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_holders uuid[];
  v_keyed ff_keyed[];
BEGIN
  IF p_keys IS NOT NULL THEN
    v_holders := ff_take_keys(p_namespaces, p_keys, p_hashes, p_windows, p_ids, p_partitions);
  END IF;
  IF p_own_keys IS NOT NULL THEN
    -- The key of a repeated request decides nothing.
    v_keyed := ff_give_keys(p_namespaces,
      ARRAY(SELECT CASE WHEN holder <> id THEN NULL ELSE own END
            FROM unnest(p_ids, v_holders, p_own_keys) WITH ORDINALITY u(id, holder, own, ord) ORDER BY ord),
      p_if_exists, p_ids, p_partitions, p_routes);
    IF p_keys IS NOT NULL THEN PERFORM ff_move_idempotency(p_namespaces, p_keys, p_partitions, p_ids, v_keyed); END IF;
  END IF;
  keyed := v_keyed;
  SELECT array_agg(coalesce((v_keyed[u.ord]).holder, u.holder) ORDER BY u.ord),
         coalesce(array_agg(u.id) FILTER (
           WHERE u.holder <> u.id OR (v_keyed[u.ord]).outcome IN ('duplicate', 'attached', 'refused')), '{}')
  INTO holders, known
  FROM unnest(p_ids, v_holders) WITH ORDINALITY u(id, holder, ord);
END $$;

-- Whether a locked execution may be run again: not if another one has taken its key.
CREATE OR REPLACE FUNCTION ff_keeps_key(p_row ff_locked) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  RETURN p_row.traits & 2 = 0 OR EXISTS (SELECT FROM ff_key WHERE execution_id = p_row.execution_id);
END $$;

-- Of locked executions that are to be forgotten, all but those whose keys a submit is deciding on: it may wait for them.
-- The keys of the others are locked.
CREATE OR REPLACE FUNCTION ff_lock_forgotten_keys(p_ids uuid[]) RETURNS uuid[] LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_keyed uuid[] := ARRAY(
    SELECT e.execution_id FROM unnest(p_ids) u(id)
    CROSS JOIN LATERAL (SELECT execution_id, traits FROM ff_execution WHERE execution_id = u.id OFFSET 0) e WHERE e.traits & 2 <> 0);
  v_locked uuid[];
BEGIN
  IF cardinality(v_keyed) = 0 THEN RETURN p_ids; END IF;
  v_locked := ARRAY(
    SELECT k.execution_id FROM unnest(v_keyed) u(id)
    CROSS JOIN LATERAL (SELECT execution_id FROM ff_key WHERE execution_id = u.id FOR UPDATE SKIP LOCKED) k);
  RETURN ARRAY(
    SELECT u.id FROM unnest(p_ids) u(id)
    LEFT JOIN LATERAL (SELECT execution_id FROM ff_key WHERE execution_id = u.id OFFSET 0) k ON true
    WHERE k.execution_id IS NULL OR k.execution_id = ANY (v_locked));
END $$;
