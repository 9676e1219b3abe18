/**
 * How the rows in which executions ended are found. They are in two parts, each with an index by namespace, outcome and
 * time: those kept as long as the deployment keeps things, and those with a time of their own. Lists read both parts;
 * retention reads the first by its lists, from the oldest on, and the second by that time.
 */

/** The condition of each part, worded as in its index. */
export const ENDED = {
  keptByDefault: 'terminal_outcome IS NOT NULL AND retain_ms IS NULL AND look_again_at_ms IS NULL',
  keptOtherwise: 'terminal_outcome IS NOT NULL AND (retain_ms IS NOT NULL OR look_again_at_ms IS NOT NULL)',
} as const;

/** Comes before every list: no execution ends as `none`. */
export const BEFORE_ALL_LISTS = { namespace: '', outcome: 'none' };

/**
 * The pairs of namespace and outcome of a part, in order, each with the time of its oldest row; each is found by one
 * lookup in the index.
 */
export function endedLists(part: string, { after, most }: { after?: string; most: number }): string {
  const next = (from: string): string => `
    SELECT namespace, terminal_outcome, ended_at_ms FROM s.ff_attempt_history
    WHERE ${part} AND (namespace, terminal_outcome) > (${from})
    ORDER BY namespace, terminal_outcome, ended_at_ms LIMIT 1`;
  return `
    WITH RECURSIVE lists AS (
      SELECT first.*, 1 AS nth FROM (${next(after ?? `'', 'none'`)}) first
      UNION ALL
      SELECT next.*, l.nth + 1 FROM lists l
      CROSS JOIN LATERAL (${next('l.namespace, l.terminal_outcome')}) next
      WHERE l.nth < ${most})
    SELECT namespace, terminal_outcome, ended_at_ms, nth FROM lists`;
}
