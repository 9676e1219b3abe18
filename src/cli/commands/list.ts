/**
 * `flowfabric list`: executions that fit a filter, a page or all of them, one line each with what matters most about it.
 * A list, so one object per line as JSON; how to go on is said on stderr.
 */
import type { Connection } from '../../connect/connect.ts';
import { LIMITS } from '../../contract/limits.ts';
import type { ExecutionFilter, ExecutionSummary } from '../../contract/operations.ts';
import { EXIT, UsageError } from '../exit-codes.ts';
import {
  filterWords,
  impliedStates,
  inOptions,
  readFilter,
  schemaWords,
  type FilterOptions,
} from '../filter-options.ts';
import { parseWhole } from '../input.ts';
import type { Line, Span } from '../look.ts';
import { tableRows } from '../printer.ts';
import { printable } from '../secrets.ts';
import { withEngine, type Session } from '../session.ts';
import { commandLine, cutLine, instant, span, thousands, toneOf } from '../wording.ts';

export interface ListOptions extends FilterOptions {
  limit?: string;
  cursor?: string;
  all?: true;
}

const DEFAULT_LIMIT = 50;
/** Pages asked for before the person is told what was found so far: each looks at many rows and may hold none. */
const PAGES_MAX = 50;

const HEADINGS = ['ID', 'STATE', 'TASK', 'LANE', 'AGE', 'ATTEMPT', 'DETAIL'];
/** Which column that is. */
const DETAIL = 6;
/** The last column takes what the terminal leaves, within these. */
const DETAIL_CHARACTERS = { min: 24, max: 100 };
const GAP_COLUMNS = 2;

export async function listCommand(options: ListOptions, session: Session): Promise<number> {
  if (options.all && options.limit !== undefined)
    throw new UsageError('--all prints everything: leave --limit out.');
  const limit =
    options.limit === undefined
      ? DEFAULT_LIMIT
      : parseWhole(options.limit, '--limit', { min: 1, max: LIMITS.listPage });
  return withEngine(session, { listen: 'off' }, async (engine) => {
    const filter = await readFilter(options, engine, impliedStates(options));
    const nowMs = session.printer.format === 'json' ? 0 : await engine.serverTimeMs();
    const print = listPrinter(session, nowMs);
    const walk = { filter, cursor: options.cursor ?? null, session };
    try {
      const { cursor, found } = options.all
        ? await printAll(engine, walk, print)
        : await printPage(engine, walk, { limit, print });
      sayRest({ filter, cursor, found, limit: options.all ? null : limit }, session);
    } catch (error) {
      throw inOptions(error);
    }
    session.signal.throwIfAborted();
    return EXIT.ok;
  });
}

interface Walk {
  filter: ExecutionFilter;
  cursor: string | null;
  session: Session;
}

type Print = (executions: readonly ExecutionSummary[]) => void;

interface Walked {
  cursor: string | null;
  found: number;
}

async function printPage(
  engine: Pick<Connection, 'list'>,
  walk: Walk,
  { limit, print }: { limit: number; print: Print },
): Promise<Walked> {
  const { executions, cursor } = await readPage(engine, walk, limit);
  print(executions);
  return { cursor, found: executions.length };
}

/** Fills a page, though the engine may answer with less of it at a time. */
export async function readPage(
  engine: Pick<Connection, 'list'>,
  { filter, cursor: from, session }: Walk,
  limit: number,
): Promise<{ executions: ExecutionSummary[]; cursor: string | null }> {
  const executions: ExecutionSummary[] = [];
  let cursor = from;
  for (let pages = 0; pages < PAGES_MAX && executions.length < limit; pages += 1) {
    const page = await engine.list({
      filter,
      limit: limit - executions.length,
      ...(cursor === null ? {} : { cursor }),
    });
    executions.push(...page.executions);
    cursor = page.cursor;
    if (cursor === null || session.signal.aborted) break;
  }
  return { executions, cursor };
}

/** Printed as it comes: nobody keeps all of it. An interruption leaves the cursor to go on with. */
async function printAll(engine: Connection, walk: Walk, print: Print): Promise<Walked> {
  const { filter, session } = walk;
  let { cursor } = walk;
  let found = 0;
  do {
    const page = await engine.list({
      filter,
      limit: LIMITS.listPage,
      ...(cursor === null ? {} : { cursor }),
    });
    print(page.executions);
    found += page.executions.length;
    cursor = page.cursor;
  } while (cursor !== null && !session.signal.aborted);
  return { cursor, found };
}

function listPrinter({ printer }: Session, nowMs: number): Print {
  if (printer.format === 'json')
    return (executions) => {
      for (const execution of executions) printer.result(execution, []);
    };
  const widths: number[] = [];
  let heading: Span[][] = [HEADINGS.map((text) => [text, 'dim'])];
  return (executions) => {
    if (executions.length === 0) return;
    const lines = summaryLines(executions, { nowMs, columns: printer.columns, heading, widths });
    printer.result(executions, lines);
    heading = [];
  };
}

interface Layout {
  nowMs: number;
  /** Of the terminal; null where there is none. */
  columns: number | null;
  heading: Span[][];
  widths: number[];
}

function summaryLines(executions: readonly ExecutionSummary[], layout: Layout): Line[] {
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

/** The same table for a few executions that are shown beside something else. */
export function sampleLines(
  executions: readonly ExecutionSummary[],
  nowMs: number,
  columns: number | null,
): Line[] {
  const heading: Span[][] = [HEADINGS.map((text) => [text, 'dim'])];
  return executions.length === 0 ? [] : summaryLines(executions, { nowMs, columns, heading, widths: [] });
}

function cellsOf(execution: ExecutionSummary, nowMs: number): Span[] {
  const { executionId, publicState, kind, lane, createdAtMs, attemptIndex } = execution;
  return [
    [executionId],
    [publicState, toneOf(publicState)],
    [printable(kind)],
    [printable(lane)],
    [span(nowMs - createdAtMs)],
    [String(attemptIndex + 1)],
    [detailOf(execution)],
  ];
}

/** What one would ask next about an execution in this state. */
function detailOf(execution: ExecutionSummary): string {
  const { publicState, workerInstanceId, eligibleAtMs, endedAtMs, failure, priority } = execution;
  if (publicState === 'active') return workerInstanceId === null ? '' : `on ${workerInstanceId}`;
  if (publicState === 'delayed') return eligibleAtMs === null ? '' : `until ${instant(eligibleAtMs)}`;
  // The category of an end that is no failure says the same as the state.
  const failed = [failure?.category ?? publicState, failure?.message ?? null].filter(
    (part) => part !== null && part !== publicState,
  );
  if (failed.length > 0) return failed.join(': ');
  if (endedAtMs !== null) return `ended ${instant(endedAtMs)}`;
  return publicState === 'waiting' && priority > 0 ? `priority ${priority}` : '';
}

interface Rest extends Walked {
  filter: ExecutionFilter;
  limit: number | null;
}

/** What was not printed, and the command that prints it. */
function sayRest({ filter, cursor, found, limit }: Rest, session: Session): void {
  const { printer } = session;
  if (cursor === null) {
    if (found === 0) printer.note('nothing found.');
    return;
  }
  const words = ['flowfabric', 'list', ...schemaWords(session), ...filterWords(filter)];
  const paged = limit === DEFAULT_LIMIT ? [] : ['--limit', String(limit)];
  const size = limit === null ? ['--all'] : paged;
  const command = commandLine([...words, ...size, '--cursor', cursor]);
  const soFar = found === 0 ? 'nothing found yet' : `${thousands(found)} found so far`;
  const isFull = limit !== null && found >= limit;
  printer.aside({ cursor, command }, [
    [[`${isFull ? 'there may be more' : soFar}; go on with`, 'dim']],
    [[`  ${command}`]],
  ]);
}
