/**
 * What a running handler does besides ending: steps, the order of their ends, pauses, children and progress.
 */
import type { SubmitResult } from './executions.ts';
import type { Json } from './json.ts';
import type { LeaseRefusal } from './protocol.ts';
import type { WaitEnd } from './signals.ts';

/** What names a step within its execution. */
export interface StepKey {
  name: string;
  /** Tells apart the rounds of a loop. Default: the empty text. */
  key?: string;
}

/** What a step left behind. */
export interface StepRecord {
  kind: 'step' | 'sleep' | 'wait';
  name: string;
  key: string;
  /** Of a step: what it returned. */
  value: Json;
  /** Of a wait: how it ended; null while it has not. */
  end: WaitEnd | null;
  /** Of a sleep: until it is over, 0 when it is. */
  dueInMs: number | null;
}

/** A finished step with its value, or a sleep that begins now. */
export type NewStep = StepKey & ({ value?: unknown } | { sleepMs: number });

/** Answers what is stored. `repeated`: it was there before; the first record of a step stays, whatever is sent later. */
export type RecordOutcome = { outcome: 'recorded'; repeated: boolean; step: StepRecord } | LeaseRefusal;

/** From `place` on, the names of what a run was handed the ends of. They mean something to the worker that made them, and nothing to the engine. */
export interface EndOrder {
  place: number;
  ends: readonly string[];
}

/** Whether an order was stored. */
export type OrderOutcome = { outcome: 'recorded' } | LeaseRefusal;

/** What a paused execution waits for: a time, some of its children, or whichever comes first. */
export interface PauseRequest {
  wakeInMs?: number;
  children?: { executionIds: readonly string[]; needed: number };
}

/** `due`: what was to be waited for has happened already; the lease is kept. */
export type PauseOutcome = { outcome: 'paused'; repeated: boolean } | { outcome: 'due' } | LeaseRefusal;

/** The children, in the order of the requests. */
export type SpawnOutcome = { outcome: 'spawned'; children: SubmitResult[] } | LeaseRefusal;

/** How far a handler is. */
export interface Progress {
  /** 0 to 100. */
  percent?: number;
  message?: string;
}
