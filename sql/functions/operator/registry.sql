-- Workers and lanes: their registry, and the events that belong to no execution.

CREATE OR REPLACE FUNCTION ff_tell(p_family ff_event_family, p_types text[], p_workers text[], p_details jsonb[])
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM ff_log_events(p_family, ff_now_ms(), cardinality(p_types), p_types, NULL, NULL, NULL, NULL, p_workers,
    ARRAY[''], ARRAY['{}'::jsonb], p_details, NULL, NULL);
END $$;

-- What does not change during a worker's life is written once; a row removed meanwhile is written again.
CREATE OR REPLACE FUNCTION ff_register_worker(
  p_instance text, p_worker_id text, p_version text, p_kinds text[], p_lanes text[], p_capabilities text[],
  p_concurrency integer, p_running integer, p_stopping boolean, p_uptime_ms bigint
) RETURNS void LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
DECLARE
  v_now bigint := ff_now_ms();
  v_is_new boolean;
BEGIN
  INSERT INTO ff_worker (worker_instance_id, worker_id, version, kinds, lanes, capabilities, concurrency, running, stopping,
                         started_at_ms, heartbeat_at_ms)
  VALUES (p_instance, p_worker_id, p_version, p_kinds, p_lanes, p_capabilities, p_concurrency, p_running, p_stopping,
          v_now - p_uptime_ms, v_now)
  ON CONFLICT (worker_instance_id) DO UPDATE SET
    running = EXCLUDED.running, stopping = EXCLUDED.stopping, heartbeat_at_ms = EXCLUDED.heartbeat_at_ms
  RETURNING xmax = 0 INTO v_is_new;
  IF v_is_new THEN
    PERFORM ff_tell('worker', ARRAY['registered'], ARRAY[p_instance],
      ARRAY[jsonb_strip_nulls(jsonb_build_object('worker_id', p_worker_id, 'version', p_version))]);
  END IF;
END $$;

-- Removes a worker that stops from the registry.
CREATE OR REPLACE FUNCTION ff_forget_worker(p_instance text) RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
DECLARE
  v_detail jsonb;
BEGIN
  DELETE FROM ff_worker WHERE worker_instance_id = p_instance
  RETURNING jsonb_strip_nulls(jsonb_build_object('worker_id', worker_id, 'version', version)) INTO v_detail;
  IF FOUND THEN
    PERFORM ff_tell('worker', ARRAY['stopped'], ARRAY[p_instance], ARRAY[v_detail]);
  END IF;
END $$;

-- Removes silent workers. Skips a row that is being refreshed right now.
CREATE OR REPLACE FUNCTION ff_forget_silent_workers(p_silent_ms bigint) RETURNS integer LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
DECLARE
  v_instances text[];
  v_details jsonb[];
BEGIN
  WITH gone AS (
    DELETE FROM ff_worker WHERE worker_instance_id = ANY (ARRAY(
      SELECT worker_instance_id FROM ff_worker WHERE heartbeat_at_ms < ff_now_ms() - p_silent_ms FOR UPDATE SKIP LOCKED))
    RETURNING worker_instance_id, worker_id, version)
  SELECT array_agg(worker_instance_id),
         array_agg(jsonb_strip_nulls(jsonb_build_object('worker_id', worker_id, 'version', version)))
  INTO v_instances, v_details FROM gone;
  IF v_instances IS NOT NULL THEN
    PERFORM ff_tell('worker', array_fill('lost'::text, ARRAY[cardinality(v_instances)]), v_instances, v_details);
  END IF;
  RETURN coalesce(cardinality(v_instances), 0);
END $$;

-- An unused lane can be paused while there are fewer than p_max lanes. A lane that is already paused keeps its note,
-- and a paused lane is never forgotten. Lanes created concurrently may exceed the limit.
CREATE OR REPLACE FUNCTION ff_pause_lane(p_lane text, p_by text, p_reason text, p_max integer)
RETURNS TABLE (changed boolean, is_refused boolean, is_new boolean) LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_known boolean;
BEGIN
  v_known := EXISTS (SELECT 1 FROM ff_lane WHERE lane = p_lane);
  IF NOT v_known AND (SELECT count(*) FROM (SELECT 1 FROM ff_lane LIMIT p_max) l) >= p_max THEN
    RETURN QUERY SELECT false, true, false;
    RETURN;
  END IF;
  INSERT INTO ff_lane AS l (lane, paused, paused_at_ms, paused_by, pause_reason)
  VALUES (p_lane, true, ff_now_ms(), p_by, p_reason)
  ON CONFLICT (lane) DO UPDATE SET paused = true, paused_at_ms = excluded.paused_at_ms,
    paused_by = excluded.paused_by, pause_reason = excluded.pause_reason
  WHERE NOT l.paused;
  IF FOUND THEN
    PERFORM ff_tell('operator', ARRAY['lane_paused'], ARRAY[NULL],
      ARRAY[jsonb_strip_nulls(jsonb_build_object('lane', p_lane, 'by', p_by, 'reason', p_reason))]);
    RETURN QUERY SELECT true, false, NOT v_known;
  ELSE
    RETURN QUERY SELECT false, false, false;
  END IF;
END $$;

-- Returns whether it was paused.
CREATE OR REPLACE FUNCTION ff_resume_lane(p_lane text) RETURNS boolean LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
BEGIN
  UPDATE ff_lane SET paused = false, paused_at_ms = NULL, paused_by = NULL, pause_reason = NULL
  WHERE lane = p_lane AND paused;
  IF FOUND THEN
    PERFORM ff_tell('operator', ARRAY['lane_resumed'], ARRAY[NULL], ARRAY[jsonb_build_object('lane', p_lane)]);
    RETURN true;
  END IF;
  RETURN false;
END $$;

-- Whether what is submitted to the lane from now on tells all its events. An unused lane can be set while there are fewer
-- than p_max lanes; one with all events is never forgotten.
CREATE OR REPLACE FUNCTION ff_set_lane_events(p_lane text, p_all boolean, p_max integer)
RETURNS TABLE (changed boolean, is_refused boolean, is_new boolean) LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_known boolean := EXISTS (SELECT 1 FROM ff_lane WHERE lane = p_lane);
BEGIN
  IF NOT v_known AND NOT p_all THEN
    RETURN QUERY SELECT false, false, true;
    RETURN;
  END IF;
  IF NOT v_known AND (SELECT count(*) FROM (SELECT 1 FROM ff_lane LIMIT p_max) l) >= p_max THEN
    RETURN QUERY SELECT false, true, false;
    RETURN;
  END IF;
  INSERT INTO ff_lane AS l (lane, all_events) VALUES (p_lane, p_all)
  ON CONFLICT (lane) DO UPDATE SET all_events = excluded.all_events WHERE l.all_events <> excluded.all_events;
  RETURN QUERY SELECT FOUND, false, NOT v_known;
END $$;
