/**
 * The transitions of flow members: blocked by a join, unblocked or skipped by it, and reopened by a replay of the
 * member that had made the join impossible. Part of the transition table.
 */
import { STILL, UNBEGUN, type Transition } from './transition.ts';

export const FLOW_TRANSITIONS = {
  submit_blocked: {
    from: null,
    to: 'waiting_children',
    attemptState: 'pending_first_attempt',
    attemptOutcome: null,
    leaseEvent: null,
    ...STILL,
    executionEvent: 'submitted',
  },
  // The epoch grows, so that its entry in the queue no longer matches.
  block: {
    from: ['waiting'],
    fromAttempt: UNBEGUN,
    to: 'waiting_children',
    attemptState: null,
    attemptOutcome: null,
    leaseEvent: null,
    ...STILL,
    epochStep: 1,
  },
  unblock: {
    from: ['waiting_children'],
    fromAttempt: UNBEGUN,
    to: 'waiting',
    attemptState: null,
    attemptOutcome: null,
    leaseEvent: null,
    ...STILL,
    epochStep: 1,
  },
  skip: {
    from: ['waiting_children'],
    fromAttempt: ['pending_replay_attempt'],
    to: 'skipped',
    attemptState: 'attempt_terminal',
    attemptOutcome: null,
    leaseEvent: null,
    ...STILL,
    epochStep: 1,
  },
  skip_unstarted: {
    from: ['waiting_children'],
    fromAttempt: ['pending_first_attempt'],
    to: 'skipped',
    attemptState: null,
    attemptOutcome: null,
    leaseEvent: null,
    ...STILL,
    epochStep: 1,
  },
  reopen: {
    from: ['skipped'],
    to: 'waiting_children',
    attemptState: 'pending_replay_attempt',
    attemptOutcome: null,
    leaseEvent: null,
    ...STILL,
    epochStep: 1,
    attemptStep: 1,
    replayStep: 1,
    operatorEvent: 'replayed',
  },
} as const satisfies Record<string, Transition>;
