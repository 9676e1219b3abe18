/**
 * Ends executions from outside. A running one loses its lease in the same transaction, and its worker is told.
 */
import { formatExecutionId, parseExecutionId, type ExecutionId } from '../contract/ids.ts';
import { LIMITS } from '../contract/limits.ts';
import type { CancelOutcome, OperatorNote } from '../contract/engine.ts';
import { cancelExecutions, type ExecutionKey, type TakenAnswer } from '../store/executions.ts';
import { checkList, checkText } from './checks.ts';
import type { EngineContext } from './context.ts';
import { ringForTaken } from './leases.ts';
import { inOrder } from './refusals.ts';

export async function cancel(
  context: EngineContext,
  executionIds: readonly ExecutionId[],
  note: OperatorNote,
): Promise<CancelOutcome[]> {
  checkList(executionIds, 'executionIds', LIMITS.idBatch);
  const keys = executionIds.map((id, index) => parseExecutionId(id, `executionIds[${index}]`));
  const reason = checkText(note?.reason, 'reason', LIMITS.reasonBytes);
  const actor = checkText(note.by ?? 'operator', 'by', LIMITS.reasonBytes);
  const distinct = [...new Map(keys.map((key) => [key.uuid, key])).values()];
  if (distinct.length === 0) return [];
  const answers = await cancelExecutions(context.database, distinct, reason, actor);
  ringForTaken(context, answers, 'cancelled');
  return inOrder(keys, answers).map((row, index) => toOutcome(keys[index]!, row));
}

function toOutcome(key: ExecutionKey, row: TakenAnswer): CancelOutcome {
  const executionId = formatExecutionId(key.partition, key.uuid);
  if (row.outcome === 'not_active') {
    return { executionId, outcome: 'not_active', terminalOutcome: row.terminal_outcome };
  }
  return { executionId, outcome: row.outcome as 'cancelled' | 'already_cancelled' | 'not_found' };
}
