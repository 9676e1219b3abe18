-- Locking executions before something is done to them, and what must be true of that.
--
-- Which lock of the row each operation takes. State and lease are one row, so one lock decides:
--   complete, fail, release, pause, suspend   FOR UPDATE, in id order, together with the members after a flow's
--   cancel, revoke, replay, priority, signal  FOR UPDATE, in id order, and then read in a later statement
--   claim, lapse, fire                        FOR UPDATE SKIP LOCKED: they never wait; nor do completions with a claim
--   renew                                     FOR NO KEY UPDATE SKIP LOCKED: never waits, and not for a step
--   step, spawn, progress, append             FOR KEY SHARE: an end waits for it, a renewal does not
--
-- These functions carry no settings of their own: their callers do.

-- Operations decide on rows they have just locked and read again, which needs a fresh snapshot per statement.
CREATE OR REPLACE FUNCTION ff_require_read_committed() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'this operation needs READ COMMITTED, the transaction runs at %',
      current_setting('transaction_isolation') USING ERRCODE = 'FF001';
  END IF;
  RETURN true;
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

-- Locks the execution of a lease holder: what ff_lock_leased does, with single values, which takes half the time. p_solo:
-- not if it is a member of a flow.
CREATE OR REPLACE FUNCTION ff_lock_leased_one(
  p_id uuid, p_partition smallint, p_attempt integer, p_epoch bigint, p_solo boolean DEFAULT false
) RETURNS ff_locked[] LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  e record;
BEGIN
  SELECT e.*, g.worker_id, g.worker_instance_id INTO e
  FROM (SELECT route_id, priority, namespace, attempt_index, lease_epoch, retry_count, claim_no, lease_expires_at_ms,
               attempt_started_at_ms, coalesce(lease_tags, tags) AS tags, retain_ms, flow_id, attempt_paused, parent_id, traits
        FROM ff_execution WHERE execution_id = p_id AND partition_key = p_partition AND (flow_id IS NULL OR NOT p_solo)
        FOR UPDATE) e
  CROSS JOIN LATERAL (
    SELECT worker_id, worker_instance_id FROM ff_grant WHERE claim_no = e.claim_no OFFSET 0) g;
  IF e.attempt_index = p_attempt AND e.lease_epoch = p_epoch AND e.lease_expires_at_ms > ff_now_ms() THEN
    RETURN ARRAY[ROW(1, p_id, p_partition, e.route_id, e.priority, e.namespace, e.attempt_index, e.lease_epoch, e.retry_count,
      'running_attempt', e.claim_no, e.worker_id, e.worker_instance_id, e.attempt_started_at_ms, e.tags, e.retain_ms,
      e.flow_id, e.attempt_paused, e.parent_id, e.traits)::ff_locked];
  END IF;
  RETURN '{}';
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
  IF cardinality(p_ids) = 1 AND cardinality(p_also) = 0 THEN
    RETURN ff_lock_leased_one(p_ids[1], p_partitions[1], p_attempts[1], p_epochs[1]);
  END IF;
  WITH owned AS MATERIALIZED (
    SELECT u.ord, u.att, u.ep, e.*, ff_now_ms() AS now_ms
    FROM (SELECT * FROM unnest(p_ids || p_also, p_partitions, p_attempts, p_epochs) WITH ORDINALITY u(id, part, att, ep, ord)
          ORDER BY id OFFSET 0) u
    CROSS JOIN LATERAL (
      SELECT execution_id, partition_key, route_id, priority, namespace, attempt_index, lease_epoch, retry_count,
             claim_no, lease_expires_at_ms, attempt_started_at_ms, coalesce(lease_tags, tags) AS tags, retain_ms, flow_id,
             attempt_paused, parent_id, traits
      FROM ff_execution WHERE execution_id = u.id AND partition_key = coalesce(u.part, partition_key) FOR UPDATE) e)
  SELECT array_agg(ROW(ord, execution_id, partition_key, route_id, priority, namespace, attempt_index, lease_epoch,
                       retry_count, 'running_attempt', claim_no, g.worker_id, g.worker_instance_id, attempt_started_at_ms,
                       tags, retain_ms, flow_id, attempt_paused, parent_id, traits)::ff_locked)
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
                       e.attempt_started_at_ms, e.tags, e.retain_ms, e.flow_id, e.attempt_paused,
                       e.parent_id, e.traits)::ff_locked)
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
