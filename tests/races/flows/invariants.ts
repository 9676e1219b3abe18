/**
 * What must hold for flows after every race, whoever won: counters match the rows they count, every join that can be
 * decided is, and no end is forgotten. The checks return their findings as sentences; an empty list is a pass.
 */
import type { Ask } from '../calls.ts';
import { violationsOf } from '../invariants.ts';

const OURS = `
m AS MATERIALIZED (
  SELECT m.*, e.lifecycle_phase, e.terminal_outcome, e.eligibility_state, e.attempt_state
  FROM ff_member m JOIN ff_execution e USING (execution_id) WHERE m.flow_id = ANY ($1)),
g AS MATERIALIZED (SELECT * FROM ff_edge_group WHERE flow_id = ANY ($1)),
x AS MATERIALIZED (SELECT * FROM ff_edge WHERE flow_id = ANY ($1)),
p AS MATERIALIZED (
  SELECT p.*, f.sealed_at_ms, f.node_count, f.edge_count FROM ff_flow_progress p JOIN ff_flow f USING (flow_id)
  WHERE flow_id = ANY ($1)),
counted AS MATERIALIZED (
  SELECT downstream_eid, count(*) FILTER (WHERE state <> 'staged') AS n, count(*) FILTER (WHERE state = 'satisfied') AS satisfied,
    count(*) FILTER (WHERE state = 'failed') AS failed, count(*) FILTER (WHERE state = 'skipped') AS skipped
  FROM x GROUP BY 1)`;

const FAULTS_SQL = `WITH ${OURS}
SELECT g.downstream_eid AS id, format('has a join that counts %s/%s/%s of %s edges, which are %s/%s/%s of %s', g.success_count,
  g.fail_count, g.skip_count, g.edge_count, c.satisfied, c.failed, c.skipped, c.n) AS problem
FROM g LEFT JOIN counted c USING (downstream_eid)
WHERE (g.edge_count, g.success_count, g.fail_count, g.skip_count)
  <> (coalesce(c.n, 0), coalesce(c.satisfied, 0), coalesce(c.failed, 0), coalesce(c.skipped, 0))
UNION ALL
SELECT downstream_eid, 'has a join that can be decided and is not' FROM g JOIN p USING (flow_id)
WHERE group_state = 'pending' AND sealed_at_ms IS NOT NULL
  AND ff_join_state(join_kind, k_target, g.edge_count, g.success_count, fail_count + skip_count) <> 'pending'
UNION ALL
SELECT execution_id, format('is blocked, and its join is %s', group_state) FROM m JOIN g ON downstream_eid = execution_id
WHERE eligibility_state = 'blocked_by_dependencies' AND attempt_state IN ('pending_first_attempt', 'pending_replay_attempt')
  AND group_state <> 'pending'
UNION ALL
SELECT execution_id, 'may run before its join is decided' FROM m JOIN g ON downstream_eid = execution_id
WHERE lifecycle_phase <> 'terminal' AND eligibility_state <> 'blocked_by_dependencies' AND group_state = 'pending'
UNION ALL
SELECT execution_id, format('is counted as %s and is %s', outcome, terminal_outcome) FROM m
WHERE outcome IS NOT NULL AND (lifecycle_phase <> 'terminal' OR outcome <> terminal_outcome)
UNION ALL
SELECT execution_id, 'has ended uncounted, and no job is there for it' FROM m
WHERE outcome IS NULL AND lifecycle_phase = 'terminal'
  AND NOT EXISTS (SELECT FROM ff_flow_job j WHERE j.execution_id = m.execution_id)
UNION ALL
SELECT x.upstream_eid, 'has ended, an edge of it is pending, and no job is there for it' FROM x JOIN m ON execution_id = upstream_eid
WHERE x.state = 'pending' AND lifecycle_phase = 'terminal'
  AND NOT EXISTS (SELECT FROM ff_flow_job j WHERE j.execution_id = x.upstream_eid)
UNION ALL
SELECT x.upstream_eid, format('has not ended and yet an edge of it is %s, of a join that is %s', x.state, g.group_state)
FROM x JOIN m ON execution_id = upstream_eid JOIN g USING (downstream_eid)
WHERE x.state NOT IN ('pending', 'staged') AND lifecycle_phase <> 'terminal' AND g.group_state <> 'satisfied'
UNION ALL
SELECT p.flow_id, format('counts %s open, %s/%s/%s/%s/%s ended; there are %s, %s/%s/%s/%s/%s', open_count, success_count, failed_count,
  cancelled_count, expired_count, skipped_count, c.open, c.success, c.failed, c.cancelled, c.expired, c.skipped)
FROM p CROSS JOIN LATERAL (
  SELECT count(*) FILTER (WHERE outcome IS NULL) AS open, count(*) FILTER (WHERE outcome = 'success') AS success,
    count(*) FILTER (WHERE outcome = 'failed') AS failed, count(*) FILTER (WHERE outcome = 'cancelled') AS cancelled,
    count(*) FILTER (WHERE outcome = 'expired') AS expired, count(*) FILTER (WHERE outcome = 'skipped') AS skipped
  FROM m WHERE m.flow_id = p.flow_id) c
WHERE (open_count, success_count, failed_count, cancelled_count, expired_count, skipped_count)
  <> (c.open, c.success, c.failed, c.cancelled, c.expired, c.skipped)
UNION ALL
SELECT flow_id, 'has no open member and has not ended, or the other way round' FROM p
WHERE sealed_at_ms IS NOT NULL AND (outcome IS NOT NULL) <> (open_count = 0)
UNION ALL
SELECT flow_id, format('is told to have ended %s times more often than to go on, and is %s', told.n, coalesce(outcome::text, 'open'))
FROM p CROSS JOIN LATERAL (
  SELECT count(*) FILTER (WHERE event_type IN ('completed', 'failed', 'cancelled'))
    - count(*) FILTER (WHERE event_type = 'reopened') AS n
  FROM ff_event v WHERE v.flow_id = p.flow_id AND v.family = 'flow') told
WHERE told.n <> (outcome IS NOT NULL)::int
UNION ALL
SELECT flow_id, 'counts other nodes or edges than it has' FROM p
WHERE node_count <> (SELECT count(*) FROM m WHERE m.flow_id = p.flow_id)
   OR edge_count <> (SELECT count(*) FROM x WHERE x.flow_id = p.flow_id)
UNION ALL
SELECT downstream_eid, 'lists losers without a ticket' FROM g
WHERE cancel_siblings_pending_flag AND NOT EXISTS (
  SELECT FROM ff_pending_cancel_groups t WHERE t.downstream_eid = g.downstream_eid)
UNION ALL
SELECT downstream_eid, 'has losers to be stopped, and its join is open' FROM g
WHERE cancel_siblings_pending_flag AND group_state = 'pending'`;

const LEFT_SQL = `
SELECT execution_id AS id, 'has an end that was not told' AS problem FROM ff_flow_job WHERE flow_id = ANY ($1)
UNION ALL SELECT downstream_eid, 'has losers that were not stopped' FROM ff_edge_group
WHERE flow_id = ANY ($1) AND cancel_siblings_pending_flag
UNION ALL SELECT flow_id, 'has members that were not cancelled' FROM ff_cancel_backlog WHERE flow_id = ANY ($1)`;

const NO_UUID = '00000000-0000-0000-0000-000000000000';
const LOOKED_AT = 100_000;
/** Members of flows wait for other members, not for children. */
const OF_CHILDREN = /is blocked and nothing says on which children$/;

const sentences = (rows: Record<string, unknown>[]): string[] =>
  rows.map((row) => `${row.id} ${row.problem}`);

/** Contradictions in flows that are wrong even between two transactions. */
export async function flowFaults(through: Ask, flows: readonly string[]): Promise<string[]> {
  return sentences((await through(FAULTS_SQL, [flows])).rows);
}

/** Contradictions between the rows of their members. */
export async function memberFaults(through: Ask, flows: readonly string[]): Promise<string[]> {
  const members = await through('SELECT execution_id FROM ff_member WHERE flow_id = ANY ($1)', [flows]);
  const ids = members.rows.map((row) => row.execution_id as string);
  return (await violationsOf(through, ids)).filter((sentence) => !OF_CHILDREN.test(sentence));
}

/** Work that is left although every process reported that there is none. */
export async function flowLeftovers(through: Ask, flows: readonly string[]): Promise<string[]> {
  const lost = await through('SELECT found FROM ff_tell_lost_ends($1, $1, $2)', [NO_UUID, LOOKED_AT]);
  const found = Number(lost.rows[0]!.found);
  return [
    ...sentences((await through(LEFT_SQL, [flows])).rows),
    ...(found === 0 ? [] : [`${found} ends were lost`]),
  ];
}
