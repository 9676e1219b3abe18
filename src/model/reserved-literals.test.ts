/**
 * Literals of the state vocabulary that no transition writes. contract/states.ts marks them as reserved; a transition
 * that begins to use one of them takes it off both lists.
 */
import { describe, expect, it } from 'vitest';
import {
  ATTEMPT_STATES,
  BLOCKING_REASONS,
  ELIGIBILITY_STATES,
  LIFECYCLE_PHASES,
  OWNERSHIP_STATES,
  TERMINAL_OUTCOMES,
  type StateVector,
} from '../contract/states.ts';
import { resultOf, TRANSITIONS, type Transition } from './transitions.ts';

const ALL: readonly Transition[] = Object.values(TRANSITIONS);

describe('the reserved literals', () => {
  it.each<[keyof StateVector, readonly string[], string[]]>([
    ['lifecyclePhase', LIFECYCLE_PHASES, ['submitted']],
    ['ownershipState', OWNERSHIP_STATES, ['lease_expired_reclaimable', 'lease_revoked']],
    [
      'eligibilityState',
      ELIGIBILITY_STATES,
      [
        'blocked_by_budget',
        'blocked_by_quota',
        'blocked_by_route',
        'blocked_by_lane_state',
        'blocked_by_operator',
      ],
    ],
    [
      'blockingReason',
      BLOCKING_REASONS,
      [
        'waiting_for_budget',
        'waiting_for_quota',
        'waiting_for_capable_worker',
        'waiting_for_locality_match',
        'paused_by_policy',
        'paused_by_flow_cancel',
      ],
    ],
    ['terminalOutcome', TERMINAL_OUTCOMES, []],
    ['attemptState', ATTEMPT_STATES, ['none']],
  ])('of %s are those that no transition writes', (dimension, literals, reserved) => {
    // A transition without an attempt state of its own keeps one that another wrote.
    const written = ALL.map((one) => resultOf(one, one.attemptState ?? 'running_attempt')[dimension]);
    expect(literals.filter((literal) => !written.some((one) => one === literal))).toEqual(reserved);
  });
});
