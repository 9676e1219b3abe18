/**
 * Reads flows: one with its members and edges, lists of them, and waiting until one has finished.
 */
import type { WaitOptions } from '../../contract/executions.ts';
import { EngineError, isOutage } from '../../contract/errors.ts';
import type {
  EdgeSnapshot,
  FlowPage,
  FlowSnapshot,
  FlowState,
  FlowSummary,
  FoundFlows,
  ListFlowsRequest,
  MemberCounts,
  MemberSnapshot,
} from '../../contract/flows.ts';
import { parseExecutionId, parseIdPrefix, type ParsedExecutionId } from '../../contract/ids.ts';
import { abortSignal, choice, parsed, string } from '../../contract/shape/kinds.ts';
import { LIMITS } from '../../contract/limits.ts';
import { refuse, shape } from '../../contract/shape/shape.ts';
import {
  listFlows as list,
  readEdges,
  readFlowHead,
  readFlowHeads,
  readMembers,
  type FlowHead,
} from './reads.sql.ts';
import { unlessAborted } from '../../model/aborting.ts';
import type { EngineContext } from '../kit/context.ts';
import { namespaceName, pageSize } from '../kit/kinds.ts';

/** Poll interval for an awaited flow: the shortest after a hint, and the longest. */
const POLL_MS = { soonest: 50, latest: 1_000 };
/** How often other processes are asked to send hints about finished executions; they do for twice as long. */
const ASK_EVERY_MS = 5_000;

/** Reads a flow in several statements: a flow that changes meanwhile may appear partly updated. */
export async function describeFlow(context: EngineContext, flowId: string): Promise<FlowSnapshot | null> {
  const flow = parseExecutionId(flowId, 'flowId');
  const head = await readFlowHead(context.database, flow);
  if (head === undefined) return null;
  const [members, edges] = [
    await readMembers(context.database, flow),
    await readEdges(context.database, flow),
  ];
  const names = new Map<string, string>(members.map((member) => [member.executionId, member.name]));
  return {
    ...toSummary(head, members),
    counts: countsOf(members),
    members,
    edges: edges
      // Edges are read after the members, so an edge may refer to a member added in between.
      .filter((edge) => names.has(edge.from) && names.has(edge.to))
      .map((edge) => ({ ...edge, from: names.get(edge.from)!, to: names.get(edge.to)! }))
      .toSorted((a, b) => (placeOf(a) < placeOf(b) ? -1 : 1)),
  };
}

/** A unique sort key: no two edges connect the same members. */
function placeOf({ from, to }: EdgeSnapshot): string {
  return `${to}\n${from}`;
}

function countsOf(members: readonly MemberSnapshot[]): MemberCounts {
  const counts: MemberCounts = {};
  for (const { state } of members) counts[state] = (counts[state] ?? 0) + 1;
  return counts;
}

function toSummary(head: FlowHead, members?: readonly MemberSnapshot[]): FlowSummary {
  const { outcome: _, ...flow } = head;
  return { ...flow, state: stateOf(head, members) };
}

/** Lists are read without members, so they cannot tell running from blocked. */
function stateOf({ outcome, cancel, sealedAtMs }: FlowHead, members?: readonly MemberSnapshot[]): FlowState {
  if (outcome !== null) return outcome;
  if (cancel !== null) return 'cancelling';
  if (sealedAtMs === null) return 'open';
  if (members === undefined) return 'running';
  const canContinue = members.some(({ state }) => state === 'active' || state === 'waiting');
  return canContinue ? 'running' : 'blocked';
}

const listRequest = shape<ListFlowsRequest>({
  namespace: namespaceName.optional(),
  state: choice(['open', 'completed', 'failed', 'cancelled']).optional(),
  name: string(LIMITS.flowNameBytes).optional(),
  limit: pageSize.optional(),
  cursor: parsed.optional(),
});

export async function listFlows(context: EngineContext, request: ListFlowsRequest = {}): Promise<FlowPage> {
  const { namespace, name, state, limit = 100, cursor } = listRequest.check(request, 'request');
  const { flows, last } = await list(context.database, {
    namespace: namespace ?? null,
    name: name ?? null,
    outcome: state ?? null,
    limit,
    after: cursor === undefined ? null : readCursor(cursor),
    examined: LIMITS.flowsExamined,
  });
  return {
    flows: flows.map((head) => toSummary(head)),
    nextCursor: last === null ? null : `${last.createdAtMs}_${last.uuid}`,
  };
}

export async function findFlows(context: EngineContext, prefix: string): Promise<FoundFlows> {
  const range = parseIdPrefix(prefix);
  const found = await readFlowHeads(context.database, range, LIMITS.idCandidates + 1);
  return {
    flows: found.slice(0, LIMITS.idCandidates).map((head) => toSummary(head)),
    hasMore: found.length > LIMITS.idCandidates,
  };
}

function readCursor(cursor: unknown): { createdAtMs: number; uuid: string } {
  const text = typeof cursor === 'string' ? cursor : '';
  const found = /^(\d{1,15})_([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$/.exec(text);
  if (found === null) refuse('request.cursor', 'is not a nextCursor of a list of flows', 'invalid_cursor');
  return { createdAtMs: Number(found[1]), uuid: found[2]! };
}

const waitOptions = shape<WaitOptions>({ signal: abortSignal.optional() });

/** Polls the flow after hints about finished executions, and at intervals. */
export async function waitForFlow(
  context: EngineContext,
  flowId: string,
  options: WaitOptions = {},
): Promise<'completed' | 'failed' | 'cancelled'> {
  const { signal } = waitOptions.check(options, 'options');
  const flow = parseExecutionId(flowId, 'flowId');
  let askedAt = Number.NEGATIVE_INFINITY;
  for (;;) {
    signal?.throwIfAborted();
    if (performance.now() - askedAt >= ASK_EVERY_MS) {
      askedAt = performance.now();
      context.doorbell.askForEnds(2 * ASK_EVERY_MS);
    }
    const heard = listenForEnds(context);
    try {
      const head = await readUnlessAway(context, flow);
      if (head === undefined)
        throw new EngineError('not_found', `There is no flow ${flowId}.`, { field: 'flowId' });
      if (head !== 'away' && head.outcome !== null) return head.outcome;
      await unlessAborted(signal, heard.soon);
    } finally {
      heard.stop();
    }
  }
}

/** An outage does not end the wait. */
async function readUnlessAway(
  { database }: EngineContext,
  flow: ParsedExecutionId,
): Promise<FlowHead | 'away' | undefined> {
  try {
    return await readFlowHead(database, flow);
  } catch (error) {
    if (isOutage(error)) return 'away';
    throw error;
  }
}

/** Resolves shortly after a hint, or when the longest interval is over. */
function listenForEnds({ doorbell }: EngineContext): { soon: Promise<void>; stop(): void } {
  const timers: NodeJS.Timeout[] = [];
  let unwatch = (): unknown => undefined;
  const soon = new Promise<void>((resolve) => {
    timers.push(setTimeout(resolve, POLL_MS.latest));
    unwatch = doorbell.watch((hint) => {
      // Once: a series of hints must not postpone the poll.
      if (hint.ended.length > 0 && timers.length === 1) timers.push(setTimeout(resolve, POLL_MS.soonest));
      return false;
    });
  });
  return {
    soon,
    stop() {
      for (const timer of timers) clearTimeout(timer);
      unwatch();
    },
  };
}
