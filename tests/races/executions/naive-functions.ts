/**
 * The engine's functions in the simpler forms one would write first. Alone each works; against another session each
 * breaks in its own way, which is why the engine's functions are written as they are. For tests only: they are created
 * in a test database beside the real ones and take the same arguments.
 */

// The engine's table, written here directly.
const STATE = 'ff_execution';

const VECTOR = 'lifecycle_phase, ownership_state, eligibility_state, blocking_reason, terminal_outcome';
const moved = (transition: string) =>
  `(${VECTOR}) = (SELECT ${VECTOR} FROM ff_transition WHERE transition = '${transition}')`;
/** An ended lease, and an attempt that no longer runs. */
const UNLEASED = 'claim_no = NULL, lease_expires_at_ms = NULL, attempt_started_at_ms = NULL';

const HOLDER = 'p_ids uuid[], p_partitions smallint[], p_attempts integer[], p_epochs bigint[]';
const ANSWER = 'RETURNS TABLE (execution_id uuid, outcome text, repeated boolean, worker_instance_id text)';
/** Joins follow the order of the array, so that the order of locks does not depend on a plan. */
const SETTINGS = `SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_material = off
  SET search_path FROM CURRENT`;

const BY_EPOCH = 'ff_lease_id(execution_id, lease_epoch)';
/** Writes an event about each row of a set; `lease` and `at` are the SQL of the lease's id and of the time. */
const tell = (
  family: string,
  type: string,
  rows: string,
  { lease = BY_EPOCH, at = 'v_now' }: { lease?: string; at?: string } = {},
) =>
  `SELECT ff_log_events('${family}', ${at}, count(*), ARRAY['${type}'], array_agg(execution_id), array_agg(partition_key),
     array_agg(attempt_index), array_agg(lease_epoch), array_agg(CASE WHEN ${lease} IS NOT NULL THEN 'naive' END), array_agg(namespace), array_agg(tags), NULL,
     array_agg(route_id), array_agg(flow_id)) AS n
   FROM ${rows} HAVING count(*) > 0`;

/** The rows a completion writes, from a set k of leases as they were. */
const COMPLETED_ROWS = `
  tried AS (INSERT INTO ff_attempt_history (execution_id, lease_epoch, started_at_ms, ended_at_ms,
      attempt_index, outcome, terminal_outcome, partition_key, namespace)
    SELECT execution_id, lease_epoch, 0, ff_now_ms(), attempt_index, 'success', 'success', partition_key, namespace FROM k),
  told AS MATERIALIZED (${tell('completion', 'success', 'k')})
  SELECT array_agg(execution_id), (SELECT n FROM told) INTO v_done, v_told FROM k;`;

const answerHolder = (verb: string, word: string) => `
  RETURN QUERY SELECT id, '${word}', false, NULL::text FROM unnest(v_done) id;
  RETURN QUERY SELECT r.execution_id, r.outcome, r.repeated, NULL::text
    FROM ff_refusals('${verb}', p_ids, p_partitions, p_attempts, p_epochs, v_done) r;`;

/** The leases of the caller, locked in the order of the array. */
const LOCKED = `
  k AS MATERIALIZED (
    SELECT e.*, ff_now_ms() AS now_ms FROM unnest(p_ids, p_attempts, p_epochs) u(id, att, ep)
    CROSS JOIN LATERAL (
      SELECT ctid AS address, * FROM ${STATE} WHERE execution_id = u.id AND attempt_index = u.att
        AND lease_epoch = u.ep AND claim_no IS NOT NULL AND lease_expires_at_ms > ff_now_ms() FOR UPDATE) e)`;

/** Ends the lease by the ctid of the row it locked, in the statement that locked it. */
const COMPLETE_BY_ADDRESS = `
CREATE FUNCTION naive_complete_by_address(${HOLDER}, p_results jsonb[]) ${ANSWER} LANGUAGE plpgsql ${SETTINGS} AS $$
#variable_conflict use_column
DECLARE v_done uuid[]; v_told bigint; v_now bigint := ff_now_ms();
BEGIN
  WITH ${LOCKED},
  ended AS (UPDATE ${STATE} SET ${moved('complete')}, attempt_state = 'attempt_terminal', ${UNLEASED}
    WHERE ctid = ANY (ARRAY(SELECT address FROM k))),
  ${COMPLETED_ROWS}
  ${answerHolder('complete', 'completed')}
END $$`;

/** Updates straight from the array; the expiry is read before any wait. */
const COMPLETE_BY_JOIN = `
CREATE FUNCTION naive_complete_by_join(${HOLDER}, p_results jsonb[]) ${ANSWER} LANGUAGE plpgsql ${SETTINGS} AS $$
#variable_conflict use_column
DECLARE v_done uuid[]; v_told bigint; v_now bigint := ff_now_ms();
BEGIN
  WITH k AS (
    UPDATE ${STATE} e SET ${moved('complete')}, attempt_state = 'attempt_terminal', ${UNLEASED}
    FROM (SELECT * FROM unnest(p_ids, p_attempts, p_epochs) u(id, att, ep) OFFSET 0) u
    WHERE e.execution_id = u.id AND e.lifecycle_phase = 'active' AND e.attempt_index = u.att AND e.lease_epoch = u.ep
      AND e.lease_expires_at_ms > ff_now_ms()
    RETURNING e.*),
  ${COMPLETED_ROWS}
  ${answerHolder('complete', 'completed')}
END $$`;

/** Extends the lease by the ctid of the row it locked, in the statement that locked it. */
const RENEW_BY_ADDRESS = `
CREATE FUNCTION naive_renew_by_address(${HOLDER}, p_lease_ms bigint) ${ANSWER} LANGUAGE plpgsql ${SETTINGS} AS $$
#variable_conflict use_column
DECLARE v_done uuid[]; v_told bigint;
BEGIN
  WITH ${LOCKED},
  extended AS (UPDATE ${STATE} SET lease_expires_at_ms = (SELECT max(now_ms) FROM k) + p_lease_ms
    WHERE ctid = ANY (ARRAY(SELECT address FROM k))),
  told AS MATERIALIZED (${tell('lease', 'renewed', 'k', { at: 'max(now_ms)' })})
  SELECT array_agg(execution_id), (SELECT n FROM told) INTO v_done, v_told FROM k;
  ${answerHolder('renew', 'renewed')}
END $$`;

/** Waits for whoever has locked an execution, and has decided before that the lease is alive. */
const RENEW_IN_PLACE = `
CREATE FUNCTION naive_renew_in_place(${HOLDER}, p_lease_ms bigint) ${ANSWER} LANGUAGE plpgsql ${SETTINGS} AS $$
#variable_conflict use_column
DECLARE v_done uuid[]; v_told bigint; v_now bigint := ff_now_ms();
BEGIN
  WITH k AS (
    UPDATE ${STATE} e SET lease_expires_at_ms = v_now + p_lease_ms
    FROM (SELECT * FROM unnest(p_ids, p_attempts, p_epochs) u(id, att, ep) ORDER BY id OFFSET 0) u
    WHERE e.execution_id = u.id AND e.attempt_index = u.att AND e.lease_epoch = u.ep
      AND e.lease_expires_at_ms > ff_now_ms() RETURNING e.*),
  told AS MATERIALIZED (${tell('lease', 'renewed', 'k')})
  SELECT array_agg(execution_id), (SELECT n FROM told) INTO v_done, v_told FROM k;
  ${answerHolder('renew', 'renewed')}
END $$`;

/** Locks the execution and looks for the claim that leased it in one statement. */
const CANCEL_AT_ONCE = `
CREATE FUNCTION naive_cancel_at_once(p_ids uuid[], p_partitions smallint[], p_reason text, p_actor text) ${ANSWER}
LANGUAGE plpgsql ${SETTINGS} AS $$
#variable_conflict use_column
DECLARE v_ended uuid[]; v_workers text[]; v_told bigint; v_now bigint := ff_now_ms();
BEGIN
  WITH k AS MATERIALIZED (
    SELECT e.*, g.worker FROM unnest(p_ids) u(id)
    CROSS JOIN LATERAL (
      SELECT * FROM ${STATE} WHERE execution_id = u.id AND lifecycle_phase <> 'terminal' FOR UPDATE) e
    LEFT JOIN LATERAL (
      SELECT x.worker_instance_id AS worker FROM ff_grant x WHERE x.claim_no = e.claim_no OFFSET 0) g ON true),
  ended AS (
    UPDATE ${STATE} SET ${moved('cancel')}, ${UNLEASED}, lease_epoch = lease_epoch + 1,
      attempt_state = CASE attempt_state WHEN 'pending_first_attempt' THEN attempt_state ELSE 'attempt_terminal' END
    WHERE execution_id = ANY (ARRAY(SELECT execution_id FROM k))),
  result AS (INSERT INTO ff_attempt_history (execution_id, lease_epoch, ended_at_ms, attempt_index, terminal_outcome,
      partition_key, namespace)
    SELECT execution_id, lease_epoch, ff_now_ms(), attempt_index, 'cancelled', partition_key, namespace FROM k),
  revoked AS MATERIALIZED (${tell('lease', 'revoked', 'k WHERE worker IS NOT NULL')}),
  told AS MATERIALIZED (${tell('completion', 'cancelled', '(SELECT k.* FROM k LEFT JOIN revoked ON true) k', {
    lease: `CASE WHEN worker IS NOT NULL THEN ${BY_EPOCH} END`,
  })})
  SELECT array_agg(execution_id), array_agg(worker), (SELECT n FROM told) INTO v_ended, v_workers, v_told FROM k;
  RETURN QUERY SELECT u.id, 'cancelled', false, u.worker FROM unnest(v_ended, v_workers) u(id, worker);
END $$`;

/** Trusts the expiry it reads before it has locked the execution. */
const LAPSE_BEFORE_LOCK = `
CREATE FUNCTION naive_lapse_before_lock(p_ids uuid[], p_partitions smallint[], p_epochs bigint[]) ${ANSWER}
LANGUAGE plpgsql ${SETTINGS} AS $$
#variable_conflict use_column
DECLARE v_done uuid[]; v_told bigint; v_now bigint := ff_now_ms();
BEGIN
  WITH late AS MATERIALIZED (
    SELECT e.* FROM unnest(p_ids, p_epochs) u(id, ep)
    JOIN ${STATE} e ON e.execution_id = u.id AND e.lease_epoch = u.ep AND e.lease_expires_at_ms <= ff_now_ms()),
  freed AS (
    UPDATE ${STATE} e SET ${moved('lapse')}, attempt_state = 'pending_retry_attempt', lease_epoch = e.lease_epoch + 1,
      attempt_index = e.attempt_index + 1, retry_count = e.retry_count + 1, ${UNLEASED}
    FROM late WHERE e.execution_id = late.execution_id AND e.lifecycle_phase = 'active'
      AND e.lease_epoch = late.lease_epoch RETURNING e.*),
  k AS MATERIALIZED (
    SELECT late.* FROM late JOIN freed ON freed.execution_id = late.execution_id),
  queued AS (INSERT INTO ff_ready (execution_id, lease_epoch, ready_at_ms, route_id, priority, attempt_index, partition_key)
    SELECT execution_id, lease_epoch, ff_now_ms(), route_id, priority, attempt_index, partition_key FROM freed),
  tried AS (INSERT INTO ff_attempt_history (execution_id, lease_epoch, started_at_ms, ended_at_ms, attempt_index, outcome,
      partition_key, interrupted_by)
    SELECT execution_id, lease_epoch, 0, v_now, attempt_index, 'interrupted', partition_key, 'expired' FROM k),
  told AS MATERIALIZED (${tell('lease', 'expired', 'k')})
  SELECT array_agg(execution_id), (SELECT n FROM told) INTO v_done, v_told FROM k;
  RETURN QUERY SELECT id, 'lapsed', false, NULL::text FROM unnest(v_done) id;
END $$`;

/** Takes what the queue names, without asking again once it has the execution. */
const CLAIM_BY_QUEUE = `
CREATE FUNCTION naive_claim_by_queue(
  p_routes integer[], p_ranks integer[], p_afters bigint[], p_limit integer, p_worker_id text, p_worker_instance_id text,
  p_claim_id uuid, p_lease_ms bigint
) RETURNS TABLE (execution_id uuid, attempt_index integer, lease_epoch bigint, reclaimed boolean) LANGUAGE plpgsql ${SETTINGS} AS $$
#variable_conflict use_column
DECLARE
  v_now bigint := ff_now_ms();
  v_claim bigint := nextval('ff_grant_claim_no_seq');
  v_ids uuid[] := ARRAY(SELECT execution_id FROM ff_ready WHERE route_id = p_routes[1] ORDER BY -priority, seq LIMIT p_limit);
BEGIN
  RETURN QUERY
  WITH k AS (
    UPDATE ${STATE} SET ${moved('claim')}, attempt_state = 'running_attempt', lease_epoch = lease_epoch + 1, claim_no = v_claim,
      lease_expires_at_ms = v_now + p_lease_ms, attempt_started_at_ms = v_now
    WHERE execution_id = ANY (v_ids) RETURNING *),
  unqueued AS (DELETE FROM ff_ready WHERE execution_id = ANY (v_ids)),
  noted AS (
    INSERT INTO ff_grant (claim_no, claim_id, acquired_at_ms, look_at_ms, lease_ms, worker_id, worker_instance_id, execution_ids)
    SELECT v_claim, p_claim_id, v_now, v_now + p_lease_ms, p_lease_ms, p_worker_id, p_worker_instance_id,
           array_agg(execution_id) FROM k HAVING count(*) > 0),
  told AS MATERIALIZED (${tell('lease', 'acquired', 'k')})
  SELECT execution_id, attempt_index, lease_epoch, false FROM k LEFT JOIN told ON true;
END $$`;

/** Removes claims by their age, as if no lease were ever renewed. */
const SWEEP_BY_AGE = `
CREATE FUNCTION naive_sweep_by_age(p_after_ms bigint, p_after bigint, p_limit integer) RETURNS integer LANGUAGE plpgsql ${SETTINGS} AS $$
BEGIN
  DELETE FROM ff_grant WHERE acquired_at_ms + lease_ms <= ff_now_ms();
  RETURN 0;
END $$`;

/** Lets go of every claim it has looked into until its leases would lapse if they were renewed now. */
const SWEEP_BY_RENEWAL = `
CREATE FUNCTION naive_sweep_by_renewal(p_after_ms bigint, p_after bigint, p_limit integer) RETURNS integer LANGUAGE plpgsql ${SETTINGS} AS $$
BEGIN
  DELETE FROM ff_grant g WHERE look_at_ms <= ff_now_ms() AND NOT EXISTS (
    SELECT FROM ${STATE} e WHERE e.execution_id = ANY (g.execution_ids) AND e.claim_no = g.claim_no);
  UPDATE ff_grant SET look_at_ms = ff_now_ms() + lease_ms WHERE look_at_ms <= ff_now_ms();
  RETURN 0;
END $$`;

export const NAIVE_FUNCTIONS = [
  COMPLETE_BY_ADDRESS,
  COMPLETE_BY_JOIN,
  RENEW_BY_ADDRESS,
  RENEW_IN_PLACE,
  CANCEL_AT_ONCE,
  LAPSE_BEFORE_LOCK,
  CLAIM_BY_QUEUE,
  SWEEP_BY_AGE,
  SWEEP_BY_RENEWAL,
];
