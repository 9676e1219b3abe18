/**
 * FlowFabric: durable execution on plain Postgres. This is the whole public surface of the main entry.
 */
export { connect, type Connection, type ConnectOptions } from './connect/connect.ts';
export type { EngineOptions } from './engine/open.ts';
export type { ReconcilerReport } from './engine/upkeep/runner.ts';
export type { ClientLike, PoolLike } from './engine/database/database.ts';
export { migrate, type MigrateOptions, type MigrateReport } from './engine/database/migrate.ts';
export { startWorker, type Worker, type WorkerOptions } from './worker/worker.ts';
export type { StopOptions } from './contract/stopping.ts';
export type {
  DurationHistogram,
  KindMetrics,
  WorkerHealth,
  WorkerMetrics,
  WorkerStats,
} from './worker/metrics.ts';
export { openTelemetry, type TracingOptions } from './worker/tracing.ts';
export {
  handle,
  type HandlerFunction,
  type HandlerOptions,
  type Middleware,
  type TaskHandler,
} from './worker/handlers.ts';
export type { LaneLimit } from './worker/loop/claim-groups.ts';
export type * from './worker/context.ts';
export { TaskAborted, TaskFailed, type AbortCode } from './worker/task.ts';
export { task, type Task, type TaskOptions, type UncheckedTaskOptions } from './define/task.ts';
export type { TaskRetry, TaskTerms } from './define/task.ts';
export type { Schema, SchemaIssue, SchemaResult } from './contract/schema.ts';
export {
  durable,
  live,
  summary,
  type ChunkStream,
  type LiveOptions,
  type MergePatch,
  type NoStreams,
  type StreamKind,
  type StreamKinds,
  type SummaryStream,
} from './define/streams.ts';
export type { Duration, DurationParts } from './contract/duration.ts';
export {
  EngineError,
  ExecutionFailed,
  isEngineError,
  type EngineErrorDetail,
  type ErrorCode,
  type UnsuccessfulEnd,
} from './contract/errors.ts';
export type {
  ExecutionHandle,
  SubmittedExecution,
  TaskCallOptions,
  TaskClient,
  TaskSubmitOptions,
} from './connect/tasks.ts';
export type {
  ChunkItem,
  ChunkReader,
  ChunkTailOptions,
  StreamReaders,
  SummaryReader,
  TypedSummary,
  TypedSummaryItem,
} from './connect/stream-readers.ts';
export type * from './contract/engine.ts';
export { allOf, anyOf, atLeast, type AtLeast } from './define/conditions.ts';
export type * from './contract/signals.ts';
export { SUMMARY_NULL } from './contract/streams.ts';
export type * from './contract/streams.ts';
export { applyPatch } from './model/merge-patch.ts';
export type * from './contract/flows.ts';
export { all, any, quorum } from './define/flow-nodes.ts';
export type {
  AllJoin,
  Edge,
  EdgeRow,
  FailedEnd,
  FlowNode,
  FlowRow,
  JoinOptions,
  MemberEnd,
  SkippedEnd,
  SomeJoin,
} from './define/flow-nodes.ts';
export type { AddOptions, FlowDefinition, FlowExtension, MemberBuilder } from './define/flow-plan.ts';
export { flow, type Flow, type FlowBuilder, type HandledOptions } from './worker/flow-definition.ts';
export type { FlowClient, FlowRun, FlowSubmitOptions } from './connect/flows.ts';
export type * from './contract/operations.ts';
export type * from './contract/feed.ts';
export type * from './contract/events.ts';
export { decodeCursor, encodeCursor, type Cursor } from './contract/cursor.ts';
export type * from './contract/states.ts';
export type { ExecutionId } from './contract/ids.ts';
export { LIMITS } from './contract/limits.ts';
