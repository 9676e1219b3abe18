-- Children end with their parent, and begin again with it. Whatever ends or replays a parent leaves a timer of kind
-- `family` in the same commit; its work is done here, in parts, by any process. It is not a message ("end them") but a
-- question, asked again for each part: what does the parent's state mean for this child? So it does not matter how often,
-- how late or in which order it is asked; a replay in the middle of it turns it around.
--
-- Never waits: the parent is shared, which an end or a replay of it waits for and a renewal does not, and children that
-- somebody else holds are left for later. So no order of locks can deadlock.

-- Whether an execution has ended because its parent did. Not in a condition of the index over ended executions.
CREATE OR REPLACE FUNCTION ff_ended_with_parent(p_id uuid) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
BEGIN
  RETURN coalesce((
    SELECT h.failure_category = 'parent_ended'
    FROM (SELECT execution_id, partition_key, attempt_index, terminal_outcome FROM ff_execution
          WHERE execution_id = p_id OFFSET 0) e
    CROSS JOIN LATERAL (
      SELECT failure_category FROM ff_attempt_history
      WHERE execution_id = e.execution_id AND partition_key = e.partition_key AND attempt_index = e.attempt_index OFFSET 0) h
    WHERE e.terminal_outcome = 'cancelled'), false);
END $$;

-- Whether a child still belongs to its parent, which was begun anew since: it does if it was spawned before the first step
-- that was not kept. Both the clock and the count of steps must say that it was spawned later: a millisecond is long, and
-- waits that never ended are taken out of the count.
CREATE OR REPLACE FUNCTION ff_is_kept_child(p_parent uuid, p_place bigint, p_created_ms bigint) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
BEGIN
  RETURN NOT EXISTS (
    SELECT 1 FROM ff_generation
    WHERE execution_id = p_parent AND generation > p_place / 65536 AND p_place % 65536 > kept_steps
      AND p_created_ms >= since_ms);
END $$;

-- What the state of a parent means for one of its children: `end` it, `replay` it, or NULL. p_open: the parent has not
-- ended; p_generation: of the parent, 0 if it was never begun anew, NULL when it is gone.
CREATE OR REPLACE FUNCTION ff_due_of_child(c ff_execution, p_open boolean, p_generation integer) RETURNS text
LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF c.traits & 256 <> 0 THEN RETURN NULL; END IF;
  IF p_open AND (p_generation = 0 OR ff_is_kept_child(c.parent_id, c.spawn_place, c.created_at_ms)) THEN
    RETURN CASE WHEN c.terminal_outcome = 'cancelled' AND ff_ended_with_parent(c.execution_id) THEN 'replay' END;
  END IF;
  RETURN CASE WHEN c.lifecycle_phase <> 'terminal' THEN 'end' END;
END $$;

-- Does what the parent's state means for some of its children. The parent is shared by the caller. Those that somebody
-- holds are left out. Returns the children that were ended or replayed.
CREATE OR REPLACE FUNCTION ff_settle_some(p_ids uuid[], p_partition smallint, p_open boolean, p_generation integer)
RETURNS TABLE (execution_id uuid, outcome text, route_id integer, worker_instance_id text, held boolean) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_locked uuid[];
  v_end uuid[];
  v_again uuid[];
BEGIN
  v_locked := ARRAY(
    SELECT e.execution_id FROM (SELECT unnest(p_ids) AS id ORDER BY 1 OFFSET 0) u
    CROSS JOIN LATERAL (
      SELECT execution_id FROM ff_execution WHERE execution_id = u.id FOR UPDATE SKIP LOCKED) e);
  -- Decided in a later statement, on the locked rows: it may have ended by itself, and then its own outcome stays.
  SELECT array_agg(d.id) FILTER (WHERE d.due = 'end'), array_agg(d.id) FILTER (WHERE d.due = 'replay')
  INTO v_end, v_again FROM (
    SELECT e.execution_id AS id, ff_due_of_child(e, p_open, p_generation) AS due FROM unnest(v_locked) u(id)
    CROSS JOIN LATERAL (SELECT * FROM ff_execution WHERE execution_id = u.id OFFSET 0) e) d;
  IF v_end IS NOT NULL THEN
    RETURN QUERY
    SELECT c.execution_id, c.outcome, NULL::integer, c.worker_instance_id, false
    FROM ff_cancel(v_end, ARRAY(SELECT p_partition FROM unnest(v_end)), 'parent_ended', 'engine',
      p_category => 'parent_ended') c;
  END IF;
  IF v_again IS NOT NULL THEN
    -- However often each was replayed: the replay of the parent is the one that counts.
    RETURN QUERY
    SELECT c.execution_id, c.outcome, c.route_id, NULL::text, false
    FROM ff_replay(v_again, ARRAY(SELECT p_partition FROM unnest(v_again)), NULL, false, 'parent_replayed', 'engine', NULL) c;
  END IF;
  RETURN QUERY SELECT u.id, 'held', NULL::integer, NULL::text, true FROM unnest(p_ids) u(id)
  WHERE CASE WHEN u.id IN (SELECT unnest(v_locked)) THEN false ELSE true END;
END $$;

-- The state of a parent, which stays as it is until the transaction ends. is_held: somebody is changing it. A parent that
-- is gone has ended.
CREATE OR REPLACE FUNCTION ff_share_parent(
  p_id uuid, p_partition smallint, OUT is_held boolean, OUT is_open boolean, OUT generation integer
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  PERFORM 1 FROM ff_execution WHERE execution_id = p_id AND partition_key = p_partition FOR KEY SHARE SKIP LOCKED;
  is_held := NOT FOUND;
  SELECT e.lifecycle_phase <> 'terminal', e.generation INTO is_open, generation
  FROM ff_execution e WHERE execution_id = p_id AND partition_key = p_partition;
  IF NOT FOUND THEN
    is_held := false;
    is_open := false;
  END IF;
END $$;

-- The next part of the work of a timer: at most p_limit children are ended or replayed, and p_examined looked at. The
-- row without an execution is `done`; `more`; `held` when the parent or a child is held by somebody, and the work begins again
-- in a moment; or `left` when another process is at it, or has done it. The others are the children. A part that leaves
-- more to do keeps the timer from others for p_keep_ms; whoever does it does the next part before that.
CREATE OR REPLACE FUNCTION ff_settle_family(
  p_timer bigint, p_limit integer, p_examined integer, p_keep_ms bigint, p_held_ms bigint
) RETURNS TABLE (execution_id uuid, outcome text, route_id integer, worker_instance_id text) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  t ff_timer%ROWTYPE;
  w ff_family_place%ROWTYPE;
  p record;
  r record;
  v_due uuid[];
  v_last_ms bigint;
  v_last_id uuid;
  v_seen integer := 0;
  v_word text;
BEGIN
  PERFORM ff_require_read_committed();
  SELECT * INTO t FROM ff_timer WHERE timer_id = p_timer AND kind = 'family' FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    RETURN QUERY SELECT NULL::uuid, 'left', NULL::integer, NULL::text;
    RETURN;
  END IF;
  SELECT * INTO w FROM ff_family_place WHERE timer_id = p_timer;
  w.missed := coalesce(w.missed, false);
  p := ff_share_parent(t.execution_id, t.partition_key);
  IF p.is_held THEN
    UPDATE ff_timer SET due_at_ms = ff_now_ms() + p_held_ms WHERE timer_id = p_timer;
    RETURN QUERY SELECT NULL::uuid, 'held', NULL::integer, NULL::text;
    RETURN;
  END IF;
  FOR r IN
    SELECT e.execution_id, e.created_at_ms, ff_due_of_child(e, p.is_open, p.generation) AS due
    FROM ff_execution e
    WHERE parent_id = t.execution_id AND (created_at_ms, execution_id)
      > (coalesce(w.after_ms, 0), coalesce(w.after_id, '00000000-0000-0000-0000-000000000000'))
    ORDER BY parent_id, created_at_ms, execution_id LIMIT p_examined
  LOOP
    v_seen := v_seen + 1;
    v_last_ms := r.created_at_ms;
    v_last_id := r.execution_id;
    IF r.due IS NOT NULL THEN v_due := v_due || r.execution_id; END IF;
    EXIT WHEN cardinality(v_due) = p_limit;
  END LOOP;
  FOR r IN SELECT * FROM ff_settle_some(v_due, t.partition_key, p.is_open, p.generation) LOOP
    w.missed := w.missed OR r.held;
    IF NOT r.held THEN RETURN QUERY SELECT r.execution_id, r.outcome, r.route_id, r.worker_instance_id; END IF;
  END LOOP;
  IF v_seen = p_examined OR cardinality(v_due) = p_limit THEN
    v_word := 'more';
    INSERT INTO ff_family_place (timer_id, after_ms, after_id, missed, partition_key)
    VALUES (p_timer, v_last_ms, v_last_id, w.missed, t.partition_key)
    ON CONFLICT (timer_id) DO UPDATE SET after_ms = EXCLUDED.after_ms, after_id = EXCLUDED.after_id, missed = EXCLUDED.missed;
    UPDATE ff_timer SET due_at_ms = ff_now_ms() + p_keep_ms WHERE timer_id = p_timer;
  ELSE
    v_word := CASE WHEN w.missed THEN 'held' ELSE 'done' END;
    DELETE FROM ff_family_place WHERE timer_id = p_timer;
    IF w.missed THEN UPDATE ff_timer SET due_at_ms = ff_now_ms() + p_held_ms WHERE timer_id = p_timer;
    ELSE DELETE FROM ff_timer WHERE timer_id = p_timer; END IF;
  END IF;
  RETURN QUERY SELECT NULL::uuid, v_word, NULL::integer, NULL::text;
END $$;

-- Does at once what the state of a parent means for some of its children, for a parent that spawns them again and must not
-- find them ended by its own earlier end. Returns those it replayed; `held` for those, or for all, that somebody holds.
CREATE OR REPLACE FUNCTION ff_settle_children(p_parent uuid, p_partition smallint, p_ids uuid[])
RETURNS TABLE (execution_id uuid, outcome text, route_id integer, worker_instance_id text) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  p record;
BEGIN
  PERFORM ff_require_read_committed();
  p := ff_share_parent(p_parent, p_partition);
  IF p.is_held THEN
    RETURN QUERY SELECT id, 'held', NULL::integer, NULL::text FROM unnest(p_ids) id;
    RETURN;
  END IF;
  RETURN QUERY
  SELECT s.execution_id, s.outcome, s.route_id, s.worker_instance_id
  FROM ff_settle_some(p_ids, p_partition, p.is_open, p.generation) s;
END $$;

-- The children of earlier generations that an execution begun anew has kept. Those of an earlier run are none of them: it
-- continued as a new one, which spawns its own.
CREATE OR REPLACE FUNCTION ff_kept_children(p_parent uuid, p_partition smallint) RETURNS TABLE (execution_id uuid)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_generation integer;
  -- The first of the current run.
  v_first integer;
BEGIN
  SELECT generation INTO v_generation FROM ff_execution WHERE execution_id = p_parent AND partition_key = p_partition;
  SELECT last_attempt + 1 INTO v_first FROM ff_run WHERE execution_id = p_parent ORDER BY run DESC LIMIT 1;
  RETURN QUERY
  SELECT c.execution_id FROM ff_execution c
  WHERE c.parent_id = p_parent AND c.spawn_place / 65536 < v_generation AND c.spawn_place / 65536 >= coalesce(v_first, 0)
    AND ff_is_kept_child(p_parent, c.spawn_place, c.created_at_ms);
END $$;

-- Everything below an execution, each followed by what is below it, in the order they were spawned: p_limit of them, after
-- p_after. Where it stopped is enough to continue, because the rows themselves lead back up; and a child is kept as long as
-- its parent is. Some lookups in an index for each, however large the family is.
CREATE OR REPLACE FUNCTION ff_descendants(p_root uuid, p_after uuid, p_limit bigint)
RETURNS TABLE (place bigint, execution_id uuid) LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_at uuid := coalesce(p_after, p_root);
  -- Of the one it is at; NULL when they are not known.
  v_parent uuid;
  v_created bigint;
  v_next uuid;
  v_above uuid;
  v_next_created bigint;
BEGIN
  FOR n IN 1..p_limit LOOP
    SELECT execution_id, created_at_ms INTO v_next, v_next_created FROM ff_execution WHERE parent_id = v_at
    ORDER BY parent_id, created_at_ms, execution_id LIMIT 1;
    v_above := v_at;
    WHILE v_next IS NULL AND v_at <> p_root LOOP
      IF v_parent IS NULL THEN
        SELECT parent_id, created_at_ms INTO v_parent, v_created FROM ff_execution WHERE execution_id = v_at;
        IF v_parent IS NULL THEN RETURN; END IF;
      END IF;
      SELECT execution_id, created_at_ms INTO v_next, v_next_created FROM ff_execution
      WHERE parent_id = v_parent AND (created_at_ms, execution_id) > (v_created, v_at)
      ORDER BY parent_id, created_at_ms, execution_id LIMIT 1;
      v_above := v_parent;
      v_at := v_parent;
      v_parent := NULL;
    END LOOP;
    IF v_next IS NULL THEN RETURN; END IF;
    v_at := v_next;
    v_parent := v_above;
    v_created := v_next_created;
    place := n;
    execution_id := v_next;
    RETURN NEXT;
  END LOOP;
END $$;
