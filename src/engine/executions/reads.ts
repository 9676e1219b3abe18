/**
 * Reads of one execution: its snapshot and its result. Also reads the clock that all its times come from.
 */
import { parseExecutionId } from '../../contract/ids.ts';
import type { ExecutionResult, ExecutionSnapshot } from '../../contract/executions.ts';
import { readClock, readOutcomes, readSnapshot, type StoredOutcome } from './reads.sql.ts';
import type { EngineContext } from '../kit/context.ts';

export async function describe(
  context: EngineContext,
  executionId: string,
): Promise<ExecutionSnapshot | null> {
  return (await readSnapshot(context.database, parseExecutionId(executionId))) ?? null;
}

export function serverTimeMs(context: EngineContext): Promise<number> {
  return readClock(context.database, 'engine');
}

export async function result(context: EngineContext, executionId: string): Promise<ExecutionResult> {
  const key = parseExecutionId(executionId);
  const row = (await readOutcomes(context.database, [key.uuid]))[0];
  if (row === undefined || row.partition !== key.partition) return { outcome: 'not_found' };
  return toResult(row);
}

export function toResult({
  outcome,
  publicState,
  result: value,
  message,
  category,
  by,
}: StoredOutcome): ExecutionResult {
  if (outcome === null || outcome === 'none') return { outcome: 'pending', publicState };
  return outcome === 'success' ? { outcome, result: value } : { outcome, message, category, by };
}
