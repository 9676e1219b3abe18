/**
 * One verb for all executions that fit a filter, chunk by chunk: a page of a list, then the verb on what is on it. Every
 * execution is acted on only as it was listed; one that was claimed or moved since answers `moved`. The time of the
 * beginning goes with the cursor, so that a bulk that is gone on with does not reach for what came later.
 */
import { LIMITS } from '../../contract/limits.ts';
import {
  BULK_STATES,
  type BulkProgress,
  type BulkRequest,
  type ExecutionSummary,
} from '../../contract/operations.ts';
import type { PublicState } from '../../contract/states.ts';
import type { ListConditions } from './lists.sql.ts';
import { cancel } from '../executions/cancel.ts';
import { checkWhole, refuse } from '../kit/checks.ts';
import type { EngineContext } from '../kit/context.ts';
import { decodeText, encodeText, invalidCursor } from '../kit/cursor-text.ts';
import { checkFilter, listPage } from './lists.ts';
import { checkChoice, checkMembers } from '../kit/settings.ts';
import { changePriority, replay } from './verbs.ts';
import { serverTimeMs } from '../executions/reads.ts';

const DEFAULT_CHUNK = 500;

/** What each verb takes besides what all take. */
const VERB_MEMBERS = {
  cancel: ['reason', 'by'],
  replay: ['reason', 'by', 'from'],
  change_priority: ['priority', 'by'],
} as const satisfies Record<BulkRequest['verb'], readonly string[]>;

type Act = (ids: readonly string[], epochs: readonly number[]) => Promise<readonly { outcome: string }[]>;

export async function* bulk(context: EngineContext, request: BulkRequest): AsyncGenerator<BulkProgress> {
  const act = checkVerb(context, request);
  const { chunk = DEFAULT_CHUNK, dryRun = 'off' } = request;
  checkWhole(chunk, 'chunk', 1, LIMITS.bulkChunk);
  checkChoice(dryRun, 'dryRun', ['on', 'off']);
  const filter = checkBulkFilter(request);
  // Acting on nothing checks what the verb is given, also when nothing will be acted on.
  await act([], []);
  const begin = request.cursor === undefined ? null : decodeBegin(request.cursor);
  const beforeMs = begin?.beforeMs ?? (await serverTimeMs(context)) + 1;
  const conditions = boundedBy(filter, beforeMs, request.verb);
  const outcomes: Record<string, number> = {};
  let matched = 0;
  let cursor: string | null | undefined = begin?.cursor;
  do {
    const page = await listPage(context, conditions, chunk, cursor ?? undefined);
    matched += page.executions.length;
    cursor = page.cursor;
    if (dryRun === 'off') await actOn(page.executions, act, outcomes);
    yield {
      matched,
      outcomes: { ...outcomes },
      cursor: cursor === null ? null : encodeText(['bulk', beforeMs, cursor]),
    };
  } while (cursor !== null);
}

/** What came after the beginning is left alone: new executions, and new ends of those that are being replayed. */
function boundedBy(filter: ListConditions, beforeMs: number, verb: BulkRequest['verb']): ListConditions {
  const createdBeforeMs = Math.min(filter.createdBeforeMs ?? beforeMs, beforeMs);
  if (verb !== 'replay') return { ...filter, createdBeforeMs };
  return { ...filter, createdBeforeMs, endedBeforeMs: Math.min(filter.endedBeforeMs ?? beforeMs, beforeMs) };
}

async function actOn(
  executions: readonly ExecutionSummary[],
  act: Act,
  outcomes: Record<string, number>,
): Promise<void> {
  if (executions.length === 0) return;
  const answers = await act(
    executions.map(({ executionId }) => executionId),
    executions.map(({ leaseEpoch }) => leaseEpoch),
  );
  for (const { outcome } of answers) outcomes[outcome] = (outcomes[outcome] ?? 0) + 1;
}

function checkVerb(context: EngineContext, request: BulkRequest): Act {
  const verbs = Object.keys(VERB_MEMBERS);
  if (!verbs.some((verb) => verb === request?.verb)) refuse('verb', `must be one of ${verbs.join(', ')}`);
  const members = VERB_MEMBERS[request.verb];
  checkMembers(request, 'request', ['verb', 'filter', 'cursor', 'chunk', 'dryRun', ...members]);
  const given = Object.fromEntries(
    Object.entries(request).filter(([name]) => members.some((each) => each === name)),
  );
  switch (request.verb) {
    case 'cancel':
      return (ids, epochs) => cancel(context, ids, given as never, epochs);
    case 'replay':
      return (ids, epochs) => replay(context, ids, given as never, epochs);
    case 'change_priority':
      return (ids, epochs) => changePriority(context, ids, given as never, epochs);
  }
}

/** All executions are too many to be meant by leaving the filter out. */
function checkBulkFilter(request: BulkRequest): ListConditions {
  const given = checkFilter(request.filter);
  if (Object.values(given).every((condition) => condition === null)) {
    refuse('filter', 'must have at least one condition');
  }
  const filter = { ...given, states: checkBulkStates(request.verb, given.states) };
  // Those that have the priority already need none, and one that was moved down the queue is not met again there.
  return request.verb === 'change_priority' ? { ...filter, exceptPriority: request.priority } : filter;
}

/** The states that are meant, written out: a cursor is good for these, whether the filter names them or not. */
function checkBulkStates(
  verb: BulkRequest['verb'],
  given: readonly PublicState[] | null,
): readonly PublicState[] {
  const { allowed, meant } = BULK_STATES[verb];
  const states = given ?? meant;
  if (states === null) {
    const ends = allowed.join(', ');
    refuse(
      'filter.states',
      `must say which ends are meant, of ${ends}: what succeeded is not run again by accident`,
    );
  }
  const other = states.find((state) => !allowed.includes(state));
  if (other !== undefined) {
    refuse('filter.states', `names ${other}, but ${verb} is only about ${allowed.join(', ')}`);
  }
  return states;
}

function decodeBegin(cursor: string): { beforeMs: number; cursor: string } {
  const [name, beforeMs, listCursor] = decodeText(cursor);
  if (name !== 'bulk' || !Number.isSafeInteger(beforeMs) || typeof listCursor !== 'string') {
    throw invalidCursor('is not one of a bulk');
  }
  return { beforeMs: beforeMs as number, cursor: listCursor };
}
