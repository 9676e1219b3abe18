/**
 * Ends executions from outside. A running one loses its lease in the same transaction, and its worker is told.
 */
import { formatExecutionId, parseExecutionId } from '../contract/ids.ts';
import { LIMITS } from '../contract/limits.ts';
import type { CancelOutcome, OperatorNote } from '../contract/engine.ts';
import { cancelExecutions, type ExecutionKey, type TakenAnswer } from '../store/executions.ts';
import { checkList, checkText } from './checks.ts';
import type { EngineContext } from './context.ts';
import { ringForTaken } from './leases.ts';
import { inOrder } from './refusals.ts';

export async function cancel(
  context: EngineContext,
  executionIds: readonly string[],
  note: OperatorNote,
): Promise<CancelOutcome[]> {
  checkList(executionIds, 'executionIds', LIMITS.idBatch);
  const keys = executionIds.map((id, index) => parseExecutionId(id, `executionIds[${index}]`));
  const reason = checkText(note?.reason, 'reason', LIMITS.reasonBytes);
  const actor = checkText(note.by ?? 'operator', 'by', LIMITS.reasonBytes);
  const answers = new Map<string, TakenAnswer>();
  for (const round of rounds(keys)) {
    const rows = await cancelExecutions(context.database, round, reason, actor);
    ringForTaken(context, rows, 'cancelled');
    inOrder(round, rows).forEach((row, index) => answers.set(nameOf(round[index]!), row));
  }
  return keys.map((key) => toOutcome(key, answers.get(nameOf(key))!));
}

function nameOf(key: ExecutionKey): string {
  return formatExecutionId(key.partition, key.uuid);
}

/** Each id once, and no uuid twice in one statement: an id with a wrong partition goes into a statement of its own. */
function rounds(keys: readonly ExecutionKey[]): ExecutionKey[][] {
  const made: Map<string, ExecutionKey>[] = [];
  for (const key of new Map(keys.map((each) => [nameOf(each), each])).values()) {
    let round = made.find((taken) => !taken.has(key.uuid));
    if (round === undefined) made.push((round = new Map()));
    round.set(key.uuid, key);
  }
  return made.map((round) => [...round.values()]);
}

function toOutcome(key: ExecutionKey, row: TakenAnswer): CancelOutcome {
  const executionId = formatExecutionId(key.partition, key.uuid);
  if (row.outcome === 'not_active') {
    return { executionId, outcome: 'not_active', terminalOutcome: row.terminal_outcome };
  }
  return { executionId, outcome: row.outcome as 'cancelled' | 'already_cancelled' | 'not_found' };
}
