/**
 * What must hold after every race, whoever won: the rows of an execution agree with each other, each lease has one
 * start and at most one end, and what was returned is what was written. Both checks return the violations they found,
 * as sentences; an empty list is a pass.
 */
import { LEASE_MS, LONG_LEASE_MS, SHORT_LEASE_MS, type Answer, type Ask } from './calls.ts';
import { MESSAGE_VIOLATIONS_SQL } from './messages/invariants.ts';
import { SIGNAL_VIOLATIONS_SQL } from './signals/invariants.ts';

/** The whole life of a lease as its events show it; without the last group it is still held. */
const LIFE_OF_A_LEASE =
  '^lease\\.(acquired|reclaimed)( lease\\.renewed)*' +
  '( completion\\.(success|failed)| lease\\.expired( completion\\.expired)?' +
  '| lease\\.revoked( completion\\.(cancelled|failed|expired))?| lease\\.released)?$';
const HELD_LEASE = '^lease\\.(acquired|reclaimed)( lease\\.renewed)*$';
/** How long the leases of a race last from their grant or last renewal. */
const LEASE_TIMES = [LEASE_MS, LONG_LEASE_MS, SHORT_LEASE_MS];

const VIOLATIONS_SQL = `
WITH e AS MATERIALIZED (SELECT * FROM ff_execution WHERE $1::uuid[] IS NULL OR execution_id = ANY ($1)),
l AS MATERIALIZED (
  SELECT e.*, ff_lease_id(e.execution_id, e.lease_epoch) AS lease_id, g.look_at_ms,
         coalesce(e.execution_id = ANY (g.execution_ids), false) AS listed
  FROM e LEFT JOIN ff_grant g ON g.claim_no = e.claim_no WHERE num_nonnulls(e.claim_no, e.lease_expires_at_ms) > 0),
viewed AS MATERIALIZED (
  SELECT execution_id, lease_id, count(*) AS n FROM ff_lease WHERE $1::uuid[] IS NULL OR execution_id = ANY ($1) GROUP BY 1, 2),
ev AS MATERIALIZED (SELECT * FROM ff_event WHERE $1::uuid[] IS NULL OR execution_id = ANY ($1)),
ended AS MATERIALIZED (
  SELECT execution_id, count(*) AS n, (array_agg(event_type ORDER BY ev_id DESC))[1] AS outcome
  FROM ev WHERE family = 'completion' GROUP BY 1),
results AS MATERIALIZED (
  SELECT execution_id, count(*) AS n, (array_agg(terminal_outcome::text ORDER BY attempt_index DESC))[1] AS outcome,
         max(attempt_index) AS attempt_index
  FROM ff_attempt_history
  WHERE terminal_outcome IS NOT NULL AND ($1::uuid[] IS NULL OR execution_id = ANY ($1)) GROUP BY 1),
fresh AS MATERIALIZED (
  SELECT e.execution_id,
    (SELECT count(*) FROM ff_ready r WHERE r.execution_id = e.execution_id AND r.attempt_index = e.attempt_index
       AND r.lease_epoch = e.lease_epoch AND r.route_id = e.route_id AND r.priority = e.priority) AS ready,
    (SELECT count(*) FROM ff_timer t WHERE t.execution_id = e.execution_id AND t.attempt_index = e.attempt_index
       AND t.lease_epoch = e.lease_epoch AND t.kind = 'eligible') AS timers
  FROM e),
lives AS MATERIALIZED (
  SELECT execution_id, lease_id, string_agg(family || '.' || event_type, ' ' ORDER BY ev_id) AS life,
         max(occurred_at_ms) FILTER (WHERE event_type IN ('acquired', 'reclaimed', 'renewed')) AS extended_at_ms
  FROM ev WHERE lease_id IS NOT NULL AND family <> 'signal' GROUP BY 1, 2)
SELECT e.execution_id, 'is active without a lease' AS problem FROM e
WHERE lifecycle_phase = 'active' AND num_nonnulls(claim_no, lease_expires_at_ms) < 2
UNION ALL
SELECT execution_id, 'has an orphan lease: it is not active' FROM l WHERE lifecycle_phase <> 'active'
UNION ALL
SELECT execution_id, 'has a lease of a claim that is gone or does not list it' FROM l WHERE NOT listed
UNION ALL
SELECT l.execution_id, format('has a lease that readers see %s times', coalesce(n, 0))
FROM l LEFT JOIN viewed USING (execution_id, lease_id) WHERE coalesce(n, 0) <> 1
UNION ALL
SELECT execution_id, 'has a lease that lapses before anybody looks into its claim' FROM l
WHERE look_at_ms > lease_expires_at_ms
UNION ALL
SELECT execution_id, format('is %s and runs since %s', attempt_state, coalesce(attempt_started_at_ms::text, 'never')) FROM e
WHERE (attempt_started_at_ms IS NOT NULL) <> (attempt_state IN ('running_attempt', 'attempt_interrupted'))
UNION ALL
SELECT e.execution_id, format('is %s (%s) with %s completion events (%s)', lifecycle_phase, terminal_outcome,
                              coalesce(n, 0), outcome)
FROM e LEFT JOIN ended USING (execution_id)
WHERE coalesce(n, 0) <> replay_count + CASE lifecycle_phase WHEN 'terminal' THEN 1 ELSE 0 END
   OR (lifecycle_phase = 'terminal' AND outcome <> terminal_outcome::text)
UNION ALL
SELECT e.execution_id, format('is %s (%s) with %s outcome rows (%s)', lifecycle_phase, terminal_outcome,
                              coalesce(n, 0), outcome)
FROM e LEFT JOIN results r USING (execution_id)
WHERE coalesce(n, 0) <> replay_count + CASE lifecycle_phase WHEN 'terminal' THEN 1 ELSE 0 END
   OR (lifecycle_phase = 'terminal' AND (outcome <> terminal_outcome::text OR r.attempt_index <> e.attempt_index))
UNION ALL
SELECT execution_id, format('is %s and has %s fresh queue rows and %s live timers', eligibility_state, ready, timers)
FROM e JOIN fresh USING (execution_id)
-- Two of them when its priority was changed and changed back: they are discarded together.
WHERE least(ready, 1) <> CASE eligibility_state WHEN 'eligible_now' THEN 1 ELSE 0 END
   OR timers <> CASE eligibility_state WHEN 'not_eligible_until_time' THEN 1 ELSE 0 END
UNION ALL
SELECT execution_id, format('has a lease that lived like this: %s', life) FROM lives WHERE life !~ $2
UNION ALL
SELECT execution_id, CASE WHEN l.lease_id IS NULL THEN 'has a lease event without an end and without a lease'
                          ELSE 'has a lease that was told to have ended' END
FROM lives LEFT JOIN l USING (execution_id, lease_id) WHERE (l.lease_id IS NOT NULL) <> (life ~ $3)
UNION ALL
SELECT execution_id, 'has a lease that no event tells of' FROM l
WHERE NOT EXISTS (SELECT FROM lives WHERE lives.lease_id = l.lease_id)
UNION ALL
SELECT execution_id, 'has a lease that does not last from its last renewal' FROM l JOIN lives USING (execution_id, lease_id)
WHERE l.lease_expires_at_ms - lives.extended_at_ms <> ALL ($4::bigint[])
UNION ALL
SELECT e.execution_id, format('left attempt %s without an end', a.n) FROM e, generate_series(0, e.attempt_index - 1) a(n)
WHERE NOT EXISTS (
  SELECT FROM ff_attempt_history h WHERE h.execution_id = e.execution_id AND h.attempt_index = a.n
    -- Its own end, or that of an execution that ended before the attempt began, and was replayed.
    AND h.ended_at_ms IS NOT NULL)
UNION ALL
SELECT e.execution_id, format('is %s with %s timers for its deadline and %s for its attempt', lifecycle_phase, t.deadlines,
                              t.limits)
FROM e CROSS JOIN LATERAL (
  -- One that was being fired when its time was over anyway is left, and discarded by the next firing.
  SELECT count(*) FILTER (WHERE kind = 'deadline' AND (due_at_ms > ff_now_ms() OR (
           e.lifecycle_phase <> 'terminal' AND due_at_ms = e.deadline_at_ms))) AS deadlines,
         count(*) FILTER (WHERE kind = 'attempt_limit' AND (due_at_ms > ff_now_ms() OR (
           e.lifecycle_phase = 'active' AND attempt_index = e.attempt_index AND lease_epoch = e.lease_epoch))) AS limits
  FROM ff_timer WHERE execution_id = e.execution_id) t
WHERE t.deadlines <> CASE WHEN lifecycle_phase <> 'terminal' AND deadline_at_ms IS NOT NULL THEN 1 ELSE 0 END
   OR t.limits <> CASE WHEN lifecycle_phase = 'active' AND attempt_limit_ms IS NOT NULL THEN 1 ELSE 0 END
UNION ALL
SELECT e.execution_id, 'is blocked and nothing says on which children' FROM e
WHERE eligibility_state = 'blocked_by_dependencies' AND NOT EXISTS (
  SELECT FROM ff_child_wait w WHERE w.execution_id = e.execution_id AND w.attempt_index = e.attempt_index
    AND w.lease_epoch = e.lease_epoch)
UNION ALL
SELECT e.execution_id, 'waits for children of which enough have ended, and nobody will tell it'
FROM e JOIN ff_child_wait w ON w.execution_id = e.execution_id AND w.attempt_index = e.attempt_index
  AND w.lease_epoch = e.lease_epoch
WHERE (eligibility_state IN ('blocked_by_dependencies', 'not_eligible_until_time') OR lifecycle_phase = 'suspended')
  AND w.needed <= (SELECT count(*) FROM unnest(w.children) child JOIN ff_execution c ON c.execution_id = child
                   WHERE c.lifecycle_phase = 'terminal')
  AND NOT EXISTS (SELECT FROM ff_timer t WHERE t.execution_id = e.execution_id AND t.kind = 'child_ended')
UNION ALL
SELECT s.execution_id, format('has the step %s of a lease that had ended', s.name) FROM ff_step s
WHERE ($1::uuid[] IS NULL OR s.execution_id = ANY ($1)) AND NOT EXISTS (
    SELECT FROM l WHERE l.execution_id = s.execution_id AND l.lease_epoch = s.lease_epoch
      AND l.attempt_index = s.attempt_index)
  AND NOT EXISTS (
    SELECT FROM ev WHERE ev.execution_id = s.execution_id AND ev.lease_epoch = s.lease_epoch
      AND ev.attempt_index = s.attempt_index AND ev.occurred_at_ms >= s.recorded_at_ms
      AND (ev.family = 'completion' OR ev.event_type IN ('released', 'expired', 'revoked')))`;

/** Contradictions between the rows of these executions, or of all executions. */
export async function violationsOf(through: Ask, ids: string[] | null): Promise<string[]> {
  const found = await through(VIOLATIONS_SQL, [ids, LIFE_OF_A_LEASE, HELD_LEASE, LEASE_TIMES]);
  const told = await through(SIGNAL_VIOLATIONS_SQL, [ids]);
  const sent = await through(MESSAGE_VIOLATIONS_SQL, [ids]);
  return [...found.rows, ...told.rows, ...sent.rows].map((row) => `${row.execution_id} ${row.problem}`);
}

/** The events an accepted result promises. A refusal and a repeated result promise none. */
function promisedBy({ word, repeated, reclaimed, takenFrom }: Answer): string[] {
  if (repeated) return [];
  switch (word) {
    case 'claimed':
      return [reclaimed ? 'lease.reclaimed' : 'lease.acquired'];
    case 'completed':
      return ['completion.success'];
    case 'failed':
      return ['completion.failed'];
    case 'retry_scheduled':
    case 'paused':
    case 'released':
    case 'run_continued':
      return ['lease.released'];
    case 'renewed':
      return ['lease.renewed'];
    case 'cancelled':
      return takenFrom === null ? ['completion.cancelled'] : ['lease.revoked', 'completion.cancelled'];
    case 'revoked':
      return ['lease.revoked'];
    case 'reclaims_exhausted':
      return ['lease.revoked', 'completion.failed'];
    case 'lapsed':
      return ['lease.expired'];
    case 'expired':
      return ['lease.expired', 'completion.expired'];
    case 'execution_timed_out':
      return takenFrom === null ? ['completion.expired'] : ['lease.revoked', 'completion.expired'];
    case 'attempt_timed_out':
      return ['lease.revoked'];
    case 'replayed':
      return ['operator.replayed'];
    case 'suspended':
      return ['lease.released', 'signal.suspended'];
    case 'buffered':
    case 'counted':
    case 'not_counted':
    case 'not_matching':
    case 'resumed':
      return ['signal.delivered'];
    default:
      return [];
  }
}

/** The current end of the event log. */
export async function endOfLog(through: Ask): Promise<number> {
  const found = await through('SELECT coalesce(max(ev_id), 0) AS ev_id FROM ff_event');
  return Number(found.rows[0]?.ev_id);
}

/** Results of committed calls that are not in the log after that position, and events that no result announced. */
export async function unkeptAnswers(through: Ask, answers: Answer[], after: number): Promise<string[]> {
  const found = await through(
    // Setting a priority to its current value returns a result but writes no event. The call that ends a suspension
    // does not return how it ended; a timeout returns the same result whatever the outcome.
    `SELECT execution_id, family || '.' || CASE WHEN family = 'completion' AND EXISTS (
         SELECT FROM ff_event t WHERE t.execution_id = e.execution_id AND t.xid = e.xid AND t.event_type = 'timed_out')
       THEN 'expired' ELSE event_type END AS event
     FROM ff_event e
     WHERE ev_id > $1 AND execution_id IS NOT NULL
       AND (family <> 'signal' OR event_type IN ('suspended', 'delivered')) AND event_type <> 'priority_changed'`,
    [after],
  );
  const balance = new Map<string, number>();
  const count = (key: string, by: number) => balance.set(key, (balance.get(key) ?? 0) + by);
  for (const row of found.rows) count(`${row.execution_id} ${row.event}`, 1);
  for (const answer of answers.filter(({ id }) => id !== null)) {
    for (const event of promisedBy(answer)) count(`${answer.id} ${event}`, -1);
  }
  return [...balance]
    .filter(([, surplus]) => surplus !== 0)
    .map(([key, surplus]) => `${key}: ${surplus > 0 ? 'written, not answered' : 'answered, not written'}`);
}
