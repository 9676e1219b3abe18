-- Fires timers: what waited for a time becomes claimable. Never waits; a timer whose execution somebody works on stays
-- for the next pass. A timer that no longer fits its execution (cancelled, claimed, retried since) is discarded.

CREATE OR REPLACE FUNCTION ff_fire_timers(p_timer_ids bigint[])
RETURNS TABLE (execution_id uuid, outcome text, route_id integer) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_rows ff_locked[];
  v_seen bigint[];
  v_executions uuid[];
  v_gone bigint;
BEGIN
  PERFORM ff_require_read_committed();
  WITH due AS MATERIALIZED (
    SELECT d.* FROM (SELECT unnest(p_timer_ids) AS id ORDER BY 1 OFFSET 0) u
    CROSS JOIN LATERAL (
      SELECT timer_id, execution_id, partition_key, attempt_index, lease_epoch, due_at_ms
      FROM ff_timer WHERE timer_id = u.id FOR UPDATE SKIP LOCKED) d
    WHERE d.due_at_ms <= ff_now_ms()),
  seen AS MATERIALIZED (
    SELECT d.timer_id, d.attempt_index AS attempt, d.lease_epoch AS epoch, e.*
    FROM (SELECT * FROM due ORDER BY execution_id OFFSET 0) d
    CROSS JOIN LATERAL (
      SELECT execution_id, partition_key, route_id, priority, namespace, attempt_index, lease_epoch, retry_count,
             lifecycle_phase, eligibility_state, attempt_state
      FROM ff_execution WHERE execution_id = d.execution_id AND partition_key = d.partition_key
      FOR UPDATE SKIP LOCKED) e),
  fitting AS MATERIALIZED (
    SELECT DISTINCT ON (execution_id) * FROM seen
    WHERE lifecycle_phase = 'runnable' AND eligibility_state = 'not_eligible_until_time'
      AND attempt_index = attempt AND lease_epoch = epoch
    ORDER BY execution_id)
  SELECT (SELECT array_agg(ROW(NULL::integer, execution_id, partition_key, route_id, priority, namespace, attempt_index,
            lease_epoch, retry_count, attempt_state, NULL::uuid, NULL::text, NULL::text, NULL::bigint, NULL::jsonb)::ff_locked)
          FROM fitting),
         (SELECT array_agg(timer_id) FROM seen), (SELECT array_agg(execution_id) FROM seen)
  INTO v_rows, v_seen, v_executions;
  PERFORM ff_settle('fire_timer', v_rows, NULL, NULL, NULL, NULL, NULL);
  WITH gone AS (DELETE FROM ff_timer WHERE timer_id = ANY (v_seen) RETURNING 1) SELECT count(*) INTO v_gone FROM gone;
  PERFORM ff_require_equal('fired timers', coalesce(cardinality(v_seen), 0), v_gone);
  RETURN QUERY
  SELECT r.execution_id, 'fired', r.route_id FROM unnest(v_rows) r
  UNION ALL
  SELECT id, 'discarded', NULL FROM unnest(v_executions) id
  WHERE CASE WHEN id IN (SELECT execution_id FROM unnest(v_rows)) THEN false ELSE true END;
END $$;
