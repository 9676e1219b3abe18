/**
 * `flowfabric approvals`: what executions wait to be told, the longest wait first; and the same of one execution for whoever shows
 * it. A list, so one object per line as JSON. Tokens are named by their fingerprints, never shown.
 */
import type { Command } from 'commander';
import type { Connection } from '../../connect/connect.ts';
import { EngineError, isEngineError } from '../../contract/errors.ts';
import { parseExecutionId } from '../../contract/ids.ts';
import { LIMITS } from '../../contract/limits.ts';
import type { PendingWaitpoint, WaitpointPage } from '../../contract/signals.ts';
import { EXIT, UsageError } from '../exit-codes.ts';
import { schemaWords } from '../filter-options.ts';
import { parseWhole } from '../input.ts';
import type { Span } from '../look.ts';
import { tableRows } from '../printer.ts';
import { printable } from '../secrets.ts';
import { withEngine, type Session } from '../session.ts';
import { commandLine, cutLine, span } from '../wording.ts';

export interface ApprovalsOptions {
  limit?: string;
  cursor?: string;
}

const DEFAULT_LIMIT = 50;
const HEADINGS = ['ID', 'TASK', 'WAITPOINT', 'REASON', 'WAITING', 'LEFT', 'SIGNALS', 'TAKES', 'TOKEN'];
/** Signal names beyond that are in the JSON. */
const TAKES_CHARACTERS = 40;

export function describeApprovals(command: Command): Command {
  return command
    .summary('list what is waited for')
    .description(
      'List the waitpoints that executions are suspended on, or all that are open of one execution.',
    )
    .argument('[id]', 'only of this one, {fp:N}:uuid; mind the quotes')
    .option('--limit <n>', 'of how many executions, 1 to 1000 (default: 50)')
    .option('--cursor <cursor>', 'go on after a page that was listed before');
}

export async function approvalsCommand(
  id: string | undefined,
  options: ApprovalsOptions,
  session: Session,
): Promise<number> {
  if (id !== undefined) parseExecutionId(id, 'id');
  const { cursor } = options;
  if (id !== undefined && (cursor ?? options.limit) !== undefined)
    throw new UsageError('--limit and --cursor are for the list of all executions.');
  const limit =
    options.limit === undefined
      ? DEFAULT_LIMIT
      : parseWhole(options.limit, '--limit', { min: 1, max: LIMITS.listPage });
  const request =
    id === undefined ? { limit, ...(cursor === undefined ? {} : { cursor }) } : { executionId: id };
  const signingSecret = session.signingSecrets();
  const { page, nowMs } = await withEngine(session, { listen: 'off', signingSecret }, async (engine) => {
    const found = await engine.listWaitpoints(request);
    if (id !== undefined && found.waitpoints.length === 0) await refuseUnknown(engine, id);
    return { page: found, nowMs: await engine.serverTimeMs() };
  }).catch((error: unknown) => {
    throw isEngineError(error) && error.code === 'invalid_cursor'
      ? new UsageError(error.message.replace(/^cursor/, '--cursor'))
      : error;
  });
  print(page, nowMs, session);
  sayRest({ id, limit, page }, session);
  return EXIT.ok;
}

async function refuseUnknown(engine: Connection, id: string): Promise<void> {
  if ((await engine.describe(id)) === null)
    throw new EngineError('not_found', `There is no execution ${printable(id)}.`);
}

function print({ waitpoints }: WaitpointPage, nowMs: number, { printer }: Session): void {
  if (printer.format === 'json') {
    for (const waitpoint of waitpoints) printer.result(waitpoint, []);
  } else if (waitpoints.length > 0) {
    const heading = HEADINGS.map((text): Span => [text, 'dim']);
    const rows = waitpoints.map((waitpoint) => cellsOf(waitpoint, nowMs));
    printer.result(waitpoints, tableRows([heading, ...rows], []));
  }
}

interface Listed {
  id: string | undefined;
  limit: number;
  page: WaitpointPage;
}

function sayRest({ id, limit, page: { waitpoints, cursor } }: Listed, session: Session): void {
  const { printer } = session;
  if (cursor !== null) {
    const paged = limit === DEFAULT_LIMIT ? [] : ['--limit', String(limit)];
    const words = ['flowfabric', 'approvals', ...schemaWords(session), ...paged, '--cursor', cursor];
    const command = commandLine(words);
    printer.aside({ cursor, command }, [[['there may be more; go on with', 'dim']], [[`  ${command}`]]]);
  } else if (waitpoints.length === 0) {
    printer.note(id === undefined ? 'nothing is waited for.' : `${printable(id)} has no open waitpoint.`);
  }
}

function cellsOf(waitpoint: PendingWaitpoint, nowMs: number): Span[] {
  const { executionId, kind, name, state, reason, waitingSinceMs, signalCount, tokenFingerprint } = waitpoint;
  return [
    [executionId],
    [printable(kind)],
    [printable(name)],
    state === 'pending' ? ['not yet', 'dim'] : [reason ?? '-'],
    [waitingSinceMs === null ? '-' : span(nowMs - waitingSinceMs)],
    leftOf(waitpoint, nowMs),
    [String(signalCount)],
    [cutLine(takesOf(waitpoint), TAKES_CHARACTERS)],
    [tokenFingerprint ?? '-'],
  ];
}

/** How long it may still be answered. */
function leftOf({ timeoutAtMs, expiresAtMs, state }: PendingWaitpoint, nowMs: number): Span {
  const endMs = state === 'waiting' ? timeoutAtMs : expiresAtMs;
  if (endMs === null) return ['-'];
  return endMs > nowMs ? [span(endMs - nowMs)] : ['over', 'warn'];
}

function takesOf({ matches }: PendingWaitpoint): string {
  return matches.length === 0 ? 'any' : matches.join(',');
}

/** A waitpoint on one line, for whoever shows its execution. */
export function waitpointText(waitpoint: PendingWaitpoint, nowMs: number): string {
  const { name, signalCount, matches } = waitpoint;
  const so = signalCount === 1 ? '1 signal so far' : `${signalCount} signals so far`;
  const takes = matches.length === 0 ? '' : `, takes ${cutLine(matches.join(', '), TAKES_CHARACTERS)}`;
  const [left] = leftOf(waitpoint, nowMs);
  const rest = left === '-' ? '' : `, ${left === 'over' ? 'its time is over' : `${left} left`}`;
  return `${printable(name)}: ${so}${takes}${rest}`;
}
