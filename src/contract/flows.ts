/**
 * Flows: executions joined by edges. A member runs when its join says so; what a join needs no more is stopped. Everything here
 * is data: builders with types are made on top of it.
 */
import type { OperatorNote, SubmitRequest } from './executions.ts';
import type { ExecutionId } from './ids.ts';
import type { PublicState } from './states.ts';

/** A flow's id on the wire, of the form of an execution's. */
export type FlowId = ExecutionId;

/** What an edge asks of the member it comes from. `failure`: failed, cancelled or expired. `skipped`: its join was impossible. */
export const EDGE_CONDITIONS = ['success', 'failure', 'always', 'skipped'] as const;
/** What an edge asks of the member it comes from. */
export type EdgeCondition = (typeof EDGE_CONDITIONS)[number];

/** How far an edge is. */
export const EDGE_STATES = ['staged', 'pending', 'satisfied', 'failed', 'skipped'] as const;
/** How far an edge is. */
export type EdgeState = (typeof EDGE_STATES)[number];

/** How many of its edges a member needs. */
export const JOIN_KINDS = ['all', 'any', 'quorum'] as const;
/** How many of its edges a member needs. */
export type JoinKind = (typeof JOIN_KINDS)[number];

/** What becomes of members a join waited for and needs no more: stopped (the default), or left to run. */
export const ON_SATISFIED = ['cancel_remaining', 'let_run'] as const;
/** What becomes of members that a join needs no more. */
export type OnSatisfied = (typeof ON_SATISFIED)[number];

/** When a member may run. Default `all`. One that never can is skipped, and that is told to those after it. */
export type JoinPolicy =
  | { kind: 'all' }
  | { kind: 'any'; onSatisfied?: OnSatisfied }
  | { kind: 'quorum'; k: number; onSatisfied?: OnSatisfied };

/** How far a join is. */
export const GROUP_STATES = ['pending', 'satisfied', 'impossible'] as const;
/** How far a join is. */
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

/** A whole flow to submit. */
export interface FlowRequest {
  name: string;
  /** A given id makes the submit repeatable: the second one answers `duplicate`. */
  flowId?: string;
  namespace?: string;
  tags?: Record<string, string>;
  members: readonly MemberRequest[];
}

/** A flow that was submitted, or extended, and its members. */
export interface SubmittedFlow {
  flowId: FlowId;
  outcome: 'submitted' | 'duplicate';
  /** By name. */
  members: Record<string, ExecutionId>;
  revision: number;
}

/** An open flow to create. */
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

/** On what condition a graph is changed. */
export interface GraphOptions {
  /** Only while the graph has this revision; another is `stale_revision`. */
  expectedRevision?: number;
}

/** Which members end with a cancelled flow. */
export const CANCEL_FLOW_POLICIES = ['cancel_all', 'cancel_pending', 'let_finish'] as const;
/** `cancel_all`: every member that has not ended. `cancel_pending`: those that have not begun. `let_finish`: none; the flow only cannot grow. */
export type CancelFlowPolicy = (typeof CANCEL_FLOW_POLICIES)[number];

/** How a flow is cancelled, and how long to wait for it. */
export interface CancelFlowRequest extends OperatorNote {
  /** Default `cancel_all`. */
  policy?: CancelFlowPolicy;
  /** `members`: until every member that is to be cancelled is. `end`: until the flow has ended. Default `nothing`: it goes on by itself. */
  wait?: 'nothing' | 'members' | 'end';
  signal?: AbortSignal;
}

/** What became of cancelling a flow. */
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
/** How far a flow is. */
export type FlowState = (typeof FLOW_STATES)[number];

/** How many members are in which state. */
export type MemberCounts = Partial<Record<PublicState, number>>;

/** One flow in a list. */
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

/** How far a join is, and what it has counted. */
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

/** One member of a flow, as it stands. */
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

/** One edge of a flow, as it stands. */
export interface EdgeSnapshot {
  edgeId: string;
  from: string;
  to: string;
  on: EdgeCondition;
  state: EdgeState;
  as: string | null;
}

/** A flow with all its members and edges. */
export interface FlowSnapshot extends FlowSummary {
  counts: MemberCounts;
  /** In the order of their names. */
  members: MemberSnapshot[];
  edges: EdgeSnapshot[];
}

/** Which flows, and how many of them at once. */
export interface ListFlowsRequest {
  namespace?: string;
  /** Of those that have ended, or `open` for those that have not. */
  state?: 'open' | 'completed' | 'failed' | 'cancelled';
  name?: string;
  /** 1 to 1,000. Default 100. */
  limit?: number;
  cursor?: string;
}

/** A page of flows. */
export interface FlowPage {
  flows: FlowSummary[];
  nextCursor: string | null;
}
