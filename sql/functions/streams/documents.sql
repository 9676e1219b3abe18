-- Documents: what patches make, and what of it is carried from one attempt into the next.
-- Lock order: execution, then stream, then its document.

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

-- Folds patches into the document of an attempt, whose stream is locked. Returns its version, or 0 when it would be too
-- large; then nothing is written.
CREATE OR REPLACE FUNCTION ff_fold_patches(
  p_id uuid, p_partition smallint, p_attempt integer, p_epoch bigint, p_patches bytea[], p_max_bytes integer, p_now bigint
) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
  -- How far behind the snapshot of what is kept may be before it is moved on.
  c_behind CONSTANT integer := 256;
  y ff_stream_summary;
  v_document jsonb;
  v_version integer;
  v_patch bytea;
BEGIN
  LOOP
    SELECT * INTO y FROM ff_stream_summary s WHERE s.execution_id = p_id AND s.attempt_index = p_attempt FOR UPDATE;
    EXIT WHEN y.refold_from IS NULL;
    -- All that is left of earlier attempts, before anything follows.
    PERFORM ff_refold_stored(p_id, p_attempt, 1000);
  END LOOP;
  v_document := coalesce(y.document_json, '{}');
  FOREACH v_patch IN ARRAY p_patches LOOP
    v_document := ff_merge_patch(v_document, convert_from(v_patch, 'UTF8')::jsonb);
  END LOOP;
  IF octet_length(v_document::text) > p_max_bytes THEN
    RETURN 0;
  END IF;
  v_version := coalesce(y.version, 0) + cardinality(p_patches);
  INSERT INTO ff_stream_summary AS s (execution_id, partition_key, attempt_index, document_json, version, first_applied_ms, last_updated_ms)
  VALUES (p_id, p_partition, p_attempt, v_document, v_version, p_now, p_now)
  ON CONFLICT (execution_id, attempt_index) DO UPDATE SET document_json = EXCLUDED.document_json, version = EXCLUDED.version,
    last_updated_ms = EXCLUDED.last_updated_ms;
  IF y.version - y.kept_version > c_behind THEN PERFORM ff_move_snapshot(y, p_epoch, 2 * c_behind); END IF;
  RETURN v_version;
END $$;

-- Folds into p_document those patches of an attempt, after p_seq, that stay when it ends: written by children, or inside
-- a step that is finished. A step is recorded by the lease under which it ran, so what it wrote under another one it
-- writes again. While the attempt runs under p_epoch, a step may still finish: it stops before the first such patch.
CREATE OR REPLACE FUNCTION ff_keep_patches(
  p_id uuid, p_attempt integer, p_epoch bigint, p_most integer, INOUT p_document jsonb, INOUT p_seq bigint, INOUT p_version integer,
  OUT p_count integer
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
DECLARE
  f record;
BEGIN
  p_count := 0;
  FOR f IN
    SELECT x.seq, x.summary_version, x.payload, x.lease_epoch, x.child_id, x.step_name, s.attempt_index, s.lease_epoch AS finished_by
    FROM ff_frame x
    LEFT JOIN LATERAL (
      SELECT t.attempt_index, t.lease_epoch FROM ff_step t
      WHERE t.execution_id = p_id AND t.retired_by = 0 AND t.name = x.step_name AND t.key = x.step_key OFFSET 0) s ON true
    WHERE x.execution_id = p_id AND x.attempt_index = p_attempt AND x.mode = 'summary' AND x.seq > p_seq
    ORDER BY x.seq LIMIT p_most
  LOOP
    EXIT WHEN f.step_name IS NOT NULL AND f.finished_by IS NULL AND f.lease_epoch = p_epoch;
    IF f.child_id IS NOT NULL OR (f.attempt_index = p_attempt AND f.finished_by = f.lease_epoch) THEN
      p_document := ff_merge_patch(p_document, convert_from(f.payload, 'UTF8')::jsonb);
    END IF;
    p_seq := f.seq;
    p_version := f.summary_version;
    p_count := p_count + 1;
  END LOOP;
END $$;

-- Moves the snapshot of what is kept towards the end of a locked stream, so that the end of the attempt has little left
-- to fold.
CREATE OR REPLACE FUNCTION ff_move_snapshot(p_summary ff_stream_summary, p_epoch bigint, p_most integer) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  k record := ff_keep_patches(p_summary.execution_id, p_summary.attempt_index, p_epoch, p_most, coalesce(p_summary.kept_json, '{}'),
    p_summary.kept_seq, p_summary.kept_version);
BEGIN
  IF k.p_seq = p_summary.kept_seq THEN RETURN; END IF;
  UPDATE ff_stream_summary SET kept_json = k.p_document, kept_seq = k.p_seq, kept_version = k.p_version
  WHERE execution_id = p_summary.execution_id AND attempt_index = p_summary.attempt_index;
END $$;

-- Goes on folding what the attempts before this one have left into its document, at most p_most patches. Returns the
-- document's row as it is then; NULL in refold_from says that it is whole.
CREATE OR REPLACE FUNCTION ff_refold(p_summary ff_stream_summary, p_most integer) RETURNS ff_stream_summary LANGUAGE plpgsql AS $$
DECLARE
  y ff_stream_summary := p_summary;
  k record;
  v_left integer := p_most;
BEGIN
  WHILE y.refold_from < y.attempt_index AND v_left > 0 LOOP
    k := ff_keep_patches(y.execution_id, y.refold_from, NULL, v_left, coalesce(y.kept_json, '{}'), y.kept_seq, 0);
    y.kept_json := k.p_document;
    y.kept_seq := k.p_seq;
    IF k.p_count < v_left THEN
      y.refold_from := y.refold_from + 1;
      y.kept_seq := 0;
    END IF;
    v_left := v_left - k.p_count;
  END LOOP;
  y.document_json := coalesce(y.kept_json, '{}');
  y.kept_json := nullif(y.document_json, '{}');
  IF y.refold_from = y.attempt_index THEN y.refold_from := NULL; END IF;
  RETURN y;
END $$;

-- The same for a document that is stored. Returns whether it is whole.
CREATE OR REPLACE FUNCTION ff_refold_stored(p_id uuid, p_attempt integer, p_most integer) RETURNS boolean LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
DECLARE
  y ff_stream_summary;
BEGIN
  SELECT * INTO y FROM ff_stream_summary s WHERE s.execution_id = p_id AND s.attempt_index = p_attempt FOR UPDATE;
  IF y.refold_from IS NULL THEN RETURN true; END IF;
  y := ff_refold(y, p_most);
  UPDATE ff_stream_summary SET document_json = y.document_json, kept_json = y.kept_json, kept_seq = y.kept_seq, refold_from = y.refold_from
  WHERE execution_id = p_id AND attempt_index = p_attempt;
  RETURN y.refold_from IS NULL;
END $$;

-- Carries the documents of attempts that have ended into the next ones: what is kept, and nothing else. What is too much
-- to fold while the executions are locked is left to whoever reads or patches the document first. p_again: steps were
-- retired, and the snapshots may contain what they wrote; so all is folded again. Called with the executions moved on.
CREATE OR REPLACE FUNCTION ff_carry_documents(p_ids uuid[], p_again boolean, p_now bigint) RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
DECLARE
  c_at_once CONSTANT integer := 200;
  y ff_stream_summary;
BEGIN
  FOR y IN
    SELECT s.* FROM unnest(p_ids) u(id)
    CROSS JOIN LATERAL (SELECT e.attempt_index FROM ff_execution e WHERE e.execution_id = u.id OFFSET 0) e
    CROSS JOIN LATERAL (
      SELECT * FROM ff_stream_summary s WHERE s.execution_id = u.id AND s.attempt_index = e.attempt_index - 1 OFFSET 0) s
  LOOP
    IF p_again THEN
      y.kept_json := NULL; y.kept_seq := 0; y.refold_from := 0;
    END IF;
    y.refold_from := coalesce(y.refold_from, y.attempt_index);
    y.attempt_index := y.attempt_index + 1;
    y := ff_refold(y, c_at_once);
    INSERT INTO ff_stream_summary (execution_id, partition_key, attempt_index, document_json, kept_json, kept_seq, refold_from, version,
                                   kept_version, first_applied_ms, last_updated_ms)
    VALUES (y.execution_id, y.partition_key, y.attempt_index, y.document_json, y.kept_json, y.kept_seq, y.refold_from, y.version, y.version,
            y.first_applied_ms, p_now);
  END LOOP;
END $$;

-- Locks the stream and folds the patches of an append, unless it is a repeated one: then NULL.
CREATE OR REPLACE FUNCTION ff_fold_append(
  p_id uuid, p_partition smallint, p_attempt integer, p_epoch bigint, p_append_id uuid, p_patches bytea[], p_max_bytes integer, p_now bigint
) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
  s ff_stream_meta := ff_lock_stream(p_id, p_partition, p_attempt, p_epoch);
BEGIN
  IF array_position(s.append_ids, p_append_id) IS NOT NULL THEN RETURN NULL; END IF;
  RETURN ff_fold_patches(p_id, p_partition, p_attempt, p_epoch, p_patches, p_max_bytes, greatest(s.last_append_ts_ms, p_now));
END $$;
