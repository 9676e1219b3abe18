-- Appending to many streams at once, by a few statements over arrays. Its arguments and its answer are as few values as
-- possible: to read and to write them was a third of its cost.

-- Appends to each stream as ff_append_frames does. p_counts, p_lives and p_bytes describe each append; p_of and p_places
-- say which append a frame belongs to and where it stands in it, p_patches how many patches follow it there, negated, if
-- it is one. All payloads are in p_payload, one after the other, p_offsets and p_sizes say where; other arrays may be
-- NULL when all of their elements are. The streams are locked in the order of p_ids, which is that of the ids.
-- Returns five lists of what was appended: places in p_ids, times, numbers of the last frame, total bytes, versions of
-- the document. Whatever is held, refused, repeated or too large is left to a call of its own, so that it affects no
-- other.
CREATE OR REPLACE FUNCTION ff_append_streams(
  p_ids uuid[], p_partitions smallint[], p_attempts integer[], p_epochs bigint[], p_append_ids uuid[], p_counts integer[], p_lives integer[],
  p_bytes bigint[], p_of integer[], p_places integer[], p_patches integer[], p_modes ff_frame_mode[], p_encodings ff_frame_encoding[],
  p_types text[], p_correlations text[], p_step_names text[], p_step_keys text[], p_step_tries integer[], p_offsets integer[],
  p_sizes integer[], p_payload bytea, p_ttl_ms bigint, p_floor integer, p_ceiling integer, p_alpha double precision, p_max_document integer,
  p_patience_ms integer
) RETURNS text LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
DECLARE
  v_now bigint;
  v_todo integer[];
  v_versions integer[] := array_fill(NULL::integer, ARRAY[cardinality(p_ids)]);
  -- Of what was appended, in the same order.
  v_ords integer[];
  v_times bigint[];
  v_lasts bigint[];
  v_totals bigint[];
  v_live_counts integer[];
  v_kept integer[];
  -- The same by the place in p_ids.
  v_time_of bigint[];
  v_last_of bigint[];
  r record;
BEGIN
  PERFORM ff_require_read_committed(), set_config('lock_timeout', p_patience_ms::text, true);
  IF p_modes <@ '{best_effort}' THEN PERFORM set_config('synchronous_commit', 'off', true); END IF;
  v_now := ff_now_ms();
  -- In any order: it waits for none of them.
  v_todo := ARRAY(
    SELECT u.ord FROM unnest(p_ids, p_partitions, p_attempts, p_epochs) WITH ORDINALITY u(id, part, att, ep, ord)
    CROSS JOIN LATERAL (
      SELECT lease_expires_at_ms FROM ff_execution
      WHERE execution_id = u.id AND partition_key = u.part AND attempt_index = u.att AND lease_epoch = u.ep AND claim_no IS NOT NULL
      FOR KEY SHARE SKIP LOCKED) l
    WHERE l.lease_expires_at_ms > v_now);
  IF 'summary' = ANY (p_modes) THEN
    FOR r IN
      SELECT u.of, array_agg(substring(p_payload FROM u.start + 1 FOR u.size) ORDER BY u.n) AS patches
      FROM unnest(p_of, p_modes, p_offsets, p_sizes) WITH ORDINALITY u(of, mode, start, size, n)
      WHERE u.mode = 'summary' AND u.of = ANY (v_todo) GROUP BY u.of ORDER BY u.of
    LOOP
      v_versions[r.of] := nullif(ff_fold_append(p_ids[r.of], p_partitions[r.of], p_attempts[r.of], p_epochs[r.of], p_append_ids[r.of],
        r.patches, p_max_document, v_now), 0);
      IF v_versions[r.of] IS NULL THEN v_todo := array_remove(v_todo, r.of); END IF;
    END LOOP;
  END IF;
  WITH written AS (
    -- EXCLUDED is the stream as this append alone would make it.
    INSERT INTO ff_stream_meta AS m (execution_id, partition_key, attempt_index, lease_epoch, created_at_ms, last_append_ts_ms, last_seq,
      total_bytes, append_ids, append_seqs, append_times, ema_at_ms, live_count, maxlen_applied_last)
    SELECT u.id, u.part, u.att, u.ep, v_now, v_now, u.frames, u.bytes, ARRAY[u.append_id], ARRAY[u.frames], ARRAY[v_now],
           CASE WHEN u.live > 0 THEN v_now END, u.live, CASE WHEN u.live > 0 THEN ff_live_room(0, u.live, p_ttl_ms, p_floor, p_ceiling) END
    FROM unnest(p_ids, p_partitions, p_attempts, p_epochs, p_append_ids, p_counts, p_lives, p_bytes)
      WITH ORDINALITY u(id, part, att, ep, append_id, frames, live, bytes, ord)
    WHERE u.ord = ANY (v_todo)
    ON CONFLICT (execution_id, attempt_index) DO UPDATE SET
      append_ids = (EXCLUDED.append_ids || m.append_ids)[1:8], append_seqs = ((m.last_seq + EXCLUDED.last_seq) || m.append_seqs)[1:8],
      append_times = (greatest(m.last_append_ts_ms, v_now) || m.append_times)[1:8], lease_epoch = EXCLUDED.lease_epoch,
      last_append_ts_ms = greatest(m.last_append_ts_ms, v_now), last_seq = m.last_seq + EXCLUDED.last_seq,
      total_bytes = m.total_bytes + EXCLUDED.total_bytes,
      ema_rate_hz = CASE EXCLUDED.live_count WHEN 0 THEN m.ema_rate_hz ELSE
        ff_live_rate(m.ema_rate_hz, m.ema_at_ms, m.ema_pending, EXCLUDED.live_count, greatest(m.last_append_ts_ms, v_now), p_alpha) END,
      ema_pending = CASE WHEN EXCLUDED.live_count > 0 AND greatest(m.last_append_ts_ms, v_now) > m.ema_at_ms THEN 0
        WHEN m.ema_at_ms IS NULL THEN 0 ELSE m.ema_pending + EXCLUDED.live_count END,
      ema_at_ms = CASE EXCLUDED.live_count WHEN 0 THEN m.ema_at_ms ELSE greatest(m.ema_at_ms, m.last_append_ts_ms, v_now) END,
      live_count = m.live_count + EXCLUDED.live_count,
      maxlen_applied_last = CASE EXCLUDED.live_count WHEN 0 THEN m.maxlen_applied_last ELSE ff_live_room(
        ff_live_rate(m.ema_rate_hz, m.ema_at_ms, m.ema_pending, EXCLUDED.live_count, greatest(m.last_append_ts_ms, v_now), p_alpha),
        EXCLUDED.live_count, p_ttl_ms, p_floor, p_ceiling) END
    WHERE m.closed_at_ms IS NULL AND array_position(m.append_ids, EXCLUDED.append_ids[1]) IS NULL
    RETURNING array_position(p_append_ids, m.append_ids[1]) AS ord, m.last_append_ts_ms AS ts, m.last_seq AS last, m.total_bytes AS total,
      m.live_count AS live, m.maxlen_applied_last AS kept)
  SELECT coalesce(array_agg(w.ord), '{}'), array_agg(w.ts), array_agg(w.last), array_agg(w.total), array_agg(w.live), array_agg(w.kept)
  INTO v_ords, v_times, v_lasts, v_totals, v_live_counts, v_kept FROM written w;
  v_time_of := v_times;
  v_last_of := v_lasts;
  IF cardinality(v_ords) < cardinality(p_ids) THEN
    v_time_of := array_fill(NULL::bigint, ARRAY[cardinality(p_ids)]);
    v_last_of := v_time_of;
    FOR i IN 1..cardinality(v_ords) LOOP
      v_time_of[v_ords[i]] := v_times[i];
      v_last_of[v_ords[i]] := v_lasts[i];
    END LOOP;
  END IF;
  INSERT INTO ff_frame (execution_id, partition_key, attempt_index, ts_ms, seq, lease_epoch, mode, encoding, frame_type, correlation_id,
                        step_name, step_key, step_try, payload, summary_version)
  SELECT p_ids[u.of], p_partitions[u.of], p_attempts[u.of], v_time_of[u.of], v_last_of[u.of] - p_counts[u.of] + u.place, p_epochs[u.of],
         u.mode, u.encoding, u.type, u.correlation, u.step, u.key, u.try, substring(p_payload FROM u.start + 1 FOR u.size),
         v_versions[u.of] + u.patch
  FROM unnest(p_of, p_places, p_patches, p_modes, p_encodings, p_types, p_correlations, p_step_names, p_step_keys, p_step_tries, p_offsets,
              p_sizes) u(of, place, patch, mode, encoding, type, correlation, step, key, try, start, size)
  WHERE v_time_of[u.of] IS NOT NULL;
  IF 'best_effort' = ANY (p_modes) THEN
    FOR i IN 1..cardinality(v_ords) LOOP
      -- Rarely, and then a fifth of them at once.
      CONTINUE WHEN p_lives[v_ords[i]] = 0 OR v_live_counts[i] <= v_kept[i] + v_kept[i] / 4;
      PERFORM ff_trim_live(p_ids[v_ords[i]], p_attempts[v_ords[i]], v_kept[i]);
    END LOOP;
  END IF;
  RETURN concat(array_to_string(v_ords, ','), ';', array_to_string(v_times, ','), ';', array_to_string(v_lasts, ','), ';',
                array_to_string(v_totals, ','), ';', array_to_string(v_versions, ',', ''));
END $$;
