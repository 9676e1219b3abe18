-- Deletes what has been kept long enough. Never waits: rows locked by another transaction are left for the next pass,
-- so a replay that came first keeps its execution.

-- Deletes executions with everything that belongs to them. p_retain_ms: how long executions without a retention of
-- their own are kept, NULL for ever; members of a flow are kept after its end as long as the longest of them asks for.
-- An execution that must stay (its parent exists and may be replayed, it was replayed itself, or its flow has not been
-- over long enough) is checked again after p_again_ms, so that it does not block those after it. One with many frames
-- is deleted in several passes.
CREATE OR REPLACE FUNCTION ff_forget(
  p_ids uuid[], p_partitions smallint[], p_retain_ms bigint, p_again_ms bigint
) RETURNS TABLE (execution_id uuid, outcome text) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_now bigint := ff_now_ms();
  v_locked uuid[];
  v_gone uuid[];
  v_kept uuid[];
  v_begun uuid[];
  v_flows uuid[];
  v_deleted bigint;
  -- Per transaction.
  c_frames CONSTANT integer := 50000;
BEGIN
  PERFORM ff_require_read_committed();
  SELECT array_agg(e.execution_id) INTO v_locked
  FROM (SELECT * FROM unnest(p_ids, p_partitions) u(id, part) ORDER BY id OFFSET 0) u
  CROSS JOIN LATERAL (
    SELECT execution_id FROM ff_execution WHERE execution_id = u.id AND partition_key = u.part
    FOR UPDATE SKIP LOCKED) e;
  IF v_locked IS NULL THEN RETURN; END IF;
  v_locked := ff_lock_forgotten_keys(v_locked);
  -- Only flows nobody is changing: a transaction that changes one may wait for the locks taken here.
  v_flows := ARRAY(
    SELECT f.flow_id FROM (
      SELECT DISTINCT e.flow_id FROM unnest(v_locked) u(id)
      CROSS JOIN LATERAL (SELECT flow_id FROM ff_execution WHERE execution_id = u.id OFFSET 0) e
      WHERE e.flow_id IS NOT NULL ORDER BY 1 OFFSET 0) m
    CROSS JOIN LATERAL (SELECT flow_id FROM ff_flow WHERE flow_id = m.flow_id FOR UPDATE SKIP LOCKED) f);
  WITH decided AS MATERIALIZED (
    SELECT e.execution_id,
           e.lifecycle_phase = 'terminal' AND p.execution_id IS NULL
             AND coalesce(CASE WHEN e.flow_id IS NULL THEN o.ended_at_ms + coalesce(o.retain_ms, p_retain_ms)
                               WHEN e.flow_id = ANY (v_flows) THEN f.ended_at_ms + greatest(f.retain_ms, p_retain_ms) END <= v_now, false) AS over
    FROM unnest(v_locked) u(id)
    CROSS JOIN LATERAL (
      SELECT execution_id, partition_key, attempt_index, lifecycle_phase, parent_id, flow_id
      FROM ff_execution WHERE execution_id = u.id OFFSET 0) e
    LEFT JOIN LATERAL (SELECT ended_at_ms, retain_ms FROM ff_flow_progress WHERE flow_id = e.flow_id OFFSET 0) f ON true
    LEFT JOIN LATERAL (
      SELECT ended_at_ms, retain_ms FROM ff_attempt_history WHERE execution_id = e.execution_id
        AND partition_key = e.partition_key AND attempt_index = e.attempt_index OFFSET 0) o ON true
    LEFT JOIN LATERAL (SELECT execution_id FROM ff_execution WHERE execution_id = e.parent_id OFFSET 0) p ON true)
  SELECT coalesce(array_agg(execution_id) FILTER (WHERE over), '{}'),
         coalesce(array_agg(execution_id) FILTER (WHERE NOT over), '{}')
  INTO v_gone, v_kept FROM decided;
  -- All rows in which it ever ended. CASE hides the condition from the planner, which would walk an index over it.
  UPDATE ff_attempt_history SET look_again_at_ms = v_now + p_again_ms
  WHERE execution_id = ANY (v_kept) AND CASE WHEN terminal_outcome IS NULL THEN false ELSE true END;
  -- By ctid: a frame is inserted and deleted under its execution's lock, and never updated.
  DELETE FROM ff_frame WHERE ctid = ANY (ARRAY(
    SELECT f.tid FROM unnest(v_gone) u(id)
    CROSS JOIN LATERAL (
      SELECT ctid AS tid FROM ff_frame WHERE execution_id = u.id ORDER BY attempt_index, ts_ms, seq LIMIT c_frames) f
    LIMIT c_frames));
  SELECT coalesce(array_agg(u.id) FILTER (WHERE f.is_left IS NULL), '{}'),
         coalesce(array_agg(u.id) FILTER (WHERE f.is_left), '{}')
  INTO v_gone, v_begun FROM unnest(v_gone) u(id)
  LEFT JOIN LATERAL (SELECT true AS is_left FROM ff_frame WHERE execution_id = u.id LIMIT 1) f ON true;
  UPDATE ff_attempt_history SET look_again_at_ms = v_now
  WHERE execution_id = ANY (v_begun) AND CASE WHEN terminal_outcome IS NULL THEN false ELSE true END;
  -- By ctid: a tag row is inserted and deleted under its execution's lock, and never updated.
  DELETE FROM ff_tag WHERE ctid = ANY (ARRAY(
    SELECT t.tid FROM unnest(v_gone) u(id)
    CROSS JOIN LATERAL (SELECT created_at_ms, tags FROM ff_execution WHERE execution_id = u.id OFFSET 0) e
    CROSS JOIN LATERAL jsonb_each_text(e.tags) g
    CROSS JOIN LATERAL (
      SELECT ctid AS tid FROM ff_tag WHERE tag_key = g.key AND tag_value = g.value
        AND created_at_ms = e.created_at_ms AND execution_id = u.id OFFSET 0) t));
  DELETE FROM ff_key WHERE execution_id = ANY (v_gone);
  DELETE FROM ff_topic_seen WHERE execution_id = ANY (v_gone);
  PERFORM ff_forget_members(v_gone);
  DELETE FROM ff_stream_summary WHERE execution_id = ANY (v_gone);
  DELETE FROM ff_stream_meta WHERE execution_id = ANY (v_gone);
  DELETE FROM ff_timer WHERE kind = 'waitpoint' AND execution_id = ANY (v_gone);
  DELETE FROM ff_signal WHERE execution_id = ANY (v_gone);
  DELETE FROM ff_message WHERE execution_id = ANY (v_gone);
  DELETE FROM ff_run WHERE execution_id = ANY (v_gone);
  DELETE FROM ff_mailbox WHERE execution_id = ANY (v_gone);
  DELETE FROM ff_waitpoint WHERE execution_id = ANY (v_gone);
  DELETE FROM ff_step WHERE execution_id = ANY (v_gone);
  DELETE FROM ff_end_order WHERE execution_id = ANY (v_gone);
  DELETE FROM ff_generation WHERE execution_id = ANY (v_gone);
  DELETE FROM ff_progress WHERE execution_id = ANY (v_gone);
  DELETE FROM ff_child_wait WHERE execution_id = ANY (v_gone);
  DELETE FROM ff_attempt_history WHERE execution_id = ANY (v_gone);
  DELETE FROM ff_setback WHERE execution_id = ANY (v_gone);
  DELETE FROM ff_payload WHERE execution_id = ANY (v_gone);
  DELETE FROM ff_execution WHERE execution_id = ANY (v_gone);
  GET DIAGNOSTICS v_deleted = ROW_COUNT;
  PERFORM ff_require_equal('forgotten executions', cardinality(v_gone), v_deleted);
  RETURN QUERY SELECT id, 'forgotten' FROM unnest(v_gone) id UNION ALL SELECT id, 'kept' FROM unnest(v_kept) id
    UNION ALL SELECT id, 'begun' FROM unnest(v_begun) id;
END $$;

-- Deletes members of finished flows with their edges, and a flow with its last member.
CREATE OR REPLACE FUNCTION ff_forget_members(p_ids uuid[]) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_flows uuid[];
BEGIN
  DELETE FROM ff_edge WHERE upstream_eid = ANY (p_ids);
  DELETE FROM ff_edge WHERE edge_id = ANY (ARRAY(
    SELECT x.edge_id FROM unnest(p_ids) u(id)
    CROSS JOIN LATERAL (SELECT edge_id FROM ff_edge WHERE downstream_eid = u.id OFFSET 0) x));
  DELETE FROM ff_edge_group WHERE downstream_eid = ANY (p_ids);
  WITH gone AS (DELETE FROM ff_member WHERE execution_id = ANY (p_ids) RETURNING flow_id)
  SELECT array_agg(DISTINCT flow_id) INTO v_flows FROM gone;
  -- Of two transactions deleting the last members, the later sees that the other's are gone.
  PERFORM 1 FROM (SELECT unnest(v_flows) AS id ORDER BY 1 OFFSET 0) u
  CROSS JOIN LATERAL (SELECT 1 FROM ff_flow_progress WHERE flow_id = u.id FOR UPDATE) p;
  v_flows := ARRAY(
    SELECT u.id FROM unnest(v_flows) u(id)
    LEFT JOIN LATERAL (SELECT 1 AS found FROM ff_member WHERE flow_id = u.id LIMIT 1) m ON true WHERE m.found IS NULL);
  DELETE FROM ff_cancel_backlog WHERE flow_id = ANY (v_flows);
  DELETE FROM ff_flow_progress WHERE flow_id = ANY (v_flows);
  DELETE FROM ff_flow WHERE flow_id = ANY (v_flows);
END $$;

-- Deletes expired idempotency keys; returns how many. A key whose execution has not ended is kept for p_again_ms more,
-- so that it does not block those that can go.
CREATE OR REPLACE FUNCTION ff_forget_keys(p_limit integer, p_again_ms bigint) RETURNS bigint LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_now bigint := ff_now_ms();
  v_namespaces text[];
  v_keys text[];
  v_partitions smallint[];
  v_gone tid[];
  v_kept tid[];
BEGIN
  PERFORM ff_require_read_committed();
  SELECT array_agg(namespace), array_agg(key), array_agg(partition_key) INTO v_namespaces, v_keys, v_partitions
  FROM (SELECT namespace, key, partition_key FROM ff_idempotency WHERE expires_at_ms <= v_now
        ORDER BY expires_at_ms LIMIT p_limit FOR UPDATE SKIP LOCKED) k;
  -- Read again in a later statement than the one that locked them: these versions count.
  SELECT array_agg(i.tid) FILTER (WHERE coalesce(e.lifecycle_phase, 'terminal') = 'terminal'),
         array_agg(i.tid) FILTER (WHERE e.lifecycle_phase <> 'terminal')
  INTO v_gone, v_kept
  FROM unnest(v_namespaces, v_keys, v_partitions) u(n, k, part)
  CROSS JOIN LATERAL (
    SELECT ctid AS tid, execution_id FROM ff_idempotency
    WHERE namespace = u.n AND key = u.k AND partition_key = u.part AND expires_at_ms <= v_now OFFSET 0) i
  LEFT JOIN LATERAL (
    SELECT lifecycle_phase FROM ff_execution WHERE execution_id = i.execution_id OFFSET 0) e ON true;
  UPDATE ff_idempotency SET expires_at_ms = v_now + p_again_ms WHERE ctid = ANY (v_kept);
  DELETE FROM ff_idempotency WHERE ctid = ANY (v_gone);
  RETURN coalesce(cardinality(v_gone), 0);
END $$;

-- Whether a slot of the log contains events.
CREATE OR REPLACE FUNCTION ff_slot_is_used(p_slot integer) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
  PERFORM 1 FROM ff_event_pack e WHERE e.slot = p_slot ORDER BY e.ev_id LIMIT 1;
  RETURN FOUND;
END $$;

-- Opens a new slot of the log when the current one has been written for its share of the event retention. Running
-- writers may still write to the old one: an event's slot only decides when it is dropped.
CREATE OR REPLACE FUNCTION ff_open_slot(p_retention_ms bigint) RETURNS boolean LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
BEGIN
  UPDATE ff_sequencer q SET slot = (q.slot + 1) % cardinality(q.emptied_to), opened_at_ms = ff_now_ms()
  WHERE q.opened_at_ms <= ff_now_ms() - p_retention_ms / (cardinality(q.emptied_to) - 1)
    AND ff_slot_is_used(q.slot) AND NOT ff_slot_is_used((q.slot + 1) % cardinality(q.emptied_to));
  RETURN FOUND;
END $$;

-- The slot of the log that may be dropped: not the current one, its last event assigned its position longer ago than
-- events are kept, and no consumer still needing it; a consumer is waited for at most p_grace_ms. Or one whose
-- positions have all been forgotten.
CREATE OR REPLACE FUNCTION ff_expired_slot(p_retention_ms bigint, p_grace_ms bigint)
RETURNS TABLE (slot smallint, last_position bigint) LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  SELECT k.slot, r.last_position
  FROM ff_sequencer q
  CROSS JOIN LATERAL generate_series(1, cardinality(q.emptied_to) - 1) i
  CROSS JOIN LATERAL (SELECT ((q.slot + i) % cardinality(q.emptied_to))::smallint AS slot OFFSET 0) k
  CROSS JOIN LATERAL (
    SELECT o.seq_from + o.n - 1 AS last_position, o.stamped_at_ms FROM ff_event_run o WHERE o.slot = k.slot
    ORDER BY o.seq_from DESC LIMIT 1) r
  WHERE ff_slot_is_used(k.slot)
    AND (r.last_position < q.floor_position
      OR r.stamped_at_ms <= ff_now_ms() - p_retention_ms
        AND (r.stamped_at_ms <= ff_now_ms() - p_retention_ms - p_grace_ms
          OR coalesce((SELECT min(c.position) FROM ff_consumer c), r.last_position) >= r.last_position))
  ORDER BY i LIMIT 1;
END $$;

-- Truncates one slot that may be dropped. Never waits long: a slot in use is left for the next pass. An uncommitted
-- writer holds a lock on it; committed events without a position keep it.
CREATE OR REPLACE FUNCTION ff_drop_slot(p_retention_ms bigint, p_grace_ms bigint) RETURNS boolean LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
DECLARE
  v_slot smallint;
  s ff_sequencer%ROWTYPE;
  v_found record;
  v_snap pg_snapshot;
BEGIN
  PERFORM ff_require_read_committed();
  SELECT slot INTO v_slot FROM ff_expired_slot(p_retention_ms, p_grace_ms);
  IF v_slot IS NULL THEN
    RETURN false;
  END IF;
  -- The table before the sequencer, the order in which positions are assigned too.
  PERFORM set_config('lock_timeout', '200ms', true);
  EXECUTE format('LOCK TABLE ff_event_%s IN ACCESS EXCLUSIVE MODE', v_slot);
  PERFORM 1 FROM ff_sequencer FOR UPDATE;
  SELECT * INTO STRICT s FROM ff_sequencer;
  SELECT * INTO v_found FROM ff_expired_slot(p_retention_ms, p_grace_ms);
  SELECT snap INTO STRICT v_snap FROM ff_event_run ORDER BY seq_from DESC LIMIT 1;
  -- Another server's transaction ids allow no judgement.
  IF v_found.slot IS DISTINCT FROM v_slot
     OR ff_log_change(s.identity, ff_server_identity(), v_snap, pg_current_snapshot()) <> 'none'
     OR EXISTS (
       SELECT 1 FROM ff_event_pack e
       WHERE e.slot = v_slot AND e.xid >= pg_snapshot_xmin(v_snap) AND e.ev_id > s.foreign_to_ev_id
         AND NOT pg_visible_in_snapshot(e.xid, v_snap)) THEN
    RETURN false;
  END IF;
  EXECUTE format('TRUNCATE ONLY ff_event_%s', v_slot);
  s.emptied_to[v_slot + 1] := v_found.last_position;
  UPDATE ff_sequencer SET floor_position = greatest(floor_position, v_found.last_position + 1), emptied_to = s.emptied_to;
  RETURN true;
EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
  RETURN false;
END $$;

-- Deletes one batch of runs whose events are gone; returns how many. Not the runs of an existing slot, which record
-- which of its events have a position. Nor the newest, which carries the snapshot.
CREATE OR REPLACE FUNCTION ff_forget_runs(p_limit integer) RETURNS integer LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
DECLARE
  s ff_sequencer%ROWTYPE;
  v_newest bigint;
  v_removed integer;
BEGIN
  SELECT * INTO STRICT s FROM ff_sequencer;
  SELECT seq_from INTO STRICT v_newest FROM ff_event_run ORDER BY seq_from DESC LIMIT 1;
  -- By ctid: a run is inserted and deleted, and never updated.
  DELETE FROM ff_event_run WHERE ctid = ANY (ARRAY(
    SELECT r.ctid FROM ff_event_run r
    WHERE r.seq_from < least(s.floor_position, v_newest) AND r.seq_from + r.n - 1 <= s.emptied_to[r.slot + 1]
    ORDER BY r.seq_from LIMIT p_limit));
  GET DIAGNOSTICS v_removed = ROW_COUNT;
  RETURN v_removed;
END $$;
