/**
 * Executions as a table: a page of them read from the engine, and one line each with what matters most in its state. Used
 * by `list`, and by commands that show a sample of what they are about to change.
 */
import type { Connection } from '../connect/connection.ts';
import type { ExecutionFilter, ExecutionSummary } from '../contract/operations.ts';
import { printable } from '../contract/secrets.ts';
import type { Session } from './session.ts';
import type { Shorten } from './short-ids.ts';
import type { Span } from './style.ts';
import { column, Table } from './table.ts';
import { shortDuration } from '../contract/shape/duration.ts';
import { ago, toneOf } from './wording.ts';

/** Pages read before stopping with what was found so far: each one examines many rows and may contain none. */
const PAGES_MAX = 50;

/** What is cut is in the JSON. */
const DETAIL_COLUMNS_MIN = 24;

const COLUMNS = [
  column('ID', 'whole'),
  column('STATE', 'whole'),
  column('TASK'),
  column('LANE', 'text', { isOptional: true }),
  column('AGE', 'number'),
  column('ATTEMPT', 'number', { isOptional: true }),
  column('DETAIL', 'text', { least: DETAIL_COLUMNS_MIN }),
];

export interface Walk {
  filter: ExecutionFilter;
  cursor: string | null;
  session: Session;
}

/** Reads until the page is full: the engine may return fewer at a time. */
export async function readPage(
  engine: Pick<Connection, 'executions'>,
  { filter, cursor: from, session }: Walk,
  limit: number,
): Promise<{ executions: ExecutionSummary[]; cursor: string | null }> {
  const executions: ExecutionSummary[] = [];
  let cursor = from;
  for (let pages = 0; pages < PAGES_MAX && executions.length < limit; pages += 1) {
    const page = await engine.executions.list({
      filter,
      limit: limit - executions.length,
      ...(cursor === null ? {} : { cursor }),
    });
    executions.push(...page.executions);
    cursor = page.cursor;
    if (cursor === null || session.interrupted.aborted) break;
  }
  return { executions, cursor };
}

export function executionTable(width: number | null): Table {
  return new Table(COLUMNS, width);
}

/** One row for each execution. */
export function summaryRows(
  executions: readonly ExecutionSummary[],
  nowMs: number,
  short: Shorten,
): Span[][] {
  return executions.map((execution) => cellsOf(execution, nowMs, short));
}

function cellsOf(execution: ExecutionSummary, nowMs: number, short: Shorten): Span[] {
  const { executionId, state, kind, lane, createdAtMs, attemptIndex } = execution;
  return [
    [short(executionId)],
    [state, toneOf(state)],
    [printable(kind)],
    [printable(lane)],
    [shortDuration(nowMs - createdAtMs)],
    [String(attemptIndex + 1)],
    [short(printable(detailOf(execution, nowMs)))],
  ];
}

/** What a reader asks next about an execution in this state. */
function detailOf(execution: ExecutionSummary, nowMs: number): string {
  const { state, workerInstanceId, eligibleAtMs, endedAtMs, failure, priority } = execution;
  if (state === 'active') return workerInstanceId === null ? '' : `on ${workerInstanceId}`;
  if (state === 'delayed')
    return eligibleAtMs === null ? '' : `due in ${shortDuration(eligibleAtMs - nowMs)}`;
  // Without a failure, the category repeats the state.
  const failed = [failure?.category ?? state, failure?.message ?? null].filter(
    (part) => part !== null && part !== state,
  );
  if (failed.length > 0) return failed.join(': ');
  if (endedAtMs !== null) return `ended ${ago(nowMs - endedAtMs)}`;
  return state === 'waiting' && priority > 0 ? `priority ${priority}` : '';
}
