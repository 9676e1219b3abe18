-- What a running handler does besides finishing: record a step, pause until a time or until children have ended, spawn.
-- Each is fenced by the lease; a handler whose lease is gone changes nothing.

-- Which of the named leases are the caller's and alive, by their place in the arrays. Until this transaction ends they
-- cannot end, but can be renewed. One lease may be named many times, and an old one beside its successor. p_marked: the
-- place of an execution that asks for all events is negative, so that its caller need not look for that.
CREATE OR REPLACE FUNCTION ff_share_leases(
  p_ids uuid[], p_partitions smallint[], p_attempts integer[], p_epochs bigint[], p_marked boolean DEFAULT false
) RETURNS bigint[] LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  RETURN ARRAY(
    SELECT ord FROM (
      SELECT CASE WHEN p_marked AND l.traits & 16 <> 0 THEN -u.ord ELSE u.ord END AS ord,
             l.lease_expires_at_ms > ff_now_ms() AS alive
      FROM (SELECT * FROM unnest(p_ids, p_partitions, p_attempts, p_epochs) WITH ORDINALITY u(id, part, att, ep, ord)
            ORDER BY id OFFSET 0) u
      CROSS JOIN LATERAL (
        SELECT lease_expires_at_ms, traits FROM ff_execution
        WHERE execution_id = u.id AND partition_key = u.part AND attempt_index = u.att AND lease_epoch = u.ep
          AND claim_no IS NOT NULL
        FOR KEY SHARE) l OFFSET 0) s
    WHERE alive);
END $$;

-- Between the record and COMMIT the transaction blocks the end of the lease: nobody could take over the work of a
-- process that stopped there. So it may be idle for half a lease, at most 10 s. A stricter limit set by the session
-- stays.
CREATE OR REPLACE FUNCTION ff_limit_silence(p_ids uuid[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  c_name CONSTANT text := 'idle_in_transaction_session_timeout';
  v_limit bigint;
  v_own bigint;
BEGIN
  SELECT least(greatest(min(g.lease_ms) / 2, 1000), 10000),
         extract(epoch FROM current_setting(c_name)::interval) * 1000
  INTO v_limit, v_own FROM unnest(p_ids) u(id)
  CROSS JOIN LATERAL (SELECT claim_no FROM ff_execution WHERE execution_id = u.id OFFSET 0) e
  CROSS JOIN LATERAL (SELECT lease_ms FROM ff_grant WHERE claim_no = e.claim_no OFFSET 0) g;
  IF v_own = 0 OR v_own > v_limit THEN PERFORM set_config(c_name, v_limit::text, true); END IF;
END $$;

-- Records steps, several per execution if needed. A recorded step is final: recording it again returns the first
-- record. A sleep's value is the time it ends, by the database's clock: sent as a duration, or as a value, which may have
-- passed. p_transaction: the transaction they belong to,
-- or NULL when they are a transaction of their own.
CREATE OR REPLACE FUNCTION ff_record_steps(
  p_ids uuid[], p_partitions smallint[], p_attempts integer[], p_epochs bigint[], p_kinds ff_step_kind[], p_names text[],
  p_keys text[], p_sleeps bigint[], p_values jsonb[], p_durations integer[] DEFAULT NULL,
  p_transaction text DEFAULT NULL
) RETURNS TABLE (
  ordinal bigint, execution_id uuid, outcome text, repeated boolean, lifecycle_phase text, terminal_outcome text,
  lease_epoch bigint, kind text, value jsonb, due_in_ms bigint
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_now bigint;
  v_held bigint[];
  v_all boolean;
  v_refused bigint[];
  v_new text[];
  v_told bigint[];
BEGIN
  PERFORM ff_require_read_committed();
  IF p_transaction IS NOT NULL THEN
    PERFORM ff_require_transaction(p_transaction);
    PERFORM ff_limit_silence(p_ids);
  END IF;
  v_held := ff_share_leases(p_ids, p_partitions, p_attempts, p_epochs, true);
  IF 0 > ANY (v_held) THEN
    v_told := ARRAY(SELECT -ord FROM unnest(v_held) ord WHERE ord < 0);
    v_held := ARRAY(SELECT abs(ord) FROM unnest(v_held) ord);
  END IF;
  v_all := cardinality(v_held) = cardinality(p_ids);
  v_now := ff_now_ms();
  WITH inserted AS (
    INSERT INTO ff_step (
      execution_id, partition_key, attempt_index, lease_epoch, recorded_at_ms, duration_ms, kind, name, key, value)
    SELECT id, part, att, ep, v_now, d, k, n, y, CASE
      WHEN k <> 'sleep' THEN v WHEN v IS NULL THEN to_jsonb(v_now + z) ELSE to_jsonb(greatest((v #>> '{}')::bigint, v_now)) END
    FROM unnest(p_ids, p_partitions, p_attempts, p_epochs, p_kinds, p_names, p_keys, p_sleeps, p_values,
      p_durations) WITH ORDINALITY u(id, part, att, ep, k, n, y, z, v, d, ord)
    WHERE CASE WHEN v_all THEN true ELSE ord = ANY (v_held) END ORDER BY id, n, y
    ON CONFLICT DO NOTHING RETURNING concat_ws('/', execution_id, name, key) AS step)
  SELECT array_agg(step) INTO v_new FROM inserted;
  IF v_told IS NOT NULL AND v_new IS NOT NULL THEN
    PERFORM ff_tell_running('step_finished', v_now, p_ids, p_partitions, p_attempts, p_epochs,
      -- A step that one call records twice is told of once.
      ARRAY(SELECT min(ord) FROM unnest(v_told) ord
            WHERE p_kinds[ord] = 'step' AND concat_ws('/', p_ids[ord], p_names[ord], p_keys[ord]) = ANY (v_new)
            GROUP BY p_ids[ord], p_names[ord], p_keys[ord] ORDER BY 1),
      ARRAY(SELECT jsonb_strip_nulls(jsonb_build_object('name', n, 'key', y, 'duration_ms', d))
            FROM unnest(p_names, p_keys, p_durations) WITH ORDINALITY u(n, y, d, ord) ORDER BY ord));
  END IF;
  RETURN QUERY
  SELECT u.ord, u.id, 'recorded', NOT coalesce(concat_ws('/', u.id, u.n, u.y) = ANY (v_new), false), NULL::text,
         NULL::text, NULL::bigint, s.kind::text, s.value,
         CASE s.kind WHEN 'sleep' THEN greatest((s.value #>> '{}')::bigint - v_now, 0) END
  FROM unnest(p_ids, p_names, p_keys) WITH ORDINALITY u(id, n, y, ord)
  CROSS JOIN LATERAL (
    SELECT * FROM ff_step WHERE execution_id = u.id AND retired_by = 0 AND name = u.n AND key = u.y OFFSET 0) s
  WHERE CASE WHEN v_all THEN true ELSE u.ord = ANY (v_held) END;
  IF NOT v_all THEN
    v_refused := ARRAY(SELECT ord FROM generate_subscripts(p_ids, 1) ord WHERE ord <> ALL (v_held) ORDER BY ord);
    RETURN QUERY
    SELECT v_refused[r.place], r.id, r.word, false, r.phase, r.terminal, r.epoch, NULL::text, NULL::jsonb, NULL::bigint
    FROM ff_refusals('record', ARRAY(SELECT p_ids[o] FROM unnest(v_refused) o),
      ARRAY(SELECT p_partitions[o] FROM unnest(v_refused) o), ARRAY(SELECT p_attempts[o] FROM unnest(v_refused) o),
      ARRAY(SELECT p_epochs[o] FROM unnest(v_refused) o), '{}')
      WITH ORDINALITY r(id, word, again, phase, terminal, epoch, attempt, route, retry_in, place);
  END IF;
END $$;

-- Stores the order in which outcomes were handed to handlers, from a place on. One row per execution; a repeated call
-- returns the same.
CREATE OR REPLACE FUNCTION ff_record_orders(
  p_ids uuid[], p_partitions smallint[], p_attempts integer[], p_epochs bigint[], p_places integer[], p_ends jsonb[]
) RETURNS TABLE (
  execution_id uuid, outcome text, repeated boolean, lifecycle_phase text, terminal_outcome text, lease_epoch bigint,
  attempt_index integer, route_id integer, retry_in_ms bigint
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_held bigint[];
BEGIN
  PERFORM ff_require_read_committed();
  v_held := ff_share_leases(p_ids, p_partitions, p_attempts, p_epochs);
  INSERT INTO ff_end_order (execution_id, lease_epoch, place, partition_key, ends)
  SELECT id, ep, place, part, ends
  FROM unnest(p_ids, p_epochs, p_places, p_partitions, p_ends) WITH ORDINALITY u(id, ep, place, part, ends, ord)
  WHERE ord = ANY (v_held) ORDER BY id
  ON CONFLICT DO NOTHING;
  RETURN QUERY
  SELECT p_ids[ord], 'recorded', false, 'active', 'none', p_epochs[ord], p_attempts[ord], NULL::integer, NULL::bigint
  FROM unnest(v_held) ord;
  IF cardinality(v_held) < cardinality(p_ids) THEN
    RETURN QUERY SELECT * FROM ff_refusals('record', p_ids, p_partitions, p_attempts, p_epochs,
      ARRAY(SELECT p_ids[ord] FROM unnest(v_held) ord));
  END IF;
END $$;

-- Overwrites the progress of executions. Reports under a lost lease are dropped silently: nothing depends on them.
CREATE OR REPLACE FUNCTION ff_report_progress(
  p_ids uuid[], p_partitions smallint[], p_attempts integer[], p_epochs bigint[], p_percents real[], p_messages text[]
) RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_held bigint[];
  v_told bigint[];
BEGIN
  PERFORM ff_require_read_committed();
  v_held := ff_share_leases(p_ids, p_partitions, p_attempts, p_epochs, true);
  IF 0 > ANY (v_held) THEN
    v_told := ARRAY(SELECT -ord FROM unnest(v_held) ord WHERE ord < 0);
    v_held := ARRAY(SELECT abs(ord) FROM unnest(v_held) ord);
    PERFORM ff_tell_running('progress_reported', ff_now_ms(), p_ids, p_partitions, p_attempts, p_epochs, v_told,
      ARRAY(SELECT jsonb_strip_nulls(jsonb_build_object('percent', percent, 'message', message))
            FROM unnest(p_percents, p_messages) WITH ORDINALITY u(percent, message, ord) ORDER BY ord));
  END IF;
  INSERT INTO ff_progress (execution_id, partition_key, reported_at_ms, percent, message)
  SELECT id, part, ff_now_ms(), percent, message
  FROM unnest(p_ids, p_partitions, p_percents, p_messages) WITH ORDINALITY u(id, part, percent, message, ord)
  WHERE ord = ANY (v_held) ORDER BY id
  ON CONFLICT (execution_id) DO UPDATE SET reported_at_ms = EXCLUDED.reported_at_ms, percent = EXCLUDED.percent,
    message = EXCLUDED.message;
END $$;

CREATE OR REPLACE FUNCTION ff_uuids(p_list jsonb) RETURNS uuid[] LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
  RETURN ARRAY(SELECT x::uuid FROM jsonb_array_elements_text(p_list) x);
END $$;

-- Gives up the worker without ending the attempt, until a time (p_delays), until p_needed of p_children have ended, or
-- whichever comes first. With enough children ended already it returns `due`, and the lease stays.
CREATE OR REPLACE FUNCTION ff_pause(
  p_ids uuid[], p_partitions smallint[], p_attempts integer[], p_epochs bigint[], p_delays bigint[], p_children jsonb[],
  p_needed integer[]
) RETURNS TABLE (
  execution_id uuid, outcome text, repeated boolean, lifecycle_phase text, terminal_outcome text, lease_epoch bigint,
  attempt_index integer, route_id integer, retry_in_ms bigint
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_rows ff_locked[];
  v_due ff_locked[];
  v_delayed ff_locked[];
  v_blocked ff_locked[];
  v_now bigint;
BEGIN
  PERFORM ff_require_read_committed();
  v_rows := ff_lock_leased(p_ids, p_partitions, p_attempts, p_epochs);
  -- A separate statement: a child that ended during the wait for the lock must be visible. One that ends later finds
  -- this execution locked, and its notification waits.
  WITH decided AS MATERIALIZED (
    SELECT r AS row, p_delays[r.ordinal] IS NOT NULL AS delayed,
           p_needed[r.ordinal] IS NOT NULL AND ff_children_ended(
             r.execution_id, ff_uuids(p_children[r.ordinal]), p_needed[r.ordinal]) AS due
    FROM unnest(v_rows) r)
  SELECT array_agg(row) FILTER (WHERE due), array_agg(row) FILTER (WHERE delayed AND NOT due),
         array_agg(row) FILTER (WHERE NOT delayed AND NOT due)
  INTO v_due, v_delayed, v_blocked FROM decided;
  INSERT INTO ff_child_wait AS w (execution_id, partition_key, attempt_index, lease_epoch, needed, children)
  SELECT r.execution_id, r.partition_key, r.attempt_index, r.lease_epoch, p_needed[r.ordinal],
         ff_uuids(p_children[r.ordinal])
  FROM unnest(v_delayed || v_blocked) r WHERE p_needed[r.ordinal] IS NOT NULL
  ON CONFLICT (execution_id) DO UPDATE SET attempt_index = EXCLUDED.attempt_index, lease_epoch = EXCLUDED.lease_epoch,
    needed = EXCLUDED.needed, children = EXCLUDED.children;
  v_now := ff_now_ms();
  PERFORM ff_settle('delay', v_delayed, ARRAY(SELECT v_now + p_delays[r.ordinal] FROM unnest(v_delayed) r), NULL, NULL,
    NULL, NULL);
  PERFORM ff_settle('await_children', v_blocked, NULL, NULL, NULL, NULL, NULL);
  RETURN QUERY
  SELECT r.execution_id, 'paused', false, 'runnable', 'none', r.lease_epoch, r.attempt_index, r.route_id,
         p_delays[r.ordinal]
  FROM unnest(v_delayed || v_blocked) r
  UNION ALL
  SELECT r.execution_id, 'due', false, 'active', 'none', r.lease_epoch, r.attempt_index, r.route_id, NULL
  FROM unnest(v_due) r;
  IF cardinality(v_rows) < cardinality(p_ids) THEN
    RETURN QUERY SELECT * FROM ff_refusals('pause', p_ids, p_partitions, p_attempts, p_epochs,
      ARRAY(SELECT r.execution_id FROM unnest(v_rows) r));
  END IF;
END $$;

-- Submits on behalf of a running execution, which is notified when they end. Refused as a whole when its lease is gone:
-- then the first row names the parent and the reason. Children live in the partition of their parent, because the
-- transaction that ends one sets a timer of the other. ended_with_parent: the child exists and had ended because its
-- parent did, which has begun again since; it must be replayed with it (ff_settle_children).
--
-- A parent of children that end with it is marked: whoever ends it looks for them only then. The first spawn of its life
-- does nothing else, and returns `marked`: to write to the row is to keep a renewal from it, and a spawn may take long.
CREATE OR REPLACE FUNCTION ff_spawn(
  p_parent uuid, p_partition smallint, p_attempt integer, p_epoch bigint, p_routes jsonb,
  p_templates jsonb, p_ids uuid[], p_partitions smallint[], p_template_ordinals integer[], p_delays bigint[],
  p_payloads jsonb[]
) RETURNS TABLE (
  execution_id uuid, outcome text, route_id integer, due_in_ms bigint, lifecycle_phase text, terminal_outcome text,
  lease_epoch bigint, ended_with_parent boolean
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_place bigint;
BEGIN
  PERFORM ff_require_read_committed();
  IF p_partition <> ANY (p_partitions) THEN
    RAISE EXCEPTION 'a child is not in the partition of its parent' USING ERRCODE = 'FF004';
  END IF;
  PERFORM 1 FROM ff_execution WHERE execution_id = p_parent AND partition_key = p_partition AND traits & 4 = 0;
  IF FOUND AND EXISTS (SELECT 1 FROM jsonb_array_elements(p_templates) t WHERE NOT t -> 'policy' ? 'detached') THEN
    UPDATE ff_execution SET traits = traits | 4
    WHERE execution_id = p_parent AND partition_key = p_partition AND attempt_index = p_attempt AND lease_epoch = p_epoch
      AND claim_no IS NOT NULL AND lease_expires_at_ms > ff_now_ms() AND traits & 4 = 0;
    IF FOUND THEN
      RETURN QUERY SELECT p_parent, 'marked', NULL::integer, NULL::bigint, NULL::text, NULL::text, NULL::bigint, false;
      RETURN;
    END IF;
  END IF;
  IF cardinality(ff_share_leases(ARRAY[p_parent], ARRAY[p_partition], ARRAY[p_attempt], ARRAY[p_epoch])) = 0 THEN
    RETURN QUERY
    SELECT r.execution_id, r.outcome, NULL::integer, NULL::bigint, r.lifecycle_phase, r.terminal_outcome, r.lease_epoch,
           false
    FROM ff_refusals('spawn', ARRAY[p_parent], ARRAY[p_partition], ARRAY[p_attempt], ARRAY[p_epoch], '{}') r;
    RETURN;
  END IF;
  SELECT 65536::bigint * generation + (SELECT count(*) FROM ff_step WHERE execution_id = p_parent AND retired_by = 0)
  INTO v_place FROM ff_execution WHERE execution_id = p_parent;
  RETURN QUERY
  SELECT s.execution_id, s.outcome, s.route_id, s.due_in_ms, NULL::text, NULL::text, NULL::bigint,
         CASE WHEN s.outcome = 'duplicate' THEN ff_ended_with_parent(s.execution_id) ELSE false END
  FROM ff_submit(p_routes, p_templates, p_ids, p_partitions, p_template_ordinals, p_delays, p_payloads, NULL,
    p_parent, p_spawn_place => v_place) s;
END $$;
