/**
 * What a running handler does besides ending: steps, the order of their ends, pauses, children and progress.
 */
import type { Json, LeaseRef, LeaseRefusal, SqlExecutor, SubmitRequest, SubmitResult } from './engine.ts';
import type { WaitEnd } from './signals.ts';

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

export type OrderOutcome = { outcome: 'recorded' } | LeaseRefusal;

/** What a paused execution waits for: a time, some of its children, or whichever comes first. */
export interface PauseRequest {
  wakeInMs?: number;
  children?: { executionIds: readonly string[]; needed: number };
}

/** `due`: what was to be waited for has happened already; the lease is kept. */
export type PauseOutcome = { outcome: 'paused'; repeated: boolean } | { outcome: 'due' } | LeaseRefusal;

export type SpawnOutcome = { outcome: 'spawned'; children: SubmitResult[] } | LeaseRefusal;

export interface Progress {
  /** 0 to 100. */
  percent?: number;
  message?: string;
}

export interface Steps {
  /** Stores a finished step or begins a sleep. With an executor: in the caller's transaction, committed with it. */
  recordStep(lease: LeaseRef, step: NewStep, options?: { executor?: SqlExecutor }): Promise<RecordOutcome>;
  /** All steps of an execution, in no order. */
  readSteps(executionId: string): Promise<StepRecord[]>;
  /** Stores in which order a run was handed ends, so that later runs take the same branches. What was stored from `place` on is replaced. */
  recordOrder(lease: LeaseRef, order: EndOrder): Promise<OrderOutcome>;
  /** The order that is stored. */
  readOrder(executionId: string): Promise<string[]>;
  /** Gives the worker up without ending the attempt: the next claim continues it. */
  pause(lease: LeaseRef, request: PauseRequest): Promise<PauseOutcome>;
  /** Submits children of the lease's execution. Repeatable when the requests carry ids. */
  spawn(lease: LeaseRef, requests: readonly SubmitRequest[]): Promise<SpawnOutcome>;
  /** Overwrites how far the execution is. Dropped when the lease is gone. */
  reportProgress(lease: LeaseRef, progress: Progress): Promise<void>;
}
