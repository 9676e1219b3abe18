/**
 * FlowFabric: durable execution on plain Postgres. The public surface of the main entry, in three blocks: what an
 * application defines, runs, and operates. The worker protocol is in `flowfabric/protocol`.
 */

// Define: also as `flowfabric/define`, which loads in a browser.
export { task, type Task, type TaskOptions, type TaskRetry, type TaskTerms } from './define/task.ts';
export { flow, type Flow, type FlowBuilder, type HandledOptions } from './define/flow.ts';
export type { AddOptions, FlowDefinition, FlowExtension, MemberBuilder } from './define/flow-plan.ts';
export {
  join,
  type Edge,
  type FailedEnd,
  type FlowNode,
  type FlowRow,
  type JoinOptions,
  type MemberEnd,
  type SkippedEnd,
} from './define/flow-nodes.ts';
export {
  stream,
  type ChunkStream,
  type LiveOptions,
  type MergePatch,
  type NoStreams,
  type StreamKind,
  type StreamKinds,
  type SummaryStream,
} from './define/streams.ts';
export { allOf, anyOf, atLeast, type AtLeast } from './define/conditions.ts';
export {
  handle,
  type HandlerFunction,
  type HandlerOptions,
  type Middleware,
  type TaskHandler,
} from './define/handlers.ts';
export type {
  Child,
  ChildOutcomes,
  ChildResults,
  FlowScope,
  Logger,
  MapOptions,
  PayloadSchema,
  PublishedTopic,
  SatisfiedWait,
  SpawnOptions,
  StepFunction,
  StepOptions,
  StepScope,
  TaskContext,
  TaskLogger,
  TopicOptions,
  TopicResult,
  TransactionFunction,
  TransactionOptions,
  WaitForOptions,
  WaitpointOptions,
  WaitResult,
} from './define/task-context.ts';
export type {
  ChunkSource,
  ChunkWriter,
  OutputStream,
  ParentOutcome,
  ParentScope,
  StreamChunk,
  StreamWriters,
  SummaryWriter,
  WriteOptions,
} from './define/output.ts';
export type { Inbox, InboxOptions, Message, ReceiveOptions } from './define/messages.ts';
export type { Schema, SchemaIssue, SchemaResult } from './contract/shape/schema.ts';
export type { Duration, DurationParts } from './contract/shape/duration.ts';
export type { Backoff, ExecutionPolicy, RetryPolicy } from './contract/policy.ts';
export { REDACTED, type Redaction, type RevealOptions } from './contract/redaction.ts';
export type { CountCondition, CountedBy, Signal, SignalCondition, SignalSource } from './contract/signals.ts';
export type { Json, Jsonified, NotJson, Storable } from './contract/json.ts';

// Run: connect, submit, wait, work.
export { connect, type ConnectOptions } from './connect/connect.ts';
export type { Connection } from './connect/connection.ts';
export { migrate, type MigrateOptions, type MigrateReport } from './engine/database/migrations/migrate.ts';
export type { PoolLike } from './engine/database/database.ts';
export type {
  ExecutionHandle,
  SubmittedExecution,
  TaskCallOptions,
  TaskKeyOptions,
  TaskSubmitOptions,
} from './connect/tasks.ts';
export type { RunHandle } from './connect/handles.ts';
export type { FlowHandle, FlowRun, FlowSubmitOptions } from './connect/flows.ts';
export type {
  ChunkItem,
  ChunkReader,
  ChunkTailOptions,
  StreamReaders,
  SummaryReader,
  TypedSummary,
  TypedSummaryItem,
} from './connect/stream-readers.ts';
export { startWorker } from './connect/worker.ts';
export type { Worker, WorkerOptions } from './worker/options.ts';
export type { LaneLimit } from './worker/loop/claim-groups.ts';
export type {
  DurationHistogram,
  KindMetrics,
  WorkerHealth,
  WorkerMetrics,
  WorkerStats,
} from './worker/metrics.ts';
export { TaskAborted, TaskFailed, type AbortCode, type TaskFailedOptions } from './worker/task.ts';
export { openTelemetry, type TracingOptions } from './worker/tracing.ts';
export type { StopOptions } from './contract/stopping.ts';
export type { SqlExecutor, SqlTransaction, Transactor } from './contract/transactions.ts';
export {
  EngineError,
  ExecutionFailed,
  isEngineError,
  type EngineErrorDetail,
  type ErrorCode,
  type UnsuccessfulEnd,
} from './contract/errors.ts';
export { LIMITS } from './contract/limits.ts';
export { applyPatch } from './model/merge-patch.ts';
export { foldStream } from './model/fold-stream.ts';

// Operate: the groups of a connection, and what they take and return.
export type {
  Consumers,
  Events,
  Executions,
  Flows,
  Lanes,
  SigningKeys,
  Streams,
  Topics,
  Upkeep,
  Waitpoints,
  Workers,
} from './contract/connection.ts';
export type { PublishOptions, PublishResult } from './contract/topics.ts';
export type { ExecutionId } from './contract/ids.ts';
export type {
  AttemptSnapshot,
  CancelOutcome,
  ExecutionEnd,
  ExecutionResult,
  ExecutionSnapshot,
  IfExists,
  KeyedExecution,
  KeyOptions,
  LeaseSnapshot,
  OperatorNote,
  RevokeOutcome,
  RevokeRequest,
  SubmitOptions,
  SubmitRequest,
  SubmitResult,
  WaitOptions,
} from './contract/executions.ts';
export type { ListedStep, Progress, StepKey, StepRecord } from './contract/steps.ts';
export type { FailureCause, FailureDetail } from './contract/failure-detail.ts';
export type {
  ChildSnapshot,
  DescribedExecution,
  DescribedParts,
  DescribeOptions,
  DescribePart,
  LastOf,
  TimelineAttempts,
  TimelineEntry,
} from './contract/described.ts';
export {
  PUBLIC_STATES,
  type AttemptOutcome,
  type AttemptState,
  type BlockingReason,
  type EligibilityState,
  type LifecyclePhase,
  type OwnershipState,
  type PublicState,
  type StateVector,
  type TerminalOutcome,
} from './contract/states.ts';
export {
  BULK_STATES,
  GATES,
  type AttemptPage,
  type AttemptsRequest,
  type AttemptRecord,
  type LeaseSpan,
  type BulkProgress,
  type BulkRequest,
  type BulkVerb,
  type ExecutionFilter,
  type ExecutionSummary,
  type Explanation,
  type Gate,
  type GateName,
  type LaneEvents,
  type LaneEventsOutcome,
  type LaneOutcome,
  type LanePage,
  type LaneSnapshot,
  type FoundExecutions,
  type ListPage,
  type ListRequest,
  type PriorityOutcome,
  type PriorityRequest,
  type ReconcilerReport,
  type ReplayOutcome,
  type ReplayRequest,
  type SettledRequest,
  type TagsOutcome,
  type TagsRequest,
  type WorkerSnapshot,
} from './contract/operations.ts';
export {
  EDGE_STATES,
  FLOW_STATES,
  type AdoptedMember,
  type CancelFlowOutcome,
  type CancelFlowPolicy,
  type CancelFlowRequest,
  type CreateFlowRequest,
  type EdgeCondition,
  type EdgeRequest,
  type EdgeSnapshot,
  type EdgeState,
  type FlowId,
  type FlowPage,
  type FlowRequest,
  type FlowSnapshot,
  type FlowState,
  type FlowSummary,
  type FoundFlows,
  type GraphOptions,
  type GroupState,
  type JoinPolicy,
  type JoinSnapshot,
  type ListFlowsRequest,
  type MemberCounts,
  type MemberRequest,
  type MemberSnapshot,
  type OnSatisfied,
  type OnwardEdge,
  type StagedEdge,
  type SubmittedFlow,
} from './contract/flows.ts';
export type {
  ListedMessage,
  MessageVerbs,
  RequestOptions,
  RunSummary,
  SendOptions,
  SendOutcome,
} from './contract/messages.ts';
export {
  WAIT_REASONS,
  type ApproveRequest,
  type DeliverOutcome,
  type IssuedToken,
  type PendingWaitpoint,
  type RevokeKeyOutcome,
  type RotateRequest,
  type SignalEffect,
  type SignalNote,
  type SignalRequest,
  type SigningKey,
  type TimeoutBehaviour,
  type TokenRequest,
  type WaitEnd,
  type Waitpoint,
  type WaitpointListRequest,
  type WaitpointPage,
  type WaitReason,
} from './contract/signals.ts';
export {
  STREAM_CLOSE_REASONS,
  SUMMARY_NULL,
  type FrameEncoding,
  type FrameMode,
  type ReadStreamRequest,
  type StreamClosed,
  type StreamCloseReason,
  type StreamFrame,
  type StreamItem,
  type StreamPage,
  type StreamSummary,
  type StreamVisibility,
  type SummaryItem,
  type WatchItem,
  type WatchRequest,
  type TailOnceRequest,
  type TailRequest,
  type WatchSummaryRequest,
} from './contract/streams.ts';
export {
  EVENT_FAMILIES,
  type CompletionEvent,
  type CompletionEventType,
  type EventFamily,
  type FeedEvent,
  type FlowEvent,
  type LeaseHistoryEvent,
  type OperatorEvent,
  type SignalEvent,
  type TagEvent,
  type WorkerEvent,
  type WorkerEventType,
} from './contract/events.ts';
export type {
  ConsumeOptions,
  Consumer,
  ConsumerSnapshot,
  Disconnected,
  EventFilter,
  EventHandler,
  EventsFilter,
  EventSubscription,
  FeedStart,
  SubscribeOptions,
} from './contract/feed.ts';
export { decodeCursor, encodeCursor, type Cursor } from './contract/cursor.ts';
