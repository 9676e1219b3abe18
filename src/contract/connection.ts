/**
 * What an application asks of FlowFabric, grouped by noun: these are the groups of a connection. Expected outcomes are values with an
 * `outcome`; broken promises are thrown as EngineError. What a worker says to the engine is in protocol.ts.
 */
import type { CompletionEvent, FeedEvent, LeaseHistoryEvent } from './events.ts';
import type {
  CancelOutcome,
  ExecutionEnd,
  ExecutionResult,
  ExecutionSnapshot,
  OperatorNote,
  RevokeOutcome,
  RevokeRequest,
  SubmitOptions,
  SubmitRequest,
  SubmitResult,
  WaitOptions,
} from './executions.ts';
import type {
  ConsumeOptions,
  Consumer,
  ConsumerSnapshot,
  EventHandler,
  EventsFilter,
  EventSubscription,
  FeedStart,
  SubscribeOptions,
} from './feed.ts';
import type {
  AdoptedMember,
  CancelFlowOutcome,
  CancelFlowRequest,
  CreateFlowRequest,
  FlowId,
  FlowPage,
  FlowRequest,
  FlowSnapshot,
  GraphOptions,
  JoinPolicy,
  ListFlowsRequest,
  MemberRequest,
  StagedEdge,
  SubmittedFlow,
} from './flows.ts';
import type {
  AttemptPage,
  BulkProgress,
  BulkRequest,
  Explanation,
  LaneOutcome,
  LanePage,
  ListPage,
  ListRequest,
  PriorityOutcome,
  PriorityRequest,
  ReconcilerReport,
  ReplayOutcome,
  ReplayRequest,
  TagsOutcome,
  TagsRequest,
  WorkerSnapshot,
} from './operations.ts';
import type {
  ApproveRequest,
  DeliverOutcome,
  IssuedToken,
  RevokeKeyOutcome,
  RotateRequest,
  SigningKey,
  TokenRequest,
  WaitpointListRequest,
  WaitpointPage,
} from './signals.ts';
import type { StepRecord } from './steps.ts';
import type {
  ReadStreamRequest,
  StreamItem,
  StreamPage,
  StreamSummary,
  SummaryItem,
  TailOnceRequest,
  TailRequest,
  WatchSummaryRequest,
} from './streams.ts';
import type { SqlTransaction } from './transactions.ts';

/** Executions by their id: submitting without a task's types, reading, finding, intervening. */
export interface Executions {
  /** Submits one execution, or many in one statement: all of them, or none. */
  submit(request: SubmitRequest, options?: SubmitOptions): Promise<SubmitResult>;
  submit(requests: readonly SubmitRequest[], options?: SubmitOptions): Promise<SubmitResult[]>;
  /** Null when there is no such execution. */
  describe(executionId: string): Promise<ExecutionSnapshot | null>;
  /** How it ended, or that it has not yet. */
  result(executionId: string): Promise<ExecutionResult>;
  /** How it ended, as soon as it has; notified, not polled. Throws `not_found`. */
  wait(executionId: string, options?: WaitOptions): Promise<ExecutionEnd>;
  /** Newest first; finished ones by the time they ended, waiting ones in the order of their queue. */
  list(request?: ListRequest): Promise<ListPage>;
  /** The attempts of one execution, newest first. */
  listAttempts(executionId: string, request?: { before?: number; limit?: number }): Promise<AttemptPage>;
  /** All steps of an execution, in no order. */
  listSteps(executionId: string): Promise<StepRecord[]>;
  /** Why it is where it is, and what must happen before it runs. */
  explain(executionId: string): Promise<Explanation>;
  /** Ends executions that have not ended. A running handler is aborted. */
  cancel(executionId: string, note: OperatorNote): Promise<CancelOutcome>;
  cancel(executionIds: readonly string[], note: OperatorNote): Promise<CancelOutcome[]>;
  /** Runs it again after it has ended. Counted, and limited by its policy; its history stays. */
  replay(executionId: string, request: ReplayRequest): Promise<ReplayOutcome>;
  replay(executionIds: readonly string[], request: ReplayRequest): Promise<ReplayOutcome[]>;
  /** Moves it in the queue while it waits for a worker. */
  changePriority(executionId: string, request: PriorityRequest): Promise<PriorityOutcome>;
  changePriority(executionIds: readonly string[], request: PriorityRequest): Promise<PriorityOutcome[]>;
  /** Adds, replaces and removes tags. Events of a lease that is held keep the tags it began with. */
  setTags(executionId: string, request: TagsRequest): Promise<TagsOutcome>;
  /** Takes the lease from the worker that holds it; another one continues. */
  revokeLease(executionId: string, request: RevokeRequest): Promise<RevokeOutcome>;
  /** Acts on all that fit a filter, chunk by chunk; each chunk is committed when its progress is yielded. */
  bulk(request: BulkRequest): AsyncIterable<BulkProgress>;
}

/** Flows by their id: submitting without a definition's types, building step by step, reading, cancelling. */
export interface Flows {
  /** A whole flow, all of it or nothing. */
  submit(request: FlowRequest): Promise<SubmittedFlow>;
  /** An open flow, to be built step by step and sealed. */
  create(request: CreateFlowRequest): Promise<{ flowId: FlowId; outcome: 'created' | 'exists' }>;
  /** New ones are held until the flow is sealed; adopted ones continue as they are. */
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
  /** Makes staged edges count. */
  applyEdges(flowId: string, edgeIds: readonly string[]): Promise<{ applied: number }>;
  /** Takes back what was staged and not applied. */
  unstageEdges(flowId: string, edgeIds: readonly string[]): Promise<{ unstaged: number }>;
  /** From now on joins are decided. */
  seal(flowId: string, options?: GraphOptions): Promise<void>;
  /** Ends a flow, and its members as the policy says. */
  cancel(flowId: string, request: CancelFlowRequest): Promise<CancelFlowOutcome>;
  /** Null when there is no such flow. */
  describe(flowId: string): Promise<FlowSnapshot | null>;
  /** Newest first. */
  list(request?: ListFlowsRequest): Promise<FlowPage>;
  /** How it ended, as soon as it has. Throws `not_found`. */
  wait(flowId: string, options?: WaitOptions): Promise<'completed' | 'failed' | 'cancelled'>;
}

/** The output of executions: frames, and the document that patches make. */
export interface Streams {
  /** A range of frames of one attempt. */
  read(executionId: string, request?: ReadStreamRequest): Promise<StreamPage>;
  /** What is there and what comes, until the execution, or the attempt, has ended. */
  tail(executionId: string, request?: TailRequest): AsyncIterable<StreamItem>;
  /** What comes after a place, waiting so long for it; empty when nothing came. */
  tailOnce(executionId: string, request: TailOnceRequest): Promise<StreamPage>;
  /** Null when no patch was ever written. */
  readSummary(executionId: string, request?: { attemptIndex?: number }): Promise<StreamSummary | null>;
  /** The document as it is, then each patch once. */
  watchSummary(executionId: string, request?: WatchSummaryRequest): AsyncIterable<SummaryItem>;
}

/** The event feed: everything that happened, in commit order. */
export interface Events {
  /** Events of all families, or of those the filter names. */
  subscribe(options?: SubscribeOptions<EventsFilter>): Promise<EventSubscription<FeedEvent>>;
  /** Events of executions that ended. */
  subscribeCompletions(options?: SubscribeOptions): Promise<EventSubscription<Readonly<CompletionEvent>>>;
  /** Events of leases: granted, renewed, lost, released. */
  subscribeLeaseHistory(options?: SubscribeOptions): Promise<EventSubscription<Readonly<LeaseHistoryEvent>>>;
  /**
   * Hands every event to the handler, in order, and commits the consumer's place in the handler's own transaction: what the
   * handler writes there happens exactly once. Any number of processes may consume under one name; one at a time does.
   */
  consume<Tx = SqlTransaction>(
    name: string,
    handler: EventHandler<Tx>,
    options?: ConsumeOptions<Tx>,
  ): Promise<Consumer>;
}

/** The consumers of the event feed and their places. */
export interface Consumers {
  /** By name; at most 1,000. */
  list(): Promise<ConsumerSnapshot[]>;
  /**
   * Moves a consumer, forwards past events it cannot handle or back to have them handled again; whoever is at a batch rolls it back.
   * Throws `not_found`.
   */
  move(name: string, to: FeedStart): Promise<ConsumerSnapshot>;
  /** Its place is forgotten, and events are no longer kept for it. Returns false when there is none. */
  forget(name: string): Promise<boolean>;
}

/** Where executions wait for signals, and the tokens that allow sending them. */
export interface Waitpoints {
  /** Those that executions are suspended on, or all of one execution. */
  list(request?: WaitpointListRequest): Promise<WaitpointPage>;
  /** Sends a signal as an operator, without a token. Throws `not_found`. */
  approve(executionId: string, waitpoint: string, request: ApproveRequest): Promise<DeliverOutcome>;
  /** A token for a waitpoint of an execution. Throws `not_found` when it has no open one of that name, or has ended. */
  issueToken(executionId: string, waitpoint: string, request?: TokenRequest): Promise<IssuedToken>;
  /** Ends all tokens of a waitpoint that are out; signals that were sent by them stay. Throws `not_found`. */
  revokeTokens(executionId: string, waitpoint: string): Promise<void>;
}

/** The queues. */
export interface Lanes {
  /** By name, with how much waits in each. */
  list(request?: { limit?: number; cursor?: string }): Promise<LanePage>;
  /** No claim that begins after this grants work of the lane; what runs continues. */
  pause(lane: string, note?: { reason?: string; by?: string }): Promise<LaneOutcome>;
  /** Work of the lane is granted again. */
  resume(lane: string): Promise<LaneOutcome>;
}

/** The registry of workers. */
export interface Workers {
  /** The registered ones, the newest first; at most 10,000. */
  list(): Promise<WorkerSnapshot[]>;
}

/** The keys that tokens are signed with. */
export interface SigningKeys {
  /** Those that sign or verify, and those that did. */
  list(): Promise<SigningKey[]>;
  /** Makes a new signing key, of the first secret configured. */
  rotate(request?: RotateRequest): Promise<{ kid: string; previousKid: string | null }>;
  /** Ends all tokens of a key that no longer signs. */
  revoke(kid: string): Promise<RevokeKeyOutcome>;
}

/** What keeps the database in order, and its clock. */
export interface Upkeep {
  /** What the reconcilers of this process have done so far. */
  reports(): ReconcilerReport[];
  /** The database's clock, the only one: milliseconds since 1970. */
  serverTimeMs(): Promise<number>;
}
