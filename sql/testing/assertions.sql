-- Assertions for test schemas: a state change that is not in the transition table fails at once, one that left
-- something undone fails at its commit. Installed by the test kit, never by a migration; production schemas do not have
-- them. The legal moves are filled in from the model. Every failure has SQLSTATE FFA01 and names the execution.

CREATE TABLE IF NOT EXISTS ff_legal_move (
  transition       text NOT NULL,
  from_state       text NOT NULL,
  to_state         text NOT NULL,
  epoch_step       integer NOT NULL,
  attempt_step     integer NOT NULL,
  retry_step       integer NOT NULL,
  reclaim_step     integer NOT NULL,
  replay_step      integer NOT NULL,
  run_step         integer NOT NULL,
  lease_event      text,
  completion_event text,
  operator_event   text,
  signal_event     text,
  -- Owed by an execution that asks for all events, and by no other.
  execution_event  text,
  PRIMARY KEY (from_state, to_state, transition)
);

-- Only the assertions query these tables by execution.
CREATE INDEX IF NOT EXISTS ff_ready_of_execution ON ff_ready (execution_id);
CREATE INDEX IF NOT EXISTS ff_timer_of_execution ON ff_timer (execution_id);

-- What every row must be. These are no constraints of production schemas: the server reads the expression of a check
-- again for every statement, and for a call about one execution that took an eighth of its time.
ALTER TABLE ff_execution DROP CONSTRAINT IF EXISTS ff_execution_ranges;
ALTER TABLE ff_execution ADD CONSTRAINT ff_execution_ranges CHECK (
  partition_key BETWEEN 0 AND 255 AND priority BETWEEN 0 AND 9000);
ALTER TABLE ff_attempt_history DROP CONSTRAINT IF EXISTS ff_attempt_history_ended;
ALTER TABLE ff_attempt_history ADD CONSTRAINT ff_attempt_history_ended CHECK (
  interrupted_by IN ('expired', 'revoked') AND (outcome IS NULL AND terminal_outcome IS NULL) = (ended_at_ms IS NULL)
  AND (terminal_outcome IS NULL) = (namespace IS NULL) AND terminal_outcome <> 'none');
ALTER TABLE ff_stream_meta DROP CONSTRAINT IF EXISTS ff_stream_meta_closed;
ALTER TABLE ff_stream_meta ADD CONSTRAINT ff_stream_meta_closed CHECK (
  (closed_at_ms IS NULL) = (closed_reason IS NULL) AND closed_reason IN (
    'attempt_success', 'attempt_failure', 'attempt_cancelled', 'reclaimed', 'lease_expired', 'expired'));

CREATE OR REPLACE FUNCTION ff_is_known_event(family ff_event_family, n integer, event_type text, event_types text[]) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
  v_known text[] := CASE family
    WHEN 'lease' THEN '{acquired,renewed,expired,reclaimed,revoked,released}'
    WHEN 'completion' THEN '{success,failed,cancelled,expired,skipped}'
    WHEN 'operator' THEN '{priority_changed,replayed,lane_paused,lane_resumed}'
    WHEN 'tag' THEN '{tags_changed}'
    WHEN 'worker' THEN '{registered,stopped,lost}'
    WHEN 'execution' THEN '{submitted,step_finished,progress_reported}'
    WHEN 'flow' THEN '{submitted,cancel_requested,completed,failed,cancelled,reopened}'
    WHEN 'signal' THEN '{suspended,delivered,resumed,escalated,continued,timed_out,waitpoints_expired}' END;
BEGIN
  RETURN n BETWEEN 1 AND 256 AND coalesce(event_type = ANY (v_known), event_types <@ v_known, false);
END $$;
ALTER TABLE ff_event_pack DROP CONSTRAINT IF EXISTS ff_event_known;
ALTER TABLE ff_event_pack ADD CONSTRAINT ff_event_known CHECK (ff_is_known_event(family, n, event_type, event_types));

-- Every row of the log is whole, and of one shape.
ALTER TABLE ff_event_pack DROP CONSTRAINT IF EXISTS ff_event_subject;
ALTER TABLE ff_event_pack ADD CONSTRAINT ff_event_subject CHECK (CASE WHEN num_nulls(execution_id, execution_ids) = 2 THEN family IN ('operator', 'worker')
      OR family = 'flow' AND num_nonnulls(flow_id, flow_ids) = 1 AND num_nonnulls(partition_key, partition_keys) = 1
    ELSE num_nonnulls(partition_key, partition_keys) = 1 AND num_nonnulls(route_id, route_ids) = 1
      AND num_nonnulls(attempt_index, attempt_indexes) = 1 AND num_nonnulls(lease_epoch, lease_epochs) = 1 END);
ALTER TABLE ff_event_pack DROP CONSTRAINT IF EXISTS ff_event_either;
ALTER TABLE ff_event_pack ADD CONSTRAINT ff_event_either CHECK (num_nonnulls(event_type, event_types) = 1 AND num_nonnulls(namespace, namespaces) = 1
    AND num_nonnulls(tags, tag_sets) = 1 AND num_nulls(execution_id, execution_ids) > 0 AND num_nulls(flow_id, flow_ids) > 0
    AND num_nulls(worker_instance_id, worker_instance_ids) > 0
    AND num_nulls(detail, details) > 0);
ALTER TABLE ff_event_pack DROP CONSTRAINT IF EXISTS ff_event_packed;
ALTER TABLE ff_event_pack ADD CONSTRAINT ff_event_packed CHECK (CASE WHEN n = 1 THEN num_nonnulls(partition_keys, execution_ids, flow_ids,
      lease_epochs, attempt_indexes, route_ids, event_types, namespaces, worker_instance_ids, tag_sets, details) = 0
    ELSE coalesce(cardinality(partition_keys), n) = n AND coalesce(cardinality(execution_ids), n) = n
      AND coalesce(cardinality(flow_ids), n) = n
      AND coalesce(cardinality(lease_epochs), n) = n AND coalesce(cardinality(attempt_indexes), n) = n
      AND coalesce(cardinality(route_ids), n) = n AND coalesce(cardinality(event_types), n) = n
      AND coalesce(cardinality(namespaces), n) = n AND coalesce(cardinality(worker_instance_ids), n) = n
      AND coalesce(cardinality(tag_sets), n) = n AND coalesce(cardinality(details), n) = n
      AND array_position(execution_ids, NULL) IS NULL AND array_position(partition_keys, NULL) IS NULL
      AND array_position(lease_epochs, NULL) IS NULL AND array_position(attempt_indexes, NULL) IS NULL
      AND array_position(route_ids, NULL) IS NULL AND array_position(namespaces, NULL) IS NULL
      AND array_position(tag_sets, NULL) IS NULL END);

CREATE OR REPLACE FUNCTION ff_assertion_failed(p_id uuid, p_message text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'execution %: %', p_id, p_message USING ERRCODE = 'FFA01';
END $$;

-- The state vector as the legal moves spell it; a missing row is in the state "nothing".
-- plpgsql here and below, because it caches its plans; these run for every row a test changes.
CREATE OR REPLACE FUNCTION ff_state_text(p_row ff_execution) RETURNS text LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF p_row.execution_id IS NULL THEN RETURN 'nothing'; END IF;
  RETURN concat_ws('/', p_row.lifecycle_phase, p_row.ownership_state, p_row.eligibility_state, p_row.blocking_reason,
                   p_row.terminal_outcome, p_row.attempt_state);
END $$;

-- How much the change added to epoch, attempt, retries and reclaims.
CREATE OR REPLACE FUNCTION ff_steps(p_old ff_execution, p_new ff_execution) RETURNS bigint[]
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN ARRAY[
    p_new.lease_epoch - coalesce(p_old.lease_epoch, 0), p_new.attempt_index - coalesce(p_old.attempt_index, 0),
    p_new.retry_count - coalesce(p_old.retry_count, 0), p_new.reclaim_count - coalesce(p_old.reclaim_count, 0)];
END $$;

CREATE OR REPLACE FUNCTION ff_is_move(p_old ff_execution, p_new ff_execution) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN ff_state_text(p_old) <> ff_state_text(p_new) OR ff_steps(p_old, p_new) <> '{0,0,0,0}'::bigint[];
END $$;

CREATE OR REPLACE FUNCTION ff_moves_of(p_old ff_execution, p_new ff_execution) RETURNS SETOF ff_legal_move
LANGUAGE plpgsql STABLE AS $$
DECLARE
  v_from text := ff_state_text(p_old);
  v_to text := ff_state_text(p_new);
  v_steps bigint[] := ff_steps(p_old, p_new);
BEGIN
  RETURN QUERY SELECT * FROM ff_legal_move
  WHERE from_state = v_from AND to_state = v_to
    AND replay_step = p_new.replay_count - coalesce(p_old.replay_count, 0)
    AND ARRAY[epoch_step, attempt_step]::bigint[] = v_steps[1:2]
    -- A replay resets retries and reclaims, and so does the next run.
    AND CASE replay_step + run_step WHEN 0 THEN ARRAY[retry_step, reclaim_step]::bigint[] = v_steps[3:4]
                         ELSE p_new.retry_count = 0 AND p_new.reclaim_count = 0 END;
END $$;

CREATE OR REPLACE FUNCTION ff_assert_move() RETURNS trigger LANGUAGE plpgsql
SET enable_seqscan = off SET search_path FROM CURRENT AS $$
DECLARE
  v_old ff_execution;
  v_near text;
BEGIN
  IF TG_OP = 'UPDATE' THEN v_old := OLD; END IF;
  IF NOT ff_is_move(v_old, NEW) OR EXISTS (SELECT FROM ff_moves_of(v_old, NEW)) THEN RETURN NEW; END IF;
  IF NEW.lease_epoch < v_old.lease_epoch THEN
    PERFORM ff_assertion_failed(NEW.execution_id,
      format('the lease epoch went down from %s to %s', v_old.lease_epoch, NEW.lease_epoch));
  END IF;
  SELECT string_agg(format('%s %s', transition,
                           ARRAY[epoch_step, attempt_step, retry_step, reclaim_step]), ', ' ORDER BY transition)
  INTO v_near FROM ff_legal_move WHERE from_state = ff_state_text(v_old) AND to_state = ff_state_text(NEW);
  IF v_near IS NOT NULL THEN
    PERFORM ff_assertion_failed(NEW.execution_id,
      format('epoch, attempt, retries and reclaims moved by %s, legal are: %s', ff_steps(v_old, NEW), v_near));
  END IF;
  IF v_old.lifecycle_phase = 'terminal' AND ff_state_text(v_old) <> ff_state_text(NEW) THEN
    PERFORM ff_assertion_failed(NEW.execution_id,
      format('it had ended (%s) and may not become %s', ff_state_text(v_old), ff_state_text(NEW)));
  END IF;
  PERFORM ff_assertion_failed(NEW.execution_id,
    format('no transition leads from %s to %s with steps %s',
           ff_state_text(v_old), ff_state_text(NEW), ff_steps(v_old, NEW)));
  RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION ff_events_written(
  p_id uuid, p_family ff_event_family, p_type text, p_epoch bigint, p_attempt integer
) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN (
    SELECT count(*) FROM (
      -- Rows that name it first: a transaction may have written many.
      SELECT slot, ev_id FROM ff_event_pack
      WHERE xid = pg_current_xact_id() AND family = p_family AND (execution_id = p_id OR p_id = ANY (execution_ids)) OFFSET 0) p
    CROSS JOIN LATERAL (
      SELECT * FROM ff_event WHERE slot = p.slot AND ev_id = p.ev_id) e
    WHERE execution_id = p_id AND event_type = p_type AND lease_epoch = p_epoch AND attempt_index = p_attempt);
END $$;

-- An event that a move requires and this transaction did not write exactly once; NULL when all are written. The end of
-- a lease is recorded under its old epoch, the start of one under its new epoch.
CREATE OR REPLACE FUNCTION ff_missing_event(p_old ff_execution, p_new ff_execution, p_move ff_legal_move) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
  v_began boolean := p_new.lifecycle_phase = 'active' AND p_old.lifecycle_phase IS DISTINCT FROM 'active';
  v_ended boolean := p_old.lifecycle_phase = 'active' AND p_new.lifecycle_phase <> 'active';
  v_type text := p_move.lease_event;
BEGIN
  IF v_began AND p_old.attempt_state = 'pending_retry_attempt' AND EXISTS (
    SELECT FROM ff_attempt_history h
    WHERE h.execution_id = p_new.execution_id AND h.partition_key = p_new.partition_key
      AND h.attempt_index = p_new.attempt_index - 1 AND h.outcome = 'interrupted') THEN
    v_type := 'reclaimed';
  END IF;
  IF v_began AND ff_events_written(p_new.execution_id, 'lease', v_type, p_new.lease_epoch, p_new.attempt_index) <> 1 THEN
    RETURN format('one lease event %s of epoch %s', v_type, p_new.lease_epoch);
  END IF;
  IF v_ended AND v_type IS NOT NULL
     AND ff_events_written(p_new.execution_id, 'lease', v_type, p_old.lease_epoch, p_old.attempt_index) <> 1 THEN
    RETURN format('one lease event %s of epoch %s', v_type, p_old.lease_epoch);
  END IF;
  IF p_move.completion_event IS NOT NULL AND ff_events_written(p_new.execution_id, 'completion',
       p_move.completion_event, p_old.lease_epoch, p_new.attempt_index) <> 1 THEN
    RETURN format('one completion event %s of attempt %s', p_move.completion_event, p_new.attempt_index);
  END IF;
  IF p_move.completion_event IS NOT NULL AND p_new.traits & 16 <> 0 AND NOT EXISTS (
       SELECT FROM ff_event e WHERE e.xid = pg_current_xact_id() AND e.family = 'completion'
         AND e.execution_id = p_new.execution_id AND e.detail -> 'end' ?| '{result,omitted,message}') THEN
    RETURN 'a completion event with the result or the reason';
  END IF;
  IF p_move.operator_event IS NOT NULL AND ff_events_written(p_new.execution_id, 'operator', p_move.operator_event,
       p_new.lease_epoch, p_new.attempt_index) <> 1 THEN
    RETURN format('one operator event %s of attempt %s', p_move.operator_event, p_new.attempt_index);
  END IF;
  IF p_move.signal_event IS NOT NULL AND ff_events_written(p_new.execution_id, 'signal', p_move.signal_event,
       p_old.lease_epoch, p_old.attempt_index) <> 1 THEN
    RETURN format('one signal event %s of epoch %s', p_move.signal_event, p_old.lease_epoch);
  END IF;
  IF p_move.execution_event IS NOT NULL AND ff_events_written(p_new.execution_id, 'execution', p_move.execution_event,
       p_new.lease_epoch, p_new.attempt_index) <> (p_new.traits & 16) / 16 THEN
    RETURN format('%s events %s', (p_new.traits & 16) / 16, p_move.execution_event);
  END IF;
  RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION ff_assert_events(p_old ff_execution, p_new ff_execution) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  m ff_legal_move;
  v_missing text;
  v_all text;
BEGIN
  -- Two transitions may look the same from outside; the events of either one suffice.
  FOR m IN SELECT * FROM ff_moves_of(p_old, p_new) LOOP
    v_missing := ff_missing_event(p_old, p_new, m);
    IF v_missing IS NULL THEN RETURN; END IF;
    v_all := concat_ws(' or ', v_all, format('%s owes %s', m.transition, v_missing));
  END LOOP;
  IF v_all IS NOT NULL THEN PERFORM ff_assertion_failed(p_new.execution_id, v_all || ', which was not written'); END IF;
END $$;

-- The rows that must exist beside an execution: a lease while active, an outcome once ended, a queue row while
-- claimable, a timer while it waits for a time, a suspension while suspended; and none of them otherwise. Stale queue
-- rows and timers do not count.
CREATE OR REPLACE FUNCTION ff_broken_companion(e ff_execution) RETURNS text LANGUAGE plpgsql STABLE AS $$
DECLARE
  v_ended ff_terminal_outcome;
  v_active boolean := e.lifecycle_phase = 'active';
BEGIN
  IF v_active AND NOT EXISTS (
       SELECT FROM ff_grant g WHERE g.claim_no = e.claim_no AND e.execution_id = ANY (g.execution_ids)) THEN
    RETURN 'is active without a lease';
  END IF;
  IF v_active AND e.lease_expires_at_ms IS NULL THEN RETURN 'has a lease that never lapses'; END IF;
  IF NOT v_active AND num_nonnulls(e.claim_no, e.lease_expires_at_ms) > 0 THEN
    RETURN 'is not active and still has a lease';
  END IF;

  SELECT h.terminal_outcome INTO v_ended FROM ff_attempt_history h
  WHERE h.execution_id = e.execution_id AND h.partition_key = e.partition_key AND h.attempt_index = e.attempt_index;
  IF e.lifecycle_phase = 'terminal' AND v_ended IS DISTINCT FROM e.terminal_outcome THEN
    RETURN format('ended as %s without an outcome row saying so', e.terminal_outcome);
  END IF;
  IF e.lifecycle_phase <> 'terminal' AND v_ended IS NOT NULL THEN
    RETURN 'has an outcome row for an attempt that has not ended it';
  END IF;

  IF (e.eligibility_state = 'eligible_now') <> EXISTS (
       SELECT FROM ff_ready r WHERE r.execution_id = e.execution_id AND r.partition_key = e.partition_key
         AND r.route_id = e.route_id AND r.priority = e.priority AND r.attempt_index = e.attempt_index
         AND r.lease_epoch = e.lease_epoch) THEN
    RETURN CASE e.eligibility_state WHEN 'eligible_now' THEN 'is claimable without a fresh queue row'
                                    ELSE 'is not claimable and has a fresh queue row' END;
  END IF;
  IF (e.eligibility_state = 'not_eligible_until_time') <> EXISTS (
       SELECT FROM ff_timer t WHERE t.execution_id = e.execution_id AND t.partition_key = e.partition_key
         AND t.kind = 'eligible' AND t.attempt_index = e.attempt_index AND t.lease_epoch = e.lease_epoch
         AND t.due_at_ms = coalesce(e.eligible_at_ms, t.due_at_ms)) THEN
    RETURN CASE e.eligibility_state WHEN 'not_eligible_until_time' THEN 'waits for a time without a timer for it'
                                    ELSE 'does not wait for a time and has a live timer' END;
  END IF;
  IF (e.lifecycle_phase = 'suspended') <> EXISTS (
       SELECT FROM ff_suspension s WHERE s.execution_id = e.execution_id AND s.partition_key = e.partition_key) THEN
    RETURN CASE e.lifecycle_phase WHEN 'suspended' THEN 'is suspended without a suspension'
                                  ELSE 'is not suspended and has a suspension' END;
  END IF;
  IF EXISTS (
       SELECT FROM ff_suspension s WHERE s.execution_id = e.execution_id
         AND (s.wake_at_ms IS NOT NULL OR jsonb_path_exists(s.waits, '$[*].timeout_at_ms ? (@ != null)'))
         AND NOT EXISTS (
           SELECT FROM ff_timer t WHERE t.execution_id = e.execution_id AND t.kind = 'suspension'
             AND t.attempt_index = e.attempt_index AND t.lease_epoch = e.lease_epoch)) THEN
    RETURN 'is suspended for a time without a timer for it';
  END IF;
  RETURN NULL;
END $$;

-- Checks the execution as it is at commit, whatever change queued the check. In one statement, whose snapshot the
-- stable function shares: a transaction that only removed a stale pointer has not locked the execution, which may
-- change meanwhile.
CREATE OR REPLACE FUNCTION ff_assert_companions(p_id uuid, p_partition smallint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_broken text;
BEGIN
  SELECT ff_broken_companion(x) INTO v_broken FROM ff_execution x WHERE x.execution_id = p_id AND x.partition_key = p_partition;
  IF v_broken IS NOT NULL THEN PERFORM ff_assertion_failed(p_id, v_broken); END IF;
END $$;

CREATE OR REPLACE FUNCTION ff_assert_change() RETURNS trigger LANGUAGE plpgsql
SET enable_seqscan = off SET search_path FROM CURRENT AS $$
DECLARE
  v_old ff_execution;
BEGIN
  IF TG_OP = 'UPDATE' THEN v_old := OLD; END IF;
  IF ff_is_move(v_old, NEW) THEN PERFORM ff_assert_events(v_old, NEW); END IF;
  PERFORM ff_assert_companions(NEW.execution_id, NEW.partition_key);
  RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION ff_assert_beside() RETURNS trigger LANGUAGE plpgsql
SET enable_seqscan = off SET search_path FROM CURRENT AS $$
BEGIN
  IF TG_OP <> 'INSERT' THEN PERFORM ff_assert_companions(OLD.execution_id, OLD.partition_key);
  ELSE PERFORM ff_assert_companions(NEW.execution_id, NEW.partition_key); END IF;
  RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION ff_assert_grant() RETURNS trigger LANGUAGE plpgsql
SET enable_seqscan = off SET search_path FROM CURRENT AS $$
BEGIN
  PERFORM ff_assert_companions(e.execution_id, e.partition_key) FROM unnest(OLD.execution_ids) x(id)
  CROSS JOIN LATERAL (
    SELECT execution_id, partition_key FROM ff_execution WHERE execution_id = x.id AND claim_no = OLD.claim_no OFFSET 0) e;
  RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER ff_assert_move BEFORE INSERT OR UPDATE ON ff_execution
  FOR EACH ROW EXECUTE FUNCTION ff_assert_move();
DROP TRIGGER IF EXISTS ff_assert_change ON ff_execution;
CREATE CONSTRAINT TRIGGER ff_assert_change AFTER INSERT OR UPDATE ON ff_execution
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION ff_assert_change();
-- A lease, queue row, timer, suspension or outcome that appears or disappears alone would not fire the execution's own
-- triggers.
DROP TRIGGER IF EXISTS ff_assert_grant ON ff_grant;
CREATE CONSTRAINT TRIGGER ff_assert_grant AFTER DELETE ON ff_grant
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION ff_assert_grant();
DROP TRIGGER IF EXISTS ff_assert_beside ON ff_ready;
CREATE CONSTRAINT TRIGGER ff_assert_beside AFTER DELETE ON ff_ready
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION ff_assert_beside();
DROP TRIGGER IF EXISTS ff_assert_beside ON ff_timer;
CREATE CONSTRAINT TRIGGER ff_assert_beside AFTER DELETE ON ff_timer
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION ff_assert_beside();
DROP TRIGGER IF EXISTS ff_assert_beside ON ff_suspension;
CREATE CONSTRAINT TRIGGER ff_assert_beside AFTER INSERT OR DELETE ON ff_suspension
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION ff_assert_beside();
DROP TRIGGER IF EXISTS ff_assert_beside ON ff_attempt_history;
CREATE CONSTRAINT TRIGGER ff_assert_beside AFTER INSERT OR DELETE OR UPDATE OF terminal_outcome ON ff_attempt_history
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION ff_assert_beside();
