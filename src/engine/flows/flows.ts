/**
 * Builds flows: as a whole, by their own running members, or step by step. Each exported function is one operation and
 * one transaction; a refused call writes nothing.
 */
import { randomUUID } from 'node:crypto';
import type { LeaseRef } from '../../contract/protocol.ts';
import type {
  AdoptedMember,
  CreateFlowRequest,
  FlowId,
  FlowRequest,
  GraphOptions,
  JoinPolicy,
  MemberRequest,
  StagedEdge,
  SubmittedFlow,
} from '../../contract/flows.ts';
import {
  formatExecutionId,
  parseExecutionId,
  type ParsedExecutionId,
  uuidString,
} from '../../contract/ids.ts';
import { list, asciiName, parsed, refusedAs, whole } from '../../contract/shape/kinds.ts';
import { LIMITS } from '../../contract/limits.ts';
import { refuse, shape } from '../../contract/shape/shape.ts';
import type { ExecutionKey } from '../executions/executions.sql.ts';
import { readFlowOf, readMemberNames } from './reads.sql.ts';
import * as store from './flows.sql.ts';
import { announce } from '../kit/announce.ts';
import type { EngineContext } from '../kit/context.ts';
import { sayingWhy } from './refusals.ts';
import {
  checkMember,
  checkRoomForInputs,
  connect,
  edgeRows,
  edgeTerms,
  joinPolicy,
  joinRow,
  stagedEdge,
  submitPartOf,
  type CheckedMember,
} from './requests.ts';
import { knowingRoutes } from '../executions/submitting/interning.ts';
import { namespaceName, tagMap, tagsJson } from '../kit/kinds.ts';
import { mintFlow, mintFor } from '../executions/submitting/mint.ts';
import { leaseKey } from '../kit/answers.ts';
import { toCall, type CheckedRequest } from '../executions/submitting/submit-call.ts';
import { checkMemberRequest, type DefaultPolicy } from '../executions/submitting/check-request.ts';

const flowFields = {
  name: asciiName(LIMITS.flowNameBytes),
  flowId: parsed.optional(),
  namespace: namespaceName.optional(),
  tags: tagMap.optional(),
};
const createFlowRequest = shape<CreateFlowRequest>(flowFields);
const flowRequest = shape<FlowRequest>({ ...flowFields, members: parsed });
const someMembers = list(parsed, LIMITS.flowMembers, 1);
const anyMembers = list(parsed, LIMITS.flowMembers);
const adoptedMember = shape<AdoptedMember>({ name: asciiName(LIMITS.memberNameBytes), executionId: parsed });
const graphOptions = shape<GraphOptions>({
  expectedRevision: whole(0, Number.MAX_SAFE_INTEGER).optional(),
});
const edgeList = list(stagedEdge, LIMITS.flowEdges, 1);
const edgeIdList = list(refusedAs('invalid_id', uuidString), LIMITS.flowEdges);

function flowRow(request: CreateFlowRequest): store.FlowRow {
  const { flowId, namespace = 'default' } = request;
  const id = flowId === undefined ? mintFlow() : parseExecutionId(flowId, 'request.flowId');
  return { ...id, name: request.name, namespace, tags: tagsJson(request.tags ?? {}, 'request.tags') };
}

/** New members of a flow, with ids of its partition. */
function newMembers(
  flow: { partition: number; namespace: string },
  requests: readonly MemberRequest[],
  defaultPolicy: DefaultPolicy,
): { checked: CheckedMember[]; entries: CheckedRequest[]; requests: readonly MemberRequest[] } {
  someMembers.check(requests, 'members');
  const checked = Array.from(requests, (request, index) => checkMember(request, `members[${index}]`));
  const mint = mintFor(flow.partition);
  const entries = requests.map((request, index) =>
    checkMemberRequest(submitPartOf(request), `members[${index}]`, flow.namespace, mint, defaultPolicy),
  );
  return { checked, entries, requests };
}

/** `known`: existing members, by name. */
function growthOf(
  { checked, entries, requests }: ReturnType<typeof newMembers>,
  known: ReadonlyMap<string, string>,
  held: 'until_sealed' | 'no',
): store.Growth {
  const uuids = new Map(checked.map(({ name }, index) => [name, entries[index]!.uuid]));
  const edges = connect(checked, (name) => known.has(name), held);
  requests.forEach(({ payload, name }, index) => {
    if (edges.get(name)!.some((edge) => edge.inputName !== null))
      checkRoomForInputs(payload, `members[${index}].payload`);
  });
  const joinOf = ({ name, join }: CheckedMember) =>
    edges.get(name)!.length > 0 || held === 'until_sealed' ? joinRow(join ?? { kind: 'all' }) : null;
  return {
    call: toCall(entries),
    members: checked.map((member) => ({ name: member.name, join: joinOf(member) })),
    edges: edgeRows(edges, (name) => uuids.get(name) ?? known.get(name)!),
  };
}

export async function submitFlow(
  context: EngineContext,
  request: FlowRequest,
  defaultPolicy: DefaultPolicy,
): Promise<SubmittedFlow> {
  const flow = flowRow(flowRequest.check(request, 'request'));
  const members = newMembers(flow, request.members, defaultPolicy);
  const growth = growthOf(members, new Map(), 'no');
  const rows = await sayingWhy(context, flow, () =>
    knowingRoutes(context, growth.call, (call) =>
      store.submitFlow(context.database, flow, { ...growth, call }),
    ),
  );
  return grown(context, flow, growth, rows);
}

export async function extendFlow(
  context: EngineContext,
  lease: LeaseRef,
  requests: readonly MemberRequest[],
  defaultPolicy: DefaultPolicy,
): Promise<SubmittedFlow> {
  const key = leaseKey(lease, 'lease');
  const flow = await readFlowOf(context.database, key);
  if (flow === undefined) refuse('lease.executionId', 'is not a member of a flow', 'not_a_member');
  const members = newMembers(flow, requests, defaultPolicy);
  const known = await namesIn(context, flow, members.checked);
  const growth = growthOf(members, known, 'no');
  const rows = await sayingWhy(context, flow, () =>
    knowingRoutes(context, growth.call, (call) =>
      store.growFlow(context.database, flow, { ...growth, call }, { lease: key }),
    ),
  );
  return grown(context, flow, growth, rows);
}

/** Existing members that edges refer to, by name. */
async function namesIn(
  context: EngineContext,
  flow: ExecutionKey,
  members: readonly CheckedMember[],
): Promise<Map<string, string>> {
  const own = new Set(members.map(({ name }) => name));
  const named = new Set(
    members.flatMap(({ after, before }) => [...after.map(({ from }) => from), ...before.map(({ to }) => to)]),
  );
  const others = [...named].filter((name) => !own.has(name));
  return others.length === 0 ? new Map() : readMemberNames(context.database, flow, others);
}

function grown(
  context: EngineContext,
  flow: ExecutionKey,
  { call }: store.Growth,
  rows: readonly store.GrowAnswer[],
): SubmittedFlow {
  const minted = new Set(call.rows.map(({ uuid }) => uuid));
  const repeated = rows.some(({ outcome }) => outcome === 'duplicate' || outcome === 'known');
  // A minted id cannot have existed before: an unanswered try of this very call had succeeded.
  const unanswered = repeated && rows.some(({ uuid }) => minted.has(uuid));
  // A repeat returns no routes.
  announce(context, unanswered ? [...rows, { outcome: 'opened', routes: 'all', count: 0 }] : rows);
  const named = rows.filter((row) => row.name !== null);
  return {
    flowId: formatExecutionId(flow.partition, flow.uuid),
    outcome: repeated && !unanswered ? 'duplicate' : 'submitted',
    members: Object.fromEntries(named.map((row) => [row.name, formatExecutionId(flow.partition, row.uuid)])),
    revision: Math.max(...rows.map((row) => row.revision ?? 0)),
  };
}

export async function createFlow(
  context: EngineContext,
  request: CreateFlowRequest,
): Promise<{ flowId: FlowId; outcome: 'created' | 'exists' }> {
  const flow = flowRow(createFlowRequest.check(request, 'request'));
  const isNew = await sayingWhy(context, flow, () => store.createFlow(context.database, flow));
  return { flowId: formatExecutionId(flow.partition, flow.uuid), outcome: isNew ? 'created' : 'exists' };
}

export async function addMembers(
  context: EngineContext,
  flowId: string,
  requests: readonly (MemberRequest | AdoptedMember)[],
  options: GraphOptions,
  defaultPolicy: DefaultPolicy,
): Promise<SubmittedFlow> {
  const flow = parseExecutionId(flowId, 'flowId');
  const revision = checkRevision(options);
  anyMembers.check(requests, 'members');
  const adopted = requests.filter((request): request is AdoptedMember => isAdopted(request));
  if (adopted.length > 0) {
    if (adopted.length < requests.length)
      refuse('members', 'mixes new and existing executions; use one call for each');
    return adopt(context, flow, adopted, revision);
  }
  const found = await readFlowOf(context.database, flow, 'by_flow');
  if (found === undefined) refuse('flowId', 'does not exist', 'not_found');
  const members = newMembers(found, requests as MemberRequest[], defaultPolicy);
  const growth = growthOf(members, await namesIn(context, flow, members.checked), 'until_sealed');
  const rows = await sayingWhy(context, flow, () =>
    knowingRoutes(context, growth.call, (call) =>
      store.growFlow(context.database, flow, { ...growth, call }, { revision }),
    ),
  );
  return grown(context, flow, growth, rows);
}

function isAdopted(request: MemberRequest | AdoptedMember): boolean {
  return typeof request === 'object' && request !== null && 'executionId' in request;
}

async function adopt(
  context: EngineContext,
  flow: ExecutionKey,
  members: readonly AdoptedMember[],
  revision: number | null,
): Promise<SubmittedFlow> {
  const rows = Array.from(members, (member, index) => {
    adoptedMember.check(member, `members[${index}]`);
    const id = parseExecutionId(member.executionId, `members[${index}].executionId`);
    if (id.partition !== flow.partition)
      refuse(`members[${index}].executionId`, 'is in another partition than the flow', 'not_a_member');
    return { uuid: id.uuid, name: member.name };
  });
  refuseTwice(
    rows.map(({ uuid }) => uuid),
    'executionId',
  );
  refuseTwice(
    rows.map(({ name }) => name),
    'name',
  );
  const made = await sayingWhy(context, flow, () =>
    store.adoptMembers(context.database, flow, revision, rows),
  );
  return {
    flowId: formatExecutionId(flow.partition, flow.uuid),
    outcome: 'submitted',
    members: Object.fromEntries(
      rows.map(({ uuid, name }) => [name, formatExecutionId(flow.partition, uuid)]),
    ),
    revision: made,
  };
}

function refuseTwice(values: readonly string[], field: string): void {
  const seen = new Set<string>();
  values.forEach((value, index) => {
    if (seen.has(value)) refuse(`members[${index}].${field}`, 'is used twice in this call');
    seen.add(value);
  });
}

function checkRevision(options: GraphOptions): number | null {
  return graphOptions.check(options, 'options').expectedRevision ?? null;
}

export async function setJoin(
  context: EngineContext,
  flowId: string,
  executionId: string,
  policy: JoinPolicy,
): Promise<'set' | 'already_set'> {
  const flow = parseExecutionId(flowId, 'flowId');
  const member = memberOf(flow, executionId, 'executionId');
  const join = joinRow(joinPolicy.check(policy, 'policy'));
  return sayingWhy(context, flow, () => store.setJoin(context.database, flow, member, join));
}

function memberOf(flow: ParsedExecutionId, executionId: string, field: string): string {
  const { partition, uuid } = parseExecutionId(executionId, field);
  if (partition !== flow.partition) refuse(field, 'is in another partition than the flow', 'not_a_member');
  return uuid;
}

export async function stageEdges(
  context: EngineContext,
  flowId: string,
  edges: readonly StagedEdge[],
  options: GraphOptions,
): Promise<{ edgeIds: string[]; revision: number }> {
  const flow = parseExecutionId(flowId, 'flowId');
  const expected = checkRevision(options);
  edgeList.check(edges, 'edges');
  const rows = Array.from(edges, (edge, index) => stagedRow(flow, edge, `edges[${index}]`, index));
  const seen = new Set<string>();
  rows.forEach(({ upstream, downstream }, index) => {
    if (seen.has(`${upstream} ${downstream}`))
      refuse(`edges[${index}]`, 'repeats an earlier edge of this call');
    seen.add(`${upstream} ${downstream}`);
  });
  const revision = await sayingWhy(context, flow, () =>
    store.stageEdges(context.database, flow, expected, rows),
  );
  return { edgeIds: rows.map(({ edgeId }) => edgeId), revision };
}

function stagedRow(flow: ParsedExecutionId, edge: StagedEdge, field: string, place: number): store.EdgeRow {
  const upstream = memberOf(flow, edge.upstream, `${field}.upstream`);
  const downstream = memberOf(flow, edge.downstream, `${field}.downstream`);
  if (upstream === downstream) refuse(field, 'leads from a member to itself', 'cycle');
  const { condition, inputName, isList } = edgeTerms(edge);
  return {
    edgeId: randomUUID(),
    upstream,
    downstream,
    condition,
    inputName,
    inputPlace: isList ? place : null,
  };
}

export async function applyEdges(
  context: EngineContext,
  flowId: string,
  edgeIds: readonly string[],
): Promise<{ applied: number }> {
  const flow = parseExecutionId(flowId, 'flowId');
  const ids = [...new Set(edgeIdList.check(edgeIds, 'edgeIds'))];
  const applied = await sayingWhy(context, flow, () => store.applyEdges(context.database, flow, ids));
  return { applied };
}

export async function unstageEdges(
  context: EngineContext,
  flowId: string,
  edgeIds: readonly string[],
): Promise<{ unstaged: number }> {
  const flow = parseExecutionId(flowId, 'flowId');
  const ids = [...new Set(edgeIdList.check(edgeIds, 'edgeIds'))];
  const unstaged = await sayingWhy(context, flow, () => store.unstageEdges(context.database, flow, ids));
  return { unstaged };
}

export async function sealFlow(context: EngineContext, flowId: string, options: GraphOptions): Promise<void> {
  const flow = parseExecutionId(flowId, 'flowId');
  const revision = checkRevision(options);
  const rows = await sayingWhy(context, flow, () => store.sealFlow(context.database, flow, revision));
  announce(context, rows);
}
