/**
 * What must hold for messages after every race: none is lost, none is handed over twice, and nobody waits for one that is
 * there. Split from invariants.ts.
 */

export const MESSAGE_VIOLATIONS_SQL = `
WITH e AS MATERIALIZED (SELECT * FROM ff_execution WHERE $1::uuid[] IS NULL OR execution_id = ANY ($1)),
m AS MATERIALIZED (SELECT * FROM ff_message WHERE $1::uuid[] IS NULL OR execution_id = ANY ($1)),
taken AS MATERIALIZED (
  SELECT execution_id, value #>> '{message,id}' AS message_id FROM ff_step
  WHERE kind = 'wait' AND value ? 'message' AND ($1::uuid[] IS NULL OR execution_id = ANY ($1)))
SELECT b.execution_id, format('counts %s messages that were not handed over and has %s', b.pending, x.n) AS problem
FROM ff_mailbox b CROSS JOIN LATERAL (
  SELECT count(*) AS n FROM m WHERE m.execution_id = b.execution_id AND m.handed_at_ms IS NULL) x
WHERE ($1::uuid[] IS NULL OR b.execution_id = ANY ($1)) AND b.pending <> x.n
UNION ALL
SELECT execution_id, format('has messages with the same number %s', seq) FROM m GROUP BY execution_id, seq HAVING count(*) > 1
UNION ALL
SELECT m.execution_id, 'has messages, and nobody who ends it will know' FROM m JOIN e USING (execution_id) WHERE e.traits & 32 = 0
UNION ALL
SELECT s.execution_id, format('waits for a message in %s, and there is one', w #>> '{condition,mailbox}')
FROM ff_suspension s CROSS JOIN LATERAL jsonb_array_elements(s.waits) w JOIN ff_mailbox b USING (execution_id)
WHERE ($1::uuid[] IS NULL OR s.execution_id = ANY ($1)) AND w #>> '{condition,kind}' = 'message'
  AND b.handed < (w #>> '{condition,limit}')::integer AND EXISTS (
    SELECT FROM m WHERE m.execution_id = s.execution_id AND m.mailbox = w #>> '{condition,mailbox}' AND m.handed_at_ms IS NULL)
UNION ALL
SELECT execution_id, format('was handed message %s %s times', message_id, count(*)) FROM taken
GROUP BY execution_id, message_id HAVING count(*) > 1
UNION ALL
SELECT taken.execution_id, format('was handed message %s, which says otherwise', message_id)
FROM taken LEFT JOIN m USING (execution_id, message_id) WHERE m.handed_at_ms IS NULL
UNION ALL
SELECT m.execution_id, format('has message %s, which was handed over to nobody', message_id)
FROM m LEFT JOIN taken USING (execution_id, message_id)
WHERE m.handed_at_ms IS NOT NULL AND taken.message_id IS NULL AND NOT EXISTS (
  SELECT FROM ff_run r WHERE r.execution_id = m.execution_id AND r.ended_at_ms >= m.handed_at_ms)
UNION ALL
SELECT r.execution_id, format('has runs %s', array_agg(run ORDER BY run)) FROM ff_run r
WHERE $1::uuid[] IS NULL OR execution_id = ANY ($1) GROUP BY execution_id HAVING max(run) - min(run) + 1 <> count(*)
UNION ALL
SELECT s.execution_id, format('has the step %s of a run that ended', s.name)
FROM ff_step s JOIN e USING (execution_id) JOIN ff_run r USING (execution_id)
WHERE r.is_cleared AND s.attempt_index <= r.last_attempt`;
