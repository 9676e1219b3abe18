-- Which sessions hold the rows of an execution in an open transaction, so that callers can be told. No view lists row
-- locks; the rows themselves name their lockers.

-- The running transactions that a row names as its lockers. The number may be a multixact; only the row itself knows.
CREATE OR REPLACE FUNCTION ff_lockers(p_xmax xid, p_running xid[]) RETURNS xid[] LANGUAGE plpgsql AS $$
BEGIN
  IF p_xmax::text = '0' THEN RETURN '{}'; END IF;
  IF p_xmax = ANY (p_running) THEN RETURN ARRAY[p_xmax]; END IF;
  RETURN ARRAY(SELECT m.xid FROM pg_get_multixact_members(p_xmax) m);
EXCEPTION WHEN OTHERS THEN
  -- There is no multixact with that number.
  RETURN '{}';
END $$;

-- Sessions that hold executions; for a session that is itself waiting, the sessions it waits for.
-- doing: what kind of work a session does, never its query text. Columns this role may not see are NULL.
CREATE OR REPLACE FUNCTION ff_holders(p_ids uuid[])
RETURNS TABLE (execution_id uuid, pid integer, age_ms bigint, doing text) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  c_depth CONSTANT integer := 5;
  v_running xid[];
BEGIN
  v_running := ARRAY(SELECT transactionid FROM pg_locks WHERE locktype = 'transactionid' AND mode = 'ExclusiveLock' AND granted);
  RETURN QUERY
  WITH RECURSIVE held AS MATERIALIZED (
    SELECT DISTINCT r.id, x.locker
    FROM (SELECT e.execution_id AS id, e.xmax AS named FROM ff_execution e WHERE e.execution_id = ANY (p_ids)) r
    CROSS JOIN LATERAL unnest(ff_lockers(r.named, v_running)) x(locker)),
  chain AS (
    SELECT h.id, k.pid AS session, 1 AS depth
    FROM held h JOIN pg_locks k ON k.locktype = 'transactionid' AND k.transactionid = h.locker AND k.mode = 'ExclusiveLock' AND k.granted
    WHERE k.pid IS NOT NULL AND k.pid <> pg_backend_pid()
    UNION
    SELECT c.id, b.session, c.depth + 1
    FROM chain c CROSS JOIN LATERAL unnest(pg_blocking_pids(c.session)) b(session) WHERE c.depth < c_depth)
  SELECT c.id, c.session, (extract(epoch FROM clock_timestamp() - a.xact_start) * 1000)::bigint,
         CASE WHEN a.state IS NULL THEN NULL
              WHEN a.state NOT LIKE 'idle in transaction%' THEN 'active'
              WHEN a.query LIKE '%ff_record_steps%' THEN 'step' ELSE 'idle' END
  FROM (SELECT DISTINCT id, session FROM chain) c
  LEFT JOIN pg_stat_activity a ON a.pid = c.session
  WHERE cardinality(pg_blocking_pids(c.session)) = 0
  ORDER BY 3 DESC NULLS LAST;
END $$;
