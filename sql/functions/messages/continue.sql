-- Continuing as a new run under the same id: the attempt ends, the input is replaced, and what the run has recorded goes.
-- Only messages that were not handed over stay, and a summary of each of the last runs.

-- Ends the current run of a lease holder and begins the next one with another input. What the run has left behind is
-- deleted in parts: the first here, and the others by timers, before the next run can be claimed. p_keep: of how many
-- runs the summaries stay. p_id_ms: how long the ids of messages are known after they were handed over.
CREATE OR REPLACE FUNCTION ff_continue(
  p_id uuid, p_partition smallint, p_attempt integer, p_epoch bigint, p_input jsonb, p_keep integer, p_id_ms bigint, p_part integer
) RETURNS TABLE (
  outcome text, repeated boolean, lifecycle_phase text, terminal_outcome text, lease_epoch bigint, route_id integer, due_in_ms bigint
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_rows ff_locked[];
  v_run ff_run%ROWTYPE;
  v_now bigint;
  v_cleared boolean;
BEGIN
  PERFORM ff_require_read_committed();
  v_rows := ff_lock_leased(ARRAY[p_id], ARRAY[p_partition], ARRAY[p_attempt], ARRAY[p_epoch]);
  IF cardinality(v_rows) = 0 THEN
    RETURN QUERY
    SELECT f.outcome, f.repeated, f.lifecycle_phase, f.terminal_outcome, f.lease_epoch, f.route_id, NULL::bigint
    FROM ff_refusals('continue', ARRAY[p_id], ARRAY[p_partition], ARRAY[p_attempt], ARRAY[p_epoch], '{}') f;
    RETURN;
  END IF;
  v_now := ff_now_ms();
  v_run := ff_sum_up_run(v_rows[1], v_now);
  DELETE FROM ff_run WHERE execution_id = p_id AND run <= v_run.run - p_keep;
  PERFORM ff_end_mailbox_run(p_id, v_run.began_at_ms, v_now - p_id_ms, p_part);
  UPDATE ff_execution SET payload = CASE WHEN ff_is_large(p_input) THEN NULL ELSE p_input END, generation = attempt_index + 1,
    traits = traits | 128
  WHERE execution_id = p_id;
  DELETE FROM ff_payload WHERE execution_id = p_id;
  INSERT INTO ff_payload (execution_id, partition_key, payload) SELECT p_id, p_partition, p_input WHERE ff_is_large(p_input);
  v_cleared := ff_clear_run(p_id, p_part);
  UPDATE ff_run SET is_cleared = v_cleared WHERE execution_id = p_id AND run = v_run.run;
  PERFORM ff_settle(CASE WHEN v_cleared THEN 'continue' ELSE 'continue_later' END, v_rows,
    CASE WHEN NOT v_cleared THEN ARRAY[v_now] END, NULL, NULL, NULL, NULL,
    ARRAY[jsonb_build_object('run', v_run.run::text)]);
  RETURN QUERY SELECT 'run_continued', false, 'runnable', 'none', p_epoch, v_rows[1].route_id, CASE WHEN NOT v_cleared THEN 0::bigint END;
END $$;

-- Writes the summary of the run that ends, and returns it.
CREATE OR REPLACE FUNCTION ff_sum_up_run(p_row ff_locked, p_now bigint) RETURNS ff_run LANGUAGE plpgsql AS $$
DECLARE
  v_last ff_run%ROWTYPE;
  v_run ff_run%ROWTYPE;
BEGIN
  SELECT * INTO v_last FROM ff_run WHERE execution_id = p_row.execution_id ORDER BY run DESC LIMIT 1;
  INSERT INTO ff_run (execution_id, partition_key, run, began_at_ms, ended_at_ms, last_attempt, attempts, steps, messages, is_cleared)
  VALUES (p_row.execution_id, p_row.partition_key, coalesce(v_last.run, 0) + 1,
    coalesce(v_last.ended_at_ms, (SELECT created_at_ms FROM ff_execution WHERE execution_id = p_row.execution_id)), p_now,
    p_row.attempt_index, p_row.attempt_index - coalesce(v_last.last_attempt, -1),
    (SELECT count(*) FROM ff_step WHERE execution_id = p_row.execution_id AND retired_by = 0),
    coalesce((SELECT handed FROM ff_mailbox WHERE execution_id = p_row.execution_id), 0), false)
  RETURNING * INTO STRICT v_run;
  RETURN v_run;
END $$;

-- What a run's end means for messages: nobody replies to the requests that it received any more, the next run may receive
-- as many messages again, and ids that have been known long enough are forgotten, at most p_part of them.
CREATE OR REPLACE FUNCTION ff_end_mailbox_run(p_id uuid, p_began_at_ms bigint, p_known_since bigint, p_part integer) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  UPDATE ff_mailbox SET handed = 0 WHERE execution_id = p_id;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  UPDATE ff_message SET replied_at_ms = ff_now_ms()
  WHERE execution_id = p_id AND handed_at_ms >= p_began_at_ms AND wants_reply AND replied_at_ms IS NULL;
  DELETE FROM ff_message WHERE execution_id = p_id AND message_id = ANY (ARRAY(
    SELECT message_id FROM ff_message WHERE execution_id = p_id AND handed_at_ms < p_known_since ORDER BY handed_at_ms LIMIT p_part));
END $$;

-- Deletes what a locked execution has recorded in the run that ended, at most p_part rows of each kind, and the attempts
-- and streams of the runs whose summaries are gone. Returns whether nothing is left. By ctid: whoever writes these rows
-- has locked the execution too.
CREATE OR REPLACE FUNCTION ff_clear_run(p_id uuid, p_part integer) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  v_count bigint;
  v_most bigint;
  -- The last attempt of the runs that are forgotten.
  v_before integer;
BEGIN
  DELETE FROM ff_step WHERE ctid = ANY (ARRAY(SELECT ctid FROM ff_step WHERE execution_id = p_id LIMIT p_part));
  GET DIAGNOSTICS v_most = ROW_COUNT;
  DELETE FROM ff_end_order WHERE ctid = ANY (ARRAY(SELECT ctid FROM ff_end_order WHERE execution_id = p_id LIMIT p_part));
  GET DIAGNOSTICS v_count = ROW_COUNT;
  v_most := greatest(v_most, v_count);
  DELETE FROM ff_signal WHERE ctid = ANY (ARRAY(SELECT ctid FROM ff_signal WHERE execution_id = p_id LIMIT p_part));
  GET DIAGNOSTICS v_count = ROW_COUNT;
  v_most := greatest(v_most, v_count);
  DELETE FROM ff_waitpoint WHERE ctid = ANY (ARRAY(SELECT ctid FROM ff_waitpoint WHERE execution_id = p_id LIMIT p_part));
  GET DIAGNOSTICS v_count = ROW_COUNT;
  v_most := greatest(v_most, v_count);
  DELETE FROM ff_topic_seen WHERE ctid = ANY (ARRAY(SELECT ctid FROM ff_topic_seen WHERE execution_id = p_id LIMIT p_part));
  GET DIAGNOSTICS v_count = ROW_COUNT;
  v_most := greatest(v_most, v_count);
  DELETE FROM ff_topic_wait WHERE ctid = ANY (ARRAY(SELECT ctid FROM ff_topic_wait WHERE execution_id = p_id LIMIT p_part));
  GET DIAGNOSTICS v_count = ROW_COUNT;
  v_most := greatest(v_most, v_count);
  DELETE FROM ff_child_wait WHERE execution_id = p_id;
  SELECT last_attempt - attempts INTO v_before FROM ff_run WHERE execution_id = p_id ORDER BY run LIMIT 1;
  IF v_before >= 0 THEN
    v_most := greatest(v_most, ff_clear_attempts(p_id, v_before, p_part));
  END IF;
  RETURN v_most < p_part;
END $$;

-- Deletes attempts up to one, with their streams, at most p_part rows of each kind. Returns the most rows of one kind.
CREATE OR REPLACE FUNCTION ff_clear_attempts(p_id uuid, p_last integer, p_part integer) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  v_count bigint;
  v_most bigint;
BEGIN
  DELETE FROM ff_frame WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM ff_frame WHERE execution_id = p_id AND attempt_index <= p_last LIMIT p_part));
  GET DIAGNOSTICS v_most = ROW_COUNT;
  DELETE FROM ff_stream_summary WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM ff_stream_summary WHERE execution_id = p_id AND attempt_index <= p_last LIMIT p_part));
  DELETE FROM ff_stream_meta WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM ff_stream_meta WHERE execution_id = p_id AND attempt_index <= p_last LIMIT p_part));
  DELETE FROM ff_attempt_history WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM ff_attempt_history WHERE execution_id = p_id AND attempt_index <= p_last LIMIT p_part));
  GET DIAGNOSTICS v_count = ROW_COUNT;
  RETURN greatest(v_most, v_count);
END $$;

-- Whether the last run of an execution has been cleared, so that the current one may have begun.
CREATE OR REPLACE FUNCTION ff_run_may_begin(p_id uuid) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN (SELECT is_cleared FROM ff_run WHERE execution_id = p_id ORDER BY run DESC LIMIT 1);
END $$;

-- Deletes the next part of what runs of locked executions have left behind whose timers fired. Those that need more get
-- another timer and are returned.
CREATE OR REPLACE FUNCTION ff_clear_further(p_rows ff_locked[]) RETURNS SETOF uuid LANGUAGE plpgsql AS $$
DECLARE
  r ff_locked;
  c_part CONSTANT integer := 1000;
BEGIN
  FOREACH r IN ARRAY p_rows LOOP
    CONTINUE WHEN r.traits & 128 = 0 OR ff_run_may_begin(r.execution_id);
    IF ff_clear_run(r.execution_id, c_part) THEN
      PERFORM ff_mark_cleared(r.execution_id);
    ELSE
      INSERT INTO ff_timer (kind, due_at_ms, execution_id, partition_key, attempt_index, lease_epoch)
      SELECT 'eligible', eligible_at_ms, execution_id, partition_key, attempt_index, lease_epoch
      FROM ff_execution WHERE execution_id = r.execution_id;
      RETURN NEXT r.execution_id;
    END IF;
  END LOOP;
END $$;

CREATE OR REPLACE FUNCTION ff_mark_cleared(p_id uuid) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE ff_run SET is_cleared = true WHERE execution_id = p_id AND NOT is_cleared;
END $$;

-- Deletes the rest of what the last runs of some executions have left behind: they ended before the next run could
-- begin, and are replayed.
CREATE OR REPLACE FUNCTION ff_clear_replayed(p_rows ff_locked[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  r ff_locked;
BEGIN
  FOREACH r IN ARRAY p_rows LOOP
    IF r.traits & 128 <> 0 AND NOT ff_run_may_begin(r.execution_id) AND ff_clear_run(r.execution_id, 2147483647) THEN
      PERFORM ff_mark_cleared(r.execution_id);
    END IF;
  END LOOP;
END $$;
