/**
 * Applies one verb to all executions that match a filter, chunk by chunk: a page of a list, then the verb on its
 * executions. Each is acted on only in the state it was listed in; one that was claimed or moved since has the outcome
 * `moved`. The cursor contains the start time, so that a resumed bulk does not touch what came later.
 */
import { choice, parsed, whole } from '../../contract/shape/kinds.ts';
import { LIMITS } from '../../contract/limits.ts';
import { refuse, shape, variants } from '../../contract/shape/shape.ts';
import {
  BULK_STATES,
  type BulkProgress,
  type BulkRequest,
  type ExecutionSummary,
} from '../../contract/operations.ts';
import type { PublicState } from '../../contract/states.ts';
import type { ListConditions } from './lists.sql.ts';
import { cancel } from '../executions/cancel.ts';
import type { EngineContext } from '../kit/context.ts';
import { decodeText, encodeText, invalidCursor } from '../kit/cursor-text.ts';
import { actorName, reasonText } from '../kit/kinds.ts';
import { conditionsOf, executionFilter, listPage } from './lists.ts';
import { changePriority, priorityFields, replay, replayFields } from './verbs.ts';
import { serverTimeMs } from '../executions/reads.ts';

const DEFAULT_CHUNK = 500;

type BulkOf<Verb extends BulkRequest['verb']> = Extract<BulkRequest, { verb: Verb }>;

const bulkFields = {
  filter: executionFilter,
  cursor: parsed.optional(),
  chunk: whole(1, LIMITS.bulkChunk).optional(),
  dryRun: choice(['on', 'off']).optional(),
};
const bulkRequest = variants<BulkRequest, 'verb'>('verb', {
  cancel: shape<BulkOf<'cancel'>>({
    verb: choice(['cancel']),
    ...bulkFields,
    reason: reasonText,
    by: actorName.optional(),
  }),
  replay: shape<BulkOf<'replay'>>({ verb: choice(['replay']), ...bulkFields, ...replayFields }),
  change_priority: shape<BulkOf<'change_priority'>>({
    verb: choice(['change_priority']),
    ...bulkFields,
    ...priorityFields,
  }),
});

type Act = (ids: readonly string[], epochs: readonly number[]) => Promise<readonly { outcome: string }[]>;

export async function* bulk(context: EngineContext, request: BulkRequest): AsyncGenerator<BulkProgress> {
  bulkRequest.check(request, 'request', '');
  const act = actOf(context, request);
  const { chunk = DEFAULT_CHUNK, dryRun = 'off' } = request;
  const filter = checkBulkFilter(request);
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

/** Excludes what came after the start: new executions, and new outcomes of those that are being replayed. */
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

/** The verb gets the keys of the request that are not the bulk's own. */
function actOf(context: EngineContext, request: BulkRequest): Act {
  const given = Object.fromEntries(
    Object.entries(request).filter(([key]) => key !== 'verb' && !(key in bulkFields)),
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

/** An empty filter would match every execution, which nobody means by leaving it out. */
function checkBulkFilter(request: BulkRequest): ListConditions {
  const given = conditionsOf(request.filter);
  if (Object.values(given).every((condition) => condition === null)) {
    refuse('filter', 'must have at least one condition');
  }
  const filter = { ...given, states: checkBulkStates(request.verb, given.states) };
  // Those that already have the priority are done, including one that was moved down the queue and would come up again.
  return request.verb === 'change_priority' ? { ...filter, exceptPriority: request.priority } : filter;
}

/** The states to act on, made explicit: a cursor is valid for these, whether the filter names them or not. */
function checkBulkStates(
  verb: BulkRequest['verb'],
  given: readonly PublicState[] | null,
): readonly PublicState[] {
  const { allowed, meant } = BULK_STATES[verb];
  const states = given ?? meant;
  if (states === null) {
    refuse(
      'filter.states',
      `must be given, from ${allowed.join(', ')}, so that completed executions are not replayed by accident`,
    );
  }
  const other = states.find((state) => !allowed.includes(state));
  if (other !== undefined) {
    refuse('filter.states', `contains ${other}, but ${verb} accepts only ${allowed.join(', ')}`);
  }
  return states;
}

function decodeBegin(cursor: string): { beforeMs: number; cursor: string } {
  const [name, beforeMs, listCursor] = decodeText(cursor);
  if (name !== 'bulk' || !Number.isSafeInteger(beforeMs) || typeof listCursor !== 'string') {
    throw invalidCursor('is not from a bulk operation');
  }
  return { beforeMs: beforeMs as number, cursor: listCursor };
}
