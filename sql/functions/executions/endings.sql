-- What a lease holder does with its lease: complete, fail, release. Each function locks, decides, settles and says what
-- became of each execution. What follows a failure is decided from the frozen policy, by the same rules as the model's.
-- The effects on later members of a flow are applied in the same transaction, up to a bound, and returned apart.

-- Resolves the edges of flow members that have just ended: p_rows ended, p_after are the locked executions after them.
-- Returns what became of those, NULL if none of p_rows is a member.
CREATE OR REPLACE FUNCTION ff_advance_ended(p_rows ff_locked[], p_after uuid[]) RETURNS json LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_members uuid[];
BEGIN
  v_members := ARRAY(SELECT r.execution_id FROM unnest(p_rows) r WHERE r.flow_id IS NOT NULL);
  IF cardinality(v_members) = 0 THEN RETURN NULL; END IF;
  RETURN (SELECT json_agg(json_build_object('uuid', a.execution_id, 'outcome', a.outcome, 'routeId', a.route_id))
          FROM ff_advance(v_members, p_after) a);
END $$;

-- One answer for all that this call completed: a row for each took an eighth of the time. `told` says that a parent is
-- to be notified at once. Those that were refused or had been completed before are in `others`.
CREATE OR REPLACE FUNCTION ff_complete(
  p_ids uuid[], p_partitions smallint[], p_attempts integer[], p_epochs bigint[], p_results jsonb[],
  OUT told boolean, OUT others json, OUT effects json
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_rows ff_locked[];
  v_locked uuid[];
  v_after uuid[];
  v_done boolean := ff_require_read_committed();
  -- Members after those that end here, locked with them; the rest is left to jobs.
  c_after CONSTANT integer := 256;
BEGIN
  IF cardinality(p_ids) = 1 THEN
    -- Outside of a flow nothing has to be locked with it.
    v_rows := ff_lock_leased_one(p_ids[1], p_partitions[1], p_attempts[1], p_epochs[1], p_solo => true);
    told := ff_settle('complete', v_rows, NULL, p_results, NULL, NULL, NULL);
    IF cardinality(v_rows) = 1 THEN RETURN; END IF;
  END IF;
  v_after := ff_downstreams(p_ids, c_after);
  v_rows := ff_lock_leased(p_ids, p_partitions, p_attempts, p_epochs, v_after);
  v_locked := ARRAY(SELECT r.execution_id FROM unnest(v_rows) r);
  IF v_locked <> p_ids THEN p_results := ARRAY(SELECT p_results[r.ordinal] FROM unnest(v_rows) r); END IF;
  told := ff_settle('complete', v_rows, NULL, p_results, NULL, NULL, NULL, p_flow => 'now');
  effects := ff_advance_ended(v_rows, v_after);
  IF cardinality(v_rows) < cardinality(p_ids) THEN
    others := ff_refusals_json('complete', p_ids, p_partitions, p_attempts, p_epochs, v_locked);
  END IF;
END $$;

-- The delay after backoff growth. Growth is compared as logarithms first, so that no power overflows.
CREATE OR REPLACE FUNCTION ff_grown_ms(
  p_initial double precision, p_max double precision, p_multiplier double precision, p_retries integer
) RETURNS double precision LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN p_initial = 0 THEN 0
            WHEN p_retries * ln(p_multiplier) >= ln(p_max / p_initial) THEN p_max
            ELSE least(p_initial * power(p_multiplier, p_retries), p_max) END;

-- The delay before the retry after `p_retries` earlier ones; p_draw in [0, 1) spreads a jittered delay.
CREATE OR REPLACE FUNCTION ff_backoff_ms(p_backoff jsonb, p_retries integer, p_draw double precision) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE p_backoff ->> 'type'
  WHEN 'fixed' THEN (p_backoff ->> 'delay_ms')::bigint
  ELSE (
    SELECT floor(CASE WHEN coalesce((p_backoff ->> 'jitter')::boolean, false)
                 THEN g.grown / 2 + g.grown / 2 * p_draw ELSE g.grown END)::bigint
    FROM (SELECT ff_grown_ms(
      coalesce((p_backoff ->> 'initial_delay_ms')::double precision, 1000),
      coalesce((p_backoff ->> 'max_delay_ms')::double precision, 60000),
      coalesce((p_backoff ->> 'multiplier')::double precision, 2), p_retries) AS grown) g)
  END;

-- Whether a failed attempt under this policy is retried. Without a policy there are no retries.
CREATE OR REPLACE FUNCTION ff_may_retry(p_retry_policy jsonb, p_retries integer, p_category text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN coalesce(p_retries < (p_retry_policy ->> 'max_retries')::integer
  AND (coalesce(jsonb_array_length(p_retry_policy -> 'retryable_categories'), 0) = 0
       OR coalesce(p_retry_policy -> 'retryable_categories' ? p_category, false)), false);

CREATE OR REPLACE FUNCTION ff_fail(
  p_ids uuid[], p_partitions smallint[], p_attempts integer[], p_epochs bigint[], p_messages text[],
  p_categories text[], p_retry_afters bigint[], p_terminals boolean[], p_details jsonb[] DEFAULT NULL,
  OUT answers json, OUT others json, OUT effects json
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_rows ff_locked[];
  v_retry ff_locked[];
  v_end ff_locked[];
  v_delays bigint[];
  v_now bigint;
  v_after uuid[];
  v_told boolean;
  c_after CONSTANT integer := 256;
BEGIN
  PERFORM ff_require_read_committed();
  v_after := ff_downstreams(p_ids, c_after);
  v_rows := ff_lock_leased(p_ids, p_partitions, p_attempts, p_epochs, v_after);
  WITH decided AS MATERIALIZED (
    SELECT r AS row, b.again,
           coalesce(p_retry_afters[r.ordinal], ff_backoff_ms(b.backoff, r.retry_count, random())) AS delay_ms
    FROM unnest(v_rows) r
    CROSS JOIN LATERAL (
      SELECT p.retry -> 'backoff' AS backoff,
             NOT p_terminals[r.ordinal] AND ff_may_retry(p.retry, r.retry_count, p_categories[r.ordinal]) AS again
      FROM (SELECT ff_policy_of(policy, policy_id) -> 'retry_policy' AS retry FROM ff_execution
            WHERE execution_id = r.execution_id AND partition_key = r.partition_key OFFSET 0) p) b)
  SELECT array_agg(row) FILTER (WHERE again), array_agg(delay_ms) FILTER (WHERE again),
         array_agg(row) FILTER (WHERE NOT again)
  INTO v_retry, v_delays, v_end FROM decided;
  v_now := ff_now_ms();
  PERFORM ff_settle('retry', v_retry, ARRAY(SELECT v_now + d FROM unnest(v_delays) d), NULL,
    ARRAY(SELECT p_messages[r.ordinal] FROM unnest(v_retry) r),
    ARRAY(SELECT p_categories[r.ordinal] FROM unnest(v_retry) r), NULL,
    p_failures => ARRAY(SELECT p_details[r.ordinal] FROM unnest(v_retry) r));
  v_told := ff_settle('fail', v_end, NULL, NULL,
    ARRAY(SELECT p_messages[r.ordinal] FROM unnest(v_end) r),
    ARRAY(SELECT p_categories[r.ordinal] FROM unnest(v_end) r), NULL, p_flow => 'now',
    p_failures => ARRAY(SELECT p_details[r.ordinal] FROM unnest(v_end) r));
  effects := ff_advance_ended(v_end, v_after);
  SELECT json_agg(x) INTO answers FROM (
    SELECT r.execution_id AS uuid, 'retry_scheduled' AS outcome, false AS repeated, delay_ms AS "dueInMs"
    FROM unnest(v_retry, v_delays) r(ordinal, execution_id, partition_key, route_id, priority, namespace, attempt_index,
      lease_epoch, retry_count, attempt_state, claim_no, worker_id, worker_instance_id, attempt_started_at_ms, tags, retain_ms,
      flow_id, resumed, parent_id, traits, delay_ms)
    UNION ALL
    SELECT r.execution_id, 'failed', false, CASE WHEN v_told THEN 0 END FROM unnest(v_end) r) x;
  IF cardinality(v_rows) < cardinality(p_ids) THEN
    others := ff_refusals_json('fail', p_ids, p_partitions, p_attempts, p_epochs,
      ARRAY(SELECT r.execution_id FROM unnest(v_rows) r));
  END IF;
END $$;

-- Gives the work back: the attempt stays open and the next claim continues it.
CREATE OR REPLACE FUNCTION ff_release(
  p_ids uuid[], p_partitions smallint[], p_attempts integer[], p_epochs bigint[], OUT answers json, OUT others json
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_rows ff_locked[];
BEGIN
  PERFORM ff_require_read_committed();
  v_rows := ff_lock_leased(p_ids, p_partitions, p_attempts, p_epochs);
  PERFORM ff_settle('release', v_rows, NULL, NULL, NULL, NULL, NULL);
  answers := (SELECT json_agg(json_build_object(
    'uuid', r.execution_id, 'outcome', 'released', 'repeated', false, 'routeId', r.route_id)) FROM unnest(v_rows) r);
  IF cardinality(v_rows) < cardinality(p_ids) THEN
    others := ff_refusals_json('release', p_ids, p_partitions, p_attempts, p_epochs,
      ARRAY(SELECT r.execution_id FROM unnest(v_rows) r));
  END IF;
END $$;
