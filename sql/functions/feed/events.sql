-- The order of the event log: how positions are assigned, and how a log from another server is adopted.
--
-- A transaction that commits late must not slip behind a reader. So positions are not assigned when an event is
-- written: whoever holds the sequencer's lock takes what became visible between one snapshot and the next, in the order
-- of ev_id, and numbers it without gaps. A writer that stays open delays only its own events.

-- Rows of the log visible in one snapshot but not in an earlier one. The range of new transactions is split at those still
-- running, so that the rows of a long bulk writer are not read again and again.
CREATE OR REPLACE FUNCTION ff_unstamped(p_prev pg_snapshot, p_cur pg_snapshot, p_foreign_to bigint)
RETURNS TABLE (ev_id bigint, slot smallint, n integer) LANGUAGE sql STABLE AS $$
  SELECT o.ev_id, o.slot, o.n
  FROM (
    SELECT lag(b.x, 1, (pg_snapshot_xmax(p_prev)::text::bigint - 1)::text::xid8) OVER (ORDER BY b.x) AS lo, b.x AS hi
    FROM (SELECT x FROM pg_snapshot_xip(p_cur) x WHERE x >= pg_snapshot_xmax(p_prev)
          UNION ALL SELECT pg_snapshot_xmax(p_cur)) b) g
  CROSS JOIN LATERAL (
    SELECT e.ev_id, e.slot, e.n FROM ff_event_pack e
    WHERE e.xid > g.lo AND e.xid < g.hi AND e.ev_id > p_foreign_to OFFSET 0) o
  UNION ALL
  SELECT e.ev_id, e.slot, e.n FROM ff_event_pack e
  WHERE e.xid = ANY (ARRAY(SELECT x FROM pg_snapshot_xip(p_prev) x WHERE pg_visible_in_snapshot(x, p_cur)))
    AND e.ev_id > p_foreign_to
$$;

-- Which server, timeline and table this is. What the server does not disclose to this role becomes a question mark.
CREATE OR REPLACE FUNCTION ff_server_identity() RETURNS text LANGUAGE plpgsql STABLE AS $$
DECLARE
  v_system text;
  v_timeline text;
BEGIN
  IF pg_is_in_recovery() THEN
    -- A standby's snapshots report transactions as finished that are not.
    RAISE EXCEPTION 'a standby gives out no positions' USING ERRCODE = '25006';
  END IF;
  BEGIN
    SELECT system_identifier::text INTO v_system FROM pg_control_system();
  EXCEPTION WHEN feature_not_supported OR insufficient_privilege OR undefined_function THEN
    v_system := '?';
  END;
  BEGIN
    v_timeline := left(pg_walfile_name(pg_current_wal_lsn()), 8);
  EXCEPTION WHEN feature_not_supported OR insufficient_privilege OR undefined_function THEN
    v_timeline := '?';
  END;
  RETURN concat_ws('/', v_system, v_timeline,
    (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()) || '.' || to_regclass('ff_event_pack')::oid);
END $$;

-- What happened to the log since positions were last assigned. `moved`: it may lack some assigned positions (a promoted
-- standby, point-in-time recovery, a dump). `foreign`: its transaction ids are another server's, too. Unknown parts
-- count as equal.
CREATE OR REPLACE FUNCTION ff_log_change(p_old text, p_new text, p_prev pg_snapshot, p_cur pg_snapshot) RETURNS text
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  v_old text[] := string_to_array(p_old, '/');
  v_new text[] := string_to_array(p_new, '/');
  v_differs boolean[];
BEGIN
  FOR i IN 1 .. 3 LOOP
    v_differs[i] := coalesce(v_old[i] <> v_new[i] AND v_old[i] <> '?' AND v_new[i] <> '?', false);
  END LOOP;
  -- On one server snapshots only grow.
  IF v_differs[1] OR pg_snapshot_xmax(p_cur) < pg_snapshot_xmax(p_prev) THEN
    RETURN 'foreign';
  END IF;
  RETURN CASE WHEN v_differs[2] OR v_differs[3] THEN 'moved' WHEN p_old IS NULL THEN 'new' ELSE 'none' END;
END $$;

-- Assigns consecutive positions to the events of some rows, p_counts of them in each, in the order of ev_id, as runs.
-- The last run keeps the snapshot. Returns how many events.
CREATE OR REPLACE FUNCTION ff_stamp(
  p_ev_ids bigint[], p_slots smallint[], p_counts integer[], p_last bigint, p_snap pg_snapshot
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  -- Whoever looks for a position inside a run counts from its first row.
  c_packs CONSTANT integer := 64;
  v_now bigint := ff_now_ms();
BEGIN
  INSERT INTO ff_event_run (seq_from, n, stamped_at_ms, ev_from, packs, slot, snap)
  SELECT p_last + 1 + (sum(i.n) OVER (ORDER BY i.ev_from) - i.n)::bigint, i.n, v_now, i.ev_from, i.packs, i.slot,
         CASE WHEN lead(i.ev_from) OVER (ORDER BY i.ev_from) IS NULL THEN p_snap END
  FROM (
    SELECT min(d.ev_id) AS ev_from, count(*) AS packs, sum(d.n) AS n, d.slot
    FROM (SELECT f.*, (row_number() OVER (PARTITION BY f.slot, f.island ORDER BY f.ev_id) - 1) / c_packs AS part
          FROM (SELECT u.ev_id, u.slot, u.n, u.ev_id - row_number() OVER (PARTITION BY u.slot ORDER BY u.ev_id) AS island
                FROM unnest(p_ev_ids, p_slots, p_counts) u(ev_id, slot, n)) f) d
    GROUP BY d.slot, d.island, d.part) i;
  RETURN (SELECT sum(n) FROM unnest(p_counts) n);
END $$;

-- The log came from elsewhere or lost its newest part, so positions assigned before may be missing here. They are never
-- assigned again: the next position is far beyond the last. With another server's transaction ids, events without a
-- position are found without them, while no writer is running.
CREATE OR REPLACE FUNCTION ff_adopt_log(p_change text, p_identity text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  s ff_sequencer%ROWTYPE;
  v_last bigint;
  v_snap pg_snapshot;
  v_ev_ids bigint[];
  v_slots smallint[];
  v_counts integer[];
BEGIN
  IF p_change = 'foreign' THEN
    LOCK TABLE ff_event_pack IN SHARE MODE;
  END IF;
  SELECT * INTO STRICT s FROM ff_sequencer;
  SELECT seq_from + n - 1, snap INTO STRICT v_last, v_snap FROM ff_event_run ORDER BY seq_from DESC LIMIT 1;
  IF p_change = 'foreign' THEN
    v_snap := pg_current_snapshot();
    -- Only between the runs, before the first and after the last: most events of a log have their positions.
    SELECT array_agg(e.ev_id), array_agg(e.slot), array_agg(e.n) INTO v_ev_ids, v_slots, v_counts
    FROM (
      SELECT lag(r.ev_from + r.packs, 1, 0::bigint) OVER (ORDER BY r.ev_from) AS lo, r.ev_from AS hi
      FROM (SELECT ev_from, packs FROM ff_event_run WHERE ev_from IS NOT NULL
            UNION ALL SELECT 9223372036854775807, 0) r) g
    CROSS JOIN LATERAL (
      SELECT x.ev_id, x.slot, x.n FROM ff_event_pack x WHERE x.ev_id >= g.lo AND x.ev_id < g.hi OFFSET 0) e
    WHERE g.lo < g.hi;
    UPDATE ff_sequencer SET foreign_to_ev_id = coalesce((SELECT max(ev_id) FROM ff_event_pack), s.foreign_to_ev_id);
  END IF;
  IF p_change <> 'new' THEN
    v_last := v_last + 4294967296;
    INSERT INTO ff_event_run (seq_from, n, stamped_at_ms, packs, slot, snap)
    VALUES (v_last, 1, ff_now_ms(), 0, s.slot, v_snap);
  END IF;
  IF v_ev_ids IS NOT NULL THEN
    PERFORM ff_stamp(v_ev_ids, v_slots, v_counts, v_last, v_snap);
  END IF;
  UPDATE ff_sequencer SET identity = p_identity, epoch = epoch + (p_change <> 'new')::integer;
END $$;

-- Assigns positions to what was committed since the last call. Returns the last position, how many were assigned now,
-- and the first position that is kept. With nothing to assign it does nothing and takes no transaction id. When a rival
-- is already assigning, it leaves the work to the rival or waits for it. Notifies when something was assigned. A standby
-- assigns nothing and returns NULL for how many: its positions are those that the primary assigned and it has replayed.
CREATE OR REPLACE FUNCTION ff_sequence(p_wait boolean, p_channel text)
RETURNS TABLE (last_position bigint, stamped bigint, floor_position bigint) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  s ff_sequencer%ROWTYPE;
  v_identity text;
  v_change text;
  v_last bigint;
  v_prev pg_snapshot;
  v_cur pg_snapshot;
  v_stamped bigint := 0;
  v_ev_ids bigint[];
  v_slots smallint[];
  v_counts integer[];
BEGIN
  PERFORM ff_require_read_committed();
  SELECT * INTO STRICT s FROM ff_sequencer;
  SELECT seq_from + n - 1, snap INTO STRICT v_last, v_prev FROM ff_event_run ORDER BY seq_from DESC LIMIT 1;
  IF pg_is_in_recovery() THEN
    RETURN QUERY SELECT v_last, NULL::bigint, s.floor_position;
    RETURN;
  END IF;
  v_identity := ff_server_identity();
  IF pg_current_xact_id_if_assigned() IS NOT NULL THEN
    -- Its own transaction would count as finished before it is.
    RAISE EXCEPTION 'ff_sequence must not run in a transaction that has written' USING ERRCODE = 'FF006';
  END IF;
  v_cur := pg_current_snapshot();
  IF ff_log_change(s.identity, v_identity, v_prev, v_cur) = 'none'
     AND NOT EXISTS (SELECT 1 FROM ff_unstamped(v_prev, v_cur, s.foreign_to_ev_id)) THEN
    RETURN QUERY SELECT v_last, 0::bigint, s.floor_position;
    RETURN;
  END IF;
  -- The lock is taken in one statement and everything is read in later ones: a snapshot from before the wait is older
  -- than the rival's, and would assign positions to the same events again.
  IF p_wait THEN
    PERFORM set_config('lock_timeout', '2s', true);
    PERFORM 1 FROM ff_sequencer FOR UPDATE;
  ELSE
    PERFORM 1 FROM ff_sequencer FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
      RETURN QUERY SELECT v_last, 0::bigint, s.floor_position;
      RETURN;
    END IF;
  END IF;
  -- Set here, because a function's own setting is undone before its commit. A position that was read must survive a
  -- crash.
  PERFORM set_config('synchronous_commit', 'on', true), set_config('lock_timeout', '2s', true);
  SELECT * INTO STRICT s FROM ff_sequencer;
  SELECT seq_from + n - 1, snap INTO STRICT v_last, v_prev FROM ff_event_run ORDER BY seq_from DESC LIMIT 1;
  v_cur := pg_current_snapshot();
  v_change := ff_log_change(s.identity, v_identity, v_prev, v_cur);
  IF v_change <> 'none' THEN
    PERFORM ff_adopt_log(v_change, v_identity);
    SELECT * INTO STRICT s FROM ff_sequencer;
    SELECT seq_from + n - 1, snap INTO STRICT v_last, v_prev FROM ff_event_run ORDER BY seq_from DESC LIMIT 1;
    v_cur := pg_current_snapshot();
  END IF;
  IF EXISTS (SELECT 1 FROM pg_snapshot_xip(v_cur) x WHERE pg_visible_in_snapshot(x, v_prev)) THEN
    RAISE EXCEPTION 'the snapshot % is older than the last one, %', v_cur, v_prev USING ERRCODE = 'FF006';
  END IF;
  SELECT array_agg(u.ev_id), array_agg(u.slot), array_agg(u.n) INTO v_ev_ids, v_slots, v_counts
  FROM ff_unstamped(v_prev, v_cur, s.foreign_to_ev_id) u;
  IF v_ev_ids IS NOT NULL THEN
    v_stamped := ff_stamp(v_ev_ids, v_slots, v_counts, v_last, v_cur);
    v_last := v_last + v_stamped;
    PERFORM pg_notify(p_channel, json_build_object('events', v_last::text)::text) WHERE p_channel IS NOT NULL;
  END IF;
  RETURN QUERY SELECT v_last, v_stamped, s.floor_position;
END $$;

-- How many committed events older than this have no position yet, for diagnostics.
CREATE OR REPLACE FUNCTION ff_count_unstamped(p_older_than_ms bigint) RETURNS bigint LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
DECLARE
  v_cur pg_snapshot := pg_current_snapshot();
  v_prev pg_snapshot;
  v_foreign_to bigint;
BEGIN
  SELECT snap INTO STRICT v_prev FROM ff_event_run ORDER BY seq_from DESC LIMIT 1;
  SELECT foreign_to_ev_id INTO STRICT v_foreign_to FROM ff_sequencer;
  RETURN (
    SELECT coalesce(sum(u.n), 0) FROM ff_unstamped(v_prev, v_cur, v_foreign_to) u
    CROSS JOIN LATERAL (
      SELECT e.occurred_at_ms FROM ff_event_pack e WHERE e.slot = u.slot AND e.ev_id = u.ev_id OFFSET 0) e
    WHERE e.occurred_at_ms < ff_now_ms() - p_older_than_ms);
END $$;
