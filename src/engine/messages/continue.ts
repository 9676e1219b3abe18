/**
 * Continues an execution as a new run under the same id.
 */
import type { LastOf } from '../../contract/described.ts';
import { parseExecutionId } from '../../contract/ids.ts';
import { LIMITS } from '../../contract/limits.ts';
import type { ContinueOutcome, RunSummary } from '../../contract/messages.ts';
import type { LeaseRef } from '../../contract/protocol.ts';
import { encodeJson } from '../../model/json.ts';
import { announce } from '../kit/announce.ts';
import { leaseKey, toRefusal } from '../kit/answers.ts';
import type { EngineContext } from '../kit/context.ts';
import { continueExecution, readRuns } from './messages.sql.ts';

export async function continueAs(
  context: EngineContext,
  lease: LeaseRef,
  input?: unknown,
): Promise<ContinueOutcome> {
  const key = leaseKey(lease, 'lease');
  const answer = await continueExecution(context.database, {
    ...key,
    input: encodeJson(input ?? null, 'input')!,
    keptRuns: LIMITS.runSummaries,
    idMs: LIMITS.messageIdMs,
    part: LIMITS.runPart,
  });
  announce(context, [{ ...answer, uuid: key.uuid }]);
  return answer.outcome === 'run_continued'
    ? { outcome: 'continued', repeated: answer.repeated }
    : toRefusal(answer);
}

/** For `describe`. All that are kept are few. */
export async function listRuns(context: EngineContext, executionId: string): Promise<LastOf<RunSummary>> {
  const rows = await readRuns(context.database, parseExecutionId(executionId));
  const items = rows.map((row) => ({ ...row, run: BigInt(row.run) }));
  return { items, truncated: items.length > 0 && items[0]!.run > 1n };
}
