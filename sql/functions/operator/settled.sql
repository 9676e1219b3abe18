-- An execution with all of these tags that has not ended, the newest of them, in one snapshot: whatever an ended
-- execution submitted before its end is visible where its end is. `crowded`: p_most were examined, and all had ended.
CREATE OR REPLACE FUNCTION ff_find_open(
  p_key text, p_value text, p_tags jsonb, p_namespace text, p_most integer,
  OUT execution_id uuid, OUT partition_key smallint, OUT crowded boolean
) LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_sort = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_examined integer := 0;
  r record;
BEGIN
  crowded := false;
  FOR r IN
    SELECT t.execution_id, t.partition_key, e.lifecycle_phase <> 'terminal' AND e.tags @> p_tags
             AND (p_namespace IS NULL OR e.namespace = p_namespace) AS open
    FROM (SELECT execution_id, partition_key FROM ff_tag WHERE tag_key = p_key AND tag_value = p_value
          ORDER BY tag_key DESC, tag_value DESC, created_at_ms DESC, execution_id DESC OFFSET 0) t
    CROSS JOIN LATERAL (
      SELECT lifecycle_phase, tags, namespace FROM ff_execution WHERE execution_id = t.execution_id OFFSET 0) e
  LOOP
    IF r.open THEN
      execution_id := r.execution_id;
      partition_key := r.partition_key;
      RETURN;
    END IF;
    v_examined := v_examined + 1;
    IF v_examined >= p_most THEN
      crowded := true;
      RETURN;
    END IF;
  END LOOP;
END $$;
