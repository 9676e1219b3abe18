/**
 * The event vocabulary: every fact the log can hold, by family, and the shape subscribers receive. Events carry no
 * payloads: an event states what happened to which execution under which lease, never what the work was about. The one
 * exception is asked for: with `events: 'all'` a completion carries its result.
 */
import type { Cursor } from './cursor.ts';
import type { CancelFlowPolicy, FlowId } from './flows.ts';
import type { ExecutionId } from './ids.ts';
import type { Json } from './json.ts';
import type { SignalEffect } from './signals.ts';

/** The families of events. */
export const EVENT_FAMILIES = [
  'lease',
  'completion',
  'signal',
  'operator',
  'flow',
  'tag',
  'worker',
  'execution',
] as const;
/** A family of events. */
export type EventFamily = (typeof EVENT_FAMILIES)[number];

/**
 * What happened to a lease. `released` closes the history of a lease whose worker gave it back without finishing the
 * execution (a retry was scheduled, or the work was returned). Where the worker finished the execution, the completion
 * event closes it, so every grant is closed by exactly one event.
 */
export const LEASE_EVENTS = ['acquired', 'renewed', 'expired', 'reclaimed', 'revoked', 'released'] as const;
/** The type of a lease event. */
export type LeaseEventType = (typeof LEASE_EVENTS)[number];

/** A completion event's type is the terminal outcome. */
export const COMPLETION_EVENTS = ['success', 'failed', 'cancelled', 'expired', 'skipped'] as const;
/** How an execution finished. */
export type CompletionEventType = (typeof COMPLETION_EVENTS)[number];

/** What an operator did to an execution, or to a lane. */
export const OPERATOR_EVENTS = ['priority_changed', 'replayed', 'lane_paused', 'lane_resumed'] as const;
/** The type of an operator event. */
export type OperatorEventType = (typeof OPERATOR_EVENTS)[number];

/** What happened to a wait for signals. */
export const SIGNAL_EVENTS = [
  'suspended',
  'delivered',
  'resumed',
  'escalated',
  'continued',
  'timed_out',
  'waitpoints_expired',
] as const;
/** The type of a signal event. */
export type SignalEventType = (typeof SIGNAL_EVENTS)[number];

/** What happened to a flow as a whole. `reopened`: a member was replayed after the flow had finished. */
export const FLOW_EVENTS = [
  'submitted',
  'cancel_requested',
  'completed',
  'failed',
  'cancelled',
  'reopened',
] as const;

/** What happened to the tags of an execution. */
export const TAG_EVENTS = ['tags_changed'] as const;

/** What happened to a worker. `lost`: it stopped reporting without signing off. */
export const WORKER_EVENTS = ['registered', 'stopped', 'lost'] as const;
/** The type of a worker event. */
export type WorkerEventType = (typeof WORKER_EVENTS)[number];

/** What else is reported of executions whose task or lane asks for all events. */
export const EXECUTION_EVENTS = ['submitted', 'step_finished', 'progress_reported'] as const;
/** The type of an event of an execution that asks for all events. */
export type ExecutionEventType = (typeof EXECUTION_EVENTS)[number];

/** What every event has. */
export interface EventBase {
  /** Reading from here continues strictly after this event. */
  cursor: Cursor;
  /** Grows in commit order and without gaps, except for jumps after a failover or a restore. */
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
  /**
   * As they were when the lease started; for events without a lease, or by an operator or a time limit, as they were at
   * that moment.
   */
  tags: Readonly<Record<string, string>>;
  attemptIndex: number;
  leaseEpoch: number;
}

interface LeaseEventBase extends ExecutionEventBase {
  family: 'lease';
  leaseId: string;
}

/** Something happened to a lease. */
export type LeaseHistoryEvent =
  | (LeaseEventBase & { type: 'acquired' | 'renewed'; workerInstanceId: string })
  | (LeaseEventBase & { type: 'reclaimed'; previousOwner: string | null; newOwner: string })
  | (LeaseEventBase & { type: 'expired' | 'released'; previousOwner: string; transition: string })
  | (LeaseEventBase & {
      type: 'revoked';
      previousOwner: string;
      /** Who revoked it. */
      revokedBy: string | null;
      /** The transition that ended it: `revoke`, `cancel`, … */
      transition: string;
    });

/**
 * What an execution finished with: its result, why the event does not carry the result, or the reason why there is none.
 */
export type CarriedEnd =
  | { result: Json }
  /** `too_large`: it has more than `LIMITS.eventResultBytes` bytes. `redacted`: its execution redacts values. */
  | { omitted: 'too_large' | 'redacted' }
  | { message: string | null; category: string | null };

/** An execution finished. */
export interface CompletionEvent extends ExecutionEventBase {
  family: 'completion';
  type: CompletionEventType;
  /** Null unless its task or lane asks for all events. */
  end: Readonly<CarriedEnd> | null;
  /** The lease it finished under, if it had one. */
  leaseId: string | null;
  workerInstanceId: string | null;
  /** Messages it was sent and never received. They stay readable. */
  unreadMessages: number;
}

interface OperatorEventBase extends ExecutionEventBase {
  family: 'operator';
  by: string | null;
}

/** An operator intervened. */
export type OperatorEvent =
  | (OperatorEventBase & { type: 'priority_changed'; oldPriority: number; newPriority: number })
  | (OperatorEventBase & {
      type: 'replayed';
      reason: string | null;
      replayCount: number;
      from: 'start' | 'failed_step' | 'step';
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

/** An execution was suspended, received a signal, or resumed. The payload of a signal is not in the log. */
export type SignalEvent =
  | (SignalEventBase & {
      type: 'suspended';
      waits: readonly string[];
      /** When the first of them times out. */
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
      /** The wait that finished; null when a time or a child that was awaited beside it came first. */
      wait: string | null;
      key: string | null;
      outcome: 'satisfied' | 'timed_out' | 'woken';
      by: string | null;
    })
  | (SignalEventBase & { type: 'escalated'; wait: string })
  /** A run ended, and the next one begins: `run` is the number of the one that ended. */
  | (SignalEventBase & { type: 'continued'; run: bigint })
  | (SignalEventBase & { type: 'timed_out'; wait: string; onTimeout: 'fail' | 'cancel' | 'expire' })
  | (SignalEventBase & { type: 'waitpoints_expired'; waitpoints: readonly string[] });

interface FlowEventBase extends EventBase {
  family: 'flow';
  flowId: FlowId;
  /** Of the flow, as are the tags. */
  namespace: string;
  tags: Readonly<Record<string, string>>;
}

/** A flow was submitted, asked to cancel, finished or reopened. Its members have events of their own. */
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

/** A worker registered, stopped or was lost. */
export interface WorkerEvent extends EventBase {
  family: 'worker';
  type: WorkerEventType;
  workerInstanceId: string;
  workerId: string;
  version: string | null;
}

interface ToldEventBase extends ExecutionEventBase {
  family: 'execution';
}

interface RunningEventBase extends ToldEventBase {
  leaseId: string;
  workerInstanceId: string;
}

/** Something that is reported only of executions whose task or lane asks for all events. */
export type ExecutionEvent =
  | (ToldEventBase & {
      type: 'submitted';
      priority: number;
      /** The execution that spawned it. */
      parentId: ExecutionId | null;
      /** When it becomes claimable, if it was submitted with a delay. */
      eligibleAtMs: number | null;
    })
  /** A step was recorded; not a sleep or a wait. Its value is not in the log. */
  | (RunningEventBase & { type: 'step_finished'; name: string; key: string; durationMs: number | null })
  | (RunningEventBase & { type: 'progress_reported'; percent: number | null; message: string | null });

/** Any event. Read-only: several readers may share one object. */
export type FeedEvent = Readonly<
  | LeaseHistoryEvent
  | CompletionEvent
  | SignalEvent
  | OperatorEvent
  | FlowEvent
  | TagEvent
  | WorkerEvent
  | ExecutionEvent
>;
