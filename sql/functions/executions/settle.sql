-- The shared core of every operation that moves an existing execution: lock, settle, refuse.
--
-- Which lock of the row each operation takes. State and lease are one row, so one lock decides:
--   complete, fail, release, pause, suspend   FOR UPDATE, in id order, together with the members after a flow's
--   cancel, revoke, replay, priority, signal  FOR UPDATE, in id order, and then read in a later statement
--   claim, lapse, fire                        FOR UPDATE SKIP LOCKED: they never wait
--   renew                                     FOR NO KEY UPDATE SKIP LOCKED: never waits, and not for a step
--   step, spawn, progress, append             FOR KEY SHARE: an end waits for it, a renewal does not
--
-- Only ff_submit, ff_claim and ff_settle write the state columns or the events of a state change. ff_renew and
-- ff_set_tags write events that change no state.
-- These functions carry no settings of their own: their callers do.

-- Operations decide on rows they have just locked and read again, which needs a fresh snapshot per statement.
CREATE OR REPLACE FUNCTION ff_require_read_committed() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'this operation needs READ COMMITTED, the transaction runs at %',
      current_setting('transaction_isolation') USING ERRCODE = 'FF001';
  END IF;
END $$;

-- Writes inside a transaction of the caller's code must stay in that transaction. If the code has ended it in the
-- meantime, the rest is already committed or lost.
CREATE OR REPLACE FUNCTION ff_require_transaction(p_transaction text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF p_transaction <> pg_current_xact_id()::text THEN
    RAISE EXCEPTION 'the transaction was ended inside' USING ERRCODE = 'FF007';
  END IF;
END $$;

-- A write that missed a locked row must not commit: it would leave a lost or orphaned lease unnoticed.
CREATE OR REPLACE FUNCTION ff_require_equal(p_what text, p_expected bigint, p_found bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
  IF p_expected <> p_found THEN
    RAISE EXCEPTION '%: % rows were locked and % written', p_what, p_expected, p_found USING ERRCODE = 'FF002';
  END IF;
  RETURN true;
END $$;

-- Locks the executions of a lease holder in id order. Returns only rows whose lease is the caller's and alive; expiry is
-- decided on the locked row, by a clock read after the wait. p_also: executions of the same partitions to lock in the
-- same pass.
CREATE OR REPLACE FUNCTION ff_lock_leased(
  p_ids uuid[], p_partitions smallint[], p_attempts integer[], p_epochs bigint[], p_also uuid[] DEFAULT '{}'
) RETURNS ff_locked[] LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_rows ff_locked[];
BEGIN
  WITH owned AS MATERIALIZED (
    SELECT u.ord, u.att, u.ep, e.*, ff_now_ms() AS now_ms
    FROM (SELECT * FROM unnest(p_ids || p_also, p_partitions, p_attempts, p_epochs) WITH ORDINALITY u(id, part, att, ep, ord)
          ORDER BY id OFFSET 0) u
    CROSS JOIN LATERAL (
      SELECT execution_id, partition_key, route_id, priority, namespace, attempt_index, lease_epoch, retry_count,
             claim_no, lease_expires_at_ms, attempt_started_at_ms, coalesce(lease_tags, tags) AS tags, retain_ms, flow_id,
             attempt_paused
      FROM ff_execution WHERE execution_id = u.id AND partition_key = coalesce(u.part, partition_key) FOR UPDATE) e)
  SELECT array_agg(ROW(ord, execution_id, partition_key, route_id, priority, namespace, attempt_index, lease_epoch,
                       retry_count, 'running_attempt', claim_no, g.worker_id, g.worker_instance_id, attempt_started_at_ms,
                       tags, retain_ms, flow_id, attempt_paused)::ff_locked)
  INTO v_rows FROM owned o
  CROSS JOIN LATERAL (
    SELECT worker_id, worker_instance_id FROM ff_grant WHERE claim_no = o.claim_no OFFSET 0) g
  WHERE attempt_index = att AND lease_epoch = ep AND lease_expires_at_ms > now_ms;
  RETURN coalesce(v_rows, '{}');
END $$;

-- Locks executions for an operation that carries no epoch, all of them in id order. Returns those that have not ended, or
-- with p_ended those that have. Two statements, because one cannot see a claim that was granted while it waited; and the
-- second reads only what the first has locked, because it may see an execution that was committed in between and that
-- nobody has locked. p_also: executions to lock in the same pass.
CREATE OR REPLACE FUNCTION ff_lock_open(
  p_ids uuid[], p_partitions smallint[], p_ended boolean DEFAULT false, p_also uuid[] DEFAULT '{}'
) RETURNS ff_locked[] LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_locked uuid[];
  v_rows ff_locked[];
BEGIN
  SELECT array_agg(e.execution_id) INTO v_locked
  FROM (SELECT * FROM unnest(p_ids || p_also, p_partitions) u(id, part) ORDER BY id OFFSET 0) u
  CROSS JOIN LATERAL (
    SELECT execution_id FROM ff_execution
    WHERE execution_id = u.id AND partition_key = coalesce(u.part, partition_key) FOR UPDATE) e;
  SELECT array_agg(ROW(u.ord, e.execution_id, e.partition_key, e.route_id, e.priority, e.namespace, e.attempt_index,
                       e.lease_epoch, e.retry_count, e.attempt_state, e.claim_no, g.worker_id, g.worker_instance_id,
                       e.attempt_started_at_ms, e.tags, e.retain_ms, e.flow_id, e.attempt_paused)::ff_locked)
  INTO v_rows
  FROM (SELECT * FROM unnest(p_ids, p_partitions) WITH ORDINALITY u(id, part, ord)
        WHERE id = ANY (v_locked) ORDER BY id OFFSET 0) u
  CROSS JOIN LATERAL (
    SELECT * FROM ff_execution WHERE execution_id = u.id AND partition_key = u.part OFFSET 0) e
  LEFT JOIN LATERAL (
    SELECT worker_id, worker_instance_id FROM ff_grant WHERE claim_no = e.claim_no OFFSET 0) g ON true
  WHERE (e.lifecycle_phase = 'terminal') = p_ended;
  RETURN coalesce(v_rows, '{}');
END $$;

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

-- Writes what a transition means for attempts that were paused before, whose rows are there already. Only ff_settle
-- calls it. Apart from the rest, because an insert that may find its row costs more than one that cannot.
CREATE OR REPLACE FUNCTION ff_settle_paused(
  t ff_transition, p_rows ff_locked[], p_dues bigint[], p_results jsonb[], p_messages text[], p_categories text[],
  p_actor text, p_given_up integer, p_now bigint
) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_terminal ff_terminal_outcome := nullif(t.terminal_outcome, 'none');
BEGIN
  INSERT INTO ff_attempt_history AS h (
    execution_id, partition_key, attempt_index, lease_epoch, worker_id, worker_instance_id, started_at_ms,
    ended_at_ms, outcome, interrupted_by, failure_message, failure_category, retry_at_ms, given_up, terminal_outcome,
    namespace, retain_ms, result, ended_by)
  SELECT execution_id, partition_key, attempt_index, lease_epoch, worker_id, worker_instance_id,
         coalesce(attempt_started_at_ms, p_now), CASE WHEN t.attempt_outcome IS NOT NULL THEN p_now END,
         t.attempt_outcome, CASE WHEN t.attempt_outcome = 'interrupted' THEN t.lease_event END, message, category,
         due_at_ms, CASE WHEN p_given_up IS NOT NULL THEN ARRAY[4 * lease_epoch + p_given_up] END, v_terminal,
         CASE WHEN v_terminal IS NOT NULL THEN namespace END, CASE WHEN v_terminal IS NOT NULL THEN retain_ms END, result,
         CASE WHEN v_terminal IS NOT NULL THEN p_actor END
  FROM unnest(p_rows, p_dues, p_results, p_messages, p_categories) r(
    ordinal, execution_id, partition_key, route_id, priority, namespace, attempt_index, lease_epoch, retry_count,
    attempt_state, claim_no, worker_id, worker_instance_id, attempt_started_at_ms, tags, retain_ms, flow_id, resumed,
    due_at_ms, result, message, category)
  WHERE attempt_state = 'attempt_interrupted' OR resumed
  ON CONFLICT (execution_id, partition_key, attempt_index) DO UPDATE SET
    lease_epoch = EXCLUDED.lease_epoch,
    worker_id = coalesce(EXCLUDED.worker_id, h.worker_id),
    worker_instance_id = coalesce(EXCLUDED.worker_instance_id, h.worker_instance_id),
    ended_at_ms = EXCLUDED.ended_at_ms, outcome = EXCLUDED.outcome, interrupted_by = EXCLUDED.interrupted_by,
    failure_message = EXCLUDED.failure_message, failure_category = EXCLUDED.failure_category,
    retry_at_ms = EXCLUDED.retry_at_ms, given_up = ff_also_given_up(h.given_up, EXCLUDED.given_up[1]),
    terminal_outcome = EXCLUDED.terminal_outcome, namespace = EXCLUDED.namespace, retain_ms = EXCLUDED.retain_ms,
    result = EXCLUDED.result, ended_by = EXCLUDED.ended_by;
END $$;

-- Writes an event about each of some locked rows. An operator's are about the state the operation leaves behind, and not
-- of a lease.
CREATE OR REPLACE FUNCTION ff_tell_locked(
  p_family ff_event_family, p_type text, p_now bigint, p_rows ff_locked[], p_details jsonb[], p_attempt_step integer DEFAULT 0,
  p_epoch_step integer DEFAULT 0
) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  PERFORM ff_log_events(p_family, p_now, count(*), ARRAY[p_type], array_agg(execution_id), array_agg(partition_key),
    array_agg(attempt_index + p_attempt_step), array_agg(lease_epoch + p_epoch_step),
    CASE WHEN p_family <> 'operator' THEN array_agg(worker_instance_id) END, array_agg(namespace), array_agg(tags),
    CASE WHEN p_details IS NOT NULL THEN array_agg(detail) END, array_agg(route_id), array_agg(flow_id))
  FROM unnest(p_rows, p_details) r(
    ordinal, execution_id, partition_key, route_id, priority, namespace, attempt_index, lease_epoch, retry_count,
    attempt_state, claim_no, worker_id, worker_instance_id, attempt_started_at_ms, tags, retain_ms, flow_id, resumed, detail);
END $$;

-- Performs one transition on locked rows: state, lease, queue or timer, attempt and events, all or nothing.
-- The arrays after p_rows run parallel to it and may be shorter or NULL; p_dues is when delayed work becomes claimable,
-- p_deadlines the new deadlines of replayed executions; p_details goes into operator and signal events. Returns whether
-- work is left to do at once: a timer for a parent, or a job for the members after one of a flow. p_flow: `now` when
-- the caller resolves those itself.
CREATE OR REPLACE FUNCTION ff_settle(
  p_transition text, p_rows ff_locked[], p_dues bigint[], p_results jsonb[], p_messages text[], p_categories text[],
  p_actor text, p_details jsonb[] DEFAULT NULL, p_deadlines bigint[] DEFAULT NULL, p_flow text DEFAULT 'later'
) RETURNS boolean LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  t ff_transition%ROWTYPE;
  v_now bigint := ff_now_ms();
  v_written bigint; v_children bigint; v_leased bigint; v_limited bigint; v_jobs bigint; v_paused bigint;
  v_terminal ff_terminal_outcome;
  v_given_up integer;
  -- Whether it writes to the rows of attempts.
  v_records boolean;
  -- Whether the attempt goes on, under a later lease.
  v_goes_on boolean;
BEGIN
  IF cardinality(p_rows) = 0 OR p_rows IS NULL THEN RETURN false; END IF;
  SELECT * INTO STRICT t FROM ff_transition WHERE transition = p_transition;
  v_terminal := nullif(t.terminal_outcome, 'none');
  v_given_up := CASE WHEN t.attempt_state = 'attempt_interrupted' THEN
    CASE WHEN t.lifecycle_phase = 'suspended' THEN 2 WHEN t.eligibility_state = 'eligible_now' THEN 0 ELSE 1 END END;
  v_records := v_terminal IS NOT NULL OR t.attempt_outcome IS NOT NULL OR v_given_up IS NOT NULL;
  v_goes_on := t.attempt_outcome IS NULL AND t.attempt_step = 0 AND v_terminal IS NULL;
  WITH r AS MATERIALIZED (
    SELECT *, attempt_state IN ('running_attempt', 'attempt_interrupted') AS started,
           attempt_state = 'attempt_interrupted' OR coalesce(resumed, false) AS paused_before
    FROM unnest(p_rows, p_dues, p_results, p_messages, p_categories, p_details, p_deadlines) r(
      ordinal, execution_id, partition_key, route_id, priority, namespace, attempt_index, lease_epoch, retry_count,
      attempt_state, claim_no, worker_id, worker_instance_id, attempt_started_at_ms, tags, retain_ms, flow_id, resumed,
      due_at_ms, result, message, category, detail, new_deadline_ms)),
  due AS MATERIALIZED (SELECT jsonb_object_agg(execution_id, coalesce(due_at_ms, new_deadline_ms)) AS by_id FROM r),
  moved AS (
    UPDATE ff_execution SET
      lifecycle_phase = t.lifecycle_phase, ownership_state = t.ownership_state,
      eligibility_state = t.eligibility_state, blocking_reason = t.blocking_reason,
      terminal_outcome = t.terminal_outcome, attempt_state = coalesce(t.attempt_state, attempt_state),
      lease_epoch = lease_epoch + t.epoch_step, attempt_index = attempt_index + t.attempt_step,
      retry_count = CASE t.replay_step WHEN 0 THEN retry_count + t.retry_step ELSE 0 END,
      reclaim_count = CASE t.replay_step WHEN 0 THEN reclaim_count + t.reclaim_step ELSE 0 END,
      replay_count = replay_count + t.replay_step, changed_at_ms = v_now, claim_no = NULL, lease_expires_at_ms = NULL,
      lease_tags = NULL, attempt_started_at_ms = CASE WHEN v_goes_on THEN attempt_started_at_ms END,
      attempt_paused = v_goes_on AND (attempt_paused OR v_given_up IS NOT NULL),
      eligible_at_ms = CASE WHEN t.eligibility_state = 'not_eligible_until_time'
        THEN ((SELECT by_id FROM due) ->> execution_id::text)::bigint END,
      deadline_at_ms = CASE t.replay_step WHEN 0 THEN deadline_at_ms
        ELSE ((SELECT by_id FROM due) ->> execution_id::text)::bigint END
    WHERE execution_id = ANY (ARRAY(SELECT execution_id FROM r))
    RETURNING parent_id, parent_partition, deadline_at_ms, attempt_limit_ms),
  queued AS (
    INSERT INTO ff_ready (execution_id, partition_key, route_id, priority, attempt_index, lease_epoch, ready_at_ms)
    SELECT execution_id, partition_key, route_id, priority, attempt_index + t.attempt_step,
           lease_epoch + t.epoch_step, v_now
    FROM r WHERE t.eligibility_state = 'eligible_now'),
  timed AS (
    INSERT INTO ff_timer (kind, due_at_ms, execution_id, partition_key, attempt_index, lease_epoch)
    SELECT 'eligible'::ff_timer_kind, due_at_ms, execution_id, partition_key, attempt_index + t.attempt_step,
           lease_epoch + t.epoch_step
    FROM r WHERE t.eligibility_state = 'not_eligible_until_time'
    UNION ALL
    SELECT 'deadline'::ff_timer_kind, new_deadline_ms, execution_id, partition_key, 0, 0::bigint
    FROM r WHERE t.replay_step = 1 AND new_deadline_ms IS NOT NULL
    UNION ALL
    -- A parent is notified by a timer that is due at once: locking it here could deadlock.
    SELECT DISTINCT 'child_ended'::ff_timer_kind, v_now, parent_id, parent_partition, 0, 0::bigint
    FROM moved WHERE t.terminal_outcome <> 'none' AND parent_id IS NOT NULL),
  to_tell AS (
    INSERT INTO ff_flow_job (created_at_ms, execution_id, flow_id, partition_key)
    SELECT v_now, execution_id, flow_id, partition_key FROM r
    WHERE flow_id IS NOT NULL AND t.terminal_outcome <> 'none' AND p_flow = 'later' RETURNING 1),
  attempted AS (
    INSERT INTO ff_attempt_history (
      execution_id, partition_key, attempt_index, lease_epoch, worker_id, worker_instance_id, started_at_ms,
      ended_at_ms, outcome, interrupted_by, failure_message, failure_category, retry_at_ms, given_up, terminal_outcome,
      namespace, retain_ms, result, ended_by)
    SELECT execution_id, partition_key, attempt_index, lease_epoch, worker_id, worker_instance_id,
           CASE WHEN started THEN coalesce(attempt_started_at_ms, v_now) END, CASE WHEN v_given_up IS NULL THEN v_now END,
           CASE WHEN started THEN t.attempt_outcome END, CASE WHEN t.attempt_outcome = 'interrupted' THEN t.lease_event END,
           message, category, due_at_ms, CASE WHEN v_given_up IS NOT NULL THEN ARRAY[4 * lease_epoch + v_given_up] END,
           v_terminal, CASE WHEN v_terminal IS NOT NULL THEN namespace END,
           CASE WHEN v_terminal IS NOT NULL THEN retain_ms END, result, CASE WHEN v_terminal IS NOT NULL THEN p_actor END
    FROM r WHERE v_records AND (started OR v_terminal IS NOT NULL) AND NOT paused_before)
  SELECT count(*), count(parent_id),
         count(*) FILTER (WHERE attempt_limit_ms IS NOT NULL OR deadline_at_ms IS NOT NULL),
         (SELECT count(*) FROM r WHERE claim_no IS NOT NULL), (SELECT count(*) FROM to_tell),
         (SELECT count(*) FROM r WHERE paused_before)
  INTO v_written, v_children, v_limited, v_leased, v_jobs, v_paused FROM moved;
  PERFORM ff_require_equal(p_transition || ' executions', cardinality(p_rows), v_written);
  IF v_paused > 0 AND v_records THEN
    PERFORM ff_settle_paused(t, p_rows, p_dues, p_results, p_messages, p_categories, p_actor, v_given_up, v_now);
  END IF;
  IF t.lease_event IS NOT NULL AND v_leased > 0 THEN
    PERFORM ff_tell_locked('lease', t.lease_event, v_now, array_agg(r), array_agg(jsonb_strip_nulls(jsonb_build_object(
      'transition', p_transition, 'revoked_by', CASE WHEN t.lease_event = 'revoked' THEN p_actor END,
      'previous_owner', r.worker_instance_id))))
    FROM unnest(p_rows) r WHERE r.claim_no IS NOT NULL;
  END IF;
  IF t.terminal_outcome <> 'none' THEN
    PERFORM ff_tell_locked('completion', t.terminal_outcome::text, v_now, p_rows, NULL);
  END IF;
  IF t.operator_event IS NOT NULL THEN
    PERFORM ff_tell_locked('operator', t.operator_event, v_now, p_rows, p_details, t.attempt_step, t.epoch_step);
  END IF;
  IF t.signal_event IS NOT NULL THEN
    PERFORM ff_tell_locked('signal', t.signal_event, v_now, p_rows, p_details);
  END IF;
  IF v_limited > 0 AND t.replay_step = 0 THEN
    -- A lease's time limit ends with the lease, a deadline with the execution; most would be due much later. A timer
    -- that is being fired is not waited for: two firings could deadlock, and it will be discarded.
    DELETE FROM ff_timer WHERE timer_id = ANY (ARRAY(
      SELECT timer_id FROM ff_timer
      WHERE kind IN ('deadline', 'attempt_limit') AND execution_id = ANY (ARRAY(SELECT r.execution_id FROM unnest(p_rows) r))
        AND (kind = 'attempt_limit' OR t.terminal_outcome <> 'none')
      FOR UPDATE SKIP LOCKED));
  END IF;
  IF t.stream_close IS NOT NULL THEN
    -- Only the stream of the current attempt is open.
    UPDATE ff_stream_meta SET closed_at_ms = v_now, closed_reason = t.stream_close
    WHERE execution_id = ANY (ARRAY(SELECT r.execution_id FROM unnest(p_rows) r)) AND closed_at_ms IS NULL;
  END IF;
  IF t.leaves_suspension THEN
    PERFORM ff_leave_suspension(ARRAY(
      SELECT r.execution_id FROM unnest(p_rows) r WHERE r.attempt_state = 'attempt_interrupted'));
  END IF;
  RETURN (v_children > 0 AND t.terminal_outcome <> 'none') OR v_jobs > 0;
END $$;

-- Says precisely why a lease holder was refused. Repeating what the same lease already did returns the first result
-- (repeated = true); asking for something else is a conflict. What a lease did is kept on the attempt row.
CREATE OR REPLACE FUNCTION ff_refusals(
  p_verb text, p_ids uuid[], p_partitions smallint[], p_attempts integer[], p_epochs bigint[], p_accepted uuid[]
) RETURNS TABLE (
  execution_id uuid, outcome text, repeated boolean, lifecycle_phase text, terminal_outcome text, lease_epoch bigint,
  attempt_index integer, route_id integer, retry_in_ms bigint
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  SELECT u.id,
    CASE
      WHEN e.execution_id IS NULL THEN 'not_found'
      WHEN h.given_up_by = p_verb THEN CASE p_verb WHEN 'release' THEN 'released' WHEN 'pause' THEN 'paused' ELSE 'suspended' END
      WHEN p_verb IN ('release', 'pause', 'suspend') AND h.given_up_by IS NOT NULL THEN 'conflict'
      WHEN p_verb = 'complete' AND h.outcome = 'success' AND h.mine THEN 'completed'
      WHEN p_verb = 'fail' AND h.outcome = 'failed' AND h.mine THEN
        CASE WHEN h.retry_at_ms IS NULL THEN 'failed' ELSE 'retry_scheduled' END
      WHEN h.outcome = 'interrupted' AND h.mine THEN 'lease_' || h.interrupted_by
      WHEN h.outcome = 'expired' AND h.mine THEN 'timed_out'
      WHEN p_verb IN ('complete', 'fail', 'release', 'pause', 'suspend') AND h.outcome IN ('success', 'failed') AND h.mine THEN 'conflict'
      WHEN e.lifecycle_phase <> 'active' THEN 'not_active'
      WHEN e.attempt_index = u.att AND e.lease_epoch = u.ep THEN 'lease_expired'
      ELSE 'stale_lease' END,
    coalesce(CASE p_verb WHEN 'complete' THEN h.outcome = 'success' AND h.mine
                         WHEN 'fail' THEN h.outcome = 'failed' AND h.mine
                         ELSE h.given_up_by = p_verb END, false),
    e.lifecycle_phase::text, e.terminal_outcome::text, e.lease_epoch, e.attempt_index, e.route_id,
    CASE WHEN h.retry_at_ms IS NOT NULL THEN greatest(h.retry_at_ms - ff_now_ms(), 0) END
  FROM (SELECT * FROM unnest(p_ids, p_partitions, p_attempts, p_epochs) u(id, part, att, ep)
        -- CASE keeps this a hashed lookup instead of a join over the whole batch.
        WHERE CASE WHEN u.id IN (SELECT unnest(p_accepted)) THEN false ELSE true END OFFSET 0) u
  LEFT JOIN LATERAL (
    SELECT * FROM ff_execution x WHERE x.execution_id = u.id AND x.partition_key = u.part OFFSET 0) e ON true
  LEFT JOIN LATERAL (
    SELECT *, a.lease_epoch = u.ep AS mine, ff_given_up_by(a.given_up, u.ep) AS given_up_by
    FROM ff_attempt_history a
    WHERE a.execution_id = u.id AND a.partition_key = u.part AND a.attempt_index = u.att OFFSET 0) h ON true;
END $$;
