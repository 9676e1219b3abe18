-- Sending messages, and replying to them. Lock order: execution, then its mailbox and messages. Whoever sends, hands over,
-- times out, continues or ends has locked the execution, so that neither a mailbox nor a message needs a lock of its own.

-- Sends messages in the given order. Returns the answers by their places. `duplicate`: the id is known, whatever became of
-- that message. Without p_waits a message to an execution that is not there or that another transaction has locked returns
-- `held`: it is left to a call of its own, so that no other waits for it.
CREATE OR REPLACE FUNCTION ff_send_messages(
  p_ids uuid[], p_partitions smallint[], p_mailboxes text[], p_message_ids text[], p_payloads jsonb[], p_requests boolean[],
  p_waits boolean, p_max_messages integer, p_max_bytes bigint
) RETURNS TABLE (place integer, outcome text, terminal_outcome text, route_id integer, due_in_ms bigint)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
-- A sender is told who holds a row instead of waiting for it.
SET lock_timeout = '2s' SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_locked uuid[];
BEGIN
  PERFORM ff_require_read_committed();
  IF p_waits THEN
    v_locked := ARRAY(
      SELECT e.execution_id
      FROM (SELECT DISTINCT id, part FROM unnest(p_ids, p_partitions) u(id, part) ORDER BY id OFFSET 0) u
      CROSS JOIN LATERAL (
        SELECT execution_id FROM ff_execution WHERE execution_id = u.id AND partition_key = u.part FOR UPDATE) e);
  ELSE
    v_locked := ARRAY(
      SELECT e.execution_id
      FROM (SELECT DISTINCT id, part FROM unnest(p_ids, p_partitions) u(id, part) ORDER BY id OFFSET 0) u
      CROSS JOIN LATERAL (
        SELECT execution_id FROM ff_execution WHERE execution_id = u.id AND partition_key = u.part FOR UPDATE SKIP LOCKED) e);
  END IF;
  FOR i IN 1..cardinality(p_ids) LOOP
    place := i;
    terminal_outcome := NULL; route_id := NULL; due_in_ms := NULL;
    IF p_ids[i] = ANY (v_locked) THEN
      -- In statements after the lock: whatever was committed while it was waited for is seen.
      SELECT s.* INTO outcome, terminal_outcome, route_id, due_in_ms
      FROM ff_send_message(p_ids[i], p_mailboxes[i], p_message_ids[i], p_payloads[i], p_requests[i], p_max_messages, p_max_bytes) s;
    ELSE
      outcome := CASE WHEN p_waits THEN 'not_found' ELSE 'held' END;
    END IF;
    RETURN NEXT;
  END LOOP;
END $$;

-- Sends one message to a locked execution. `resumed`: the execution was waiting for it, and is claimable, or will be in
-- due_in_ms.
CREATE OR REPLACE FUNCTION ff_send_message(
  p_id uuid, p_mailbox text, p_message_id text, p_payload jsonb, p_is_request boolean, p_max_messages integer, p_max_bytes bigint,
  OUT outcome text, OUT terminal_outcome text, OUT route_id integer, OUT due_in_ms bigint
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  e ff_execution%ROWTYPE;
  v_bytes bigint := octet_length(p_payload::text);
  v_seq bigint;
  v_delay bigint;
BEGIN
  -- A request makes a request of a message that was sent without one, if its handler has not seen it yet.
  UPDATE ff_message SET wants_reply = true
  WHERE execution_id = p_id AND message_id = p_message_id AND p_is_request AND NOT wants_reply AND handed_at_ms IS NULL;
  PERFORM 1 FROM ff_message WHERE execution_id = p_id AND message_id = p_message_id;
  IF FOUND THEN
    outcome := 'duplicate';
    RETURN;
  END IF;
  SELECT * INTO STRICT e FROM ff_execution WHERE execution_id = p_id;
  IF e.lifecycle_phase = 'terminal' THEN
    outcome := 'not_active';
    terminal_outcome := e.terminal_outcome;
    RETURN;
  END IF;
  INSERT INTO ff_mailbox AS m (execution_id, partition_key, last_seq, pending, pending_bytes, handed)
  VALUES (p_id, e.partition_key, 1, 1, v_bytes, 0)
  ON CONFLICT (execution_id) DO UPDATE SET last_seq = m.last_seq + 1, pending = m.pending + 1, pending_bytes = m.pending_bytes + v_bytes
  WHERE m.pending < p_max_messages AND m.pending_bytes + v_bytes <= p_max_bytes
  RETURNING last_seq INTO v_seq;
  IF v_seq IS NULL THEN
    outcome := 'too_many';
    RETURN;
  END IF;
  INSERT INTO ff_message (execution_id, partition_key, seq, sent_at_ms, wants_reply, mailbox, message_id, payload)
  VALUES (p_id, e.partition_key, v_seq, ff_now_ms(), p_is_request, p_mailbox, p_message_id, p_payload);
  IF e.traits & 32 = 0 THEN
    UPDATE ff_execution SET traits = traits | 32 WHERE execution_id = p_id;
  END IF;
  outcome := 'sent';
  IF e.lifecycle_phase = 'suspended' THEN
    v_delay := ff_resume_if_met(ROW(1, e.execution_id, e.partition_key, e.route_id, e.priority, e.namespace, e.attempt_index,
      e.lease_epoch, e.retry_count, e.attempt_state, NULL, NULL, NULL, e.attempt_started_at_ms, e.tags, e.retain_ms, e.flow_id,
      e.attempt_paused, e.parent_id, e.traits | 32)::ff_locked, 'message', 'message:' || p_message_id);
    IF v_delay IS NOT NULL THEN
      outcome := 'resumed';
      route_id := e.route_id;
      due_in_ms := nullif(v_delay, 0);
    END IF;
  END IF;
END $$;

-- Stores the reply to a message that was handed over to a step of the caller's execution. The first reply stays. The step
-- is marked, so that a later run of the handler need not send it again.
CREATE OR REPLACE FUNCTION ff_reply(
  p_id uuid, p_partition smallint, p_attempt integer, p_epoch bigint, p_message_id text, p_name text, p_key text, p_reply jsonb
) RETURNS TABLE (outcome text, lifecycle_phase text, terminal_outcome text, lease_epoch bigint)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
BEGIN
  PERFORM ff_require_read_committed();
  IF cardinality(ff_share_leases(ARRAY[p_id], ARRAY[p_partition], ARRAY[p_attempt], ARRAY[p_epoch])) = 0 THEN
    RETURN QUERY
    SELECT f.outcome, f.lifecycle_phase, f.terminal_outcome, f.lease_epoch
    FROM ff_refusals('reply', ARRAY[p_id], ARRAY[p_partition], ARRAY[p_attempt], ARRAY[p_epoch], '{}') f;
    RETURN;
  END IF;
  UPDATE ff_message SET reply = p_reply, replied_at_ms = ff_now_ms()
  WHERE execution_id = p_id AND message_id = p_message_id AND handed_at_ms IS NOT NULL AND replied_at_ms IS NULL;
  UPDATE ff_step SET value = jsonb_set(value, '{message,isReplied}', 'true')
  WHERE execution_id = p_id AND retired_by = 0 AND name = p_name AND key = p_key AND kind = 'wait'
    AND value #>> '{message,id}' = p_message_id;
  RETURN QUERY SELECT 'replied', 'active', 'none', p_epoch;
END $$;

-- How many messages of ended executions nobody has read, for their completion events; NULL for those without a mailbox.
CREATE OR REPLACE FUNCTION ff_unread_messages(p_rows ff_locked[]) RETURNS jsonb[] LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN ARRAY(
    SELECT CASE WHEN m.pending > 0 THEN jsonb_build_object('unread_messages', m.pending) END
    FROM unnest(p_rows) WITH ORDINALITY r(
      ordinal, execution_id, partition_key, route_id, priority, namespace, attempt_index, lease_epoch, retry_count,
      attempt_state, claim_no, worker_id, worker_instance_id, attempt_started_at_ms, tags, retain_ms, flow_id, resumed, parent_id,
      traits, place)
    LEFT JOIN LATERAL (SELECT pending FROM ff_mailbox WHERE execution_id = r.execution_id AND r.traits & 32 <> 0 OFFSET 0) m ON true
    ORDER BY r.place);
END $$;
