/**
 * What a running handler does before it finishes: steps, the order of their outcomes, pauses, children and progress.
 */
import type { SubmitRequest, SubmitResult } from './executions.ts';
import type { Json } from './json.ts';
import type { LeaseRefusal } from './protocol.ts';
import type { WaitEnd } from './signals.ts';

/** What names a step within its execution. */
export interface StepKey {
  name: string;
  /** Distinguishes steps of the same name, such as the rounds of a loop. Default: the empty string. */
  key?: string;
}

/** A stored step. */
export interface StepRecord {
  kind: 'step' | 'sleep' | 'wait';
  name: string;
  key: string;
  /** Of a step: what it returned. */
  value: Json;
  /** Of a wait: its outcome; null while it has none. */
  end: WaitEnd | null;
  /** Of a sleep: milliseconds left, 0 when it is over; null for others. */
  dueInMs: number | null;
}

/** A stored step as it is shown, with what is known about its run. */
export interface ListedStep extends StepRecord {
  /** The attempt that recorded it. */
  attemptIndex: number;
  recordedAtMs: number;
  /** How long its function took, with all its tries; null when unknown, and for sleeps and waits. */
  durationMs: number | null;
  /** Bytes of what is stored as JSON text. */
  valueBytes: number;
  /** The beginning of that text when it is too large to be shown whole: `value` and `end` are null then. */
  valueStart: string | null;
}

/** A finished step with its value, or a sleep: for a time from now, or until a time, which may have passed. */
export type NewStep = StepKey &
  (
    | {
        value?: unknown;
        /** How long its function took. */
        durationMs?: number;
      }
    | { sleepMs: number }
    | { sleepUntilMs: number }
  );

/** Returns what is stored. `repeated`: the step was stored before; the first record stays, whatever is sent later. */
export type RecordOutcome = { outcome: 'recorded'; repeated: boolean; step: StepRecord } | LeaseRefusal;

/** From index `place` on, the names of the outcomes a run received, in order. Opaque to the engine. */
export interface EndOrder {
  place: number;
  ends: readonly string[];
}

/** The outcome of storing an order. */
export type OrderOutcome = { outcome: 'recorded' } | LeaseRefusal;

/** What a paused execution waits for: a time, some of its children, or whichever comes first. */
export interface PauseRequest {
  wakeInMs?: number;
  children?: { executionIds: readonly string[]; needed: number };
}

/** `due`: what the pause would wait for has already happened; the lease is kept. */
export type PauseOutcome = { outcome: 'paused'; repeated: boolean } | { outcome: 'due' } | LeaseRefusal;

/** A child to spawn. */
export interface ChildRequest extends SubmitRequest {
  /** It does not end with its parent. Default false. */
  detached?: boolean;
}

/** The children, in the order of the requests. */
export type SpawnOutcome = { outcome: 'spawned'; children: SubmitResult[] } | LeaseRefusal;

/** The progress of a handler. */
export interface Progress {
  /** 0 to 100. */
  percent?: number;
  message?: string;
}
