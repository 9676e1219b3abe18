/**
 * What flows do in the simpler forms one would write first: joins counted by whoever ends, without waiting for each
 * other, and losers stopped by a plain update. For tests only, like executions/naive-functions.ts.
 */
const SETTINGS = 'SET enable_seqscan = off SET search_path FROM CURRENT';

const COMPLETE_ARGUMENTS =
  'p_ids uuid[], p_partitions smallint[], p_attempts integer[], p_epochs bigint[], p_results jsonb[]';
const COMPLETE_ANSWER = `RETURNS TABLE (
  execution_id uuid, outcome text, repeated boolean, lifecycle_phase text, terminal_outcome text, lease_epoch bigint,
  attempt_index integer, route_id integer, retry_in_ms bigint)`;

/** Locks what it completes and nothing after it; checks whether it was the last before the join, and unblocks it. */
const COMPLETE_BY_COUNT = `
CREATE FUNCTION naive_complete_by_count(${COMPLETE_ARGUMENTS}) ${COMPLETE_ANSWER} LANGUAGE plpgsql ${SETTINGS} AS $$
#variable_conflict use_column
DECLARE
  v_rows ff_locked[];
  v_ready uuid[];
BEGIN
  v_rows := ff_lock_leased(p_ids, p_partitions, p_attempts, p_epochs);
  PERFORM ff_settle('complete', v_rows, NULL, p_results, NULL, NULL, NULL, p_flow => 'now');
  UPDATE ff_edge SET state = 'satisfied', resolved_at_ms = ff_now_ms(), is_counted = true WHERE upstream_eid = ANY (p_ids);
  v_ready := ARRAY(
    SELECT DISTINCT x.downstream_eid FROM ff_edge x WHERE x.upstream_eid = ANY (p_ids) AND NOT EXISTS (
      SELECT FROM ff_edge o WHERE o.downstream_eid = x.downstream_eid AND o.state = 'pending'));
  UPDATE ff_edge_group g SET success_count = (
      SELECT count(*) FROM ff_edge x WHERE x.downstream_eid = g.downstream_eid AND x.state = 'satisfied')
  WHERE downstream_eid IN (SELECT downstream_eid FROM ff_edge WHERE upstream_eid = ANY (p_ids));
  UPDATE ff_edge_group SET group_state = 'satisfied', decided_at_ms = ff_now_ms() WHERE downstream_eid = ANY (v_ready);
  PERFORM ff_settle('unblock', ff_unbegun_rows(v_ready, 'blocked_by_dependencies'), NULL, NULL, NULL, NULL, NULL);
  PERFORM ff_count_members(p_ids);
  RETURN QUERY
  SELECT id, 'unblocked', false, NULL::text, NULL::text, NULL::bigint, NULL::integer, NULL::integer, NULL::bigint
  FROM unnest(v_ready) id
  UNION ALL
  SELECT r.execution_id, 'completed', false, 'terminal', 'success', r.lease_epoch, r.attempt_index, r.route_id, NULL::bigint
  FROM unnest(v_rows) r;
END $$`;

/** Reads which losers have not ended, without locking them, and ends these rows; it ignores their leases. */
const STOP_BY_ROW = `
CREATE FUNCTION naive_stop_by_row(p_partition smallint, p_flow uuid, p_downstream uuid, p_limit integer)
RETURNS TABLE (execution_id uuid, outcome text, worker_instance_id text) LANGUAGE plpgsql ${SETTINGS} AS $$
#variable_conflict use_column
DECLARE
  v_losers ff_locked[];
BEGIN
  v_losers := ARRAY(
    SELECT ROW(1, e.execution_id, e.partition_key, e.route_id, e.priority, e.namespace, e.attempt_index, e.lease_epoch,
               e.retry_count, e.attempt_state, NULL::bigint, NULL::text, NULL::text, NULL::bigint, '{}'::jsonb, e.retain_ms,
               e.flow_id, e.attempt_paused, NULL::uuid, e.traits)::ff_locked
    FROM ff_edge_group g CROSS JOIN LATERAL unnest(g.cancel_siblings_pending_members) u(id)
    JOIN ff_execution e ON e.execution_id = u.id::uuid AND e.lifecycle_phase <> 'terminal'
    WHERE g.downstream_eid = p_downstream);
  PERFORM ff_settle('cancel', v_losers, NULL, NULL, NULL, NULL, 'engine');
  UPDATE ff_edge_group SET cancel_siblings_pending_flag = false, cancel_siblings_pending_members = '{}'
  WHERE downstream_eid = p_downstream;
  DELETE FROM ff_pending_cancel_groups WHERE downstream_eid = p_downstream;
  RETURN QUERY SELECT NULL::uuid, 'dispatched', NULL::text
  UNION ALL SELECT r.execution_id, 'cancelled', NULL FROM unnest(v_losers) r;
END $$`;

export const NAIVE_FLOWS = [COMPLETE_BY_COUNT, STOP_BY_ROW];
