/**
 * Executions as a table: a page of them read from the engine, and one line each with what matters most in its state. Used
 * by `list`, and by commands that show a sample of what they are about to change.
 */
import type { Connection } from '../connect/connection.ts';
import type { ExecutionFilter, ExecutionSummary } from '../contract/operations.ts';
import { tableRows } from './printer.ts';
import { printable } from './secrets.ts';
import type { Session } from './session.ts';
import type { Line, Span } from './style.ts';
import { shortDuration } from '../contract/shape/duration.ts';
import { cutLine, instant, toneOf } from './wording.ts';

/** Pages read before stopping with what was found so far: each one examines many rows and may contain none. */
const PAGES_MAX = 50;

const HEADINGS = ['ID', 'STATE', 'TASK', 'LANE', 'AGE', 'ATTEMPT', 'DETAIL'];
/** The column of that name. */
const DETAIL = 6;
/** The last column takes what the terminal leaves, within these. */
const DETAIL_CHARACTERS = { min: 24, max: 100 };
const GAP_COLUMNS = 2;

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

export function headingRow(): Span[][] {
  return [HEADINGS.map((text) => [text, 'dim'])];
}

export interface Layout {
  nowMs: number;
  /** The width of the terminal; null when there is none. */
  columns: number | null;
  heading: Span[][];
  widths: number[];
}

export function summaryLines(executions: readonly ExecutionSummary[], layout: Layout): Line[] {
  const { nowMs, columns, heading, widths } = layout;
  const rows = executions.map((execution) => cellsOf(execution, nowMs));
  const before = [...heading, ...rows].map((cells) => cells.slice(0, DETAIL));
  tableRows(before, widths);
  const taken = widths.slice(0, DETAIL).reduce((sum, width) => sum + width + GAP_COLUMNS, 0);
  const { min, max } = DETAIL_CHARACTERS;
  const room = columns === null ? max : Math.min(Math.max(columns - taken - 1, min), max);
  const cut = rows.map((cells) => cells.with(DETAIL, [cutLine(cells[DETAIL]![0], room), 'plain']));
  return tableRows([...heading, ...cut], widths);
}

/** A table of a few executions, beside something else. */
export function sampleLines(
  executions: readonly ExecutionSummary[],
  nowMs: number,
  columns: number | null,
): Line[] {
  if (executions.length === 0) return [];
  return summaryLines(executions, { nowMs, columns, heading: headingRow(), widths: [] });
}

function cellsOf(execution: ExecutionSummary, nowMs: number): Span[] {
  const { executionId, publicState, kind, lane, createdAtMs, attemptIndex } = execution;
  return [
    [executionId],
    [publicState, toneOf(publicState)],
    [printable(kind)],
    [printable(lane)],
    [shortDuration(nowMs - createdAtMs)],
    [String(attemptIndex + 1)],
    [detailOf(execution)],
  ];
}

/** What a reader asks next about an execution in this state. */
function detailOf(execution: ExecutionSummary): string {
  const { publicState, workerInstanceId, eligibleAtMs, endedAtMs, failure, priority } = execution;
  if (publicState === 'active') return workerInstanceId === null ? '' : `on ${workerInstanceId}`;
  if (publicState === 'delayed') return eligibleAtMs === null ? '' : `until ${instant(eligibleAtMs)}`;
  // Without a failure, the category repeats the state.
  const failed = [failure?.category ?? publicState, failure?.message ?? null].filter(
    (part) => part !== null && part !== publicState,
  );
  if (failed.length > 0) return failed.join(': ');
  if (endedAtMs !== null) return `ended ${instant(endedAtMs)}`;
  return publicState === 'waiting' && priority > 0 ? `priority ${priority}` : '';
}
