/**
 * Reads of one execution. Plain statements, no locks: what they answer was true when they ran.
 */
import { run, type Database } from '../database/database.ts';
import type { ExecutionKey } from './executions.sql.ts';
import type { AttemptOutcome, PublicState, StateVector, TerminalOutcome } from '../../contract/states.ts';

export interface SnapshotRow {
  public_state: PublicState;
  state: StateVector;
  kind: string;
  lane: string;
  capabilities: string[];
  namespace: string;
  priority: number;
  tags: Record<string, string>;
  created_at_ms: number;
  started_at_ms: number | null;
  changed_at_ms: number;
  eligible_at_ms: number | null;
  deadline_at_ms: number | null;
  ended_at_ms: number | null;
  attempt_index: number;
  lease_epoch: number;
  retry_count: number;
  reclaim_count: number;
  replay_count: number;
  lease: {
    leaseId: string;
    workerId: string;
    workerInstanceId: string;
    acquiredAtMs: number;
    expiresAtMs: number;
  } | null;
  attempts: {
    attemptIndex: number;
    outcome: AttemptOutcome | null;
    workerInstanceId: string | null;
    startedAtMs: number;
    endedAtMs: number | null;
    failureMessage: string | null;
    failureCategory: string | null;
  }[];
  progress: { percent: number | null; message: string | null; reportedAtMs: number } | null;
  step_count: number;
  parent_id: string | null;
  flow_id: string | null;
  parent_partition: number | null;
  setbacks: { reconciler: string; failures: number; errorCode: string }[];
}

/** Attempts shown by one read: the last ones. */
const MAX_ATTEMPTS_SHOWN = 1_000;

const SNAPSHOT = `
SELECT
  s.ff_public_state(e.lifecycle_phase, e.eligibility_state, e.terminal_outcome, e.eligible_at_ms, s.ff_now_ms()) AS public_state,
  jsonb_build_object(
    'lifecyclePhase', e.lifecycle_phase, 'ownershipState', e.ownership_state, 'eligibilityState', e.eligibility_state,
    'blockingReason', e.blocking_reason, 'terminalOutcome', e.terminal_outcome, 'attemptState', e.attempt_state) AS state,
  r.kind, r.lane, r.capabilities, e.namespace, e.priority, b.tags, e.created_at_ms, e.started_at_ms, e.changed_at_ms,
  e.eligible_at_ms, e.deadline_at_ms, o.ended_at_ms, e.attempt_index, e.lease_epoch, e.retry_count, e.reclaim_count,
  e.replay_count,
  (SELECT jsonb_build_object('leaseId', l.lease_id, 'workerId', l.worker_id, 'workerInstanceId', l.worker_instance_id,
     'acquiredAtMs', l.acquired_at_ms, 'expiresAtMs', l.expires_at_ms)
   FROM s.ff_lease l WHERE l.execution_id = e.execution_id AND l.partition_key = e.partition_key) AS lease,
  coalesce((SELECT jsonb_agg(jsonb_build_object('attemptIndex', h.attempt_index, 'outcome', h.outcome,
     'workerInstanceId', h.worker_instance_id, 'startedAtMs', h.started_at_ms, 'endedAtMs', h.ended_at_ms,
     'failureMessage', h.failure_message, 'failureCategory', h.failure_category) ORDER BY h.attempt_index)
   FROM (SELECT * FROM s.ff_attempt_history a WHERE a.execution_id = e.execution_id
         AND a.partition_key = e.partition_key ORDER BY a.attempt_index DESC LIMIT ${MAX_ATTEMPTS_SHOWN}) h), '[]') AS attempts,
  (SELECT jsonb_build_object('percent', p.percent, 'message', p.message, 'reportedAtMs', p.reported_at_ms)
   FROM s.ff_progress p WHERE p.execution_id = e.execution_id) AS progress,
  (SELECT count(*) FROM s.ff_step t WHERE t.execution_id = e.execution_id AND t.retired_by = 0) AS step_count, e.parent_id, e.parent_partition, e.flow_id,
  coalesce((SELECT jsonb_agg(jsonb_build_object('reconciler', x.reconciler, 'failures', x.failures,
     'errorCode', x.error_code) ORDER BY x.reconciler)
   FROM s.ff_setback x WHERE (e.lifecycle_phase <> 'terminal' OR x.reconciler = 'retention')
     AND x.execution_id = e.execution_id AND x.partition_key = e.partition_key), '[]') AS setbacks
FROM s.ff_execution e
JOIN s.ff_route r ON r.route_id = e.route_id
JOIN s.ff_body b ON b.execution_id = e.execution_id AND b.partition_key = e.partition_key
LEFT JOIN s.ff_outcome o ON e.lifecycle_phase = 'terminal' AND o.execution_id = e.execution_id
  AND o.partition_key = e.partition_key AND o.attempt_index = e.attempt_index
WHERE e.execution_id = $1 AND e.partition_key = $2`;

export async function readSnapshot(database: Database, key: ExecutionKey): Promise<SnapshotRow | undefined> {
  const rows = await run<SnapshotRow>(database, {
    doing: 'describing an execution',
    text: SNAPSHOT.replaceAll('s.ff_', `${database.prefix}ff_`),
    params: [key.uuid, key.partition],
    repeatable: 'yes',
  });
  return rows[0];
}

export interface OutcomeRow {
  execution_id: string;
  partition_key: number;
  public_state: PublicState;
  outcome: TerminalOutcome | null;
  result: unknown;
  failure_message: string | null;
  failure_category: string | null;
  ended_by: string | null;
}

const OUTCOMES = `
SELECT e.execution_id, e.partition_key,
  s.ff_public_state(e.lifecycle_phase, e.eligibility_state, e.terminal_outcome, e.eligible_at_ms, s.ff_now_ms()) AS public_state,
  o.outcome, o.result, o.failure_message, o.failure_category, o.ended_by
FROM s.ff_execution e
LEFT JOIN s.ff_outcome o ON e.lifecycle_phase = 'terminal' AND o.execution_id = e.execution_id
  AND o.partition_key = e.partition_key AND o.attempt_index = e.attempt_index
WHERE e.execution_id = ANY ($1::uuid[])`;

/** How executions stand; those that do not exist are missing. */
export function readOutcomes(database: Database, uuids: readonly string[]): Promise<OutcomeRow[]> {
  return run<OutcomeRow>(database, {
    doing: 'reading results',
    text: OUTCOMES.replaceAll('s.ff_', `${database.prefix}ff_`),
    params: [uuids],
    repeatable: 'yes',
  });
}

/** Milliseconds since 1970: by the engine's clock when there is one, otherwise by the server's. */
export async function readClock(database: Database, source: 'engine' | 'server'): Promise<number> {
  const clock =
    source === 'engine'
      ? `${database.prefix}ff_now_ms()`
      : `(extract(epoch FROM clock_timestamp()) * 1000)::bigint`;
  const rows = await run<{ now: number }>(database, {
    doing: 'reading the clock',
    text: `SELECT ${clock} AS now`,
    params: [],
    repeatable: 'yes',
  });
  return rows[0]!.now;
}
