-- Reading the event log by position.

-- Lane and kind of each of some routes, in their order, also of forgotten ones.
CREATE OR REPLACE FUNCTION ff_names_of_routes(p_routes integer[]) RETURNS json LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
BEGIN
  RETURN (
    SELECT json_agg(json_build_object('kind', t.kind, 'lane', t.lane) ORDER BY u.ord)
    FROM unnest(p_routes) WITH ORDINALITY u(route, ord)
    LEFT JOIN LATERAL (
      SELECT kind, lane FROM ff_route WHERE route_id = u.route
      UNION ALL SELECT kind, lane FROM ff_former_route WHERE route_id = u.route LIMIT 1) t ON true);
END $$;

-- The events after a position, in order. Examines p_examined events, and then to the end of the log row; stops after the
-- row with the p_limit-th that matches. A NULL filter matches everything. With p_packed, a row of the log that matches as
-- a whole is returned as it is: n events from the position event_id on, of which some may be before p_after, with what
-- differs between them as arrays in `members`. Every other row is one event.
-- A last row without a family says how far it read, how many events it expected in the runs it read and how many it
-- found: fewer means that the oldest part of the log was dropped meanwhile, or that something is broken.
CREATE OR REPLACE FUNCTION ff_read_events(
  p_after bigint, p_examined integer, p_limit integer, p_packed boolean, p_families text[], p_types text[],
  p_namespace text, p_tags jsonb, p_kind text, p_lane text, p_execution uuid, p_flow uuid, p_partitions smallint[]
) RETURNS TABLE (
  event_id bigint, n integer, family text, event_type text, occurred_at_ms bigint, execution_id uuid,
  partition_key smallint, flow_id uuid, attempt_index integer, lease_epoch bigint, worker_instance_id text,
  namespace text, kind text, lane text, tags jsonb, detail jsonb, members json, expected bigint, found bigint,
  floor_position bigint
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
BEGIN
  PERFORM ff_require_read_committed();
  RETURN QUERY
  WITH runs AS MATERIALIZED (
    SELECT r.seq_from, r.n, r.ev_from, r.packs, r.slot, greatest(p_after + 1 - r.seq_from, 0) AS skipped
    FROM ff_event_run r
    -- When no run begins before it, this is the last position before a jump.
    WHERE r.seq_from >= coalesce((SELECT f.seq_from FROM ff_event_run f WHERE f.seq_from <= p_after + 1
                                  ORDER BY f.seq_from DESC LIMIT 1), 0)
      AND r.seq_from + r.n > p_after + 1
    ORDER BY r.seq_from LIMIT p_examined),
  pieces AS MATERIALIZED (
    SELECT m.*, skipped + p_examined - before AS upto
    FROM (SELECT runs.*, coalesce(sum(n - skipped) OVER (
                           ORDER BY seq_from ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before FROM runs) m
    WHERE before < p_examined),
  -- Whole runs: positions are counted from the first row of one.
  counted AS MATERIALIZED (
    SELECT (p.seq_from + e.before)::bigint AS event_id, e.before + e.n > p.skipped AND e.before < p.upto AS seen, e.*
    FROM (SELECT * FROM pieces WHERE ev_from IS NOT NULL ORDER BY seq_from OFFSET 0) p
    CROSS JOIN LATERAL (
      SELECT x.*, sum(x.n) OVER (ORDER BY x.ev_id) - x.n AS before FROM ff_event_pack x
      WHERE x.slot = p.slot AND x.ev_id >= p.ev_from AND x.ev_id < p.ev_from + p.packs OFFSET 0) e),
  -- Rows that may hold a match, and whether what their events share decides about all of them.
  near AS MATERIALIZED (
    SELECT s.*, s.n = 1 OR p_packed AND (p_types IS NULL OR s.event_types IS NULL)
        AND (p_namespace IS NULL OR s.namespaces IS NULL) AND (p_tags IS NULL OR s.tag_sets IS NULL)
        AND (p_execution IS NULL OR s.execution_ids IS NULL) AND (p_flow IS NULL OR s.flow_ids IS NULL)
        AND (p_partitions IS NULL OR s.partition_keys IS NULL)
        AND (p_kind IS NULL AND p_lane IS NULL OR s.route_ids IS NULL) AS whole
    FROM counted s
    WHERE s.seen AND (p_families IS NULL OR s.family::text = ANY (p_families))
      AND (p_types IS NULL OR s.event_type = ANY (p_types) OR s.event_types && p_types)
      AND (p_namespace IS NULL OR s.namespace = p_namespace OR p_namespace = ANY (s.namespaces))
      AND (p_tags IS NULL OR s.tags @> p_tags OR s.tag_sets IS NOT NULL)
      AND (p_execution IS NULL OR s.execution_id = p_execution OR p_execution = ANY (s.execution_ids))
      AND (p_flow IS NULL OR s.flow_id = p_flow OR p_flow = ANY (s.flow_ids))
      AND (p_partitions IS NULL OR s.partition_key = ANY (p_partitions) OR s.partition_keys && p_partitions)),
  single AS MATERIALIZED (
    SELECT s.event_id + u.ordinal - 1 AS event_id, s.family, coalesce(u.event_type, s.event_type) AS event_type,
           s.occurred_at_ms, coalesce(u.execution_id, s.execution_id) AS execution_id,
           coalesce(u.partition_key, s.partition_key) AS partition_key, coalesce(u.flow_id, s.flow_id) AS flow_id,
           coalesce(u.attempt_index, s.attempt_index) AS attempt_index, coalesce(u.lease_epoch, s.lease_epoch) AS lease_epoch,
           coalesce(u.worker_instance_id, s.worker_instance_id) AS worker_instance_id,
           coalesce(u.namespace, s.namespace) AS namespace, coalesce(u.tags, s.tags) AS tags,
           coalesce(u.detail, s.detail) AS detail, coalesce(u.route_id, s.route_id) AS route_id
    FROM near s
    CROSS JOIN LATERAL ROWS FROM (
      generate_series(1, s.n), unnest(s.event_types), unnest(s.execution_ids), unnest(s.partition_keys), unnest(s.flow_ids),
      unnest(s.attempt_indexes), unnest(s.lease_epochs), unnest(s.worker_instance_ids),
      unnest(s.namespaces), unnest(s.tag_sets), unnest(s.details), unnest(s.route_ids)
    ) u(ordinal, event_type, execution_id, partition_key, flow_id, attempt_index, lease_epoch,
        worker_instance_id, namespace, tags, detail, route_id)
    WHERE NOT s.whole),
  fitting AS (
    SELECT event_id, n, family, event_type, occurred_at_ms, execution_id, partition_key, flow_id, attempt_index, lease_epoch,
           worker_instance_id, namespace, tags, detail, route_id,
           CASE WHEN n > 1 THEN json_build_object(
             'event_type', event_types, 'execution_id', execution_ids, 'partition_key', partition_keys, 'flow_id', flow_ids,
             'attempt_index', attempt_indexes, 'lease_epoch', lease_epochs,
             'worker_instance_id', worker_instance_ids, 'namespace', namespaces, 'tags', tag_sets, 'detail', details,
             'route', CASE WHEN route_ids IS NOT NULL THEN ff_names_of_routes(route_ids) END) END AS members
    FROM near WHERE whole
    UNION ALL
    SELECT event_id, 1, family, event_type, occurred_at_ms, execution_id, partition_key, flow_id, attempt_index, lease_epoch,
           worker_instance_id, namespace, tags, detail, route_id, NULL
    FROM single s
    WHERE event_id > p_after AND (p_types IS NULL OR event_type = ANY (p_types))
      AND (p_namespace IS NULL OR namespace = p_namespace) AND (p_tags IS NULL OR tags @> p_tags)
      AND (p_execution IS NULL OR execution_id = p_execution) AND (p_flow IS NULL OR flow_id = p_flow)
      AND (p_partitions IS NULL OR partition_key = ANY (p_partitions))),
  matched AS MATERIALIZED (
    SELECT * FROM (
      SELECT f.*, t.kind, t.lane, sum(least(f.n, f.event_id + f.n - 1 - p_after)) OVER (ORDER BY f.event_id) AS total
      FROM fitting f
      LEFT JOIN LATERAL (
        SELECT kind, lane FROM ff_route WHERE route_id = f.route_id
        UNION ALL SELECT kind, lane FROM ff_former_route WHERE route_id = f.route_id LIMIT 1) t ON true
      WHERE (p_kind IS NULL OR t.kind = p_kind) AND (p_lane IS NULL OR t.lane = p_lane)) m
    WHERE total - least(n, event_id + n - 1 - p_after) < p_limit)
  SELECT event_id, n, family::text, event_type, occurred_at_ms, execution_id, partition_key, flow_id, attempt_index,
         lease_epoch, worker_instance_id, namespace, kind, lane, tags, detail, members, NULL::bigint, NULL::bigint,
         NULL::bigint
  FROM matched
  UNION ALL
  SELECT CASE WHEN (SELECT max(total) FROM matched) >= p_limit THEN (SELECT max(event_id + n - 1) FROM matched)
              ELSE coalesce(greatest((SELECT max(event_id + n - 1) FROM counted WHERE seen),
                                     (SELECT max(seq_from) FROM pieces WHERE ev_from IS NULL)), p_after) END,
         NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
         (SELECT coalesce(sum(n), 0)::bigint FROM pieces WHERE ev_from IS NOT NULL),
         (SELECT coalesce(sum(n), 0) FROM counted), (SELECT q.floor_position FROM ff_sequencer q);
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
