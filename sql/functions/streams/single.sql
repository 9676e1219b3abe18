-- Appending one durable frame, the most frequent append of all. By plain statements on single values, which cost half as
-- much as the same on arrays; whatever is unusual about the append is left to ff_append_frames.

-- Appends as ff_append_frames does, in the same order of locks. p_notification is the beginning of what others are
-- notified with inside this transaction, if there is to be one: the numbers of the frame are appended.
-- Returns time, number and total bytes, separated by commas; if refused, outcome, phase, terminal outcome and epoch.
CREATE OR REPLACE FUNCTION ff_append_frame(
  p_id uuid, p_partition smallint, p_attempt integer, p_epoch bigint, p_append_id uuid, p_encoding ff_frame_encoding, p_type text,
  p_correlation text, p_step_name text, p_step_key text, p_step_try integer, p_payload bytea, p_patience_ms integer, p_channel text,
  p_notification text
) RETURNS text LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
DECLARE
  v_expires bigint;
  v_now bigint;
  v_ts bigint;
  v_seq bigint;
  v_total bigint;
  v_prev bigint;
  -- Takes what is evaluated for its effect: an assignment costs less than PERFORM.
  v_done text;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN PERFORM ff_require_read_committed(); END IF;
  IF p_patience_ms IS NOT NULL THEN v_done := set_config('lock_timeout', p_patience_ms::text, true); END IF;
  SELECT e.lease_expires_at_ms INTO v_expires FROM ff_execution e
  WHERE e.execution_id = p_id AND e.partition_key = p_partition AND e.attempt_index = p_attempt AND e.lease_epoch = p_epoch
    AND e.claim_no IS NOT NULL FOR KEY SHARE;
  v_now := ff_now_ms();
  IF v_expires > v_now THEN
    UPDATE ff_stream_meta m SET
      append_ids = (p_append_id || m.append_ids)[1:8], append_seqs = ((m.last_seq + 1) || m.append_seqs)[1:8],
      append_times = (greatest(m.last_append_ts_ms, v_now) || m.append_times)[1:8], lease_epoch = p_epoch,
      last_append_ts_ms = greatest(m.last_append_ts_ms, v_now), last_seq = m.last_seq + 1, total_bytes = m.total_bytes + octet_length(p_payload)
    WHERE m.execution_id = p_id AND m.attempt_index = p_attempt AND m.closed_at_ms IS NULL AND array_position(m.append_ids, p_append_id) IS NULL
    RETURNING m.last_append_ts_ms, m.last_seq, m.total_bytes, coalesce(m.append_times[2], 0) INTO v_ts, v_seq, v_total, v_prev;
  END IF;
  IF v_seq IS NULL THEN
    RETURN ff_append_unusual(p_id, p_partition, p_attempt, p_epoch, p_append_id, p_encoding, p_type, p_correlation, p_step_name, p_step_key,
                             p_step_try, p_payload, p_patience_ms, p_channel, p_notification);
  END IF;
  INSERT INTO ff_frame (execution_id, partition_key, attempt_index, ts_ms, seq, lease_epoch, mode, encoding, frame_type, correlation_id,
                        step_name, step_key, step_try, payload)
  VALUES (p_id, p_partition, p_attempt, v_ts, v_seq, p_epoch, 'durable', p_encoding, p_type, p_correlation, p_step_name, p_step_key,
          p_step_try, p_payload);
  IF p_notification IS NOT NULL THEN
    v_done := pg_notify(p_channel, concat(p_notification, v_ts, ',', v_seq, ',', v_total, ',', v_prev, ']}'));
  END IF;
  RETURN concat(v_ts, ',', v_seq, ',', v_total);
END $$;

-- The append of one frame that is the first of its stream, repeated or refused.
CREATE OR REPLACE FUNCTION ff_append_unusual(
  p_id uuid, p_partition smallint, p_attempt integer, p_epoch bigint, p_append_id uuid, p_encoding ff_frame_encoding, p_type text,
  p_correlation text, p_step_name text, p_step_key text, p_step_try integer, p_payload bytea, p_patience_ms integer, p_channel text,
  p_notification text
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  a record;
BEGIN
  -- Of what is kept of best-effort frames, and of documents, this append changes nothing.
  SELECT * INTO a FROM ff_append_frames(p_id, p_partition, p_attempt, p_epoch, p_append_id, '{durable}', ARRAY[p_encoding::text], ARRAY[p_type],
    ARRAY[p_correlation], ARRAY[p_step_name], ARRAY[p_step_key], ARRAY[p_step_try], ARRAY[p_payload], 0, 0, 0, 1, 0, p_patience_ms);
  IF a.outcome <> 'appended' THEN
    RETURN array_to_string(ARRAY[a.outcome, a.lifecycle_phase, a.terminal_outcome, a.lease_epoch::text], ',', '');
  END IF;
  IF p_notification IS NOT NULL THEN
    PERFORM pg_notify(p_channel, p_notification || concat_ws(',', a.ts_ms, a.last_seq, a.total_bytes, a.prev_ts_ms) || ']}');
  END IF;
  RETURN concat(a.ts_ms, ',', a.last_seq, ',', a.total_bytes);
END $$;
