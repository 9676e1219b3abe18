/**
 * Reads of one execution: its snapshot and its result. Also reads the clock that all its times come from.
 */
import { parseExecutionId } from '../../contract/ids.ts';
import type { ExecutionResult, ExecutionSnapshot } from '../../contract/executions.ts';
import type { Json } from '../../contract/json.ts';
import { readClock, readOutcomes, readPayload, readSnapshot, type StoredOutcome } from './reads.sql.ts';
import type { EngineContext } from '../kit/context.ts';

export async function readSnapshotOf(
  context: EngineContext,
  executionId: string,
): Promise<ExecutionSnapshot | null> {
  return (await readSnapshot(context.database, parseExecutionId(executionId))) ?? null;
}

/** Null also when there is no such execution. */
export async function readInput(context: EngineContext, executionId: string): Promise<Json> {
  return (await readPayload(context.database, parseExecutionId(executionId)))?.payload ?? null;
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
  state,
  result: value,
  message,
  category,
  by,
}: StoredOutcome): ExecutionResult {
  if (outcome === null || outcome === 'none') return { outcome: 'pending', state };
  return outcome === 'success' ? { outcome, result: value } : { outcome, message, category, by };
}
