/**
 * The legal combinations of the state vector, each with a name. The CHECK on `ff_execution` accepts exactly these; a
 * test compares the two over the whole cross product.
 *
 * There is no situation for a lapsed or revoked lease: losing a lease moves the execution on in one transition, so no
 * stored row ever names an owner that no longer holds the lease.
 */
import type {
  AttemptState,
  BlockingReason,
  EligibilityState,
  LifecyclePhase,
  OwnershipState,
  StateVector,
  TerminalOutcome,
} from '../contract/states.ts';

export interface Situation {
  lifecyclePhase: LifecyclePhase;
  ownershipState: OwnershipState;
  eligibilityState: EligibilityState;
  blockingReasons: readonly BlockingReason[];
  terminalOutcome: TerminalOutcome;
  attemptStates: readonly AttemptState[];
}

const KEPT: readonly AttemptState[] = [
  'pending_first_attempt',
  'pending_retry_attempt',
  'pending_replay_attempt',
  'attempt_interrupted',
];

function runnable(
  eligibilityState: EligibilityState,
  blockingReason: BlockingReason,
  attemptStates: readonly AttemptState[] = KEPT,
): Situation {
  return {
    lifecyclePhase: 'runnable',
    ownershipState: 'unowned',
    eligibilityState,
    blockingReasons: [blockingReason],
    terminalOutcome: 'none',
    attemptStates,
  };
}

function ended(terminalOutcome: TerminalOutcome, attemptStates: readonly AttemptState[]): Situation {
  return {
    lifecyclePhase: 'terminal',
    ownershipState: 'unowned',
    eligibilityState: 'not_applicable',
    blockingReasons: ['none'],
    terminalOutcome,
    attemptStates,
  };
}

/** An execution that never started keeps `pending_first_attempt` when it ends: no attempt ever existed. */
const STARTED_OR_NOT: readonly AttemptState[] = ['attempt_terminal', 'pending_first_attempt'];

export const SITUATIONS = {
  waiting: runnable('eligible_now', 'waiting_for_worker'),
  delayed: runnable('not_eligible_until_time', 'waiting_for_delay', [
    'pending_first_attempt',
    'attempt_interrupted',
  ]),
  backing_off: runnable('not_eligible_until_time', 'waiting_for_retry_backoff', ['pending_retry_attempt']),
  resume_delayed: runnable('not_eligible_until_time', 'waiting_for_resume_delay', ['attempt_interrupted']),
  waiting_children: runnable('blocked_by_dependencies', 'waiting_for_children', [
    'pending_first_attempt',
    'pending_replay_attempt',
    'attempt_interrupted',
  ]),
  blocked_by_budget: runnable('blocked_by_budget', 'waiting_for_budget'),
  blocked_by_quota: runnable('blocked_by_quota', 'waiting_for_quota'),
  blocked_by_route: runnable('blocked_by_route', 'waiting_for_capable_worker'),
  lane_paused: runnable('blocked_by_lane_state', 'paused_by_policy'),
  held: runnable('blocked_by_operator', 'paused_by_operator'),
  held_by_flow_cancel: runnable('blocked_by_operator', 'paused_by_flow_cancel'),
  running: {
    lifecyclePhase: 'active',
    ownershipState: 'leased',
    eligibilityState: 'not_applicable',
    blockingReasons: ['none'],
    terminalOutcome: 'none',
    attemptStates: ['running_attempt'],
  },
  suspended: {
    lifecyclePhase: 'suspended',
    ownershipState: 'unowned',
    eligibilityState: 'not_applicable',
    blockingReasons: [
      'waiting_for_signal',
      'waiting_for_approval',
      'waiting_for_callback',
      'waiting_for_tool_result',
      'waiting_for_budget',
      'paused_by_operator',
      'paused_by_policy',
    ],
    terminalOutcome: 'none',
    attemptStates: ['attempt_interrupted'],
  },
  completed: ended('success', ['attempt_terminal']),
  failed: ended('failed', ['attempt_terminal']),
  cancelled: ended('cancelled', STARTED_OR_NOT),
  expired: ended('expired', STARTED_OR_NOT),
  skipped: ended('skipped', STARTED_OR_NOT),
} as const satisfies Record<string, Situation>;

export type SituationName = keyof typeof SITUATIONS;

function matches(situation: Situation, vector: StateVector): boolean {
  return (
    situation.lifecyclePhase === vector.lifecyclePhase &&
    situation.ownershipState === vector.ownershipState &&
    situation.eligibilityState === vector.eligibilityState &&
    situation.blockingReasons.includes(vector.blockingReason) &&
    situation.terminalOutcome === vector.terminalOutcome &&
    situation.attemptStates.includes(vector.attemptState)
  );
}

/** The situation a vector is in, or undefined when the combination is illegal. */
export function situationOf(vector: StateVector): SituationName | undefined {
  for (const [name, situation] of Object.entries(SITUATIONS)) {
    if (matches(situation, vector)) return name as SituationName;
  }
  return undefined;
}
