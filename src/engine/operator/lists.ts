/**
 * Lists of executions by a filter, and of the attempts of one execution. A filter decides which sources are walked, one
 * after another; what a source does not answer by itself is asked of each row. A page looks at a bounded number of rows.
 */
import { EngineError } from '../../contract/errors.ts';
import { parseExecutionId } from '../../contract/ids.ts';
import { LIMITS } from '../../contract/limits.ts';
import type {
  AttemptPage,
  ExecutionFilter,
  ExecutionSummary,
  ListPage,
  ListRequest,
} from '../../contract/operations.ts';
import type { PublicState, TerminalOutcome } from '../../contract/states.ts';
import { TRACE_TAGS } from '../../contract/trace-context.ts';
import type { ListSource } from './list-sources.sql.ts';
import { listAttemptRows, listNamespaces, scanList, type ListConditions, type Listed } from './lists.sql.ts';
import { checkList, checkName, checkTags, checkText, checkWhole, refuse } from '../kit/checks.ts';
import type { EngineContext } from '../kit/context.ts';
import { decodeCursor, encodeCursor, hashOf, type ListPosition } from './list-cursor.ts';
import { checkMembers } from '../kit/settings.ts';

const DEFAULT_PAGE = 100;
/** Rows looked at by the first statement when not every row may fit, at least, and for each that is asked for. */
const FIRST_WINDOW = 500;
const WINDOW_PER_ROW = 4;
/** Each further statement looks at twice as many, up to this. */
const LARGEST_WINDOW = 5_000;
/** A list over all namespaces looks into each: beyond this many, one must be named. */
const MAX_NAMESPACES = 1_000;

const FILTER_MEMBERS: readonly (keyof ExecutionFilter)[] = [
  'states',
  'namespace',
  'lane',
  'kind',
  'tags',
  'parentId',
  'createdFromMs',
  'createdBeforeMs',
  'endedFromMs',
  'endedBeforeMs',
  'failure',
];

/** States that are ends, and how they are written in the records of ends. */
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
  // What a timer makes claimable meanwhile goes from the first to the second, and is found there.
  waiting: ['due_delays', 'queue'],
  delayed: ['delays'],
  waiting_children: ['child_waits', 'join_waits'],
  suspended: ['suspensions'],
};
/** Nothing comes into these states yet; a list of them would look as if nothing were in them. */
const UNUSED_STATES: readonly unknown[] = ['rate_limited'];

export async function list(context: EngineContext, request: ListRequest = {}): Promise<ListPage> {
  checkMembers(request, 'request', ['filter', 'limit', 'cursor']);
  const { filter = {}, limit = DEFAULT_PAGE, cursor } = request;
  checkWhole(limit, 'limit', 1, LIMITS.listPage);
  return listPage(context, checkFilter(filter), limit, cursor);
}

/** What a filter asks, checked. */
export function checkFilter(filter: ExecutionFilter): ListConditions {
  checkMembers(filter, 'filter', FILTER_MEMBERS);
  const optional = <Value, Checked>(
    value: Value | undefined,
    check: (given: Value) => Checked,
  ): Checked | null => (value === undefined ? null : check(value));
  const conditions: ListConditions = {
    states: optional(filter.states, checkStates),
    namespace: optional(filter.namespace, (text) =>
      checkText(text, 'filter.namespace', LIMITS.namespaceBytes),
    ),
    lane: optional(filter.lane, (name) => checkName(name, 'filter.lane', LIMITS.laneBytes)),
    kind: optional(filter.kind, (name) => checkName(name, 'filter.kind', LIMITS.kindBytes)),
    tags: optional(filter.tags, checkTagFilter),
    parent: optional(filter.parentId, (id) => parseExecutionId(id, 'filter.parentId')),
    ...checkSpan(filter, 'createdFromMs', 'createdBeforeMs'),
    ...checkSpan(filter, 'endedFromMs', 'endedBeforeMs'),
    ...(optional(filter.failure, checkFailure) ?? NO_FAILURE),
    exceptPriority: null,
  };
  for (const member of ['endedFromMs', 'endedBeforeMs', 'failure'] as const) {
    if (filter[member] === undefined || conditions.states?.every((state) => state in ENDS)) continue;
    refuse(`filter.${member}`, `goes only with states that are ends: ${Object.keys(ENDS).join(', ')}`);
  }
  return conditions;
}

function checkStates(states: readonly PublicState[]): PublicState[] {
  checkList(states, 'filter.states', LIMITS.filterTerms);
  if (states.length === 0) refuse('filter.states', 'must name at least one state');
  const known = [...Object.keys(SOURCES_OF_STATE), ...Object.keys(ENDS)];
  states.forEach((state, index) => {
    if (known.includes(state)) return;
    const isUnused = UNUSED_STATES.includes(state);
    refuse(
      `filter.states[${index}]`,
      isUnused ? `is ${state}, a state no execution comes into yet` : `must be one of ${known.join(', ')}`,
    );
  });
  return [...new Set(states)];
}

function checkTagFilter(tags: Readonly<Record<string, string>>): [string, string][] {
  const entries = Object.entries(checkTags(tags, 'filter.tags'));
  if (entries.length === 0) refuse('filter.tags', 'must name at least one tag');
  if (entries.length > LIMITS.filterTerms) {
    refuse('filter.tags', `has ${entries.length} tags; the limit is ${LIMITS.filterTerms}`, 'too_many');
  }
  for (const [key] of entries) {
    if (TRACE_TAGS.includes(key)) {
      refuse(`filter.tags.${key}`, 'is kept for tracing: executions cannot be found by it');
    }
  }
  return entries;
}

function checkSpan<From extends keyof ExecutionFilter, Before extends keyof ExecutionFilter>(
  filter: ExecutionFilter,
  from: From,
  before: Before,
): Record<From | Before, number | null> {
  const check = (member: From | Before): number | null =>
    filter[member] === undefined
      ? null
      : checkWhole(filter[member], `filter.${member}`, 0, Number.MAX_SAFE_INTEGER);
  const span = { [from]: check(from), [before]: check(before) } as Record<From | Before, number | null>;
  if (span[from] !== null && span[before] !== null && span[from] >= span[before]) {
    refuse(`filter.${before}`, `must be later than filter.${from}`);
  }
  return span;
}

const NO_FAILURE = { failureCategory: null, failureContains: null };

function checkFailure(
  failure: NonNullable<ExecutionFilter['failure']>,
): Pick<ListConditions, 'failureCategory' | 'failureContains'> {
  checkMembers(failure, 'filter.failure', ['category', 'contains']);
  const { category, contains } = failure;
  if (category === undefined && contains === undefined) {
    refuse('filter.failure', 'must name a category or a part of the message');
  }
  const text = (value: unknown, member: string, maxBytes: number): string | null =>
    value === undefined ? null : checkText(value, `filter.failure.${member}`, maxBytes);
  return {
    failureCategory: text(category, 'category', LIMITS.categoryBytes),
    failureContains: text(contains, 'contains', LIMITS.failureMessageBytes),
  };
}

function sourcesOf(conditions: ListConditions): ListSource[] {
  const [tag] = conditions.tags ?? [];
  if (tag !== undefined) return [{ from: 'tag', tag }];
  if (conditions.parent !== null) return [{ from: 'parent', parentId: conditions.parent.uuid }];
  if (conditions.states === null) return [{ from: 'created' }];
  return conditions.states.flatMap((state): ListSource[] => {
    const outcome = ENDS[state];
    if (outcome !== undefined) return [{ from: 'ends', state, outcome }];
    return (SOURCES_OF_STATE[state] ?? []).map((from) => ({ from, state }));
  });
}

const BY_CREATION: readonly string[] = ['created', 'parent', 'tag'];
/** Much of these may be out of date, or something else. */
const SPARSE: readonly string[] = ['child_waits', 'join_waits', 'delays', 'due_delays'];

/** Whether rows of the source may not fit, though nothing has changed about them. */
function isSifted({ from }: ListSource, conditions: ListConditions): boolean {
  const c = conditions;
  const isByCreation = BY_CREATION.includes(from);
  const asked = [
    isByCreation ? c.states : null,
    from === 'ends' ? null : c.namespace,
    ...(from === 'queue' ? [] : [c.lane, c.kind]),
    from === 'parent' ? null : c.parent,
    ...(isByCreation ? [] : [c.createdFromMs, c.createdBeforeMs]),
    ...(from === 'ends' ? [] : [c.endedFromMs, c.endedBeforeMs]),
    c.failureCategory,
    c.failureContains,
    c.exceptPriority,
  ];
  return SPARSE.includes(from) || (c.tags?.length ?? 0) > 1 || asked.some((value) => value !== null);
}

/** A page by conditions that were checked. */
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
    refuse('filter.namespace', `must be given: there are more than ${MAX_NAMESPACES} namespaces`);
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
 * Looks at window after window until the page is full, the sources are over or enough was looked at. One row more than
 * the page holds is asked for, to know whether there is another page.
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
    // One that moved from one source to another while the page was made is listed once.
    for (const row of answer.rows) {
      const { executionId } = row.execution;
      if (!found.has(executionId)) found.set(executionId, { ...row, source: index });
    }
    left -= answer.looked;
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

export async function listAttempts(
  context: EngineContext,
  executionId: string,
  request: { before?: number; limit?: number } = {},
): Promise<AttemptPage> {
  const key = parseExecutionId(executionId);
  checkMembers(request, 'request', ['before', 'limit']);
  const { before = ATTEMPTS_END, limit = DEFAULT_PAGE } = request;
  checkWhole(before, 'before', 0, ATTEMPTS_END);
  checkWhole(limit, 'limit', 1, LIMITS.listPage);
  const rows = await listAttemptRows(context.database, key, { before, limit: limit + 1 });
  if (rows === undefined) {
    throw new EngineError('not_found', `${executionId} does not exist.`, { field: 'executionId' });
  }
  const attempts = rows.slice(0, limit);
  return { attempts, before: rows.length > limit ? attempts.at(-1)!.attemptIndex : null };
}
