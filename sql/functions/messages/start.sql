-- Sending to a key: to the open execution that the key names, or to one that the same commit submits under it.

-- Submits under a key unless it names an open execution, and sends a message to whichever it names then. The first columns
-- are those of ff_submit. Lock order: key, then execution. p_partition is where the key is.
CREATE OR REPLACE FUNCTION ff_start_and_send(
  p_routes jsonb, p_templates jsonb, p_ids uuid[], p_partitions smallint[], p_template_ordinals integer[], p_delays bigint[],
  p_payloads jsonb[], p_key text, p_mailbox text, p_message_id text, p_message jsonb, p_is_request boolean,
  p_max_messages integer, p_max_bytes bigint
) RETURNS TABLE (
  execution_id uuid, outcome text, route_id integer, due_in_ms bigint, sent text, resumed_route_id integer, resumed_due_in_ms bigint
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
SET lock_timeout = '2s' SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_existing uuid;
BEGIN
  PERFORM ff_require_read_committed();
  SELECT s.execution_id, s.outcome, s.route_id, s.due_in_ms, s.existing_id
  INTO execution_id, outcome, route_id, due_in_ms, v_existing
  FROM ff_submit(p_routes, p_templates, p_ids, p_partitions, p_template_ordinals, p_delays, p_payloads, NULL,
    p_own_keys => ARRAY[p_key], p_if_exists => '{attach}') s;
  IF outcome <> 'unknown_route' THEN
    IF outcome = 'attached' THEN
      execution_id := v_existing;
    END IF;
    PERFORM 1 FROM ff_execution WHERE execution_id = ff_start_and_send.execution_id FOR UPDATE;
    SELECT m.outcome, m.route_id, m.due_in_ms INTO sent, resumed_route_id, resumed_due_in_ms
    FROM ff_send_message(execution_id, p_mailbox, p_message_id, p_message, p_is_request, p_max_messages, p_max_bytes) m;
    -- It ended before it was locked. Tried again, the key is free.
    IF outcome = 'attached' AND sent = 'not_active' THEN
      RAISE EXCEPTION 'the execution that a key named has ended' USING ERRCODE = '40001';
    END IF;
  END IF;
  RETURN NEXT;
END $$;
