/**
 * What must hold for suspensions, waitpoints and signals after every race: a suspension ends once, no signal is lost,
 * and the records of a signal agree. Split from invariants.ts.
 */

export const SIGNAL_VIOLATIONS_SQL = `
WITH e AS MATERIALIZED (SELECT * FROM ff_execution WHERE $1::uuid[] IS NULL OR execution_id = ANY ($1)),
ev AS MATERIALIZED (SELECT * FROM ff_event WHERE $1::uuid[] IS NULL OR execution_id = ANY ($1)),
s AS MATERIALIZED (SELECT * FROM ff_suspension WHERE $1::uuid[] IS NULL OR execution_id = ANY ($1)),
waits AS MATERIALIZED (SELECT s.execution_id, w FROM s, jsonb_array_elements(s.waits) w),
ends AS MATERIALIZED (
  SELECT b.execution_id, b.attempt_index, b.lease_epoch, count(o.ev_id) AS n
  FROM ev b LEFT JOIN ev o ON o.execution_id = b.execution_id AND o.attempt_index = b.attempt_index
    AND o.lease_epoch = b.lease_epoch AND (o.family = 'completion' OR o.event_type = 'resumed')
  WHERE b.event_type = 'suspended' GROUP BY 1, 2, 3)
SELECT e.execution_id, format('is %s and has %s suspensions of its epoch', lifecycle_phase, n) AS problem
FROM e CROSS JOIN LATERAL (
  SELECT count(*) AS n FROM s WHERE s.execution_id = e.execution_id AND s.attempt_index = e.attempt_index
    AND s.lease_epoch = e.lease_epoch) x
WHERE n <> CASE lifecycle_phase WHEN 'suspended' THEN 1 ELSE 0 END
UNION ALL
SELECT s.execution_id, 'has an orphan suspension' FROM s
WHERE NOT EXISTS (SELECT FROM e WHERE e.execution_id = s.execution_id AND lifecycle_phase = 'suspended')
UNION ALL
SELECT ends.execution_id, format('was suspended in epoch %s, which ended %s times', ends.lease_epoch, n)
FROM ends JOIN e USING (execution_id)
WHERE n <> CASE WHEN e.lifecycle_phase = 'suspended' AND e.lease_epoch = ends.lease_epoch THEN 0 ELSE 1 END
UNION ALL
SELECT execution_id, format('is suspended for %s, for which enough was said', w ->> 'name') FROM waits
WHERE ff_condition_met(w -> 'condition', execution_id)
UNION ALL
SELECT waits.execution_id, format('is suspended for %s, whose step says %s', w ->> 'name', t.value)
FROM waits LEFT JOIN ff_step t ON t.execution_id = waits.execution_id AND t.retired_by = 0 AND t.name = w ->> 'name'
  AND t.key = w ->> 'key' AND t.kind = 'wait'
WHERE t.value ->> 'outcome' IS DISTINCT FROM 'pending'
UNION ALL
SELECT e.execution_id, format('has %s timers for its suspension', n) FROM e CROSS JOIN LATERAL (
  -- One that was being fired when its suspension ended is left, and discarded by the next firing.
  SELECT count(*) AS n FROM ff_timer t WHERE t.execution_id = e.execution_id AND t.kind = 'suspension'
    AND (t.due_at_ms > ff_now_ms() OR (e.lifecycle_phase = 'suspended' AND t.lease_epoch = e.lease_epoch))) t
WHERE n <> CASE WHEN EXISTS (SELECT FROM s WHERE s.execution_id = e.execution_id AND wake_at_ms IS NOT NULL)
    OR EXISTS (SELECT FROM waits WHERE waits.execution_id = e.execution_id AND w ->> 'timeout_at_ms' IS NOT NULL)
  THEN 1 ELSE 0 END
UNION ALL
SELECT p.execution_id, format('has a waitpoint %s that counts %s signals and has %s', p.name, p.signal_count, g.n)
FROM ff_waitpoint p CROSS JOIN LATERAL (
  SELECT count(*) AS n FROM ff_signal x WHERE x.execution_id = p.execution_id AND x.waitpoint_id = p.waitpoint_id) g
WHERE ($1::uuid[] IS NULL OR p.execution_id = ANY ($1)) AND g.n <> p.signal_count
UNION ALL
SELECT e.execution_id, format('has %s signals with %s numbers, the last %s', n, numbers, last) FROM e CROSS JOIN LATERAL (
  SELECT count(*) AS n, count(DISTINCT seq) AS numbers, max(seq) AS last FROM ff_signal g
  WHERE g.execution_id = e.execution_id) g
WHERE n > 0 AND (numbers <> n OR last <> n - 1)
UNION ALL
SELECT p.execution_id, format('has a waitpoint %s that expires at %s, and no timer by then', p.name, p.expires_at_ms)
FROM ff_waitpoint p JOIN e USING (execution_id)
WHERE p.retired_by = 0 AND p.closed_at_ms IS NULL AND p.expires_at_ms IS NOT NULL AND e.lifecycle_phase <> 'terminal'
  AND NOT EXISTS (SELECT FROM ff_timer t WHERE t.kind = 'waitpoint' AND t.execution_id = p.execution_id
    AND t.due_at_ms <= p.expires_at_ms)
UNION ALL
SELECT execution_id, format('has %s signals and was told of %s', said, told) FROM e CROSS JOIN LATERAL (
  SELECT (SELECT count(*) FROM ff_signal g WHERE g.execution_id = e.execution_id) AS said,
         (SELECT count(*) FROM ev WHERE ev.execution_id = e.execution_id AND event_type = 'delivered') AS told) x
WHERE said <> told
UNION ALL
SELECT t.execution_id, format('has the wait %s that is %s, and a waitpoint of it that is open', t.name, t.value ->> 'outcome')
FROM ff_step t JOIN ff_waitpoint p ON p.execution_id = t.execution_id AND p.retired_by = t.retired_by
  AND p.step_name = t.name AND p.step_key = t.key
WHERE ($1::uuid[] IS NULL OR t.execution_id = ANY ($1)) AND t.kind = 'wait' AND t.value ->> 'outcome' <> 'pending'
  AND p.closed_at_ms IS NULL`;
