/**
 * Lists of executions by a filter, and of the attempts of one execution. The filter selects the sources to read, one
 * after another; conditions a source does not cover are checked on each row. A page examines a bounded number of rows.
 */
import { EngineError } from '../../contract/errors.ts';
import { parseExecutionId } from '../../contract/ids.ts';
import { choice, flag, list as listOf, parsed, string, whole } from '../../contract/shape/kinds.ts';
import { LIMITS } from '../../contract/limits.ts';
import { fault, faultAt, Kind, refuse, shape, type Fault } from '../../contract/shape/shape.ts';
import type {
  AttemptPage,
  AttemptsRequest,
  ExecutionFilter,
  ExecutionSummary,
  ListPage,
  ListRequest,
} from '../../contract/operations.ts';
import type { PublicState, TerminalOutcome } from '../../contract/states.ts';
import { TRACE_TAGS } from '../../contract/trace-context.ts';
import type { ListSource } from './list-sources.sql.ts';
import { listAttemptRows, listNamespaces, scanList, type ListConditions, type Listed } from './lists.sql.ts';
import { redactionOf, shownAttempt } from '../executions/redaction.ts';
import type { EngineContext } from '../kit/context.ts';
import { decodeCursor, encodeCursor, hashOf, type ListPosition } from './list-cursor.ts';
import { kindName, laneName, namespaceName, pageSize, tagsOf } from '../kit/kinds.ts';

const DEFAULT_PAGE = 100;
/** Rows the first statement examines when some may not match: at least this many, and so many per row requested. */
const FIRST_WINDOW = 500;
const WINDOW_PER_ROW = 4;
/** Each further statement examines twice as many, up to this. */
const LARGEST_WINDOW = 5_000;
/** A list over all namespaces reads each: beyond this many, one must be given. */
const MAX_NAMESPACES = 1_000;

/** The terminal states, and the outcome stored for each. */
const ENDS: Partial<Record<PublicState, TerminalOutcome>> = {
  completed: 'success',
  failed: 'failed',
  cancelled: 'cancelled',
  expired: 'expired',
  skipped: 'skipped',
};
const SOURCES_OF_STATE: Partial<
  Record<
    PublicState,
    readonly ('leases' | 'child_waits' | 'join_waits' | 'suspensions' | 'delays' | 'due_delays' | 'queue')[]
  >
> = {
  active: ['leases'],
  // What a timer makes claimable meanwhile moves from the first to the second, and is found there.
  waiting: ['due_delays', 'queue'],
  delayed: ['delays'],
  waiting_children: ['child_waits', 'join_waits'],
  suspended: ['suspensions'],
};
/** No execution can be in these states yet; an empty list would suggest otherwise. */
const UNUSED_STATES: readonly unknown[] = ['rate_limited'];

const KNOWN_STATES = [...Object.keys(SOURCES_OF_STATE), ...Object.keys(ENDS)] as PublicState[];
const knownState = choice(KNOWN_STATES);
const time = whole(0, Number.MAX_SAFE_INTEGER);

/** Tags that executions can be found by. */
export const findableTags = tagsOf(LIMITS.filterTerms, 1).and((tags) => {
  const kept = TRACE_TAGS.find((key) => key in tags);
  if (kept === undefined) return undefined;
  return faultAt(`.${kept}`, fault('is reserved for tracing: executions cannot be found by it'));
});

export const executionFilter = shape<ExecutionFilter>({
  states: listOf(
    new Kind<PublicState>((state) =>
      UNUSED_STATES.includes(state)
        ? fault(`is ${state as string}, a state that is not used yet`)
        : knownState.faultOf(state),
    ),
    LIMITS.filterTerms,
    1,
  ).optional(),
  namespace: namespaceName.optional(),
  lane: laneName.optional(),
  kind: kindName.optional(),
  tags: findableTags.optional(),
  parentId: parsed.optional(),
  descendants: flag.optional(),
  createdFromMs: time.optional(),
  createdBeforeMs: time.optional(),
  endedFromMs: time.optional(),
  endedBeforeMs: time.optional(),
  failure: shape<NonNullable<ExecutionFilter['failure']>>({
    category: string(LIMITS.categoryBytes).optional(),
    contains: string(LIMITS.failureMessageBytes).optional(),
  })
    .and(({ category, contains }) =>
      category === undefined && contains === undefined
        ? fault('must have category, contains or both')
        : undefined,
    )
    .optional(),
}).and((filter) => spanFault(filter) ?? endFault(filter) ?? familyFault(filter));

function familyFault({ parentId, descendants }: ExecutionFilter): Fault | undefined {
  if (descendants !== true || parentId !== undefined) return undefined;
  return faultAt('.descendants', fault('requires filter.parentId'));
}

function spanFault(filter: ExecutionFilter): Fault | undefined {
  const spans = [
    ['createdFromMs', 'createdBeforeMs'],
    ['endedFromMs', 'endedBeforeMs'],
  ] as const;
  // A comparison with undefined is false.
  for (const [from, before] of spans)
    if (filter[from]! >= filter[before]!)
      return faultAt(`.${before}`, fault(`must be later than filter.${from}`));
  return undefined;
}

function endFault(filter: ExecutionFilter): Fault | undefined {
  if (filter.states?.every((state) => state in ENDS)) return undefined;
  const odd = (['endedFromMs', 'endedBeforeMs', 'failure'] as const).find((key) => filter[key] !== undefined);
  if (odd === undefined) return undefined;
  return faultAt(`.${odd}`, fault(`requires terminal states only: ${Object.keys(ENDS).join(', ')}`));
}

const listRequest = shape<ListRequest>({
  filter: executionFilter.optional(),
  limit: pageSize.optional(),
  cursor: parsed.optional(),
});

export async function list(context: EngineContext, request: ListRequest = {}): Promise<ListPage> {
  const { filter = {}, limit = DEFAULT_PAGE, cursor } = listRequest.check(request, 'request', '');
  return listPage(context, conditionsOf(filter), limit, cursor);
}

/** A checked filter in the form statements take. */
export function conditionsOf(filter: ExecutionFilter): ListConditions {
  const { states, tags, parentId, failure } = filter;
  return {
    states: states === undefined ? null : [...new Set(states)],
    namespace: filter.namespace ?? null,
    lane: filter.lane ?? null,
    kind: filter.kind ?? null,
    tags: tags === undefined ? null : Object.entries(tags),
    parent: parentId === undefined ? null : parseExecutionId(parentId, 'filter.parentId'),
    descendants: filter.descendants === true ? true : null,
    createdFromMs: filter.createdFromMs ?? null,
    createdBeforeMs: filter.createdBeforeMs ?? null,
    endedFromMs: filter.endedFromMs ?? null,
    endedBeforeMs: filter.endedBeforeMs ?? null,
    failureCategory: failure?.category ?? null,
    failureContains: failure?.contains ?? null,
    exceptPriority: null,
  };
}

function sourcesOf(conditions: ListConditions): ListSource[] {
  const { parent } = conditions;
  if (parent !== null && conditions.descendants !== null) return [{ from: 'family', rootId: parent.uuid }];
  const [tag] = conditions.tags ?? [];
  if (tag !== undefined) return [{ from: 'tag', tag }];
  if (parent !== null) return [{ from: 'parent', parentId: parent.uuid }];
  if (conditions.states === null) return [{ from: 'created' }];
  return conditions.states.flatMap((state): ListSource[] => {
    const outcome = ENDS[state];
    if (outcome !== undefined) return [{ from: 'ends', state, outcome }];
    return (SOURCES_OF_STATE[state] ?? []).map((from) => ({ from, state }));
  });
}

const BY_CREATION: readonly string[] = ['created', 'parent', 'tag'];
/** Many rows of these may be stale or mean something else. */
const SPARSE: readonly string[] = ['child_waits', 'join_waits', 'delays', 'due_delays'];

/** Whether current rows of the source may still not match. */
function isSifted({ from }: ListSource, conditions: ListConditions): boolean {
  const c = conditions;
  const isByCreation = BY_CREATION.includes(from);
  const asked = [
    isByCreation || from === 'family' ? c.states : null,
    from === 'ends' ? null : c.namespace,
    ...(from === 'queue' ? [] : [c.lane, c.kind]),
    from === 'parent' || from === 'family' ? null : c.parent,
    ...(isByCreation ? [] : [c.createdFromMs, c.createdBeforeMs]),
    ...(from === 'ends' ? [] : [c.endedFromMs, c.endedBeforeMs]),
    c.failureCategory,
    c.failureContains,
    c.exceptPriority,
  ];
  return (
    SPARSE.includes(from) ||
    (c.tags?.length ?? 0) > (from === 'family' ? 0 : 1) ||
    asked.some((value) => value !== null)
  );
}

/** A page by checked conditions. */
export async function listPage(
  context: EngineContext,
  conditions: ListConditions,
  limit: number,
  cursor: string | undefined,
): Promise<ListPage> {
  const sources = sourcesOf(conditions);
  const hash = hashOf(conditions);
  const begin = cursor === undefined ? { source: 0, after: null } : decodeCursor(cursor, hash, sources);
  const namespaces = await namespacesOf(context, conditions, sources.slice(begin.source));
  const { rows, end } = await walk(context, { sources, conditions, namespaces, limit }, begin);
  return { executions: rows, cursor: end === null ? null : encodeCursor(hash, end) };
}

async function namespacesOf(
  context: EngineContext,
  { namespace }: ListConditions,
  sources: readonly ListSource[],
): Promise<string[]> {
  if (namespace !== null) return [namespace];
  if (!sources.some(({ from }) => from === 'ends')) return [];
  const namespaces = await listNamespaces(context.database, MAX_NAMESPACES + 1);
  if (namespaces.length > MAX_NAMESPACES) {
    refuse('filter.namespace', `is required when there are more than ${MAX_NAMESPACES} namespaces`);
  }
  return namespaces;
}

interface Walk {
  sources: readonly ListSource[];
  conditions: ListConditions;
  namespaces: readonly string[];
  limit: number;
}

/**
 * Examines window after window until the page is full, the sources are exhausted or the limit of rows is reached. One
 * row more than fits on the page is requested, to know whether there is another page.
 */
async function walk(
  context: EngineContext,
  { sources, conditions, namespaces, limit }: Walk,
  begin: ListPosition,
): Promise<{ rows: ExecutionSummary[]; end: ListPosition | null }> {
  const found = new Map<string, Listed & { source: number }>();
  let position: ListPosition | null = begin;
  let left: number = LIMITS.listExamined;
  let grown = 1;
  while (position !== null && left > 0 && found.size < limit) {
    const index: number = position.source;
    const source = sources[index]!;
    const need = limit + 1 - found.size;
    const window = isSifted(source, conditions) ? Math.max(WINDOW_PER_ROW * limit, FIRST_WINDOW) : limit + 1;
    const examine = Math.min(window * grown, left, LARGEST_WINDOW);
    const { after } = position;
    const answer = await scanList(context.database, { source, conditions, namespaces, after, examine, need });
    // An execution that moved from one source to another meanwhile is listed once.
    for (const row of answer.rows) {
      const { executionId } = row.execution;
      if (!found.has(executionId)) found.set(executionId, { ...row, source: index });
    }
    left -= answer.examined;
    grown *= 2;
    if (answer.rows.length === need) position = { source: index, after: answer.rows.at(-1)!.key };
    else if (answer.more) position = { source: index, after: answer.last };
    else {
      grown = 1;
      position = index + 1 < sources.length ? { source: index + 1, after: null } : null;
    }
  }
  const listed = [...found.values()];
  const last = listed[limit - 1];
  const end = listed.length > limit && last ? { source: last.source, after: last.key } : position;
  return { rows: listed.slice(0, limit).map(({ execution }) => execution), end };
}

/** One beyond the last index an attempt can have. */
const ATTEMPTS_END = 2_147_483_648;

const attemptsRequest = shape<AttemptsRequest>({
  before: whole(0, ATTEMPTS_END).optional(),
  limit: pageSize.optional(),
  reveal: flag.optional(),
});

export async function listAttempts(
  context: EngineContext,
  executionId: string,
  request: AttemptsRequest = {},
): Promise<AttemptPage> {
  const key = parseExecutionId(executionId);
  const checked = attemptsRequest.check(request, 'request', '');
  const { before = ATTEMPTS_END, limit = DEFAULT_PAGE, reveal } = checked;
  const rows = await listAttemptRows(context.database, key, { before, limit: limit + 1 });
  if (rows === undefined) {
    throw new EngineError('not_found', `${executionId} does not exist.`, { field: 'executionId' });
  }
  const redaction = await redactionOf(context, key, reveal);
  const attempts = rows.slice(0, limit).map((attempt) => shownAttempt(attempt, redaction));
  return { attempts, before: rows.length > limit ? attempts.at(-1)!.attemptIndex : null };
}
