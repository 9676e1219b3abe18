/**
 * How far a consumer of the event feed is behind, as a part of statements: those that list consumers, and those of the doctor.
 */
import type { Database } from '../database/database.ts';

/**
 * When the first event that a consumer `c` has not passed happened, as an expression; null when there is none. By the event, not by its
 * position: that is given out after the commit, and late when nobody was awake to do it.
 */
export function nextEventMs({ prefix }: Database): string {
  return `(SELECT coalesce((
      SELECT e.occurred_at_ms FROM ${prefix}ff_event e
      WHERE e.slot = r.slot AND e.ev_id = r.ev_from + greatest(c.position + 1 - r.seq_from, 0)), r.stamped_at_ms)
    FROM ${prefix}ff_event_run r
    WHERE r.ev_from IS NOT NULL AND r.seq_from + r.n > c.position + 1
      -- The run that holds the next position, or the first one after a place where positions jumped.
      AND r.seq_from >= coalesce((SELECT x.seq_from FROM ${prefix}ff_event_run x WHERE x.seq_from <= c.position + 1
                                  ORDER BY x.seq_from DESC LIMIT 1), 0)
    ORDER BY r.seq_from LIMIT 1)`;
}
