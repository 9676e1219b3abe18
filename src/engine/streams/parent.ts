/**
 * What a child does to the document of its parent: inside a step, applied in the commit that records the step.
 */
import type { Json } from '../../contract/json.ts';
import { LIMITS } from '../../contract/limits.ts';
import type { LeaseRef } from '../../contract/protocol.ts';
import { list, parsed, string, whole } from '../../contract/shape/kinds.ts';
import { refuse, shape } from '../../contract/shape/shape.ts';
import type { RecordOutcome } from '../../contract/steps.ts';
import type { ParentChange, ParentState, ParentStep } from '../../contract/streams.ts';
import { encodeJson } from '../../model/json.ts';
import { checkParentChange } from '../../model/parent-changes.ts';
import { leaseKey, toRefusal } from '../kit/answers.ts';
import { announce } from '../kit/announce.ts';
import type { EngineContext } from '../kit/context.ts';
import { readParentEnded, recordForParent as recordRow } from './parent.sql.ts';

const parentStep = shape<ParentStep>({
  name: string(LIMITS.stepNameBytes),
  key: string(LIMITS.stepKeyBytes, 0).optional(),
  value: parsed.optional(),
  durationMs: whole(0, LIMITS.stepDurationMs).optional(),
});
const changeList = list(parsed, LIMITS.appendPatches, 1);

export async function readParent(context: EngineContext, lease: LeaseRef): Promise<ParentState> {
  const hasEnded = await readParentEnded(context.database, leaseKey(lease, 'lease'));
  if (hasEnded === undefined || hasEnded === null) return 'none';
  return hasEnded ? 'not_active' : 'active';
}

export async function recordForParent(
  context: EngineContext,
  lease: LeaseRef,
  step: ParentStep,
  changes: readonly ParentChange[],
): Promise<RecordOutcome> {
  const { name, key = '', value = null, durationMs = null } = parentStep.check(step, 'step');
  changeList.check(changes, 'changes');
  changes.forEach((change, index) => checkParentChange(change, `changes[${index}]`));
  const row = {
    ...leaseKey(lease, 'lease'),
    name,
    key,
    durationMs,
    value: encodeJson(value, 'step.value'),
    changes: encodeJson(changes, 'changes')!,
  };
  const answer = await recordRow(context.database, row, LIMITS.documentBytes);
  if ((answer.outcome as string) === 'document_too_large')
    refuse('changes', `make the document larger than ${LIMITS.documentBytes} bytes`, 'payload_too_large');
  if (answer.outcome !== 'recorded') return toRefusal(answer);
  if (answer.parentId !== null) announce(context, [{ outcome: 'appended', uuid: answer.parentId }]);
  const stored = { kind: 'step', name, key, value: answer.value as Json, end: null, dueInMs: null } as const;
  return { outcome: 'recorded', repeated: answer.repeated, step: stored };
}
