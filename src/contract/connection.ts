/**
 * The groups of a connection: everything an application does with FlowFabric, by noun. Expected outcomes are returned
 * as values with an `outcome`; everything else is thrown as an EngineError. The worker's side is in protocol.ts.
 */
import type { DescribedExecution, DescribeOptions, DescribePart } from './described.ts';
import type { CompletionEvent, FeedEvent, LeaseHistoryEvent } from './events.ts';
import type {
  CancelOutcome,
  ExecutionEnd,
  ExecutionResult,
  KeyedExecution,
  KeyOptions,
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
  FoundFlows,
  GraphOptions,
  JoinPolicy,
  ListFlowsRequest,
  MemberRequest,
  StagedEdge,
  SubmittedFlow,
} from './flows.ts';
import type {
  AttemptPage,
  AttemptsRequest,
  BulkProgress,
  BulkRequest,
  Explanation,
  FoundExecutions,
  LaneEvents,
  LaneEventsOutcome,
  LaneOutcome,
  LanePage,
  ListPage,
  ListRequest,
  PriorityOutcome,
  PriorityRequest,
  ReconcilerReport,
  ReplayOutcome,
  ReplayRequest,
  SettledRequest,
  TagsOutcome,
  TagsRequest,
  WorkerSnapshot,
} from './operations.ts';
import type { RevealOptions } from './redaction.ts';
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
import type { ListedStep } from './steps.ts';
import type {
  ReadStreamRequest,
  StreamItem,
  StreamPage,
  StreamSummary,
  SummaryItem,
  TailOnceRequest,
  TailRequest,
  WatchItem,
  WatchRequest,
  WatchSummaryRequest,
} from './streams.ts';
import type { PublishOptions, PublishResult } from './topics.ts';
import type { SqlTransaction } from './transactions.ts';

/** Executions by their id: submitting without a task's types, reading, finding, intervening. */
export interface Executions {
  /** Submits one execution, or many in one statement: all of them or none. */
  submit(request: SubmitRequest, options?: SubmitOptions): Promise<SubmitResult>;
  submit(requests: readonly SubmitRequest[], options?: SubmitOptions): Promise<SubmitResult[]>;
  /**
   * Reads one execution with its lease and its last attempts, and the parts of it that are asked for; null when it does
   * not exist.
   */
  describe<const Part extends DescribePart = never>(
    executionId: string,
    options?: DescribeOptions<Part>,
  ): Promise<DescribedExecution<Part> | null>;
  /**
   * Returns the execution that a key names: the open one, otherwise the last that finished, while it is kept. Null when
   * there is none.
   */
  byKey(key: string, options?: KeyOptions): Promise<KeyedExecution | null>;
  /** Returns the outcome of an execution, or `pending` while it has none. */
  result(executionId: string, options?: RevealOptions): Promise<ExecutionResult>;
  /** Waits until the execution has finished and returns its outcome. Notified, not polled. Throws `not_found`. */
  wait(executionId: string, options?: WaitOptions & RevealOptions): Promise<ExecutionEnd>;
  /**
   * Waits until no execution with these tags is open, at one moment: waiting, delayed, running, suspended. Executions
   * that members submit with the same tags before they finish are waited for too. Resolves at once when there are none.
   * Throws `too_many` when more than `LIMITS.settledExamined` have the first of the tags.
   */
  settled(request: SettledRequest): Promise<void>;
  /** Lists executions, newest first; finished ones by the time they finished, waiting ones in queue order. */
  list(request?: ListRequest): Promise<ListPage>;
  /**
   * Finds executions by the beginning of their uuids, at least 4 hex digits, or by a whole uuid or id. Returns at most
   * ten candidates. Throws `invalid_id`.
   */
  find(prefix: string): Promise<FoundExecutions>;
  /**
   * Returns, for each id of an execution or flow, the shortest prefix of its uuid that no other has now, at least 13
   * characters long. An id that does not exist is returned unchanged.
   */
  shorten(ids: readonly string[]): Promise<string[]>;
  /** Lists the attempts of one execution, newest first. */
  listAttempts(executionId: string, request?: AttemptsRequest): Promise<AttemptPage>;
  /** Lists all steps of an execution with their whole values, in the order they were recorded. */
  listSteps(executionId: string, options?: RevealOptions): Promise<ListedStep[]>;
  /** Explains why an execution is where it is, and what must happen before it runs. */
  explain(executionId: string): Promise<Explanation>;
  /** Cancels executions that have not finished. A running handler is aborted. */
  cancel(executionId: string, note: OperatorNote): Promise<CancelOutcome>;
  cancel(executionIds: readonly string[], note: OperatorNote): Promise<CancelOutcome[]>;
  /** Runs a finished execution again. Counted, and limited by its policy (`maxReplays`); its history is kept. */
  replay(executionId: string, request: ReplayRequest): Promise<ReplayOutcome>;
  replay(executionIds: readonly string[], request: ReplayRequest): Promise<ReplayOutcome[]>;
  /** Changes the priority of an execution that waits for a worker. */
  changePriority(executionId: string, request: PriorityRequest): Promise<PriorityOutcome>;
  changePriority(executionIds: readonly string[], request: PriorityRequest): Promise<PriorityOutcome[]>;
  /** Adds, replaces and removes tags. Events of the current lease keep the tags it started with. */
  setTags(executionId: string, request: TagsRequest): Promise<TagsOutcome>;
  /** Revokes the current lease; another worker continues the work. */
  revokeLease(executionId: string, request: RevokeRequest): Promise<RevokeOutcome>;
  /** Acts on every execution that matches a filter, in chunks; a chunk is committed when its progress is yielded. */
  bulk(request: BulkRequest): AsyncIterable<BulkProgress>;
}

/** Flows by their id: submitting without a definition's types, building step by step, reading, cancelling. */
export interface Flows {
  /** Submits a whole flow: all of it or nothing. */
  submit(request: FlowRequest): Promise<SubmittedFlow>;
  /** Creates an open flow, to be built step by step and then sealed. */
  create(request: CreateFlowRequest): Promise<{ flowId: FlowId; outcome: 'created' | 'exists' }>;
  /** Adds members. New ones do not run before the flow is sealed; adopted ones continue unchanged. */
  addMembers(
    flowId: string,
    members: readonly (MemberRequest | AdoptedMember)[],
    options?: GraphOptions,
  ): Promise<SubmittedFlow>;
  /** Sets the join of a member that has no edges yet. Throws `join_fixed` otherwise. */
  setJoin(flowId: string, executionId: string, policy: JoinPolicy): Promise<'set' | 'already_set'>;
  /** Stages edges: they have no effect before they are applied. */
  stageEdges(
    flowId: string,
    edges: readonly StagedEdge[],
    options?: GraphOptions,
  ): Promise<{ edgeIds: string[]; revision: number }>;
  /** Puts staged edges into effect. */
  applyEdges(flowId: string, edgeIds: readonly string[]): Promise<{ applied: number }>;
  /** Removes staged edges that were not applied. */
  unstageEdges(flowId: string, edgeIds: readonly string[]): Promise<{ unstaged: number }>;
  /** Seals the flow: its joins are decided from now on. */
  seal(flowId: string, options?: GraphOptions): Promise<void>;
  /** Cancels a flow, and those of its members that the policy covers. */
  cancel(flowId: string, request: CancelFlowRequest): Promise<CancelFlowOutcome>;
  /** Reads a flow with all its members and edges; null when it does not exist. */
  describe(flowId: string): Promise<FlowSnapshot | null>;
  /** Lists flows, newest first. */
  list(request?: ListFlowsRequest): Promise<FlowPage>;
  /** Finds flows as `executions.find` finds executions. */
  find(prefix: string): Promise<FoundFlows>;
  /** Waits until the flow has finished and returns its outcome. Throws `not_found`. */
  wait(flowId: string, options?: WaitOptions): Promise<'completed' | 'failed' | 'cancelled'>;
}

/** The output of executions: frames, and the summary document built from patches. */
export interface Streams {
  /** Reads a range of frames of one attempt. */
  read(executionId: string, request?: ReadStreamRequest & RevealOptions): Promise<StreamPage>;
  /** Yields the stored frames and then new ones, until the execution (or the given attempt) has finished. */
  tail(executionId: string, request?: TailRequest & RevealOptions): AsyncIterable<StreamItem>;
  /** Reads the frames after a cursor, waiting up to `block` for one; empty when none arrived. */
  tailOnce(executionId: string, request: TailOnceRequest & RevealOptions): Promise<StreamPage>;
  /** Reads the summary document; null when no patch was ever written. */
  readSummary(
    executionId: string,
    request?: { attemptIndex?: number } & RevealOptions,
  ): Promise<StreamSummary | null>;
  /** Yields the current document, then each patch once. */
  watchSummary(
    executionId: string,
    request?: WatchSummaryRequest & RevealOptions,
  ): AsyncIterable<SummaryItem>;
  /**
   * Yields document, progress and state as they are now, then each whenever it has changed, until the execution has
   * finished. It looks at most ten times a second: what comes in between is left out, the last one never.
   */
  watch(executionId: string, request?: WatchRequest & RevealOptions): AsyncIterable<WatchItem>;
}

/** The event feed: everything that happened, in commit order. */
export interface Events {
  /** Subscribes to events of all families, or of those the filter names. */
  subscribe(options?: SubscribeOptions<EventsFilter>): Promise<EventSubscription<FeedEvent>>;
  /** Subscribes to completions: executions that have finished. */
  subscribeCompletions(options?: SubscribeOptions): Promise<EventSubscription<Readonly<CompletionEvent>>>;
  /** Subscribes to lease events: granted, renewed, lost, released. */
  subscribeLeaseHistory(options?: SubscribeOptions): Promise<EventSubscription<Readonly<LeaseHistoryEvent>>>;
  /**
   * Calls the handler with every event, in order, and commits the consumer's position in the handler's transaction:
   * what the handler writes there happens exactly once. Any number of processes may consume under one name; one of
   * them is active at a time.
   */
  consume<Tx = SqlTransaction>(
    name: string,
    handler: EventHandler<Tx>,
    options?: ConsumeOptions<Tx>,
  ): Promise<Consumer>;
}

/** The consumers of the event feed and their positions. */
export interface Consumers {
  /** Lists consumers by name; at most 1,000. */
  list(): Promise<ConsumerSnapshot[]>;
  /**
   * Moves a consumer: forward past events it cannot handle, or back to handle events again. A batch in progress is
   * rolled back. Throws `not_found`.
   */
  move(name: string, to: FeedStart): Promise<ConsumerSnapshot>;
  /** Deletes a consumer: events are no longer kept for it. Returns false when there is no such consumer. */
  forget(name: string): Promise<boolean>;
}

/** Where executions wait for signals, and the tokens that allow sending them. */
export interface Waitpoints {
  /** Lists the waitpoints that executions are suspended on, or all open ones of one execution. */
  list(request?: WaitpointListRequest): Promise<WaitpointPage>;
  /** Sends a signal as an operator, without a token. Throws `not_found`. */
  approve(executionId: string, waitpoint: string, request: ApproveRequest): Promise<DeliverOutcome>;
  /**
   * Issues a token for an open waitpoint. Throws `not_found` when there is none of that name or the execution finished.
   */
  issueToken(executionId: string, waitpoint: string, request?: TokenRequest): Promise<IssuedToken>;
  /** Revokes all tokens of a waitpoint; signals already sent with them stay. Throws `not_found`. */
  revokeTokens(executionId: string, waitpoint: string): Promise<void>;
}

/** What is published to whoever waits for it. */
export interface Topics {
  /**
   * Publishes to a topic: executions that wait for it resume, and the latest is kept for those who wait later. Resolves
   * when it is committed; the executions are notified right after that.
   */
  publish(topic: string, data: unknown, options?: PublishOptions): Promise<PublishResult>;
}

/** The queues. */
export interface Lanes {
  /** Lists lanes by name, with how much waits in each. */
  list(request?: { limit?: number; cursor?: string }): Promise<LanePage>;
  /** Pauses a lane: claims that start after this grant none of its work. Running work continues. */
  pause(lane: string, note?: { reason?: string; by?: string }): Promise<LaneOutcome>;
  /** Resumes a lane: its work is granted again. */
  resume(lane: string): Promise<LaneOutcome>;
  /**
   * Sets which events are written about executions that are submitted to the lane from now on: `all`, or the `usual`
   * ones, unless their task asks for all.
   */
  setEvents(lane: string, events: LaneEvents): Promise<LaneEventsOutcome>;
}

/** The registry of workers. */
export interface Workers {
  /** Lists registered workers, newest first; at most 10,000. */
  list(): Promise<WorkerSnapshot[]>;
}

/** The keys that tokens are signed with. */
export interface SigningKeys {
  /** Lists all signing keys, including expired and revoked ones. */
  list(): Promise<SigningKey[]>;
  /** Makes a new signing key from the first configured secret. */
  rotate(request?: RotateRequest): Promise<{ kid: string; previousKid: string | null }>;
  /** Revokes a key that no longer signs, and with it all tokens signed by it. */
  revoke(kid: string): Promise<RevokeKeyOutcome>;
}

/** The reconcilers that keep the database in order, and its clock. */
export interface Upkeep {
  /** Reports what the reconcilers of this process have done so far. */
  reports(): ReconcilerReport[];
  /** Returns the time of the database's clock, which all timers use, in milliseconds since 1970. */
  serverTimeMs(): Promise<number>;
}
