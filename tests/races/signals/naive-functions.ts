/**
 * Suspending and delivering in the simpler forms one would write first: each decides by what its statement saw before
 * it waited for the lock. For tests only, like executions/naive-functions.ts.
 */

const ANSWER = 'RETURNS TABLE (outcome text, effect text, lease_epoch bigint)';
const SETTINGS = 'SET enable_seqscan = off SET search_path FROM CURRENT';

/** Counts signals in the statement that locks: one delivered during the wait is not seen. */
const SUSPEND_AT_ONCE = `
CREATE FUNCTION naive_suspend_at_once(
  p_id uuid, p_partition smallint, p_attempt integer, p_epoch bigint, p_transition text, p_only_look boolean, p_waits jsonb, p_waitpoints jsonb,
  p_max_waitpoints integer, p_wake_ms bigint, p_children jsonb, p_needed integer
) ${ANSWER} LANGUAGE plpgsql ${SETTINGS} AS $$
#variable_conflict use_column
DECLARE
  v_met boolean;
  v_rows ff_locked[];
BEGIN
  SELECT ff_condition_met(p_waits -> 0 -> 'condition', p_id) INTO v_met
  FROM (SELECT 1 FROM ff_execution WHERE execution_id = p_id FOR UPDATE) e;
  v_rows := ff_lock_leased(ARRAY[p_id], ARRAY[p_partition], ARRAY[p_attempt], ARRAY[p_epoch]);
  PERFORM ff_open_waitpoints(p_id, p_partition, p_waitpoints);
  PERFORM ff_begin_waits(v_rows[1], p_waits);
  IF v_met THEN
    PERFORM ff_end_wait(p_id, p_waits -> 0, 'satisfied');
    RETURN QUERY SELECT 'satisfied', NULL, p_epoch;
    RETURN;
  END IF;
  INSERT INTO ff_suspension (execution_id, partition_key, attempt_index, lease_epoch, suspended_at_ms, waits)
  VALUES (p_id, p_partition, p_attempt, p_epoch, ff_now_ms(), p_waits);
  PERFORM ff_settle(p_transition, v_rows, NULL, NULL, NULL, NULL, NULL);
  RETURN QUERY SELECT 'suspended', NULL, p_epoch;
END $$`;

/** Locks only its waitpoint, and reads the suspension and counts in the same statement. */
const DELIVER_AT_WAITPOINT = `
CREATE FUNCTION naive_deliver_at_waitpoint(
  p_id uuid, p_partition smallint, p_waitpoint uuid, p_waitpoint_name text, p_kid text, p_print text, p_token_expires_at_ms bigint,
  p_signal uuid, p_name text, p_source_type text, p_source_identity text, p_payload jsonb, p_idempotency_key text,
  p_is_checked boolean, p_max_signals integer, p_max_bytes bigint
) ${ANSWER} LANGUAGE plpgsql ${SETTINGS} AS $$
#variable_conflict use_column
DECLARE
  w record;
  v_effect text;
  r ff_locked;
BEGIN
  SELECT x.waitpoint_id, x.signal_count, s.waits -> 0 AS wait,
         ff_leaf_count(s.waits -> 0 -> 'condition', p_id, 2147483647) + 1 >= (s.waits #>> '{0,condition,n}')::integer AS enough
  INTO w FROM ff_waitpoint x LEFT JOIN ff_suspension s ON s.execution_id = x.execution_id
  WHERE x.execution_id = p_id AND x.retired_by = 0 AND x.name = p_waitpoint_name FOR UPDATE OF x;
  v_effect := CASE WHEN w.wait IS NULL THEN 'buffered' WHEN w.enough THEN 'resumed' ELSE 'counted' END;
  INSERT INTO ff_signal VALUES (p_id, w.waitpoint_id, p_signal, ff_now_ms(), w.signal_count, p_partition, p_name,
    p_source_type, p_source_identity, p_idempotency_key, v_effect, p_payload);
  UPDATE ff_waitpoint SET signal_count = signal_count + 1 WHERE execution_id = p_id AND name = p_waitpoint_name;
  SELECT 1, execution_id, partition_key, route_id, priority, namespace, attempt_index, lease_epoch, retry_count, attempt_state,
         NULL, NULL, NULL, NULL, '{}', retain_ms
  INTO r FROM ff_execution WHERE execution_id = p_id FOR UPDATE;
  PERFORM ff_tell_signal(ARRAY[r], 'delivered', ARRAY['{}'::jsonb]);
  IF v_effect = 'resumed' THEN
    PERFORM ff_resume(r, w.wait, 'satisfied', 'somebody');
  END IF;
  RETURN QUERY SELECT 'accepted', v_effect, NULL::bigint;
END $$`;

export const NAIVE_SIGNALS = [SUSPEND_AT_ONCE, DELIVER_AT_WAITPOINT];
