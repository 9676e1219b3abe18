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
      WHEN p_verb = 'complete' AND h.outcome = 'success' AND h.mine AND h.terminal_outcome IS NOT NULL THEN 'completed'
      WHEN p_verb = 'continue' AND h.outcome = 'success' AND h.mine AND h.terminal_outcome IS NULL THEN 'run_continued'
      WHEN p_verb = 'fail' AND h.outcome = 'failed' AND h.mine THEN
        CASE WHEN h.retry_at_ms IS NULL THEN 'failed' ELSE 'retry_scheduled' END
      WHEN h.outcome = 'interrupted' AND h.mine THEN 'lease_' || h.interrupted_by
      WHEN h.outcome = 'expired' AND h.mine THEN 'timed_out'
      WHEN p_verb IN ('complete', 'fail', 'release', 'pause', 'suspend', 'continue') AND h.outcome IN ('success', 'failed') AND h.mine THEN 'conflict'
      WHEN e.lifecycle_phase <> 'active' THEN 'not_active'
      WHEN e.attempt_index = u.att AND e.lease_epoch = u.ep THEN 'lease_expired'
      ELSE 'stale_lease' END,
    coalesce(CASE p_verb WHEN 'complete' THEN h.outcome = 'success' AND h.mine AND h.terminal_outcome IS NOT NULL
                         WHEN 'continue' THEN h.outcome = 'success' AND h.mine AND h.terminal_outcome IS NULL
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

-- The same as one value.
CREATE OR REPLACE FUNCTION ff_refusals_json(
  p_verb text, p_ids uuid[], p_partitions smallint[], p_attempts integer[], p_epochs bigint[], p_accepted uuid[]
) RETURNS json LANGUAGE sql AS $$
  SELECT json_agg(json_build_object(
    'uuid', r.execution_id, 'outcome', r.outcome, 'repeated', r.repeated, 'lifecyclePhase', r.lifecycle_phase,
    'terminalOutcome', r.terminal_outcome, 'leaseEpoch', r.lease_epoch, 'attemptIndex', r.attempt_index,
    'routeId', r.route_id, 'dueInMs', r.retry_in_ms))
  FROM ff_refusals(p_verb, p_ids, p_partitions, p_attempts, p_epochs, p_accepted) r
$$;
