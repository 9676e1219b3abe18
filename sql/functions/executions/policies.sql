-- Reads of the frozen policies.

-- How often each execution may be retried, in the order of the ids: a list with 0 without a retry policy, and null for an
-- execution that does not exist.
CREATE OR REPLACE FUNCTION ff_max_retries(p_ids uuid[]) RETURNS json LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
BEGIN
  RETURN (
    SELECT coalesce(json_agg(e.most ORDER BY u.ord), '[]')
    FROM unnest(p_ids) WITH ORDINALITY u(id, ord)
    LEFT JOIN LATERAL (
      SELECT coalesce((ff_policy_of(policy, policy_id) #>> '{retry_policy,max_retries}')::integer, 0) AS most
      FROM ff_execution WHERE execution_id = u.id OFFSET 0) e ON true);
END $$;

-- What is shown of the text about the end of an attempt: what a handler said is hidden if its execution redacts values;
-- what the engine or an operator said is not.
CREATE OR REPLACE FUNCTION ff_shown_text(p_traits smallint, p_outcome ff_attempt_outcome, p_text text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN p_traits & 8 <> 0 AND p_outcome = 'failed' AND p_text IS NOT NULL THEN '[redacted]' ELSE p_text END;
