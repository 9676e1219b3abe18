-- What is written only about executions that ask for all events, by their task or lane (bit 16 of their traits): submits,
-- finished steps, progress, and what completions carry. Others never get here.
-- These functions carry no settings of their own: their callers do.

-- The traits of templates, with what their lanes add. Asked only while a lane has all events.
CREATE OR REPLACE FUNCTION ff_traits_in_lanes(p_traits smallint[], p_routes jsonb, p_templates jsonb) RETURNS smallint[]
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_lanes text[] := ARRAY(SELECT lane FROM ff_lane WHERE all_events);
BEGIN
  RETURN ARRAY(
    SELECT CASE WHEN p_routes -> ((t ->> 'route')::integer - 1) ->> 'lane' = ANY (v_lanes) THEN traits | 16::smallint ELSE traits END
    FROM jsonb_array_elements(p_templates) WITH ORDINALITY e(t, ord)
    CROSS JOIN LATERAL (SELECT p_traits[e.ord] AS traits) x ORDER BY e.ord);
END $$;

-- Tells of the submits of executions that ask for all events; of those in p_known nothing new was written. p_of points
-- into the arrays of the templates, which follow it.
CREATE OR REPLACE FUNCTION ff_tell_submits(
  t ff_transition, p_now bigint, p_ids uuid[], p_partitions smallint[], p_delays bigint[], p_known uuid[], p_parent uuid,
  p_flow uuid, p_of integer[], p_traits smallint[], p_routes integer[], p_namespaces text[], p_tags jsonb[],
  p_priorities integer[]
) RETURNS bigint LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_logged bigint;
BEGIN
  SELECT ff_log_events('execution', p_now, count(*), ARRAY[t.execution_event], array_agg(id), array_agg(part), '{0}', '{0}',
    NULL, array_agg(p_namespaces[of]), array_agg(p_tags[of]),
    array_agg(jsonb_strip_nulls(jsonb_build_object('priority', p_priorities[of], 'parent', p_parent,
      'eligible_at_ms', CASE WHEN delay > 0 THEN p_now + delay END))),
    array_agg(p_routes[of]), CASE WHEN p_flow IS NOT NULL THEN ARRAY[p_flow] END)
  INTO v_logged
  FROM (SELECT * FROM unnest(p_ids, p_partitions, p_of, p_delays) WITH ORDINALITY u(id, part, of, delay, ord)
        WHERE p_traits[of] & 16 <> 0 AND CASE WHEN cardinality(p_known) = 0 THEN true
                                              WHEN id IN (SELECT unnest(p_known)) THEN false ELSE true END
        ORDER BY ord OFFSET 0) u;
  RETURN v_logged;
END $$;

-- Tells of something a running handler did, for each place in the arrays that p_told names. A row of the log has at most
-- one event of an execution, so several of one follow each other in rows of their own. Messages of executions that
-- redact values are left out.
CREATE OR REPLACE FUNCTION ff_tell_running(
  p_type text, p_now bigint, p_ids uuid[], p_partitions smallint[], p_attempts integer[], p_epochs bigint[], p_told bigint[],
  p_details jsonb[]
) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  PERFORM ff_log_events('execution', p_now, x.n, ARRAY[p_type], x.ids, x.parts, x.attempts, x.epochs, x.workers, x.namespaces,
    x.tags, x.details, x.routes, x.flows)
  FROM (
    SELECT nth, count(*) AS n, array_agg(p_ids[ord]) AS ids, array_agg(p_partitions[ord]) AS parts,
           array_agg(p_attempts[ord]) AS attempts, array_agg(p_epochs[ord]) AS epochs, array_agg(worker_instance_id) AS workers,
           array_agg(namespace) AS namespaces, array_agg(tags) AS tags, 
           array_agg(CASE WHEN traits & 8 <> 0 THEN p_details[ord] - 'message' ELSE p_details[ord] END) AS details,
           array_agg(route_id) AS routes, array_agg(flow_id) AS flows
    FROM (SELECT u.ord, row_number() OVER (PARTITION BY p_ids[u.ord] ORDER BY u.ord) AS nth, e.*, g.worker_instance_id
          FROM unnest(p_told) u(ord)
          CROSS JOIN LATERAL (
            SELECT namespace, coalesce(lease_tags, tags) AS tags, route_id, flow_id, claim_no, traits FROM ff_execution
            WHERE execution_id = p_ids[u.ord] OFFSET 0) e
          CROSS JOIN LATERAL (
            SELECT worker_instance_id FROM ff_grant WHERE claim_no = e.claim_no OFFSET 0) g OFFSET 0) t
    GROUP BY nth ORDER BY nth OFFSET 0) x;
END $$;

-- What the completions of executions that ask for all events carry: the result, unless it is too large or redacted, or
-- why there is none; NULL for the others.
CREATE OR REPLACE FUNCTION ff_carried_ends(
  t ff_transition, p_rows ff_locked[], p_results jsonb[], p_messages text[], p_categories text[]
) RETURNS jsonb[] LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  -- As LIMITS.eventResultBytes.
  c_most CONSTANT integer := 8192;
BEGIN
  RETURN ARRAY(
    SELECT CASE WHEN traits & 16 <> 0 THEN jsonb_build_object('end', CASE
             WHEN t.terminal_outcome <> 'success' THEN
               jsonb_build_object('message', ff_shown_text(traits, t.attempt_outcome, message), 'category', category)
             WHEN traits & 8 <> 0 THEN '{"omitted": "redacted"}'
             WHEN octet_length(result::text) > c_most THEN '{"omitted": "too_large"}'
             ELSE jsonb_build_object('result', result) END) END
    FROM unnest(p_rows, p_results, p_messages, p_categories) WITH ORDINALITY r(
      ordinal, execution_id, partition_key, route_id, priority, namespace, attempt_index, lease_epoch, retry_count,
      attempt_state, claim_no, worker_id, worker_instance_id, attempt_started_at_ms, tags, retain_ms, flow_id, resumed, parent_id,
      traits, result, message, category, ord)
    ORDER BY ord);
END $$;
