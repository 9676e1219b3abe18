-- Leases after they are granted: renewal, expiry, revocation, and the claims that granted them.

-- Routes of lanes whose renewals write no events.
CREATE OR REPLACE FUNCTION ff_quiet_routes() RETURNS integer[] LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
BEGIN
  RETURN ARRAY(
    SELECT r.route_id FROM ff_lane l
    CROSS JOIN LATERAL (SELECT route_id FROM ff_route WHERE lane = l.lane OFFSET 0) r WHERE NOT l.renewal_events);
END $$;

-- Never waits: one execution that another transaction has locked must not cost a worker all its other leases. Such a
-- lease is as it was, and returns `held`. The lock is not that of the key, because a step recorded inside a long
-- transaction holds a key share and must not keep a lease from being renewed.
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
  v_quiet integer[] := ff_quiet_routes();
  v_now bigint;
  v_alive uuid[];
  v_claims bigint[];
  v_held uuid[];
BEGIN
  PERFORM ff_require_read_committed();
  WITH locked AS MATERIALIZED (
    SELECT e.*, ff_now_ms() AS now_ms
    FROM (SELECT * FROM unnest(p_ids, p_partitions, p_attempts, p_epochs) u(id, part, att, ep) ORDER BY id OFFSET 0) u
    CROSS JOIN LATERAL (
      SELECT execution_id, partition_key, attempt_index, lease_epoch, claim_no, lease_expires_at_ms, namespace,
             coalesce(lease_tags, tags) AS tags, route_id, flow_id
      FROM ff_execution WHERE execution_id = u.id AND partition_key = u.part AND attempt_index = u.att
        AND lease_epoch = u.ep AND claim_no IS NOT NULL FOR NO KEY UPDATE SKIP LOCKED) e),
  alive AS MATERIALIZED (SELECT * FROM locked WHERE lease_expires_at_ms > now_ms),
  renewed AS (
    UPDATE ff_execution SET lease_expires_at_ms = (SELECT max(now_ms) FROM alive) + p_lease_ms,
      renewals = least(renewals + 1, 32767)
    WHERE execution_id = ANY (ARRAY(SELECT execution_id FROM alive)) RETURNING 1),
  told AS MATERIALIZED (
    SELECT count(*) AS owed,
           ff_log_events('lease', max(now_ms), count(*), ARRAY['renewed'], array_agg(execution_id), array_agg(partition_key),
             array_agg(attempt_index), array_agg(lease_epoch),
             array_agg(g.worker_instance_id), array_agg(namespace), array_agg(tags), NULL, array_agg(route_id),
             array_agg(flow_id)) AS written
    FROM alive a
    CROSS JOIN LATERAL (SELECT worker_instance_id FROM ff_grant WHERE claim_no = a.claim_no OFFSET 0) g
    WHERE route_id <> ALL (v_quiet))
  SELECT max(now_ms), array_agg(execution_id),
         array_agg(DISTINCT claim_no) FILTER (WHERE lease_expires_at_ms > now_ms + p_lease_ms)
  INTO v_now, v_alive, v_claims FROM alive
  WHERE (SELECT ff_require_equal('renew leases', (SELECT count(*) FROM alive), (SELECT count(*) FROM renewed))
            AND ff_require_equal('renew events', (SELECT owed FROM told), (SELECT written FROM told)));
  -- These lapse earlier than before: somebody must look at them by then. Written even if a sweep is about to, which
  -- may have read the later time.
  UPDATE ff_grant SET look_at_ms = least(look_at_ms, v_now + p_lease_ms) WHERE claim_no = ANY (v_claims);
  RETURN QUERY
  SELECT id, 'renewed', false, 'active', 'none', NULL::bigint, NULL::integer, NULL::integer, NULL::bigint
  FROM unnest(v_alive) id;
  IF v_alive IS NULL OR cardinality(v_alive) < cardinality(p_ids) THEN
    v_held := ARRAY(
      SELECT u.id FROM unnest(p_ids, p_partitions, p_attempts, p_epochs) u(id, part, att, ep)
      CROSS JOIN LATERAL (
        SELECT lease_expires_at_ms FROM ff_execution WHERE execution_id = u.id AND partition_key = u.part
          AND attempt_index = u.att AND lease_epoch = u.ep AND claim_no IS NOT NULL OFFSET 0) e
      WHERE e.lease_expires_at_ms > ff_now_ms()
        AND CASE WHEN u.id IN (SELECT unnest(v_alive)) THEN false ELSE true END);
    RETURN QUERY
    SELECT id, 'held', false, 'active', 'none', NULL::bigint, NULL::integer, NULL::integer, NULL::bigint
    FROM unnest(v_held) id;
    RETURN QUERY SELECT * FROM ff_refusals('renew', p_ids, p_partitions, p_attempts, p_epochs, v_alive || v_held);
  END IF;
END $$;

-- Ends the attempts of expired leases: a retry if the policy has one left, otherwise the execution fails. Never waits:
-- a row locked by another transaction is left for the next pass. Expiry is decided on the locked row, so a renewal that
-- came first always wins.
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
  WITH held AS MATERIALIZED (
    SELECT e.*, ff_now_ms() AS now_ms
    FROM (SELECT * FROM unnest(p_ids, p_partitions, p_epochs) u(id, part, ep) ORDER BY id OFFSET 0) u
    CROSS JOIN LATERAL (
      SELECT execution_id, partition_key, route_id, priority, namespace, attempt_index, lease_epoch, retry_count,
             claim_no, lease_expires_at_ms, attempt_started_at_ms, coalesce(lease_tags, tags) AS tags, policy, policy_id,
             retain_ms, flow_id, attempt_paused, parent_id, traits
      FROM ff_execution WHERE execution_id = u.id AND partition_key = u.part AND lease_epoch = u.ep
        AND claim_no IS NOT NULL FOR UPDATE SKIP LOCKED) e),
  decided AS MATERIALIZED (
    SELECT ROW(NULL::integer, h.execution_id, h.partition_key, h.route_id, h.priority, h.namespace, h.attempt_index,
               h.lease_epoch, h.retry_count, 'running_attempt', h.claim_no, g.worker_id, g.worker_instance_id,
               h.attempt_started_at_ms, h.tags, h.retain_ms, h.flow_id, h.attempt_paused,
               h.parent_id, h.traits)::ff_locked AS row,
           -- A lost lease is the worker's fault, not the work's: error categories do not apply, the retry limit does.
           coalesce(h.retry_count < (ff_policy_of(h.policy, h.policy_id) -> 'retry_policy' ->> 'max_retries')::integer,
                    false) AS again
    FROM held h
    CROSS JOIN LATERAL (
      SELECT worker_id, worker_instance_id FROM ff_grant WHERE claim_no = h.claim_no OFFSET 0) g
    WHERE h.lease_expires_at_ms <= h.now_ms)
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

-- Looks into claims whose time has come: those none of whose leases are left are removed, the others are looked into
-- again when the first of their leases would lapse. Lapsed leases stay due, for ff_lapse_leases, which may fail or have
-- to leave them for long; so each call begins after the claim at which the last one stopped. Only the claim itself ever
-- writes its number into executions, so one without leases will have none. Returns where it stopped, NULL at the end, and
-- how many are no longer due.
CREATE OR REPLACE FUNCTION ff_sweep_grants(p_after_ms bigint, p_after bigint, p_limit integer)
RETURNS TABLE (look_at_ms bigint, claim_no bigint, done integer) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_now bigint := ff_now_ms();
  v_due bigint[];
  v_times bigint[];
  v_count integer;
  v_over bigint[];
  v_open bigint[];
  v_next bigint[];
BEGIN
  PERFORM ff_require_read_committed();
  SELECT array_agg(claim_no), array_agg(look_at_ms), count(*) INTO v_due, v_times, v_count FROM (
    SELECT claim_no, look_at_ms FROM ff_grant
    WHERE look_at_ms BETWEEN p_after_ms AND v_now AND (look_at_ms, claim_no) > (p_after_ms, p_after)
    ORDER BY look_at_ms, claim_no LIMIT p_limit FOR UPDATE SKIP LOCKED) due;
  -- Read in a later statement than the one that locked them: their executions must be at least as new.
  SELECT array_agg(g.claim_no) FILTER (WHERE m.next_ms IS NULL), array_agg(g.claim_no) FILTER (WHERE m.next_ms > v_now),
         array_agg(m.next_ms) FILTER (WHERE m.next_ms > v_now)
  INTO v_over, v_open, v_next
  FROM unnest(v_due) u(claim_no)
  CROSS JOIN LATERAL (SELECT claim_no, execution_ids FROM ff_grant WHERE claim_no = u.claim_no OFFSET 0) g
  CROSS JOIN LATERAL (
    SELECT min(e.lease_expires_at_ms) AS next_ms FROM unnest(g.execution_ids) x(id)
    CROSS JOIN LATERAL (
      SELECT lease_expires_at_ms FROM ff_execution WHERE execution_id = x.id AND claim_no = g.claim_no OFFSET 0) e) m;
  DELETE FROM ff_grant WHERE claim_no = ANY (v_over);
  FOR i IN 1..coalesce(cardinality(v_open), 0) LOOP
    UPDATE ff_grant SET look_at_ms = v_next[i] WHERE claim_no = v_open[i];
  END LOOP;
  -- Locked rows are left out before the limit is counted: fewer than that are the last.
  IF v_count < p_limit THEN v_times := NULL; v_due := NULL; END IF;
  RETURN QUERY
  SELECT v_times[v_count], v_due[v_count], coalesce(cardinality(v_over), 0) + coalesce(cardinality(v_open), 0);
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
      SELECT reclaim_count < coalesce((ff_policy_of(policy, policy_id) -> 'timeout_policy' ->> 'max_reclaim_count')::integer,
                                      p_default_max) AS again
      FROM ff_execution WHERE execution_id = r.execution_id AND partition_key = r.partition_key OFFSET 0) x
    WHERE r.claim_no IS NOT NULL
      AND coalesce(p_lease_ids[r.ordinal] = ff_lease_id(r.execution_id, r.lease_epoch), true))
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
