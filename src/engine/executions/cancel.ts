/**
 * Cancels executions. A running one loses its lease in the same transaction, and its worker is notified.
 */
import { formatExecutionId } from '../../contract/ids.ts';
import type { CancelOutcome, OperatorNote } from '../../contract/executions.ts';
import { shape } from '../../contract/shape/shape.ts';
import type { ExpectedKey } from './executions.sql.ts';
import { cancelExecutions, type TakenAnswer } from './taking.sql.ts';
import { announce } from '../kit/announce.ts';
import type { EngineContext } from '../kit/context.ts';
import { actorName, reasonText } from '../kit/kinds.ts';
import { eachOnce } from '../kit/keys.ts';

const operatorNote = shape<OperatorNote>({ reason: reasonText, by: actorName.optional() });

export async function cancel(
  context: EngineContext,
  executionIds: readonly string[],
  note: OperatorNote,
  epochs?: readonly number[],
): Promise<CancelOutcome[]> {
  const { reason, by = 'operator' } = operatorNote.check(note, 'note', '');
  return eachOnce(executionIds, epochs, toOutcome, async (keys) => {
    const rows = await cancelExecutions(context.database, keys, reason, by);
    announce(context, rows);
    return rows;
  });
}

function toOutcome({ uuid, partition }: ExpectedKey, row: TakenAnswer): CancelOutcome {
  const executionId = formatExecutionId(partition, uuid);
  if (row.outcome === 'not_active') {
    return { executionId, outcome: 'not_active', terminalOutcome: row.terminalOutcome };
  }
  return { executionId, outcome: row.outcome as 'cancelled' | 'already_cancelled' | 'moved' | 'not_found' };
}
