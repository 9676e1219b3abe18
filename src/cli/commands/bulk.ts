/**
 * A verb on everything that fits a filter, as a person drives it: first a look, then a yes, then a line that counts, and
 * the command to go on with when it does not get to the end. Which verb it is, its command says.
 */
import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';
import type { Command } from 'commander';
import type { Connection } from '../../connect/connect.ts';
import { LIMITS } from '../../contract/limits.ts';
import {
  BULK_STATES,
  type BulkProgress,
  type BulkRequest,
  type BulkVerb,
  type ExecutionFilter,
} from '../../contract/operations.ts';
import { EXIT, UsageError } from '../exit-codes.ts';
import {
  addFilterOptions,
  filterWords,
  hasFilter,
  inOptions,
  readFilter,
  schemaWords,
  type FilterOptions,
} from '../filter-options.ts';
import { parseWhole } from '../input.ts';
import { readPage, sampleLines } from './list.ts';
import type { Output } from '../look.ts';
import { withEngine, type Session } from '../session.ts';
import { commandLine, cutLine, thousands } from '../wording.ts';
import { withoutControls } from '../secrets.ts';

export interface BulkOptions extends FilterOptions {
  dryRun?: true;
  yes?: true;
  cursor?: string;
  chunk?: string;
}

export interface BulkCall {
  verb: BulkVerb;
  /** What is about to happen: `cancel`, `give priority 9 to`. */
  deed: string;
  /** The command with its own arguments, to be printed again with a filter and a cursor. */
  words: readonly string[];
}

/** Executions shown by a dry run. */
const SAMPLE = 10;
/** Less than a command may live on after an interruption: a chunk that takes longer is not waited for. */
const LAST_CHUNK_MS = 400;
/** Chunks between two lines where no line can be written anew, and time between two states of one that can. */
const CHUNKS_A_LINE = 10;
const REDRAW_MS = 100;
const DEFAULT_COLUMNS = 80;
const CLEAR_TO_END = '\u001B[K';

export function addBulkOptions(command: Command): Command {
  return addFilterOptions(command)
    .option('--dry-run', 'with a filter: only count, and show the first ten')
    .option('--yes', 'with a filter: do not ask')
    .option('--cursor <cursor>', 'with a filter: go on where an earlier call stopped')
    .option(
      '--chunk <n>',
      `with a filter: executions in one statement, 1 to ${LIMITS.bulkChunk} (default: 500)`,
    );
}

/** Whether the command is about the ids it was given or about what fits a filter. */
export function targetOf(ids: readonly string[], options: BulkOptions): 'ids' | 'filter' {
  if (ids.length > 0) {
    if (hasFilter(options)) throw new UsageError('Give ids or a filter, not both.');
    for (const name of ['dryRun', 'cursor', 'chunk'] as const) {
      const option = name === 'dryRun' ? 'dry-run' : name;
      if (options[name] !== undefined) throw new UsageError(`--${option} goes with a filter, not with ids.`);
    }
    return 'ids';
  }
  if (hasFilter(options)) return 'filter';
  throw new UsageError('Which executions? Give ids, or a filter such as --state failed.');
}

/** A reason is needed for whatever changes something. */
export function readReason(reason: string | undefined, { dryRun }: BulkOptions): string {
  if (reason === undefined && !dryRun)
    throw new UsageError(`Required option '--reason <text>' not specified.`);
  const text = reason ?? 'dry run';
  if (text.trim() === '') throw new UsageError('--reason must say why.');
  return text;
}

export async function bulkCommand(call: BulkCall, options: BulkOptions, session: Session): Promise<number> {
  const { dryRun, yes, cursor } = options;
  const chunk =
    options.chunk === undefined
      ? {}
      : { chunk: parseWhole(options.chunk, '--chunk', { min: 1, max: LIMITS.bulkChunk }) };
  const canAsk = process.stdin.isTTY && process.stderr.isTTY;
  if (!dryRun && !yes && !canAsk)
    throw new UsageError('Nobody can be asked here: look with --dry-run, then give --yes.');
  return withEngine(session, { listen: 'off' }, async (engine) => {
    const filter = await readFilter(options, engine, BULK_STATES[call.verb.verb].meant);
    const request = { ...call.verb, filter, ...chunk, ...(cursor === undefined ? {} : { cursor }) };
    try {
      if (dryRun) return await look(engine, request, session);
      if (!yes) await tryOut(engine, request);
      if (!yes && !(await confirmed(call, filter, session))) return EXIT.failed;
      return await drive(engine, { call, request, session });
    } catch (error) {
      throw inOptions(error);
    }
  });
}

/** Counts, and shows some. */
async function look(engine: Connection, request: BulkRequest, session: Session): Promise<number> {
  const { printer } = session;
  let matched = 0;
  for await (const progress of engine.bulk({ ...request, dryRun: 'on' })) {
    ({ matched } = progress);
    session.signal.throwIfAborted();
  }
  const walk = { filter: request.filter, cursor: null, session };
  const { executions } = matched === 0 ? { executions: [] } : await readPage(engine, walk, SAMPLE);
  const nowMs = printer.format === 'json' ? 0 : await engine.serverTimeMs();
  const { verb } = request;
  printer.result({ verb, dryRun: true, matched, first: executions }, [
    ...sampleLines(executions, nowMs, printer.columns),
    [[`${thousands(matched)} match; nothing was changed.`, 'strong']],
  ]);
  return EXIT.ok;
}

/** What makes no sense is refused before anybody is asked. */
async function tryOut(engine: Connection, request: BulkRequest): Promise<void> {
  const steps = engine.bulk({ ...request, chunk: 1, dryRun: 'on' })[Symbol.asyncIterator]();
  await steps.next();
  await steps.return?.();
}

async function confirmed({ deed }: BulkCall, filter: ExecutionFilter, session: Session): Promise<boolean> {
  const question = `About to ${deed} executions that match ${commandLine(filterWords(filter))}: type yes: `;
  const answer = await ask(question, {
    input: process.stdin,
    output: process.stderr,
    signal: session.signal,
  });
  session.signal.throwIfAborted();
  if (answer.trim().toLowerCase() === 'yes') return true;
  session.printer.note('not confirmed; nothing was changed.');
  return false;
}

/** The line that is typed; empty when there is none. Without line editing, so that Ctrl-C stays what it is. */
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
function goOn(cursor: string | null, { call, request, session }: Drive): string {
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
  const { signal, printer } = session;
  const meter = openMeter(process.stderr, process.env);
  const steps = engine.bulk(request)[Symbol.asyncIterator]();
  let last: BulkProgress = { matched: 0, outcomes: {}, cursor: request.cursor ?? null };
  let reached: 'middle' | 'end' | 'middle of a chunk' = 'middle';
  try {
    while (reached === 'middle' && !signal.aborted) {
      const step = await unlessLate(steps.next(), signal);
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
    if (last.matched > 0) printer.note(`stopped before the end; go on with\n  ${goOn(last.cursor, given)}`);
    throw error;
  }
  meter.settle();
  const summary = { verb: request.verb, ...last };
  if (reached === 'end' || printer.format === 'json')
    printer.result(summary, [[[summaryText(last), 'strong']]]);
  if (reached === 'end') return EXIT.ok;
  const done = last.matched === 0 ? 'Nothing was done so far.' : summaryText(last);
  const open = reached === 'middle' ? '' : ' The chunk that was under way may be done as well.';
  printer.note(`stopped. ${done}${open} Go on with\n  ${goOn(last.cursor, given)}`);
  signal.throwIfAborted();
  return EXIT.ok;
}

/** The next step, or `late` when an interruption came and it took too long after that. */
async function unlessLate<Step>(step: Promise<Step>, signal: AbortSignal): Promise<Step | 'late'> {
  let timer: NodeJS.Timeout | undefined;
  let onAbort: (() => void) | undefined;
  const late = new Promise<'late'>((resolve) => {
    onAbort = () => {
      timer = setTimeout(() => resolve('late'), LAST_CHUNK_MS);
    };
    if (signal.aborted) onAbort();
    else signal.addEventListener('abort', onAbort, { once: true });
  });
  step.catch(() => undefined);
  try {
    return await Promise.race([step, late]);
  } finally {
    clearTimeout(timer);
    if (onAbort !== undefined) signal.removeEventListener('abort', onAbort);
  }
}

const OUTCOME_WORDS: Readonly<Record<string, string>> = {
  already_cancelled: 'cancelled before',
  not_active: 'ended before',
  moved: 'left alone, changed meanwhile',
  not_terminal: 'not ended',
  replays_exhausted: 'out of replays',
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
  /** What is written after this begins on a line of its own. */
  settle(): void;
}

/** How far it is: one line written anew on a terminal, a line now and then elsewhere. How much is left nobody knows. */
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
      output.write(`\r${cutLine(textOf(progress), (output.columns || DEFAULT_COLUMNS) - 1)}${CLEAR_TO_END}`);
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
      // Every line stays as it was written.
    },
  };
}
