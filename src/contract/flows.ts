/**
 * Flows: executions joined by edges. A member runs when its join says so; what a join needs no more is stopped. Everything here
 * is data: builders with types are made on top of it.
 */
import type { LeaseRef, OperatorNote, SubmitRequest } from './engine.ts';
import type { ExecutionId } from './ids.ts';
import type { PublicState } from './states.ts';

/** A flow's id on the wire, of the form of an execution's. */
export type FlowId = ExecutionId;

/** What an edge asks of the member it comes from. `failure`: failed, cancelled or expired. `skipped`: its join was impossible. */
export const EDGE_CONDITIONS = ['success', 'failure', 'always', 'skipped'] as const;
export type EdgeCondition = (typeof EDGE_CONDITIONS)[number];

export const EDGE_STATES = ['staged', 'pending', 'satisfied', 'failed', 'skipped'] as const;
export type EdgeState = (typeof EDGE_STATES)[number];

export const JOIN_KINDS = ['all', 'any', 'quorum'] as const;
export type JoinKind = (typeof JOIN_KINDS)[number];

/** What becomes of members a join waited for and needs no more: stopped (the default), or left to run. */
export const ON_SATISFIED = ['cancel_remaining', 'let_run'] as const;
export type OnSatisfied = (typeof ON_SATISFIED)[number];

/** When a member may run. Default `all`. One that never can is skipped, and that is told to those after it. */
export type JoinPolicy =
  | { kind: 'all' }
  | { kind: 'any'; onSatisfied?: OnSatisfied }
  | { kind: 'quorum'; k: number; onSatisfied?: OnSatisfied };

export const GROUP_STATES = ['pending', 'satisfied', 'impossible'] as const;
export type GroupState = (typeof GROUP_STATES)[number];

/** An edge into the member that has it. */
export interface EdgeRequest {
  /** The name of the member it comes from. */
  from: string;
  /** Default `success`. */
  on?: EdgeCondition;
  /** Puts the result into the input of the member it leads to, under this name. Several edges of one name with `list`: as a list, in their order. */
  as?: string;
  list?: boolean;
}

/** An edge from the member that has it. */
export interface OnwardEdge extends Omit<EdgeRequest, 'from'> {
  /** The name of the member it leads to. */
  to: string;
}

/** One member. What it is called is known in its flow alone. */
export interface MemberRequest extends Omit<
  SubmitRequest,
  'namespace' | 'executionId' | 'idempotencyKey' | 'delayMs'
> {
  name: string;
  after?: readonly (string | EdgeRequest)[];
  /** Members that come after this one: edges into them, from here. Also into one that is there already, as long as its join is open. */
  before?: readonly (string | OnwardEdge)[];
  join?: JoinPolicy;
  /** A member that runs instead, when the join of this one is impossible. Short for an edge to it on `skipped`. */
  fallback?: string;
}

export interface FlowRequest {
  name: string;
  /** A given id makes the submit repeatable: the second one answers `duplicate`. */
  flowId?: string;
  namespace?: string;
  tags?: Record<string, string>;
  members: readonly MemberRequest[];
}

export interface SubmittedFlow {
  flowId: FlowId;
  outcome: 'submitted' | 'duplicate';
  /** By name. */
  members: Record<string, ExecutionId>;
  revision: number;
}

export interface CreateFlowRequest {
  name: string;
  flowId?: string;
  namespace?: string;
  tags?: Record<string, string>;
}

/** Executions that are there already, of the flow's partition, to be taken in under a name. */
export interface AdoptedMember {
  name: string;
  executionId: string;
}

/** An edge between members that are there, by their execution ids. */
export interface StagedEdge {
  upstream: string;
  downstream: string;
  on?: EdgeCondition;
  as?: string;
  list?: boolean;
}

export interface GraphOptions {
  /** Only while the graph has this revision; another is `stale_revision`. */
  expectedRevision?: number;
}

export const CANCEL_FLOW_POLICIES = ['cancel_all', 'cancel_pending', 'let_finish'] as const;
/** `cancel_all`: every member that has not ended. `cancel_pending`: those that have not begun. `let_finish`: none; the flow only cannot grow. */
export type CancelFlowPolicy = (typeof CANCEL_FLOW_POLICIES)[number];

export interface CancelFlowRequest extends OperatorNote {
  /** Default `cancel_all`. */
  policy?: CancelFlowPolicy;
  /** `members`: until every member that is to be cancelled is. `end`: until the flow has ended. Default `nothing`: it goes on by itself. */
  wait?: 'nothing' | 'members' | 'end';
  signal?: AbortSignal;
}

export type CancelFlowOutcome =
  | { outcome: 'cancelled'; policy: CancelFlowPolicy; cancelled: ExecutionId[] }
  | { outcome: 'already_cancelled'; policy: CancelFlowPolicy }
  | { outcome: 'already_ended'; state: FlowState }
  | { outcome: 'not_found' };

/** `open`: not sealed. `blocked`: members are left, and none of them runs or waits for a worker. */
export const FLOW_STATES = [
  'open',
  'running',
  'blocked',
  'cancelling',
  'completed',
  'failed',
  'cancelled',
] as const;
export type FlowState = (typeof FLOW_STATES)[number];

/** How many members are in which state. */
export type MemberCounts = Partial<Record<PublicState, number>>;

export interface FlowSummary {
  flowId: FlowId;
  name: string;
  namespace: string;
  tags: Record<string, string>;
  state: FlowState;
  revision: number;
  nodeCount: number;
  edgeCount: number;
  createdAtMs: number;
  sealedAtMs: number | null;
  endedAtMs: number | null;
  cancel: { policy: CancelFlowPolicy; reason: string; by: string; atMs: number } | null;
}

export interface JoinSnapshot {
  policy: JoinPolicy;
  state: GroupState;
  edges: number;
  satisfied: number;
  failed: number;
  skipped: number;
  /** Edges that have not been heard of. */
  pending: number;
}

export interface MemberSnapshot {
  name: string;
  executionId: ExecutionId;
  kind: string;
  state: PublicState;
  attemptIndex: number;
  /** Of one that ended otherwise than well. */
  message: string | null;
  join: JoinSnapshot | null;
}

export interface EdgeSnapshot {
  edgeId: string;
  from: string;
  to: string;
  on: EdgeCondition;
  state: EdgeState;
  as: string | null;
}

export interface FlowSnapshot extends FlowSummary {
  counts: MemberCounts;
  /** In the order of their names. */
  members: MemberSnapshot[];
  edges: EdgeSnapshot[];
}

export interface ListFlowsRequest {
  namespace?: string;
  /** Of those that have ended, or `open` for those that have not. */
  state?: 'open' | 'completed' | 'failed' | 'cancelled';
  name?: string;
  /** 1 to 1,000. Default 100. */
  limit?: number;
  cursor?: string;
}

export interface FlowPage {
  flows: FlowSummary[];
  nextCursor: string | null;
}

export interface Flows {
  /** A whole flow, all of it or nothing. */
  submitFlow(request: FlowRequest): Promise<SubmittedFlow>;
  /** Members and edges more, by a member that runs. Repeatable: members are known by their names. */
  extendFlow(lease: LeaseRef, members: readonly MemberRequest[]): Promise<SubmittedFlow>;
  /** An open flow, to be built step by step and sealed. */
  createFlow(request: CreateFlowRequest): Promise<{ flowId: FlowId; outcome: 'created' | 'exists' }>;
  /** New ones are held until the flow is sealed; adopted ones go on as they are. */
  addMembers(
    flowId: string,
    members: readonly (MemberRequest | AdoptedMember)[],
    options?: GraphOptions,
  ): Promise<SubmittedFlow>;
  /** How a member joins, before it has edges. */
  setJoin(flowId: string, executionId: string, policy: JoinPolicy): Promise<'set' | 'already_set'>;
  /** Edges that do not count before they are applied. */
  stageEdges(
    flowId: string,
    edges: readonly StagedEdge[],
    options?: GraphOptions,
  ): Promise<{ edgeIds: string[]; revision: number }>;
  applyEdges(flowId: string, edgeIds: readonly string[]): Promise<{ applied: number }>;
  /** Takes back what was staged and not applied. */
  unstageEdges(flowId: string, edgeIds: readonly string[]): Promise<{ unstaged: number }>;
  /** From now on joins are decided. */
  sealFlow(flowId: string, options?: GraphOptions): Promise<void>;
  cancelFlow(flowId: string, request: CancelFlowRequest): Promise<CancelFlowOutcome>;
  /** Null when there is no such flow. */
  describeFlow(flowId: string): Promise<FlowSnapshot | null>;
  listFlows(request?: ListFlowsRequest): Promise<FlowPage>;
  /** How it ended, as soon as it has. Throws `not_found`. */
  waitForFlow(
    flowId: string,
    options?: { signal?: AbortSignal },
  ): Promise<'completed' | 'failed' | 'cancelled'>;
}
