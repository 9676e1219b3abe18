-- What a child does to the document of its parent, inside a step: in the commit that records the step, and so once.
-- Lock order: both executions by id, then the parent's stream, then its document.

-- The patches that changes make of a document, in order: a change is a patch, or a path and by how much the number there
-- grows; whatever is no number counts as 0.
CREATE OR REPLACE FUNCTION ff_changes_as_patches(p_document jsonb, p_changes jsonb) RETURNS jsonb[] LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  v_document jsonb := p_document;
  v_change jsonb;
  v_path text[];
  v_patch jsonb;
  v_patches jsonb[] := '{}';
BEGIN
  FOR v_change IN SELECT c FROM jsonb_array_elements(p_changes) WITH ORDINALITY x(c, place) ORDER BY place LOOP
    v_patch := v_change -> 'patch';
    IF v_patch IS NULL THEN
      v_path := ARRAY(SELECT k FROM jsonb_array_elements_text(v_change -> 'path') WITH ORDINALITY x(k, place) ORDER BY place);
      v_patch := to_jsonb((v_change ->> 'by')::numeric + CASE jsonb_typeof(v_document #> v_path)
        WHEN 'number' THEN (v_document #>> v_path)::numeric ELSE 0 END);
      FOR i IN REVERSE cardinality(v_path)..1 LOOP v_patch := jsonb_build_object(v_path[i], v_patch); END LOOP;
    END IF;
    v_document := ff_merge_patch(v_document, v_patch);
    v_patches := v_patches || v_patch;
  END LOOP;
  RETURN v_patches;
END $$;

-- Applies patches to the document of a parent that has not ended, and writes them to its stream, which is locked. They
-- are kept whatever happens to its attempt, because they name the child.
CREATE OR REPLACE FUNCTION ff_patch_for_child(
  p_stream ff_stream_meta, p_child uuid, p_patches jsonb[], p_max_document integer
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_payloads bytea[] := ARRAY(SELECT convert_to(p::text, 'UTF8') FROM unnest(p_patches) WITH ORDINALITY u(p, place) ORDER BY place);
  v_ts bigint := greatest(p_stream.last_append_ts_ms, ff_now_ms());
  v_version integer;
BEGIN
  v_version := ff_fold_patches(p_stream.execution_id, p_stream.partition_key, p_stream.attempt_index, p_stream.lease_epoch, v_payloads,
    p_max_document, v_ts) - cardinality(v_payloads);
  UPDATE ff_stream_meta SET last_append_ts_ms = v_ts, last_seq = last_seq + cardinality(v_payloads),
    total_bytes = total_bytes + (SELECT sum(octet_length(p)) FROM unnest(v_payloads) p)
  WHERE execution_id = p_stream.execution_id AND attempt_index = p_stream.attempt_index;
  INSERT INTO ff_frame (execution_id, partition_key, attempt_index, ts_ms, seq, lease_epoch, mode, encoding, frame_type, payload,
                        summary_version, child_id)
  SELECT p_stream.execution_id, p_stream.partition_key, p_stream.attempt_index, v_ts, p_stream.last_seq + place, p_stream.lease_epoch,
         'summary', 'json', 'event', p, v_version + place, p_child
  FROM unnest(v_payloads) WITH ORDINALITY u(p, place);
END $$;

-- Records a finished step of a child as ff_record_steps does, and changes the document of its parent in the same
-- transaction, unless the step was recorded before or the parent has ended. `document_too_large`: nothing is written.
-- parent_id is returned if its document was changed.
CREATE OR REPLACE FUNCTION ff_record_for_parent(
  p_id uuid, p_partition smallint, p_attempt integer, p_epoch bigint, p_name text, p_key text, p_value jsonb, p_duration integer,
  p_changes jsonb, p_max_document integer
) RETURNS TABLE (
  outcome text, repeated boolean, lifecycle_phase text, terminal_outcome text, lease_epoch bigint, kind text, value jsonb, parent_id uuid
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_parent uuid := (SELECT e.parent_id FROM ff_execution e WHERE e.execution_id = p_id AND e.partition_key = p_partition);
  e ff_execution;
  s ff_stream_meta;
  y jsonb;
  r record;
  v_patches jsonb[];
BEGIN
  PERFORM ff_require_read_committed();
  -- One after the other, in the order of ids: then each is as it is once nobody else can change it.
  FOR r IN SELECT u.id FROM unnest(ARRAY[p_id, v_parent]) u(id) ORDER BY u.id LOOP
    PERFORM FROM ff_execution x WHERE x.execution_id = r.id FOR KEY SHARE;
  END LOOP;
  SELECT * INTO e FROM ff_execution x WHERE x.execution_id = v_parent;
  IF e.lifecycle_phase <> 'terminal' THEN
    s := ff_lock_stream(v_parent, p_partition, e.attempt_index, e.lease_epoch);
    WHILE NOT ff_refold_stored(v_parent, e.attempt_index, 1000) LOOP END LOOP;
    y := coalesce((SELECT d.document_json FROM ff_stream_summary d
                   WHERE d.execution_id = v_parent AND d.attempt_index = e.attempt_index), '{}');
    v_patches := ff_changes_as_patches(y, p_changes);
    FOR i IN 1..cardinality(v_patches) LOOP y := ff_merge_patch(y, v_patches[i]); END LOOP;
    IF octet_length(y::text) > p_max_document THEN
      RETURN QUERY SELECT 'document_too_large', false, NULL::text, NULL::text, NULL::bigint, NULL::text, NULL::jsonb, NULL::uuid;
      RETURN;
    END IF;
  END IF;
  SELECT * INTO STRICT r FROM ff_record_steps(ARRAY[p_id], ARRAY[p_partition], ARRAY[p_attempt], ARRAY[p_epoch], '{step}', ARRAY[p_name],
    ARRAY[p_key], '{NULL}', ARRAY[p_value], ARRAY[p_duration]);
  IF r.outcome <> 'recorded' OR r.repeated THEN v_patches := NULL; END IF;
  IF v_patches IS NOT NULL THEN PERFORM ff_patch_for_child(s, p_id, v_patches, p_max_document); END IF;
  RETURN QUERY SELECT r.outcome, r.repeated, r.lifecycle_phase, r.terminal_outcome, r.lease_epoch, r.kind, r.value,
    CASE WHEN v_patches IS NOT NULL THEN v_parent END;
END $$;
