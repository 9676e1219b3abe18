/**
 * What a transition is: the situations it may start from, the one it leads to, what it counts and which events it owes.
 * The table itself is in transitions.ts.
 */
import type {
  ExecutionEventType,
  LeaseEventType,
  OperatorEventType,
  SignalEventType,
} from '../contract/events.ts';
import type { AttemptOutcome, AttemptState, BlockingReason } from '../contract/states.ts';
import type { SituationName } from './situations.ts';

export interface Transition {
  /** Situations it may start from; null for the one that creates the row. */
  from: readonly SituationName[] | null;
  to: SituationName;
  /** Attempt states it may start from, where the situation alone does not decide. */
  fromAttempt?: readonly AttemptState[];
  /** The resulting attempt state; null keeps the current one. */
  attemptState: AttemptState | null;
  /** How the open attempt ends; null leaves it open (or there is none). */
  attemptOutcome: AttemptOutcome | null;
  /** What is added to the execution's counters. */
  epochStep: 0 | 1;
  attemptStep: 0 | 1;
  retryStep: 0 | 1;
  reclaimStep: 0 | 1;
  /** The lease event owed when a lease ends here. A grant owes `acquired`, or `reclaimed` after a lost lease. */
  leaseEvent: LeaseEventType | null;
  /** The event owed when an operator caused it. */
  operatorEvent: OperatorEventType | null;
  /** The event owed when it starts, changes or ends a wait for signals, or begins the next run. */
  signalEvent: SignalEventType | null;
  /** The event owed by an execution that asks for all events. */
  executionEvent: ExecutionEventType | null;
  /** Which of the situation's blocking reasons it results in, where there are several. */
  blockingReason?: BlockingReason;
  /** 1 counts a replay, which also resets retries and reclaims to 0. */
  replayStep: 0 | 1;
  /** 1 begins the next run, which also resets retries and reclaims to 0. */
  runStep: 0 | 1;
}

/** Attempt states of an execution whose attempt has not started. */
export const UNBEGUN: readonly AttemptState[] = ['pending_first_attempt', 'pending_replay_attempt'];

/** Defaults: counts nothing and owes no event but the lease's. */
export const STILL = {
  epochStep: 0,
  attemptStep: 0,
  retryStep: 0,
  reclaimStep: 0,
  replayStep: 0,
  runStep: 0,
  operatorEvent: null,
  signalEvent: null,
  executionEvent: null,
} as const;
