-- What operators do to executions besides cancelling them: run them again, move them in the queue, label them.
-- Each function locks first and decides in the next statement. p_epochs: change only an execution that still has this
-- epoch; one claimed or moved since returns `moved`.

-- Before a replay: an unfinished wait starts over at the same waitpoints. Waits that had timed out are retired; a
-- replay from the start retires all of them.
CREATE OR REPLACE FUNCTION ff_renew_waits(p_ids uuid[], p_from_start boolean) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  DELETE FROM ff_step WHERE execution_id = ANY (p_ids) AND retired_by = 0 AND kind = 'wait' AND value ->> 'outcome' = 'pending';
  IF p_from_start THEN
    DELETE FROM ff_topic_seen WHERE execution_id = ANY (p_ids);
  END IF;
  UPDATE ff_waitpoint w SET retired_by = (SELECT replay_count + 1 FROM ff_execution e WHERE e.execution_id = w.execution_id)
  WHERE execution_id = ANY (p_ids) AND retired_by = 0 AND (p_from_start OR close_reason IN ('timed_out', 'expired') OR expires_at_ms <= ff_now_ms());
  UPDATE ff_waitpoint SET step_name = NULL, step_key = NULL
  WHERE execution_id = ANY (p_ids) AND retired_by = 0 AND closed_at_ms IS NULL;
  -- A timer that fired after the execution ended set no new one for the waitpoints that stay.
  PERFORM ff_time_waitpoints(w.execution_id, w.partition_key) FROM (
    SELECT DISTINCT execution_id, partition_key FROM ff_waitpoint
    WHERE execution_id = ANY (p_ids) AND retired_by = 0 AND closed_at_ms IS NULL OFFSET 0) w;
END $$;

-- Reopens executions that have ended. Finished steps return their recorded values, so that the work resumes where it
-- failed; a replay from the start retires them, and children get other ids; one from a step (p_step, p_key) retires that
-- step and what came after it. Retries and reclaims are counted anew, and the deadline starts over. p_default_max: how
-- often, where the policy does not say; NULL for any number, whatever it says.
CREATE OR REPLACE FUNCTION ff_replay(
  p_ids uuid[], p_partitions smallint[], p_epochs bigint[], p_from_start boolean, p_reason text, p_actor text,
  p_default_max integer, p_step text DEFAULT NULL, p_key text DEFAULT NULL
) RETURNS TABLE (
  execution_id uuid, outcome text, lifecycle_phase text, terminal_outcome text, lease_epoch bigint, route_id integer,
  replay_count smallint, due_in_ms bigint
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
-- An operator is told who holds a row instead of waiting for it.
SET lock_timeout = '2s' SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_rows ff_locked[];
  v_again ff_locked[];
  v_held uuid[];
  v_deadlines bigint[];
  v_details jsonb[];
  v_now bigint;
BEGIN
  PERFORM ff_require_read_committed();
  SELECT l.held, l.rows INTO v_held, v_rows FROM ff_lock_replayed(p_ids, p_partitions) l;
  v_now := ff_now_ms();
  WITH decided AS MATERIALIZED (
    SELECT r AS row, e.terminal_outcome, e.replay_count,
           v_now + (e.policy #>> '{timeout_policy,execution_deadline_ms}')::bigint AS deadline,
           (p_default_max IS NULL OR e.replay_count < coalesce((e.policy ->> 'max_replay_count')::integer, p_default_max))
             AND ff_keeps_key(r) AND (p_step IS NULL OR ff_has_step(r.execution_id, p_step, p_key))
             AND (p_epochs IS NULL OR r.lease_epoch = p_epochs[r.ordinal]) AS again
    FROM unnest(v_rows) r
    CROSS JOIN LATERAL (
      SELECT terminal_outcome, replay_count, ff_policy_of(policy, policy_id) AS policy
      FROM ff_execution WHERE execution_id = r.execution_id OFFSET 0) e)
  SELECT array_agg(row), array_agg(deadline),
         array_agg(jsonb_build_object('by', p_actor, 'reason', p_reason, 'replay_count', replay_count + 1,
           'from', CASE WHEN p_from_start THEN 'start' WHEN p_step IS NOT NULL THEN 'step' ELSE 'failed_step' END,
           'previous_outcome', terminal_outcome))
  INTO v_again, v_deadlines, v_details FROM decided WHERE again;
  v_again := coalesce(v_again, '{}');
  PERFORM ff_clear_replayed(v_again);
  IF (p_from_start OR p_step IS NOT NULL) AND cardinality(v_again) > 0 THEN
    PERFORM ff_begin_generations(ARRAY(SELECT r.execution_id FROM unnest(v_again) r), p_step, p_key);
    -- What was handed over before counts no more, as the steps that took it.
    UPDATE ff_mailbox SET handed = 0
    WHERE p_from_start AND execution_id = ANY (ARRAY(SELECT r.execution_id FROM unnest(v_again) r WHERE r.traits & 32 <> 0));
  END IF;
  PERFORM ff_renew_waits(ARRAY(SELECT r.execution_id FROM unnest(v_again) r), p_from_start);
  -- The progress of an earlier run does not apply to the next.
  DELETE FROM ff_progress WHERE execution_id = ANY (ARRAY(SELECT r.execution_id FROM unnest(v_again) r));
  PERFORM ff_replay_rows(v_again, v_details, v_deadlines, v_held, p_actor, p_reason);
  RETURN QUERY
  SELECT u.id,
         CASE WHEN e.execution_id IS NULL THEN 'not_found'
              -- CASE keeps this a hashed lookup.
              WHEN u.id IN (SELECT execution_id FROM unnest(v_again)) THEN 'replayed'
              WHEN p_epochs IS NOT NULL AND e.lease_epoch <> u.ep THEN 'moved'
              WHEN e.lifecycle_phase <> 'terminal' THEN 'not_terminal'
              WHEN e.traits & 2 <> 0 AND k.execution_id IS NULL THEN 'key_taken'
              WHEN p_step IS NOT NULL AND NOT ff_has_step(e.execution_id, p_step, p_key) THEN 'step_not_found'
              ELSE 'replays_exhausted' END,
         e.lifecycle_phase::text, e.terminal_outcome::text, e.lease_epoch, e.route_id, e.replay_count,
         e.deadline_at_ms - v_now
  FROM unnest(p_ids, p_partitions, p_epochs) u(id, part, ep)
  LEFT JOIN LATERAL (
    SELECT * FROM ff_execution x WHERE x.execution_id = u.id AND x.partition_key = u.part OFFSET 0) e ON true
  LEFT JOIN LATERAL (SELECT execution_id FROM ff_key WHERE execution_id = u.id OFFSET 0) k ON true;
END $$;

-- Moves executions that wait for a worker to another place in the queue. The old queue row stays behind: its priority
-- no longer matches the execution's, so a claim discards it.
CREATE OR REPLACE FUNCTION ff_change_priority(
  p_ids uuid[], p_partitions smallint[], p_epochs bigint[], p_priority integer, p_actor text
) RETURNS TABLE (
  execution_id uuid, outcome text, lifecycle_phase text, eligibility_state text, route_id integer, old_priority integer
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
-- An operator is told who holds a row instead of waiting for it.
SET lock_timeout = '2s' SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_rows ff_locked[];
  v_moved ff_locked[];
  v_old jsonb;
  v_details jsonb[];
  v_written bigint;
BEGIN
  PERFORM ff_require_read_committed();
  v_rows := ff_lock_open(p_ids, p_partitions);
  WITH decided AS MATERIALIZED (
    SELECT ROW(r.ordinal, r.execution_id, r.partition_key, r.route_id, p_priority, r.namespace, r.attempt_index,
               r.lease_epoch, r.retry_count, r.attempt_state, r.claim_no, r.worker_id, r.worker_instance_id,
               r.attempt_started_at_ms, r.tags, r.retain_ms, r.flow_id, r.resumed, r.parent_id, r.traits)::ff_locked AS row,
           r.priority
    FROM unnest(v_rows) r
    CROSS JOIN LATERAL (
      SELECT eligibility_state FROM ff_execution WHERE execution_id = r.execution_id OFFSET 0) e
    WHERE e.eligibility_state = 'eligible_now' AND r.priority <> p_priority
      AND (p_epochs IS NULL OR r.lease_epoch = p_epochs[r.ordinal]))
  SELECT array_agg(row), jsonb_object_agg((row).execution_id, priority),
         array_agg(jsonb_build_object('by', p_actor, 'old_priority', priority, 'new_priority', p_priority))
  INTO v_moved, v_old, v_details FROM decided;
  UPDATE ff_execution SET priority = p_priority
  WHERE execution_id = ANY (ARRAY(SELECT r.execution_id FROM unnest(v_moved) r));
  GET DIAGNOSTICS v_written = ROW_COUNT;
  PERFORM ff_require_equal('priorities', coalesce(cardinality(v_moved), 0), v_written);
  PERFORM ff_settle('change_priority', v_moved, NULL, NULL, NULL, NULL, p_actor, v_details);
  RETURN QUERY
  SELECT u.id,
         CASE WHEN e.execution_id IS NULL THEN 'not_found'
              WHEN p_epochs IS NOT NULL AND e.lease_epoch <> u.ep THEN 'moved'
              WHEN e.eligibility_state <> 'eligible_now' THEN 'not_eligible'
              WHEN u.id IN (SELECT execution_id FROM unnest(v_rows)) THEN 'changed'
              -- Waiting but not locked: it appeared after the lock was requested.
              ELSE 'not_found' END,
         e.lifecycle_phase::text, e.eligibility_state::text, e.route_id,
         coalesce((v_old ->> u.id::text)::integer, e.priority)
  FROM unnest(p_ids, p_partitions, p_epochs) u(id, part, ep)
  LEFT JOIN LATERAL (
    SELECT * FROM ff_execution x WHERE x.execution_id = u.id AND x.partition_key = u.part OFFSET 0) e ON true;
END $$;

-- Adds, replaces and removes tags of one execution, under its lock, so that two changes do not undo each other. Events
-- of a lease carry the tags from its start, even for a lease granted at the same moment.
CREATE OR REPLACE FUNCTION ff_set_tags(
  p_id uuid, p_partition smallint, p_set jsonb, p_removed text[], p_max integer, p_actor text
) RETURNS TABLE (outcome text, tags jsonb) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
-- An operator is told who holds a row instead of waiting for it.
SET lock_timeout = '2s' SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  e ff_execution%ROWTYPE;
  v_old jsonb;
  v_new jsonb;
BEGIN
  PERFORM ff_require_read_committed();
  SELECT * INTO e FROM ff_execution WHERE execution_id = p_id AND partition_key = p_partition FOR UPDATE;
  IF NOT FOUND THEN
    RETURN QUERY SELECT 'not_found', NULL::jsonb;
    RETURN;
  END IF;
  v_old := e.tags;
  v_new := (v_old - p_removed) || p_set;
  IF (SELECT count(*) FROM jsonb_object_keys(v_new)) > p_max THEN
    RETURN QUERY SELECT 'too_many', v_old;
    RETURN;
  END IF;
  IF v_new <> v_old THEN
    UPDATE ff_execution SET tags = v_new, lease_tags = CASE WHEN claim_no IS NOT NULL THEN coalesce(lease_tags, tags) END
    WHERE execution_id = p_id AND partition_key = p_partition;
    -- By ctid: a tag row is inserted and deleted under its execution's lock, and never updated.
    DELETE FROM ff_tag WHERE ctid = ANY (ARRAY(
      SELECT t.tid FROM jsonb_each_text(v_old) o
      CROSS JOIN LATERAL (
        SELECT ctid AS tid FROM ff_tag WHERE tag_key = o.key AND tag_value = o.value
          AND created_at_ms = e.created_at_ms AND execution_id = p_id OFFSET 0) t
      WHERE v_new ->> o.key IS DISTINCT FROM o.value));
    INSERT INTO ff_tag (tag_key, tag_value, created_at_ms, execution_id, partition_key)
    SELECT key, value, e.created_at_ms, p_id, p_partition FROM jsonb_each_text(v_new)
    WHERE ff_is_listed_tag(key) ON CONFLICT DO NOTHING;
    PERFORM ff_log_events('tag', ff_now_ms(), 1, ARRAY['tags_changed'], ARRAY[p_id], ARRAY[p_partition],
      ARRAY[e.attempt_index], ARRAY[e.lease_epoch], NULL, ARRAY[e.namespace], ARRAY[v_new],
      ARRAY[jsonb_build_object('by', p_actor, 'set', p_set, 'removed', to_jsonb(p_removed))],
      ARRAY[e.route_id], ARRAY[e.flow_id]);
  END IF;
  RETURN QUERY SELECT 'set', v_new;
END $$;
