-- The parts of a wait: waitpoints, which accept signals before the suspension so that none is lost in between; the
-- condition that decides which signals end it; and its outcome, stored as a step. Pieces of suspend.sql and
-- signals.sql, called with the execution locked.

-- How many distinct satisfiers a leaf has: signals, waitpoints that got one, or sources. p_until counts only signals
-- accepted up to that one.
CREATE OR REPLACE FUNCTION ff_leaf_count(p_leaf jsonb, p_execution uuid, p_until integer) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN (
    SELECT CASE p_leaf ->> 'by'
      WHEN 'waitpoints' THEN count(DISTINCT s.waitpoint_id)
      WHEN 'sources' THEN count(DISTINCT (s.source_type, s.source_identity))
      ELSE count(*) END
    FROM (SELECT DISTINCT n FROM jsonb_array_elements_text(p_leaf -> 'waitpoints') n) u
    CROSS JOIN LATERAL (
      SELECT waitpoint_id FROM ff_waitpoint WHERE execution_id = p_execution AND retired_by = 0 AND name = u.n OFFSET 0) w
    CROSS JOIN LATERAL (
      SELECT waitpoint_id, source_type, source_identity FROM ff_signal
      WHERE execution_id = p_execution AND waitpoint_id = w.waitpoint_id AND seq <= p_until
        AND (p_leaf ->> 'match' IS NULL OR name = p_leaf ->> 'match') OFFSET 0) s);
END $$;

-- The same rules as the model's; a test compares them. p_until: counts only signals accepted up to that one.
CREATE OR REPLACE FUNCTION ff_condition_met(p_condition jsonb, p_execution uuid, p_until integer DEFAULT 2147483647) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
DECLARE
  v_all boolean := p_condition ->> 'kind' = 'all';
  v_member jsonb;
BEGIN
  IF p_condition ->> 'kind' = 'count' THEN
    RETURN ff_leaf_count(p_condition, p_execution, p_until) >= (p_condition ->> 'n')::integer;
  END IF;
  FOR v_member IN SELECT jsonb_array_elements(p_condition -> 'of') LOOP
    IF ff_condition_met(v_member, p_execution, p_until) <> v_all THEN
      RETURN NOT v_all;
    END IF;
  END LOOP;
  RETURN v_all;
END $$;

-- The leaves of a condition.
CREATE OR REPLACE FUNCTION ff_leaves(p_condition jsonb) RETURNS SETOF jsonb LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  IF p_condition ->> 'kind' = 'count' THEN
    RETURN NEXT p_condition;
  ELSIF p_condition ? 'of' THEN
    RETURN QUERY SELECT l FROM jsonb_array_elements(p_condition -> 'of') m, ff_leaves(m) l;
  END IF;
END $$;

-- Whether a signal adds a satisfier to a leaf that takes it. A leaf that counts signals always gains one; the others
-- only if no earlier signal came from the same source or waitpoint.
CREATE OR REPLACE FUNCTION ff_signal_adds(p_condition jsonb, p_waitpoint uuid, p_waitpoint_name text, p_signal ff_sent_signal) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN EXISTS (
    SELECT FROM ff_leaves(p_condition) l
    WHERE l -> 'waitpoints' ? p_waitpoint_name AND (l ->> 'match' IS NULL OR l ->> 'match' = p_signal.name)
      AND (l ->> 'by' = 'signals' OR NOT EXISTS (
        SELECT FROM (SELECT DISTINCT n FROM jsonb_array_elements_text(l -> 'waitpoints') n) u
        CROSS JOIN LATERAL (
          SELECT waitpoint_id FROM ff_waitpoint
          WHERE execution_id = p_signal.execution_id AND retired_by = 0 AND name = u.n OFFSET 0) w
        CROSS JOIN LATERAL (
          SELECT waitpoint_id, source_type, source_identity FROM ff_signal
          WHERE execution_id = p_signal.execution_id AND waitpoint_id = w.waitpoint_id
            AND (l ->> 'match' IS NULL OR name = l ->> 'match') OFFSET 0) s
        WHERE CASE l ->> 'by' WHEN 'waitpoints' THEN s.waitpoint_id = p_waitpoint
              ELSE s.source_type = p_signal.source_type AND s.source_identity = p_signal.source_identity END)));
END $$;

-- Whether a leaf takes signals with this name at this waitpoint.
CREATE OR REPLACE FUNCTION ff_signal_fits(p_condition jsonb, p_waitpoint text, p_name text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN (
    SELECT coalesce(bool_or(l ->> 'match' IS NULL OR l ->> 'match' = p_name), false)
    FROM ff_leaves(p_condition) l WHERE l -> 'waitpoints' ? p_waitpoint);
END $$;

-- Opens waitpoints. With a wait (step_name), they belong to it and live as long as it may wait. A waitpoint that
-- expired before it had a wait is opened again; one whose wait has timed out or ended is not, because nobody would read
-- its signals. A requested token (kid) replaces one that is no longer valid; a schema replaces the old one until the
-- first signal arrives.
CREATE OR REPLACE FUNCTION ff_open_waitpoints(p_id uuid, p_partition smallint, p_waitpoints jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  v_now bigint := ff_now_ms();
  v_touched bigint;
BEGIN
  WITH opened AS (
    INSERT INTO ff_waitpoint AS w (waitpoint_id, token_id, execution_id, partition_key, name, created_at_ms, expires_at_ms, step_name,
                                   step_key, kid, token_expires_at_ms, schema)
    SELECT (j ->> 'id')::uuid, (j ->> 'id')::uuid, p_id, p_partition, j ->> 'name', v_now, v_now + (j ->> 'expires_in_ms')::bigint,
           j ->> 'step_name', j ->> 'step_key', j ->> 'kid',
           CASE WHEN j ->> 'kid' IS NOT NULL THEN v_now + (j ->> 'expires_in_ms')::bigint END, j -> 'schema'
    FROM jsonb_array_elements(p_waitpoints) j
    LEFT JOIN LATERAL (
      SELECT value FROM ff_step
      WHERE execution_id = p_id AND retired_by = 0 AND name = j ->> 'step_name' AND key = j ->> 'step_key' OFFSET 0) s ON true
    WHERE coalesce(s.value ->> 'outcome', 'pending') = 'pending' ORDER BY j ->> 'name'
    ON CONFLICT (execution_id, retired_by, name) DO UPDATE SET
      step_name = coalesce(w.step_name, EXCLUDED.step_name), step_key = coalesce(w.step_key, EXCLUDED.step_key),
      expires_at_ms = CASE
        WHEN w.step_name IS NOT NULL OR (EXCLUDED.step_name IS NULL AND w.expires_at_ms > v_now) THEN w.expires_at_ms
        WHEN EXCLUDED.expires_at_ms IS NOT NULL THEN greatest(w.expires_at_ms, EXCLUDED.expires_at_ms) END,
      kid = CASE WHEN ff_token_is_good(w, v_now) THEN w.kid ELSE coalesce(EXCLUDED.kid, w.kid) END,
      token_expires_at_ms = CASE WHEN ff_token_is_good(w, v_now) THEN w.token_expires_at_ms
        ELSE coalesce(EXCLUDED.token_expires_at_ms, w.token_expires_at_ms) END,
      schema = CASE WHEN w.signal_count = 0 OR w.schema IS NULL THEN coalesce(EXCLUDED.schema, w.schema) ELSE w.schema END,
      closed_at_ms = NULL, close_reason = NULL
    WHERE (w.closed_at_ms IS NULL OR (w.close_reason = 'expired' AND w.step_name IS NULL))
      AND ((w.step_name IS NULL AND (EXCLUDED.step_name IS NOT NULL OR w.expires_at_ms <= v_now))
        OR (EXCLUDED.kid IS NOT NULL AND NOT ff_token_is_good(w, v_now))
        OR (EXCLUDED.schema <> w.schema AND w.signal_count = 0) OR (w.schema IS NULL AND EXCLUDED.schema IS NOT NULL))
    RETURNING 1)
  SELECT count(*) INTO v_touched FROM opened;
  IF v_touched > 0 THEN
    PERFORM ff_time_waitpoints(p_id, p_partition);
  END IF;
END $$;

-- Sets the timer of an execution's waitpoints to the first expiry; an earlier one may exist.
CREATE OR REPLACE FUNCTION ff_time_waitpoints(p_id uuid, p_partition smallint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_due bigint;
BEGIN
  SELECT min(expires_at_ms) INTO v_due FROM ff_waitpoint WHERE execution_id = p_id AND retired_by = 0 AND closed_at_ms IS NULL;
  INSERT INTO ff_timer (kind, due_at_ms, execution_id, partition_key, attempt_index, lease_epoch)
  SELECT 'waitpoint', v_due, p_id, p_partition, 0, 0
  WHERE v_due IS NOT NULL AND NOT EXISTS (
    SELECT FROM ff_timer t
    WHERE t.kind = 'waitpoint' AND t.execution_id = p_id AND t.due_at_ms <= v_due AND t.due_at_ms > ff_now_ms());
END $$;

-- Whether the token issued with a waitpoint is still valid.
CREATE OR REPLACE FUNCTION ff_token_is_good(w ff_waitpoint, p_now bigint) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN coalesce(w.token_expires_at_ms > p_now, false) AND EXISTS (
    SELECT FROM ff_signing_key k WHERE k.kid = w.kid AND ff_key_verifies(k.kid, k.secret_print));
END $$;

-- Why waits and waitpoints are refused, before anything is written: more waitpoints than an execution may have, one
-- that belongs to another wait, one without its wait's schema, or a name used by a step of another kind. NULL when they
-- are accepted.
CREATE OR REPLACE FUNCTION ff_wait_fault(p_id uuid, p_waits jsonb, p_waitpoints jsonb, p_max_waitpoints integer) RETURNS text
LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF p_waitpoints <> '[]' AND (SELECT count(*) FROM ff_waitpoint w WHERE w.execution_id = p_id AND w.retired_by = 0)
     + (SELECT count(*) FROM jsonb_array_elements(p_waitpoints) j
        LEFT JOIN LATERAL (
          SELECT execution_id FROM ff_waitpoint
          WHERE execution_id = p_id AND retired_by = 0 AND name = j ->> 'name' OFFSET 0) w ON true
        WHERE w.execution_id IS NULL)
     > p_max_waitpoints THEN
    RETURN 'too_many_waitpoints';
  END IF;
  IF EXISTS (
    SELECT FROM jsonb_array_elements(p_waitpoints) j
    CROSS JOIN LATERAL (
      SELECT step_name, step_key FROM ff_waitpoint
      WHERE execution_id = p_id AND retired_by = 0 AND name = j ->> 'name' OFFSET 0) w
    WHERE (w.step_name, w.step_key) IS DISTINCT FROM (j ->> 'step_name', j ->> 'step_key')
      AND w.step_name IS NOT NULL AND j ->> 'step_name' IS NOT NULL) THEN
    RETURN 'waitpoint_taken';
  END IF;
  -- Payloads are checked on delivery: those delivered before the wait must have been checked against its schema too.
  IF EXISTS (
    SELECT FROM jsonb_array_elements(p_waitpoints) j
    CROSS JOIN LATERAL (
      SELECT schema FROM ff_waitpoint
      WHERE execution_id = p_id AND retired_by = 0 AND name = j ->> 'name' AND step_name IS NULL OFFSET 0) w
    WHERE j ->> 'step_name' IS NOT NULL AND j -> 'schema' IS NOT NULL AND w.schema IS NULL) THEN
    RETURN 'schema_late';
  END IF;
  IF EXISTS (
    SELECT FROM jsonb_array_elements(p_waits) j
    CROSS JOIN LATERAL (
      SELECT kind FROM ff_step
      WHERE execution_id = p_id AND retired_by = 0 AND name = j ->> 'name' AND key = j ->> 'key' OFFSET 0) s
    WHERE s.kind <> 'wait') THEN
    RETURN 'name_taken';
  END IF;
  RETURN NULL;
END $$;

-- A wait is a step from its start, so that its timeout counts from then, however often its execution resumes for
-- something else.
CREATE OR REPLACE FUNCTION ff_begin_waits(p_row ff_locked, p_waits jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_now bigint := ff_now_ms();
BEGIN
  INSERT INTO ff_step (execution_id, partition_key, attempt_index, lease_epoch, recorded_at_ms, kind, name, key, value)
  SELECT p_row.execution_id, p_row.partition_key, p_row.attempt_index, p_row.lease_epoch, v_now, 'wait', j ->> 'name', j ->> 'key',
         jsonb_build_object('outcome', 'pending', 'timeoutAtMs', v_now + (j ->> 'timeout_ms')::bigint)
  FROM jsonb_array_elements(p_waits) j
  ON CONFLICT DO NOTHING;
END $$;

-- Which signal first met the wait's condition, which is met now. Later signals do not count, whether they came before
-- the suspension or were never taken.
CREATE OR REPLACE FUNCTION ff_deciding_signal(p_id uuid, p_wait jsonb) RETURNS integer LANGUAGE plpgsql STABLE AS $$
DECLARE
  v_seqs integer[];
  v_low integer := 1;
  v_high integer;
  v_middle integer;
BEGIN
  SELECT array_agg(s.seq ORDER BY s.seq) INTO v_seqs
  FROM (SELECT waitpoint_id FROM ff_waitpoint
        WHERE execution_id = p_id AND retired_by = 0 AND step_name = p_wait ->> 'name' AND step_key = p_wait ->> 'key' OFFSET 0) w
  CROSS JOIN LATERAL (SELECT seq FROM ff_signal WHERE execution_id = p_id AND waitpoint_id = w.waitpoint_id OFFSET 0) s;
  v_high := cardinality(v_seqs);
  WHILE v_low < v_high LOOP
    v_middle := (v_low + v_high) / 2;
    IF ff_condition_met(p_wait -> 'condition', p_id, v_seqs[v_middle]) THEN
      v_high := v_middle;
    ELSE
      v_low := v_middle + 1;
    END IF;
  END LOOP;
  RETURN v_seqs[v_low];
END $$;

-- How each of some waits ended, with the signals that matched it, up to the one that decided.
CREATE OR REPLACE FUNCTION ff_wait_values(p_ids uuid[], p_waits jsonb[], p_untils integer[], p_outcome text) RETURNS jsonb[]
LANGUAGE plpgsql STABLE AS $$
DECLARE
  v_now bigint := ff_now_ms();
BEGIN
  RETURN ARRAY(
    SELECT jsonb_build_object('outcome', p_outcome, 'endedAtMs', v_now, 'signals', coalesce(g.signals, '[]'))
    FROM unnest(p_ids, p_waits, p_untils) WITH ORDINALITY u(id, wait, until, ord)
    CROSS JOIN LATERAL (
      SELECT jsonb_agg(jsonb_build_object(
        'signalId', s.signal_id, 'waitpoint', w.name, 'name', s.name, 'payload', s.payload,
        'source', jsonb_build_object('type', s.source_type, 'identity', s.source_identity),
        'acceptedAtMs', s.accepted_at_ms) ORDER BY s.seq) AS signals
      FROM (SELECT waitpoint_id, name FROM ff_waitpoint
            WHERE execution_id = u.id AND retired_by = 0 AND step_name = u.wait ->> 'name' AND step_key = u.wait ->> 'key' OFFSET 0) w
      CROSS JOIN LATERAL (
        SELECT * FROM ff_signal WHERE execution_id = u.id AND waitpoint_id = w.waitpoint_id AND seq <= u.until OFFSET 0) s
      -- The one that decided has been found to fit.
      WHERE s.seq = u.until OR ff_signal_fits(u.wait -> 'condition', w.name, s.name)) g
    ORDER BY u.ord);
END $$;

-- Ends a pending wait of a locked execution if what it waits for is there, and returns how it ended; otherwise NULL. What
-- kinds of conditions there are is decided here: signals, which several waits never share, or something that the wait
-- takes. Called in a statement after the lock, by whoever suspends, delivers or times out, so that these exclude each
-- other.
CREATE OR REPLACE FUNCTION ff_end_if_met(p_id uuid, p_wait jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
  CASE p_wait #>> '{condition,kind}'
    WHEN 'message' THEN
      RETURN ff_store_wait_end(p_id, p_wait, ff_take_message(p_id, p_wait));
    WHEN 'topic' THEN
      RETURN ff_store_wait_end(p_id, p_wait, ff_take_topic(p_id, p_wait));
    ELSE
      IF ff_condition_met(p_wait -> 'condition', p_id) THEN
        RETURN ff_end_wait(p_id, p_wait, 'satisfied');
      END IF;
      RETURN NULL;
  END CASE;
END $$;

-- Stores what ended a wait, as `satisfied` with those fields in its value. Nothing if there is nothing.
CREATE OR REPLACE FUNCTION ff_store_wait_end(p_id uuid, p_wait jsonb, p_fields jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
  v_value jsonb := jsonb_build_object('outcome', 'satisfied', 'endedAtMs', ff_now_ms(), 'signals', '[]'::jsonb) || p_fields;
BEGIN
  IF v_value IS NULL THEN
    RETURN NULL;
  END IF;
  UPDATE ff_step SET value = v_value
  WHERE execution_id = p_id AND retired_by = 0 AND name = p_wait ->> 'name' AND key = p_wait ->> 'key'
    AND kind = 'wait' AND value ->> 'outcome' = 'pending';
  RETURN v_value;
END $$;

-- Looks whether a wait of this kind of a locked, suspended execution is over now, and if so resumes the execution. For
-- whoever has just delivered what such waits take. Returns NULL if none is, otherwise the rest before it resumes, 0 if none.
CREATE OR REPLACE FUNCTION ff_resume_if_met(p_row ff_locked, p_kind text, p_actor text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  v_wait jsonb;
  v_delay bigint;
BEGIN
  FOR v_wait IN
    SELECT w FROM (SELECT waits FROM ff_suspension WHERE execution_id = p_row.execution_id) s
    CROSS JOIN LATERAL jsonb_array_elements(s.waits) WITH ORDINALITY x(w, place) ORDER BY place
  LOOP
    CONTINUE WHEN v_wait #>> '{condition,kind}' IS DISTINCT FROM p_kind OR ff_end_if_met(p_row.execution_id, v_wait) IS NULL;
    v_delay := nullif((v_wait ->> 'resume_delay_ms')::bigint, 0);
    PERFORM ff_settle_resumed(ARRAY[p_row], ARRAY[v_delay], ARRAY[ff_resume_detail(v_wait, 'satisfied', p_actor)]);
    RETURN coalesce(v_delay, 0);
  END LOOP;
  RETURN NULL;
END $$;

-- Stores how a wait ended, and closes its waitpoints. From then on the step returns that.
CREATE OR REPLACE FUNCTION ff_end_wait(p_id uuid, p_wait jsonb, p_outcome text) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
  v_until integer := CASE p_outcome WHEN 'satisfied' THEN ff_deciding_signal(p_id, p_wait) ELSE 2147483647 END;
  v_values jsonb[] := ff_wait_values(ARRAY[p_id], ARRAY[p_wait], ARRAY[v_until], p_outcome);
BEGIN
  UPDATE ff_step SET value = v_values[1]
  WHERE execution_id = p_id AND retired_by = 0 AND name = p_wait ->> 'name' AND key = p_wait ->> 'key'
    AND kind = 'wait' AND value ->> 'outcome' = 'pending';
  PERFORM ff_close_waitpoints(p_id, p_wait, p_outcome);
  PERFORM ff_leave_topic(p_id, p_wait);
  RETURN v_values[1];
END $$;

-- Closes the waitpoints of a wait.
CREATE OR REPLACE FUNCTION ff_close_waitpoints(p_id uuid, p_wait jsonb, p_reason text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE ff_waitpoint SET closed_at_ms = ff_now_ms(), close_reason = p_reason
  WHERE execution_id = p_id AND retired_by = 0 AND step_name = p_wait ->> 'name' AND step_key = p_wait ->> 'key'
    AND closed_at_ms IS NULL;
  PERFORM ff_drop_waitpoint_timers(ARRAY[p_id]);
END $$;

-- Removes the timers of waitpoints of locked executions none of whose waitpoints need one any more.
CREATE OR REPLACE FUNCTION ff_drop_waitpoint_timers(p_ids uuid[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_ids uuid[] := ARRAY(
    SELECT u.id FROM unnest(p_ids) u(id)
    LEFT JOIN LATERAL (
      SELECT true AS is_open FROM ff_waitpoint WHERE execution_id = u.id AND retired_by = 0 AND closed_at_ms IS NULL LIMIT 1) w ON true
    WHERE w.is_open IS NULL);
BEGIN
  DELETE FROM ff_timer WHERE timer_id = ANY (ARRAY(
    SELECT timer_id FROM ff_timer WHERE kind = 'waitpoint' AND execution_id = ANY (v_ids) FOR UPDATE SKIP LOCKED));
END $$;

-- Ends the suspension of p_row, locked, with its tags. With a wait, that wait has ended; without one, something else it
-- waited for is due. Returns the rest the wait asked for before resuming, or NULL.
CREATE OR REPLACE FUNCTION ff_resume(p_row ff_locked, p_wait jsonb, p_outcome text, p_actor text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  v_delay bigint := nullif((p_wait ->> 'resume_delay_ms')::bigint, 0);
BEGIN
  IF p_wait IS NOT NULL THEN
    PERFORM ff_end_wait(p_row.execution_id, p_wait, p_outcome);
  END IF;
  PERFORM ff_settle_resumed(ARRAY[p_row], ARRAY[v_delay], ARRAY[ff_resume_detail(p_wait, p_outcome, p_actor)]);
  RETURN v_delay;
END $$;

-- What the event of a resumption says: which wait ended how, and by whom.
CREATE OR REPLACE FUNCTION ff_resume_detail(p_wait jsonb, p_outcome text, p_actor text) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN jsonb_strip_nulls(jsonb_build_object('wait', p_wait ->> 'name', 'key', nullif(p_wait ->> 'key', ''),
    'outcome', CASE WHEN p_wait IS NULL THEN 'woken' ELSE p_outcome END, 'by', p_actor));
END $$;

-- Settles suspended executions, each at most once, whose waits have ended: at once, or after a rest.
CREATE OR REPLACE FUNCTION ff_settle_resumed(p_rows ff_locked[], p_delays bigint[], p_details jsonb[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_now bigint := ff_now_ms();
  v_rows ff_locked[];
  v_dues bigint[];
  v_details jsonb[];
  v_later boolean;
BEGIN
  FOREACH v_later IN ARRAY ARRAY[false, true] LOOP
    SELECT array_agg(p_rows[n]), array_agg(v_now + p_delays[n]), array_agg(p_details[n]) INTO v_rows, v_dues, v_details
    FROM generate_subscripts(p_delays, 1) n WHERE (p_delays[n] IS NOT NULL) = v_later;
    PERFORM ff_settle(CASE WHEN v_later THEN 'resume_later' ELSE 'resume' END, v_rows, CASE WHEN v_later THEN v_dues END, NULL, NULL, NULL, NULL,
      v_details);
  END LOOP;
END $$;
