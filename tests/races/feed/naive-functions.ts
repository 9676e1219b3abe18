/**
 * The event feed in the simpler forms one would write first: readers that go by the id or by the transaction of an
 * event, sequencers that read before they wait, and droppers that check only once. Alone each works; in a race each
 * loses, duplicates or reorders events. For tests only: the functions are created in a test database beside the real
 * ones.
 */
import type { Ask } from '../calls.ts';
import { LABELLED, labelOf, type LogReader, type Seen } from './log-reader.ts';

const FACTS = `ev_id, xid::text AS xid, ${LABELLED}`;

async function seenBy(ask: Ask, text: string, after: bigint): Promise<(Seen & { xid: bigint })[]> {
  const { rows } = await ask(text, [String(after)]);
  return rows.map((row) => ({
    ...labelOf(row),
    position: BigInt(row['ev_id'] as number),
    xid: BigInt(row['xid'] as string),
  }));
}

async function numberFrom(ask: Ask, expression: string): Promise<bigint> {
  const { rows } = await ask(`SELECT (${expression})::text AS n`);
  return BigInt(rows[0]!['n'] as string);
}

/**
 * The oldest running transaction in this database: transactions elsewhere on the server would hold the reader back as
 * well, and then it would depend on them whether it loses anything here.
 */
const HORIZON = `(
  SELECT coalesce((
    SELECT x FROM pg_snapshot_xip(s.snap) x
    WHERE x::text::bigint % 4294967296 IN (
      SELECT backend_xid::text::bigint FROM pg_stat_activity
      WHERE datname = current_database() AND backend_type = 'client backend' AND backend_xid IS NOT NULL)
    ORDER BY x LIMIT 1), pg_snapshot_xmax(s.snap))
  FROM (SELECT pg_current_snapshot() AS snap) s)`;

const LAST_ID = 'SELECT coalesce(max(ev_id), 0) FROM ff_event';

/** Follows the ids: what commits late has been passed already. */
export const BY_ID: LogReader = {
  isDense: false,
  now: (ask) => numberFrom(ask, LAST_ID),
  async read(ask, after) {
    const seen = await seenBy(ask, `SELECT ${FACTS} FROM ff_event WHERE ev_id > $1 ORDER BY ev_id`, after);
    return { seen, to: seen.at(-1)?.position ?? after };
  },
};

/** Waits for all older transactions but follows the ids all the same: the older transaction may have the higher id. */
export const BY_ID_BELOW_HORIZON: LogReader = {
  ...BY_ID,
  async read(ask, after) {
    const seen = await seenBy(
      ask,
      `SELECT ${FACTS} FROM ff_event
       WHERE ev_id > $1 AND xid < ${HORIZON} ORDER BY ev_id`,
      after,
    );
    return { seen, to: seen.at(-1)?.position ?? after };
  },
};

/** Follows the transactions: one that waited for the other's lock may have the smaller id but have written later. */
export const BY_TRANSACTION: LogReader = {
  isDense: false,
  now: (ask) => numberFrom(ask, 'SELECT coalesce(max(xid::text::bigint), 0) FROM ff_event'),
  async read(ask, after) {
    const seen = await seenBy(
      ask,
      `SELECT ${FACTS} FROM ff_event
       WHERE xid::text::bigint > $1 AND xid < ${HORIZON} ORDER BY xid, ev_id`,
      after,
    );
    return { seen, to: seen.at(-1)?.xid ?? after };
  },
};

const SEQUENCE = `(p_wait boolean, p_channel text)
RETURNS TABLE (last_position bigint, stamped bigint, floor_position bigint) LANGUAGE plpgsql SET search_path FROM CURRENT`;
const LAST_RUN = 'FROM ff_event_run ORDER BY seq_from DESC LIMIT 1';

/** Decides what is new before it waits for its turn: its rival assigned positions to the same events. */
const SEQUENCE_BEFORE_LOCK = `
CREATE FUNCTION naive_sequence_before_lock${SEQUENCE} AS $$
DECLARE
  v_prev pg_snapshot := (SELECT snap ${LAST_RUN});
  v_cur pg_snapshot := pg_current_snapshot();
  v_last bigint;
  v_ev_ids bigint[];
  v_slots smallint[];
  v_counts integer[];
BEGIN
  PERFORM 1 FROM ff_sequencer FOR UPDATE;
  v_last := (SELECT seq_from + n - 1 ${LAST_RUN});
  SELECT array_agg(u.ev_id), array_agg(u.slot), array_agg(u.n) INTO v_ev_ids, v_slots, v_counts
  FROM ff_unstamped(v_prev, v_cur, 0) u;
  IF v_ev_ids IS NOT NULL THEN
    v_last := v_last + ff_stamp(v_ev_ids, v_slots, v_counts, v_last, v_cur);
  END IF;
  RETURN QUERY SELECT v_last, coalesce(cardinality(v_ev_ids), 0)::bigint, 1::bigint;
END $$`;

/** Waits for its turn and reads in one statement, whose snapshot is older than the wait. */
const SEQUENCE_AT_ONCE = `
CREATE FUNCTION naive_sequence_at_once${SEQUENCE} AS $$
DECLARE
  v record;
BEGIN
  WITH locked AS MATERIALIZED (SELECT 1 FROM ff_sequencer FOR UPDATE),
  last AS MATERIALIZED (SELECT r.seq_from + r.n - 1 AS position, r.snap FROM locked,
    (SELECT * ${LAST_RUN}) r)
  SELECT last.position, pg_current_snapshot() AS snap, u.ev_ids, u.slots, u.counts INTO v
  FROM last CROSS JOIN LATERAL (
    SELECT array_agg(n.ev_id) AS ev_ids, array_agg(n.slot) AS slots, array_agg(n.n) AS counts
    FROM ff_unstamped(last.snap, pg_current_snapshot(), 0) n) u;
  IF v.ev_ids IS NOT NULL THEN
    PERFORM ff_stamp(v.ev_ids, v.slots, v.counts, v.position, v.snap);
  END IF;
  RETURN QUERY SELECT v.position, coalesce(cardinality(v.ev_ids), 0)::bigint, 1::bigint;
END $$`;

const DROP = `(p_retention_ms bigint, p_hold_ms bigint) RETURNS boolean LANGUAGE plpgsql SET search_path FROM CURRENT`;

const dropped = (slot: string) => `
  EXECUTE format('TRUNCATE ONLY ff_event_%s', ${slot});
  DELETE FROM ff_event_run WHERE slot = ${slot} AND seq_from < (SELECT max(seq_from) FROM ff_event_run);
  UPDATE ff_sequencer SET floor_position = greatest(floor_position, v_found.last_position + 1);
  RETURN true;`;

/** Goes by the positions alone: committed events without one are dropped with the rest. */
const DROP_UNLOOKED = `
CREATE FUNCTION naive_drop_unlooked${DROP} AS $$
DECLARE
  v_found record;
BEGIN
  SELECT * INTO v_found FROM ff_expired_slot(p_retention_ms, p_hold_ms);
  IF v_found.slot IS NULL THEN RETURN false; END IF;
  PERFORM set_config('lock_timeout', '200ms', true);
  EXECUTE format('LOCK TABLE ff_event_%s IN ACCESS EXCLUSIVE MODE', v_found.slot);
  PERFORM 1 FROM ff_sequencer FOR UPDATE;
  ${dropped('v_found.slot')}
EXCEPTION WHEN lock_not_available THEN
  RETURN false;
END $$`;

/** Looks for events without a position while a writer may still commit, and waits for the writer afterwards. */
const DROP_BEFORE_LOCK = `
CREATE FUNCTION naive_drop_before_lock${DROP} AS $$
DECLARE
  v_found record;
  v_snap pg_snapshot;
BEGIN
  SELECT * INTO v_found FROM ff_expired_slot(p_retention_ms, p_hold_ms);
  IF v_found.slot IS NULL THEN RETURN false; END IF;
  PERFORM 1 FROM ff_sequencer FOR UPDATE;
  v_snap := (SELECT snap ${LAST_RUN});
  IF EXISTS (SELECT 1 FROM ff_event e WHERE e.slot = v_found.slot AND NOT pg_visible_in_snapshot(e.xid, v_snap)) THEN
    RETURN false;
  END IF;
  ${dropped('v_found.slot')}
END $$`;

/** Locks the sequencer before the table, against the order of those who assign positions. */
const DROP_SEQUENCER_FIRST = `
CREATE FUNCTION naive_drop_sequencer_first${DROP} AS $$
DECLARE
  v_found record;
BEGIN
  PERFORM 1 FROM ff_sequencer FOR UPDATE;
  SELECT * INTO v_found FROM ff_expired_slot(p_retention_ms, p_hold_ms);
  IF v_found.slot IS NULL THEN RETURN false; END IF;
  EXECUTE format('LOCK TABLE ff_event_%s IN ACCESS EXCLUSIVE MODE', v_found.slot);
  ${dropped('v_found.slot')}
END $$`;

export const NAIVE_FEED_FUNCTIONS = [
  SEQUENCE_BEFORE_LOCK,
  SEQUENCE_AT_ONCE,
  DROP_UNLOOKED,
  DROP_BEFORE_LOCK,
  DROP_SEQUENCER_FIRST,
];
