/**
 * An operator's verbs on executions: run them again, move them in the queue, label them. Each takes a list and answers
 * in its order. With epochs, one that was claimed or moved since is left alone and answers `moved`.
 */
import { TRACE_TAGS } from '../../contract/trace-context.ts';
import { formatExecutionId, parseExecutionId } from '../../contract/ids.ts';
import { LIMITS } from '../../contract/limits.ts';
import type {
  PriorityOutcome,
  PriorityRequest,
  ReplayOutcome,
  ReplayRequest,
  TagsOutcome,
  TagsRequest,
} from '../../contract/operations.ts';
import type { ExpectedKey } from '../executions/executions.sql.ts';
import {
  changePriorities,
  replayExecutions,
  setTags as storeTags,
  type PriorityAnswer,
  type ReplayAnswer,
} from './verbs.sql.ts';
import { announce } from '../kit/announce.ts';
import { checkList, checkTags, checkText, checkWhole, refuse } from '../kit/checks.ts';
import type { EngineContext } from '../kit/context.ts';
import { checkChoice, checkMembers } from '../kit/settings.ts';
import { eachOnce } from '../kit/keys.ts';

const DEFAULT_MAX_REPLAYS = 10;

export async function replay(
  context: EngineContext,
  executionIds: readonly string[],
  request: ReplayRequest,
  epochs?: readonly number[],
): Promise<ReplayOutcome[]> {
  checkMembers(request, 'request', ['from', 'reason', 'by']);
  checkChoice(request.from, 'from', ['failed_step', 'start']);
  const call = {
    fromStart: request.from === 'start',
    reason: checkText(request.reason, 'reason', LIMITS.reasonBytes),
    actor: actorOf(request),
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
  checkMembers(request, 'request', ['priority', 'by']);
  const priority = checkWhole(request.priority, 'priority', 0, LIMITS.priority);
  const actor = actorOf(request);
  return eachOnce(executionIds, epochs, toPriorityOutcome, async (keys) => {
    const rows = await changePriorities(context.database, keys, priority, actor);
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
  checkMembers(request, 'request', ['set', 'remove', 'by']);
  const set = checkTags(request.set ?? {}, 'set');
  for (const name of TRACE_TAGS)
    if (name in set) refuse(`set.${name}`, 'is kept for the trace of the submit');
  const removed = checkList(request.remove ?? [], 'remove', LIMITS.tags).map((name, index) =>
    checkText(name, `remove[${index}]`, LIMITS.tagKeyBytes),
  );
  const call = { set: JSON.stringify(set), removed, maxTags: LIMITS.tags, actor: actorOf(request) };
  const answer = await storeTags(context.database, key, call);
  if (answer.outcome === 'not_found') return { outcome: 'not_found' };
  if (answer.outcome === 'too_many') {
    refuse('set', `would give the execution more than ${LIMITS.tags} tags`, 'too_many');
  }
  return { outcome: 'set', tags: answer.tags ?? {} };
}

function actorOf(request: { by?: string }): string {
  return checkText(request.by ?? 'operator', 'by', LIMITS.reasonBytes);
}
