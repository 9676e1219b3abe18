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
  CASE WHEN o.terminal_outcome = 'cancelled' THEN o.failure_message END AS cancellation_reason,
  CASE WHEN o.terminal_outcome = 'cancelled' THEN o.ended_by END AS cancelled_by,
  e.priority,
  e.created_at_ms,
  e.started_at_ms,
  o.ended_at_ms AS terminal_at_ms,
  e.deadline_at_ms,
  CASE WHEN e.eligibility_state = 'not_eligible_until_time' THEN e.eligible_at_ms END AS delay_until_ms,
  -- Of an execution that redacts values, none is shown here, whichever of them it hides elsewhere.
  CASE WHEN e.traits & 8 = 0 THEN convert_to(nullif(ff_payload_of(e.payload, e.execution_id), 'null')::text, 'UTF8') END AS payload,
  CASE WHEN e.traits & 8 = 0 THEN convert_to(o.result::text, 'UTF8') END AS result,
  ff_policy_of(e.policy, e.policy_id) AS policy,
  e.reclaim_count AS lease_reclaim_count,
  jsonb_strip_nulls(jsonb_build_object(
    'namespace', e.namespace,
    'tags', e.tags,
    'retry_count', e.retry_count,
    'replay_count', e.replay_count,
    'last_failure_message', CASE WHEN e.traits & 8 = 0 OR a.outcome <> 'failed' THEN a.failure_message END)) AS raw_fields
FROM ff_execution e
JOIN ff_route r ON r.route_id = e.route_id
LEFT JOIN ff_attempt_history o ON e.lifecycle_phase = 'terminal' AND o.execution_id = e.execution_id
  AND o.partition_key = e.partition_key AND o.attempt_index = e.attempt_index
LEFT JOIN LATERAL (
  SELECT h.failure_message, h.outcome FROM ff_attempt_history h
  WHERE h.execution_id = e.execution_id AND h.partition_key = e.partition_key AND h.failure_message IS NOT NULL
    AND h.started_at_ms IS NOT NULL
  ORDER BY h.attempt_index DESC LIMIT 1) a ON true;

-- The leases there are: rows of executions and of the claims that granted them.
CREATE VIEW ff_lease AS
SELECT
  e.execution_id, e.partition_key, e.attempt_index, e.lease_epoch, ff_lease_id(e.execution_id, e.lease_epoch) AS lease_id,
  g.claim_id, g.worker_id, g.worker_instance_id, g.acquired_at_ms, e.lease_expires_at_ms AS expires_at_ms,
  e.attempt_started_at_ms
FROM ff_grant g
CROSS JOIN LATERAL unnest(g.execution_ids) x(id)
JOIN ff_execution e ON e.execution_id = x.id AND e.claim_no = g.claim_no;

-- A running attempt is its lease; an ended or paused one is its history row.
CREATE VIEW ff_attempt AS
SELECT
  e.partition_key, e.execution_id, e.attempt_index, g.worker_id, g.worker_instance_id,
  ff_lease_id(e.execution_id, e.lease_epoch) AS lease_id, e.lease_epoch,
  e.lease_expires_at_ms, e.attempt_started_at_ms AS started_at_ms, NULL::bigint AS terminal_at_ms,
  NULL::text AS outcome, ff_policy_of(e.policy, e.policy_id) AS policy, '{}'::jsonb AS raw_fields
FROM ff_execution e
JOIN ff_grant g ON g.claim_no = e.claim_no
UNION ALL
SELECT
  h.partition_key, h.execution_id, h.attempt_index, h.worker_id, h.worker_instance_id,
  CASE WHEN h.worker_instance_id IS NOT NULL THEN ff_lease_id(h.execution_id, h.lease_epoch) END, h.lease_epoch,
  NULL::bigint, h.started_at_ms, h.ended_at_ms, h.outcome::text, ff_policy_of(e.policy, e.policy_id),
  jsonb_strip_nulls(jsonb_build_object(
    'failure_message', CASE WHEN e.traits & 8 = 0 OR h.outcome <> 'failed' THEN h.failure_message END, 'failure_category', h.failure_category,
    'interrupted_by', h.interrupted_by, 'retry_at_ms', h.retry_at_ms))
FROM ff_attempt_history h
JOIN ff_execution e ON e.execution_id = h.execution_id AND e.partition_key = h.partition_key
WHERE h.started_at_ms IS NOT NULL AND (e.claim_no IS NULL OR e.attempt_index <> h.attempt_index);

-- Every event, with or without a position. The arrays are expanded together: by subscript each would be read again
-- from its start.
CREATE VIEW ff_event AS
SELECT
  p.ev_id, u.ordinal, p.xid, p.slot, p.family, coalesce(u.event_type, p.event_type) AS event_type, p.occurred_at_ms,
  coalesce(u.execution_id, p.execution_id) AS execution_id, coalesce(u.partition_key, p.partition_key) AS partition_key,
  coalesce(u.flow_id, p.flow_id) AS flow_id, coalesce(u.attempt_index, p.attempt_index) AS attempt_index,
  coalesce(u.lease_epoch, p.lease_epoch) AS lease_epoch,
  CASE WHEN p.family = 'lease' OR coalesce(u.worker_instance_id, p.worker_instance_id) IS NOT NULL
    THEN ff_lease_id(coalesce(u.execution_id, p.execution_id), coalesce(u.lease_epoch, p.lease_epoch)) END AS lease_id,
  coalesce(u.worker_instance_id, p.worker_instance_id) AS worker_instance_id,
  coalesce(u.namespace, p.namespace) AS namespace, coalesce(u.tags, p.tags) AS tags, coalesce(u.detail, p.detail) AS detail,
  coalesce(u.route_id, p.route_id) AS route_id
FROM ff_event_pack p
CROSS JOIN LATERAL ROWS FROM (
  generate_series(1, p.n), unnest(p.event_types), unnest(p.execution_ids), unnest(p.partition_keys), unnest(p.flow_ids),
  unnest(p.attempt_indexes), unnest(p.lease_epochs), unnest(p.worker_instance_ids),
  unnest(p.namespaces), unnest(p.tag_sets), unnest(p.details), unnest(p.route_ids)
) u(ordinal, event_type, execution_id, partition_key, flow_id, attempt_index, lease_epoch, worker_instance_id,
    namespace, tags, detail, route_id);

-- The position of the first event of each row that has positions.
CREATE VIEW ff_event_position AS
SELECT p.slot, p.ev_id, (r.seq_from + p.before)::bigint AS seq_from, r.stamped_at_ms
FROM ff_event_run r
CROSS JOIN LATERAL (
  SELECT e.slot, e.ev_id, sum(e.n) OVER (ORDER BY e.ev_id) - e.n AS before FROM ff_event_pack e
  WHERE e.slot = r.slot AND e.ev_id >= r.ev_from AND e.ev_id < r.ev_from + r.packs) p;

-- An event's id for readers is its position: the one thing they keep.
CREATE VIEW ff_lease_event AS
SELECT
  o.seq_from + e.ordinal - 1 AS event_id, e.execution_id::text AS execution_id, e.lease_id::text AS lease_id,
  e.event_type, e.occurred_at_ms, e.partition_key::integer AS partition_key, e.namespace,
  e.tags ->> 'cairn.instance_id' AS instance_tag, e.attempt_index, e.lease_epoch, e.worker_instance_id,
  e.detail ->> 'previous_owner' AS previous_owner, e.detail ->> 'new_owner' AS new_owner,
  e.detail ->> 'revoked_by' AS revoked_by, e.tags
FROM ff_event_position o
JOIN ff_event e ON e.slot = o.slot AND e.ev_id = o.ev_id
WHERE e.family = 'lease';

CREATE VIEW ff_completion_event AS
SELECT
  e.partition_key, o.seq_from + e.ordinal - 1 AS event_id, e.execution_id, e.flow_id, e.event_type AS outcome,
  e.namespace, e.tags ->> 'cairn.instance_id' AS instance_tag, e.occurred_at_ms, o.stamped_at_ms AS committed_at_ms,
  NULL::bigint AS dispatched_at_ms, e.attempt_index, e.tags, e.detail -> 'end' AS carried_end
FROM ff_event_position o
JOIN ff_event e ON e.slot = o.slot AND e.ev_id = o.ev_id
WHERE e.family = 'completion';

-- What is written only about executions that ask for all events.
CREATE VIEW ff_execution_event AS
SELECT
  e.partition_key, o.seq_from + e.ordinal - 1 AS event_id, e.execution_id, e.flow_id, e.event_type, e.namespace,
  e.occurred_at_ms, o.stamped_at_ms AS committed_at_ms, e.attempt_index, e.lease_epoch, e.worker_instance_id, e.tags,
  e.detail
FROM ff_event_position o
JOIN ff_event e ON e.slot = o.slot AND e.ev_id = o.ev_id
WHERE e.family = 'execution';
