-- Removes stale pointers: queue rows of a lane nobody claims from, timers due in years. Claims and firings remove those
-- they come across; these functions find the others. They search without locks, in index order, some at a time:
-- attempts and epochs only grow, so a pointer that does not match now never will.

-- Returns where it stopped, NULL at the end of the queue, and how many it removed.
CREATE OR REPLACE FUNCTION ff_sweep_queue(p_route integer, p_rank integer, p_seq bigint, p_limit integer)
RETURNS TABLE (route_id integer, rank integer, seq bigint, removed bigint) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
BEGIN
  PERFORM ff_require_read_committed();
  RETURN QUERY
  WITH looked AS MATERIALIZED (
    SELECT ctid AS tid, route_id, -priority AS rank, seq, execution_id, attempt_index, lease_epoch, priority FROM ff_ready
    WHERE (route_id, -priority, seq) > (p_route, p_rank, p_seq)
    ORDER BY route_id, -priority, seq LIMIT p_limit),
  stale AS MATERIALIZED (
    SELECT l.tid FROM looked l
    LEFT JOIN LATERAL (
      SELECT attempt_index, lease_epoch, priority FROM ff_execution WHERE execution_id = l.execution_id OFFSET 0) e ON true
    WHERE (e.attempt_index, e.lease_epoch, e.priority) IS DISTINCT FROM (l.attempt_index, l.lease_epoch, l.priority)),
  taken AS MATERIALIZED (
    SELECT ctid AS tid FROM ff_ready WHERE ctid = ANY (ARRAY(SELECT tid FROM stale)) FOR UPDATE SKIP LOCKED),
  gone AS (DELETE FROM ff_ready WHERE ctid = ANY (ARRAY(SELECT tid FROM taken)) RETURNING 1),
  last AS (SELECT * FROM looked ORDER BY route_id DESC, rank DESC, seq DESC LIMIT 1)
  SELECT (SELECT l.route_id FROM last l), (SELECT l.rank FROM last l), (SELECT l.seq FROM last l),
         (SELECT count(*) FROM gone);
END $$;

CREATE OR REPLACE FUNCTION ff_sweep_timers(p_after bigint, p_limit integer)
RETURNS TABLE (timer_id bigint, removed bigint) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
BEGIN
  PERFORM ff_require_read_committed();
  RETURN QUERY
  WITH looked AS MATERIALIZED (
    SELECT timer_id, kind, execution_id, attempt_index, lease_epoch, due_at_ms FROM ff_timer
    WHERE timer_id > p_after ORDER BY timer_id LIMIT p_limit),
  stale AS MATERIALIZED (
    SELECT l.timer_id FROM looked l
    LEFT JOIN LATERAL (
      SELECT attempt_index, lease_epoch, deadline_at_ms, lifecycle_phase FROM ff_execution
      WHERE execution_id = l.execution_id OFFSET 0) e ON true
    WHERE l.kind <> 'family' AND (e.lifecycle_phase IS NULL OR CASE l.kind
      WHEN 'deadline' THEN e.lifecycle_phase = 'terminal' OR e.deadline_at_ms IS DISTINCT FROM l.due_at_ms
      WHEN 'child_ended' THEN false
      ELSE (e.attempt_index, e.lease_epoch) <> (l.attempt_index, l.lease_epoch) END)),
  taken AS MATERIALIZED (
    SELECT t.timer_id FROM stale s
    CROSS JOIN LATERAL (SELECT timer_id FROM ff_timer WHERE timer_id = s.timer_id FOR UPDATE SKIP LOCKED) t),
  gone AS (DELETE FROM ff_timer WHERE timer_id = ANY (ARRAY(SELECT timer_id FROM taken)) RETURNING 1)
  SELECT (SELECT max(l.timer_id) FROM looked l), (SELECT count(*) FROM gone);
END $$;
