/**
 * `flowfabric flows`: a list of flows; one flow with its members, joins and edges, or as a drawing; and cancelling one, with
 * a reason that is kept.
 */
import type { Connection } from '../../connect/connection.ts';
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
import { readReason } from '../bulk.ts';
import { AN_ID, BY_OPTION, CURSOR_OPTION, ID_ARGUMENT, REASON_OPTION, type CommandSpec } from '../command.ts';
import { EXIT, UsageError } from '../exit-codes.ts';
import { schemaWords } from '../filter-options.ts';
import { joinProgress, toDot, toMermaid } from '../drawing/flow.ts';
import { DEFAULT_LIMIT, LIMIT_OPTION, parseLimit } from '../input.ts';
import type { Line, Span, Tone } from '../style.ts';
import { tableRows } from '../printer.ts';
import { printable } from '../secrets.ts';
import { withEngine, type Session } from '../session.ts';
import { shortDuration } from '../../contract/shape/duration.ts';
import { commandLine, counted, cutLine, instant, thousands, toneOf } from '../wording.ts';

interface DescribeOptions {
  mermaid?: true;
  dot?: true;
}

interface ListOptions {
  namespace?: string;
  state?: string;
  name?: string;
  limit?: string;
  cursor?: string;
}

interface CancelOptions {
  reason?: string;
  by?: string;
  policy?: string;
  wait?: true;
}

/** Pages read before stopping with what was found so far: each one examines many flows and may contain none. */
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

export const flows: CommandSpec = {
  name: 'flows',
  summary: 'list, show and cancel flows',
  description: 'Flows: executions that depend on each other.',
  examples: ['flowfabric flows list --state failed', `flowfabric flows describe ${AN_ID}`],
  commands: [
    {
      name: 'list',
      summary: 'list flows',
      description: 'List flows that match all conditions, newest first.',
      options: [
        ['--namespace <name>', 'of this namespace'],
        ['--state <state>', 'completed, failed or cancelled; or open for those that have not ended'],
        ['--name <name>', 'of this name'],
        LIMIT_OPTION,
        CURSOR_OPTION,
      ],
      examples: ['flowfabric flows list', 'flowfabric flows list --state failed --name nightly'],
      action: list,
    },
    {
      name: 'describe',
      alias: 'show',
      summary: 'show one flow',
      description: 'Show a flow: its members with their states and joins, and its edges; or draw it.',
      arguments: [ID_ARGUMENT],
      options: [
        ['--mermaid', 'print a Mermaid flowchart'],
        ['--dot', 'print a graph for Graphviz'],
      ],
      examples: [
        `flowfabric flows describe ${AN_ID}`,
        `flowfabric flows describe ${AN_ID} --dot | dot -Tsvg`,
      ],
      action: describe,
    },
    {
      name: 'cancel',
      summary: 'cancel a flow',
      description: 'Cancel a flow and, by its policy, its members. It cannot grow afterwards.',
      arguments: [ID_ARGUMENT],
      options: [
        REASON_OPTION,
        BY_OPTION,
        [
          '--policy <policy>',
          'cancel_all: every open member; cancel_pending: those that have not begun; let_finish: none (default: cancel_all)',
        ],
        ['--wait', 'wait until the flow has ended'],
      ],
      examples: [
        `flowfabric flows cancel ${AN_ID} --reason 'wrong input'`,
        `flowfabric flows cancel ${AN_ID} --reason 'late' --policy cancel_pending --wait`,
      ],
      action: cancelFlow,
    },
  ],
};

async function describe(session: Session, options: DescribeOptions, id: string): Promise<number> {
  parseExecutionId(id, 'id');
  const { printer } = session;
  const isDrawn = options.mermaid === true || options.dot === true;
  if (options.mermaid && options.dot) throw new UsageError('Give --mermaid or --dot, not both.');
  if (isDrawn && printer.format === 'json')
    throw new UsageError('--json cannot be combined with --mermaid or --dot.');
  const flow = await withEngine(session, { listen: 'off' }, (engine) => engine.flows.describe(id));
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
    ...(sealedAtMs === null ? [row('sealed', 'not yet: no join is decided until then')] : []),
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

async function list(session: Session, options: ListOptions): Promise<number> {
  const { namespace, state, name, cursor } = options;
  const limit = parseLimit(options.limit);
  const filter = {
    ...(namespace === undefined ? {} : { namespace }),
    ...(state === undefined ? {} : { state: state as NonNullable<ListFlowsRequest['state']> }),
    ...(name === undefined ? {} : { name }),
  };
  const { page, nowMs } = await withEngine(session, { listen: 'off' }, async (engine) => ({
    page: await readPage(engine, { ...filter, limit, ...(cursor === undefined ? {} : { cursor }) }, session),
    nowMs: await engine.upkeep.serverTimeMs(),
  })).catch((error: unknown) => {
    throw inOptions(error);
  });
  const { printer } = session;
  if (printer.format === 'json') for (const flow of page.flows) printer.result(flow, []);
  else if (page.flows.length > 0) {
    const rows = page.flows.map((flow) => summaryCells(flow, nowMs));
    printer.result(page.flows, table(LIST_HEADINGS, rows));
  }
  printRest(page, { ...filter, limit }, session);
  return EXIT.ok;
}

/** Reads until the page is full: the engine may return fewer at a time. */
async function readPage(
  engine: Pick<Connection, 'flows'>,
  { cursor: from, limit, ...filter }: ListFlowsRequest & { limit: number },
  { interrupted }: Session,
): Promise<FlowPage> {
  const found: FlowSummary[] = [];
  let cursor = from ?? null;
  for (let pages = 0; pages < PAGES_MAX && found.length < limit; pages += 1) {
    const page = await engine.flows.list({
      ...filter,
      limit: limit - found.length,
      ...(cursor === null ? {} : { cursor }),
    });
    found.push(...page.flows);
    cursor = page.nextCursor;
    if (cursor === null || interrupted.aborted) break;
  }
  return { flows: found, nextCursor: cursor };
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
    [shortDuration(nowMs - flow.createdAtMs)],
    [
      cutLine(
        detail === '' && endedAtMs !== null ? `ended ${instant(endedAtMs)}` : detail,
        DETAIL_CHARACTERS,
      ),
    ],
  ];
}

/** Prints the command that lists what was not printed. */
function printRest(
  { flows: found, nextCursor: cursor }: FlowPage,
  { limit, ...filter }: ListFlowsRequest & { limit: number },
  session: Session,
): void {
  const { printer } = session;
  if (cursor === null) {
    if (found.length === 0) printer.note('nothing found.');
    return;
  }
  const conditions = Object.entries(filter).flatMap(([option, value]) => [`--${option}`, String(value)]);
  const paged = limit === DEFAULT_LIMIT ? [] : ['--limit', String(limit)];
  const words = [
    'flowfabric',
    'flows',
    'list',
    ...schemaWords(session),
    ...conditions,
    ...paged,
    '--cursor',
    cursor,
  ];
  const soFar = found.length === 0 ? 'nothing found yet' : `${thousands(found.length)} found so far`;
  const sentence = `${found.length >= limit ? 'there may be more' : soFar}; continue with`;
  printer.next(sentence, cursor, commandLine(words));
}

/** An engine error about the request, reworded to name the option; any other error unchanged. */
function inOptions(error: unknown): unknown {
  if (!isEngineError(error) || !error.field?.startsWith('request.')) return error;
  return new UsageError(error.message.replace(/^request\./, '--'));
}

async function cancelFlow(session: Session, options: CancelOptions, id: string): Promise<number> {
  parseExecutionId(id, 'id');
  const { by, policy, wait } = options;
  const request = {
    reason: readReason(options.reason, {}),
    ...(by === undefined ? {} : { by }),
    ...(policy === undefined ? {} : { policy: parsePolicy(policy) }),
    // Leaving before the members are cancelled would leave that to another process, which may not exist.
    wait: wait ? ('end' as const) : ('members' as const),
    signal: session.interrupted,
  };
  const answer = await withEngine(session, { listen: 'off' }, (engine) => engine.flows.cancel(id, request));
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
      const members = counted(length, 'member');
      return [`cancelled (${answer.policy}); this command cancelled ${members}`, 'good'];
    }
    case 'already_cancelled':
      return [`was already cancelled (${answer.policy})`, 'plain'];
    case 'already_ended':
      return [`not cancelled: it had already ended (${answer.state})`, 'warn'];
    case 'not_found':
      return ['not cancelled: there is no such flow', 'bad'];
  }
}
