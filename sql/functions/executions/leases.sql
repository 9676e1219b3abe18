-- Leases after they are granted: renewal, expiry, revocation.

-- The only operation that locks a lease without its execution.
CREATE OR REPLACE FUNCTION ff_renew(
  p_ids uuid[], p_partitions smallint[], p_attempts integer[], p_epochs bigint[], p_lease_ms bigint
) RETURNS TABLE (
  execution_id uuid, outcome text, repeated boolean, lifecycle_phase text, terminal_outcome text, lease_epoch bigint,
  attempt_index integer, route_id integer, retry_in_ms bigint
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_alive uuid[];
BEGIN
  PERFORM ff_require_read_committed();
  WITH held AS MATERIALIZED (
    SELECT l.*, ff_now_ms() AS now_ms
    FROM (SELECT * FROM unnest(p_ids, p_partitions, p_attempts, p_epochs) u(id, part, att, ep) ORDER BY id OFFSET 0) u
    CROSS JOIN LATERAL (
      SELECT * FROM ff_lease WHERE execution_id = u.id AND partition_key = u.part AND attempt_index = u.att
        -- Not the key: a step recorded inside a long transaction holds a key share lock and must not block renewals.
        AND lease_epoch = u.ep FOR NO KEY UPDATE) l),
  alive AS MATERIALIZED (SELECT * FROM held WHERE expires_at_ms > now_ms),
  renewed AS (
    UPDATE ff_lease SET renewed_at_ms = (SELECT max(now_ms) FROM alive),
                        expires_at_ms = (SELECT max(now_ms) FROM alive) + p_lease_ms
    WHERE execution_id = ANY (ARRAY(SELECT execution_id FROM alive)) RETURNING 1),
  told AS (
    INSERT INTO ff_event (family, event_type, occurred_at_ms, execution_id, partition_key, attempt_index, lease_epoch,
                          lease_id, worker_instance_id, namespace, tags, route_id, flow_id, slot)
    SELECT 'lease', 'renewed', now_ms, execution_id, partition_key, attempt_index, lease_epoch, lease_id,
           worker_instance_id, namespace, tags, route_id, flow_id, (SELECT slot FROM ff_sequencer)
    FROM alive WHERE renewal_events)
  SELECT array_agg(execution_id) INTO v_alive FROM alive
  WHERE (SELECT ff_require_equal('renew leases', (SELECT count(*) FROM alive), (SELECT count(*) FROM renewed)));
  RETURN QUERY
  SELECT id, 'renewed', false, 'active', 'none', NULL::bigint, NULL::integer, NULL::integer, NULL::bigint
  FROM unnest(v_alive) id;
  IF v_alive IS NULL OR cardinality(v_alive) < cardinality(p_ids) THEN
    RETURN QUERY SELECT * FROM ff_refusals('renew', p_ids, p_partitions, p_attempts, p_epochs, v_alive);
  END IF;
END $$;

-- Ends the attempts of expired leases: a retry if the policy has one left, otherwise the execution fails. Never waits:
-- a row locked by another transaction is left for the next pass. Expiry is decided on the locked lease, so a renewal
-- that came first always wins.
CREATE OR REPLACE FUNCTION ff_lapse_leases(p_ids uuid[], p_partitions smallint[], p_epochs bigint[])
RETURNS TABLE (execution_id uuid, outcome text, route_id integer) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_again ff_locked[];
  v_end ff_locked[];
BEGIN
  PERFORM ff_require_read_committed();
  WITH owned AS MATERIALIZED (
    SELECT e.* FROM (SELECT * FROM unnest(p_ids, p_partitions, p_epochs) u(id, part, ep) ORDER BY id OFFSET 0) u
    CROSS JOIN LATERAL (
      SELECT execution_id, partition_key, route_id, priority, namespace, attempt_index, lease_epoch, retry_count,
             retain_ms, flow_id
      FROM ff_execution WHERE execution_id = u.id AND partition_key = u.part AND lifecycle_phase = 'active'
        AND lease_epoch = u.ep FOR UPDATE SKIP LOCKED) e),
  held AS MATERIALIZED (
    SELECT o.*, l.lease_id, l.worker_id, l.worker_instance_id, l.attempt_started_at_ms, l.tags, l.expires_at_ms,
           ff_now_ms() AS now_ms
    FROM (SELECT * FROM owned ORDER BY execution_id OFFSET 0) o
    CROSS JOIN LATERAL (
      SELECT lease_id, worker_id, worker_instance_id, attempt_started_at_ms, tags, expires_at_ms
      FROM ff_lease WHERE execution_id = o.execution_id AND partition_key = o.partition_key
        AND lease_epoch = o.lease_epoch FOR UPDATE SKIP LOCKED) l),
  decided AS MATERIALIZED (
    SELECT ROW(NULL::integer, h.execution_id, h.partition_key, h.route_id, h.priority, h.namespace, h.attempt_index,
               h.lease_epoch, h.retry_count, 'running_attempt', h.lease_id, h.worker_id, h.worker_instance_id,
               h.attempt_started_at_ms, h.tags, h.retain_ms, h.flow_id)::ff_locked AS row,
           b.again
    FROM held h
    CROSS JOIN LATERAL (
      -- A lost lease is the worker's fault, not the work's: error categories do not apply, the retry limit does.
      SELECT coalesce(h.retry_count < (policy -> 'retry_policy' ->> 'max_retries')::integer, false) AS again
      FROM ff_body WHERE execution_id = h.execution_id AND partition_key = h.partition_key OFFSET 0) b
    WHERE h.expires_at_ms <= h.now_ms)
  SELECT array_agg(row) FILTER (WHERE again), array_agg(row) FILTER (WHERE NOT again) INTO v_again, v_end FROM decided;
  PERFORM ff_settle('lapse', v_again, NULL, NULL,
    ARRAY(SELECT 'attempt_timeout'::text FROM unnest(v_again)), ARRAY(SELECT 'infra_crash'::text FROM unnest(v_again)),
    'engine');
  PERFORM ff_settle('expire', v_end, NULL, NULL,
    ARRAY(SELECT 'attempt_timeout'::text FROM unnest(v_end)), ARRAY(SELECT 'infra_crash'::text FROM unnest(v_end)),
    'engine');
  RETURN QUERY
  SELECT r.execution_id, 'lapsed', r.route_id FROM unnest(v_again) r
  UNION ALL SELECT r.execution_id, 'expired', r.route_id FROM unnest(v_end) r;
END $$;

-- Takes leases away from their workers. p_lease_ids names the lease, or NULL for whichever is held now. The retry
-- budget is not touched; a separate count bounds how often this may happen.
CREATE OR REPLACE FUNCTION ff_revoke_leases(
  p_ids uuid[], p_partitions smallint[], p_lease_ids uuid[], p_reason text, p_actor text, p_default_max integer
) RETURNS TABLE (
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
  v_again ff_locked[];
  v_end ff_locked[];
BEGIN
  PERFORM ff_require_read_committed();
  v_rows := ff_lock_open(p_ids, p_partitions);
  WITH decided AS MATERIALIZED (
    SELECT r AS row, x.again
    FROM unnest(v_rows) r
    CROSS JOIN LATERAL (
      SELECT e.reclaim_count < coalesce((b.policy -> 'timeout_policy' ->> 'max_reclaim_count')::integer, p_default_max)
        AS again
      FROM ff_execution e, ff_body b
      WHERE e.execution_id = r.execution_id AND e.partition_key = r.partition_key
        AND b.execution_id = r.execution_id AND b.partition_key = r.partition_key OFFSET 0) x
    WHERE r.lease_id IS NOT NULL AND (p_lease_ids[r.ordinal] IS NULL OR p_lease_ids[r.ordinal] = r.lease_id))
  SELECT array_agg(row) FILTER (WHERE again), array_agg(row) FILTER (WHERE NOT again) INTO v_again, v_end FROM decided;
  PERFORM ff_settle('revoke', v_again, NULL, NULL,
    ARRAY(SELECT p_reason FROM unnest(v_again)), NULL, p_actor);
  PERFORM ff_settle('exhaust_reclaims', v_end, NULL, NULL,
    ARRAY(SELECT 'reclaim_cap_exceeded'::text FROM unnest(v_end)), NULL, p_actor);
  RETURN QUERY
  SELECT r.execution_id, 'revoked', 'runnable', 'none', r.lease_epoch, r.route_id, r.worker_instance_id
  FROM unnest(v_again) r
  UNION ALL
  SELECT r.execution_id, 'reclaims_exhausted', 'terminal', 'failed', r.lease_epoch, r.route_id, r.worker_instance_id
  FROM unnest(v_end) r
  UNION ALL
  SELECT u.id,
         CASE WHEN e.execution_id IS NULL THEN 'not_found'
              WHEN e.lifecycle_phase = 'active' AND u.lease IS NOT NULL THEN 'stale_lease' ELSE 'no_active_lease' END,
         e.lifecycle_phase::text, e.terminal_outcome::text, e.lease_epoch, e.route_id, NULL
  FROM unnest(p_ids, p_partitions, p_lease_ids) u(id, part, lease)
  LEFT JOIN LATERAL (
    SELECT * FROM ff_execution x WHERE x.execution_id = u.id AND x.partition_key = u.part OFFSET 0) e ON true
  WHERE CASE WHEN u.id IN (SELECT execution_id FROM unnest(v_again)) THEN false
             WHEN u.id IN (SELECT execution_id FROM unnest(v_end)) THEN false ELSE true END;
END $$;
