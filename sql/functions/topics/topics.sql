-- Topics. What is published commits in the topic's home partition; executions of any partition wait for it. No transaction
-- is about both: an execution first registers its wait and then looks at the home, a publisher first commits and then
-- looks for waits, so that one of them sees the other. Waits are ended under the lock of their execution, so that a wait
-- gets one.

-- Publishes. Those of one topic are numbered in the order of their commits. The same p_publish twice is one.
CREATE OR REPLACE FUNCTION ff_publish(
  p_namespace text, p_topic text, p_partition smallint, p_publish uuid, p_keep_ms bigint, p_payload jsonb
) RETURNS TABLE (seq bigint, published_at_ms bigint) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET lock_timeout = '2s' SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_now bigint;
  v_seq bigint;
BEGIN
  PERFORM ff_require_read_committed();
  INSERT INTO ff_topic AS t (namespace, topic, partition_key, last_seq) VALUES (p_namespace, p_topic, p_partition, 0)
  ON CONFLICT (namespace, topic, partition_key) DO UPDATE SET last_seq = t.last_seq;
  -- In a statement after the lock: an earlier try may have committed during the wait.
  RETURN QUERY
  SELECT p.seq, p.published_at_ms FROM ff_published p
  WHERE p.namespace = p_namespace AND p.topic = p_topic AND p.partition_key = p_partition AND p.publish_id = p_publish;
  IF FOUND THEN RETURN; END IF;
  v_now := ff_now_ms();
  INSERT INTO ff_published (namespace, topic, partition_key, publish_id, published_at_ms, keep_until_ms, payload)
  VALUES (p_namespace, p_topic, p_partition, p_publish, v_now, v_now + p_keep_ms, p_payload)
  RETURNING seq INTO v_seq;
  UPDATE ff_topic SET last_seq = v_seq WHERE namespace = p_namespace AND topic = p_topic AND partition_key = p_partition;
  DELETE FROM ff_published
  WHERE namespace = p_namespace AND topic = p_topic AND partition_key = p_partition AND seq < v_seq AND is_told;
  RETURN QUERY SELECT v_seq, v_now;
END $$;

-- Everybody who waited for it has been told. Only the last of a topic is needed any longer, for those who wait later.
CREATE OR REPLACE FUNCTION ff_finish_telling(p_namespace text, p_topic text, p_partition smallint, p_seq bigint) RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off SET lock_timeout = '2s'
SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_last bigint;
BEGIN
  PERFORM ff_require_read_committed();
  SELECT last_seq INTO v_last FROM ff_topic
  WHERE namespace = p_namespace AND topic = p_topic AND partition_key = p_partition FOR UPDATE;
  IF v_last > p_seq THEN
    DELETE FROM ff_published WHERE namespace = p_namespace AND topic = p_topic AND partition_key = p_partition AND seq = p_seq;
  ELSE
    UPDATE ff_published SET is_told = true
    WHERE namespace = p_namespace AND topic = p_topic AND partition_key = p_partition AND seq = p_seq;
  END IF;
END $$;

-- Forgets what was kept long enough, with its topics; returns how many. Never waits for somebody who publishes.
CREATE OR REPLACE FUNCTION ff_forget_topics(p_limit integer) RETURNS bigint LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_now bigint := ff_now_ms();
  v_old record;
  v_count bigint := 0;
BEGIN
  PERFORM ff_require_read_committed();
  FOR v_old IN
    SELECT p.namespace, p.topic, p.partition_key, p.seq FROM ff_published p
    WHERE p.is_told AND p.keep_until_ms <= v_now ORDER BY p.keep_until_ms LIMIT p_limit
  LOOP
    PERFORM 1 FROM ff_topic
    WHERE namespace = v_old.namespace AND topic = v_old.topic AND partition_key = v_old.partition_key
    FOR UPDATE SKIP LOCKED;
    CONTINUE WHEN NOT FOUND;
    DELETE FROM ff_published
    WHERE namespace = v_old.namespace AND topic = v_old.topic AND partition_key = v_old.partition_key AND seq = v_old.seq;
    DELETE FROM ff_topic
    WHERE namespace = v_old.namespace AND topic = v_old.topic AND partition_key = v_old.partition_key AND last_seq = v_old.seq;
    v_count := v_count + 1;
  END LOOP;
  RETURN v_count;
END $$;

-- Remembers what an execution has received of a topic. Called with the execution locked.
CREATE OR REPLACE FUNCTION ff_see_topic(p_id uuid, p_partition smallint, p_namespace text, p_topic text, p_seq bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO ff_topic_seen AS s (execution_id, partition_key, namespace, topic, seq)
  VALUES (p_id, p_partition, p_namespace, p_topic, p_seq)
  ON CONFLICT (execution_id, namespace, topic) DO UPDATE SET seq = greatest(s.seq, EXCLUDED.seq);
END $$;

-- Begins a wait for a topic, of a locked execution. Its condition says what the home had just before: the number of the
-- last (`last`), and that itself while it is kept (`offer`). Returns what the wait's step says if that is news to the
-- execution; otherwise NULL, and the wait is registered. A wait that has begun is ended by ff_tell_topic alone.
CREATE OR REPLACE FUNCTION ff_take_topic(p_id uuid, p_wait jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_namespace text := p_wait #>> '{condition,namespace}';
  v_topic text := p_wait #>> '{condition,topic}';
  v_offer jsonb := p_wait #> '{condition,offer}';
  v_partition smallint;
  v_seen bigint;
BEGIN
  PERFORM 1 FROM ff_topic_wait
  WHERE execution_id = p_id AND step_name = p_wait ->> 'name' AND step_key = p_wait ->> 'key';
  IF FOUND THEN RETURN NULL; END IF;
  SELECT partition_key INTO STRICT v_partition FROM ff_execution WHERE execution_id = p_id;
  SELECT seq INTO v_seen FROM ff_topic_seen
  WHERE execution_id = p_id AND namespace = v_namespace AND topic = v_topic;
  IF (v_offer ->> 'seq')::bigint > coalesce(v_seen, 0) THEN
    PERFORM ff_see_topic(p_id, v_partition, v_namespace, v_topic, (v_offer ->> 'seq')::bigint);
    RETURN jsonb_build_object('topic', v_offer);
  END IF;
  INSERT INTO ff_topic_wait (execution_id, partition_key, namespace, topic, step_name, step_key, after_seq)
  VALUES (p_id, v_partition, v_namespace, v_topic, p_wait ->> 'name', p_wait ->> 'key',
          greatest(v_seen, (p_wait #>> '{condition,last}')::bigint, 0));
  -- Whoever ends the execution then removes its waits.
  UPDATE ff_execution SET traits = traits | 64::smallint WHERE execution_id = p_id AND traits & 64 = 0;
  RETURN NULL;
END $$;

-- A wait for a topic has timed out.
CREATE OR REPLACE FUNCTION ff_leave_topic(p_id uuid, p_wait jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF p_wait #>> '{condition,kind}' = 'topic' THEN
    DELETE FROM ff_topic_wait
    WHERE execution_id = p_id AND step_name = p_wait ->> 'name' AND step_key = p_wait ->> 'key';
  END IF;
END $$;

-- Tells executions, whatever their partitions, what was published: ends their waits that began before it, and resumes those
-- that are suspended. Returns what became of each: `resumed`; `recorded`, if it runs and will find it; `discarded`, if
-- it does not wait any more; `held`, if another transaction has locked it.
CREATE OR REPLACE FUNCTION ff_tell_topic(
  p_ids uuid[], p_namespace text, p_topic text, p_seq bigint, p_published_at_ms bigint, p_payload jsonb
) RETURNS TABLE (execution_id uuid, outcome text, route_id integer) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_value jsonb;
  v_locked uuid[];
  v_wait record;
  v_ended uuid[] := '{}';
  v_rows ff_locked[];
  v_details jsonb[];
BEGIN
  PERFORM ff_require_read_committed();
  v_locked := ARRAY(
    SELECT e.execution_id FROM (SELECT unnest(p_ids) AS id ORDER BY 1 OFFSET 0) u
    CROSS JOIN LATERAL (SELECT execution_id FROM ff_execution WHERE execution_id = u.id FOR UPDATE SKIP LOCKED) e);
  v_value := jsonb_build_object('outcome', 'satisfied', 'endedAtMs', ff_now_ms(), 'signals', '[]'::jsonb, 'topic',
    jsonb_build_object('seq', p_seq, 'publishedAtMs', p_published_at_ms, 'data', p_payload));
  -- In statements after the lock: a wait that began, or timed out, during the wait for it is seen.
  FOR v_wait IN
    SELECT w.* FROM unnest(v_locked) u(id)
    CROSS JOIN LATERAL (
      SELECT * FROM ff_topic_wait x
      WHERE x.execution_id = u.id AND x.namespace = p_namespace AND x.topic = p_topic AND x.after_seq < p_seq OFFSET 0) w
  LOOP
    UPDATE ff_step SET value = v_value
    WHERE execution_id = v_wait.execution_id AND retired_by = 0 AND name = v_wait.step_name AND key = v_wait.step_key
      AND kind = 'wait' AND value ->> 'outcome' = 'pending';
    IF FOUND THEN
      v_ended := v_ended || v_wait.execution_id;
      PERFORM ff_see_topic(v_wait.execution_id, v_wait.partition_key, p_namespace, p_topic, p_seq);
    END IF;
    DELETE FROM ff_topic_wait
    WHERE execution_id = v_wait.execution_id AND step_name = v_wait.step_name AND step_key = v_wait.step_key;
  END LOOP;
  SELECT array_agg(ROW(1, e.execution_id, e.partition_key, e.route_id, e.priority, e.namespace, e.attempt_index, e.lease_epoch,
           e.retry_count, e.attempt_state, NULL, NULL, NULL, e.attempt_started_at_ms, e.tags, e.retain_ms, e.flow_id,
           e.attempt_paused, e.parent_id, e.traits)::ff_locked),
         array_agg(ff_resume_detail(jsonb_build_object('name', 'topic:' || p_topic), 'satisfied', 'engine'))
  INTO v_rows, v_details
  FROM (SELECT DISTINCT unnest(v_ended) AS id) u
  CROSS JOIN LATERAL (SELECT * FROM ff_execution WHERE execution_id = u.id AND lifecycle_phase = 'suspended' OFFSET 0) e;
  IF v_rows IS NOT NULL THEN
    PERFORM ff_settle_resumed(v_rows, array_fill(NULL::bigint, ARRAY[cardinality(v_rows)]), v_details);
  END IF;
  RETURN QUERY
  SELECT r.execution_id, 'resumed', r.route_id FROM unnest(v_rows) r
  UNION ALL
  SELECT u.id, CASE WHEN u.id = ANY (v_ended) THEN 'recorded' WHEN u.id = ANY (v_locked) THEN 'discarded' ELSE 'held' END, NULL
  FROM unnest(p_ids) u(id) WHERE CASE WHEN u.id IN (SELECT execution_id FROM unnest(v_rows)) THEN false ELSE true END;
END $$;
