-- Routes: a lane, a kind and required capabilities as one number, which keys the queue. The engine interns a route in
-- its own transaction before anything is submitted to it, so that no caller waits for another's transaction. A route
-- may be submitted to for a term, after which it must be interned again. Submitting therefore takes no lock on the
-- route, and a route whose term is over and that no execution uses can be forgotten: nobody can have started using it.

-- The numbers of the named routes, NULL for those that must be interned first. A route too new for the snapshot of the
-- caller's transaction is trusted until the end of its term, which interning returned.
CREATE OR REPLACE FUNCTION ff_find_routes(p_routes jsonb, p_now bigint) RETURNS integer[] LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  RETURN ARRAY(
    SELECT coalesce(f.route_id, CASE WHEN (x.r ->> 'usable_until_ms')::bigint > p_now THEN (x.r ->> 'route_id')::integer END)
    FROM (SELECT r, ord, ARRAY(SELECT jsonb_array_elements_text(r -> 'capabilities')) AS capabilities
          FROM jsonb_array_elements(p_routes) WITH ORDINALITY e(r, ord) OFFSET 0) x
    LEFT JOIN LATERAL (
      SELECT route_id FROM ff_route
      WHERE lane = x.r ->> 'lane' AND kind = x.r ->> 'kind' AND capabilities = x.capabilities AND usable_until_ms > p_now
      OFFSET 0) f ON true
    ORDER BY x.ord);
END $$;

CREATE OR REPLACE FUNCTION ff_has_unknown_route(p_routes jsonb) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  RETURN array_position(ff_find_routes(p_routes, ff_now_ms()), NULL) IS NOT NULL;
END $$;

-- Interns routes and starts a new term for those whose term is over or nearly so. All callers use one order, so that
-- two that bring the same new routes cannot deadlock. Routes interned concurrently may exceed the limit.
CREATE OR REPLACE FUNCTION ff_intern_routes(p_routes jsonb, p_max integer)
RETURNS TABLE (ordinal bigint, route_id integer, usable_until_ms bigint) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET lock_timeout = '2s' SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  -- The rest of a term must be long enough for the submit that follows.
  c_left_ms CONSTANT bigint := 3600000;
  c_rounds CONSTANT integer := 10;
  v_now bigint := ff_now_ms();
  v_count bigint;
  v_route integer;
  v_until bigint;
  r record;
BEGIN
  FOR r IN
    SELECT ord, e.r ->> 'lane' AS lane, e.r ->> 'kind' AS kind,
           ARRAY(SELECT jsonb_array_elements_text(e.r -> 'capabilities')) AS capabilities
    FROM jsonb_array_elements(p_routes) WITH ORDINALITY e(r, ord) ORDER BY lane, kind, capabilities
  LOOP
    FOR round IN 1..c_rounds LOOP
      SELECT route_id, usable_until_ms INTO v_route, v_until FROM ff_route
      WHERE lane = r.lane AND kind = r.kind AND capabilities = r.capabilities;
      EXIT WHEN v_until > v_now + c_left_ms;
      IF FOUND THEN
        -- A route that is being forgotten is gone after the wait; it is then created anew.
        UPDATE ff_route SET usable_until_ms = DEFAULT WHERE route_id = v_route RETURNING usable_until_ms INTO v_until;
        EXIT WHEN FOUND;
        CONTINUE;
      END IF;
      v_count := coalesce(v_count, (SELECT count(*) FROM ff_route));
      IF v_count >= p_max THEN
        RAISE EXCEPTION 'there are already % routes', p_max USING ERRCODE = 'FF003';
      END IF;
      -- Locked until the route that references it exists.
      PERFORM 1 FROM ff_lane WHERE lane = r.lane FOR KEY SHARE;
      IF NOT FOUND THEN
        INSERT INTO ff_lane (lane) VALUES (r.lane) ON CONFLICT DO NOTHING;
        CONTINUE WHEN NOT FOUND;
      END IF;
      INSERT INTO ff_route (lane, kind, capabilities) VALUES (r.lane, r.kind, r.capabilities)
      ON CONFLICT DO NOTHING RETURNING route_id, usable_until_ms INTO v_route, v_until;
      v_count := v_count + 1;
      EXIT WHEN FOUND;
      v_until := NULL;
    END LOOP;
    IF v_until IS NULL THEN
      RAISE EXCEPTION 'a route was made and forgotten again and again' USING ERRCODE = '40001';
    END IF;
    RETURN QUERY SELECT r.ord, v_route, v_until;
  END LOOP;
END $$;

-- Routes that may be unused: their term ended more than p_margin_ms ago. With fewer than p_many routes it must have
-- ended p_kept_ms before that, because executions submitted under it are kept that long; NULL means forever.
-- barrier: any transaction still writing under one of these terms is older, because submitting takes its transaction id
-- before it reads the clock, and this function after.
CREATE OR REPLACE FUNCTION ff_idle_routes(p_margin_ms bigint, p_kept_ms bigint, p_many integer)
RETURNS TABLE (route_id integer, usable_until_ms bigint, barrier text) LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_before bigint := ff_now_ms() - p_margin_ms;
  v_routes integer[];
  v_untils bigint[];
BEGIN
  IF (SELECT count(*) FROM ff_route) < p_many THEN v_before := v_before - p_kept_ms; END IF;
  SELECT array_agg(route_id), array_agg(usable_until_ms) INTO v_routes, v_untils FROM ff_route WHERE usable_until_ms < v_before;
  IF v_routes IS NULL THEN RETURN; END IF;
  RETURN QUERY SELECT u.route, u.until, pg_current_xact_id()::text FROM unnest(v_routes, v_untils) u(route, until);
END $$;

-- The routes of a range of executions in submission order, and when the last of them was submitted. Executions with
-- the same time stay together.
CREATE OR REPLACE FUNCTION ff_used_routes(p_after bigint, p_before bigint, p_limit integer)
RETURNS TABLE (looked bigint, last_at_ms bigint, routes integer[]) LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  SELECT count(*), max(e.created_at_ms), coalesce(array_agg(DISTINCT e.route_id), '{}')
  FROM (SELECT created_at_ms, route_id FROM ff_execution WHERE created_at_ms > p_after AND created_at_ms < p_before
        ORDER BY created_at_ms FETCH FIRST (p_limit) ROWS WITH TIES) e;
END $$;

-- Forgets routes that no execution uses and starts a new term for those in p_used. Only while the term is the one they
-- were found with (p_untils): a route interned since may be in use again. A route that is interned again gets another
-- number. Events in the log still need the names, so those are kept as long as the events.
CREATE OR REPLACE FUNCTION ff_forget_routes(p_routes integer[], p_untils bigint[], p_used integer[], p_margin_ms bigint)
RETURNS bigint LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_locked integer[];
  v_gone integer[];
BEGIN
  PERFORM ff_require_read_committed();
  v_locked := ARRAY(
    SELECT r.route_id FROM (SELECT * FROM unnest(p_routes, p_untils) u(route, until) ORDER BY route OFFSET 0) u
    CROSS JOIN LATERAL (
      SELECT route_id FROM ff_route
      WHERE route_id = u.route AND usable_until_ms = u.until AND usable_until_ms < ff_now_ms() - p_margin_ms
      FOR UPDATE SKIP LOCKED) r);
  UPDATE ff_route SET usable_until_ms = DEFAULT
  WHERE route_id = ANY (ARRAY(
    -- CASE keeps this a hashed lookup.
    SELECT x FROM unnest(v_locked) x WHERE CASE WHEN x IN (SELECT unnest(p_used)) THEN true ELSE false END));
  -- Stale pointers are swept first, then the route is deleted.
  v_gone := ARRAY(
    SELECT x FROM unnest(v_locked) x
    LEFT JOIN LATERAL (SELECT true AS queued FROM ff_ready WHERE route_id = x ORDER BY -priority, seq LIMIT 1) q ON true
    WHERE CASE WHEN x IN (SELECT unnest(p_used)) THEN false ELSE q.queued IS NULL END);
  WITH gone AS (DELETE FROM ff_route WHERE route_id = ANY (v_gone) RETURNING route_id, lane, kind)
  INSERT INTO ff_former_route (route_id, lane, kind, last_ev_id)
  SELECT route_id, lane, kind, coalesce((SELECT ev_id FROM ff_event_pack ORDER BY ev_id DESC LIMIT 1), 0) FROM gone;
  RETURN cardinality(v_gone);
END $$;

-- Forgets the names of routes that no event in the log can refer to any more.
CREATE OR REPLACE FUNCTION ff_forget_former_routes() RETURNS bigint LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
DECLARE
  v_removed bigint;
BEGIN
  DELETE FROM ff_former_route
  WHERE last_ev_id < coalesce((SELECT ev_id FROM ff_event_pack ORDER BY ev_id LIMIT 1), 9223372036854775807);
  GET DIAGNOSTICS v_removed = ROW_COUNT;
  RETURN v_removed;
END $$;

-- Forgets lanes that have no route and no operator setting. Creating a route locks its lane, so such a lane is either
-- skipped here or seen with its route.
CREATE OR REPLACE FUNCTION ff_forget_lanes(p_margin_ms bigint, p_limit integer) RETURNS bigint LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_lanes text[];
  v_removed bigint;
BEGIN
  PERFORM ff_require_read_committed();
  v_lanes := ARRAY(
    SELECT l.lane FROM ff_lane l
    LEFT JOIN LATERAL (SELECT true AS found FROM ff_route WHERE lane = l.lane LIMIT 1) r ON true
    WHERE NOT l.paused AND l.renewal_events AND NOT l.all_events AND l.created_at_ms < ff_now_ms() - p_margin_ms AND r.found IS NULL
    ORDER BY l.lane LIMIT p_limit FOR UPDATE OF l SKIP LOCKED);
  -- A separate statement: a route created before the lane was locked must be visible.
  DELETE FROM ff_lane WHERE lane = ANY (ARRAY(
    SELECT u.lane FROM unnest(v_lanes) u(lane)
    LEFT JOIN LATERAL (SELECT true AS found FROM ff_route WHERE lane = u.lane LIMIT 1) r ON true WHERE r.found IS NULL));
  GET DIAGNOSTICS v_removed = ROW_COUNT;
  RETURN v_removed;
END $$;
