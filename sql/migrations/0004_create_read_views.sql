-- The read surface for SQL: the established names and columns over the tables that hold the facts.
-- Why:    people and tools read ff_exec_core and ff_attempt; the fast shape is another one.
-- Locks:  none, views only.
-- Breaking: no

CREATE VIEW ff_exec_core AS
SELECT
  e.partition_key,
  e.execution_id,
  e.flow_id,
  r.lane AS lane_id,
  r.kind AS execution_kind,
  r.capabilities AS required_capabilities,
  e.attempt_index,
  e.lifecycle_phase::text AS lifecycle_phase,
  e.ownership_state::text AS ownership_state,
  e.eligibility_state::text AS eligibility_state,
  ff_public_state(e.lifecycle_phase, e.eligibility_state, e.terminal_outcome, e.eligible_at_ms, ff_now_ms())
    AS public_state,
  e.attempt_state::text AS attempt_state,
  e.blocking_reason::text AS blocking_reason,
  e.terminal_outcome::text AS terminal_outcome,
  CASE WHEN o.outcome = 'cancelled' THEN o.failure_message END AS cancellation_reason,
  CASE WHEN o.outcome = 'cancelled' THEN o.ended_by END AS cancelled_by,
  e.priority,
  e.created_at_ms,
  e.started_at_ms,
  o.ended_at_ms AS terminal_at_ms,
  e.deadline_at_ms,
  CASE WHEN e.eligibility_state = 'not_eligible_until_time' THEN e.eligible_at_ms END AS delay_until_ms,
  convert_to(b.payload::text, 'UTF8') AS payload,
  convert_to(o.result::text, 'UTF8') AS result,
  b.policy,
  e.reclaim_count AS lease_reclaim_count,
  jsonb_strip_nulls(jsonb_build_object(
    'namespace', e.namespace,
    'tags', b.tags,
    'retry_count', e.retry_count,
    'replay_count', e.replay_count,
    'last_failure_message', a.failure_message)) AS raw_fields
FROM ff_execution e
JOIN ff_route r ON r.route_id = e.route_id
JOIN ff_body b ON b.execution_id = e.execution_id AND b.partition_key = e.partition_key
LEFT JOIN ff_outcome o ON e.lifecycle_phase = 'terminal' AND o.execution_id = e.execution_id
  AND o.partition_key = e.partition_key AND o.attempt_index = e.attempt_index
LEFT JOIN LATERAL (
  SELECT h.failure_message FROM ff_attempt_history h
  WHERE h.execution_id = e.execution_id AND h.partition_key = e.partition_key AND h.failure_message IS NOT NULL
  ORDER BY h.attempt_index DESC LIMIT 1) a ON true;

-- A running attempt is its lease; an ended or paused one is its history row.
CREATE VIEW ff_attempt AS
SELECT
  l.partition_key, l.execution_id, l.attempt_index, l.worker_id, l.worker_instance_id, l.lease_id, l.lease_epoch,
  l.expires_at_ms AS lease_expires_at_ms, l.attempt_started_at_ms AS started_at_ms, NULL::bigint AS terminal_at_ms,
  NULL::text AS outcome, b.policy, '{}'::jsonb AS raw_fields
FROM ff_lease l
JOIN ff_body b ON b.execution_id = l.execution_id AND b.partition_key = l.partition_key
UNION ALL
SELECT
  h.partition_key, h.execution_id, h.attempt_index, h.worker_id, h.worker_instance_id, h.lease_id, h.lease_epoch,
  NULL::bigint, h.started_at_ms, h.ended_at_ms, h.outcome::text, b.policy,
  jsonb_strip_nulls(jsonb_build_object(
    'failure_message', h.failure_message, 'failure_category', h.failure_category,
    'interrupted_by', h.interrupted_by, 'retry_at_ms', h.retry_at_ms))
FROM ff_attempt_history h
JOIN ff_body b ON b.execution_id = h.execution_id AND b.partition_key = h.partition_key
WHERE NOT EXISTS (
  SELECT 1 FROM ff_lease l
  WHERE l.execution_id = h.execution_id AND l.partition_key = h.partition_key AND l.attempt_index = h.attempt_index);

-- An event's id for readers is its position: the one thing they keep.
CREATE VIEW ff_lease_event AS
SELECT
  r.seq_from + (e.ev_id - r.ev_from) AS event_id, e.execution_id::text AS execution_id, e.lease_id::text AS lease_id,
  e.event_type, e.occurred_at_ms, e.partition_key::integer AS partition_key, e.namespace,
  e.tags ->> 'cairn.instance_id' AS instance_tag, e.attempt_index, e.lease_epoch, e.worker_instance_id,
  e.detail ->> 'previous_owner' AS previous_owner, e.detail ->> 'new_owner' AS new_owner,
  e.detail ->> 'revoked_by' AS revoked_by, e.tags
FROM ff_event_run r
JOIN ff_event e ON e.slot = r.slot AND e.ev_id >= r.ev_from AND e.ev_id < r.ev_from + r.n
WHERE e.family = 'lease';

CREATE VIEW ff_completion_event AS
SELECT
  e.partition_key, r.seq_from + (e.ev_id - r.ev_from) AS event_id, e.execution_id, e.flow_id, e.event_type AS outcome,
  e.namespace, e.tags ->> 'cairn.instance_id' AS instance_tag, e.occurred_at_ms, r.stamped_at_ms AS committed_at_ms,
  NULL::bigint AS dispatched_at_ms, e.attempt_index, e.tags
FROM ff_event_run r
JOIN ff_event e ON e.slot = r.slot AND e.ev_id >= r.ev_from AND e.ev_id < r.ev_from + r.n
WHERE e.family = 'completion';
