/**
 * Appending in the simpler forms one would write first: by the clock of the writer's host, by a sequence, and without
 * knowing whether the call was made before. For tests only, like executions/naive-functions.ts.
 */
const ARGUMENTS = `p_id uuid, p_partition smallint, p_attempt integer, p_epoch bigint, p_append_id uuid, p_modes text[],
  p_encodings text[], p_types text[], p_correlations text[], p_step_names text[], p_step_keys text[], p_step_tries integer[], p_payloads bytea[],
  p_ttl_ms bigint, p_floor integer, p_ceiling integer, p_alpha double precision, p_max_document integer`;
const ANSWER = 'RETURNS TABLE (outcome text, lease_epoch bigint, ts_ms bigint, last_seq bigint)';
const SETTINGS = 'SET enable_seqscan = off SET search_path FROM CURRENT';
const COLUMNS = `execution_id, partition_key, attempt_index, ts_ms, seq, lease_epoch, mode, encoding, frame_type, payload`;

/** The id is the time of its host, read before the lock; the lease is not checked; a trim removes whatever is old. */
const APPEND_BY_CLOCK = `
CREATE FUNCTION naive_append_by_clock(${ARGUMENTS}) ${ANSWER} LANGUAGE plpgsql ${SETTINGS} AS $$
#variable_conflict use_column
DECLARE
  v_host bigint := ff_now_ms() + substring(p_types[1] FROM '-?[0-9]+')::bigint;
  v_seq bigint;
BEGIN
  PERFORM pg_advisory_xact_lock(hashtextextended(p_id::text, p_attempt));
  SELECT coalesce(max(seq), 0) INTO v_seq FROM ff_frame
  WHERE execution_id = p_id AND attempt_index = p_attempt AND ts_ms = v_host;
  INSERT INTO ff_frame (${COLUMNS})
  SELECT p_id, p_partition, p_attempt, v_host, v_seq + place, p_epoch, m::ff_frame_mode, 'text', 'event', p
  FROM unnest(p_modes, p_payloads) WITH ORDINALITY u(m, p, place);
  IF 'best_effort' = ANY (p_modes) THEN
    DELETE FROM ff_frame WHERE execution_id = p_id AND attempt_index = p_attempt AND (ts_ms, seq) NOT IN (
      SELECT ts_ms, seq FROM ff_frame WHERE execution_id = p_id AND attempt_index = p_attempt
      ORDER BY ts_ms DESC, seq DESC LIMIT p_floor);
  END IF;
  RETURN QUERY SELECT 'appended', p_epoch, v_host, v_seq + cardinality(p_modes);
END $$`;

/** Numbers come from a sequence: the holder of a lower one may commit later. */
const APPEND_BY_SEQUENCE = `
CREATE SEQUENCE naive_frame_seq;
CREATE FUNCTION naive_append_by_sequence(${ARGUMENTS}) ${ANSWER} LANGUAGE plpgsql ${SETTINGS} AS $$
#variable_conflict use_column
BEGIN
  INSERT INTO ff_frame (${COLUMNS})
  SELECT p_id, p_partition, p_attempt, ff_now_ms(), nextval('naive_frame_seq'), p_epoch, m::ff_frame_mode, 'text', 'event', p
  FROM unnest(p_modes, p_payloads) u(m, p);
  RETURN QUERY SELECT 'appended', p_epoch, ff_now_ms(), currval('naive_frame_seq');
END $$`;

/** Folds the patch into the document it read before it had the lock. */
const APPEND_BY_READ = `
CREATE FUNCTION naive_append_by_read(${ARGUMENTS}) ${ANSWER} LANGUAGE plpgsql ${SETTINGS} AS $$
#variable_conflict use_column
DECLARE
  v_document jsonb := (SELECT document_json FROM ff_stream_summary WHERE execution_id = p_id AND attempt_index = p_attempt);
  s ff_stream_meta;
BEGIN
  s := ff_lock_stream(p_id, p_partition, p_attempt, p_epoch);
  INSERT INTO ff_frame (${COLUMNS}, summary_version)
  VALUES (p_id, p_partition, p_attempt, ff_now_ms(), s.last_seq + 1, p_epoch, 'summary', 'json', 'event', p_payloads[1], 1);
  INSERT INTO ff_stream_summary AS y (execution_id, partition_key, attempt_index, document_json, version, first_applied_ms, last_updated_ms)
  VALUES (p_id, p_partition, p_attempt, ff_merge_patch(coalesce(v_document, '{}'), convert_from(p_payloads[1], 'UTF8')::jsonb), 1, 0, 0)
  ON CONFLICT (execution_id, attempt_index) DO UPDATE SET document_json = EXCLUDED.document_json, version = y.version + 1;
  UPDATE ff_stream_meta SET last_seq = last_seq + 1 WHERE execution_id = p_id AND attempt_index = p_attempt;
  RETURN QUERY SELECT 'appended', p_epoch, s.last_append_ts_ms, s.last_seq + 1;
END $$`;

/** Counts on from what it read before it had any lock, and does not ask whether the parent has ended. */
const RECORD_BY_READ = `
CREATE FUNCTION naive_record_for_parent(
  p_id uuid, p_partition smallint, p_attempt integer, p_epoch bigint, p_name text, p_key text, p_value jsonb, p_duration integer,
  p_changes jsonb, p_max_document integer
) RETURNS TABLE (outcome text, repeated boolean, lease_epoch bigint, value jsonb) LANGUAGE plpgsql ${SETTINGS} AS $$
#variable_conflict use_column
DECLARE
  v_parent uuid := (SELECT parent_id FROM ff_execution WHERE execution_id = p_id);
  v_done integer := (SELECT (document_json ->> 'done')::integer FROM ff_stream_summary WHERE execution_id = v_parent AND attempt_index = 0);
BEGIN
  RETURN QUERY SELECT r.outcome, r.repeated, r.lease_epoch, r.value FROM ff_record_steps(ARRAY[p_id], ARRAY[p_partition], ARRAY[p_attempt],
    ARRAY[p_epoch], '{step}', ARRAY[p_name], ARRAY[p_key], '{NULL}', ARRAY[p_value]) r;
  INSERT INTO ff_stream_summary AS y (execution_id, partition_key, attempt_index, document_json, version, first_applied_ms, last_updated_ms)
  VALUES (v_parent, p_partition, 0, jsonb_build_object('done', coalesce(v_done, 0) + 1), 1, 0, 0)
  ON CONFLICT (execution_id, attempt_index) DO UPDATE SET document_json = EXCLUDED.document_json, version = y.version + 1;
END $$`;

export const NAIVE_STREAMS = [APPEND_BY_CLOCK, APPEND_BY_SEQUENCE, APPEND_BY_READ, RECORD_BY_READ];
