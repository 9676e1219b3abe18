/**
 * The public state for every vector that can be constructed, legal or not: reading must never fail, even on a row that
 * should not exist. Which combinations are legal is tested with the situations.
 */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  ATTEMPT_STATES,
  BLOCKING_REASONS,
  ELIGIBILITY_STATES,
  LIFECYCLE_PHASES,
  OWNERSHIP_STATES,
  TERMINAL_OUTCOMES,
  type EligibilityState,
  type LifecyclePhase,
  type PublicState,
  type StateVector,
  type TerminalOutcome,
} from '../contract/states.ts';
import { publicState } from './public-state.ts';

const anyVector: fc.Arbitrary<StateVector> = fc.record({
  lifecyclePhase: fc.constantFrom(...LIFECYCLE_PHASES),
  ownershipState: fc.constantFrom(...OWNERSHIP_STATES),
  eligibilityState: fc.constantFrom(...ELIGIBILITY_STATES),
  blockingReason: fc.constantFrom(...BLOCKING_REASONS),
  terminalOutcome: fc.constantFrom(...TERMINAL_OUTCOMES),
  attemptState: fc.constantFrom(...ATTEMPT_STATES),
});
const anyTime = fc.integer({ min: 0, max: 4_102_444_800_000 });
const maybeTime = fc.option(anyTime);

const BY_OUTCOME: readonly (readonly [TerminalOutcome, PublicState])[] = [
  ['success', 'completed'],
  ['failed', 'failed'],
  ['cancelled', 'cancelled'],
  ['expired', 'expired'],
  ['skipped', 'skipped'],
  ['none', 'failed'],
];

const BY_ELIGIBILITY: readonly (readonly [EligibilityState, PublicState])[] = [
  ['eligible_now', 'waiting'],
  ['not_eligible_until_time', 'delayed'],
  ['blocked_by_dependencies', 'waiting_children'],
  ['blocked_by_budget', 'rate_limited'],
  ['blocked_by_quota', 'rate_limited'],
  ['blocked_by_route', 'waiting'],
  ['blocked_by_lane_state', 'waiting'],
  ['blocked_by_operator', 'waiting'],
  ['not_applicable', 'waiting'],
];

const RUNNABLE: StateVector = {
  lifecyclePhase: 'runnable',
  ownershipState: 'unowned',
  eligibilityState: 'eligible_now',
  blockingReason: 'waiting_for_worker',
  terminalOutcome: 'none',
  attemptState: 'pending_first_attempt',
};
const DELAYED: StateVector = {
  ...RUNNABLE,
  eligibilityState: 'not_eligible_until_time',
  blockingReason: 'waiting_for_delay',
};

/** The label must depend on the given dimensions alone: all others are varied freely. */
function expectAlways(fixed: Partial<StateVector>, label: PublicState): void {
  fc.assert(
    fc.property(anyVector, maybeTime, anyTime, (vector, eligibleAtMs, nowMs) => {
      expect(publicState({ ...vector, ...fixed }, eligibleAtMs, nowMs)).toBe(label);
    }),
  );
}

describe('the public state', () => {
  it.each(BY_OUTCOME)('of a terminal execution follows its outcome alone: %s reads %s', (outcome, label) => {
    expectAlways({ lifecyclePhase: 'terminal', terminalOutcome: outcome }, label);
  });

  it.each(['suspended', 'active'] as const satisfies readonly LifecyclePhase[])(
    'of a %s execution is the phase, whoever owns it',
    (phase) => expectAlways({ lifecyclePhase: phase }, phase),
  );

  it.each(BY_ELIGIBILITY)('of a runnable execution follows its eligibility: %s reads %s', (state, label) => {
    expect(publicState({ ...RUNNABLE, eligibilityState: state }, null, 0)).toBe(label);
  });

  it('of a submitted execution that is eligible is waiting', () => {
    expect(publicState({ ...RUNNABLE, lifecyclePhase: 'submitted' }, null, 0)).toBe('waiting');
  });

  it.each([
    ['one millisecond before it is due', 1_000, 999, 'delayed'],
    ['at the moment it is due', 1_000, 1_000, 'waiting'],
    ['after it was due and no timer has fired', 1_000, 1_001, 'waiting'],
    ['without a due time', null, 1_000, 'delayed'],
    ['due at the epoch itself', 0, 0, 'waiting'],
  ] as const)('of a delayed execution, %s', (_when, eligibleAtMs, nowMs, label) => {
    expect(publicState(DELAYED, eligibleAtMs, nowMs)).toBe(label);
  });

  it('depends on the clock only while the execution waits for a time', () => {
    const timeless = anyVector.filter(
      ({ lifecyclePhase, eligibilityState }) =>
        ['terminal', 'suspended', 'active'].includes(lifecyclePhase) ||
        eligibilityState !== 'not_eligible_until_time',
    );
    fc.assert(
      fc.property(timeless, maybeTime, anyTime, (vector, eligibleAtMs, nowMs) => {
        expect(publicState(vector, eligibleAtMs, nowMs)).toBe(publicState(vector, null, 0));
      }),
    );
  });
});
