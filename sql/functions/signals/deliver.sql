-- Delivering signals. Lock order: execution, then signal. Every writer of a waitpoint has locked its execution, so that
-- a waitpoint needs no lock of its own. Signals are taken set-wise, at most one for each execution at a time. The signal
-- that meets a condition resumes the execution in the same transaction.

-- Judges signals to locked executions, at most one to each, and writes nothing. One that is accepted has the effect it
-- would have if no other were needed for its condition: `counted` may become `resumed` once it is stored.
CREATE OR REPLACE FUNCTION ff_judge_signals(p_sent ff_sent_signal[], p_now bigint) RETURNS ff_taken_signal[] LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  -- A print has no spaces.
  v_keys text[] := ARRAY(
    SELECT kid || ' ' || secret_print FROM (SELECT DISTINCT kid, secret_print FROM unnest(p_sent) WHERE kid IS NOT NULL OFFSET 0) k
    WHERE ff_key_verifies(kid, secret_print));
BEGIN
  RETURN ARRAY(
    SELECT ROW(u.place, o.outcome, CASE o.outcome WHEN 'accepted' THEN u.signal_id ELSE g.signal_id END,
      CASE WHEN o.outcome <> 'accepted' THEN g.effect WHEN s.wait IS NULL THEN 'buffered'
           ELSE ff_signal_effect(s.wait -> 'condition', w.waitpoint_id, w.name, u) END,
      CASE o.outcome WHEN 'unchecked' THEN w.schema END, w.waitpoint_id, w.name, o.bytes, c.stored, s.wait,
      nullif((s.wait ->> 'resume_delay_ms')::bigint, 0),
      ROW(1, u.execution_id, u.partition_key, e.route_id, e.priority, e.namespace, e.attempt_index, e.lease_epoch, e.retry_count,
        e.attempt_state, NULL, NULL, NULL, e.attempt_started_at_ms, e.tags, e.retain_ms, e.flow_id, e.attempt_paused,
        e.parent_id, e.traits)::ff_locked,
      u.name, u.source_type, u.source_identity, u.payload, u.idempotency_key)::ff_taken_signal
    FROM unnest(p_sent) u
    LEFT JOIN LATERAL (
      SELECT * FROM ff_execution WHERE execution_id = u.execution_id AND partition_key = u.partition_key OFFSET 0) e ON true
    LEFT JOIN LATERAL (
      SELECT * FROM ff_waitpoint x
      WHERE x.execution_id = u.execution_id AND x.retired_by = 0
        AND CASE WHEN u.token_id IS NULL THEN x.name = u.waitpoint ELSE x.token_id = u.token_id END LIMIT 1) w ON true
    LEFT JOIN LATERAL (
      SELECT signal_id, effect FROM ff_signal
      WHERE execution_id = u.execution_id AND waitpoint_id = w.waitpoint_id AND idempotency_key = u.idempotency_key OFFSET 0) g ON true
    LEFT JOIN LATERAL (
      SELECT j AS wait FROM ff_suspension x, jsonb_array_elements(x.waits) j
      WHERE x.execution_id = u.execution_id AND j ->> 'name' = w.step_name AND j ->> 'key' = w.step_key LIMIT 1) s ON true
    CROSS JOIN LATERAL (
      SELECT sum(signal_count) AS stored, sum(signal_count) FILTER (WHERE retired_by = 0) AS counted,
             sum(signal_bytes) FILTER (WHERE retired_by = 0) AS bytes
      FROM ff_waitpoint WHERE execution_id = u.execution_id) c
    CROSS JOIN LATERAL (
      SELECT b.bytes, CASE
        WHEN e.execution_id IS NULL OR w.execution_id IS NULL
          OR (u.kid IS NOT NULL AND NOT u.kid || ' ' || u.secret_print = ANY (v_keys)) THEN 'unknown'
        WHEN g.signal_id IS NOT NULL THEN 'duplicate'
        WHEN u.token_expires_at_ms <= p_now THEN 'expired'
        WHEN e.lifecycle_phase = 'terminal' OR w.close_reason IN ('satisfied', 'timed_out') THEN 'closed'
        WHEN u.kid IS NOT NULL AND (w.close_reason = 'expired' OR w.expires_at_ms <= p_now) THEN 'expired'
        WHEN w.schema IS NOT NULL AND NOT u.is_checked THEN 'unchecked'
        -- One waitpoint may use at most half; the rest is for the others.
        WHEN w.signal_count >= u.max_signals / 2 OR w.signal_bytes + b.bytes > u.max_bytes / 2 THEN 'too_many'
        WHEN c.counted >= u.max_signals OR c.bytes + b.bytes > u.max_bytes THEN 'too_many'
        ELSE 'accepted' END AS outcome
      FROM (SELECT octet_length(u.payload::text)::bigint AS bytes OFFSET 0) b OFFSET 0) o);
END $$;

-- What a signal to a suspended execution does. A condition that one signal meets is met by the first that fits. For any
-- other, `counted` says that it adds a satisfier: without one it cannot complete the condition.
CREATE OR REPLACE FUNCTION ff_signal_effect(p_condition jsonb, p_waitpoint uuid, p_waitpoint_name text, p_sent ff_sent_signal) RETURNS text
LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF p_condition ->> 'kind' = 'count' AND p_condition ->> 'n' = '1' THEN
    RETURN CASE WHEN p_condition -> 'waitpoints' ? p_waitpoint_name AND coalesce(p_condition ->> 'match' = p_sent.name, true)
      THEN 'resumed' ELSE 'not_matching' END;
  END IF;
  IF NOT ff_signal_fits(p_condition, p_waitpoint_name, p_sent.name) THEN
    RETURN 'not_matching';
  END IF;
  RETURN CASE WHEN ff_signal_adds(p_condition, p_waitpoint, p_waitpoint_name, p_sent) THEN 'counted' ELSE 'not_counted' END;
END $$;

-- Takes signals to executions that the caller has locked, at most one to each: stores those that are accepted, ends the
-- waits whose conditions they meet and resumes their executions. In statements after the lock: whatever was committed
-- while it was waited for is seen.
CREATE OR REPLACE FUNCTION ff_take_signals(p_sent ff_sent_signal[]) RETURNS ff_taken_signal[] LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_now bigint := ff_now_ms();
  v_taken ff_taken_signal[] := ff_judge_signals(p_sent, v_now);
  v_ends boolean;
  t ff_taken_signal;
BEGIN
  INSERT INTO ff_signal (execution_id, waitpoint_id, signal_id, accepted_at_ms, seq, partition_key, name, source_type, source_identity,
                         idempotency_key, effect, payload)
  SELECT (u.locked).execution_id, u.waitpoint_id, u.signal_id, v_now, u.seq, (u.locked).partition_key, u.name, u.source_type,
         u.source_identity, u.idempotency_key, u.effect, u.payload
  FROM unnest(v_taken) u WHERE u.outcome = 'accepted';
  IF EXISTS (SELECT FROM unnest(v_taken) u WHERE u.effect = 'counted') THEN
    v_taken := ff_complete_conditions(v_taken);
  END IF;
  FOREACH t IN ARRAY v_taken LOOP
    CONTINUE WHEN t.outcome <> 'accepted';
    -- Counts the signal, and closes the waitpoints of a wait that it ended.
    v_ends := t.effect = 'resumed';
    UPDATE ff_waitpoint SET
      signal_count = signal_count + CASE name WHEN t.waitpoint THEN 1 ELSE 0 END,
      signal_bytes = signal_bytes + CASE name WHEN t.waitpoint THEN t.bytes ELSE 0 END,
      closed_at_ms = CASE WHEN v_ends THEN coalesce(closed_at_ms, v_now) ELSE closed_at_ms END,
      close_reason = CASE WHEN v_ends THEN coalesce(close_reason, 'satisfied') ELSE close_reason END
    WHERE execution_id = (t.locked).execution_id AND retired_by = 0
      AND (name = t.waitpoint OR (v_ends AND closed_at_ms IS NULL AND step_name = t.wait ->> 'name' AND step_key = t.wait ->> 'key'));
  END LOOP;
  PERFORM ff_tell_signal(array_agg(u.locked), 'delivered', array_agg(jsonb_build_object('waitpoint', u.waitpoint,
    'signal_id', u.signal_id, 'name', u.name, 'source_type', u.source_type, 'source_identity', u.source_identity, 'effect', u.effect)))
  FROM unnest(v_taken) u WHERE u.outcome = 'accepted';
  PERFORM ff_resume_signalled(v_taken);
  RETURN v_taken;
END $$;

-- Finds the stored signals that met their conditions.
CREATE OR REPLACE FUNCTION ff_complete_conditions(p_taken ff_taken_signal[]) RETURNS ff_taken_signal[] LANGUAGE plpgsql AS $$
DECLARE
  v_taken ff_taken_signal[] := p_taken;
  t ff_taken_signal;
BEGIN
  FOR i IN 1..cardinality(v_taken) LOOP
    t := v_taken[i];
    IF t.outcome = 'accepted' AND t.effect = 'counted' AND ff_condition_met(t.wait -> 'condition', (t.locked).execution_id) THEN
      t.effect := 'resumed';
      v_taken[i] := t;
      UPDATE ff_signal SET effect = t.effect
      WHERE execution_id = (t.locked).execution_id AND waitpoint_id = t.waitpoint_id AND seq = t.seq;
    END IF;
  END LOOP;
  RETURN v_taken;
END $$;

-- Ends the waits that signals have just met, and resumes their executions. No condition was met before its signal: that
-- is the one that decided.
CREATE OR REPLACE FUNCTION ff_resume_signalled(p_taken ff_taken_signal[]) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_ids uuid[];
  v_waits jsonb[];
  v_seqs integer[];
  v_values jsonb[];
  v_rows ff_locked[];
  v_delays bigint[];
  v_details jsonb[];
BEGIN
  SELECT array_agg((u.locked).execution_id), array_agg(u.wait), array_agg(u.seq), array_agg(u.locked), array_agg(u.delay_ms),
         array_agg(ff_resume_detail(u.wait, 'satisfied', concat_ws(':', u.source_type, u.source_identity)))
  INTO v_ids, v_waits, v_seqs, v_rows, v_delays, v_details
  FROM unnest(p_taken) u WHERE u.outcome = 'accepted' AND u.effect = 'resumed';
  IF v_ids IS NULL THEN
    RETURN;
  END IF;
  v_values := ff_wait_values(v_ids, v_waits, v_seqs, 'satisfied');
  FOR i IN 1..cardinality(v_ids) LOOP
    UPDATE ff_step SET value = v_values[i]
    WHERE execution_id = v_ids[i] AND retired_by = 0 AND name = v_waits[i] ->> 'name' AND key = v_waits[i] ->> 'key'
      AND kind = 'wait' AND value ->> 'outcome' = 'pending';
  END LOOP;
  PERFORM ff_drop_waitpoint_timers(v_ids);
  PERFORM ff_settle_resumed(v_rows, v_delays, v_details);
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
BEGIN
  PERFORM ff_require_read_committed();
  PERFORM 1 FROM ff_execution x WHERE x.execution_id = p_id AND x.partition_key = p_partition FOR UPDATE;
  RETURN QUERY
  SELECT t.outcome, t.signal_id, t.effect, t.schema, CASE t.outcome WHEN 'accepted' THEN (t.locked).route_id END,
         CASE WHEN t.outcome = 'accepted' AND t.effect = 'resumed' THEN t.delay_ms END
  FROM unnest(ff_take_signals(ARRAY[ROW(1, 1, p_id, p_partition, p_waitpoint, p_waitpoint_name, p_kid, p_print,
    p_token_expires_at_ms, p_signal, p_name, p_source_type, p_source_identity, p_payload, p_idempotency_key, p_is_checked, p_max_signals,
    p_max_bytes)::ff_sent_signal])) t;
END $$;

-- Delivers many signals, in the given order, each as ff_deliver_signal does. Returns the answers by their places. A
-- signal to an execution that is not there or that another transaction has locked returns `held`: it is left to a call
-- of its own, so that no other waits for it. In each round every execution gets its next signal.
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
  v_sent ff_sent_signal[];
  v_last bigint;
BEGIN
  PERFORM ff_require_read_committed();
  v_locked := ARRAY(
    SELECT e.execution_id
    FROM (SELECT DISTINCT id, part FROM unnest(p_ids, p_partitions) u(id, part) ORDER BY id OFFSET 0) u
    CROSS JOIN LATERAL (
      SELECT execution_id FROM ff_execution WHERE execution_id = u.id AND partition_key = u.part FOR UPDATE SKIP LOCKED) e);
  SELECT array_agg(ROW(u.ord, u.round, u.id, u.part, u.waitpoint, u.waitpoint_name, u.kid, u.print, u.expires, u.signal, u.name,
           u.source_type, u.source_identity, u.payload, u.key, u.checked, u.max_signals, u.max_bytes)::ff_sent_signal ORDER BY u.ord),
         max(u.round)
  INTO v_sent, v_last
  FROM (
    SELECT *, row_number() OVER (PARTITION BY id ORDER BY ord) AS round
    FROM unnest(p_ids, p_partitions, p_waitpoints, p_waitpoint_names, p_kids, p_prints, p_token_expiries, p_signals, p_names,
      p_source_types, p_source_identities, p_payloads, p_idempotency_keys, p_checked, p_max_signals, p_max_bytes)
      WITH ORDINALITY u(id, part, waitpoint, waitpoint_name, kid, print, expires, signal, name, source_type, source_identity, payload, key,
                        checked, max_signals, max_bytes, ord)
    WHERE id = ANY (v_locked)) u;
  FOR v_round IN 1..coalesce(v_last, 0) LOOP
    RETURN QUERY
    SELECT t.place, t.outcome, t.signal_id, t.effect, t.schema, CASE t.outcome WHEN 'accepted' THEN (t.locked).route_id END,
           CASE WHEN t.outcome = 'accepted' AND t.effect = 'resumed' THEN t.delay_ms END
    FROM unnest(ff_take_signals(ARRAY(SELECT s FROM unnest(v_sent) s WHERE s.round = v_round))) t;
  END LOOP;
  RETURN QUERY
  SELECT u.ord::integer, 'held', NULL::uuid, NULL, NULL::jsonb, NULL::integer, NULL::bigint
  FROM unnest(p_ids) WITH ORDINALITY u(id, ord) WHERE id <> ALL (v_locked);
END $$;
