-- Beginning an execution anew, under its id: from its start, or from one of its steps. What is left behind is retired: it
-- stays as history, and counts no more. Called with the execution locked, before it is replayed.

CREATE OR REPLACE FUNCTION ff_has_step(p_id uuid, p_step text, p_key text) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
BEGIN
  PERFORM 1 FROM ff_step WHERE execution_id = p_id AND retired_by = 0 AND name = p_step AND key = p_key;
  RETURN FOUND;
END $$;

-- Retires a step of an execution and those recorded after it, in the order in which they are listed. Returns how many are
-- kept, and since when none is.
CREATE OR REPLACE FUNCTION ff_retire_steps(
  p_id uuid, p_step text, p_key text, p_by smallint, OUT kept integer, OUT since_ms bigint
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_names text[];
  v_keys text[];
  v_place integer;
BEGIN
  SELECT array_agg(name ORDER BY recorded_at_ms, ctid), array_agg(key ORDER BY recorded_at_ms, ctid) INTO v_names, v_keys
  FROM ff_step WHERE execution_id = p_id AND retired_by = 0;
  SELECT place INTO STRICT v_place FROM unnest(v_names, v_keys) WITH ORDINALITY u(n, k, place) WHERE n = p_step AND k = p_key;
  kept := v_place - 1;
  SELECT recorded_at_ms INTO STRICT since_ms FROM ff_step
  WHERE execution_id = p_id AND retired_by = 0 AND name = p_step AND key = p_key;
  FOR i IN v_place..cardinality(v_names) LOOP
    UPDATE ff_step SET retired_by = p_by WHERE execution_id = p_id AND retired_by = 0 AND name = v_names[i] AND key = v_keys[i];
  END LOOP;
END $$;

-- Cuts the order in which a handler was handed what it asked for before the first end of a retired step.
CREATE OR REPLACE FUNCTION ff_cut_order(p_id uuid, p_partition smallint, p_by smallint) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_order text[] := '{}';
  v_cut integer;
  o record;
BEGIN
  FOR o IN SELECT place, ends FROM ff_end_order WHERE execution_id = p_id ORDER BY lease_epoch, place LOOP
    v_order := v_order[:o.place] || ARRAY(SELECT jsonb_array_elements_text(o.ends));
  END LOOP;
  IF cardinality(v_order) = 0 THEN RETURN; END IF;
  SELECT min(u.place) INTO v_cut
  FROM (SELECT ltrim(x, '!')::jsonb AS what, place FROM unnest(v_order) WITH ORDINALITY u(x, place) OFFSET 0) u
  CROSS JOIN LATERAL (
    SELECT 1 FROM ff_step WHERE execution_id = p_id AND retired_by = p_by AND name = u.what ->> 1
      AND key = coalesce(u.what ->> 2, '') OFFSET 0) s
  WHERE u.what ->> 0 = 'step';
  IF v_cut IS NULL THEN RETURN; END IF;
  DELETE FROM ff_end_order WHERE execution_id = p_id;
  -- Before what any later lease will store.
  INSERT INTO ff_end_order (execution_id, lease_epoch, place, partition_key, ends)
  SELECT p_id, 0, 0, p_partition, to_jsonb(v_order[:v_cut - 1]) WHERE v_cut > 1;
END $$;

-- Waits that are begun anew. A waitpoint that was opened later than the cut is retired with its wait, tokens and signals.
-- One that was opened before keeps its signals, because its token may have been handed out in a step that is kept.
CREATE OR REPLACE FUNCTION ff_retire_waitpoints(p_id uuid, p_by smallint, p_since_ms bigint) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_names text[];
BEGIN
  v_names := ARRAY(
    SELECT w.name FROM ff_waitpoint w
    LEFT JOIN LATERAL (
      SELECT true AS found FROM ff_step WHERE execution_id = p_id AND retired_by = p_by AND name = w.step_name
        AND key = w.step_key OFFSET 0) s ON true
    WHERE w.execution_id = p_id AND w.retired_by = 0
      AND (s.found OR (w.step_name IS NULL AND w.created_at_ms >= p_since_ms)));
  UPDATE ff_waitpoint SET retired_by = p_by
  WHERE execution_id = p_id AND retired_by = 0 AND name = ANY (v_names) AND created_at_ms >= p_since_ms;
  UPDATE ff_waitpoint SET step_name = NULL, step_key = NULL, closed_at_ms = NULL, close_reason = NULL
  WHERE execution_id = p_id AND retired_by = 0 AND name = ANY (v_names) AND coalesce(close_reason, 'satisfied') = 'satisfied';
END $$;

-- Begins executions anew: from the start without a step, otherwise from it, which each of them has.
CREATE OR REPLACE FUNCTION ff_begin_generations(p_ids uuid[], p_step text, p_key text) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  e record;
  c record;
  v_by smallint;
  v_written bigint;
BEGIN
  IF p_step IS NULL THEN
    UPDATE ff_step s SET retired_by = (SELECT replay_count + 1 FROM ff_execution e WHERE e.execution_id = s.execution_id)
    WHERE execution_id = ANY (p_ids) AND retired_by = 0;
    DELETE FROM ff_end_order WHERE execution_id = ANY (p_ids);
    INSERT INTO ff_generation (execution_id, partition_key, generation, kept_steps, since_ms)
    SELECT e.execution_id, e.partition_key, e.attempt_index + 1, -1, 0 FROM unnest(p_ids) u(id)
    CROSS JOIN LATERAL (SELECT execution_id, partition_key, attempt_index FROM ff_execution WHERE execution_id = u.id OFFSET 0) e;
  ELSE
    FOR e IN
      SELECT x.* FROM unnest(p_ids) u(id)
      CROSS JOIN LATERAL (
        SELECT execution_id AS id, partition_key AS part, attempt_index, replay_count FROM ff_execution
        WHERE execution_id = u.id OFFSET 0) x
    LOOP
      v_by := e.replay_count + 1;
      c := ff_retire_steps(e.id, p_step, p_key, v_by);
      PERFORM ff_cut_order(e.id, e.part, v_by);
      PERFORM ff_retire_waitpoints(e.id, v_by, c.since_ms);
      INSERT INTO ff_generation (execution_id, partition_key, generation, kept_steps, since_ms)
      VALUES (e.id, e.part, e.attempt_index + 1, c.kept, c.since_ms);
    END LOOP;
  END IF;
  UPDATE ff_execution SET generation = attempt_index + 1 WHERE execution_id = ANY (p_ids);
  GET DIAGNOSTICS v_written = ROW_COUNT;
  PERFORM ff_require_equal('generations', cardinality(p_ids), v_written);
END $$;
