-- Handing messages over. A wait takes the first pending message of its mailbox, under the lock of its execution: whoever
-- sends, suspends or times out holds it too, so that a message goes to one wait, and in order.

-- Hands the first pending message of a wait's mailbox over to it. Returns what the wait's step says of it, or NULL: there
-- is none, or the run has taken as many as it may.
CREATE OR REPLACE FUNCTION ff_take_message(p_id uuid, p_wait jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
  m ff_message%ROWTYPE;
BEGIN
  PERFORM 1 FROM ff_mailbox WHERE execution_id = p_id AND pending > 0 AND handed < (p_wait #>> '{condition,limit}')::integer;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  SELECT * INTO m FROM ff_message
  WHERE execution_id = p_id AND mailbox = p_wait #>> '{condition,mailbox}' AND handed_at_ms IS NULL ORDER BY seq LIMIT 1;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  UPDATE ff_message SET handed_at_ms = ff_now_ms(), payload = NULL
  WHERE execution_id = p_id AND message_id = m.message_id;
  UPDATE ff_mailbox SET pending = pending - 1, pending_bytes = pending_bytes - octet_length(m.payload::text), handed = handed + 1
  WHERE execution_id = p_id;
  RETURN jsonb_build_object('message', jsonb_build_object(
    'id', m.message_id, 'sentAtMs', m.sent_at_ms, 'wantsReply', m.wants_reply, 'payload', m.payload));
END $$;

-- Whether a wait has something to take and its run may not: such a wait never times out, because a timeout would say that
-- nothing was there.
CREATE OR REPLACE FUNCTION ff_is_kept_waiting(p_id uuid, p_wait jsonb) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  RETURN coalesce(p_wait #>> '{condition,kind}' = 'message', false) AND EXISTS (
    SELECT FROM ff_message
    WHERE execution_id = p_id AND mailbox = p_wait #>> '{condition,mailbox}' AND handed_at_ms IS NULL);
END $$;
