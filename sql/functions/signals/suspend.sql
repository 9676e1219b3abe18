-- Suspending until a signal arrives, and timing out. Lock order: execution, lease, then waitpoint. A signal locks the
-- execution too, so either the suspending transaction sees the signal or the signal sees the suspension.

-- Suspends a running execution until one of its waits ends, until a time (p_wake_ms), or until p_needed of p_children
-- have ended. If signals already satisfy a wait, it returns `satisfied` with the waits that ended; if enough children
-- have ended, `due`. Either way the lease stays. p_transition names what is waited for. With p_only_look nothing is
-- suspended and `open` is returned: the waits have begun and take signals. Only an overdue wait still suspends, so that
-- its timeout takes effect.
CREATE OR REPLACE FUNCTION ff_suspend(
  p_id uuid, p_partition smallint, p_attempt integer, p_epoch bigint, p_transition text, p_only_look boolean, p_waits jsonb,
  p_waitpoints jsonb, p_max_waitpoints integer, p_wake_ms bigint, p_children jsonb, p_needed integer
) RETURNS TABLE (
  outcome text, lifecycle_phase text, terminal_outcome text, lease_epoch bigint, ended jsonb, due_in_ms bigint
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_rows ff_locked[];
  v_fault text;
  v_now bigint;
  v_due bigint;
  v_wait jsonb;
  v_value jsonb;
  v_is_late boolean;
  v_overdue boolean := false;
  v_open jsonb := '[]';
  v_ended jsonb := '[]';
BEGIN
  PERFORM ff_require_read_committed();
  v_rows := ff_lock_leased(ARRAY[p_id], ARRAY[p_partition], ARRAY[p_attempt], ARRAY[p_epoch]);
  IF cardinality(v_rows) = 0 THEN
    RETURN QUERY
    SELECT CASE WHEN f.repeated THEN 'already_suspended' ELSE f.outcome END, f.lifecycle_phase, f.terminal_outcome,
           f.lease_epoch, NULL::jsonb, NULL::bigint
    FROM ff_refusals('suspend', ARRAY[p_id], ARRAY[p_partition], ARRAY[p_attempt], ARRAY[p_epoch], '{}') f;
    RETURN;
  END IF;
  v_fault := ff_wait_fault(p_id, p_waits, p_waitpoints, p_max_waitpoints);
  IF v_fault IS NOT NULL THEN
    RETURN QUERY SELECT v_fault, 'active', 'none', p_epoch, NULL::jsonb, NULL::bigint;
    RETURN;
  END IF;
  IF p_waitpoints <> '[]' THEN
    PERFORM ff_open_waitpoints(p_id, p_partition, p_waitpoints);
  END IF;
  PERFORM ff_begin_waits(v_rows[1], p_waits);
  -- In statements after the lock: signals delivered during the wait for it are visible. Later deliveries wait.
  FOR v_wait, v_value IN
    SELECT j, s.value FROM jsonb_array_elements(p_waits) j
    CROSS JOIN LATERAL (
      SELECT value FROM ff_step
      WHERE execution_id = p_id AND retired_by = 0 AND name = j ->> 'name' AND key = j ->> 'key' OFFSET 0) s
  LOOP
    v_is_late := coalesce((v_value ->> 'timeoutAtMs')::bigint <= ff_now_ms(), false);
    IF v_value ->> 'outcome' = 'pending' THEN
      v_value := coalesce(ff_end_if_met(p_id, v_wait), v_value);
    END IF;
    IF v_value ->> 'outcome' = 'pending' AND v_is_late AND v_wait ->> 'on_timeout' = 'resume' AND NOT ff_is_kept_waiting(p_id, v_wait) THEN
      v_value := ff_end_wait(p_id, v_wait, 'timed_out');
    END IF;
    IF v_value ->> 'outcome' = 'pending' THEN
      v_overdue := v_overdue OR v_is_late;
      v_open := v_open || jsonb_build_array((v_wait - 'timeout_ms' #- '{condition,offer}') || jsonb_build_object('timeout_at_ms', v_value -> 'timeoutAtMs',
        'reason', coalesce(v_value -> 'reason', v_wait -> 'reason')));
    ELSE
      v_ended := v_ended || jsonb_build_object('name', v_wait -> 'name', 'key', v_wait -> 'key', 'end', v_value);
    END IF;
  END LOOP;
  IF v_ended <> '[]' OR (p_only_look AND NOT v_overdue)
     OR (p_needed IS NOT NULL AND ff_children_ended(p_id, ff_uuids(p_children), p_needed)) THEN
    RETURN QUERY SELECT CASE WHEN v_ended <> '[]' THEN 'satisfied' WHEN p_only_look THEN 'open' ELSE 'due' END,
      'active', 'none', p_epoch, v_ended, NULL::bigint;
    RETURN;
  END IF;
  v_now := ff_now_ms();
  INSERT INTO ff_suspension (execution_id, partition_key, attempt_index, lease_epoch, suspended_at_ms, wake_at_ms, waits)
  VALUES (p_id, p_partition, p_attempt, p_epoch, v_now, v_now + p_wake_ms, v_open);
  v_due := ff_time_suspension(v_rows[1]);
  IF p_needed IS NOT NULL THEN
    INSERT INTO ff_child_wait AS w (execution_id, partition_key, attempt_index, lease_epoch, needed, children)
    VALUES (p_id, p_partition, p_attempt, p_epoch, p_needed, ff_uuids(p_children))
    ON CONFLICT (execution_id) DO UPDATE SET attempt_index = EXCLUDED.attempt_index, lease_epoch = EXCLUDED.lease_epoch,
      needed = EXCLUDED.needed, children = EXCLUDED.children;
  END IF;
  PERFORM ff_settle(
    -- A wait escalated to an operator stays escalated.
    CASE WHEN v_open @> '[{"reason": "review"}]' THEN 'suspend_for_review' ELSE p_transition END,
    v_rows, NULL, NULL, NULL, NULL, NULL, ARRAY[(
      SELECT jsonb_strip_nulls(jsonb_build_object('waits', jsonb_agg(j -> 'name'), 'timeout_at_ms', min((j ->> 'timeout_at_ms')::bigint)))
      FROM jsonb_array_elements(v_open) j)]);
  RETURN QUERY SELECT 'suspended', 'suspended', 'none', p_epoch, NULL::jsonb, v_due - v_now;
END $$;

-- Sets the timer of a suspension to the first thing that is due. Returns when that is, or NULL.
CREATE OR REPLACE FUNCTION ff_time_suspension(p_row ff_locked) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  v_due bigint;
BEGIN
  SELECT least(s.wake_at_ms, (SELECT min((w ->> 'timeout_at_ms')::bigint) FROM jsonb_array_elements(s.waits) w)) INTO v_due
  FROM ff_suspension s WHERE s.execution_id = p_row.execution_id;
  INSERT INTO ff_timer (kind, due_at_ms, execution_id, partition_key, attempt_index, lease_epoch)
  SELECT 'suspension', v_due, p_row.execution_id, p_row.partition_key, p_row.attempt_index, p_row.lease_epoch
  WHERE v_due IS NOT NULL;
  RETURN v_due;
END $$;

-- Writes events of the signal family that change no state, one about each of some locked rows.
CREATE OR REPLACE FUNCTION ff_tell_signal(p_rows ff_locked[], p_type text, p_details jsonb[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM ff_tell_locked('signal', p_type, ff_now_ms(), p_rows, p_details);
END $$;

-- Handles locked executions whose suspension timer fired. A timed-out wait ends its execution (`execution_timed_out`),
-- resumes it (`fired`, or `delayed` if it asked for a rest first) or is escalated to an operator (`delayed` until the
-- next timer). An execution that also waited for a time or for children resumes. The suspension is read here, in a
-- statement after the lock.
CREATE OR REPLACE FUNCTION ff_time_out_suspended(p_rows ff_locked[])
RETURNS TABLE (execution_id uuid, outcome text, route_id integer, due_in_ms bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  r ff_locked;
  v_woken boolean;
  v_wait jsonb;
  v_value jsonb;
  v_due bigint;
  v_told boolean;
BEGIN
  FOREACH r IN ARRAY coalesce(p_rows, '{}') LOOP
    SELECT s.wake_at_ms <= ff_now_ms() OR ff_wait_is_over(r.execution_id, r.attempt_index, r.lease_epoch) INTO v_woken
    FROM ff_suspension s WHERE s.execution_id = r.execution_id;
    SELECT w INTO v_wait FROM ff_suspension s, jsonb_array_elements(s.waits) w
    WHERE s.execution_id = r.execution_id AND (w ->> 'timeout_at_ms')::bigint <= ff_now_ms() AND v_woken IS NOT TRUE
    ORDER BY (w ->> 'timeout_at_ms')::bigint LIMIT 1;
    -- A timeout is decided under the lock: what has come at the last moment counts.
    v_value := ff_end_if_met(r.execution_id, v_wait);
    IF v_value IS NOT NULL THEN
      v_due := nullif((v_wait ->> 'resume_delay_ms')::bigint, 0);
      PERFORM ff_settle_resumed(ARRAY[r], ARRAY[v_due], ARRAY[ff_resume_detail(v_wait, 'satisfied', 'engine')]);
      RETURN QUERY SELECT r.execution_id, CASE WHEN v_due IS NULL THEN 'fired' ELSE 'delayed' END, r.route_id, v_due;
    ELSIF ff_is_kept_waiting(r.execution_id, v_wait) THEN
      RETURN QUERY SELECT r.execution_id, 'delayed', NULL::integer, ff_lift_timeout(r, v_wait);
    ELSIF v_woken OR v_wait ->> 'on_timeout' = 'resume' THEN
      v_due := ff_resume(r, v_wait, 'timed_out', 'engine');
      RETURN QUERY SELECT r.execution_id, CASE WHEN v_due IS NULL THEN 'fired' ELSE 'delayed' END, r.route_id, v_due;
    ELSIF v_wait ->> 'on_timeout' = 'escalate' THEN
      RETURN QUERY SELECT r.execution_id, 'delayed', NULL::integer, ff_escalate(r, v_wait);
    ELSIF v_wait IS NOT NULL THEN
      PERFORM ff_close_waitpoints(r.execution_id, v_wait, 'timed_out');
      PERFORM ff_tell_signal(ARRAY[r], 'timed_out',
        ARRAY[jsonb_build_object('wait', v_wait -> 'name', 'on_timeout', v_wait -> 'on_timeout')]);
      v_told := ff_settle(
        CASE v_wait ->> 'on_timeout' WHEN 'fail' THEN 'fail_suspended' WHEN 'cancel' THEN 'cancel' ELSE 'time_out' END,
        ARRAY[r], NULL, NULL, ARRAY['suspension_timeout:' || (v_wait ->> 'name')], ARRAY['timeout'], 'engine');
      RETURN QUERY SELECT r.execution_id, 'execution_timed_out', NULL::integer, CASE WHEN v_told THEN 0::bigint END;
    ELSE
      -- The clock went back since its timer was found due.
      RETURN QUERY SELECT r.execution_id, 'delayed', NULL::integer, ff_time_suspension(r) - ff_now_ms();
    END IF;
  END LOOP;
END $$;

-- Takes the timeout off a wait that must not time out. Returns when the next one does, or NULL.
CREATE OR REPLACE FUNCTION ff_lift_timeout(p_row ff_locked, p_wait jsonb) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
  UPDATE ff_suspension s SET waits = (
    SELECT jsonb_agg(CASE WHEN w = p_wait THEN w || '{"timeout_at_ms": null}' ELSE w END ORDER BY place)
    FROM jsonb_array_elements(s.waits) WITH ORDINALITY x(w, place))
  WHERE s.execution_id = p_row.execution_id;
  RETURN greatest(ff_time_suspension(p_row) - ff_now_ms(), 0);
END $$;

-- Escalates a timed-out wait to an operator: it keeps waiting, without a timeout. Returns when the next wait times out,
-- or NULL.
CREATE OR REPLACE FUNCTION ff_escalate(p_row ff_locked, p_wait jsonb) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  v_due bigint;
BEGIN
  UPDATE ff_suspension s SET waits = (
    SELECT jsonb_agg(CASE WHEN w = p_wait THEN w || '{"timeout_at_ms": null, "reason": "review"}' ELSE w END ORDER BY place)
    FROM jsonb_array_elements(s.waits) WITH ORDINALITY x(w, place))
  WHERE s.execution_id = p_row.execution_id;
  UPDATE ff_step SET value = value || '{"timeoutAtMs": null, "reason": "review"}'
  WHERE execution_id = p_row.execution_id AND retired_by = 0 AND name = p_wait ->> 'name' AND key = p_wait ->> 'key';
  UPDATE ff_waitpoint SET closed_at_ms = NULL, close_reason = NULL, expires_at_ms = NULL
  WHERE execution_id = p_row.execution_id AND retired_by = 0 AND step_name = p_wait ->> 'name' AND step_key = p_wait ->> 'key'
    AND (closed_at_ms IS NULL OR close_reason = 'expired');
  v_due := ff_time_suspension(p_row);
  PERFORM ff_settle('escalate', ARRAY[p_row], NULL, NULL, NULL, NULL, 'engine', ARRAY[jsonb_build_object('wait', p_wait -> 'name')]);
  RETURN CASE WHEN v_due IS NOT NULL THEN greatest(v_due - ff_now_ms(), 0) END;
END $$;

-- Closes the expired waitpoints of locked executions and sets the timer for the next one.
CREATE OR REPLACE FUNCTION ff_expire_waitpoints(p_rows ff_locked[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  r ff_locked;
  v_names text[];
BEGIN
  FOREACH r IN ARRAY coalesce(p_rows, '{}') LOOP
    WITH closed AS (
      UPDATE ff_waitpoint SET closed_at_ms = ff_now_ms(), close_reason = 'expired'
      WHERE execution_id = r.execution_id AND retired_by = 0 AND closed_at_ms IS NULL AND expires_at_ms <= ff_now_ms()
      RETURNING name)
    SELECT array_agg(name ORDER BY name) INTO v_names FROM closed;
    IF v_names IS NOT NULL THEN
      PERFORM ff_tell_signal(ARRAY[r], 'waitpoints_expired', ARRAY[jsonb_build_object('waitpoints', to_jsonb(v_names))]);
    END IF;
    PERFORM ff_time_waitpoints(r.execution_id, r.partition_key);
  END LOOP;
END $$;
