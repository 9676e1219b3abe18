-- Grants leases. A claim never waits: it takes queue rows and executions with SKIP LOCKED and removes only what it got
-- from the queue. A queue row is a pointer, and a stale one is discarded here. An execution past its deadline is not
-- granted: its timer is about to end it.

-- How many rows to take per entry so that together they are the best p_limit in queue order. Peeking without locks
-- keeps a claim over many routes from locking p_limit rows on each. An admission step would fit between this peek and
-- the lock.
CREATE OR REPLACE FUNCTION ff_claim_quotas(
  p_routes integer[], p_ranks integer[], p_afters bigint[], p_limit integer, p_tried bigint[]
) RETURNS integer[] LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  IF cardinality(p_routes) = 1 THEN RETURN ARRAY[p_limit]; END IF;
  RETURN ARRAY(
    WITH best AS MATERIALIZED (
      SELECT q.ord FROM unnest(p_routes, p_ranks, p_afters) WITH ORDINALITY q(route, rank, after, ord)
      CROSS JOIN LATERAL (
        SELECT -priority AS rank, seq FROM ff_ready
        WHERE route_id = q.route AND (-priority, seq) > (coalesce(q.rank, -2147483648), q.after)
          AND -priority <= coalesce(q.rank, 2147483647) AND seq <> ALL (p_tried)
        ORDER BY -priority, seq LIMIT p_limit) r
      ORDER BY r.rank, r.seq LIMIT p_limit)
    -- One extra row per entry, so that an entry without any yields 0.
    SELECT (count(*) - 1)::integer
    FROM (SELECT ord FROM best UNION ALL SELECT generate_series(1, cardinality(p_routes))) x
    GROUP BY ord ORDER BY ord);
END $$;

-- Removes stale pointers near the head of the given entries and returns how many. Epochs and attempts only grow, so
-- a pointer that does not match now never will, and a priority that is changed back brings its own pointer. The search
-- takes no locks, so other claims are not blocked; only stale rows are locked and deleted.
CREATE OR REPLACE FUNCTION ff_sweep_stale(
  p_routes integer[], p_ranks integer[], p_afters bigint[], p_quotas integer[], p_limit integer
) RETURNS bigint LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_removed bigint;
BEGIN
  WITH stale AS MATERIALIZED (
    SELECT r.tid
    FROM unnest(p_routes, p_ranks, p_afters, p_quotas) q(route, rank, after, quota)
    CROSS JOIN LATERAL (
      SELECT ctid AS tid, execution_id, attempt_index, lease_epoch, priority FROM ff_ready
      WHERE route_id = q.route AND (-priority, seq) > (coalesce(q.rank, -2147483648), q.after)
        AND -priority <= coalesce(q.rank, 2147483647)
      ORDER BY -priority, seq LIMIT p_limit) r
    LEFT JOIN LATERAL (
      SELECT attempt_index, lease_epoch, priority FROM ff_execution WHERE execution_id = r.execution_id OFFSET 0) e ON true
    WHERE q.quota > 0
      AND (e.attempt_index, e.lease_epoch, e.priority) IS DISTINCT FROM (r.attempt_index, r.lease_epoch, r.priority)),
  taken AS MATERIALIZED (
    SELECT ctid AS tid FROM ff_ready WHERE ctid = ANY (ARRAY(SELECT tid FROM stale)) FOR UPDATE SKIP LOCKED)
  DELETE FROM ff_ready WHERE ctid = ANY (ARRAY(SELECT tid FROM taken));
  GET DIAGNOSTICS v_removed = ROW_COUNT;
  RETURN v_removed;
END $$;

-- Callers cache routes and which lanes are paused; a lane paused since must not be claimed from. Returns the remaining
-- entries.
CREATE OR REPLACE FUNCTION ff_unpaused(INOUT p_routes integer[], INOUT p_ranks integer[], INOUT p_afters bigint[])
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_paused integer[];
BEGIN
  v_paused := ARRAY(
    SELECT r.route_id FROM ff_lane l
    CROSS JOIN LATERAL (SELECT route_id FROM ff_route WHERE lane = l.lane OFFSET 0) r WHERE l.paused);
  SELECT coalesce(array_agg(route ORDER BY ord), '{}'), array_agg(rank ORDER BY ord), array_agg(after ORDER BY ord)
  INTO p_routes, p_ranks, p_afters
  FROM unnest(p_routes, p_ranks, p_afters) WITH ORDINALITY q(route, rank, after, ord) WHERE route <> ALL (v_paused);
END $$;

-- All but the first of the pointers to each execution.
CREATE OR REPLACE FUNCTION ff_second_pointers(p_tids tid[]) RETURNS tid[] LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  RETURN ARRAY(
    SELECT tid FROM (
      SELECT ctid AS tid, row_number() OVER (PARTITION BY execution_id, attempt_index, lease_epoch, priority ORDER BY seq) AS nth
      FROM ff_ready WHERE ctid = ANY (p_tids)) r
    WHERE nth > 1);
END $$;

-- How many of the queue rows a pass locked were skipped because another transaction holds their executions. They still
-- match, and no notification is sent when they are released. Only rows the claim did not take are checked.
CREATE OR REPLACE FUNCTION ff_count_passed_by(p_tids tid[], p_now bigint) RETURNS integer LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  RETURN (
    SELECT count(*) FROM ff_ready r
    CROSS JOIN LATERAL (
      SELECT 1 FROM ff_execution
      WHERE execution_id = r.execution_id AND partition_key = r.partition_key AND attempt_index = r.attempt_index
        AND lease_epoch = r.lease_epoch AND priority = r.priority AND coalesce(deadline_at_ms > p_now, true) OFFSET 0) e
    WHERE r.ctid = ANY (p_tids));
END $$;

-- Leases the executions of one pass, all of them locked by the caller, and removes their queue rows. The arrays run
-- parallel. Returns the page for the worker.
CREATE OR REPLACE FUNCTION ff_grant_leases(
  c ff_claimable, p_unqueued tid[], p_claim_id uuid, p_worker_id text, p_worker_instance_id text, p_lease_ms bigint,
  p_now bigint
) RETURNS json LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  t ff_transition%ROWTYPE;
  v_claim bigint := nextval('ff_grant_claim_no_seq');
  v_written bigint;
  v_done boolean;
  v_reclaimed boolean[];
  v_details jsonb[];
BEGIN
  SELECT * INTO STRICT t FROM ff_transition WHERE transition = 'claim';
  IF 'pending_retry_attempt' = ANY (c.states) THEN
    -- An attempt after a lost lease names the previous owner.
    SELECT array_agg(h.owner IS NOT NULL ORDER BY u.ord),
           array_agg(CASE WHEN h.owner IS NOT NULL THEN
             jsonb_build_object('previous_owner', h.owner, 'new_owner', p_worker_instance_id) END ORDER BY u.ord)
    INTO v_reclaimed, v_details
    FROM unnest(c.ids, c.parts, c.attempts, c.states) WITH ORDINALITY u(id, part, attempt, state, ord)
    LEFT JOIN LATERAL (
      SELECT worker_instance_id AS owner FROM ff_attempt_history
      WHERE execution_id = u.id AND partition_key = u.part AND outcome = 'interrupted'
        AND attempt_index = CASE u.state WHEN 'pending_retry_attempt' THEN u.attempt - 1 END OFFSET 0) h ON true;
  END IF;
  UPDATE ff_execution SET
    lifecycle_phase = t.lifecycle_phase, ownership_state = t.ownership_state, eligibility_state = t.eligibility_state,
    blocking_reason = t.blocking_reason, terminal_outcome = t.terminal_outcome, attempt_state = t.attempt_state,
    lease_epoch = lease_epoch + t.epoch_step, claim_no = v_claim, lease_expires_at_ms = p_now + p_lease_ms,
    changed_at_ms = p_now, eligible_at_ms = NULL, started_at_ms = coalesce(started_at_ms, p_now),
    attempt_started_at_ms = coalesce(attempt_started_at_ms, p_now), renewals = 0
  WHERE execution_id = ANY (c.ids);
  GET DIAGNOSTICS v_written = ROW_COUNT;
  v_done := ff_require_equal('claim executions', cardinality(c.ids), v_written);
  DELETE FROM ff_ready WHERE ctid = ANY (p_unqueued);
  GET DIAGNOSTICS v_written = ROW_COUNT;
  v_done := ff_require_equal('claim queue', cardinality(p_unqueued), v_written);
  INSERT INTO ff_grant (claim_no, claim_id, acquired_at_ms, look_at_ms, lease_ms, worker_id, worker_instance_id, execution_ids)
  VALUES (v_claim, p_claim_id, p_now, p_now + p_lease_ms, p_lease_ms, p_worker_id, p_worker_instance_id, c.ids);
  IF c.limits IS NOT NULL THEN
    INSERT INTO ff_timer (kind, due_at_ms, execution_id, partition_key, attempt_index, lease_epoch)
    SELECT 'attempt_limit', p_now + lasts, id, part, attempt, epoch + t.epoch_step
    FROM unnest(c.limits, c.ids, c.parts, c.attempts, c.epochs) u(lasts, id, part, attempt, epoch) WHERE lasts IS NOT NULL;
  END IF;
  c.epochs := ARRAY(SELECT epoch + t.epoch_step FROM unnest(c.epochs) epoch);
  v_written := ff_log_events('lease', p_now, cardinality(c.ids),
    CASE WHEN true = ANY (v_reclaimed) THEN
      ARRAY(SELECT CASE WHEN again THEN 'reclaimed' ELSE t.lease_event END FROM unnest(v_reclaimed) again)
      ELSE ARRAY[t.lease_event] END,
    c.ids, c.parts, c.attempts, c.epochs, ARRAY[p_worker_instance_id], c.namespaces, c.tags, v_details, c.routes, c.flows);
  IF array_position(c.payloads, NULL) IS NOT NULL THEN
    c.payloads := ARRAY(
      SELECT ff_payload_of(payload, id) FROM unnest(c.ids, c.payloads) WITH ORDINALITY u(id, payload, ord) ORDER BY ord);
  END IF;
  IF c.flows IS NOT NULL THEN
    c.payloads := ARRAY(
      SELECT CASE WHEN flow IS NULL THEN payload ELSE ff_input(id, payload) END
      FROM unnest(c.ids, c.flows, c.payloads) WITH ORDINALITY u(id, flow, payload, ord) ORDER BY ord);
  END IF;
  RETURN json_build_object('uuid', c.ids, 'partition', c.parts, 'routeId', c.routes, 'priority', c.priorities, 'seq', c.seqs,
    'namespace', c.namespaces, 'attemptIndex', c.attempts, 'leaseEpoch', c.epochs, 'retryCount', c.retries,
    'createdAtMs', c.createds, 'generation', c.generations, 'attemptState', c.states, 'reclaimed', v_reclaimed,
    'attemptLimitMs', c.limits, 'flowUuid', c.flows, 'redacted', c.redacted, 'tags', c.tags, 'payload', c.payloads);
END $$;

-- Grants the first execution of one queue: what a pass below does, with single values, which takes two thirds of the time.
-- Returns its page, or NULL without having granted anything if the first queue row is not that of an execution that
-- simply begins or continues: held, stale, late, or a retry, which may have to name a previous owner.
CREATE OR REPLACE FUNCTION ff_claim_one(
  p_route integer, p_rank integer, p_after bigint, p_worker_id text, p_worker_instance_id text, p_claim_id uuid,
  p_lease_ms bigint, p_now bigint
) RETURNS json LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  t ff_transition%ROWTYPE;
  e record;
  v_claim bigint;
  v_epoch bigint;
  v_logged bigint;
  v_done boolean;
BEGIN
  SELECT r.tid, r.seq, x.* INTO e
  FROM (
    SELECT ctid AS tid, execution_id, partition_key, -priority AS rank, seq, attempt_index, lease_epoch FROM ff_ready
    WHERE route_id = p_route AND (-priority, seq) > (coalesce(p_rank, -2147483648), p_after)
      AND -priority <= coalesce(p_rank, 2147483647)
    ORDER BY -priority, seq LIMIT 1 FOR UPDATE SKIP LOCKED) r
  CROSS JOIN LATERAL (
    SELECT execution_id, partition_key, priority, namespace, attempt_index, lease_epoch, retry_count, created_at_ms,
           generation, attempt_state, attempt_limit_ms, flow_id, traits, tags, payload
    FROM ff_execution WHERE execution_id = r.execution_id AND partition_key = r.partition_key
      AND eligibility_state = 'eligible_now' AND attempt_index = r.attempt_index AND lease_epoch = r.lease_epoch
      AND -priority = r.rank AND attempt_state <> 'pending_retry_attempt' AND coalesce(deadline_at_ms > p_now, true)
    FOR UPDATE SKIP LOCKED) x;
  IF NOT FOUND THEN RETURN NULL; END IF;
  SELECT * INTO STRICT t FROM ff_transition WHERE transition = 'claim';
  v_claim := nextval('ff_grant_claim_no_seq');
  v_epoch := e.lease_epoch + t.epoch_step;
  UPDATE ff_execution SET
    lifecycle_phase = t.lifecycle_phase, ownership_state = t.ownership_state, eligibility_state = t.eligibility_state,
    blocking_reason = t.blocking_reason, terminal_outcome = t.terminal_outcome, attempt_state = t.attempt_state,
    lease_epoch = v_epoch, claim_no = v_claim, lease_expires_at_ms = p_now + p_lease_ms, changed_at_ms = p_now,
    eligible_at_ms = NULL, started_at_ms = coalesce(started_at_ms, p_now),
    attempt_started_at_ms = coalesce(attempt_started_at_ms, p_now), renewals = 0
  WHERE execution_id = e.execution_id;
  IF NOT FOUND THEN v_done := ff_require_equal('claim execution', 1, 0); END IF;
  DELETE FROM ff_ready WHERE ctid = e.tid;
  IF NOT FOUND THEN v_done := ff_require_equal('claim queue', 1, 0); END IF;
  INSERT INTO ff_grant (claim_no, claim_id, acquired_at_ms, look_at_ms, lease_ms, worker_id, worker_instance_id, execution_ids)
  VALUES (v_claim, p_claim_id, p_now, p_now + p_lease_ms, p_lease_ms, p_worker_id, p_worker_instance_id,
          ARRAY[e.execution_id]);
  IF e.attempt_limit_ms IS NOT NULL THEN
    INSERT INTO ff_timer (kind, due_at_ms, execution_id, partition_key, attempt_index, lease_epoch)
    VALUES ('attempt_limit', p_now + e.attempt_limit_ms, e.execution_id, e.partition_key, e.attempt_index, v_epoch);
  END IF;
  v_logged := ff_log_events('lease', p_now, 1, ARRAY[t.lease_event], ARRAY[e.execution_id], ARRAY[e.partition_key],
    ARRAY[e.attempt_index], ARRAY[v_epoch], ARRAY[p_worker_instance_id], ARRAY[e.namespace], ARRAY[e.tags], NULL::jsonb[],
    ARRAY[p_route], ARRAY[e.flow_id]);
  IF e.payload IS NULL THEN e.payload := ff_payload_of(NULL, e.execution_id); END IF;
  RETURN json_build_object('uuid', ARRAY[e.execution_id], 'partition', ARRAY[e.partition_key], 'routeId', ARRAY[p_route],
    'priority', ARRAY[e.priority], 'seq', ARRAY[e.seq], 'namespace', ARRAY[e.namespace],
    'attemptIndex', ARRAY[e.attempt_index], 'leaseEpoch', ARRAY[v_epoch], 'retryCount', ARRAY[e.retry_count],
    'createdAtMs', ARRAY[e.created_at_ms], 'generation', ARRAY[e.generation], 'attemptState', ARRAY[e.attempt_state],
    'reclaimed', NULL, 'attemptLimitMs', ARRAY[e.attempt_limit_ms], 'flowUuid', ARRAY[e.flow_id],
    'redacted', CASE WHEN e.traits & 8 <> 0 THEN '{true}'::boolean[] END, 'tags', ARRAY[e.tags],
    'payload', ARRAY[CASE WHEN e.flow_id IS NULL THEN e.payload ELSE ff_input(e.execution_id, e.payload) END]);
END $$;

-- p_routes, p_ranks, p_afters: where to look. A rank (negated priority) with a sequence number seeks past what was
-- claimed before; a NULL rank with 0 covers the whole route. Returns the granted executions as pages of parallel arrays,
-- when the next timer is due, the highest route number, and how many executions were skipped because another transaction
-- held them.
--
-- What is locked when, by one pass:
--   1  queue rows       FOR UPDATE SKIP LOCKED   in queue order; a rival's are not waited for
--   2  their executions FOR UPDATE SKIP LOCKED   in the same order; without waits, no order can deadlock
--   3  writes           executions, queue rows by ctid (they are never updated), one row in ff_grant, events
CREATE OR REPLACE FUNCTION ff_claim(
  p_routes integer[], p_ranks integer[], p_afters bigint[], p_limit integer, p_worker_id text,
  p_worker_instance_id text, p_claim_id uuid, p_lease_ms bigint,
  OUT pages json[], OUT next_due_in_ms bigint, OUT route_high integer, OUT passed_by integer
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_now bigint := ff_now_ms();
  -- Passes that remove nothing and still come back short: executions locked by others, mostly.
  c_passes CONSTANT integer := 20;
  -- Stale pointers removed by one claim: bulk priority changes leave many behind, and a claim must end some time.
  c_swept CONSTANT integer := 100000;
  v_sweep integer := 200;
  v_removed bigint; v_swept bigint := 0;
  v_pass integer := 0;
  v_left integer := p_limit;
  v_quotas integer[];
  v_tried bigint[] := '{}';
  v_greedy boolean := false;
  v_paused boolean;
  v_short boolean;
  v_tids tid[]; v_unqueued tid[]; v_twice tid[];
  v_seqs bigint[];
  v_done boolean;
  v_page json;
  c ff_claimable;
BEGIN
  v_done := ff_require_read_committed();
  passed_by := 0;
  pages := '{}';
  SELECT (SELECT greatest(due_at_ms - v_now, 0) FROM ff_timer ORDER BY due_at_ms LIMIT 1),
         (SELECT route_id FROM ff_route ORDER BY route_id DESC LIMIT 1), EXISTS (SELECT 1 FROM ff_lane WHERE paused)
  INTO next_due_in_ms, route_high, v_paused;
  IF v_paused THEN SELECT * INTO p_routes, p_ranks, p_afters FROM ff_unpaused(p_routes, p_ranks, p_afters); END IF;
  IF p_limit = 1 AND cardinality(p_routes) = 1 THEN
    v_page := ff_claim_one(p_routes[1], p_ranks[1], p_afters[1], p_worker_id, p_worker_instance_id, p_claim_id, p_lease_ms,
      v_now);
    IF v_page IS NOT NULL THEN
      pages := ARRAY[v_page];
      RETURN;
    END IF;
  END IF;
  -- Stale pointers and locked executions make a pass come back short. A few more passes look behind them, and as long
  -- as some are removed another pass is worth it.
  WHILE cardinality(p_routes) > 0 AND v_pass < c_passes AND v_swept < c_swept LOOP
    v_quotas := CASE WHEN v_greedy THEN array_fill(v_left, ARRAY[cardinality(p_routes)])
                     ELSE ff_claim_quotas(p_routes, p_ranks, p_afters, v_left, v_tried) END;
    SELECT array_agg(tid), array_agg(seq), array_agg(tid) FILTER (WHERE NOT (fits AND late)),
           array_agg(execution_id) FILTER (WHERE ok),
           array_agg(partition_key) FILTER (WHERE ok), array_agg(route_id) FILTER (WHERE ok),
           array_agg(priority) FILTER (WHERE ok), array_agg(seq) FILTER (WHERE ok), array_agg(namespace) FILTER (WHERE ok),
           array_agg(attempt_index) FILTER (WHERE ok), array_agg(lease_epoch) FILTER (WHERE ok),
           array_agg(retry_count) FILTER (WHERE ok), array_agg(created_at_ms) FILTER (WHERE ok),
           array_agg(generation) FILTER (WHERE ok), array_agg(attempt_state) FILTER (WHERE ok),
           CASE WHEN count(attempt_limit_ms) > 0 THEN array_agg(attempt_limit_ms) FILTER (WHERE ok) END,
           CASE WHEN count(flow_id) > 0 THEN array_agg(flow_id) FILTER (WHERE ok) END,
           CASE WHEN bool_or(redacted) THEN array_agg(redacted) FILTER (WHERE ok) END,
           array_agg(tags) FILTER (WHERE ok), array_agg(payload) FILTER (WHERE ok)
    INTO v_tids, v_seqs, v_unqueued, c.ids, c.parts, c.routes, c.priorities, c.seqs, c.namespaces, c.attempts,
         c.epochs, c.retries, c.createds, c.generations, c.states, c.limits, c.flows, c.redacted, c.tags, c.payloads
    FROM (
      SELECT r.tid, r.seq, x.*, x.fits AND NOT x.late AS ok
      FROM (
        SELECT r.* FROM unnest(p_routes, p_ranks, p_afters, v_quotas) q(route, from_rank, after, quota)
        CROSS JOIN LATERAL (
          SELECT ctid AS tid, execution_id, partition_key, -priority AS rank, seq, attempt_index, lease_epoch
          FROM ff_ready
          WHERE route_id = q.route AND (-priority, seq) > (coalesce(q.from_rank, -2147483648), q.after)
            AND -priority <= coalesce(q.from_rank, 2147483647) AND seq <> ALL (v_tried)
          ORDER BY -priority, seq LIMIT q.quota FOR UPDATE SKIP LOCKED) r
        WHERE q.quota > 0 ORDER BY r.rank, r.seq LIMIT v_left) r
      LEFT JOIN LATERAL (
        SELECT execution_id, partition_key, route_id, priority, namespace, attempt_index, lease_epoch, retry_count,
               created_at_ms, generation, attempt_state, attempt_limit_ms, flow_id, traits & 8 <> 0 AS redacted, tags, payload,
               eligibility_state = 'eligible_now' AND attempt_index = r.attempt_index AND lease_epoch = r.lease_epoch
                 AND -priority = r.rank AS fits,
               coalesce(deadline_at_ms <= v_now, false) AS late
        FROM ff_execution WHERE execution_id = r.execution_id AND partition_key = r.partition_key
        FOR UPDATE SKIP LOCKED) x ON true) s;
    -- The peek counted rows that rivals hold: search every route once for others.
    v_short := NOT v_greedy AND cardinality(p_routes) > 1
      AND coalesce(cardinality(v_tids), 0) < (SELECT sum(quota) FROM unnest(v_quotas) quota);
    v_greedy := v_greedy OR v_short;
    CONTINUE WHEN v_tids IS NULL AND v_short;
    EXIT WHEN v_tids IS NULL;
    -- Apart: a distinct count among the others would sort what they collect.
    IF (SELECT count(DISTINCT id) FROM unnest(c.ids) id) < cardinality(c.ids) THEN
      -- A priority that was changed and changed back leaves two pointers that fit; one of them goes.
      v_twice := ff_second_pointers(v_tids);
      DELETE FROM ff_ready WHERE ctid = ANY (v_twice);
      CONTINUE;
    END IF;
    IF c.ids IS NOT NULL THEN
      pages := pages
        || ff_grant_leases(c, v_unqueued, p_claim_id, p_worker_id, p_worker_instance_id, p_lease_ms, v_now);
    ELSE
      DELETE FROM ff_ready WHERE ctid = ANY (v_unqueued);
    END IF;
    EXIT WHEN cardinality(c.ids) = cardinality(v_tids) AND NOT v_short;
    passed_by := passed_by + ff_count_passed_by(v_tids, v_now);
    v_left := v_left - coalesce(cardinality(c.ids), 0);
    EXIT WHEN v_left = 0;
    v_tried := v_tried || v_seqs;
    v_removed := ff_sweep_stale(p_routes, p_ranks, p_afters, v_quotas, v_sweep);
    v_swept := v_swept + v_removed;
    v_sweep := least(v_sweep * 4, 10000);
    v_pass := v_pass + (v_removed = 0)::integer;
  END LOOP;
END $$;

-- A worker that has finished asks for more: one round trip and one commit instead of two. A claim never waits, so the
-- completions are left to a call of their own if one of their rows is held, or if members of a flow would have to be
-- locked with them; `told` is NULL then.
CREATE OR REPLACE FUNCTION ff_complete_and_claim(
  p_ids uuid[], p_partitions smallint[], p_attempts integer[], p_epochs bigint[], p_results jsonb[],
  p_routes integer[], p_ranks integer[], p_afters bigint[], p_limit integer, p_worker_id text,
  p_worker_instance_id text, p_claim_id uuid, p_lease_ms bigint,
  OUT told boolean, OUT others json, OUT effects json,
  OUT pages json[], OUT next_due_in_ms bigint, OUT route_high integer, OUT passed_by integer
) LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
DECLARE
  v_free bigint;
  v_done boolean := ff_require_read_committed();
  d record;
  c record;
BEGIN
  SELECT count(*) INTO v_free FROM (
    SELECT 1 FROM ff_execution WHERE execution_id = ANY (p_ids) AND flow_id IS NULL FOR UPDATE SKIP LOCKED) x;
  IF v_free = cardinality(p_ids) THEN
    d := ff_complete(p_ids, p_partitions, p_attempts, p_epochs, p_results);
    told := d.told;
    others := d.others;
    effects := d.effects;
  END IF;
  c := ff_claim(p_routes, p_ranks, p_afters, p_limit, p_worker_id, p_worker_instance_id, p_claim_id, p_lease_ms);
  pages := c.pages;
  next_due_in_ms := c.next_due_in_ms;
  route_high := c.route_high;
  passed_by := c.passed_by;
END $$;
