-- The output of attempts: appending frames, to one stream or to many at once. Documents are in documents.sql.
-- Lock order: execution, then stream. Ending an attempt locks its execution first, and so waits for a running append. Whoever
-- shares a live lease finds its stream open, and locked by nobody but other appends.

-- Creates the stream of an attempt. False when there is one.
CREATE OR REPLACE FUNCTION ff_create_stream(p_id uuid, p_partition smallint, p_attempt integer, p_epoch bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO ff_stream_meta (execution_id, partition_key, attempt_index, lease_epoch, created_at_ms, last_append_ts_ms, last_seq,
                              total_bytes)
  VALUES (p_id, p_partition, p_attempt, p_epoch, ff_now_ms(), 0, 0, 0) ON CONFLICT DO NOTHING;
  RETURN FOUND;
END $$;

-- Locks the stream of an attempt; the first append creates it.
CREATE OR REPLACE FUNCTION ff_lock_stream(p_id uuid, p_partition smallint, p_attempt integer, p_epoch bigint) RETURNS ff_stream_meta
LANGUAGE plpgsql AS $$
DECLARE
  s ff_stream_meta;
BEGIN
  SELECT * INTO s FROM ff_stream_meta m WHERE m.execution_id = p_id AND m.attempt_index = p_attempt FOR UPDATE;
  IF NOT FOUND THEN
    PERFORM ff_create_stream(p_id, p_partition, p_attempt, p_epoch);
    SELECT * INTO STRICT s FROM ff_stream_meta m WHERE m.execution_id = p_id AND m.attempt_index = p_attempt FOR UPDATE;
  END IF;
  RETURN s;
END $$;

-- What an append was answered that is among the stream's last eight; nothing if it is not.
CREATE OR REPLACE FUNCTION ff_repeated_append(
  p_id uuid, p_attempt integer, p_append_id uuid, OUT ts_ms bigint, OUT last_seq bigint, OUT total_bytes bigint, OUT summary_version integer
) LANGUAGE plpgsql AS $$
DECLARE
  s ff_stream_meta;
  v_again integer;
BEGIN
  SELECT * INTO STRICT s FROM ff_stream_meta m WHERE m.execution_id = p_id AND m.attempt_index = p_attempt FOR UPDATE;
  PERFORM ff_require_equal('open streams', 0, CASE WHEN s.closed_at_ms IS NULL THEN 0 ELSE 1 END);
  v_again := array_position(s.append_ids, p_append_id);
  IF v_again IS NOT NULL THEN
    ts_ms := s.append_times[v_again];
    last_seq := s.append_seqs[v_again];
    total_bytes := s.total_bytes;
    summary_version := (SELECT version FROM ff_stream_summary y WHERE y.execution_id = p_id AND y.attempt_index = p_attempt);
  END IF;
END $$;

-- How fast best-effort frames come, with p_frames more of them. Frames of one instant are counted with the next
-- instant's: a single instant has no rate.
CREATE OR REPLACE FUNCTION ff_live_rate(
  p_rate double precision, p_at bigint, p_pending bigint, p_frames bigint, p_now bigint, p_alpha double precision
) RETURNS double precision LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN p_now > p_at THEN p_alpha * (1000.0 * (p_pending + p_frames) / (p_now - p_at)) + (1 - p_alpha) * p_rate ELSE p_rate END;

-- How many best-effort frames are kept at this rate. Those just written always are.
CREATE OR REPLACE FUNCTION ff_live_room(
  p_rate double precision, p_frames bigint, p_ttl_ms bigint, p_floor integer, p_ceiling integer
) RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN least(greatest(2 * ceil(p_rate * p_ttl_ms / 1000.0), p_floor, p_frames), p_ceiling)::integer;

-- Trims the oldest best-effort frames of a locked stream to the number that is kept.
CREATE OR REPLACE FUNCTION ff_trim_live(p_id uuid, p_attempt integer, p_kept integer) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_removed integer;
BEGIN
  DELETE FROM ff_frame f
  WHERE f.execution_id = p_id AND f.attempt_index = p_attempt AND f.mode = 'best_effort'
    AND f.seq <= (
      SELECT k.seq FROM ff_frame k
      WHERE k.execution_id = p_id AND k.attempt_index = p_attempt AND k.mode = 'best_effort'
      ORDER BY k.seq DESC OFFSET p_kept LIMIT 1);
  GET DIAGNOSTICS v_removed = ROW_COUNT;
  UPDATE ff_stream_meta m SET live_count = m.live_count - v_removed WHERE m.execution_id = p_id AND m.attempt_index = p_attempt;
END $$;

-- Appends frames to the stream of a running attempt in the given order, all or none. p_append_id names the call:
-- repeated after a lost response, it returns the same result; a stream remembers its last eight. Ids follow the
-- database's clock and never decrease: the clock is read once, since two readings could give one instant two times.
-- prev_ts_ms is the time of the frame before these, 0 if there is none; null when repeated.
-- p_patience_ms: how long to wait for a lock, without a limit if NULL. p_supersedes, p_after_steps and p_applied are
-- NULL unless a handler runs again.
CREATE OR REPLACE FUNCTION ff_append_frames(
  p_id uuid, p_partition smallint, p_attempt integer, p_epoch bigint, p_append_id uuid, p_modes text[], p_encodings text[],
  p_types text[], p_correlations text[], p_step_names text[], p_step_keys text[], p_step_tries integer[], p_payloads bytea[], p_ttl_ms bigint,
  p_floor integer, p_ceiling integer, p_alpha double precision, p_max_document integer, p_patience_ms integer DEFAULT NULL,
  p_supersedes text[] DEFAULT NULL, p_after_steps jsonb[] DEFAULT NULL, p_applied bytea[] DEFAULT NULL,
  OUT outcome text, OUT lifecycle_phase text, OUT terminal_outcome text, OUT lease_epoch bigint, OUT ts_ms bigint, OUT last_seq bigint,
  OUT total_bytes bigint, OUT summary_version integer, OUT prev_ts_ms bigint
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_count integer := cardinality(p_modes);
  v_live integer := cardinality(array_positions(p_modes, 'best_effort'));
  v_patches integer[] := array_positions(p_modes, 'summary');
  v_bytes bigint := 0;
  v_payload bytea;
  v_expires bigint;
  v_now bigint;
  v_kept integer;
  v_live_count integer;
BEGIN
  PERFORM ff_require_read_committed();
  IF p_patience_ms IS NOT NULL THEN PERFORM set_config('lock_timeout', p_patience_ms::text, true); END IF;
  IF v_live = v_count THEN PERFORM set_config('synchronous_commit', 'off', true); END IF;
  -- As ff_share_leases does.
  SELECT lease_expires_at_ms INTO v_expires FROM ff_execution e
  WHERE e.execution_id = p_id AND e.partition_key = p_partition AND e.attempt_index = p_attempt AND e.lease_epoch = p_epoch
    AND e.claim_no IS NOT NULL FOR KEY SHARE;
  v_now := ff_now_ms();
  IF v_expires IS NULL OR v_expires <= v_now THEN
    SELECT f.outcome, f.lifecycle_phase, f.terminal_outcome, f.lease_epoch INTO outcome, lifecycle_phase, terminal_outcome, lease_epoch
    FROM ff_refusals('append', ARRAY[p_id], ARRAY[p_partition], ARRAY[p_attempt], ARRAY[p_epoch], '{}') f;
    RETURN;
  END IF;
  lifecycle_phase := 'active'; terminal_outcome := 'none'; lease_epoch := p_epoch;
  IF cardinality(v_patches) > 0 THEN
    summary_version := ff_fold_append(p_id, p_partition, p_attempt, p_epoch, p_append_id, ARRAY(
      SELECT coalesce(p_applied[n], p_payloads[n]) FROM unnest(v_patches) n ORDER BY n), p_max_document, v_now);
    IF summary_version = 0 THEN
      outcome := 'document_too_large'; summary_version := NULL;
      RETURN;
    END IF;
  END IF;
  FOREACH v_payload IN ARRAY p_payloads LOOP v_bytes := v_bytes + octet_length(v_payload); END LOOP;
  LOOP
    UPDATE ff_stream_meta m SET
      append_ids = (p_append_id || m.append_ids)[1:8], append_seqs = ((m.last_seq + v_count) || m.append_seqs)[1:8],
      append_times = (greatest(m.last_append_ts_ms, v_now) || m.append_times)[1:8], lease_epoch = p_epoch,
      last_append_ts_ms = greatest(m.last_append_ts_ms, v_now), last_seq = m.last_seq + v_count, total_bytes = m.total_bytes + v_bytes,
      ema_rate_hz = CASE v_live WHEN 0 THEN m.ema_rate_hz
        ELSE ff_live_rate(m.ema_rate_hz, m.ema_at_ms, m.ema_pending, v_live, greatest(m.last_append_ts_ms, v_now), p_alpha) END,
      ema_pending = CASE WHEN v_live > 0 AND greatest(m.last_append_ts_ms, v_now) > m.ema_at_ms THEN 0
        WHEN m.ema_at_ms IS NULL THEN 0 ELSE m.ema_pending + v_live END,
      ema_at_ms = CASE v_live WHEN 0 THEN m.ema_at_ms ELSE greatest(m.ema_at_ms, m.last_append_ts_ms, v_now) END,
      live_count = m.live_count + v_live,
      maxlen_applied_last = CASE v_live WHEN 0 THEN m.maxlen_applied_last ELSE ff_live_room(
        ff_live_rate(m.ema_rate_hz, m.ema_at_ms, m.ema_pending, v_live, greatest(m.last_append_ts_ms, v_now), p_alpha),
        v_live, p_ttl_ms, p_floor, p_ceiling) END
    WHERE m.execution_id = p_id AND m.attempt_index = p_attempt AND m.closed_at_ms IS NULL AND array_position(m.append_ids, p_append_id) IS NULL
    RETURNING m.last_append_ts_ms, m.last_seq, m.total_bytes, coalesce(m.append_times[2], 0), m.live_count, m.maxlen_applied_last
    INTO ts_ms, last_seq, total_bytes, prev_ts_ms, v_live_count, v_kept;
    EXIT WHEN FOUND;
    -- It is the first append, or a repeated one.
    CONTINUE WHEN ff_create_stream(p_id, p_partition, p_attempt, p_epoch);
    SELECT a.ts_ms, a.last_seq, a.total_bytes, a.summary_version INTO ts_ms, last_seq, total_bytes, summary_version
    FROM ff_repeated_append(p_id, p_attempt, p_append_id) a;
    EXIT WHEN ts_ms IS NOT NULL;
  END LOOP;
  outcome := 'appended';
  IF v_live_count IS NULL THEN RETURN; END IF;
  IF v_count = 1 THEN
    INSERT INTO ff_frame (execution_id, partition_key, attempt_index, ts_ms, seq, lease_epoch, mode, encoding, frame_type, correlation_id,
                          step_name, step_key, step_try, payload, summary_version, supersedes, after_steps, applied)
    VALUES (p_id, p_partition, p_attempt, ts_ms, last_seq, p_epoch, p_modes[1]::ff_frame_mode, p_encodings[1]::ff_frame_encoding, p_types[1],
            p_correlations[1], p_step_names[1], p_step_keys[1], p_step_tries[1], p_payloads[1], summary_version, p_supersedes[1],
            p_after_steps[1], p_applied[1]);
  ELSE
    INSERT INTO ff_frame (execution_id, partition_key, attempt_index, ts_ms, seq, lease_epoch, mode, encoding, frame_type, correlation_id,
                          step_name, step_key, step_try, payload, summary_version, supersedes, after_steps, applied)
    SELECT p_id, p_partition, p_attempt, ts_ms, last_seq - v_count + place, p_epoch, m::ff_frame_mode, c::ff_frame_encoding, t, r, n, k, y, p,
           summary_version - cardinality(v_patches) + array_position(v_patches, place::integer), x, a, w
    FROM unnest(p_modes, p_encodings, p_types, p_correlations, p_step_names, p_step_keys, p_step_tries, p_payloads, p_supersedes,
                p_after_steps, p_applied) WITH ORDINALITY u(m, c, t, r, n, k, y, p, x, a, w, place);
  END IF;
  -- Rarely, and then a fifth of them at once.
  IF v_live > 0 AND v_live_count > v_kept + v_kept / 4 THEN PERFORM ff_trim_live(p_id, p_attempt, v_kept); END IF;
END $$;
