/**
 * Reads of one execution: what it is and how it stands, and how it ended. And of the clock all its times are by.
 */
import { formatExecutionId, parseExecutionId } from '../../contract/ids.ts';
import type { ExecutionResult, ExecutionSnapshot } from '../../contract/executions.ts';
import type { Json } from '../../contract/json.ts';
import { readClock, readOutcomes, readSnapshot, type OutcomeRow } from './reads.sql.ts';
import type { EngineContext } from '../kit/context.ts';

export async function describe(
  context: EngineContext,
  executionId: string,
): Promise<ExecutionSnapshot | null> {
  const key = parseExecutionId(executionId);
  const row = await readSnapshot(context.database, key);
  if (row === undefined) return null;
  return {
    executionId: formatExecutionId(key.partition, key.uuid),
    publicState: row.public_state,
    state: row.state,
    kind: row.kind,
    lane: row.lane,
    namespace: row.namespace,
    priority: row.priority,
    capabilities: row.capabilities,
    tags: row.tags,
    createdAtMs: row.created_at_ms,
    startedAtMs: row.started_at_ms,
    changedAtMs: row.changed_at_ms,
    eligibleAtMs: row.eligible_at_ms,
    deadlineAtMs: row.deadline_at_ms,
    endedAtMs: row.ended_at_ms,
    attemptIndex: row.attempt_index,
    leaseEpoch: row.lease_epoch,
    retryCount: row.retry_count,
    reclaimCount: row.reclaim_count,
    replayCount: row.replay_count,
    lease: row.lease,
    attempts: row.attempts,
    progress: row.progress,
    stepCount: row.step_count,
    flowId: row.flow_id === null ? null : formatExecutionId(key.partition, row.flow_id),
    parentId: row.parent_id === null ? null : formatExecutionId(row.parent_partition ?? 0, row.parent_id),
    setbacks: row.setbacks,
  };
}

export function serverTimeMs(context: EngineContext): Promise<number> {
  return readClock(context.database, 'engine');
}

export async function result(context: EngineContext, executionId: string): Promise<ExecutionResult> {
  const key = parseExecutionId(executionId);
  const row = (await readOutcomes(context.database, [key.uuid]))[0];
  if (row === undefined || row.partition_key !== key.partition) return { outcome: 'not_found' };
  return toResult(row);
}

export function toResult(row: OutcomeRow): ExecutionResult {
  switch (row.outcome) {
    case null:
    case 'none':
      return { outcome: 'pending', publicState: row.public_state };
    case 'success':
      return { outcome: 'success', result: row.result as Json };
    default:
      return {
        outcome: row.outcome,
        message: row.failure_message,
        category: row.failure_category,
        by: row.ended_by,
      };
  }
}
