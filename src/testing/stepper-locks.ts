/**
 * What the lock table says about the sessions of a race: which session waits, on which table, for which session.
 * Whether a step is blocked is decided from this alone, never from how long it takes. No scheduling belongs here, and
 * nothing here may take a lock that a session could hold.
 */

import type { Client } from 'pg';

/** One wait on a lock, as the lock table showed it. */
export interface LockWait {
  /** `relation`, `tuple`, `transactionid`, `advisory` and so on, as in pg_locks. */
  locktype: string;
  mode: string;
  /** The table waited on; for a lock in a partition, the partitioned table. Null when unknown. */
  table: string | null;
  /** The relation that holds the lock: the table itself or its partition. */
  relation: string | null;
  /**
   * Tables both sides are writing to or locking rows of. A row conflict without a tuple lock (two inserts of one unique
   * key) names no relation, and then it must be about one of these.
   */
  likely: string[];
  /** The key of an advisory lock, as `classid:objid`. */
  key: string | null;
  /** Names of the sessions it waits for. */
  blockedBy: string[];
}

/** A row of the lock table, before pids become names. */
export interface WaitRow extends Omit<LockWait, 'blockedBy'> {
  pid: number;
  blockers: number[];
}

interface SessionState {
  pid: number;
  state: string | null;
  waiting_on: string | null;
  query: string | null;
}

/*
 * pg_locks is read once, with all lock partitions held, so its rows show one instant: sessions that all wait in it were
 * waiting at the same time. A session waiting for a row holds the tuple lock while it waits for the other transaction;
 * from that the relation of a transactionid wait is found.
 */
const WAITS_SQL = `
WITH seen AS MATERIALIZED (SELECT * FROM pg_catalog.pg_locks WHERE pid = ANY($1::int[])),
     waiting AS (SELECT seen.*, pg_catalog.pg_blocking_pids(pid) AS blockers FROM seen WHERE NOT granted),
     placed AS (
       SELECT w.*, coalesce(w.relation, (SELECT t.relation FROM seen t
                                         WHERE t.pid = w.pid AND t.granted AND t.locktype = 'tuple'
                                         LIMIT 1)) AS place
       FROM waiting w)
SELECT p.pid, p.locktype, p.mode, p.blockers,
       p.place::regclass::text AS relation,
       coalesce(pg_catalog.pg_partition_root(p.place), p.place)::regclass::text AS "table",
       CASE WHEN p.locktype = 'advisory' THEN p.classid::text || ':' || p.objid::text END AS key,
       CASE WHEN p.place IS NULL AND p.locktype <> 'advisory' THEN ARRAY(
         SELECT DISTINCT coalesce(pg_catalog.pg_partition_root(mine.relation), mine.relation)::regclass::text
         FROM seen mine
         JOIN seen theirs ON theirs.relation = mine.relation AND theirs.pid = ANY(p.blockers)
         JOIN pg_catalog.pg_class c ON c.oid = mine.relation AND c.relkind IN ('r', 'p')
         WHERE mine.pid = p.pid AND mine.locktype = 'relation' AND mine.granted
           AND theirs.locktype = 'relation' AND theirs.granted
           AND mine.mode IN ('RowShareLock', 'RowExclusiveLock')
           AND theirs.mode IN ('RowShareLock', 'RowExclusiveLock')
         ORDER BY 1)
       ELSE '{}' END AS likely
FROM placed p`;

const STATES_SQL = `
SELECT pid, state, wait_event_type || '/' || wait_event AS waiting_on, left(query, 200) AS query
FROM pg_catalog.pg_stat_activity WHERE pid = ANY($1::int[])`;

export async function readWaits(controller: Client, pids: number[]): Promise<WaitRow[]> {
  const answer = await controller.query<WaitRow>(WAITS_SQL, [pids]);
  return answer.rows;
}

export async function readStates(controller: Client, pids: number[]): Promise<SessionState[]> {
  const answer = await controller.query<SessionState>(STATES_SQL, [pids]);
  return answer.rows;
}

/** True when the waits of these processes form a cycle: the database will break it by itself. */
export function hasCircle(waits: WaitRow[]): boolean {
  const blockers = new Map(waits.map((wait) => [wait.pid, wait.blockers]));
  return waits.some((wait) => reaches(blockers, wait.pid));
}

function reaches(blockers: Map<number, number[]>, target: number): boolean {
  const open = [...(blockers.get(target) ?? [])];
  const seen = new Set<number>();
  for (let pid = open.pop(); pid !== undefined; pid = open.pop()) {
    if (pid === target) return true;
    if (seen.has(pid)) continue;
    seen.add(pid);
    open.push(...(blockers.get(pid) ?? []));
  }
  return false;
}

/** A wait in words, for error messages. */
export function describeWait(wait: Omit<LockWait, 'blockedBy'>): string {
  const place =
    wait.table ?? wait.key ?? (wait.likely.length > 0 ? `likely ${wait.likely.join(' or ')}` : 'unknown');
  return `waits for ${wait.mode} on ${wait.locktype} (${place})`;
}
