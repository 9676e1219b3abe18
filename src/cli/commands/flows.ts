/**
 * `flowfabric flows`: a list of flows; one flow with its members, joins and edges, or as a drawing; and cancelling one, with
 * a reason that is kept.
 */
import type { Connection } from '../../connect/connection.ts';
import { isEngineError } from '../../contract/errors.ts';
import {
  CANCEL_FLOW_POLICIES,
  type CancelFlowOutcome,
  type CancelFlowPolicy,
  type EdgeSnapshot,
  type FlowPage,
  type FlowSnapshot,
  type FlowSummary,
  type ListFlowsRequest,
  type MemberSnapshot,
} from '../../contract/flows.ts';
import { readReason } from '../bulk.ts';
import { AN_ID, BY_OPTION, CURSOR_OPTION, REASON_OPTION, type CommandSpec } from '../command.ts';
import { EXIT, UsageError } from '../exit-codes.ts';
import { schemaWords } from '../filter-options.ts';
import { joinProgress, toDot, toMermaid } from '../drawing/flow.ts';
import { DEFAULT_LIMIT, LIMIT_OPTION, parseLimit } from '../input.ts';
import type { Line, Span } from '../style.ts';
import { printable } from '../../contract/secrets.ts';
import { withEngine, type Session } from '../session.ts';
import { checkId, flowIdOf, noFlow, shortIds, type Shorten } from '../short-ids.ts';
import { column, folded, labelled, tableOf } from '../table.ts';
import { shortDuration } from '../../contract/shape/duration.ts';
import { ago, commandLine, counted, flowToneOf, instant, thousands, toneOf } from '../wording.ts';

interface DescribeOptions {
  mermaid?: true;
  dot?: true;
}

interface ListOptions {
  namespace?: string;
  state?: (typeof STATES)[number];
  name?: string;
  limit?: string;
  cursor?: string;
}

interface CancelOptions {
  reason?: string;
  by?: string;
  policy?: CancelFlowPolicy;
  wait?: true;
}

const FLOW_ARGUMENT = ['<id>', 'its id, or the beginning of it'] as const;

/** Pages read before stopping with what was found so far: each one examines many flows and may contain none. */
const PAGES_MAX = 50;
const MEMBER_COLUMNS = [
  column('MEMBER'),
  column('STATE', 'whole'),
  column('JOIN', 'whole'),
  column('TASK', 'text', { isOptional: true }),
  column('ATTEMPT', 'number', { isOptional: true }),
  column('ID', 'whole'),
  column('DETAIL', 'text', { least: 16 }),
];
const EDGE_COLUMNS = [
  column('FROM'),
  column('TO'),
  column('ON', 'whole'),
  column('STATE', 'whole'),
  column('AS'),
];
const LIST_COLUMNS = [
  column('ID', 'whole'),
  column('NAME'),
  column('STATE', 'whole'),
  column('MEMBERS', 'number'),
  column('EDGES', 'number'),
  column('AGE', 'number'),
  column('DETAIL'),
];
const STATES = ['open', 'completed', 'failed', 'cancelled'] as const;
const NO_FLOWS = 'there are no flows yet. Submit one in your application: connection.submitFlow(flow, input)';
const NOTHING_MATCHES = 'no flow matches. Omit a condition, or list all: flowfabric flows list';

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
        [
          '--state <state>',
          'completed, failed or cancelled; or open for those that have not ended',
          { choices: STATES },
        ],
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
      arguments: [FLOW_ARGUMENT],
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
      arguments: [FLOW_ARGUMENT],
      options: [
        REASON_OPTION,
        BY_OPTION,
        [
          '--policy <policy>',
          'cancel_all: every open member; cancel_pending: those that have not begun; let_finish: none (default: cancel_all)',
          { choices: CANCEL_FLOW_POLICIES },
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

async function describe(session: Session, options: DescribeOptions, given: string): Promise<number> {
  checkId(given);
  const { printer } = session;
  const isDrawn = options.mermaid === true || options.dot === true;
  if (options.mermaid && options.dot) throw new UsageError('Give --mermaid or --dot, not both.');
  if (isDrawn && printer.format === 'json')
    throw new UsageError('--json cannot be combined with --mermaid or --dot.');
  const { flow, short } = await withEngine(session, { listen: 'off' }, async (engine) => {
    const found = await engine.flows.describe(await flowIdOf(engine, session, given));
    if (found === null) throw await noFlow(engine, given);
    return { flow: found, short: await shortIds(engine, session, found) };
  });
  const drawing = options.dot ? toDot : toMermaid;
  printer.result(flow, isDrawn ? drawn(drawing(flow)) : linesOf(flow, short, printer.columns));
  return EXIT.ok;
}

function drawn(text: string): Line[] {
  return text
    .trimEnd()
    .split('\n')
    .map((line): Line => [[line]]);
}

function linesOf(flow: FlowSnapshot, short: Shorten, width: number | null): Line[] {
  const counts = Object.entries(flow.counts).map(([state, count]) => `${thousands(count)} ${state}`);
  const { cancel, tags, sealedAtMs, endedAtMs } = flow;
  const pairs = Object.entries(tags).map(([key, value]) => printable(`${key}=${value}`));
  const name = short(flow.flowId);
  const facts: Line[] = [
    ...(name === flow.flowId ? [] : [labelled('id', flow.flowId)]),
    labelled(
      'members',
      [thousands(flow.nodeCount), counts.join(', ')].filter((part) => part !== '').join(': '),
    ),
    labelled('edges', `${thousands(flow.edgeCount)}, revision ${flow.revision}`),
    labelled('place', `namespace ${printable(flow.namespace)}`),
    ...(pairs.length === 0 ? [] : [labelled('tags', pairs.join(', '))]),
    labelled('submitted', instant(flow.createdAtMs)),
    ...(sealedAtMs === null ? [labelled('sealed', 'not yet: no join is decided until then')] : []),
    ...(cancel === null ? [] : [labelled('cancel', cancelText(cancel))]),
    ...(endedAtMs === null ? [] : [labelled('ended', instant(endedAtMs))]),
  ];
  const members = flow.members.map((member) => memberCells(member, short));
  return [
    [[`${name}  `, 'strong'], [`${printable(flow.name)}  `], [flow.state, flowToneOf(flow.state)]],
    ...folded(facts, width),
    ...tableOf(MEMBER_COLUMNS, members, width),
    ...tableOf(EDGE_COLUMNS, flow.edges.map(edgeCells), width),
  ];
}

function cancelText({ policy, by, reason, atMs }: NonNullable<FlowSummary['cancel']>): string {
  return `${policy} by ${printable(by)} at ${instant(atMs)}: ${printable(reason)}`;
}

function memberCells(member: MemberSnapshot, short: Shorten): Span[] {
  const { name, state, join, kind, attemptIndex, executionId, message } = member;
  const hasJoin = join !== null && join.edges > 0;
  return [
    [printable(name)],
    [state, toneOf(state)],
    [hasJoin ? joinProgress(join) : '-', hasJoin && join.state === 'impossible' ? 'bad' : 'plain'],
    [printable(kind)],
    [String(attemptIndex + 1)],
    [short(executionId)],
    [message === null ? '' : short(printable(message))],
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
    ...(state === undefined ? {} : { state }),
    ...(name === undefined ? {} : { name }),
  };
  const from = cursor === undefined ? {} : { cursor };
  const { page, nowMs, short } = await withEngine(session, { listen: 'off' }, async (engine) => {
    const found = await readPage(engine, { ...filter, limit, ...from }, session);
    return {
      page: found,
      nowMs: await engine.upkeep.serverTimeMs(),
      short: await shortIds(engine, session, found),
    };
  }).catch((error: unknown) => {
    throw inOptions(error);
  });
  const { printer } = session;
  const rows = page.flows.map((flow) => summaryCells(flow, nowMs, short));
  printer.list(page.flows, tableOf(LIST_COLUMNS, rows, printer.columns));
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

function summaryCells(flow: FlowSummary, nowMs: number, short: Shorten): Span[] {
  const { cancel, endedAtMs, sealedAtMs } = flow;
  const open = sealedAtMs === null ? 'not sealed' : '';
  const detail = cancel === null ? open : `cancelled by ${cancel.by}: ${cancel.reason}`;
  return [
    [short(flow.flowId)],
    [printable(flow.name)],
    [flow.state, flowToneOf(flow.state)],
    [String(flow.nodeCount)],
    [String(flow.edgeCount)],
    [shortDuration(nowMs - flow.createdAtMs)],
    [printable(detail === '' && endedAtMs !== null ? `ended ${ago(nowMs - endedAtMs)}` : detail)],
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
    if (found.length === 0) printer.note(Object.keys(filter).length === 0 ? NO_FLOWS : NOTHING_MATCHES);
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

async function cancelFlow(session: Session, options: CancelOptions, given: string): Promise<number> {
  checkId(given);
  const { by, policy, wait } = options;
  const request = {
    reason: readReason(options.reason, {}),
    ...(by === undefined ? {} : { by }),
    ...(policy === undefined ? {} : { policy }),
    // Leaving before the members are cancelled would leave that to another process, which may not exist.
    wait: wait ? ('end' as const) : ('members' as const),
    signal: session.interrupted,
  };
  const answer = await withEngine(session, { listen: 'off' }, async (engine) => {
    const flowId = await flowIdOf(engine, session, given);
    const cancelled = await engine.flows.cancel(flowId, request);
    const short = await shortIds(engine, session, flowId);
    session.printer.result({ flowId, ...cancelled }, [[[`${short(flowId)}  `], wordsOf(cancelled)]]);
    return cancelled;
  });
  if (answer.outcome === 'not_found') return EXIT.notFound;
  return answer.outcome === 'already_ended' ? EXIT.refused : EXIT.ok;
}

function wordsOf(answer: CancelFlowOutcome): Span {
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
