/**
 * The definitions that submitters and workers share: tasks, flows, streams, conditions, cursors, errors. Loads in a
 * browser: no Node built-in, no database driver. Handlers are added with `handle` of the main entry.
 */
export { task } from './task.ts';
export type { Task, TaskOptions, TaskRetry, TaskTerms, UncheckedTaskOptions } from './task.ts';
export { flow } from './flow.ts';
export type { Flow, FlowBuilder, HandledOptions } from './flow.ts';
export type { AddOptions, FlowDefinition, FlowExtension, MemberBuilder, MemberTerms } from './flow-plan.ts';
export { join } from './flow-nodes.ts';
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
} from './flow-nodes.ts';
export { stream } from './streams.ts';
export type {
  ChunkStream,
  LiveOptions,
  MergePatch,
  NoStreams,
  StreamKind,
  StreamKinds,
  SummaryStream,
} from './streams.ts';
export { allOf, anyOf, atLeast } from './conditions.ts';
export type { AtLeast } from './conditions.ts';
export { applyPatch } from '../model/merge-patch.ts';
export { SUMMARY_NULL } from '../contract/streams.ts';
export { decodeCursor, encodeCursor } from '../contract/cursor.ts';
export type { Cursor } from '../contract/cursor.ts';
export { EngineError, ExecutionFailed, isEngineError } from '../contract/errors.ts';
export type { EngineErrorDetail, ErrorCode, UnsuccessfulEnd } from '../contract/errors.ts';
export type { Schema, SchemaIssue, SchemaResult } from '../contract/shape/schema.ts';
export type { Duration, DurationParts } from '../contract/shape/duration.ts';
export type { Backoff, ExecutionPolicy, RetryPolicy } from '../contract/policy.ts';
export type { Redaction } from '../contract/redaction.ts';
export type { CountCondition, CountedBy, SignalCondition } from '../contract/signals.ts';
export type { ExecutionId } from '../contract/ids.ts';
export type { Json, Jsonified, NotJson, Storable } from '../contract/json.ts';
