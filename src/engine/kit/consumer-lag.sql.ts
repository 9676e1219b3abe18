/**
 * How far a consumer of the event feed is behind, as an SQL expression for the list of consumers and for the doctor.
 */
import type { Database } from '../database/database.ts';

/**
 * When the first event after the position of a consumer `c` happened, as an expression; null when there is none. The
 * time is that of the event, not of its position, which is assigned after the commit and late if no process was
 * running.
 */
export function nextEventMs({ prefix }: Database): string {
  return `(SELECT coalesce((
      SELECT e.occurred_at_ms FROM (
        SELECT p.occurred_at_ms, sum(p.n) OVER (ORDER BY p.ev_id) AS upto FROM ${prefix}ff_event_pack p
        WHERE p.slot = r.slot AND p.ev_id >= r.ev_from AND p.ev_id < r.ev_from + r.packs) e
      WHERE r.seq_from + e.upto > c.position + 1 ORDER BY e.upto LIMIT 1), r.stamped_at_ms)
    FROM ${prefix}ff_event_run r
    WHERE r.ev_from IS NOT NULL AND r.seq_from + r.n > c.position + 1
      -- The run that contains the next position, or the first one after a jump in positions.
      AND r.seq_from >= coalesce((SELECT x.seq_from FROM ${prefix}ff_event_run x WHERE x.seq_from <= c.position + 1
                                  ORDER BY x.seq_from DESC LIMIT 1), 0)
    ORDER BY r.seq_from LIMIT 1)`;
}
