/**
 * The operator's verbs on executions: replay them, move them in the queue, tag them. Outcomes are in the order of the
 * ids. With epochs, an execution that was claimed or moved since is left alone, with the outcome `moved`.
 */
import { TRACE_TAGS } from '../../contract/trace-context.ts';
import { formatExecutionId, parseExecutionId } from '../../contract/ids.ts';
import { choice, list, string, stringOr, whole } from '../../contract/shape/kinds.ts';
import { LIMITS } from '../../contract/limits.ts';
import { fault, faultAt, refuse, shape } from '../../contract/shape/shape.ts';
import type {
  PriorityOutcome,
  PriorityRequest,
  ReplayOutcome,
  ReplayRequest,
  TagsOutcome,
  TagsRequest,
} from '../../contract/operations.ts';
import type { StepKey } from '../../contract/steps.ts';
import type { ExpectedKey } from '../executions/executions.sql.ts';
import {
  changePriorities,
  replayExecutions,
  setTags as storeTags,
  type PriorityAnswer,
  type ReplayAnswer,
} from './verbs.sql.ts';
import { announce } from '../kit/announce.ts';
import type { EngineContext } from '../kit/context.ts';
import { actorName, reasonText, tagMap, tagsJson } from '../kit/kinds.ts';
import { eachOnce } from '../kit/keys.ts';

const DEFAULT_MAX_REPLAYS = 10;
const RESERVED = fault('is reserved for the trace of the submit');

const stepKey = shape<StepKey>({
  name: string(LIMITS.stepNameBytes),
  key: string(LIMITS.stepKeyBytes, 0).optional(),
});
const stepNamed = stringOr(string(LIMITS.stepNameBytes), stepKey);

/** The keys of each verb's request; a bulk request has them too. */
export const replayFields = {
  from: choice(['failed_step', 'start']).optional(),
  fromStep: stepNamed.optional(),
  reason: reasonText,
  by: actorName.optional(),
};
export const priorityFields = { priority: whole(0, LIMITS.priority), by: actorName.optional() };

const replayRequest = shape<ReplayRequest>(replayFields).and(({ from, fromStep }) =>
  from === undefined || fromStep === undefined
    ? undefined
    : faultAt('.fromStep', fault('cannot be combined with request.from')),
);
const priorityRequest = shape<PriorityRequest>(priorityFields);
const tagsRequest = shape<TagsRequest>({
  set: tagMap
    .and((set) => {
      const reserved = TRACE_TAGS.find((name) => name in set);
      return reserved === undefined ? undefined : faultAt(`.${reserved}`, RESERVED);
    })
    .optional(),
  remove: list(string(LIMITS.tagKeyBytes), LIMITS.tags).optional(),
  by: actorName.optional(),
});

export async function replay(
  context: EngineContext,
  executionIds: readonly string[],
  request: ReplayRequest,
  epochs?: readonly number[],
): Promise<ReplayOutcome[]> {
  const { from, fromStep, reason, by = 'operator' } = replayRequest.check(request, 'request', '');
  const call = {
    fromStart: from === 'start',
    fromStep: typeof fromStep === 'string' ? { name: fromStep } : fromStep,
    reason,
    actor: by,
    defaultMaxReplays: DEFAULT_MAX_REPLAYS,
  };
  return eachOnce(executionIds, epochs, toReplayOutcome, async (keys) => {
    const rows = await replayExecutions(context.database, keys, call);
    announce(context, rows);
    return rows;
  });
}

function toReplayOutcome({ uuid, partition }: ExpectedKey, row: ReplayAnswer): ReplayOutcome {
  const executionId = formatExecutionId(partition, uuid);
  switch (row.outcome) {
    case 'not_terminal':
      return { executionId, outcome: row.outcome, lifecyclePhase: row.lifecyclePhase };
    case 'replayed':
    case 'replays_exhausted':
      return { executionId, outcome: row.outcome, replayCount: row.replayCount };
    default:
      return { executionId, outcome: row.outcome };
  }
}

export async function changePriority(
  context: EngineContext,
  executionIds: readonly string[],
  request: PriorityRequest,
  epochs?: readonly number[],
): Promise<PriorityOutcome[]> {
  const { priority, by = 'operator' } = priorityRequest.check(request, 'request', '');
  return eachOnce(executionIds, epochs, toPriorityOutcome, async (keys) => {
    const rows = await changePriorities(context.database, keys, priority, by);
    announce(context, rows);
    return rows;
  });
}

function toPriorityOutcome({ uuid, partition }: ExpectedKey, row: PriorityAnswer): PriorityOutcome {
  const executionId = formatExecutionId(partition, uuid);
  return row.outcome === 'changed'
    ? { executionId, outcome: 'changed', oldPriority: row.oldPriority }
    : { executionId, outcome: row.outcome };
}

export async function setTags(
  context: EngineContext,
  executionId: string,
  request: TagsRequest,
): Promise<TagsOutcome> {
  const key = parseExecutionId(executionId);
  const { set = {}, remove: removed = [], by = 'operator' } = tagsRequest.check(request, 'request', '');
  const call = { set: tagsJson(set, 'set'), removed, maxTags: LIMITS.tags, actor: by };
  const answer = await storeTags(context.database, key, call);
  if (answer.outcome === 'not_found') return { outcome: 'not_found' };
  if (answer.outcome === 'too_many') {
    refuse('set', `would give the execution more than ${LIMITS.tags} tags`, 'too_many');
  }
  return { outcome: 'set', tags: answer.tags ?? {} };
}
