/**
 * `flowfabric flow`, `flows` and `cancel-flow`: one flow with its members, joins and edges, or as a drawing; a list of flows; and the end of one,
 * asked for with a reason that is kept.
 */
import type { Command } from 'commander';
import type { Connection } from '../../connect/connect.ts';
import { EngineError, isEngineError } from '../../contract/errors.ts';
import {
  CANCEL_FLOW_POLICIES,
  type CancelFlowOutcome,
  type CancelFlowPolicy,
  type EdgeSnapshot,
  type FlowPage,
  type FlowSnapshot,
  type FlowState,
  type FlowSummary,
  type ListFlowsRequest,
  type MemberSnapshot,
} from '../../contract/flows.ts';
import { parseExecutionId } from '../../contract/ids.ts';
import { LIMITS } from '../../contract/limits.ts';
import { readReason } from './bulk.ts';
import { EXIT, UsageError } from '../exit-codes.ts';
import { schemaWords } from '../filter-options.ts';
import { joinProgress, toDot, toMermaid } from '../drawing/flow.ts';
import { parseWhole } from '../input.ts';
import type { Line, Span, Tone } from '../look.ts';
import { tableRows } from '../printer.ts';
import { ID_HELP } from '../registering.ts';
import { printable } from '../secrets.ts';
import { withEngine, type Session } from '../session.ts';
import { commandLine, cutLine, instant, span, thousands, toneOf } from '../wording.ts';

export interface FlowOptions {
  mermaid?: true;
  dot?: true;
}

export interface FlowsOptions {
  namespace?: string;
  state?: string;
  name?: string;
  limit?: string;
  cursor?: string;
}

export interface CancelFlowOptions {
  reason?: string;
  by?: string;
  policy?: string;
  wait?: true;
}

const DEFAULT_LIMIT = 50;
/** Pages asked for before the person is told what was found so far: each looks at many flows and may hold none. */
const PAGES_MAX = 50;
const MEMBER_HEADINGS = ['MEMBER', 'STATE', 'JOIN', 'TASK', 'ATTEMPT', 'ID', 'DETAIL'];
const EDGE_HEADINGS = ['FROM', 'TO', 'ON', 'STATE', 'AS'];
const LIST_HEADINGS = ['ID', 'NAME', 'STATE', 'MEMBERS', 'EDGES', 'AGE', 'DETAIL'];
const DETAIL_CHARACTERS = 100;
const LABEL_COLUMNS = 11;

const TONES: Partial<Record<FlowState, Tone>> = {
  completed: 'good',
  failed: 'bad',
  cancelled: 'warn',
  cancelling: 'warn',
};

export function describeFlow(command: Command): Command {
  return command
    .summary('show one flow')
    .description('Show a flow: its members with their states and joins, and its edges; or draw it.')
    .argument('<id>', ID_HELP)
    .option('--mermaid', 'print a Mermaid flowchart')
    .option('--dot', 'print a graph for Graphviz');
}

export async function flowCommand(id: string, options: FlowOptions, session: Session): Promise<number> {
  parseExecutionId(id, 'id');
  const { printer } = session;
  const isDrawn = options.mermaid === true || options.dot === true;
  if (options.mermaid && options.dot) throw new UsageError('--mermaid or --dot, not both.');
  if (isDrawn && printer.format === 'json')
    throw new UsageError('--json goes with neither --mermaid nor --dot.');
  const flow = await withEngine(session, { listen: 'off' }, (engine) => engine.describeFlow(id));
  if (flow === null) throw new EngineError('not_found', `There is no flow ${printable(id)}.`);
  printer.result(flow, isDrawn ? drawn(options.dot ? toDot(flow) : toMermaid(flow)) : linesOf(flow));
  return EXIT.ok;
}

function drawn(text: string): Line[] {
  return text
    .trimEnd()
    .split('\n')
    .map((line): Line => [[line]]);
}

function linesOf(flow: FlowSnapshot): Line[] {
  const counts = Object.entries(flow.counts).map(([state, count]) => `${thousands(count)} ${state}`);
  const { cancel, tags, sealedAtMs, endedAtMs } = flow;
  const pairs = Object.entries(tags).map(([key, value]) => printable(`${key}=${value}`));
  return [
    [
      [`${flow.flowId}  `, 'strong'],
      [`${printable(flow.name)}  `],
      [flow.state, TONES[flow.state] ?? 'plain'],
    ],
    row('members', [thousands(flow.nodeCount), counts.join(', ')].filter((part) => part !== '').join(': ')),
    row('edges', `${thousands(flow.edgeCount)}, revision ${flow.revision}`),
    row('place', `namespace ${printable(flow.namespace)}`),
    ...(pairs.length === 0 ? [] : [row('tags', pairs.join(', '))]),
    row('submitted', instant(flow.createdAtMs)),
    ...(sealedAtMs === null ? [row('sealed', 'not yet: no join is decided before')] : []),
    ...(cancel === null ? [] : [row('cancel', cancelText(cancel))]),
    ...(endedAtMs === null ? [] : [row('ended', instant(endedAtMs))]),
    ...table(MEMBER_HEADINGS, flow.members.map(memberCells)),
    ...table(EDGE_HEADINGS, flow.edges.map(edgeCells)),
  ];
}

function row(label: string, text: string): Line {
  return [[`  ${label.padEnd(LABEL_COLUMNS)}`, 'dim'], [text]];
}

function cancelText({ policy, by, reason, atMs }: NonNullable<FlowSummary['cancel']>): string {
  return `${policy} by ${printable(by)} at ${instant(atMs)}: ${printable(reason)}`;
}

function table(headings: readonly string[], rows: readonly Span[][]): Line[] {
  return rows.length === 0 ? [] : tableRows([headings.map((text): Span => [text, 'dim']), ...rows], []);
}

function memberCells({
  name,
  state,
  join,
  kind,
  attemptIndex,
  executionId,
  message,
}: MemberSnapshot): Span[] {
  const hasJoin = join !== null && join.edges > 0;
  return [
    [printable(name)],
    [state, toneOf(state)],
    [hasJoin ? joinProgress(join) : '-', hasJoin && join.state === 'impossible' ? 'bad' : 'plain'],
    [printable(kind)],
    [String(attemptIndex + 1)],
    [executionId],
    [message === null ? '' : cutLine(message, DETAIL_CHARACTERS)],
  ];
}

function edgeCells({ from, to, on, state, as }: EdgeSnapshot): Span[] {
  return [[printable(from)], [printable(to)], [on], [state], [as === null ? '' : printable(as)]];
}

export function describeFlows(command: Command): Command {
  return command
    .summary('find flows')
    .description('List flows that fit all conditions, the newest first.')
    .option('--namespace <name>', 'of this namespace')
    .option('--state <state>', 'completed, failed or cancelled; or open for those that have not ended')
    .option('--name <name>', 'of this name')
    .option('--limit <n>', 'how many, 1 to 1000 (default: 50)')
    .option('--cursor <cursor>', 'go on after a page that was listed before');
}

export async function flowsCommand(options: FlowsOptions, session: Session): Promise<number> {
  const { namespace, state, name, cursor } = options;
  const limit =
    options.limit === undefined
      ? DEFAULT_LIMIT
      : parseWhole(options.limit, '--limit', { min: 1, max: LIMITS.listPage });
  const filter = {
    ...(namespace === undefined ? {} : { namespace }),
    ...(state === undefined ? {} : { state: state as NonNullable<ListFlowsRequest['state']> }),
    ...(name === undefined ? {} : { name }),
  };
  const { page, nowMs } = await withEngine(session, { listen: 'off' }, async (engine) => ({
    page: await readPage(engine, { ...filter, limit, ...(cursor === undefined ? {} : { cursor }) }, session),
    nowMs: await engine.serverTimeMs(),
  })).catch((error: unknown) => {
    throw inOptions(error);
  });
  const { printer } = session;
  if (printer.format === 'json') for (const flow of page.flows) printer.result(flow, []);
  else if (page.flows.length > 0) {
    const rows = page.flows.map((flow) => summaryCells(flow, nowMs));
    printer.result(page.flows, table(LIST_HEADINGS, rows));
  }
  sayRest(page, { ...filter, limit }, session);
  return EXIT.ok;
}

/** Fills a page, though the engine may answer with less of it at a time. */
async function readPage(
  engine: Pick<Connection, 'listFlows'>,
  { cursor: from, limit, ...filter }: ListFlowsRequest & { limit: number },
  { signal }: Session,
): Promise<FlowPage> {
  const flows: FlowSummary[] = [];
  let cursor = from ?? null;
  for (let pages = 0; pages < PAGES_MAX && flows.length < limit; pages += 1) {
    const page = await engine.listFlows({
      ...filter,
      limit: limit - flows.length,
      ...(cursor === null ? {} : { cursor }),
    });
    flows.push(...page.flows);
    cursor = page.nextCursor;
    if (cursor === null || signal.aborted) break;
  }
  return { flows, nextCursor: cursor };
}

function summaryCells(flow: FlowSummary, nowMs: number): Span[] {
  const { cancel, endedAtMs, sealedAtMs } = flow;
  const open = sealedAtMs === null ? 'not sealed' : '';
  const detail = cancel === null ? open : `cancelled by ${cancel.by}: ${cancel.reason}`;
  return [
    [flow.flowId],
    [printable(flow.name)],
    [flow.state, TONES[flow.state] ?? 'plain'],
    [String(flow.nodeCount)],
    [String(flow.edgeCount)],
    [span(nowMs - flow.createdAtMs)],
    [
      cutLine(
        detail === '' && endedAtMs !== null ? `ended ${instant(endedAtMs)}` : detail,
        DETAIL_CHARACTERS,
      ),
    ],
  ];
}

/** What was not printed, and the command that prints it. */
function sayRest(
  { flows, nextCursor: cursor }: FlowPage,
  { limit, ...filter }: ListFlowsRequest & { limit: number },
  session: Session,
): void {
  const { printer } = session;
  if (cursor === null) {
    if (flows.length === 0) printer.note('nothing found.');
    return;
  }
  const asked = Object.entries(filter).flatMap(([option, value]) => [`--${option}`, String(value)]);
  const paged = limit === DEFAULT_LIMIT ? [] : ['--limit', String(limit)];
  const words = ['flowfabric', 'flows', ...schemaWords(session), ...asked, ...paged, '--cursor', cursor];
  const command = commandLine(words);
  const soFar = flows.length === 0 ? 'nothing found yet' : `${thousands(flows.length)} found so far`;
  printer.aside({ cursor, command }, [
    [[`${flows.length >= limit ? 'there may be more' : soFar}; go on with`, 'dim']],
    [[`  ${command}`]],
  ]);
}

/** A refusal of the engine in the words of the command line; anything else as it is. */
function inOptions(error: unknown): unknown {
  if (!isEngineError(error) || !error.field?.startsWith('request.')) return error;
  return new UsageError(error.message.replace(/^request\./, '--'));
}

export function describeCancelFlow(command: Command): Command {
  return command
    .summary('cancel a flow')
    .description('Cancel a flow and its members, as the policy says. From then on it cannot grow.')
    .argument('<id>', ID_HELP)
    .option('--reason <text>', 'why (required)')
    .option('--by <name>', 'who asks (default: operator)')
    .option(
      '--policy <policy>',
      'cancel_all: what has not ended; cancel_pending: what has not begun; let_finish: nothing (default: cancel_all)',
    )
    .option('--wait', 'wait until the flow has ended');
}

export async function cancelFlowCommand(
  id: string,
  options: CancelFlowOptions,
  session: Session,
): Promise<number> {
  parseExecutionId(id, 'id');
  const { by, policy, wait } = options;
  const request = {
    reason: readReason(options.reason, {}),
    ...(by === undefined ? {} : { by }),
    ...(policy === undefined ? {} : { policy: parsePolicy(policy) }),
    // A command that leaves before the members are cancelled would leave it to others, which may not be there.
    wait: wait ? ('end' as const) : ('members' as const),
    signal: session.signal,
  };
  const answer = await withEngine(session, { listen: 'off' }, (engine) => engine.cancelFlow(id, request));
  const [words, tone] = wordsOf(answer);
  session.printer.result({ flowId: id, ...answer }, [[[`${id}  `], [words, tone]]]);
  if (answer.outcome === 'not_found') return EXIT.notFound;
  return answer.outcome === 'already_ended' ? EXIT.refused : EXIT.ok;
}

function parsePolicy(text: string): CancelFlowPolicy {
  const policy = CANCEL_FLOW_POLICIES.find((known) => known === text);
  if (policy !== undefined) return policy;
  throw new UsageError(`--policy must be one of ${CANCEL_FLOW_POLICIES.join(', ')}.`);
}

function wordsOf(answer: CancelFlowOutcome): [string, Tone] {
  switch (answer.outcome) {
    case 'cancelled': {
      const { length } = answer.cancelled;
      const members = `${thousands(length)} ${length === 1 ? 'member' : 'members'}`;
      return [`cancelled (${answer.policy}); this command cancelled ${members}`, 'good'];
    }
    case 'already_cancelled':
      return [`was cancelled before (${answer.policy})`, 'plain'];
    case 'already_ended':
      return [`not cancelled: it ended before (${answer.state})`, 'warn'];
    case 'not_found':
      return ['not cancelled: there is no such flow', 'bad'];
  }
}
