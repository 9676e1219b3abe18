-- Writing to the event log, in the transaction of what happened. Whoever writes holds the locks of what the events are
-- about, so that ev_id is drawn in the order in which things happen to an execution.

-- The array if its elements differ, otherwise NULL.
CREATE OR REPLACE FUNCTION ff_varying(p_values anyarray) RETURNS anyarray LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT nullif(p_values, array_fill(p_values[1], ARRAY[coalesce(cardinality(p_values), 0)])) $$;

-- Part of an array that runs parallel to others; one of a single element stands for all of them.
CREATE OR REPLACE FUNCTION ff_part(p_values anyarray, p_from integer, p_to integer) RETURNS anyarray
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT CASE WHEN cardinality(p_values) = 1 THEN p_values ELSE p_values[p_from:p_to] END $$;

-- Writes p_n events of one family, at most one per execution, and returns how many. The arrays run parallel; one with a
-- single element holds for all events, and NULL means that no event has it. Rows follow each other in the order of the
-- arrays.
CREATE OR REPLACE FUNCTION ff_log_events(
  p_family ff_event_family, p_at_ms bigint, p_n bigint, p_types text[], p_executions uuid[], p_partitions smallint[],
  p_attempts integer[], p_epochs bigint[], p_workers text[], p_namespaces text[], p_tags jsonb[],
  p_details jsonb[], p_routes integer[], p_flows uuid[]
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  -- Of a log row: what a reader unpacks at once.
  c_pack CONSTANT integer := 256;
  v_from integer := 1;
BEGIN
  IF p_n = 1 THEN
    INSERT INTO ff_event_pack (family, occurred_at_ms, n, event_type, execution_id, partition_key, attempt_index,
                               lease_epoch, worker_instance_id, namespace, tags, detail, route_id, flow_id, slot)
    VALUES (p_family, p_at_ms, 1, p_types[1], p_executions[1], p_partitions[1], p_attempts[1], p_epochs[1],
            p_workers[1], p_namespaces[1], p_tags[1], p_details[1], p_routes[1], p_flows[1], (SELECT slot FROM ff_sequencer));
  ELSIF p_n BETWEEN 2 AND c_pack THEN
    INSERT INTO ff_event_pack (
      family, occurred_at_ms, n, event_type, event_types, execution_id, execution_ids, partition_key, partition_keys,
      attempt_index, attempt_indexes, lease_epoch, lease_epochs, worker_instance_id,
      worker_instance_ids, namespace, namespaces, tags, tag_sets, detail, details, route_id, route_ids, flow_id, flow_ids,
      slot)
    SELECT
      p_family, p_at_ms, p_n, CASE WHEN v.types IS NULL THEN p_types[1] END, v.types,
      CASE WHEN v.executions IS NULL THEN p_executions[1] END, v.executions,
      CASE WHEN v.partitions IS NULL THEN p_partitions[1] END, v.partitions,
      CASE WHEN v.attempts IS NULL THEN p_attempts[1] END, v.attempts,
      CASE WHEN v.epochs IS NULL THEN p_epochs[1] END, v.epochs,
      CASE WHEN v.workers IS NULL THEN p_workers[1] END, v.workers,
      CASE WHEN v.namespaces IS NULL THEN p_namespaces[1] END, v.namespaces,
      CASE WHEN v.tags IS NULL THEN p_tags[1] END, v.tags, CASE WHEN v.details IS NULL THEN p_details[1] END, v.details,
      CASE WHEN v.routes IS NULL THEN p_routes[1] END, v.routes, CASE WHEN v.flows IS NULL THEN p_flows[1] END, v.flows,
      (SELECT slot FROM ff_sequencer)
    FROM (SELECT ff_varying(p_types) AS types, ff_varying(p_executions) AS executions, ff_varying(p_partitions) AS partitions,
                 ff_varying(p_attempts) AS attempts, ff_varying(p_epochs) AS epochs,
                 ff_varying(p_workers) AS workers, ff_varying(p_namespaces) AS namespaces, ff_varying(p_tags) AS tags,
                 ff_varying(p_details) AS details, ff_varying(p_routes) AS routes, ff_varying(p_flows) AS flows OFFSET 0) v;
  ELSE
    WHILE v_from <= p_n LOOP
      PERFORM ff_log_events(p_family, p_at_ms, least(c_pack, p_n - v_from + 1), ff_part(p_types, v_from, v_from + c_pack - 1),
        ff_part(p_executions, v_from, v_from + c_pack - 1), ff_part(p_partitions, v_from, v_from + c_pack - 1),
        ff_part(p_attempts, v_from, v_from + c_pack - 1), ff_part(p_epochs, v_from, v_from + c_pack - 1),
        ff_part(p_workers, v_from, v_from + c_pack - 1),
        ff_part(p_namespaces, v_from, v_from + c_pack - 1), ff_part(p_tags, v_from, v_from + c_pack - 1),
        ff_part(p_details, v_from, v_from + c_pack - 1), ff_part(p_routes, v_from, v_from + c_pack - 1),
        ff_part(p_flows, v_from, v_from + c_pack - 1));
      v_from := v_from + c_pack;
    END LOOP;
  END IF;
  RETURN p_n;
END $$;
