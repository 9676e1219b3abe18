-- Signals: waitpoints opened before the suspension, delivery, and the keys that sign tokens. Lock order: execution,
-- then waitpoint, signal. Delivering the signal that meets a condition resumes the execution in the same transaction.

-- Opens waitpoints while the execution runs, so that their tokens can be handed out before it suspends. Existing
-- waitpoints stay unchanged.
CREATE OR REPLACE FUNCTION ff_create_waitpoints(
  p_id uuid, p_partition smallint, p_attempt integer, p_epoch bigint, p_waitpoints jsonb, p_max_waitpoints integer
) RETURNS TABLE (
  outcome text, lifecycle_phase text, terminal_outcome text, lease_epoch bigint, waitpoint_id uuid, token_id uuid, created_at_ms bigint,
  kid text, secret_print text, token_expires_at_ms bigint
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_fault text;
BEGIN
  PERFORM ff_require_read_committed();
  IF cardinality(ff_lock_leased(ARRAY[p_id], ARRAY[p_partition], ARRAY[p_attempt], ARRAY[p_epoch])) = 0 THEN
    RETURN QUERY
    SELECT f.outcome, f.lifecycle_phase, f.terminal_outcome, f.lease_epoch, NULL::uuid, NULL::uuid, NULL::bigint, NULL, NULL, NULL::bigint
    FROM ff_refusals('record', ARRAY[p_id], ARRAY[p_partition], ARRAY[p_attempt], ARRAY[p_epoch], '{}') f;
    RETURN;
  END IF;
  v_fault := ff_wait_fault(p_id, '[]', p_waitpoints, p_max_waitpoints);
  IF v_fault IS NOT NULL THEN
    RETURN QUERY SELECT v_fault, 'active', 'none', p_epoch, NULL::uuid, NULL::uuid, NULL::bigint, NULL, NULL, NULL::bigint;
    RETURN;
  END IF;
  PERFORM ff_open_waitpoints(p_id, p_partition, p_waitpoints);
  RETURN QUERY
  SELECT 'created', 'active', 'none', p_epoch, w.waitpoint_id, w.token_id, w.created_at_ms, w.kid, k.secret_print, w.token_expires_at_ms
  FROM jsonb_array_elements(p_waitpoints) j
  CROSS JOIN LATERAL (
    SELECT * FROM ff_waitpoint WHERE execution_id = p_id AND retired_by = 0 AND name = j ->> 'name' OFFSET 0) w
  LEFT JOIN LATERAL (SELECT secret_print FROM ff_signing_key WHERE kid = w.kid OFFSET 0) k ON true;
END $$;

-- Revokes the issued tokens of a waitpoint; signals already delivered with them stay.
CREATE OR REPLACE FUNCTION ff_revoke_tokens(p_id uuid, p_partition smallint, p_name text, p_token_id uuid) RETURNS boolean LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off
-- An operator is told who holds a row instead of waiting for it.
SET lock_timeout = '2s' SET search_path FROM CURRENT AS $$
BEGIN
  PERFORM ff_require_read_committed();
  PERFORM 1 FROM ff_execution WHERE execution_id = p_id AND partition_key = p_partition FOR UPDATE;
  UPDATE ff_waitpoint SET token_id = p_token_id, kid = NULL, token_expires_at_ms = NULL
  WHERE execution_id = p_id AND retired_by = 0 AND name = p_name AND partition_key = p_partition;
  RETURN FOUND;
END $$;

-- Whether tokens signed by a key with that secret are valid now. The grace period of an old key is enforced only here.
CREATE OR REPLACE FUNCTION ff_key_verifies(p_kid text, p_print text) RETURNS boolean LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT AS $$
BEGIN
  RETURN EXISTS (
    SELECT FROM ff_signing_key k WHERE k.kid = p_kid AND k.secret_print = p_print AND k.revoked_at_ms IS NULL
      AND (k.verify_until_ms IS NULL OR k.verify_until_ms > ff_now_ms()));
END $$;

-- Takes one signal for a waitpoint of an execution, and locks both. Returns what ff_deliver_signal does, and, if the
-- execution is to be resumed, its row and what its event says: settling it is left to the caller.
CREATE OR REPLACE FUNCTION ff_take_signal(
  p_id uuid, p_partition smallint, p_waitpoint uuid, p_waitpoint_name text, p_kid text, p_print text, p_token_expires_at_ms bigint,
  p_signal uuid, p_name text, p_source_type text, p_source_identity text, p_payload jsonb, p_idempotency_key text,
  p_is_checked boolean, p_max_signals integer, p_max_bytes bigint,
  OUT outcome text, OUT signal_id uuid, OUT effect text, OUT schema jsonb, OUT route_id integer, OUT due_in_ms bigint, OUT resumed ff_locked,
  OUT detail jsonb
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  e ff_execution%ROWTYPE;
  w ff_waitpoint%ROWTYPE;
  g ff_signal%ROWTYPE;
  a record;
  v_now bigint;
  v_bytes bigint := octet_length(p_payload::text);
  v_seq integer;
BEGIN
  SELECT * INTO e FROM ff_execution x WHERE x.execution_id = p_id AND x.partition_key = p_partition FOR UPDATE;
  v_now := ff_now_ms();
  SELECT * INTO w FROM ff_waitpoint x
  WHERE x.execution_id = p_id AND x.retired_by = 0
    AND CASE WHEN p_waitpoint IS NULL THEN x.name = p_waitpoint_name ELSE x.token_id = p_waitpoint END
  FOR UPDATE;
  IF e.execution_id IS NULL OR w.execution_id IS NULL OR (p_kid IS NOT NULL AND NOT ff_key_verifies(p_kid, p_print)) THEN
    outcome := 'unknown';
    RETURN;
  END IF;
  SELECT * INTO g FROM ff_signal x
  WHERE x.execution_id = p_id AND x.waitpoint_id = w.waitpoint_id AND x.idempotency_key = p_idempotency_key;
  outcome := CASE
    WHEN g.signal_id IS NOT NULL THEN 'duplicate'
    WHEN p_token_expires_at_ms <= v_now THEN 'expired'
    WHEN e.lifecycle_phase = 'terminal' OR w.close_reason IN ('satisfied', 'timed_out') THEN 'closed'
    WHEN p_kid IS NOT NULL AND (w.close_reason = 'expired' OR w.expires_at_ms <= v_now) THEN 'expired'
    WHEN w.schema IS NOT NULL AND NOT p_is_checked THEN 'unchecked'
    -- One waitpoint may use at most half; the rest is for the others.
    WHEN w.signal_count >= p_max_signals / 2 OR w.signal_bytes + v_bytes > p_max_bytes / 2 THEN 'too_many'
    WHEN (SELECT sum(x.signal_count) >= p_max_signals OR sum(x.signal_bytes) + v_bytes > p_max_bytes
          FROM ff_waitpoint x WHERE x.execution_id = p_id AND x.retired_by = 0) THEN 'too_many' END;
  IF outcome IS NOT NULL THEN
    signal_id := g.signal_id; effect := g.effect;
    schema := CASE outcome WHEN 'unchecked' THEN w.schema END;
    RETURN;
  END IF;
  outcome := 'accepted'; signal_id := p_signal; route_id := e.route_id;
  v_seq := (SELECT sum(x.signal_count) FROM ff_waitpoint x WHERE x.execution_id = p_id);
  SELECT * INTO a
  FROM ff_accept_signal(e, w, ROW(p_id, w.waitpoint_id, p_signal, v_now, v_seq, p_partition, p_name, p_source_type,
    p_source_identity, p_idempotency_key, 'buffered', p_payload)::ff_signal, v_bytes);
  effect := a.effect; due_in_ms := a.due_in_ms; resumed := a.resumed; detail := a.detail;
END $$;

-- Stores a signal. If it completes the condition that the locked execution waits for, it ends the wait.
CREATE OR REPLACE FUNCTION ff_accept_signal(
  e ff_execution, w ff_waitpoint, p_signal ff_signal, p_bytes bigint,
  OUT effect text, OUT due_in_ms bigint, OUT resumed ff_locked, OUT detail jsonb
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  g ff_signal := p_signal;
  r ff_locked := ROW(1, e.execution_id, e.partition_key, e.route_id, e.priority, e.namespace, e.attempt_index, e.lease_epoch, e.retry_count,
    e.attempt_state, NULL, NULL, NULL, e.attempt_started_at_ms, e.tags, e.retain_ms, e.flow_id, e.attempt_paused)::ff_locked;
  v_wait jsonb;
  v_adds boolean;
BEGIN
  SELECT x INTO v_wait FROM ff_suspension s, jsonb_array_elements(s.waits) x
  WHERE s.execution_id = e.execution_id AND x ->> 'name' = w.step_name AND x ->> 'key' = w.step_key;
  IF FOUND AND NOT ff_signal_fits(v_wait -> 'condition', w.name, g.name) THEN
    g.effect := 'not_matching';
  END IF;
  v_adds := CASE WHEN v_wait IS NOT NULL AND g.effect = 'buffered' THEN ff_signal_adds(v_wait -> 'condition', w.name, g) END;
  INSERT INTO ff_signal SELECT g.*;
  UPDATE ff_waitpoint x SET signal_count = x.signal_count + 1, signal_bytes = x.signal_bytes + p_bytes
  WHERE x.execution_id = e.execution_id AND x.retired_by = 0 AND x.name = w.name;
  IF v_adds IS NOT NULL THEN
    -- A signal that adds no satisfier cannot complete the condition.
    g.effect := CASE WHEN NOT v_adds THEN 'not_counted' WHEN ff_condition_met(v_wait -> 'condition', e.execution_id) THEN 'resumed'
      ELSE 'counted' END;
    UPDATE ff_signal x SET effect = g.effect
    WHERE x.execution_id = g.execution_id AND x.waitpoint_id = g.waitpoint_id AND x.seq = g.seq;
  END IF;
  PERFORM ff_tell_signal(r, 'delivered', jsonb_build_object('waitpoint', w.name, 'signal_id', g.signal_id, 'name', g.name,
    'source_type', g.source_type, 'source_identity', g.source_identity, 'effect', g.effect));
  effect := g.effect;
  IF g.effect = 'resumed' THEN
    PERFORM ff_end_wait(e.execution_id, v_wait, 'satisfied');
    resumed := r;
    due_in_ms := nullif((v_wait ->> 'resume_delay_ms')::bigint, 0);
    detail := ff_resume_detail(v_wait, 'satisfied', concat_ws(':', g.source_type, g.source_identity));
  END IF;
END $$;

-- Delivers one signal to a waitpoint. The caller has authenticated the sender; p_kid is the key that signed the token
-- and p_print its secret's fingerprint, NULL for an operator, who names the waitpoint and is not bound by its expiry.
-- Strangers get `unknown`, as for a bad token. The same idempotency key twice is one signal. `unchecked`: the payload
-- must first be checked against the schema, then sent again with p_is_checked.
CREATE OR REPLACE FUNCTION ff_deliver_signal(
  p_id uuid, p_partition smallint, p_waitpoint uuid, p_waitpoint_name text, p_kid text, p_print text, p_token_expires_at_ms bigint,
  p_signal uuid, p_name text, p_source_type text, p_source_identity text, p_payload jsonb, p_idempotency_key text,
  p_is_checked boolean, p_max_signals integer, p_max_bytes bigint
) RETURNS TABLE (outcome text, signal_id uuid, effect text, schema jsonb, route_id integer, due_in_ms bigint)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
-- An operator is told who holds a row instead of waiting for it.
SET lock_timeout = '2s' SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  t record;
BEGIN
  PERFORM ff_require_read_committed();
  SELECT * INTO t
  FROM ff_take_signal(p_id, p_partition, p_waitpoint, p_waitpoint_name, p_kid, p_print, p_token_expires_at_ms, p_signal, p_name,
    p_source_type, p_source_identity, p_payload, p_idempotency_key, p_is_checked, p_max_signals, p_max_bytes);
  IF t.effect = 'resumed' AND t.outcome = 'accepted' THEN
    PERFORM ff_settle_resumed(ARRAY[t.resumed], ARRAY[t.due_in_ms], ARRAY[t.detail]);
  END IF;
  RETURN QUERY SELECT t.outcome, t.signal_id, t.effect, t.schema, t.route_id, t.due_in_ms;
END $$;

-- Delivers many signals, in the given order, each as ff_deliver_signal does. Returns the answers by their places. A
-- signal to an execution that is not there or that another transaction has locked returns `held`: it is left to a call
-- of its own, so that no other waits for it. Executions are settled together, but before their next signal is taken.
CREATE OR REPLACE FUNCTION ff_deliver_signals(
  p_ids uuid[], p_partitions smallint[], p_waitpoints uuid[], p_waitpoint_names text[], p_kids text[], p_prints text[],
  p_token_expiries bigint[], p_signals uuid[], p_names text[], p_source_types text[], p_source_identities text[], p_payloads jsonb[],
  p_idempotency_keys text[], p_checked boolean[], p_max_signals integer[], p_max_bytes bigint[]
) RETURNS TABLE (place integer, outcome text, signal_id uuid, effect text, schema jsonb, route_id integer, due_in_ms bigint)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_locked uuid[];
  v_ids uuid[] := '{}';
  v_rows ff_locked[];
  v_delays bigint[];
  v_details jsonb[];
  r record;
  t record;
BEGIN
  PERFORM ff_require_read_committed();
  v_locked := ARRAY(
    SELECT e.execution_id
    FROM (SELECT DISTINCT id, part FROM unnest(p_ids, p_partitions) u(id, part) ORDER BY id OFFSET 0) u
    CROSS JOIN LATERAL (
      SELECT execution_id FROM ff_execution WHERE execution_id = u.id AND partition_key = u.part FOR UPDATE SKIP LOCKED) e);
  FOR r IN
    SELECT * FROM unnest(p_ids, p_partitions, p_waitpoints, p_waitpoint_names, p_kids, p_prints, p_token_expiries, p_signals, p_names,
      p_source_types, p_source_identities, p_payloads, p_idempotency_keys, p_checked, p_max_signals, p_max_bytes)
      WITH ORDINALITY u(id, part, waitpoint, waitpoint_name, kid, print, expires, signal, name, source_type, source_identity, payload, key,
                        checked, max_signals, max_bytes, ord)
  LOOP
    place := r.ord; outcome := 'held'; signal_id := NULL; effect := NULL; schema := NULL; route_id := NULL; due_in_ms := NULL;
    IF r.id = ANY (v_locked) THEN
      IF r.id = ANY (v_ids) THEN
        PERFORM ff_settle_resumed(v_rows, v_delays, v_details);
        v_ids := '{}'; v_rows := NULL; v_delays := NULL; v_details := NULL;
      END IF;
      SELECT * INTO t
      FROM ff_take_signal(r.id, r.part, r.waitpoint, r.waitpoint_name, r.kid, r.print, r.expires, r.signal, r.name, r.source_type,
        r.source_identity, r.payload, r.key, r.checked, r.max_signals, r.max_bytes);
      IF t.effect = 'resumed' AND t.outcome = 'accepted' THEN
        v_ids := v_ids || r.id; v_rows := array_append(v_rows, t.resumed); v_delays := array_append(v_delays, t.due_in_ms); v_details := array_append(v_details, t.detail);
      END IF;
      outcome := t.outcome; signal_id := t.signal_id; effect := t.effect; schema := t.schema; route_id := t.route_id;
      due_in_ms := t.due_in_ms;
    END IF;
    RETURN NEXT;
  END LOOP;
  PERFORM ff_settle_resumed(v_rows, v_delays, v_details);
END $$;

-- The key that signs. If there is none, the offered one becomes it. How long its tokens are valid is recorded, to the
-- day, for its rotation.
CREATE OR REPLACE FUNCTION ff_current_key(p_kid text, p_print text, p_token_ms bigint) RETURNS TABLE (kid text, secret_print text) LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  k ff_signing_key;
  v_until bigint;
  v_offered boolean := p_kid IS NULL;
BEGIN
  LOOP
    v_until := ff_now_ms() + p_token_ms;
    SELECT * INTO k FROM ff_signing_key x WHERE x.verify_until_ms IS NULL AND x.revoked_at_ms IS NULL;
    IF FOUND THEN
      EXIT WHEN k.tokens_until_ms >= v_until;
      UPDATE ff_signing_key x SET tokens_until_ms = greatest(x.tokens_until_ms, v_until + 86400000)
      WHERE x.kid = k.kid AND x.verify_until_ms IS NULL AND x.revoked_at_ms IS NULL;
      -- Otherwise the key was rotated meanwhile, and nothing is recorded yet for the one that signs now.
      EXIT WHEN FOUND;
    ELSE
      EXIT WHEN v_offered;
      INSERT INTO ff_signing_key (kid, secret_print, created_at_ms, tokens_until_ms)
      VALUES (p_kid, p_print, ff_now_ms(), v_until + 86400000) ON CONFLICT DO NOTHING;
      v_offered := true;
    END IF;
  END LOOP;
  RETURN QUERY SELECT k.kid, k.secret_print WHERE k.kid IS NOT NULL;
END $$;

-- Makes a new key the one that signs; the old one verifies for p_grace_ms more, or as long as one of its tokens is
-- valid. Keys unused for p_forget_ms are deleted.
CREATE OR REPLACE FUNCTION ff_rotate_key(p_kid text, p_print text, p_grace_ms bigint, p_forget_ms bigint) RETURNS text LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
DECLARE
  v_old text;
  v_now bigint;
BEGIN
  PERFORM ff_require_read_committed();
  DELETE FROM ff_signing_key WHERE coalesce(revoked_at_ms, verify_until_ms) <= ff_now_ms() - p_forget_ms;
  LOOP
    UPDATE ff_signing_key SET
      verify_until_ms = coalesce(ff_now_ms() + p_grace_ms, greatest(tokens_until_ms, ff_now_ms()))
    WHERE verify_until_ms IS NULL AND revoked_at_ms IS NULL RETURNING kid INTO v_old;
    -- A concurrent rotation's key is replaced too. Only that is a conflict: an existing key of this name fails.
    v_now := ff_now_ms();
    INSERT INTO ff_signing_key (kid, secret_print, created_at_ms, tokens_until_ms)
    VALUES (p_kid, p_print, v_now, v_now)
    ON CONFLICT ((true)) WHERE verify_until_ms IS NULL AND revoked_at_ms IS NULL DO NOTHING;
    EXIT WHEN FOUND;
  END LOOP;
  RETURN v_old;
END $$;

-- Ends a key at once. The signing key cannot be revoked: rotating it without grace ends it and replaces it.
CREATE OR REPLACE FUNCTION ff_revoke_key(p_kid text) RETURNS text LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
  PERFORM ff_require_read_committed();
  PERFORM 1 FROM ff_signing_key WHERE kid = p_kid FOR UPDATE;
  IF NOT FOUND THEN RETURN 'not_found'; END IF;
  UPDATE ff_signing_key SET revoked_at_ms = ff_now_ms()
  WHERE kid = p_kid AND revoked_at_ms IS NULL AND verify_until_ms IS NOT NULL;
  IF FOUND THEN RETURN 'revoked'; END IF;
  RETURN (SELECT CASE WHEN revoked_at_ms IS NULL THEN 'is_current' ELSE 'already_revoked' END FROM ff_signing_key WHERE kid = p_kid);
END $$;
