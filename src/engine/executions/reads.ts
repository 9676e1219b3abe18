/**
 * Reads of one execution: its snapshot and its result. Also reads the clock that all its times come from.
 */
import { parseExecutionId } from '../../contract/ids.ts';
import type {
  ExecutionEnd,
  ExecutionResult,
  ExecutionSnapshot,
  WaitOptions,
} from '../../contract/executions.ts';
import type { Json } from '../../contract/json.ts';
import type { Redaction, RevealOptions } from '../../contract/redaction.ts';
import { abortSignal, flag } from '../../contract/shape/kinds.ts';
import { shape } from '../../contract/shape/shape.ts';
import { shownValue } from '../../model/redaction.ts';
import { readClock, readOutcomes, readPayload, readSnapshot, type StoredOutcome } from './reads.sql.ts';
import { redactionOf } from './redaction.ts';
import type { EngineContext } from '../kit/context.ts';

/** As it is stored, and what to hide of it. */
export async function readSnapshotOf(
  context: EngineContext,
  executionId: string,
): Promise<{ snapshot: ExecutionSnapshot; redaction: Redaction | null } | null> {
  return (await readSnapshot(context.database, parseExecutionId(executionId))) ?? null;
}

/** Null also when there is no such execution. */
export async function readInput(
  context: EngineContext,
  executionId: string,
  redaction: Redaction | null,
): Promise<Json> {
  const found = await readPayload(context.database, parseExecutionId(executionId));
  if (found === undefined || redaction === null) return found?.payload ?? null;
  return shownValue(found.payload, redaction);
}

export function serverTimeMs(context: EngineContext): Promise<number> {
  return readClock(context.database, 'engine');
}

const revealOptions = shape<RevealOptions>({ reveal: flag.optional() });

export async function result(
  context: EngineContext,
  executionId: string,
  options: RevealOptions = {},
): Promise<ExecutionResult> {
  const key = parseExecutionId(executionId);
  const { reveal = false } = revealOptions.check(options, 'options');
  const row = (await readOutcomes(context.database, [key.uuid]))[0];
  if (row === undefined || row.partition !== key.partition) return { outcome: 'not_found' };
  return shownEnd(toResult(row), reveal ? null : row.redaction);
}

const waitOptions = shape<WaitOptions & RevealOptions>({
  signal: abortSignal.optional(),
  reveal: flag.optional(),
});

/** Waits as the engine does, and reads what to hide of a result. */
export async function wait(
  context: EngineContext,
  executionId: string,
  options: WaitOptions & RevealOptions = {},
): Promise<ExecutionEnd> {
  const { reveal = false, signal } = waitOptions.check(options, 'options');
  const end = await context.ends.wait(executionId, signal === undefined ? {} : { signal });
  if (end.outcome !== 'success') return end;
  return shownEnd(end, await redactionOf(context, parseExecutionId(executionId), reveal));
}

function shownEnd<End extends ExecutionResult>(end: End, redaction: Redaction | null): End {
  if (redaction === null || end.outcome !== 'success') return end;
  return { ...end, result: shownValue(end.result, redaction) };
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
