/**
 * Reads flows: what is in one, how far it is, lists of them, and waiting for the end of one.
 */
import { EngineError, isOutage } from '../../contract/errors.ts';
import type {
  EdgeSnapshot,
  FlowPage,
  FlowSnapshot,
  FlowState,
  FlowSummary,
  JoinPolicy,
  JoinSnapshot,
  ListFlowsRequest,
  MemberCounts,
  MemberSnapshot,
} from '../../contract/flows.ts';
import { formatExecutionId, parseExecutionId, type ParsedExecutionId } from '../../contract/ids.ts';
import { LIMITS } from '../../contract/limits.ts';
import {
  listFlows as list,
  readEdges,
  readFlowHead,
  readMembers,
  type FlowHead,
  type StoredEdge,
  type StoredMember,
} from './reads.sql.ts';
import { unlessAborted } from '../../model/aborting.ts';
import { checkSignal, checkText, checkWhole, refuse } from '../kit/checks.ts';
import type { EngineContext } from '../kit/context.ts';
import { checkChoice, checkMembers } from '../kit/settings.ts';

/** Between two looks at a flow somebody waits for: at least, when something ended; and at most. */
const LOOK_MS = { soonest: 50, latest: 1_000 };
/** How often other processes are asked to say what ended; they do for twice as long. */
const ASK_EVERY_MS = 5_000;

/** As of its parts, read one after the other: a flow that changes meanwhile may be seen half way. */
export async function describeFlow(context: EngineContext, flowId: string): Promise<FlowSnapshot | null> {
  const flow = parseExecutionId(flowId, 'flowId');
  const head = await readFlowHead(context.database, flow);
  if (head === undefined) return null;
  const [members, edges] = [
    await readMembers(context.database, flow),
    await readEdges(context.database, flow),
  ];
  const names = new Map(members.map((member) => [member.execution_id, member.name]));
  return {
    ...toSummary(head, members),
    counts: countsOf(members),
    members: members.map((member) => toMember(flow, member)),
    edges: edges
      // Read after the members: one may lead to or from a member that was not there yet.
      .filter((edge) => names.has(edge.upstream_eid) && names.has(edge.downstream_eid))
      .map((edge) => toEdge(edge, names))
      .toSorted((a, b) => (placeOf(a) < placeOf(b) ? -1 : 1)),
  };
}

/** No two edges join the same members. */
function placeOf({ from, to }: EdgeSnapshot): string {
  return `${to}\n${from}`;
}

function countsOf(members: readonly StoredMember[]): MemberCounts {
  const counts: MemberCounts = {};
  for (const { public_state: state } of members) counts[state] = (counts[state] ?? 0) + 1;
  return counts;
}

function toSummary(head: FlowHead, members?: readonly StoredMember[]): FlowSummary {
  return {
    flowId: formatExecutionId(head.partition_key, head.flow_id),
    name: head.name,
    namespace: head.namespace,
    tags: head.tags,
    state: stateOf(head, members),
    revision: head.graph_revision,
    nodeCount: head.node_count,
    edgeCount: head.edge_count,
    createdAtMs: head.created_at_ms,
    sealedAtMs: head.sealed_at_ms,
    endedAtMs: head.ended_at_ms,
    cancel:
      head.cancel_policy === null
        ? null
        : {
            policy: head.cancel_policy,
            reason: head.cancel_reason!,
            by: head.cancelled_by!,
            atMs: head.cancelled_at_ms!,
          },
  };
}

/** Of a list without its members it is not known whether any of them can go on. */
function stateOf(head: FlowHead, members?: readonly StoredMember[]): FlowState {
  if (head.outcome !== null) return head.outcome;
  if (head.cancel_policy !== null) return 'cancelling';
  if (head.sealed_at_ms === null) return 'open';
  if (members === undefined) return 'running';
  const goesOn = members.some(({ public_state: state }) => state === 'active' || state === 'waiting');
  return goesOn ? 'running' : 'blocked';
}

function toMember(flow: ParsedExecutionId, row: StoredMember): MemberSnapshot {
  return {
    name: row.name,
    executionId: formatExecutionId(flow.partition, row.execution_id),
    kind: row.kind,
    state: row.public_state,
    attemptIndex: row.attempt_index,
    message: row.failure_message,
    join: row.join_kind === null ? null : toJoin(row),
  };
}

function toJoin(row: StoredMember): JoinSnapshot {
  const [edges, satisfied, failed, skipped] = [
    row.edge_count!,
    row.success_count!,
    row.fail_count!,
    row.skip_count!,
  ];
  return {
    policy: policyOf(row),
    state: row.group_state!,
    edges,
    satisfied,
    failed,
    skipped,
    pending: edges - satisfied - failed - skipped,
  };
}

function policyOf({ join_kind: kind, k_target: k, cancels_rest: cancels }: StoredMember): JoinPolicy {
  const onSatisfied = cancels === true ? 'cancel_remaining' : 'let_run';
  if (kind === 'quorum') return { kind, k: k!, onSatisfied };
  return kind === 'any' ? { kind, onSatisfied } : { kind: 'all' };
}

function toEdge(edge: StoredEdge, names: ReadonlyMap<string, string>): EdgeSnapshot {
  return {
    edgeId: edge.edge_id,
    from: names.get(edge.upstream_eid)!,
    to: names.get(edge.downstream_eid)!,
    on: edge.condition,
    state: edge.state,
    as: edge.input_name,
  };
}

export async function listFlows(context: EngineContext, request: ListFlowsRequest = {}): Promise<FlowPage> {
  checkMembers(request, 'request', ['namespace', 'state', 'name', 'limit', 'cursor']);
  checkChoice(request.state, 'request.state', ['open', 'completed', 'failed', 'cancelled']);
  const { namespace, name, state, limit, cursor } = request;
  const { flows, last } = await list(context.database, {
    namespace:
      namespace === undefined ? null : checkText(namespace, 'request.namespace', LIMITS.namespaceBytes),
    name: name === undefined ? null : checkText(name, 'request.name', LIMITS.flowNameBytes),
    outcome: state ?? null,
    limit: limit === undefined ? 100 : checkWhole(limit, 'request.limit', 1, LIMITS.listPage),
    after: cursor === undefined ? null : readCursor(cursor),
    examined: LIMITS.flowsExamined,
  });
  return {
    flows: flows.map((head) => toSummary(head)),
    nextCursor: last === null ? null : `${last.createdAtMs}_${last.uuid}`,
  };
}

function readCursor(cursor: unknown): { createdAtMs: number; uuid: string } {
  const text = typeof cursor === 'string' ? cursor : '';
  const found = /^(\d{1,15})_([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$/.exec(text);
  if (found === null) refuse('request.cursor', 'is not one that a list answered', 'invalid_cursor');
  return { createdAtMs: Number(found[1]), uuid: found[2]! };
}

/** Looks when something ended that this process hears of, and at intervals. */
export async function waitForFlow(
  context: EngineContext,
  flowId: string,
  options: { signal?: AbortSignal } = {},
): Promise<'completed' | 'failed' | 'cancelled'> {
  checkMembers(options, 'options', ['signal']);
  const signal = checkSignal(options.signal, 'options.signal');
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

/** Whoever waits for a flow waits for its database, too. */
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

/** Resolves a little after something ended, or when it is time to look anyway. */
function listenForEnds({ doorbell }: EngineContext): { soon: Promise<void>; stop(): void } {
  const timers: NodeJS.Timeout[] = [];
  let unwatch = (): unknown => undefined;
  const soon = new Promise<void>((resolve) => {
    timers.push(setTimeout(resolve, LOOK_MS.latest));
    unwatch = doorbell.watch((hint) => {
      // Once: ends that keep coming must not put the look off.
      if (hint.ended.length > 0 && timers.length === 1) timers.push(setTimeout(resolve, LOOK_MS.soonest));
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
