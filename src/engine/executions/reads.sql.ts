/**
 * Reads of one execution. Plain statements without locks: what they return was true when they ran.
 */
import type { ExecutionResult, ExecutionSnapshot } from '../../contract/executions.ts';
import type { Json } from '../../contract/json.ts';
import { LIMITS } from '../../contract/limits.ts';
import type { TerminalOutcome } from '../../contract/states.ts';
import type { Redaction } from '../../contract/redaction.ts';
import { columns, idText, inSchema, partOf, withColumns } from '../database/columns.ts';
import { run, type Database } from '../database/database.ts';
import type { ExecutionKey } from './executions.sql.ts';
import { REDACTION } from './redaction.sql.ts';

/** Attempts shown by one read: the last ones. */
const MAX_ATTEMPTS_SHOWN = 1_000;

/** For the execution `e`. */
const PUBLIC_STATE =
  's.ff_public_state(e.lifecycle_phase, e.eligibility_state, e.terminal_outcome, e.eligible_at_ms, s.ff_now_ms())';

/** The detail of a failure may be large: only the last attempts have it. */
const ATTEMPTS = `coalesce((SELECT jsonb_agg(jsonb_build_object('attemptIndex', h.attempt_index, 'outcome', h.outcome,
     'workerInstanceId', h.worker_instance_id, 'startedAtMs', h.started_at_ms, 'endedAtMs', h.ended_at_ms,
     'failureMessage', h.failure_message, 'failureCategory', h.failure_category, 'failureDetail',
     CASE WHEN h.attempt_index > e.attempt_index - ${LIMITS.describedDetails} THEN h.failure_detail END) ORDER BY h.attempt_index)
   FROM (SELECT * FROM s.ff_attempt_history a WHERE a.execution_id = e.execution_id
         AND a.partition_key = e.partition_key AND a.started_at_ms IS NOT NULL ORDER BY a.attempt_index DESC LIMIT ${MAX_ATTEMPTS_SHOWN}) h), '[]')`;

const SETBACKS = `coalesce((SELECT jsonb_agg(jsonb_build_object('reconciler', x.reconciler, 'failures', x.failures,
     'errorCode', x.error_code) ORDER BY x.reconciler)
   FROM s.ff_setback x WHERE (e.lifecycle_phase <> 'terminal' OR x.reconciler = 'retention')
     AND x.execution_id = e.execution_id AND x.partition_key = e.partition_key), '[]')`;

const SNAPSHOT = columns<ExecutionSnapshot>({
  executionId: idText('e.partition_key', 'e.execution_id'),
  state: PUBLIC_STATE,
  stateVector: `jsonb_build_object(
    'lifecyclePhase', e.lifecycle_phase, 'ownershipState', e.ownership_state, 'eligibilityState', e.eligibility_state,
    'blockingReason', e.blocking_reason, 'terminalOutcome', e.terminal_outcome, 'attemptState', e.attempt_state)`,
  kind: 'r.kind',
  lane: 'r.lane',
  namespace: 'e.namespace',
  priority: 'e.priority',
  capabilities: 'r.capabilities',
  tags: 'e.tags',
  createdAtMs: 'e.created_at_ms',
  startedAtMs: 'e.started_at_ms',
  changedAtMs: 'e.changed_at_ms',
  eligibleAtMs: 'e.eligible_at_ms',
  deadlineAtMs: 'e.deadline_at_ms',
  endedAtMs: 'o.ended_at_ms',
  attemptIndex: 'e.attempt_index',
  leaseEpoch: 'e.lease_epoch',
  retryCount: 'e.retry_count',
  reclaimCount: 'e.reclaim_count',
  replayCount: 'e.replay_count',
  lease: `(SELECT jsonb_build_object('leaseId', s.ff_lease_id(e.execution_id, e.lease_epoch), 'workerId', g.worker_id,
     'workerInstanceId', g.worker_instance_id, 'acquiredAtMs', g.acquired_at_ms, 'expiresAtMs', e.lease_expires_at_ms,
     'renewals', e.renewals)
   FROM s.ff_grant g WHERE g.claim_no = e.claim_no)`,
  attempts: ATTEMPTS,
  progress: `(SELECT jsonb_build_object('percent', p.percent, 'message', p.message, 'reportedAtMs', p.reported_at_ms)
   FROM s.ff_progress p WHERE p.execution_id = e.execution_id)`,
  stepCount: '(SELECT count(*) FROM s.ff_step t WHERE t.execution_id = e.execution_id AND t.retired_by = 0)',
  parentId: idText('e.partition_key', 'e.parent_id'),
  // A flow and its members have one partition.
  flowId: idText('e.partition_key', 'e.flow_id'),
  key: '(SELECT k.key FROM s.ff_key k WHERE k.execution_id = e.execution_id)',
  setbacks: SETBACKS,
});

const SNAPSHOT_REDACTED = withColumns(SNAPSHOT, REDACTION);

/** As it is stored, and what to hide of it. */
export async function readSnapshot(
  database: Database,
  key: ExecutionKey,
): Promise<{ snapshot: ExecutionSnapshot; redaction: Redaction | null } | undefined> {
  const rows = await run(database, {
    doing: 'describing an execution',
    columns: SNAPSHOT_REDACTED,
    text: inSchema(
      database,
      `SELECT ${SNAPSHOT_REDACTED.list}
       FROM s.ff_execution e
       JOIN s.ff_route r ON r.route_id = e.route_id
       LEFT JOIN s.ff_attempt_history o ON e.lifecycle_phase = 'terminal' AND o.execution_id = e.execution_id
         AND o.partition_key = e.partition_key AND o.attempt_index = e.attempt_index
       WHERE e.execution_id = $1 AND e.partition_key = $2`,
    ),
    params: [key.uuid, key.partition],
    repeatable: 'yes',
  });
  return rows[0] && { snapshot: partOf(SNAPSHOT, rows[0]), redaction: rows[0].redaction };
}

const PAYLOAD = columns<{ payload: Json }>({
  payload: 's.ff_payload_of(payload, execution_id)',
});

export async function readPayload(
  database: Database,
  key: ExecutionKey,
): Promise<{ payload: Json } | undefined> {
  const rows = await run(database, {
    doing: 'reading an input',
    columns: PAYLOAD,
    text: inSchema(
      database,
      `SELECT ${PAYLOAD.list} FROM s.ff_execution WHERE execution_id = $1 AND partition_key = $2`,
    ),
    params: [key.uuid, key.partition],
    repeatable: 'yes',
  });
  return rows[0];
}

type Failed = Extract<ExecutionResult, { message: unknown }>;

/** The outcome of an execution; null while it has not finished. */
export type StoredOutcome = ExecutionKey &
  Pick<ExecutionSnapshot, 'state'> &
  Omit<Failed, 'outcome'> & { outcome: TerminalOutcome | null; result: Json; redaction: Redaction | null };

/** A message ends up in errors and logs: it is never revealed here. */
const OUTCOME_SHOWN = columns<Omit<StoredOutcome, 'redaction'>>({
  uuid: 'e.execution_id',
  partition: 'e.partition_key',
  state: PUBLIC_STATE,
  outcome: 'o.terminal_outcome',
  result: 'o.result',
  message: 's.ff_shown_text(e.traits, o.outcome, o.failure_message)',
  category: 'o.failure_category',
  by: 'coalesce(o.ended_by, o.worker_instance_id)',
});
const OUTCOME = withColumns(OUTCOME_SHOWN, REDACTION);

/** The outcomes of executions; those that do not exist are missing. */
export function readOutcomes(database: Database, uuids: readonly string[]): Promise<StoredOutcome[]> {
  return run(database, {
    doing: 'reading results',
    columns: OUTCOME,
    text: inSchema(
      database,
      `SELECT ${OUTCOME.list}
       FROM s.ff_execution e
       LEFT JOIN s.ff_attempt_history o ON e.lifecycle_phase = 'terminal' AND o.execution_id = e.execution_id
         AND o.partition_key = e.partition_key AND o.attempt_index = e.attempt_index
       WHERE e.execution_id = ANY ($1::uuid[])`,
    ),
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
