/**
 * Flows: executions connected by edges. A member runs when its join is satisfied; members a join no longer needs are
 * cancelled. Everything here is plain data; the typed builders are in src/define.
 */
import type { OperatorNote, SubmitRequest } from './executions.ts';
import type { ExecutionId } from './ids.ts';
import type { PublicState } from './states.ts';

/** A flow's id on the wire; it has the form of an execution id. */
export type FlowId = ExecutionId;

/**
 * Which outcome of its upstream member satisfies an edge. `failure`: failed, cancelled or expired. `skipped`: its join
 * was impossible.
 */
export const EDGE_CONDITIONS = ['success', 'failure', 'always', 'skipped'] as const;
/** Which outcome of its upstream member satisfies an edge. */
export type EdgeCondition = (typeof EDGE_CONDITIONS)[number];

/** The states of an edge. */
export const EDGE_STATES = ['staged', 'pending', 'satisfied', 'failed', 'skipped'] as const;
/** The state of an edge. */
export type EdgeState = (typeof EDGE_STATES)[number];

/** How many of its edges a member needs. */
export const JOIN_KINDS = ['all', 'any', 'quorum'] as const;
/** How many of its edges a member needs. */
export type JoinKind = (typeof JOIN_KINDS)[number];

/** What happens to members that a satisfied join no longer needs: they are cancelled (the default) or left to run. */
export const ON_SATISFIED = ['cancel_remaining', 'let_run'] as const;
/** What happens to members that a satisfied join no longer needs. */
export type OnSatisfied = (typeof ON_SATISFIED)[number];

/**
 * How many edges must be satisfied before a member runs. Default `all`. A member whose join is impossible is skipped.
 */
export type JoinPolicy =
  | { kind: 'all' }
  | { kind: 'any'; onSatisfied?: OnSatisfied }
  | { kind: 'quorum'; k: number; onSatisfied?: OnSatisfied };

/** The states of a join. */
export const GROUP_STATES = ['pending', 'satisfied', 'impossible'] as const;
/** The state of a join. */
export type GroupState = (typeof GROUP_STATES)[number];

/** An edge into the member that has it. */
export interface EdgeRequest {
  /** The name of the member it comes from. */
  from: string;
  /** Default `success`. */
  on?: EdgeCondition;
  /** Puts the result into the downstream member's input, under this key. Default: the result is not passed on. */
  as?: string;
  /** With `as`: collects the results of all edges with the same key in a list, in their order. Default false. */
  list?: boolean;
}

/** An edge from the member that has it. */
export interface OnwardEdge extends Omit<EdgeRequest, 'from'> {
  /** The name of the member it leads to. */
  to: string;
}

/** One member of a flow. */
export interface MemberRequest extends Omit<
  SubmitRequest,
  'namespace' | 'executionId' | 'idempotencyKey' | 'key' | 'ifExists' | 'delay'
> {
  /** Unique within the flow. */
  name: string;
  /** Edges into this member; a name stands for an edge on success. */
  after?: readonly (string | EdgeRequest)[];
  /** Edges from this member into others, including existing members whose join is not decided yet. */
  before?: readonly (string | OnwardEdge)[];
  /** Default `all`. */
  join?: JoinPolicy;
  /** A member that runs when this one's join is impossible. Short for an edge to it on `skipped`. */
  fallback?: string;
}

/** A whole flow to submit. */
export interface FlowRequest {
  name: string;
  /** Makes the submit repeatable: a second one with the same id returns `duplicate`. Default: a new id. */
  flowId?: string;
  namespace?: string;
  tags?: Record<string, string>;
  members: readonly MemberRequest[];
}

/** A flow that was submitted or extended, and its members. */
export interface SubmittedFlow {
  flowId: FlowId;
  outcome: 'submitted' | 'duplicate';
  /** Execution ids by member name. */
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

/** An existing execution of the flow's partition, to be added under a name. */
export interface AdoptedMember {
  name: string;
  executionId: string;
}

/** An edge between existing members, by their execution ids. */
export interface StagedEdge {
  upstream: string;
  downstream: string;
  on?: EdgeCondition;
  as?: string;
  list?: boolean;
}

/** Options of a change to the graph. */
export interface GraphOptions {
  /** Changes the graph only at this revision; throws `stale_revision` at any other. Default: any revision. */
  expectedRevision?: number;
}

/** Which members are cancelled with their flow. */
export const CANCEL_FLOW_POLICIES = ['cancel_all', 'cancel_pending', 'let_finish'] as const;
/**
 * `cancel_all`: every unfinished member. `cancel_pending`: those that have not started. `let_finish`: none; the flow
 * only stops growing.
 */
export type CancelFlowPolicy = (typeof CANCEL_FLOW_POLICIES)[number];

/** How a flow is cancelled, and how long to wait for it. */
export interface CancelFlowRequest extends OperatorNote {
  /** Default `cancel_all`. */
  policy?: CancelFlowPolicy;
  /**
   * What to wait for. `members`: every member the policy covers is cancelled. `end`: the flow has finished. Default
   * `nothing`: cancelling continues in the background.
   */
  wait?: 'nothing' | 'members' | 'end';
  signal?: AbortSignal;
}

/**
 * The outcome of cancelling a flow. `cancelled` are the members this call cancelled; another process may have been first
 * with some.
 */
export type CancelFlowOutcome =
  | { outcome: 'cancelled'; policy: CancelFlowPolicy; cancelled: ExecutionId[] }
  | { outcome: 'already_cancelled'; policy: CancelFlowPolicy }
  | { outcome: 'already_ended'; state: FlowState }
  | { outcome: 'not_found' };

/**
 * The states of a flow. `open`: not sealed. `blocked`: unfinished members are left, but none runs or waits for a
 * worker.
 */
export const FLOW_STATES = [
  'open',
  'running',
  'blocked',
  'cancelling',
  'completed',
  'failed',
  'cancelled',
] as const;
/** The state of a flow. */
export type FlowState = (typeof FLOW_STATES)[number];

/** How many members are in each state. */
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

/** The state of a join, and how many of its edges are in each state. */
export interface JoinSnapshot {
  policy: JoinPolicy;
  state: GroupState;
  edges: number;
  satisfied: number;
  failed: number;
  skipped: number;
  /** Edges whose upstream member has not finished. */
  pending: number;
}

/** One member of a flow in its current state. */
export interface MemberSnapshot {
  name: string;
  executionId: ExecutionId;
  kind: string;
  state: PublicState;
  attemptIndex: number;
  /** Why it did not succeed; null otherwise. */
  message: string | null;
  join: JoinSnapshot | null;
}

/** One edge of a flow in its current state. */
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
  /** Ordered by name. */
  members: MemberSnapshot[];
  edges: EdgeSnapshot[];
}

/** Which flows to list, and how many per page. */
export interface ListFlowsRequest {
  namespace?: string;
  /** A terminal state, or `open` for all flows that have not finished. */
  state?: 'open' | 'completed' | 'failed' | 'cancelled';
  name?: string;
  /** Flows per page, 1 to 1,000. Default 100. */
  limit?: number;
  /** `nextCursor` of the previous page. */
  cursor?: string;
}

/** A page of flows. */
export interface FlowPage {
  flows: FlowSummary[];
  /** Null on the last page. */
  nextCursor: string | null;
}

/** The flows whose ids begin with a prefix: at most ten, the highest ids first. */
export interface FoundFlows {
  flows: FlowSummary[];
  /** More than ten match. */
  hasMore: boolean;
}
