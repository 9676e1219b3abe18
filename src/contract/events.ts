/**
 * The event vocabulary: every fact the log can hold, by family, and the shape in which subscribers get it. Payloads stay
 * out of events; an event says what happened to which execution under which lease, never what the work was about.
 */
import type { Cursor } from './cursor.ts';
import type { CancelFlowPolicy, FlowId } from './flows.ts';
import type { ExecutionId } from './ids.ts';
import type { SignalEffect } from './signals.ts';

/** The families of events. */
export const EVENT_FAMILIES = ['lease', 'completion', 'signal', 'operator', 'flow', 'tag', 'worker'] as const;
/** A family of events. */
export type EventFamily = (typeof EVENT_FAMILIES)[number];

/**
 * `released` closes the history of a lease whose worker gave it back without ending the execution (a retry was
 * scheduled, or the work was handed back). A lease whose worker ended the execution has the completion event as its end, so
 * that every grant has exactly one in the log.
 */
export const LEASE_EVENTS = ['acquired', 'renewed', 'expired', 'reclaimed', 'revoked', 'released'] as const;
export type LeaseEventType = (typeof LEASE_EVENTS)[number];

/** A completion event's type is the terminal outcome. */
export const COMPLETION_EVENTS = ['success', 'failed', 'cancelled', 'expired', 'skipped'] as const;
/** How an execution ended. */
export type CompletionEventType = (typeof COMPLETION_EVENTS)[number];

/** What an operator did to an execution, or to a lane. */
export const OPERATOR_EVENTS = ['priority_changed', 'replayed', 'lane_paused', 'lane_resumed'] as const;
export type OperatorEventType = (typeof OPERATOR_EVENTS)[number];

/** What became of waiting for signals. */
export const SIGNAL_EVENTS = [
  'suspended',
  'delivered',
  'resumed',
  'escalated',
  'timed_out',
  'waitpoints_expired',
] as const;
export type SignalEventType = (typeof SIGNAL_EVENTS)[number];

/** What became of a flow as a whole. `reopened`: a member was replayed after the end. */
export const FLOW_EVENTS = [
  'submitted',
  'cancel_requested',
  'completed',
  'failed',
  'cancelled',
  'reopened',
] as const;

export const TAG_EVENTS = ['tags_changed'] as const;

export const WORKER_EVENTS = ['registered', 'stopped', 'lost'] as const;
/** What became of a worker. */
export type WorkerEventType = (typeof WORKER_EVENTS)[number];

/** What every event has. */
export interface EventBase {
  /** Goes on strictly after this event. */
  cursor: Cursor;
  /** In commit order and without a gap, but for jumps after a failover or a restore. */
  position: bigint;
  occurredAtMs: number;
}

/** What every event of an execution has. */
export interface ExecutionEventBase extends EventBase {
  executionId: ExecutionId;
  /** The flow it is a member of. */
  flowId: FlowId | null;
  namespace: string;
  kind: string;
  lane: string;
  /** As they were when the lease began; of what an operator or a time limit did, and without a lease, as they were then. */
  tags: Readonly<Record<string, string>>;
  attemptIndex: number;
  leaseEpoch: number;
}

interface LeaseEventBase extends ExecutionEventBase {
  family: 'lease';
  leaseId: string;
}

/** One step in the life of a lease. */
export type LeaseHistoryEvent =
  | (LeaseEventBase & { type: 'acquired' | 'renewed'; workerInstanceId: string })
  | (LeaseEventBase & { type: 'reclaimed'; previousOwner: string | null; newOwner: string })
  | (LeaseEventBase & { type: 'expired' | 'released'; previousOwner: string; transition: string })
  | (LeaseEventBase & {
      type: 'revoked';
      previousOwner: string;
      /** Who took it away. */
      revokedBy: string | null;
      /** What ended it: `revoke`, `cancel`, … */
      transition: string;
    });

/** An execution ended. */
export interface CompletionEvent extends ExecutionEventBase {
  family: 'completion';
  type: CompletionEventType;
  /** Of the lease it ended under, if it had one. */
  leaseId: string | null;
  workerInstanceId: string | null;
}

interface OperatorEventBase extends ExecutionEventBase {
  family: 'operator';
  by: string | null;
}

/** Somebody intervened. */
export type OperatorEvent =
  | (OperatorEventBase & { type: 'priority_changed'; oldPriority: number; newPriority: number })
  | (OperatorEventBase & {
      type: 'replayed';
      reason: string | null;
      replayCount: number;
      from: 'start' | 'failed_step';
      previousOutcome: CompletionEventType;
    })
  | (EventBase & {
      family: 'operator';
      type: 'lane_paused';
      lane: string;
      by: string | null;
      reason: string | null;
    })
  | (EventBase & { family: 'operator'; type: 'lane_resumed'; lane: string });

interface SignalEventBase extends ExecutionEventBase {
  family: 'signal';
}

/** An execution began to wait, was told something, or went on. What was said is not in the log. */
export type SignalEvent =
  | (SignalEventBase & {
      type: 'suspended';
      waits: readonly string[];
      /** When the first of them is over. */
      timeoutAtMs: number | null;
    })
  | (SignalEventBase & {
      type: 'delivered';
      waitpoint: string;
      signalId: string;
      name: string;
      source: { type: string; identity: string };
      effect: SignalEffect;
    })
  | (SignalEventBase & {
      type: 'resumed';
      /** The wait that ended; null when something else was due that was waited for beside it. */
      wait: string | null;
      key: string | null;
      outcome: 'satisfied' | 'timed_out' | 'woken';
      by: string | null;
    })
  | (SignalEventBase & { type: 'escalated'; wait: string })
  | (SignalEventBase & { type: 'timed_out'; wait: string; onTimeout: 'fail' | 'cancel' | 'expire' })
  | (SignalEventBase & { type: 'waitpoints_expired'; waitpoints: readonly string[] });

interface FlowEventBase extends EventBase {
  family: 'flow';
  flowId: FlowId;
  /** The flow's own, and so are the tags. */
  namespace: string;
  tags: Readonly<Record<string, string>>;
}

/** A flow began, was told to end, ended or went on. What its members do are events of theirs. */
export type FlowEvent =
  | (FlowEventBase & { type: 'submitted'; name: string })
  | (FlowEventBase & { type: 'cancel_requested'; by: string; reason: string; policy: CancelFlowPolicy })
  | (FlowEventBase & { type: 'completed' | 'failed' | 'cancelled' | 'reopened' });

/** Tags of an execution were changed. */
export interface TagEvent extends ExecutionEventBase {
  family: 'tag';
  type: 'tags_changed';
  by: string | null;
  set: Readonly<Record<string, string>>;
  removed: readonly string[];
}

/** A worker came or went. `lost`: it fell silent without a word. */
export interface WorkerEvent extends EventBase {
  family: 'worker';
  type: WorkerEventType;
  workerInstanceId: string;
  workerId: string;
  version: string | null;
}

/** Events cannot be changed: one may be handed to several readers. */
export type FeedEvent = Readonly<
  LeaseHistoryEvent | CompletionEvent | SignalEvent | OperatorEvent | FlowEvent | TagEvent | WorkerEvent
>;
