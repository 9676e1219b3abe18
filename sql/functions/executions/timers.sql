-- Fires timers: executions that waited for a time or for children become claimable; those that ran out of time end, or
-- resume as they asked to. Never waits: a timer whose execution is locked by another transaction stays for the next
-- pass. A timer that no longer matches its execution (cancelled, claimed, retried since) is discarded. So is the
-- notification of a child while its parent runs: the parent checks its children before it pauses. Timers of kind `family`
-- are not fired here: their work has a function of its own (ff_settle_family), because it is done in parts.

-- Whether enough of the children an execution paused for have ended. Called with the execution locked. Searches for
-- open ones from the last back and stops at the first too many: children mostly end in order, so each notification of
-- a thousand costs one lookup. A child of another parent is not waited for: nobody would send a notification for it.
CREATE OR REPLACE FUNCTION ff_children_ended(p_parent uuid, p_children uuid[], p_needed integer) RETURNS boolean
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_may_be_open integer := cardinality(p_children) - p_needed;
BEGIN
  RETURN v_may_be_open >= (
    SELECT count(*) FROM (
      SELECT 1 FROM generate_series(cardinality(p_children), 1, -1) place
      CROSS JOIN LATERAL (
        -- Only the id: with the parent as a condition, all its children could be read for each of them.
        SELECT parent_id, lifecycle_phase FROM ff_execution WHERE execution_id = p_children[place] OFFSET 0) e
      WHERE e.parent_id = p_parent AND e.lifecycle_phase <> 'terminal'
      LIMIT v_may_be_open + 1) still_open);
END $$;

-- Whether a paused, locked execution is done waiting for its children. Read in statements of its own: the pause may
-- have been committed after the caller's statement began; the lock shows it, but that statement does not.
CREATE OR REPLACE FUNCTION ff_wait_is_over(p_id uuid, p_attempt integer, p_epoch bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  w ff_child_wait%ROWTYPE;
BEGIN
  SELECT * INTO w FROM ff_child_wait
  WHERE execution_id = p_id AND attempt_index = p_attempt AND lease_epoch = p_epoch;
  RETURN FOUND AND ff_children_ended(p_id, w.children, w.needed);
END $$;

-- Ends executions that ran out of time: p_rows, locked. Those in p_late passed their deadline, the others the limit of
-- their attempt. The claims behind their leases are read here, in a later statement than the one that locked them, which
-- may not have seen them.
CREATE OR REPLACE FUNCTION ff_time_out(p_rows ff_locked[], p_late uuid[])
RETURNS TABLE (execution_id uuid, outcome text, worker_instance_id text, due_in_ms bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_now bigint;
  v_again ff_locked[];
  v_delays bigint[];
  v_over ff_locked[];
  v_unstarted ff_locked[];
  v_told boolean;
BEGIN
  IF p_rows IS NULL THEN RETURN; END IF;
  WITH held AS MATERIALIZED (
    SELECT e.*, g.worker_id, g.worker_instance_id
    FROM unnest(p_rows) r
    CROSS JOIN LATERAL (SELECT * FROM ff_execution WHERE execution_id = r.execution_id OFFSET 0) e
    LEFT JOIN LATERAL (
      SELECT worker_id, worker_instance_id FROM ff_grant WHERE claim_no = e.claim_no OFFSET 0) g ON true),
  decided AS MATERIALIZED (
    SELECT ROW(NULL::integer, h.execution_id, h.partition_key, h.route_id, h.priority, h.namespace, h.attempt_index,
               h.lease_epoch, h.retry_count, h.attempt_state, h.claim_no, h.worker_id, h.worker_instance_id,
               h.attempt_started_at_ms, h.tags, h.retain_ms, h.flow_id, h.attempt_paused,
               h.parent_id, h.traits)::ff_locked AS row,
           h.attempt_state = 'pending_first_attempt' AS unstarted,
           h.execution_id <> ALL (p_late) AND ff_may_retry(b.retry, h.retry_count, 'timeout') AS again,
           ff_backoff_ms(b.retry -> 'backoff', h.retry_count, random()) AS delay_ms
    FROM held h
    CROSS JOIN LATERAL (SELECT ff_policy_of(h.policy, h.policy_id) -> 'retry_policy' AS retry OFFSET 0) b)
  SELECT array_agg(row) FILTER (WHERE again), array_agg(delay_ms) FILTER (WHERE again),
         array_agg(row) FILTER (WHERE NOT again AND NOT unstarted), array_agg(row) FILTER (WHERE unstarted)
  INTO v_again, v_delays, v_over, v_unstarted FROM decided;
  v_now := ff_now_ms();
  PERFORM ff_settle('time_out_attempt', v_again, ARRAY(SELECT v_now + d FROM unnest(v_delays) d), NULL,
    ARRAY(SELECT 'attempt_time_limit'::text FROM unnest(v_again)), ARRAY(SELECT 'timeout'::text FROM unnest(v_again)),
    'engine');
  v_told := ff_settle('time_out', v_over, NULL, NULL,
    ARRAY(SELECT CASE WHEN r.execution_id = ANY (p_late) THEN 'execution_deadline' ELSE 'attempt_time_limit' END
          FROM unnest(v_over) r), ARRAY(SELECT 'timeout'::text FROM unnest(v_over)), 'engine');
  v_told := ff_settle('time_out_unstarted', v_unstarted, NULL, NULL,
    ARRAY(SELECT 'execution_deadline'::text FROM unnest(v_unstarted)),
    ARRAY(SELECT 'timeout'::text FROM unnest(v_unstarted)), 'engine') OR v_told;
  RETURN QUERY
  SELECT r.execution_id, 'execution_timed_out', r.worker_instance_id, CASE WHEN v_told THEN 0::bigint END
  FROM unnest(v_over || v_unstarted) r
  UNION ALL
  SELECT r.execution_id, 'attempt_timed_out', r.worker_instance_id, (SELECT min(d) FROM unnest(v_delays) d)
  FROM unnest(v_again) r;
END $$;

-- Returns one row per execution: `fired` (claimable now), `execution_timed_out` (ended), `attempt_timed_out` (will be
-- retried, soonest in due_in_ms), `delayed` (keeps waiting, the next timer is due in due_in_ms), `discarded`. A timer
-- whose execution is gone is discarded too.
CREATE OR REPLACE FUNCTION ff_fire_timers(p_timer_ids bigint[])
RETURNS TABLE (execution_id uuid, outcome text, route_id integer, worker_instance_id text, due_in_ms bigint)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_rows ff_locked[];
  v_woken ff_locked[];
  v_late ff_locked[];
  v_suspended ff_locked[];
  v_expiring ff_locked[];
  v_late_ids uuid[];
  v_seen bigint[];
  v_executions uuid[];
  v_timed_out uuid[] := '{}';
  v_over uuid[] := '{}';
BEGIN
  PERFORM ff_require_read_committed();
  WITH due AS MATERIALIZED (
    SELECT d.* FROM (SELECT unnest(p_timer_ids) AS id ORDER BY 1 OFFSET 0) u
    CROSS JOIN LATERAL (
      SELECT timer_id, kind, execution_id, partition_key, attempt_index, lease_epoch, due_at_ms
      FROM ff_timer WHERE timer_id = u.id FOR UPDATE SKIP LOCKED) d
    WHERE d.due_at_ms <= ff_now_ms() AND d.kind <> 'family'),
  seen AS MATERIALIZED (
    SELECT d.timer_id, d.kind, d.attempt_index AS attempt, d.lease_epoch AS epoch, d.due_at_ms, e.*
    FROM (SELECT * FROM due ORDER BY execution_id OFFSET 0) d
    CROSS JOIN LATERAL (
      SELECT execution_id, partition_key, route_id, priority, namespace, attempt_index, lease_epoch, retry_count,
             lifecycle_phase, eligibility_state, attempt_state, attempt_started_at_ms, tags, retain_ms, flow_id, deadline_at_ms,
             attempt_paused, parent_id, traits
      FROM ff_execution WHERE execution_id = d.execution_id AND partition_key = d.partition_key
      FOR UPDATE SKIP LOCKED) e),
  orphaned AS MATERIALIZED (
    SELECT d.timer_id, d.execution_id FROM due d
    LEFT JOIN LATERAL (
      SELECT execution_id FROM ff_execution
      WHERE execution_id = d.execution_id AND partition_key = d.partition_key OFFSET 0) e ON true
    WHERE e.execution_id IS NULL),
  paused AS MATERIALIZED (
    SELECT DISTINCT ON (execution_id) * FROM seen
    WHERE kind = 'child_ended' AND lifecycle_phase = 'runnable' AND attempt_state = 'attempt_interrupted'
      AND eligibility_state IN ('blocked_by_dependencies', 'not_eligible_until_time')
    ORDER BY execution_id),
  told AS MATERIALIZED (
    SELECT DISTINCT ON (execution_id) * FROM seen WHERE kind = 'child_ended' AND lifecycle_phase = 'suspended'
    ORDER BY execution_id),
  fitting AS MATERIALIZED (
    SELECT * FROM seen WHERE CASE kind
      WHEN 'eligible' THEN lifecycle_phase = 'runnable' AND eligibility_state = 'not_eligible_until_time'
        AND attempt_index = attempt AND lease_epoch = epoch
      WHEN 'deadline' THEN lifecycle_phase <> 'terminal' AND deadline_at_ms = due_at_ms
      WHEN 'attempt_limit' THEN lifecycle_phase = 'active' AND attempt_index = attempt AND lease_epoch = epoch
      WHEN 'suspension' THEN lifecycle_phase = 'suspended' AND attempt_index = attempt AND lease_epoch = epoch
      WHEN 'waitpoint' THEN lifecycle_phase <> 'terminal'
      ELSE false END
    UNION ALL
    SELECT * FROM paused WHERE ff_wait_is_over(execution_id, attempt_index, lease_epoch)
    UNION ALL
    SELECT * FROM told WHERE ff_wait_is_over(execution_id, attempt_index, lease_epoch)),
  -- A deadline comes first; when time and children wake an execution at once, the time wins.
  once AS MATERIALIZED (
    SELECT DISTINCT ON (execution_id, kind = 'waitpoint') kind, execution_id, lifecycle_phase,
           ROW(NULL::integer, execution_id, partition_key, route_id, priority, namespace, attempt_index, lease_epoch,
               retry_count, attempt_state, NULL::bigint, NULL::text, NULL::text, attempt_started_at_ms, tags,
               retain_ms, flow_id, attempt_paused, parent_id, traits)::ff_locked AS row
    FROM fitting ORDER BY execution_id, kind = 'waitpoint', kind <> 'deadline', kind)
  SELECT (SELECT array_agg(row) FROM once WHERE kind = 'eligible'),
         (SELECT array_agg(row) FROM once WHERE kind = 'child_ended' AND lifecycle_phase = 'runnable'),
         (SELECT array_agg(row) FROM once WHERE kind IN ('child_ended', 'suspension') AND lifecycle_phase = 'suspended'),
         (SELECT array_agg(row) FROM once WHERE kind = 'waitpoint'),
         (SELECT array_agg(row) FROM once WHERE kind IN ('deadline', 'attempt_limit')),
         (SELECT coalesce(array_agg(execution_id), '{}') FROM once WHERE kind = 'deadline'),
         (SELECT array_agg(timer_id) FROM (SELECT timer_id FROM seen UNION ALL SELECT timer_id FROM orphaned) x),
         (SELECT array_agg(execution_id) FROM (SELECT execution_id FROM seen UNION SELECT execution_id FROM orphaned) x)
  INTO v_rows, v_woken, v_suspended, v_expiring, v_late, v_late_ids, v_seen, v_executions;
  FOR execution_id, outcome, worker_instance_id, due_in_ms IN SELECT * FROM ff_time_out(v_late, v_late_ids) LOOP
    v_timed_out := v_timed_out || execution_id;
    v_over := CASE outcome WHEN 'execution_timed_out' THEN v_over || execution_id ELSE v_over END;
    RETURN NEXT;
  END LOOP;
  IF EXISTS (SELECT FROM unnest(v_rows) r WHERE r.traits & 128 <> 0) THEN
    -- A run begins when what the one before it left behind is deleted.
    FOR execution_id IN SELECT * FROM ff_clear_further(v_rows) LOOP
      outcome := 'delayed'; worker_instance_id := NULL; due_in_ms := 0;
      v_timed_out := v_timed_out || execution_id;
      v_rows := ARRAY(SELECT r FROM unnest(v_rows) r WHERE r.execution_id <> ALL (v_timed_out));
      RETURN NEXT;
    END LOOP;
  END IF;
  PERFORM ff_settle('fire_timer', v_rows, NULL, NULL, NULL, NULL, NULL);
  PERFORM ff_settle('wake', v_woken, NULL, NULL, NULL, NULL, NULL);
  FOR execution_id, outcome, route_id, due_in_ms IN SELECT * FROM ff_time_out_suspended(v_suspended) LOOP
    v_timed_out := v_timed_out || execution_id;
    v_over := CASE outcome WHEN 'execution_timed_out' THEN v_over || execution_id ELSE v_over END;
    worker_instance_id := NULL;
    RETURN NEXT;
  END LOOP;
  -- Last, so that a wait that ends closes its own waitpoints.
  PERFORM ff_expire_waitpoints(ARRAY(SELECT r FROM unnest(v_expiring) r WHERE r.execution_id <> ALL (v_over)));
  v_rows := v_rows || v_woken;
  DELETE FROM ff_timer WHERE timer_id = ANY (v_seen);
  RETURN QUERY
  SELECT r.execution_id, 'fired', r.route_id, NULL::text, NULL::bigint FROM unnest(v_rows) r
  UNION ALL
  SELECT id, 'discarded', NULL, NULL, NULL FROM unnest(v_executions) id
  WHERE CASE WHEN id IN (SELECT execution_id FROM unnest(v_rows)) THEN false
             WHEN id = ANY (v_timed_out) THEN false ELSE true END;
END $$;
