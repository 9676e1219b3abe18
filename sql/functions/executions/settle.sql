-- The shared core of every operation that moves an existing execution. Its caller has locked the rows (lock.sql) and
-- decided; this writes.
--
-- Only ff_submit, ff_claim (each with its form for one) and ff_settle write the state columns or the events of a state change. ff_renew and
-- ff_set_tags write events that change no state.
-- These functions carry no settings of their own: their callers do. Most return a value that nobody needs, so that they
-- can be called by an assignment: that evaluates the call, where PERFORM starts an executor for it.

-- Ends the suspensions of locked executions that have one. A timer that is being fired is not waited for; it will be
-- discarded.
CREATE OR REPLACE FUNCTION ff_leave_suspension(p_ids uuid[]) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  DELETE FROM ff_suspension WHERE execution_id = ANY (p_ids);
  DELETE FROM ff_timer WHERE timer_id = ANY (ARRAY(
    SELECT timer_id FROM ff_timer WHERE kind = 'suspension' AND execution_id = ANY (p_ids) FOR UPDATE SKIP LOCKED));
END $$;

-- How the leases of an open attempt were given up, in order, as 4 * epoch + how (0 released, 1 paused, 2 suspended).
-- Consecutive leases that ended the same way share one entry, that of the last; within an attempt a new lease is
-- granted only after the previous one was given up. With very many changes the oldest are forgotten (3).
CREATE OR REPLACE FUNCTION ff_also_given_up(p_before bigint[], p_last bigint) RETURNS bigint[]
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
  c_entries CONSTANT integer := 64;
  v_count integer := coalesce(cardinality(p_before), 0);
BEGIN
  IF p_last IS NULL THEN RETURN p_before; END IF;
  IF v_count > 0 AND p_before[v_count] % 4 = p_last % 4 THEN RETURN p_before[:v_count - 1] || p_last; END IF;
  IF v_count < c_entries THEN RETURN coalesce(p_before, '{}') || p_last; END IF;
  RETURN ((p_before[2] / 4) * 4 + 3) || p_before[3:] || p_last;
END $$;

-- The verb that gave up the lease of this epoch; NULL when it was not given up or that is forgotten.
CREATE OR REPLACE FUNCTION ff_given_up_by(p_given_up bigint[], p_epoch bigint) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (ARRAY['release', 'pause', 'suspend'])[
  1 + (SELECT g % 4 FROM unnest(p_given_up) g WHERE g / 4 >= p_epoch ORDER BY g LIMIT 1)];

-- The leases of an attempt that was paused, with one more. The last ones are kept: more would make every pause dearer.
CREATE OR REPLACE FUNCTION ff_also_leased(p_before jsonb, p_last jsonb) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
  c_leases CONSTANT integer := 16;
BEGIN
  IF p_last IS NULL THEN RETURN p_before; END IF;
  RETURN CASE WHEN jsonb_array_length(p_before) >= c_leases THEN p_before - 0 ELSE coalesce(p_before, '[]') END || p_last;
END $$;

-- A lease that is over, as it is kept in that list.
CREATE OR REPLACE FUNCTION ff_lease_span(p_epoch bigint, p_instance text, p_from bigint, p_to bigint, p_renewals integer)
RETURNS jsonb LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN jsonb_build_object('leaseEpoch', p_epoch, 'workerInstanceId', p_instance, 'fromMs', p_from, 'toMs', p_to,
  'renewals', coalesce(p_renewals, 0));

-- Writes what a transition means for attempts that were paused before, whose rows are there already. Only ff_settle
-- calls it. Apart from the rest, because an insert that may find its row costs more than one that cannot.
CREATE OR REPLACE FUNCTION ff_settle_paused(
  t ff_transition, p_rows ff_locked[], p_dues bigint[], p_results jsonb[], p_messages text[], p_categories text[],
  p_actor text, p_given_up integer, p_now bigint, p_failures jsonb[], p_renewals jsonb
) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_terminal ff_terminal_outcome := nullif(t.terminal_outcome, 'none');
BEGIN
  INSERT INTO ff_attempt_history AS h (
    execution_id, partition_key, attempt_index, lease_epoch, worker_id, worker_instance_id, started_at_ms,
    ended_at_ms, outcome, interrupted_by, failure_message, failure_category, retry_at_ms, given_up, terminal_outcome,
    namespace, retain_ms, result, ended_by, failure_detail, renewals, leases)
  SELECT execution_id, partition_key, attempt_index, lease_epoch, worker_id, worker_instance_id,
         coalesce(attempt_started_at_ms, p_now), CASE WHEN t.attempt_outcome IS NOT NULL THEN p_now END,
         t.attempt_outcome, CASE WHEN t.attempt_outcome = 'interrupted' THEN t.lease_event END, message, category,
         due_at_ms, CASE WHEN p_given_up IS NOT NULL THEN ARRAY[4 * lease_epoch + p_given_up] END, v_terminal,
         CASE WHEN v_terminal IS NOT NULL THEN namespace END, CASE WHEN v_terminal IS NOT NULL THEN retain_ms END, result,
         CASE WHEN v_terminal IS NOT NULL THEN p_actor END, failure, (p_renewals ->> execution_id::text)::smallint,
         CASE WHEN claim_no IS NOT NULL THEN ff_lease_span(lease_epoch, worker_instance_id, g.acquired_at_ms, p_now,
           (p_renewals ->> execution_id::text)::integer) END
  FROM unnest(p_rows, p_dues, p_results, p_messages, p_categories, p_failures) r(
    ordinal, execution_id, partition_key, route_id, priority, namespace, attempt_index, lease_epoch, retry_count,
    attempt_state, claim_no, worker_id, worker_instance_id, attempt_started_at_ms, tags, retain_ms, flow_id, resumed, parent_id,
    traits, due_at_ms, result, message, category, failure)
  LEFT JOIN LATERAL (SELECT acquired_at_ms FROM ff_grant WHERE claim_no = r.claim_no OFFSET 0) g ON true
  WHERE attempt_state = 'attempt_interrupted' OR resumed
  ON CONFLICT (execution_id, partition_key, attempt_index) DO UPDATE SET
    lease_epoch = EXCLUDED.lease_epoch,
    worker_id = coalesce(EXCLUDED.worker_id, h.worker_id),
    worker_instance_id = coalesce(EXCLUDED.worker_instance_id, h.worker_instance_id),
    ended_at_ms = EXCLUDED.ended_at_ms, outcome = EXCLUDED.outcome, interrupted_by = EXCLUDED.interrupted_by,
    failure_message = EXCLUDED.failure_message, failure_category = EXCLUDED.failure_category,
    retry_at_ms = EXCLUDED.retry_at_ms, given_up = ff_also_given_up(h.given_up, EXCLUDED.given_up[1]),
    terminal_outcome = EXCLUDED.terminal_outcome, namespace = EXCLUDED.namespace, retain_ms = EXCLUDED.retain_ms,
    result = EXCLUDED.result, ended_by = EXCLUDED.ended_by, failure_detail = EXCLUDED.failure_detail,
    renewals = EXCLUDED.renewals, leases = ff_also_leased(h.leases, EXCLUDED.leases);
END $$;

-- Writes an event about each of some locked rows. An operator's are about the state the operation leaves behind, and not
-- of a lease.
CREATE OR REPLACE FUNCTION ff_tell_locked(
  p_family ff_event_family, p_type text, p_now bigint, p_rows ff_locked[], p_details jsonb[], p_attempt_step integer DEFAULT 0,
  p_epoch_step integer DEFAULT 0
) RETURNS bigint LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  r ff_locked;
  v_logged bigint;
BEGIN
  IF cardinality(p_rows) = 1 THEN
    r := p_rows[1];
    RETURN ff_log_events(p_family, p_now, 1, ARRAY[p_type], ARRAY[r.execution_id], ARRAY[r.partition_key],
      ARRAY[r.attempt_index + p_attempt_step], ARRAY[r.lease_epoch + p_epoch_step],
      CASE WHEN p_family <> 'operator' THEN ARRAY[r.worker_instance_id] END, ARRAY[r.namespace], ARRAY[r.tags], p_details,
      ARRAY[r.route_id], ARRAY[r.flow_id]);
  END IF;
  SELECT ff_log_events(p_family, p_now, count(*), ARRAY[p_type], array_agg(r.execution_id), array_agg(r.partition_key),
    array_agg(r.attempt_index + p_attempt_step), array_agg(r.lease_epoch + p_epoch_step),
    CASE WHEN p_family <> 'operator' THEN array_agg(r.worker_instance_id) END, array_agg(r.namespace), array_agg(r.tags),
    p_details, array_agg(r.route_id), array_agg(r.flow_id))
  INTO v_logged FROM unnest(p_rows) r;
  RETURN v_logged;
END $$;

-- What completions carry: the result where all events are told, and how many messages nobody has read.
CREATE OR REPLACE FUNCTION ff_completion_details(
  t ff_transition, p_rows ff_locked[], p_results jsonb[], p_messages text[], p_categories text[], p_traits smallint
) RETURNS jsonb[] LANGUAGE plpgsql AS $$
BEGIN
  IF p_traits & 32 = 0 THEN RETURN ff_carried_ends(t, p_rows, p_results, p_messages, p_categories); END IF;
  IF p_traits & 16 = 0 THEN RETURN ff_unread_messages(p_rows); END IF;
  RETURN ARRAY(
    SELECT nullif(coalesce(carried, '{}') || coalesce(unread, '{}'), '{}')
    FROM unnest(ff_carried_ends(t, p_rows, p_results, p_messages, p_categories), ff_unread_messages(p_rows))
      WITH ORDINALITY u(carried, unread, ord) ORDER BY ord);
END $$;

-- Writes the events a transition owes. p_ends: what completions carry.
CREATE OR REPLACE FUNCTION ff_settle_events(
  t ff_transition, p_rows ff_locked[], p_leased boolean, p_actor text, p_details jsonb[], p_now bigint, p_ends jsonb[]
) RETURNS bigint LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_logged bigint;
  v_leased ff_locked[];
  v_owners jsonb[];
BEGIN
  IF t.lease_event IS NOT NULL AND p_leased THEN
    SELECT array_agg(r), array_agg(jsonb_strip_nulls(jsonb_build_object(
      'transition', t.transition, 'revoked_by', CASE WHEN t.lease_event = 'revoked' THEN p_actor END,
      'previous_owner', r.worker_instance_id)))
    INTO v_leased, v_owners FROM unnest(p_rows) r WHERE r.claim_no IS NOT NULL;
    v_logged := ff_tell_locked('lease', t.lease_event, p_now, v_leased, v_owners);
  END IF;
  IF t.terminal_outcome <> 'none' THEN
    v_logged := ff_tell_locked('completion', t.terminal_outcome::text, p_now, p_rows, p_ends);
  END IF;
  IF t.operator_event IS NOT NULL THEN
    v_logged := ff_tell_locked('operator', t.operator_event, p_now, p_rows, p_details, t.attempt_step, t.epoch_step);
  END IF;
  IF t.signal_event IS NOT NULL THEN
    v_logged := ff_tell_locked('signal', t.signal_event, p_now, p_rows, p_details);
  END IF;
  RETURN v_logged;
END $$;

-- Writes the rows of the attempts that a transition ends or gives up, but for those that were paused before.
CREATE OR REPLACE FUNCTION ff_settle_attempts(
  t ff_transition, p_rows ff_locked[], p_dues bigint[], p_results jsonb[], p_messages text[], p_categories text[],
  p_actor text, p_given_up integer, p_now bigint, p_failures jsonb[], p_renewals jsonb
) RETURNS boolean LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_terminal ff_terminal_outcome := nullif(t.terminal_outcome, 'none');
  v_interrupted_by text := CASE WHEN t.attempt_outcome = 'interrupted' THEN t.lease_event END;
BEGIN
  INSERT INTO ff_attempt_history (
    execution_id, partition_key, attempt_index, lease_epoch, worker_id, worker_instance_id, started_at_ms,
    ended_at_ms, outcome, interrupted_by, failure_message, failure_category, retry_at_ms, given_up, terminal_outcome,
    namespace, retain_ms, result, ended_by, failure_detail, renewals, leases)
  SELECT execution_id, partition_key, attempt_index, lease_epoch, worker_id, worker_instance_id,
         CASE WHEN attempt_state = 'running_attempt' THEN coalesce(attempt_started_at_ms, p_now) END,
         CASE WHEN p_given_up IS NULL THEN p_now END,
         CASE WHEN attempt_state = 'running_attempt' THEN t.attempt_outcome END, v_interrupted_by,
         message, category, due_at_ms, CASE WHEN p_given_up IS NOT NULL THEN ARRAY[4 * lease_epoch + p_given_up] END,
         v_terminal, CASE WHEN v_terminal IS NOT NULL THEN namespace END,
         CASE WHEN v_terminal IS NOT NULL THEN retain_ms END, result, CASE WHEN v_terminal IS NOT NULL THEN p_actor END,
         failure, (p_renewals ->> execution_id::text)::smallint,
         CASE WHEN p_given_up IS NOT NULL THEN jsonb_build_array(ff_lease_span(lease_epoch, worker_instance_id,
           attempt_started_at_ms, p_now, (p_renewals ->> execution_id::text)::integer)) END
  FROM unnest(p_rows, p_dues, p_results, p_messages, p_categories, p_failures) r(
    ordinal, execution_id, partition_key, route_id, priority, namespace, attempt_index, lease_epoch, retry_count,
    attempt_state, claim_no, worker_id, worker_instance_id, attempt_started_at_ms, tags, retain_ms, flow_id, resumed, parent_id,
    traits, due_at_ms, result, message, category, failure)
  WHERE attempt_state <> 'attempt_interrupted' AND NOT coalesce(resumed, false)
    AND (attempt_state = 'running_attempt' OR v_terminal IS NOT NULL);
  RETURN true;
END $$;

-- Makes moved executions claimable, now or when their time has come, and sets the deadlines of replayed ones.
CREATE OR REPLACE FUNCTION ff_settle_queue(
  t ff_transition, p_rows ff_locked[], p_dues bigint[], p_deadlines bigint[], p_now bigint
) RETURNS boolean LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  IF t.eligibility_state = 'eligible_now' THEN
    INSERT INTO ff_ready (execution_id, partition_key, route_id, priority, attempt_index, lease_epoch, ready_at_ms)
    SELECT r.execution_id, r.partition_key, r.route_id, r.priority, r.attempt_index + t.attempt_step,
           r.lease_epoch + t.epoch_step, p_now
    FROM unnest(p_rows) r;
  ELSIF t.eligibility_state = 'not_eligible_until_time' THEN
    INSERT INTO ff_timer (kind, due_at_ms, execution_id, partition_key, attempt_index, lease_epoch)
    SELECT 'eligible', due_at_ms, execution_id, partition_key, attempt_index + t.attempt_step, lease_epoch + t.epoch_step
    FROM unnest(p_rows, p_dues) r(
      ordinal, execution_id, partition_key, route_id, priority, namespace, attempt_index, lease_epoch, retry_count,
      attempt_state, claim_no, worker_id, worker_instance_id, attempt_started_at_ms, tags, retain_ms, flow_id, resumed, parent_id,
      traits, due_at_ms);
  END IF;
  IF t.replay_step = 1 THEN
    INSERT INTO ff_timer (kind, due_at_ms, execution_id, partition_key, attempt_index, lease_epoch)
    SELECT 'deadline', deadline_at_ms, execution_id, partition_key, 0, 0
    FROM unnest(p_rows, p_deadlines) r(
      ordinal, execution_id, partition_key, route_id, priority, namespace, attempt_index, lease_epoch, retry_count,
      attempt_state, claim_no, worker_id, worker_instance_id, attempt_started_at_ms, tags, retain_ms, flow_id, resumed, parent_id,
      traits, deadline_at_ms)
    WHERE deadline_at_ms IS NOT NULL;
  END IF;
  RETURN true;
END $$;

-- Performs one transition on locked rows: state, lease, queue or timer, attempt and events, all or nothing.
-- The arrays after p_rows run parallel to it and may be shorter or NULL; p_dues is when delayed work becomes claimable,
-- p_deadlines the new deadlines of replayed executions; p_details goes into operator and signal events. Returns whether
-- work is left to do at once: a timer for a parent or for children, or a job for the members after one of a flow. p_flow: `now` when
-- the caller resolves those itself.
--
-- What is written, in the order of the locks:
--   1  ff_execution                   the rows the caller has locked; nothing else is waited for
--   2  ff_ready or ff_timer           new rows
--   3  ff_timer, ff_flow_job          new rows: a parent to notify, children to end, members of a flow to advance
--   4  ff_attempt_history             new rows; one that was paused before has its row, which only its lease touches
--   5  ff_event_pack                  new rows
--   6  ff_timer, ff_suspension,       limits and waits that are over; what somebody else holds is skipped
--      ff_topic_wait
--   7  ff_stream_meta                 the stream of the attempt that ends; an append has locked the execution first
--   8  ff_stream_summary              new rows: the document of the attempt that follows
-- Small statements, each only if there is something to write: one for everything would cost more than all of them.
CREATE OR REPLACE FUNCTION ff_settle(
  p_transition text, p_rows ff_locked[], p_dues bigint[], p_results jsonb[], p_messages text[], p_categories text[],
  p_actor text, p_details jsonb[] DEFAULT NULL, p_deadlines bigint[] DEFAULT NULL, p_flow text DEFAULT 'later',
  p_failures jsonb[] DEFAULT NULL
) RETURNS boolean LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  t ff_transition%ROWTYPE;
  r ff_locked;
  v_now bigint := ff_now_ms();
  v_ids uuid[];
  -- By execution, for transitions that set a time of its own for each.
  v_times jsonb;
  -- By execution, of those whose lease was renewed.
  v_renewals jsonb;
  v_written bigint; v_done boolean; v_logged bigint;
  v_traits smallint; v_paused boolean; v_leased boolean; v_members boolean; v_parents boolean;
  v_ends boolean;
  v_given_up integer;
  -- Whether the attempt continues, under a later lease.
  v_continues boolean;
BEGIN
  IF cardinality(p_rows) = 0 OR p_rows IS NULL THEN RETURN false; END IF;
  SELECT * INTO STRICT t FROM ff_transition WHERE transition = p_transition;
  v_ends := t.terminal_outcome <> 'none';
  v_given_up := CASE WHEN t.attempt_state = 'attempt_interrupted' THEN
    CASE WHEN t.lifecycle_phase = 'suspended' THEN 2 WHEN t.eligibility_state = 'eligible_now' THEN 0 ELSE 1 END END;
  v_continues := t.attempt_outcome IS NULL AND t.attempt_step = 0 AND NOT v_ends;
  IF cardinality(p_rows) = 1 THEN
    r := p_rows[1];
    v_ids := ARRAY[r.execution_id];
    v_paused := r.attempt_state = 'attempt_interrupted' OR coalesce(r.resumed, false);
    v_leased := r.claim_no IS NOT NULL;
    v_members := r.flow_id IS NOT NULL;
    v_parents := r.parent_id IS NOT NULL;
    v_traits := r.traits;
  ELSE
    SELECT array_agg(r.execution_id), bool_or(r.attempt_state = 'attempt_interrupted' OR coalesce(r.resumed, false)),
           bool_or(r.claim_no IS NOT NULL), bool_or(r.flow_id IS NOT NULL), bool_or(r.parent_id IS NOT NULL), bit_or(r.traits)
    INTO v_ids, v_paused, v_leased, v_members, v_parents, v_traits FROM unnest(p_rows) r;
  END IF;
  IF t.eligibility_state = 'not_eligible_until_time' OR t.replay_step = 1 THEN
    SELECT jsonb_object_agg(id, coalesce(due, deadline)) INTO v_times
    FROM unnest(v_ids, p_dues, p_deadlines) u(id, due, deadline);
  END IF;
  WITH moved AS (UPDATE ff_execution SET
    lifecycle_phase = t.lifecycle_phase, ownership_state = t.ownership_state,
    eligibility_state = t.eligibility_state, blocking_reason = t.blocking_reason,
    terminal_outcome = t.terminal_outcome, attempt_state = coalesce(t.attempt_state, attempt_state),
    lease_epoch = lease_epoch + t.epoch_step, attempt_index = attempt_index + t.attempt_step,
    retry_count = CASE t.replay_step + t.run_step WHEN 0 THEN retry_count + t.retry_step ELSE 0 END,
    reclaim_count = CASE t.replay_step + t.run_step WHEN 0 THEN reclaim_count + t.reclaim_step ELSE 0 END,
    replay_count = replay_count + t.replay_step, changed_at_ms = v_now, claim_no = NULL, lease_expires_at_ms = NULL,
    lease_tags = NULL, attempt_started_at_ms = CASE WHEN v_continues THEN attempt_started_at_ms END,
    attempt_paused = v_continues AND (attempt_paused OR v_given_up IS NOT NULL),
    eligible_at_ms = CASE WHEN t.eligibility_state = 'not_eligible_until_time'
      THEN (v_times ->> execution_id::text)::bigint END,
    deadline_at_ms = CASE t.replay_step WHEN 0 THEN deadline_at_ms ELSE (v_times ->> execution_id::text)::bigint END
  WHERE execution_id = ANY (v_ids) RETURNING execution_id, renewals)
  SELECT count(*), jsonb_object_agg(execution_id, renewals) FILTER (WHERE renewals > 0)
  INTO v_written, v_renewals FROM moved;
  v_done := ff_require_equal(p_transition, cardinality(p_rows), v_written);
  IF t.eligibility_state IN ('eligible_now', 'not_eligible_until_time') OR t.replay_step = 1 THEN
    v_done := ff_settle_queue(t, p_rows, p_dues, p_deadlines, v_now);
  END IF;
  IF v_ends AND v_parents THEN
    -- A parent is notified by a timer that is due at once: locking it here could deadlock. It is in the partition.
    INSERT INTO ff_timer (kind, due_at_ms, execution_id, partition_key, attempt_index, lease_epoch)
    SELECT DISTINCT 'child_ended'::ff_timer_kind, v_now, r.parent_id, r.partition_key, 0, 0::bigint
    FROM unnest(p_rows) r WHERE r.parent_id IS NOT NULL;
  END IF;
  IF v_traits & 4 <> 0 AND (v_ends OR t.replay_step = 1) THEN
    -- Its children end with it, or begin again with it, soon after: locking them here could deadlock, and they may be many.
    INSERT INTO ff_timer (kind, due_at_ms, execution_id, partition_key, attempt_index, lease_epoch)
    SELECT 'family', v_now, r.execution_id, r.partition_key, 0, 0 FROM unnest(p_rows) r WHERE r.traits & 4 <> 0;
  END IF;
  IF v_ends AND v_members AND p_flow = 'later' THEN
    INSERT INTO ff_flow_job (created_at_ms, execution_id, flow_id, partition_key)
    SELECT v_now, r.execution_id, r.flow_id, r.partition_key FROM unnest(p_rows) r WHERE r.flow_id IS NOT NULL;
  END IF;
  IF v_ends OR t.attempt_outcome IS NOT NULL OR v_given_up IS NOT NULL THEN
    v_done := ff_settle_attempts(t, p_rows, p_dues, p_results, p_messages, p_categories, p_actor, v_given_up, v_now,
      p_failures, v_renewals);
    IF v_paused THEN
      PERFORM ff_settle_paused(t, p_rows, p_dues, p_results, p_messages, p_categories, p_actor, v_given_up, v_now,
        p_failures, v_renewals);
    END IF;
  END IF;
  v_logged := ff_settle_events(t, p_rows, v_leased, p_actor, p_details, v_now,
    CASE WHEN v_ends AND v_traits & 48 <> 0 THEN
      ff_completion_details(t, p_rows, p_results, p_messages, p_categories, v_traits) END);
  IF v_traits & 1 <> 0 AND t.replay_step = 0 THEN
    -- A lease's time limit ends with the lease, a deadline with the execution; most would be due much later. A timer
    -- that is being fired is not waited for: two firings could deadlock, and it will be discarded.
    DELETE FROM ff_timer WHERE timer_id = ANY (ARRAY(
      SELECT timer_id FROM ff_timer
      WHERE kind IN ('deadline', 'attempt_limit') AND execution_id = ANY (v_ids) AND (kind = 'attempt_limit' OR v_ends)
      FOR UPDATE SKIP LOCKED));
  END IF;
  IF v_ends AND v_traits & 64 <> 0 THEN
    DELETE FROM ff_topic_wait WHERE execution_id = ANY (v_ids);
  END IF;
  IF t.leaves_suspension AND v_paused THEN
    PERFORM ff_leave_suspension(ARRAY(
      SELECT r.execution_id FROM unnest(p_rows) r WHERE r.attempt_state = 'attempt_interrupted'));
  END IF;
  IF t.stream_close IS NOT NULL THEN
    -- Only the stream of the current attempt is open.
    UPDATE ff_stream_meta SET closed_at_ms = v_now, closed_reason = t.stream_close
    WHERE execution_id = ANY (v_ids) AND closed_at_ms IS NULL;
  END IF;
  IF t.attempt_step = 1 THEN PERFORM ff_carry_documents(v_ids, t.replay_step = 1, v_now); END IF;
  RETURN v_ends AND (v_parents OR v_traits & 4 <> 0 OR (v_members AND p_flow = 'later'));
END $$;
