-- Reading the event log by position.

-- The events after a position, in order. Examines at most p_examined events and returns at most p_limit that match; a
-- NULL filter matches everything. A last row without a family says how far it read, how many events it expected there
-- and how many it found: fewer means that the oldest part of the log was dropped meanwhile, or that something is
-- broken.
CREATE OR REPLACE FUNCTION ff_read_events(
  p_after bigint, p_examined integer, p_limit integer, p_families text[], p_types text[], p_namespace text, p_tags jsonb, p_kind text,
  p_lane text, p_execution uuid, p_flow uuid, p_partitions smallint[]
) RETURNS TABLE (
  event_id bigint, family text, event_type text, occurred_at_ms bigint, execution_id uuid, partition_key smallint,
  flow_id uuid, attempt_index integer, lease_epoch bigint, lease_id uuid, worker_instance_id text, namespace text,
  kind text, lane text, tags jsonb, detail jsonb, expected bigint, found bigint, floor_position bigint
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
BEGIN
  PERFORM ff_require_read_committed();
  RETURN QUERY
  WITH runs AS MATERIALIZED (
    SELECT r.seq_from, r.n, r.ev_from, r.slot, greatest(p_after + 1 - r.seq_from, 0) AS skipped
    FROM ff_event_run r
    -- When no run begins before it, this is the last position before a jump.
    WHERE r.seq_from >= coalesce((SELECT f.seq_from FROM ff_event_run f WHERE f.seq_from <= p_after + 1
                                  ORDER BY f.seq_from DESC LIMIT 1), 0)
      AND r.seq_from + r.n > p_after + 1
    ORDER BY r.seq_from LIMIT p_examined),
  measured AS MATERIALIZED (
    SELECT runs.*, coalesce(sum(n - skipped) OVER (ORDER BY seq_from ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0)
      AS before
    FROM runs),
  pieces AS MATERIALIZED (
    SELECT seq_from, ev_from, slot, ev_from + skipped AS ev_first,
           ev_from + least(n, skipped + p_examined - before)::bigint AS ev_end,
           seq_from + least(n, skipped + p_examined - before)::bigint - 1 AS seq_to
    FROM measured WHERE before < p_examined),
  seen AS MATERIALIZED (
    SELECT p.seq_from + (e.ev_id - p.ev_from) AS event_id, e.*
    FROM (SELECT * FROM pieces WHERE ev_from IS NOT NULL ORDER BY seq_from OFFSET 0) p
    CROSS JOIN LATERAL (
      SELECT * FROM ff_event x WHERE x.slot = p.slot AND x.ev_id >= p.ev_first AND x.ev_id < p.ev_end OFFSET 0) e),
  matched AS MATERIALIZED (
   SELECT s.event_id, s.family::text AS family, s.event_type, s.occurred_at_ms, s.execution_id, s.partition_key, s.flow_id,
          s.attempt_index, s.lease_epoch, s.lease_id, s.worker_instance_id, s.namespace, coalesce(t.kind, f.kind) AS kind, coalesce(t.lane, f.lane) AS lane, s.tags, s.detail,
          NULL::bigint AS expected, NULL::bigint AS found, NULL::bigint AS floor_position
   FROM seen s
   LEFT JOIN LATERAL (SELECT kind, lane FROM ff_route WHERE route_id = s.route_id OFFSET 0) t ON true
   LEFT JOIN LATERAL (SELECT kind, lane FROM ff_former_route WHERE t.kind IS NULL AND route_id = s.route_id OFFSET 0) f ON true
   WHERE (p_families IS NULL OR s.family::text = ANY (p_families))
     AND (p_types IS NULL OR s.event_type = ANY (p_types))
     AND (p_namespace IS NULL OR s.namespace = p_namespace)
     AND (p_tags IS NULL OR s.tags @> p_tags)
     AND (p_kind IS NULL OR coalesce(t.kind, f.kind) = p_kind) AND (p_lane IS NULL OR coalesce(t.lane, f.lane) = p_lane)
     AND (p_execution IS NULL OR s.execution_id = p_execution)
     AND (p_flow IS NULL OR s.flow_id = p_flow)
     AND (p_partitions IS NULL OR s.partition_key = ANY (p_partitions))
   ORDER BY s.event_id LIMIT p_limit)
  SELECT * FROM matched
  UNION ALL
  SELECT CASE WHEN (SELECT count(*) FROM matched) = p_limit THEN (SELECT max(event_id) FROM matched)
              ELSE coalesce((SELECT max(seq_to) FROM pieces), p_after) END, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
         NULL, NULL, NULL, NULL, (SELECT coalesce(sum(ev_end - ev_first), 0)::bigint FROM pieces),
         (SELECT count(*) FROM seen), (SELECT q.floor_position FROM ff_sequencer q);
END $$;

-- Moves a consumer from the position its reader started at. Returns whether it was still there: if not, the reader's
-- transaction must be rolled back. A function, because on a caller's connection the engine sends only SELECTs.
CREATE OR REPLACE FUNCTION ff_move_consumer(p_name text, p_from bigint, p_to bigint, p_transaction text)
RETURNS boolean LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
BEGIN
  IF p_transaction IS NOT NULL THEN PERFORM ff_require_transaction(p_transaction); END IF;
  UPDATE ff_consumer SET position = p_to, moved_at_ms = ff_now_ms(), failures = 0, error_code = NULL
  WHERE name = p_name AND position = p_from;
  RETURN FOUND;
END $$;
