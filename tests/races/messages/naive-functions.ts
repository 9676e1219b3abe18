/**
 * Sending in the simpler form one would write first: it stores the message and looks whether somebody waits, without the
 * lock of the execution. For tests only, like executions/naive-functions.ts.
 */

const SEND_UNLOCKED = `
CREATE FUNCTION naive_send_unlocked(
  p_ids uuid[], p_partitions smallint[], p_mailboxes text[], p_message_ids text[], p_payloads jsonb[], p_requests boolean[],
  p_waits boolean, p_max_messages integer, p_max_bytes bigint
) RETURNS TABLE (outcome text) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  e ff_execution%ROWTYPE;
BEGIN
  INSERT INTO ff_mailbox AS m (execution_id, partition_key, last_seq, pending, pending_bytes, handed)
  VALUES (p_ids[1], p_partitions[1], 1, 1, 2, 0)
  ON CONFLICT (execution_id) DO UPDATE SET last_seq = m.last_seq + 1, pending = m.pending + 1;
  INSERT INTO ff_message (execution_id, partition_key, seq, sent_at_ms, wants_reply, mailbox, message_id, payload)
  SELECT p_ids[1], p_partitions[1], last_seq, ff_now_ms(), false, p_mailboxes[1], p_message_ids[1], p_payloads[1]
  FROM ff_mailbox WHERE execution_id = p_ids[1];
  SELECT * INTO e FROM ff_execution WHERE execution_id = p_ids[1];
  IF e.lifecycle_phase = 'suspended' AND ff_resume_if_met(ROW(1, e.execution_id, e.partition_key, e.route_id, e.priority, e.namespace,
      e.attempt_index, e.lease_epoch, e.retry_count, e.attempt_state, NULL, NULL, NULL, e.attempt_started_at_ms, e.tags, e.retain_ms,
      e.flow_id, e.attempt_paused, e.parent_id, e.traits)::ff_locked, 'message', 'somebody') IS NOT NULL THEN
    RETURN QUERY SELECT 'resumed';
    RETURN;
  END IF;
  RETURN QUERY SELECT 'sent';
END $$`;

export const NAIVE_MESSAGES = [SEND_UNLOCKED];
