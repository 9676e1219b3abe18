-- Fires timers: what waited for a time, or for children that have ended, becomes claimable. Never waits; a timer whose
-- execution somebody works on stays for the next pass. A timer that no longer fits its execution (cancelled, claimed,
-- retried since) is discarded. So is word of a child while its parent runs: the parent looks before it pauses.

-- Whether enough of the children have ended that an execution paused for. Called with the execution locked. Looks for
-- those that have not, from the last one back, and stops at the first too many: children mostly end in their order, so that
-- word of each of a thousand costs one look. One that is not this execution's child is not waited for: nobody would tell of it.
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
        SELECT 1 FROM ff_execution
        WHERE execution_id = p_children[place] AND parent_id = p_parent AND lifecycle_phase <> 'terminal' OFFSET 0) e
      LIMIT v_may_be_open + 1) still_open);
END $$;

-- Whether a paused execution, locked, has waited long enough for its children. Read in statements of its own: the pause
-- may have been committed after the caller's statement began, and the lock shows it while that statement does not.
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

CREATE OR REPLACE FUNCTION ff_fire_timers(p_timer_ids bigint[])
RETURNS TABLE (execution_id uuid, outcome text, route_id integer) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_rows ff_locked[];
  v_woken ff_locked[];
  v_seen bigint[];
  v_executions uuid[];
  v_gone bigint;
BEGIN
  PERFORM ff_require_read_committed();
  WITH due AS MATERIALIZED (
    SELECT d.* FROM (SELECT unnest(p_timer_ids) AS id ORDER BY 1 OFFSET 0) u
    CROSS JOIN LATERAL (
      SELECT timer_id, kind, execution_id, partition_key, attempt_index, lease_epoch, due_at_ms
      FROM ff_timer WHERE timer_id = u.id FOR UPDATE SKIP LOCKED) d
    WHERE d.due_at_ms <= ff_now_ms()),
  seen AS MATERIALIZED (
    SELECT d.timer_id, d.kind, d.attempt_index AS attempt, d.lease_epoch AS epoch, e.*
    FROM (SELECT * FROM due ORDER BY execution_id OFFSET 0) d
    CROSS JOIN LATERAL (
      SELECT execution_id, partition_key, route_id, priority, namespace, attempt_index, lease_epoch, retry_count,
             lifecycle_phase, eligibility_state, attempt_state
      FROM ff_execution WHERE execution_id = d.execution_id AND partition_key = d.partition_key
      FOR UPDATE SKIP LOCKED) e),
  paused AS MATERIALIZED (
    SELECT DISTINCT ON (execution_id) * FROM seen
    WHERE kind = 'child_ended' AND lifecycle_phase = 'runnable' AND attempt_state = 'attempt_interrupted'
      AND eligibility_state IN ('blocked_by_dependencies', 'not_eligible_until_time')
    ORDER BY execution_id),
  fitting AS MATERIALIZED (
    SELECT * FROM (
      SELECT DISTINCT ON (execution_id) * FROM seen
      WHERE kind = 'eligible' AND lifecycle_phase = 'runnable' AND eligibility_state = 'not_eligible_until_time'
        AND attempt_index = attempt AND lease_epoch = epoch
      ORDER BY execution_id) s
    UNION ALL
    SELECT * FROM paused WHERE ff_wait_is_over(execution_id, attempt_index, lease_epoch)),
  -- One that its time and its children wake at once is woken by its time.
  once AS MATERIALIZED (
    SELECT DISTINCT ON (execution_id) kind, execution_id,
           ROW(NULL::integer, execution_id, partition_key, route_id, priority, namespace, attempt_index, lease_epoch,
               retry_count, attempt_state, NULL::uuid, NULL::text, NULL::text, NULL::bigint, NULL::jsonb)::ff_locked AS row
    FROM fitting ORDER BY execution_id, kind)
  SELECT (SELECT array_agg(row) FROM once WHERE kind = 'eligible'), (SELECT array_agg(row) FROM once WHERE kind = 'child_ended'),
         (SELECT array_agg(timer_id) FROM seen), (SELECT array_agg(execution_id) FROM seen)
  INTO v_rows, v_woken, v_seen, v_executions;
  PERFORM ff_settle('fire_timer', v_rows, NULL, NULL, NULL, NULL, NULL);
  PERFORM ff_settle('wake', v_woken, NULL, NULL, NULL, NULL, NULL);
  v_rows := v_rows || v_woken;
  WITH gone AS (DELETE FROM ff_timer WHERE timer_id = ANY (v_seen) RETURNING 1) SELECT count(*) INTO v_gone FROM gone;
  PERFORM ff_require_equal('fired timers', coalesce(cardinality(v_seen), 0), v_gone);
  RETURN QUERY
  SELECT r.execution_id, 'fired', r.route_id FROM unnest(v_rows) r
  UNION ALL
  SELECT id, 'discarded', NULL FROM unnest(v_executions) id
  WHERE CASE WHEN id IN (SELECT execution_id FROM unnest(v_rows)) THEN false ELSE true END;
END $$;
