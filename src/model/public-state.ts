/**
 * Derives the one label people see from the state vector and the clock. Rows get their label from the same function in
 * SQL (`ff_public_state`). This one is its specification: a test compares both over every legal combination, and
 * scripts/state-chart.mjs writes docs/state-machine.md with it.
 */
import type { PublicState, StateVector, TerminalOutcome } from '../contract/states.ts';

const BY_OUTCOME: Record<TerminalOutcome, PublicState> = {
  // A terminal row without an outcome cannot be stored; showing it as failed makes a corruption visible.
  none: 'failed',
  success: 'completed',
  failed: 'failed',
  cancelled: 'cancelled',
  expired: 'expired',
  skipped: 'skipped',
};

/** A delay that is already due reads as `waiting`: the timer that ends it may fire a moment late. */
export function publicState(vector: StateVector, eligibleAtMs: number | null, nowMs: number): PublicState {
  switch (vector.lifecyclePhase) {
    case 'terminal':
      return BY_OUTCOME[vector.terminalOutcome];
    case 'suspended':
      return 'suspended';
    case 'active':
      return 'active';
    default:
      return runnableState(vector, eligibleAtMs !== null && eligibleAtMs <= nowMs);
  }
}

function runnableState(vector: StateVector, due: boolean): PublicState {
  switch (vector.eligibilityState) {
    case 'not_eligible_until_time':
      return due ? 'waiting' : 'delayed';
    case 'blocked_by_dependencies':
      return 'waiting_children';
    case 'blocked_by_budget':
    case 'blocked_by_quota':
      return 'rate_limited';
    default:
      return 'waiting';
  }
}
