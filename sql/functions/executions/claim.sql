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
-- entries, unchanged when no lane is paused.
CREATE OR REPLACE FUNCTION ff_unpaused(INOUT p_routes integer[], INOUT p_ranks integer[], INOUT p_afters bigint[])
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_paused integer[];
BEGIN
  v_paused := ARRAY(
    SELECT r.route_id FROM ff_lane l
    CROSS JOIN LATERAL (SELECT route_id FROM ff_route WHERE lane = l.lane OFFSET 0) r WHERE l.paused);
  IF cardinality(v_paused) = 0 THEN RETURN; END IF;
  SELECT coalesce(array_agg(route ORDER BY ord), '{}'), array_agg(rank ORDER BY ord), array_agg(after ORDER BY ord)
  INTO p_routes, p_ranks, p_afters
  FROM unnest(p_routes, p_ranks, p_afters) WITH ORDINALITY q(route, rank, after, ord) WHERE route <> ALL (v_paused);
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

-- p_routes, p_ranks, p_afters: where to look. A rank (negated priority) with a sequence number seeks past what was
-- claimed before; a NULL rank with 0 covers the whole route. p_quiet_routes: lanes whose renewals write no events.
-- The last row returned names no execution: it holds when the next timer is due, the highest route number, and how
-- many executions were skipped because another transaction held them.
CREATE OR REPLACE FUNCTION ff_claim(
  p_routes integer[], p_ranks integer[], p_afters bigint[], p_limit integer, p_worker_id text,
  p_worker_instance_id text, p_claim_id uuid, p_lease_ms bigint, p_quiet_routes integer[]
) RETURNS TABLE (
  execution_id uuid, partition_key smallint, route_id integer, priority integer, seq bigint, namespace text,
  attempt_index integer, lease_epoch bigint, lease_id uuid, retry_count integer, reclaimed boolean, resumed boolean,
  created_at_ms bigint, payload jsonb, tags jsonb, generation smallint, attempt_limit_ms bigint, flow_id uuid,
  next_due_in_ms bigint, route_high integer, passed_by integer
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  t ff_transition%ROWTYPE;
  v_now bigint := ff_now_ms();
  c_passes CONSTANT integer := 20;
  c_swept CONSTANT integer := 100000;
  v_sweep integer := 200;
  v_removed bigint; v_swept bigint := 0;
  v_pass integer := 0;
  v_left integer := p_limit;
  v_got integer;
  v_quotas integer[];
  v_tried bigint[] := '{}';
  v_greedy boolean := false;
  v_short boolean;
  v_tids tid[];
  v_ids uuid[]; v_parts smallint[];
  v_ranks integer[]; v_seqs bigint[];
  v_attempts integer[]; v_epochs bigint[];
BEGIN
  PERFORM ff_require_read_committed();
  next_due_in_ms := (SELECT greatest(due_at_ms - v_now, 0) FROM ff_timer ORDER BY due_at_ms LIMIT 1);
  route_high := (SELECT route_id FROM ff_route ORDER BY route_id DESC LIMIT 1);
  passed_by := 0;
  SELECT * INTO p_routes, p_ranks, p_afters FROM ff_unpaused(p_routes, p_ranks, p_afters);
  SELECT * INTO STRICT t FROM ff_transition WHERE transition = 'claim';
  -- Stale pointers and locked executions make a pass come back short. A few more passes look behind them, and as long
  -- as some are removed another pass is worth it: bulk priority changes leave many behind.
  WHILE cardinality(p_routes) > 0 AND v_pass < c_passes AND v_swept < c_swept LOOP
    v_quotas := CASE WHEN v_greedy THEN array_fill(v_left, ARRAY[cardinality(p_routes)])
                     ELSE ff_claim_quotas(p_routes, p_ranks, p_afters, v_left, v_tried) END;
    SELECT array_agg(tid), array_agg(execution_id), array_agg(partition_key), array_agg(rank), array_agg(seq),
           array_agg(attempt_index), array_agg(lease_epoch)
    INTO v_tids, v_ids, v_parts, v_ranks, v_seqs, v_attempts, v_epochs
    FROM (SELECT r.* FROM unnest(p_routes, p_ranks, p_afters, v_quotas) q(route, from_rank, after, quota)
    CROSS JOIN LATERAL (
      SELECT ctid AS tid, execution_id, partition_key, -priority AS rank, seq, attempt_index, lease_epoch
      FROM ff_ready
      WHERE route_id = q.route AND (-priority, seq) > (coalesce(q.from_rank, -2147483648), q.after)
        AND -priority <= coalesce(q.from_rank, 2147483647) AND seq <> ALL (v_tried)
      ORDER BY -priority, seq LIMIT q.quota FOR UPDATE SKIP LOCKED) r
    WHERE q.quota > 0 ORDER BY r.rank, r.seq LIMIT v_left) r;
    -- The peek counted rows that rivals hold: search every route once for others.
    v_short := NOT v_greedy AND cardinality(p_routes) > 1
      AND coalesce(cardinality(v_tids), 0) < (SELECT sum(quota) FROM unnest(v_quotas) quota);
    v_greedy := v_greedy OR v_short;
    CONTINUE WHEN v_tids IS NULL AND v_short;
    EXIT WHEN v_tids IS NULL;
    RETURN QUERY
    WITH seen AS MATERIALIZED (
      SELECT r.tid, r.seq, x.*,
             x.lifecycle_phase = 'runnable' AND x.eligibility_state = 'eligible_now' AND x.attempt_index = r.attempt
               AND x.lease_epoch = r.epoch AND -x.priority = r.rank AS fits,
             coalesce(x.deadline_at_ms <= v_now, false) AS late
      FROM unnest(v_tids, v_ids, v_parts, v_ranks, v_seqs, v_attempts, v_epochs)
        r(tid, id, part, rank, seq, attempt, epoch)
      CROSS JOIN LATERAL (
        SELECT execution_id, partition_key, route_id, priority, namespace, attempt_index, lease_epoch, retry_count,
               created_at_ms, lifecycle_phase, eligibility_state, attempt_state, generation, attempt_limit_ms, deadline_at_ms, flow_id
        FROM ff_execution WHERE execution_id = r.id AND partition_key = r.part FOR UPDATE SKIP LOCKED) x),
    won AS MATERIALIZED (SELECT DISTINCT ON (execution_id) * FROM seen WHERE fits AND NOT late ORDER BY execution_id, seq),
    granted AS MATERIALIZED (
      SELECT w.*, b.payload, b.tags, gen_random_uuid() AS lease_id, h.owner, h.started_at_ms,
             h.outcome IS NOT DISTINCT FROM 'interrupted' AS reclaimed
      FROM won w
      CROSS JOIN LATERAL (
        SELECT payload, tags FROM ff_body
        WHERE execution_id = w.execution_id AND partition_key = w.partition_key OFFSET 0) b
      LEFT JOIN LATERAL (
        -- A resumed attempt keeps its start time; an attempt after a lost lease names the previous owner.
        SELECT a.worker_instance_id AS owner, a.outcome,
               CASE WHEN w.attempt_state = 'attempt_interrupted' THEN a.started_at_ms END AS started_at_ms
        FROM ff_attempt_history a
        WHERE a.execution_id = w.execution_id AND a.partition_key = w.partition_key
          AND a.attempt_index = CASE w.attempt_state WHEN 'attempt_interrupted' THEN w.attempt_index
                                                     WHEN 'pending_retry_attempt' THEN w.attempt_index - 1 END
        OFFSET 0) h ON true),
    moved AS (
      UPDATE ff_execution SET
        lifecycle_phase = t.lifecycle_phase, ownership_state = t.ownership_state,
        eligibility_state = t.eligibility_state, blocking_reason = t.blocking_reason,
        terminal_outcome = t.terminal_outcome, attempt_state = t.attempt_state,
        lease_epoch = lease_epoch + t.epoch_step, changed_at_ms = v_now, eligible_at_ms = NULL,
        started_at_ms = coalesce(started_at_ms, v_now)
      WHERE execution_id = ANY (ARRAY(SELECT execution_id FROM won)) RETURNING 1),
    unqueued AS (DELETE FROM ff_ready WHERE ctid = ANY (ARRAY(SELECT tid FROM seen WHERE NOT (fits AND late))) RETURNING 1),
    leased AS (
      INSERT INTO ff_lease (
        execution_id, partition_key, route_id, attempt_index, lease_epoch, lease_id, claim_id, worker_id,
        worker_instance_id, namespace, tags, acquired_at_ms, renewed_at_ms, expires_at_ms, attempt_started_at_ms, resumed,
        reclaimed, renewal_events, flow_id)
      SELECT execution_id, partition_key, route_id, attempt_index, lease_epoch + t.epoch_step, lease_id, p_claim_id,
             p_worker_id, p_worker_instance_id, namespace, tags, v_now, v_now, v_now + p_lease_ms,
             coalesce(started_at_ms, v_now), attempt_state = 'attempt_interrupted', reclaimed,
             NOT (route_id = ANY (p_quiet_routes)), flow_id
      FROM granted),
    limited AS (
      INSERT INTO ff_timer (kind, due_at_ms, execution_id, partition_key, attempt_index, lease_epoch)
      SELECT 'attempt_limit', v_now + attempt_limit_ms, execution_id, partition_key, attempt_index, lease_epoch + t.epoch_step
      FROM granted WHERE attempt_limit_ms IS NOT NULL),
    told AS (
      INSERT INTO ff_event (family, event_type, occurred_at_ms, execution_id, partition_key, attempt_index,
                            lease_epoch, lease_id, worker_instance_id, namespace, tags, detail, route_id, flow_id, slot)
      SELECT 'lease', CASE WHEN reclaimed THEN 'reclaimed' ELSE t.lease_event END, v_now, execution_id, partition_key,
             attempt_index, lease_epoch + t.epoch_step, lease_id, p_worker_instance_id, namespace, tags,
             CASE WHEN reclaimed THEN jsonb_build_object('previous_owner', owner, 'new_owner', p_worker_instance_id) END,
             route_id, flow_id, (SELECT slot FROM ff_sequencer)
      FROM granted)
    SELECT g.execution_id, g.partition_key, g.route_id, g.priority, g.seq, g.namespace, g.attempt_index,
           g.lease_epoch + t.epoch_step, g.lease_id, g.retry_count, g.reclaimed,
           g.attempt_state = 'attempt_interrupted', g.created_at_ms,
           CASE WHEN g.flow_id IS NULL THEN g.payload ELSE ff_input(g.execution_id, g.payload) END, g.tags, g.generation,
           g.attempt_limit_ms, g.flow_id, NULL::bigint, NULL::integer, NULL::integer
    FROM granted g
    WHERE (SELECT ff_require_equal('claim executions', (SELECT count(*) FROM won), (SELECT count(*) FROM moved))
              AND ff_require_equal('claim queue', (SELECT count(*) FROM seen WHERE NOT (fits AND late)), (SELECT count(*) FROM unqueued)))
    ORDER BY g.priority DESC, g.seq;
    GET DIAGNOSTICS v_got = ROW_COUNT;
    EXIT WHEN v_got = cardinality(v_tids) AND NOT v_short;
    passed_by := passed_by + ff_count_passed_by(v_tids, v_now);
    v_left := v_left - v_got;
    EXIT WHEN v_left = 0;
    v_tried := v_tried || v_seqs;
    v_removed := ff_sweep_stale(p_routes, p_ranks, p_afters, v_quotas, v_sweep);
    v_swept := v_swept + v_removed;
    v_sweep := least(v_sweep * 4, 10000);
    v_pass := v_pass + (v_removed = 0)::integer;
  END LOOP;
  RETURN NEXT;
END $$;
