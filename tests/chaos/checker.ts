/**
 * Examines a database after a storm and reports what is wrong with it, by plain SQL on the tables and without the
 * engine: what the engine believes about itself is no evidence.
 */
import pg from 'pg';

interface Rule {
  /** What is wrong with the executions the query returns. */
  fault: string;
  /** Returns column `id` of each faulty execution, among those whose route has the kind $1. */
  sql: string;
}

const EVENTS = `ours AS (
    SELECT e.* FROM ff_execution e JOIN ff_route r USING (route_id) WHERE r.kind = $1),
  event AS (SELECT v.* FROM ff_event v JOIN ours o USING (execution_id)),
  grants AS (SELECT * FROM event WHERE family = 'lease' AND event_type IN ('acquired', 'reclaimed')),
  ends AS (SELECT * FROM event WHERE family = 'lease' AND event_type IN ('expired', 'revoked', 'released')),
  completions AS (SELECT * FROM event WHERE family = 'completion')`;

const RULES: Rule[] = [
  { fault: 'has not ended', sql: `SELECT execution_id AS id FROM ours WHERE lifecycle_phase <> 'terminal'` },
  {
    fault: 'does not have exactly one completion event',
    sql: `SELECT o.execution_id AS id FROM ours o LEFT JOIN completions c USING (execution_id)
          GROUP BY 1 HAVING count(c.ev_id) <> 1`,
  },
  {
    fault: 'does not have exactly one row that it ended in and that matches its state and its event',
    sql: `SELECT o.execution_id AS id FROM ours o
          WHERE (SELECT count(terminal_outcome) FROM ff_attempt_history x WHERE x.execution_id = o.execution_id) <> 1
             OR NOT EXISTS (SELECT FROM ff_attempt_history x JOIN completions c USING (execution_id)
                            WHERE x.execution_id = o.execution_id AND x.terminal_outcome = o.terminal_outcome
                              AND c.event_type = x.terminal_outcome::text AND c.attempt_index = x.attempt_index)`,
  },
  {
    fault: 'was granted a lease whose epoch is not higher than the one before',
    sql: `SELECT execution_id AS id FROM (
            SELECT execution_id, lease_epoch > lag(lease_epoch) OVER w
              AND attempt_index >= lag(attempt_index) OVER w AS grows
            FROM grants WINDOW w AS (PARTITION BY execution_id ORDER BY ev_id)) g WHERE grows IS FALSE`,
  },
  {
    fault: 'has a lease that did not end exactly once',
    sql: `SELECT g.execution_id AS id FROM grants g
          WHERE CASE (SELECT count(*) FROM ends e WHERE e.lease_id = g.lease_id)
                  WHEN 0 THEN (SELECT count(*) FROM completions c WHERE c.lease_id = g.lease_id) <> 1
                  WHEN 1 THEN false ELSE true END`,
  },
  {
    fault: 'was granted a lease while it had another one',
    sql: `SELECT g.execution_id AS id FROM grants g JOIN grants later
            ON later.execution_id = g.execution_id AND later.ev_id > g.ev_id
          WHERE NOT EXISTS (SELECT FROM ends e WHERE e.lease_id = g.lease_id
                            AND e.ev_id > g.ev_id AND e.ev_id < later.ev_id)`,
  },
  {
    fault: 'changed after it had ended',
    sql: `SELECT c.execution_id AS id FROM completions c JOIN event v USING (execution_id) WHERE v.ev_id > c.ev_id`,
  },
  {
    fault: 'was reclaimed without naming both owners, or not after a lost lease',
    sql: `SELECT g.execution_id AS id FROM grants g
          WHERE g.event_type = 'reclaimed' AND NOT EXISTS (
            SELECT FROM ends e WHERE e.execution_id = g.execution_id AND e.attempt_index = g.attempt_index - 1
              AND e.event_type IN ('expired', 'revoked') AND e.ev_id < g.ev_id
              AND e.worker_instance_id = g.detail ->> 'previous_owner'
              AND g.worker_instance_id = g.detail ->> 'new_owner')`,
  },
  {
    fault: 'has ended and still has a lease',
    sql: `SELECT l.execution_id AS id FROM ff_lease l JOIN ours o USING (execution_id)
          WHERE o.lifecycle_phase = 'terminal'`,
  },
];

/** What is wrong with the executions of this kind, one sentence each; empty when nothing is. */
export async function faultsOf(
  databaseUrl: string,
  kind: string,
  searchPath = 'flowfabric',
): Promise<string[]> {
  const client = new pg.Client({ connectionString: databaseUrl, options: `-c search_path=${searchPath}` });
  await client.connect();
  try {
    const faults: string[] = [];
    for (const { fault, sql } of RULES) {
      const found = await client.query<{ id: string }>(`WITH ${EVENTS} ${sql}`, [kind]);
      faults.push(...new Set(found.rows.map(({ id }) => `${id} ${fault}`)));
    }
    return faults;
  } finally {
    await client.end();
  }
}
