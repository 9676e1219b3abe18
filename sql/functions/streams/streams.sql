-- The output of attempts: appending frames, folding patches into a document, and closing.
-- Lock order: lease, then stream. Ending an attempt locks its lease first, and so waits for a running append.

-- RFC 7396 on objects, with `__ff_null__` for an intended null. Set-based: one key at a time would copy the document
-- for each.
CREATE OR REPLACE FUNCTION ff_merge_patch(p_target jsonb, p_patch jsonb) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  v_target jsonb := CASE jsonb_typeof(p_target) WHEN 'object' THEN p_target ELSE '{}' END;
BEGIN
  IF jsonb_typeof(p_patch) <> 'object' THEN
    RETURN ff_meant_nulls(p_patch);
  END IF;
  RETURN (
    SELECT coalesce(jsonb_object_agg(key, value), '{}') FROM (
      SELECT t.key, t.value FROM jsonb_each(v_target) t WHERE NOT p_patch ? t.key
      UNION ALL
      SELECT p.key, ff_merge_patch(v_target -> p.key, p.value) FROM jsonb_each(p_patch) p WHERE p.value <> 'null') m);
END $$;

-- Takes a value as it is, with its intended nulls, also inside lists, whose objects are not merged into anything.
CREATE OR REPLACE FUNCTION ff_meant_nulls(p_value jsonb) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  IF position('__ff_null__' IN p_value::text) = 0 THEN RETURN p_value; END IF;
  RETURN CASE jsonb_typeof(p_value)
    WHEN 'string' THEN CASE WHEN p_value = '"__ff_null__"' THEN 'null' ELSE p_value END
    WHEN 'array' THEN (SELECT jsonb_agg(ff_meant_nulls(v) ORDER BY place) FROM jsonb_array_elements(p_value) WITH ORDINALITY x(v, place))
    WHEN 'object' THEN (SELECT jsonb_object_agg(key, ff_meant_nulls(value)) FROM jsonb_each(p_value))
    ELSE p_value END;
END $$;

-- Locks the stream of an attempt; the first append creates it.
CREATE OR REPLACE FUNCTION ff_lock_stream(p_id uuid, p_partition smallint, p_attempt integer, p_epoch bigint) RETURNS ff_stream_meta
LANGUAGE plpgsql AS $$
DECLARE
  s ff_stream_meta;
BEGIN
  SELECT * INTO s FROM ff_stream_meta m WHERE m.execution_id = p_id AND m.attempt_index = p_attempt FOR UPDATE;
  IF NOT FOUND THEN
    INSERT INTO ff_stream_meta (execution_id, partition_key, attempt_index, lease_epoch, created_at_ms, last_append_ts_ms, last_seq,
                                total_bytes)
    VALUES (p_id, p_partition, p_attempt, p_epoch, ff_now_ms(), 0, 0, 0) ON CONFLICT DO NOTHING;
    SELECT * INTO STRICT s FROM ff_stream_meta m WHERE m.execution_id = p_id AND m.attempt_index = p_attempt FOR UPDATE;
  END IF;
  RETURN s;
END $$;

-- Folds patches into the document of an attempt, whose stream is locked. Returns its version, or 0 when it would be too
-- large; then nothing is written.
CREATE OR REPLACE FUNCTION ff_fold_patches(
  p_id uuid, p_partition smallint, p_attempt integer, p_patches bytea[], p_max_bytes integer, p_now bigint
) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
  v_document jsonb;
  v_version integer;
  v_patch bytea;
BEGIN
  SELECT document_json, version INTO v_document, v_version FROM ff_stream_summary s
  WHERE s.execution_id = p_id AND s.attempt_index = p_attempt FOR UPDATE;
  v_document := coalesce(v_document, '{}');
  FOREACH v_patch IN ARRAY p_patches LOOP
    v_document := ff_merge_patch(v_document, convert_from(v_patch, 'UTF8')::jsonb);
  END LOOP;
  IF octet_length(v_document::text) > p_max_bytes THEN
    RETURN 0;
  END IF;
  v_version := coalesce(v_version, 0) + cardinality(p_patches);
  INSERT INTO ff_stream_summary AS s (execution_id, partition_key, attempt_index, document_json, version, first_applied_ms, last_updated_ms)
  VALUES (p_id, p_partition, p_attempt, v_document, v_version, p_now, p_now)
  ON CONFLICT (execution_id, attempt_index) DO UPDATE SET document_json = EXCLUDED.document_json, version = EXCLUDED.version,
    last_updated_ms = EXCLUDED.last_updated_ms;
  RETURN v_version;
END $$;

-- The rate of best-effort frames, and from it how many are kept. Frames of one instant are counted with the next
-- instant's: a single instant has no rate.
CREATE OR REPLACE FUNCTION ff_measure_live(
  s ff_stream_meta, p_frames bigint, p_now bigint, p_ttl_ms bigint, p_floor integer, p_ceiling integer, p_alpha double precision
) RETURNS ff_stream_meta LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  IF s.ema_at_ms IS NULL THEN
    s.ema_at_ms := p_now;
  ELSIF p_now > s.ema_at_ms THEN
    s.ema_rate_hz := p_alpha * (1000.0 * (s.ema_pending + p_frames) / (p_now - s.ema_at_ms)) + (1 - p_alpha) * s.ema_rate_hz;
    s.ema_at_ms := p_now;
    s.ema_pending := 0;
  ELSE
    s.ema_pending := s.ema_pending + p_frames;
  END IF;
  s.live_count := s.live_count + p_frames;
  -- Frames just written are always kept.
  s.maxlen_applied_last := least(greatest(2 * ceil(s.ema_rate_hz * p_ttl_ms / 1000.0), p_floor, p_frames), p_ceiling)::integer;
  RETURN s;
END $$;

-- Trims the oldest best-effort frames of a locked stream to the number that is kept. Returns how many are left.
CREATE OR REPLACE FUNCTION ff_trim_live(s ff_stream_meta) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
  v_removed integer;
BEGIN
  DELETE FROM ff_frame f
  WHERE f.execution_id = s.execution_id AND f.attempt_index = s.attempt_index AND f.mode = 'best_effort'
    AND f.seq <= (
      SELECT k.seq FROM ff_frame k
      WHERE k.execution_id = s.execution_id AND k.attempt_index = s.attempt_index AND k.mode = 'best_effort'
      ORDER BY k.seq DESC OFFSET s.maxlen_applied_last LIMIT 1);
  GET DIAGNOSTICS v_removed = ROW_COUNT;
  RETURN s.live_count - v_removed;
END $$;

-- Appends frames to the stream of a running attempt in the given order, all or none. p_append_id names the call:
-- repeated after a lost response, it returns the same result; a stream remembers its last eight. Ids follow the
-- database's clock and never decrease.
CREATE OR REPLACE FUNCTION ff_append_frames(
  p_id uuid, p_partition smallint, p_attempt integer, p_epoch bigint, p_append_id uuid, p_modes text[], p_encodings text[],
  p_types text[], p_correlations text[], p_step_names text[], p_step_keys text[], p_step_tries integer[], p_payloads bytea[], p_ttl_ms bigint,
  p_floor integer, p_ceiling integer, p_alpha double precision, p_max_document integer
) RETURNS TABLE (
  outcome text, lifecycle_phase text, terminal_outcome text, lease_epoch bigint, ts_ms bigint, last_seq bigint, total_bytes bigint,
  summary_version integer
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  s ff_stream_meta;
  v_now bigint;
  v_version integer;
  v_patches bytea[] := ARRAY(SELECT p FROM unnest(p_modes, p_payloads) WITH ORDINALITY u(m, p, place) WHERE m = 'summary' ORDER BY place);
  v_live bigint := (SELECT count(*) FROM unnest(p_modes) m WHERE m = 'best_effort');
  v_again integer;
BEGIN
  PERFORM ff_require_read_committed();
  IF v_live = cardinality(p_modes) THEN
    PERFORM set_config('synchronous_commit', 'off', true);
  END IF;
  IF cardinality(ff_share_leases(ARRAY[p_id], ARRAY[p_partition], ARRAY[p_attempt], ARRAY[p_epoch])) = 0 THEN
    RETURN QUERY
    SELECT f.outcome, f.lifecycle_phase, f.terminal_outcome, f.lease_epoch, NULL::bigint, NULL::bigint, NULL::bigint, NULL::integer
    FROM ff_refusals('append', ARRAY[p_id], ARRAY[p_partition], ARRAY[p_attempt], ARRAY[p_epoch], '{}') f;
    RETURN;
  END IF;
  s := ff_lock_stream(p_id, p_partition, p_attempt, p_epoch);
  PERFORM ff_require_equal('open streams', 0, CASE WHEN s.closed_at_ms IS NULL THEN 0 ELSE 1 END);
  v_again := array_position(s.append_ids, p_append_id);
  IF v_again IS NULL THEN
    -- Read once and after the lock: two readings could give one instant two times.
    v_now := greatest(s.last_append_ts_ms, ff_now_ms());
    v_version := CASE WHEN cardinality(v_patches) > 0 THEN ff_fold_patches(p_id, p_partition, p_attempt, v_patches, p_max_document, v_now) END;
    IF v_version = 0 THEN
      RETURN QUERY SELECT 'document_too_large', 'active', 'none', p_epoch, NULL::bigint, NULL::bigint, NULL::bigint, NULL::integer;
      RETURN;
    END IF;
    INSERT INTO ff_frame (execution_id, partition_key, attempt_index, ts_ms, seq, lease_epoch, mode, encoding, frame_type, correlation_id,
                          step_name, step_key, step_try, payload, summary_version)
    SELECT p_id, p_partition, p_attempt, v_now, s.last_seq + place, p_epoch, m::ff_frame_mode, c::ff_frame_encoding, t, r, n, k, y, p,
           CASE m WHEN 'summary' THEN v_version - cardinality(v_patches) + count(*) FILTER (WHERE m = 'summary') OVER (ORDER BY place) END
    FROM unnest(p_modes, p_encodings, p_types, p_correlations, p_step_names, p_step_keys, p_step_tries, p_payloads)
      WITH ORDINALITY u(m, c, t, r, n, k, y, p, place);
    IF v_live > 0 THEN
      s := ff_measure_live(s, v_live, v_now, p_ttl_ms, p_floor, p_ceiling, p_alpha);
      -- Rarely, and then a fifth of them at once.
      IF s.live_count > s.maxlen_applied_last + s.maxlen_applied_last / 4 THEN
        s.live_count := ff_trim_live(s);
      END IF;
    END IF;
    s.last_append_ts_ms := v_now;
    s.last_seq := s.last_seq + cardinality(p_modes);
    s.total_bytes := s.total_bytes + (SELECT sum(octet_length(p)) FROM unnest(p_payloads) p);
    UPDATE ff_stream_meta m SET append_ids = (p_append_id || s.append_ids)[1:8], append_seqs = (s.last_seq || s.append_seqs)[1:8],
      append_times = (v_now || s.append_times)[1:8], lease_epoch = p_epoch, last_append_ts_ms = s.last_append_ts_ms, last_seq = s.last_seq,
      total_bytes = s.total_bytes, ema_rate_hz = s.ema_rate_hz, ema_at_ms = s.ema_at_ms, ema_pending = s.ema_pending,
      live_count = s.live_count, maxlen_applied_last = s.maxlen_applied_last
    WHERE m.execution_id = p_id AND m.attempt_index = p_attempt;
  END IF;
  RETURN QUERY
  SELECT 'appended', 'active', 'none', p_epoch, coalesce(s.append_times[v_again], s.last_append_ts_ms),
         coalesce(s.append_seqs[v_again], s.last_seq), s.total_bytes, coalesce(v_version, (
    SELECT version FROM ff_stream_summary y WHERE y.execution_id = p_id AND y.attempt_index = p_attempt));
END $$;
