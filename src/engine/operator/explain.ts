/**
 * Explains why an execution is in its state: reads the facts and lets the model judge them. Changes nothing.
 */
import { formatExecutionId, parseExecutionId } from '../../contract/ids.ts';
import type { Explanation } from '../../contract/operations.ts';
import { judgeGates, LIVE_WITHIN_MS } from '../../model/gates/gates.ts';
import { readForExplain } from './explain.sql.ts';
import { readHolders } from '../database/held.ts';
import type { EngineContext } from '../kit/context.ts';

export async function explain(context: EngineContext, executionId: string): Promise<Explanation> {
  const key = parseExecutionId(executionId);
  const found = await readForExplain(context.database, key, LIVE_WITHIN_MS);
  if (found === undefined) return { outcome: 'not_found' };
  const sessions = await readHolders(context.database, [key.uuid]);
  const gates = judgeGates({ ...found, sessions });
  return {
    outcome: 'explained',
    executionId: formatExecutionId(key.partition, key.uuid),
    state: found.publicState,
    holding: gates.find(({ holds }) => holds) ?? null,
    gates,
  };
}
