-- Reading the output of attempts. Readers wait for this, frame by frame, and to plan the statement takes four times as
-- long as to run it: in a function its plan is kept.

-- The head of a stream, and its frames between two places in either order, in one snapshot: a row for each frame, or one
-- without a frame. One frame more than the limit is returned, which says that there are more; `found` also counts what
-- exceeds p_max_bytes, of which at least one frame is returned. No rows when the execution does not exist.
CREATE OR REPLACE FUNCTION ff_read_frames(
  p_id uuid, p_partition smallint, p_attempt integer, p_from_ts bigint, p_from_seq bigint, p_to_ts bigint, p_to_seq bigint, p_modes text[],
  p_limit integer, p_max_bytes bigint, p_backward boolean
) RETURNS TABLE (
  attempt_index integer, last_ts_ms bigint, last_seq bigint, total_bytes bigint, paused_by text, active_epoch bigint, current_attempt integer,
  phase text, closed_at_ms bigint, closed_reason text, outcome text, terminal_outcome text, interrupted_by text, ended_at_ms bigint,
  ts_ms bigint, seq bigint, lease_epoch bigint, mode text, encoding text, frame_type text, correlation_id text, step_name text, step_key text,
  step_try integer, summary_version integer, child_id uuid, supersedes text, after_steps jsonb, applied bytea, bytes bytea, found bigint
) LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_sign integer := CASE WHEN p_backward THEN -1 ELSE 1 END;
  -- In the same snapshot, because the function is STABLE. Known before, so that it is a key of every index scan.
  v_attempt integer := coalesce(p_attempt, (
    SELECT e.attempt_index FROM ff_execution e WHERE e.execution_id = p_id AND e.partition_key = p_partition));
BEGIN
  RETURN QUERY
  SELECT v_attempt, coalesce(m.last_append_ts_ms, 0), coalesce(m.last_seq, 0), coalesce(m.total_bytes, 0),
         CASE WHEN e.attempt_index = v_attempt AND e.attempt_state = 'attempt_interrupted' THEN e.blocking_reason::text END,
         CASE WHEN e.attempt_index = v_attempt AND e.lifecycle_phase = 'active' THEN e.lease_epoch END,
         e.attempt_index, e.lifecycle_phase::text, m.closed_at_ms, m.closed_reason, h.outcome::text,
         CASE WHEN e.lifecycle_phase = 'terminal' THEN h.terminal_outcome::text END, h.interrupted_by, h.ended_at_ms,
         f.ts_ms, f.seq, f.lease_epoch, f.mode::text, f.encoding::text, f.frame_type, f.correlation_id, f.step_name, f.step_key, f.step_try,
         f.summary_version, f.child_id, f.supersedes, f.after_steps, f.applied, f.payload, f.found
  FROM ff_execution e
  LEFT JOIN ff_stream_meta m ON m.execution_id = e.execution_id AND m.attempt_index = v_attempt
  LEFT JOIN ff_attempt_history h ON h.execution_id = e.execution_id AND h.partition_key = e.partition_key AND h.attempt_index = v_attempt
  LEFT JOIN LATERAL (
    SELECT * FROM (
      SELECT p.*, count(*) OVER () AS found, octet_length(p.payload) AS size, sum(octet_length(p.payload)) OVER (ORDER BY p.seq * v_sign) AS sum
      FROM (
        (SELECT * FROM ff_frame x
         WHERE NOT p_backward AND x.execution_id = e.execution_id AND x.attempt_index = v_attempt
           AND (x.ts_ms, x.seq) >= (p_from_ts, p_from_seq) AND (x.ts_ms, x.seq) <= (p_to_ts, p_to_seq)
           AND (p_modes IS NULL OR x.mode::text = ANY (p_modes))
         ORDER BY x.ts_ms, x.seq LIMIT p_limit + 1)
        UNION ALL
        (SELECT * FROM ff_frame x
         WHERE p_backward AND x.execution_id = e.execution_id AND x.attempt_index = v_attempt
           AND (x.ts_ms, x.seq) >= (p_from_ts, p_from_seq) AND (x.ts_ms, x.seq) <= (p_to_ts, p_to_seq)
           AND (p_modes IS NULL OR x.mode::text = ANY (p_modes))
         ORDER BY x.ts_ms DESC, x.seq DESC LIMIT p_limit + 1)) p) p
    WHERE p.sum <= p_max_bytes OR p.sum = p.size) f ON true
  WHERE e.execution_id = p_id AND e.partition_key = p_partition
  ORDER BY f.seq * v_sign;
END $$;
