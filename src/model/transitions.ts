/**
 * The transition table: every way an execution's state may change, as data. The rows of `ff_transition`, which the SQL
 * functions read, are generated from it (`npm run transitions:write`); so are docs/state-machine.md and the assertion
 * triggers of the test kit. A transition that is not here cannot be performed.
 */
import type { CompletionEventType } from '../contract/events.ts';
import type { AttemptState, BlockingReason, StateVector } from '../contract/states.ts';
import type { StreamCloseReason } from '../contract/streams.ts';
import { FLOW_TRANSITIONS } from './flow-transitions.ts';
import { SITUATIONS, type SituationName } from './situations.ts';
import { STILL, type Transition } from './transition.ts';

export type { Transition } from './transition.ts';

const NAMES = Object.keys(SITUATIONS) as SituationName[];
/** Every situation that is not terminal: what a cancel may start from. */
const LIVE = NAMES.filter((name) => SITUATIONS[name].lifecyclePhase !== 'terminal');
/** What a replay may start from. */
const ENDED = NAMES.filter((name) => SITUATIONS[name].lifecyclePhase === 'terminal');

/** Attempt states of an execution that has been claimed before. */
const BEGUN: readonly AttemptState[] = [
  'running_attempt',
  'attempt_interrupted',
  'pending_retry_attempt',
  'pending_replay_attempt',
];

/** Frees the worker until a signal arrives; the blocking reason differs. */
function suspending(blockingReason: BlockingReason): Transition {
  return {
    from: ['running'],
    to: 'suspended',
    blockingReason,
    attemptState: 'attempt_interrupted',
    attemptOutcome: null,
    leaseEvent: 'released',
    ...STILL,
    signalEvent: 'suspended',
  };
}

/** Ends the attempt with a new input, and begins the next run. */
function continuing(to: 'waiting' | 'delayed'): Transition {
  return {
    from: ['running'],
    to,
    attemptState: 'pending_first_attempt',
    attemptOutcome: 'success',
    leaseEvent: 'released',
    ...STILL,
    attemptStep: 1,
    runStep: 1,
    signalEvent: 'continued',
  };
}

export const TRANSITIONS = {
  submit: {
    from: null,
    to: 'waiting',
    attemptState: 'pending_first_attempt',
    attemptOutcome: null,
    leaseEvent: null,
    ...STILL,
    executionEvent: 'submitted',
  },
  submit_delayed: {
    from: null,
    to: 'delayed',
    attemptState: 'pending_first_attempt',
    attemptOutcome: null,
    leaseEvent: null,
    ...STILL,
    executionEvent: 'submitted',
  },
  claim: {
    from: ['waiting'],
    to: 'running',
    attemptState: 'running_attempt',
    attemptOutcome: null,
    leaseEvent: 'acquired',
    ...STILL,
    epochStep: 1,
  },
  complete: {
    from: ['running'],
    to: 'completed',
    attemptState: 'attempt_terminal',
    attemptOutcome: 'success',
    leaseEvent: null,
    ...STILL,
  },
  fail: {
    from: ['running'],
    to: 'failed',
    attemptState: 'attempt_terminal',
    attemptOutcome: 'failed',
    leaseEvent: null,
    ...STILL,
  },
  retry: {
    from: ['running'],
    to: 'backing_off',
    attemptState: 'pending_retry_attempt',
    attemptOutcome: 'failed',
    leaseEvent: 'released',
    ...STILL,
    attemptStep: 1,
    retryStep: 1,
  },
  release: {
    from: ['running'],
    to: 'waiting',
    attemptState: 'attempt_interrupted',
    attemptOutcome: null,
    leaseEvent: 'released',
    ...STILL,
  },
  delay: {
    from: ['running'],
    to: 'delayed',
    attemptState: 'attempt_interrupted',
    attemptOutcome: null,
    leaseEvent: 'released',
    ...STILL,
  },
  continue: continuing('waiting'),
  // Until what the last run left behind is deleted.
  continue_later: continuing('delayed'),
  await_children: {
    from: ['running'],
    to: 'waiting_children',
    attemptState: 'attempt_interrupted',
    attemptOutcome: null,
    leaseEvent: 'released',
    ...STILL,
  },
  // The epoch grows, so that a timer set for the same pause no longer matches.
  wake: {
    from: ['delayed', 'waiting_children'],
    fromAttempt: ['attempt_interrupted'],
    to: 'waiting',
    attemptState: null,
    attemptOutcome: null,
    leaseEvent: null,
    ...STILL,
    epochStep: 1,
  },
  lapse: {
    from: ['running'],
    to: 'waiting',
    attemptState: 'pending_retry_attempt',
    attemptOutcome: 'interrupted',
    leaseEvent: 'expired',
    ...STILL,
    epochStep: 1,
    attemptStep: 1,
    retryStep: 1,
    reclaimStep: 1,
  },
  expire: {
    from: ['running'],
    to: 'expired',
    attemptState: 'attempt_terminal',
    attemptOutcome: 'interrupted',
    leaseEvent: 'expired',
    ...STILL,
    epochStep: 1,
  },
  revoke: {
    from: ['running'],
    to: 'waiting',
    attemptState: 'pending_retry_attempt',
    attemptOutcome: 'interrupted',
    leaseEvent: 'revoked',
    ...STILL,
    epochStep: 1,
    attemptStep: 1,
    reclaimStep: 1,
  },
  exhaust_reclaims: {
    from: ['running'],
    to: 'failed',
    attemptState: 'attempt_terminal',
    attemptOutcome: 'interrupted',
    leaseEvent: 'revoked',
    ...STILL,
    epochStep: 1,
  },
  cancel: {
    from: LIVE,
    fromAttempt: BEGUN,
    to: 'cancelled',
    attemptState: 'attempt_terminal',
    attemptOutcome: 'cancelled',
    leaseEvent: 'revoked',
    ...STILL,
    epochStep: 1,
  },
  cancel_unstarted: {
    from: LIVE,
    fromAttempt: ['pending_first_attempt'],
    to: 'cancelled',
    attemptState: null,
    attemptOutcome: null,
    leaseEvent: null,
    ...STILL,
    epochStep: 1,
  },
  time_out_attempt: {
    from: ['running'],
    to: 'backing_off',
    attemptState: 'pending_retry_attempt',
    attemptOutcome: 'expired',
    leaseEvent: 'revoked',
    ...STILL,
    epochStep: 1,
    attemptStep: 1,
    retryStep: 1,
  },
  time_out: {
    from: LIVE,
    fromAttempt: BEGUN,
    to: 'expired',
    attemptState: 'attempt_terminal',
    attemptOutcome: 'expired',
    leaseEvent: 'revoked',
    ...STILL,
    epochStep: 1,
  },
  time_out_unstarted: {
    from: LIVE,
    fromAttempt: ['pending_first_attempt'],
    to: 'expired',
    attemptState: null,
    attemptOutcome: null,
    leaseEvent: null,
    ...STILL,
    epochStep: 1,
  },
  fire_timer: {
    from: ['delayed', 'backing_off', 'resume_delayed'],
    to: 'waiting',
    attemptState: null,
    attemptOutcome: null,
    leaseEvent: null,
    ...STILL,
  },
  change_priority: {
    from: ['waiting'],
    to: 'waiting',
    attemptState: null,
    attemptOutcome: null,
    leaseEvent: null,
    ...STILL,
    operatorEvent: 'priority_changed',
  },
  replay: {
    from: ENDED,
    to: 'waiting',
    attemptState: 'pending_replay_attempt',
    attemptOutcome: null,
    leaseEvent: null,
    ...STILL,
    epochStep: 1,
    attemptStep: 1,
    replayStep: 1,
    operatorEvent: 'replayed',
  },
  suspend: suspending('waiting_for_signal'),
  suspend_for_approval: suspending('waiting_for_approval'),
  suspend_for_callback: suspending('waiting_for_callback'),
  suspend_for_tool_result: suspending('waiting_for_tool_result'),
  suspend_for_review: suspending('paused_by_operator'),
  escalate: {
    from: ['suspended'],
    to: 'suspended',
    blockingReason: 'paused_by_operator',
    attemptState: null,
    attemptOutcome: null,
    leaseEvent: null,
    ...STILL,
    signalEvent: 'escalated',
  },
  // The epoch grows, so that a timer set for the same suspension no longer matches.
  resume: {
    from: ['suspended'],
    to: 'waiting',
    attemptState: null,
    attemptOutcome: null,
    leaseEvent: null,
    ...STILL,
    epochStep: 1,
    signalEvent: 'resumed',
  },
  resume_later: {
    from: ['suspended'],
    to: 'resume_delayed',
    attemptState: null,
    attemptOutcome: null,
    leaseEvent: null,
    ...STILL,
    epochStep: 1,
    signalEvent: 'resumed',
  },
  fail_suspended: {
    from: ['suspended'],
    to: 'failed',
    attemptState: 'attempt_terminal',
    attemptOutcome: 'failed',
    leaseEvent: null,
    ...STILL,
    epochStep: 1,
  },
  ...FLOW_TRANSITIONS,
} as const satisfies Record<string, Transition>;

export type TransitionName = keyof typeof TRANSITIONS;

/** The completion event a transition owes: its terminal outcome, or null when it does not finish the execution. */
export function completionEventOf(transition: Transition): CompletionEventType | null {
  const outcome = SITUATIONS[transition.to].terminalOutcome;
  return outcome === 'none' ? null : outcome;
}

/** Why the attempt's stream is closed by a transition, or null when it does not end the attempt. */
export function streamCloseOf({ attemptOutcome, leaseEvent }: Transition): StreamCloseReason | null {
  if (attemptOutcome === null) return null;
  if (attemptOutcome === 'interrupted') return leaseEvent === 'expired' ? 'lease_expired' : 'reclaimed';
  return STREAM_CLOSE[attemptOutcome];
}

const STREAM_CLOSE = {
  success: 'attempt_success',
  failed: 'attempt_failure',
  cancelled: 'attempt_cancelled',
  expired: 'expired',
} as const;

/** Whether a transition may end a suspension. */
export function leavesSuspension({ from, to, fromAttempt }: Transition): boolean {
  const fits = fromAttempt === undefined || fromAttempt.includes('attempt_interrupted');
  return from !== null && from.includes('suspended') && to !== 'suspended' && fits;
}

/** The vector a transition results in, given the attempt state it started from. */
export function resultOf(transition: Transition, attemptState: AttemptState): StateVector {
  const to = SITUATIONS[transition.to];
  return {
    lifecyclePhase: to.lifecyclePhase,
    ownershipState: to.ownershipState,
    eligibilityState: to.eligibilityState,
    blockingReason: transition.blockingReason ?? to.blockingReasons[0],
    terminalOutcome: to.terminalOutcome,
    attemptState: transition.attemptState ?? attemptState,
  };
}
