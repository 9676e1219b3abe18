/**
 * The engine's functions in the simpler forms one would write first. Alone each works; against another session each
 * breaks in its own way, which is why the engine's functions are written as they are. For tests only: they are created
 * in a test database beside the real ones and take the same arguments.
 */

// The engine's tables, written here directly.
const STATE = 'ff_execution';
const LOG = 'ff_event';

const VECTOR = 'lifecycle_phase, ownership_state, eligibility_state, blocking_reason, terminal_outcome';
const moved = (transition: string) =>
  `(${VECTOR}) = (SELECT ${VECTOR} FROM ff_transition WHERE transition = '${transition}')`;

const HOLDER = 'p_ids uuid[], p_partitions smallint[], p_attempts integer[], p_epochs bigint[]';
const ANSWER = 'RETURNS TABLE (execution_id uuid, outcome text, repeated boolean, worker_instance_id text)';
const EVENT = `INSERT INTO ${LOG} (family, event_type, occurred_at_ms, execution_id, partition_key, attempt_index,
  lease_epoch, lease_id, namespace, tags, route_id, slot)`;
const PLACE = 'route_id, (SELECT slot FROM ff_sequencer)';
/** Joins follow the order of the array, so that the order of locks does not depend on a plan. */
const SETTINGS = `SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_material = off
  SET search_path FROM CURRENT`;

/** The rows a completion writes, from a set k of ended leases. */
const COMPLETED_ROWS = `
  result AS (INSERT INTO ff_outcome (execution_id, ended_at_ms, attempt_index, outcome, partition_key, namespace)
    SELECT execution_id, ff_now_ms(), attempt_index, 'success', partition_key, namespace FROM k),
  tried AS (INSERT INTO ff_attempt_history (execution_id, lease_id, lease_epoch, started_at_ms, ended_at_ms,
      attempt_index, outcome, partition_key)
    SELECT execution_id, lease_id, lease_epoch, acquired_at_ms, ff_now_ms(), attempt_index, 'success', partition_key FROM k),
  told AS (${EVENT}
    SELECT 'completion', 'success', ff_now_ms(), execution_id, partition_key, attempt_index, lease_epoch, lease_id,
           namespace, tags, ${PLACE} FROM k)`;

const answerHolder = (verb: string, word: string) => `
  RETURN QUERY SELECT id, '${word}', false, NULL::text FROM unnest(v_done) id;
  RETURN QUERY SELECT r.execution_id, r.outcome, r.repeated, NULL::text
    FROM ff_refusals('${verb}', p_ids, p_partitions, p_attempts, p_epochs, v_done) r;`;

/** Deletes the lease by the ctid it was locked under, in the statement that locked it. */
const COMPLETE_BY_ADDRESS = `
CREATE FUNCTION naive_complete_by_address(${HOLDER}, p_results jsonb[]) ${ANSWER} LANGUAGE plpgsql ${SETTINGS} AS $$
#variable_conflict use_column
DECLARE v_done uuid[];
BEGIN
  WITH k AS MATERIALIZED (
    SELECT l.* FROM unnest(p_ids, p_attempts, p_epochs) u(id, att, ep)
    CROSS JOIN LATERAL (
      SELECT ctid AS address, * FROM ff_lease WHERE execution_id = u.id AND attempt_index = u.att
        AND lease_epoch = u.ep AND expires_at_ms > ff_now_ms() FOR UPDATE) l),
  ended AS (UPDATE ${STATE} SET ${moved('complete')}, attempt_state = 'attempt_terminal'
    WHERE execution_id = ANY (ARRAY(SELECT execution_id FROM k))),
  unleased AS (DELETE FROM ff_lease WHERE ctid = ANY (ARRAY(SELECT address FROM k))),
  ${COMPLETED_ROWS}
  SELECT array_agg(execution_id) INTO v_done FROM k;
  ${answerHolder('complete', 'completed')}
END $$`;

/** Updates straight from the array and deletes the leases of the updated rows; the expiry is read before any wait. */
const COMPLETE_BY_JOIN = `
CREATE FUNCTION naive_complete_by_join(${HOLDER}, p_results jsonb[]) ${ANSWER} LANGUAGE plpgsql ${SETTINGS} AS $$
#variable_conflict use_column
DECLARE v_done uuid[];
BEGIN
  WITH ended AS (
    UPDATE ${STATE} e SET ${moved('complete')}, attempt_state = 'attempt_terminal'
    FROM (SELECT * FROM unnest(p_ids, p_attempts, p_epochs) u(id, att, ep) OFFSET 0) u
    WHERE e.execution_id = u.id AND e.lifecycle_phase = 'active' AND e.attempt_index = u.att AND e.lease_epoch = u.ep
      AND (SELECT l.expires_at_ms FROM ff_lease l WHERE l.execution_id = u.id) > ff_now_ms()
    RETURNING e.execution_id),
  k AS (DELETE FROM ff_lease l USING ended WHERE l.execution_id = ended.execution_id RETURNING l.*),
  ${COMPLETED_ROWS}
  SELECT array_agg(execution_id) INTO v_done FROM ended;
  ${answerHolder('complete', 'completed')}
END $$`;

/** Extends the lease by the ctid it was locked under, in the statement that locked it. */
const RENEW_BY_ADDRESS = `
CREATE FUNCTION naive_renew_by_address(${HOLDER}, p_lease_ms bigint) ${ANSWER} LANGUAGE plpgsql ${SETTINGS} AS $$
#variable_conflict use_column
DECLARE v_done uuid[];
BEGIN
  WITH k AS MATERIALIZED (
    SELECT l.*, ff_now_ms() AS now_ms FROM unnest(p_ids, p_attempts, p_epochs) u(id, att, ep)
    CROSS JOIN LATERAL (
      SELECT ctid AS address, * FROM ff_lease WHERE execution_id = u.id AND attempt_index = u.att
        AND lease_epoch = u.ep AND expires_at_ms > ff_now_ms() FOR UPDATE) l),
  extended AS (UPDATE ff_lease SET renewed_at_ms = (SELECT max(now_ms) FROM k),
                                   expires_at_ms = (SELECT max(now_ms) FROM k) + p_lease_ms
    WHERE ctid = ANY (ARRAY(SELECT address FROM k))),
  told AS (${EVENT} SELECT 'lease', 'renewed', now_ms, execution_id, partition_key, attempt_index, lease_epoch,
                           lease_id, namespace, tags, ${PLACE} FROM k)
  SELECT array_agg(execution_id) INTO v_done FROM k;
  ${answerHolder('renew', 'renewed')}
END $$`;

/** Locks, ends and removes the lease in one statement. */
const CANCEL_AT_ONCE = `
CREATE FUNCTION naive_cancel_at_once(p_ids uuid[], p_partitions smallint[], p_reason text, p_actor text) ${ANSWER}
LANGUAGE plpgsql ${SETTINGS} AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  WITH ended AS (
    UPDATE ${STATE} e SET ${moved('cancel')}, lease_epoch = lease_epoch + 1,
      attempt_state = CASE attempt_state WHEN 'pending_first_attempt' THEN attempt_state ELSE 'attempt_terminal' END
    FROM (SELECT unnest(p_ids) AS id OFFSET 0) u
    WHERE e.execution_id = u.id AND e.lifecycle_phase <> 'terminal' RETURNING e.*),
  unleased AS (DELETE FROM ff_lease l USING ended WHERE l.execution_id = ended.execution_id RETURNING l.*),
  result AS (INSERT INTO ff_outcome (execution_id, ended_at_ms, attempt_index, outcome, partition_key, namespace)
    SELECT execution_id, ff_now_ms(), attempt_index, 'cancelled', partition_key, namespace FROM ended),
  told AS (${EVENT}
    SELECT 'lease'::ff_event_family, 'revoked', ff_now_ms(), execution_id, partition_key, attempt_index, lease_epoch,
           lease_id, namespace, tags, ${PLACE} FROM unleased
    UNION ALL
    SELECT 'completion', 'cancelled', ff_now_ms(), e.execution_id, e.partition_key, e.attempt_index, e.lease_epoch - 1,
           l.lease_id, e.namespace, '{}', e.${PLACE} FROM ended e LEFT JOIN unleased l ON l.execution_id = e.execution_id)
  SELECT e.execution_id, 'cancelled', false, l.worker_instance_id
  FROM ended e LEFT JOIN unleased l ON l.execution_id = e.execution_id;
END $$`;

/** Trusts the expiry it reads before it has locked the lease. */
const LAPSE_BEFORE_LOCK = `
CREATE FUNCTION naive_lapse_before_lock(p_ids uuid[], p_partitions smallint[], p_epochs bigint[]) ${ANSWER}
LANGUAGE plpgsql ${SETTINGS} AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  WITH late AS (
    SELECT l.* FROM unnest(p_ids, p_epochs) u(id, ep)
    JOIN ff_lease l ON l.execution_id = u.id AND l.lease_epoch = u.ep AND l.expires_at_ms <= ff_now_ms()),
  freed AS (
    UPDATE ${STATE} e SET ${moved('lapse')}, attempt_state = 'pending_retry_attempt', lease_epoch = e.lease_epoch + 1,
      attempt_index = e.attempt_index + 1, retry_count = e.retry_count + 1, reclaim_count = e.reclaim_count + 1
    FROM late WHERE e.execution_id = late.execution_id AND e.lifecycle_phase = 'active'
      AND e.lease_epoch = late.lease_epoch RETURNING e.*),
  unleased AS (DELETE FROM ff_lease l USING freed
    WHERE l.execution_id = freed.execution_id AND l.expires_at_ms <= ff_now_ms() RETURNING l.*),
  queued AS (INSERT INTO ff_ready (execution_id, lease_epoch, ready_at_ms, route_id, priority, attempt_index, partition_key)
    SELECT execution_id, lease_epoch, ff_now_ms(), route_id, priority, attempt_index, partition_key FROM freed),
  tried AS (INSERT INTO ff_attempt_history (execution_id, lease_id, lease_epoch, started_at_ms, ended_at_ms,
      attempt_index, outcome, partition_key, interrupted_by)
    SELECT execution_id, lease_id, lease_epoch, acquired_at_ms, ff_now_ms(), attempt_index, 'interrupted', partition_key,
           'expired' FROM unleased),
  told AS (${EVENT} SELECT 'lease', 'expired', ff_now_ms(), execution_id, partition_key, attempt_index, lease_epoch,
                           lease_id, namespace, tags, ${PLACE} FROM unleased)
  SELECT execution_id, 'lapsed', false, NULL::text FROM freed;
END $$`;

export const NAIVE_FUNCTIONS = [
  COMPLETE_BY_ADDRESS,
  COMPLETE_BY_JOIN,
  RENEW_BY_ADDRESS,
  CANCEL_AT_ONCE,
  LAPSE_BEFORE_LOCK,
];
