/**
 * A verb on every execution that matches a filter: a preview, a confirmation, a progress line, and the command to
 * continue with when it stops early. Which verb it is comes from the command: `cancel`, `replay` or `change-priority`.
 */
import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';
import type { Connection } from '../connect/connection.ts';
import { LIMITS } from '../contract/limits.ts';
import { BULK_STATES, type BulkProgress, type BulkRequest, type BulkVerb } from '../contract/operations.ts';
import type { OptionSpec } from './command.ts';
import { executionTable, readPage, summaryRows } from './execution-table.ts';
import { EXIT, UsageError } from './exit-codes.ts';
import {
  FILTER_OPTIONS,
  filterWords,
  hasFilter,
  inOptions,
  readFilter,
  schemaWords,
  type FilterOptions,
} from './filter-options.ts';
import { parseWhole } from './input.ts';
import { checkId, shortIds } from './short-ids.ts';
import { columnsOf, type Output } from './style.ts';
import { withEngine, type Session } from './session.ts';
import { commandLine, cutLine, thousands } from './wording.ts';
import { withoutControls } from '../contract/secrets.ts';

export interface BulkOptions extends FilterOptions {
  dryRun?: true;
  yes?: true;
  cursor?: string;
  chunk?: string;
}

export interface BulkCall {
  verb: BulkVerb;
  /** Completes `About to … executions`: `cancel`, `give priority 9 to`. */
  deed: string;
  /** The command with its own arguments, to be printed again with a filter and a cursor. */
  words: readonly string[];
}

/** Executions shown by a dry run. */
const SAMPLE = 10;
/** Shorter than the time a command has after an interruption: a slower chunk is not awaited. */
const LAST_CHUNK_MS = 400;
/** Chunks between two lines of output that is not a terminal, and the time between two redraws on one that is. */
const CHUNKS_A_LINE = 10;
const REDRAW_MS = 100;
const CLEAR_TO_END = '\u001B[K';

export const BULK_OPTIONS: readonly OptionSpec[] = [
  ...FILTER_OPTIONS,
  ['--dry-run', 'with a filter: only count, and show the first ten'],
  ['--yes', 'with a filter: do not ask'],
  ['--cursor <cursor>', 'with a filter: continue where an earlier call stopped'],
  ['--chunk <n>', `with a filter: executions per statement, 1 to ${LIMITS.bulkChunk} (default: 500)`],
];

/** The last line of the description of every command that takes ids or a filter. */
export const FILTER_NOTE = 'Give ids or a filter. With a filter it asks first; --dry-run changes nothing.';

/** Whether the command acts on the ids it was given or on what matches a filter. */
export function targetOf(ids: readonly string[], options: BulkOptions): 'ids' | 'filter' {
  if (ids.length > 0) {
    for (const id of ids) checkId(id);
    if (hasFilter(options)) throw new UsageError('Give ids or a filter, not both.');
    for (const name of ['dryRun', 'cursor', 'chunk'] as const) {
      const option = name === 'dryRun' ? 'dry-run' : name;
      if (options[name] !== undefined) throw new UsageError(`--${option} needs a filter, not ids.`);
    }
    return 'ids';
  }
  if (hasFilter(options)) return 'filter';
  throw new UsageError('Give ids, or a filter such as --state failed.');
}

/** Every change needs a reason; a dry run does not. */
export function readReason(reason: string | undefined, { dryRun }: BulkOptions): string {
  if (reason === undefined && !dryRun)
    throw new UsageError(`Required option '--reason <text>' not specified.`);
  const text = reason ?? 'dry run';
  if (text.trim() === '') throw new UsageError('--reason must not be empty.');
  return text;
}

export async function bulkCommand(call: BulkCall, options: BulkOptions, session: Session): Promise<number> {
  const { dryRun, yes, cursor } = options;
  const chunk =
    options.chunk === undefined
      ? {}
      : { chunk: parseWhole(options.chunk, '--chunk', { min: 1, max: LIMITS.bulkChunk }) };
  return withEngine(session, { listen: 'off' }, async (engine) => {
    const filter = await readFilter(options, engine, session, BULK_STATES[call.verb.verb].meant);
    const request = { ...call.verb, filter, ...chunk, ...(cursor === undefined ? {} : { cursor }) };
    try {
      if (dryRun) return await preview(engine, request, session);
      if (!yes && !(await confirmed(engine, { call, request, session }))) return EXIT.failed;
      return await drive(engine, { call, request, session });
    } catch (error) {
      throw inOptions(error);
    }
  });
}

/** Counts the executions, and shows the first few. */
async function preview(engine: Connection, request: BulkRequest, session: Session): Promise<number> {
  const { printer } = session;
  let matched = 0;
  for await (const progress of engine.executions.bulk({ ...request, dryRun: 'on' })) {
    ({ matched } = progress);
    session.interrupted.throwIfAborted();
  }
  const walk = { filter: request.filter, cursor: null, session };
  const { executions } = matched === 0 ? { executions: [] } : await readPage(engine, walk, SAMPLE);
  const nowMs = printer.format === 'json' ? 0 : await engine.upkeep.serverTimeMs();
  const short = await shortIds(engine, session, executions);
  const { verb } = request;
  printer.result({ verb, dryRun: true, matched, first: executions }, [
    ...executionTable(printer.columns).lines(summaryRows(executions, nowMs, short)),
    [[`${thousands(matched)} match; nothing was changed.`, 'strong']],
  ]);
  return EXIT.ok;
}

/** Throws what the engine refuses about the request. */
async function validate(engine: Connection, request: BulkRequest): Promise<void> {
  const steps = engine.executions.bulk({ ...request, chunk: 1, dryRun: 'on' })[Symbol.asyncIterator]();
  await steps.next();
  await steps.return?.();
}

/** An invalid request is refused before the question, and before a terminal is missed. */
async function confirmed(engine: Connection, { call, request, session }: Drive): Promise<boolean> {
  await validate(engine, request);
  if (!process.stdin.isTTY || !process.stderr.isTTY)
    throw new UsageError('Not a terminal: pass --yes (try --dry-run first).');
  const filter = commandLine(filterWords(request.filter));
  const question = `About to ${call.deed} executions that match ${filter}: type yes: `;
  const answer = await ask(question, {
    input: process.stdin,
    output: process.stderr,
    signal: session.interrupted,
  });
  session.interrupted.throwIfAborted();
  if (answer.trim().toLowerCase() === 'yes') return true;
  session.printer.note('not confirmed; nothing was changed.');
  return false;
}

/** The line that was typed; empty when there is none. Without line editing, so that Ctrl-C still interrupts. */
export async function ask(
  question: string,
  { input, output, signal }: { input: Readable; output: Output; signal: AbortSignal },
): Promise<string> {
  output.write(withoutControls(question));
  const lines = createInterface({ input, terminal: false, signal });
  try {
    const first = await lines[Symbol.asyncIterator]().next();
    return first.done ? '' : first.value;
  } finally {
    lines.close();
  }
}

interface Drive {
  call: BulkCall;
  request: BulkRequest;
  session: Session;
}

/** The command that does the rest. */
function continueWith(cursor: string | null, { call, request, session }: Drive): string {
  return commandLine([
    'flowfabric',
    ...call.words,
    ...schemaWords(session),
    ...filterWords(request.filter),
    ...(request.chunk === undefined ? [] : ['--chunk', String(request.chunk)]),
    '--yes',
    ...(cursor === null ? [] : ['--cursor', cursor]),
  ]);
}

async function drive(engine: Connection, given: Drive): Promise<number> {
  const { request, session } = given;
  const { interrupted, printer } = session;
  const meter = openMeter(process.stderr, process.env);
  const steps = engine.executions.bulk(request)[Symbol.asyncIterator]();
  let last: BulkProgress = { matched: 0, outcomes: {}, cursor: request.cursor ?? null };
  let reached: 'middle' | 'end' | 'middle of a chunk' = 'middle';
  try {
    while (reached === 'middle' && !interrupted.aborted) {
      const step = await unlessLate(steps.next(), interrupted);
      if (step === 'late') reached = 'middle of a chunk';
      else if (step.done) reached = 'end';
      else {
        last = step.value;
        meter.show(last);
        if (last.cursor === null) reached = 'end';
      }
    }
  } catch (error) {
    meter.settle();
    if (last.matched > 0) printer.note(`stopped early; continue with\n  ${continueWith(last.cursor, given)}`);
    throw error;
  }
  meter.settle();
  const summary = { verb: request.verb, ...last };
  if (reached === 'end' || printer.format === 'json')
    printer.result(summary, [[[summaryText(last), 'strong']]]);
  if (reached === 'end') return EXIT.ok;
  const done = last.matched === 0 ? 'Nothing was changed so far.' : summaryText(last);
  const open = reached === 'middle' ? '' : ' The chunk in progress may have been committed as well.';
  printer.note(`stopped. ${done}${open} Continue with\n  ${continueWith(last.cursor, given)}`);
  interrupted.throwIfAborted();
  return EXIT.ok;
}

/** The next step, or `late` when it took too long after an interruption. */
async function unlessLate<Step>(step: Promise<Step>, interrupted: AbortSignal): Promise<Step | 'late'> {
  let timer: NodeJS.Timeout | undefined;
  let onAbort: (() => void) | undefined;
  const late = new Promise<'late'>((resolve) => {
    onAbort = () => {
      timer = setTimeout(() => resolve('late'), LAST_CHUNK_MS);
    };
    if (interrupted.aborted) onAbort();
    else interrupted.addEventListener('abort', onAbort, { once: true });
  });
  step.catch(() => undefined);
  try {
    return await Promise.race([step, late]);
  } finally {
    clearTimeout(timer);
    if (onAbort !== undefined) interrupted.removeEventListener('abort', onAbort);
  }
}

const OUTCOME_WORDS: Readonly<Record<string, string>> = {
  already_cancelled: 'already cancelled',
  not_active: 'already ended',
  moved: 'skipped, changed meanwhile',
  not_terminal: 'not ended',
  replays_exhausted: 'out of replays',
  step_not_found: 'without that step',
  not_eligible: 'not waiting for a worker',
  not_found: 'gone',
};

function outcomesText({ outcomes }: BulkProgress): string {
  return Object.entries(outcomes)
    .map(([outcome, count]) => `${thousands(count)} ${OUTCOME_WORDS[outcome] ?? outcome}`)
    .join(', ');
}

function summaryText(progress: BulkProgress): string {
  if (progress.matched === 0) return 'Nothing matched.';
  return `${thousands(progress.matched)} matched: ${outcomesText(progress)}.`;
}

export interface Meter {
  show(progress: BulkProgress): void;
  /** What is written after this starts on a new line. */
  settle(): void;
}

/** The progress: one line, redrawn, on a terminal; a line now and then elsewhere. How much is left is unknown. */
export function openMeter(output: Output, env: NodeJS.ProcessEnv): Meter {
  const startedAt = performance.now();
  const textOf = (progress: BulkProgress): string => {
    const seconds = Math.max((performance.now() - startedAt) / 1_000, 0.001);
    const rate = thousands(Math.round(progress.matched / seconds));
    const outcomes = outcomesText(progress);
    return `${thousands(progress.matched)} matched, ${rate}/s${outcomes === '' ? '' : `: ${outcomes}`}`;
  };
  if (output.isTTY !== true || env['TERM'] === 'dumb') return linesMeter(output, textOf);
  let drawnAt: number | undefined;
  return {
    show(progress) {
      const now = performance.now();
      if (drawnAt !== undefined && now - drawnAt < REDRAW_MS) return;
      drawnAt = now;
      output.write(`\r${cutLine(textOf(progress), columnsOf(output)! - 1)}${CLEAR_TO_END}`);
    },
    settle() {
      if (drawnAt !== undefined) output.write(`\r${CLEAR_TO_END}`);
      drawnAt = undefined;
    },
  };
}

function linesMeter(output: Output, textOf: (progress: BulkProgress) => string): Meter {
  let chunks = 0;
  return {
    show(progress) {
      chunks += 1;
      if (chunks % CHUNKS_A_LINE === 0) output.write(withoutControls(`flowfabric: ${textOf(progress)}\n`));
    },
    settle() {
      // Printed lines stay.
    },
  };
}
