-- Ends executions from outside, from any non-terminal state. A running one loses its lease in the same transaction,
-- so its worker can no longer write. Queue rows and timers stay behind as stale pointers; claims and firings discard
-- them. p_epochs: cancel only an execution that still has this epoch; one claimed or replayed since returns `moved`.

-- Cancels locked executions that have not ended. One that never started has no attempt to close.
CREATE OR REPLACE FUNCTION ff_cancel_locked(p_rows ff_locked[], p_reason text, p_actor text, p_category text DEFAULT 'cancelled')
RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_started ff_locked[];
  v_unstarted ff_locked[];
BEGIN
  SELECT array_agg(r) FILTER (WHERE r.attempt_state <> 'pending_first_attempt'),
         array_agg(r) FILTER (WHERE r.attempt_state = 'pending_first_attempt')
  INTO v_started, v_unstarted FROM unnest(p_rows) r;
  PERFORM ff_settle('cancel', v_started, NULL, NULL, ARRAY(SELECT p_reason FROM unnest(v_started)),
    ARRAY(SELECT p_category FROM unnest(v_started)), p_actor);
  PERFORM ff_settle('cancel_unstarted', v_unstarted, NULL, NULL, ARRAY(SELECT p_reason FROM unnest(v_unstarted)),
    ARRAY(SELECT p_category FROM unnest(v_unstarted)), p_actor);
END $$;

CREATE OR REPLACE FUNCTION ff_cancel(
  p_ids uuid[], p_partitions smallint[], p_reason text, p_actor text, p_epochs bigint[] DEFAULT NULL,
  p_category text DEFAULT 'cancelled'
)
RETURNS TABLE (
  execution_id uuid, outcome text, lifecycle_phase text, terminal_outcome text, lease_epoch bigint, route_id integer,
  worker_instance_id text
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
-- An operator is told who holds a row instead of waiting for it.
SET lock_timeout = '2s' SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_rows ff_locked[];
BEGIN
  PERFORM ff_require_read_committed();
  v_rows := ff_lock_open(p_ids, p_partitions);
  IF p_epochs IS NOT NULL THEN
    v_rows := ARRAY(SELECT r FROM unnest(v_rows) r WHERE r.lease_epoch = p_epochs[r.ordinal]);
  END IF;
  PERFORM ff_cancel_locked(v_rows, p_reason, p_actor, p_category);
  RETURN QUERY
  SELECT r.execution_id, 'cancelled', 'terminal', 'cancelled', r.lease_epoch, r.route_id, r.worker_instance_id
  FROM unnest(v_rows) r
  UNION ALL
  SELECT u.id,
         -- Open but not locked: it appeared after the lock was requested.
         CASE WHEN p_epochs IS NOT NULL AND e.lease_epoch <> u.ep THEN 'moved'
              WHEN e.execution_id IS NULL OR e.lifecycle_phase <> 'terminal' THEN 'not_found'
              WHEN e.terminal_outcome = 'cancelled' THEN 'already_cancelled' ELSE 'not_active' END,
         e.lifecycle_phase::text, e.terminal_outcome::text, e.lease_epoch, e.route_id, NULL
  FROM unnest(p_ids, p_partitions, p_epochs) u(id, part, ep)
  LEFT JOIN LATERAL (
    SELECT * FROM ff_execution x WHERE x.execution_id = u.id AND x.partition_key = u.part OFFSET 0) e ON true
  WHERE CASE WHEN u.id IN (SELECT execution_id FROM unnest(v_rows)) THEN false ELSE true END;
END $$;
