/**
 * What families do in the simpler forms one would write first. For tests only, like executions/naive-functions.ts.
 */
const SETTINGS = 'SET enable_seqscan = off SET search_path FROM CURRENT';

/** Takes the timer for an order, and ends all children whatever has become of their parent. */
const END_BY_ORDER = `
CREATE FUNCTION naive_end_by_order(p_timer bigint, p_limit integer, p_examined integer, p_keep_ms bigint, p_held_ms bigint)
RETURNS TABLE (execution_id uuid, outcome text, route_id integer, worker_instance_id text) LANGUAGE plpgsql ${SETTINGS} AS $$
#variable_conflict use_column
DECLARE
  t ff_timer%ROWTYPE;
  v_open uuid[];
BEGIN
  SELECT * INTO t FROM ff_timer WHERE timer_id = p_timer FOR UPDATE SKIP LOCKED;
  v_open := ARRAY(
    SELECT execution_id FROM ff_execution WHERE parent_id = t.execution_id AND lifecycle_phase <> 'terminal' ORDER BY 1);
  RETURN QUERY SELECT c.execution_id, c.outcome, NULL::integer, c.worker_instance_id
  FROM ff_cancel(v_open, ARRAY(SELECT t.partition_key FROM unnest(v_open)), 'parent_ended', 'engine',
    p_category => 'parent_ended') c;
  DELETE FROM ff_timer WHERE timer_id = p_timer;
END $$`;

/** Checks the lease and does not keep it from ending. */
const SPAWN_UNLOCKED = `
CREATE FUNCTION naive_spawn_unlocked(
  p_parent uuid, p_partition smallint, p_attempt integer, p_epoch bigint, p_routes jsonb,
  p_templates jsonb, p_ids uuid[], p_partitions smallint[], p_template_ordinals integer[], p_delays bigint[],
  p_payloads jsonb[])
RETURNS TABLE (execution_id uuid, outcome text, route_id integer) LANGUAGE plpgsql ${SETTINGS} AS $$
#variable_conflict use_column
BEGIN
  PERFORM 1 FROM ff_execution WHERE execution_id = p_parent AND attempt_index = p_attempt AND lease_epoch = p_epoch
    AND claim_no IS NOT NULL AND traits & 4 <> 0;
  IF NOT FOUND THEN
    -- It marks the parent, or says why not.
    RETURN QUERY SELECT s.execution_id, s.outcome, s.route_id FROM ff_spawn(p_parent, p_partition, p_attempt, p_epoch, p_routes,
      p_templates, p_ids, p_partitions, p_template_ordinals, p_delays, p_payloads) s;
    RETURN;
  END IF;
  RETURN QUERY SELECT s.execution_id, s.outcome, s.route_id
  FROM ff_submit(p_routes, p_templates, p_ids, p_partitions, p_template_ordinals, p_delays, p_payloads, NULL, p_parent,
    p_spawn_place => 0) s;
END $$`;

export const NAIVE_FAMILIES = [END_BY_ORDER, SPAWN_UNLOCKED];
