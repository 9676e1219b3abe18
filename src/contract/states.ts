/**
 * The vocabulary of an execution's state: six orthogonal dimensions and the one label derived from them. The lists are
 * the legal literals everywhere (SQL enums, wire, events); src/model decides which combinations are legal and how one
 * becomes another.
 */

/** Reserved, and never written by any transition: `submitted`. */
export const LIFECYCLE_PHASES = ['submitted', 'runnable', 'active', 'suspended', 'terminal'] as const;
/** Where in its life an execution is. */
export type LifecyclePhase = (typeof LIFECYCLE_PHASES)[number];

/** Reserved, and never written by any transition: `lease_expired_reclaimable`, `lease_revoked`. */
export const OWNERSHIP_STATES = ['unowned', 'leased', 'lease_expired_reclaimable', 'lease_revoked'] as const;
/** Whether a worker owns an execution. */
export type OwnershipState = (typeof OWNERSHIP_STATES)[number];

/**
 * Reserved, and never written by any transition: `blocked_by_budget`, `blocked_by_quota`, `blocked_by_route`,
 * `blocked_by_lane_state`, `blocked_by_operator`.
 */
export const ELIGIBILITY_STATES = [
  'eligible_now',
  'not_eligible_until_time',
  'blocked_by_dependencies',
  'blocked_by_budget',
  'blocked_by_quota',
  'blocked_by_route',
  'blocked_by_lane_state',
  'blocked_by_operator',
  'not_applicable',
] as const;
/** Whether an execution may be claimed now. */
export type EligibilityState = (typeof ELIGIBILITY_STATES)[number];

/**
 * Reserved, and never written by any transition: `waiting_for_budget`, `waiting_for_quota`, `waiting_for_capable_worker`,
 * `waiting_for_locality_match`, `paused_by_policy`, `paused_by_flow_cancel`.
 */
export const BLOCKING_REASONS = [
  'none',
  'waiting_for_worker',
  'waiting_for_retry_backoff',
  'waiting_for_resume_delay',
  'waiting_for_delay',
  'waiting_for_signal',
  'waiting_for_approval',
  'waiting_for_callback',
  'waiting_for_tool_result',
  'waiting_for_children',
  'waiting_for_budget',
  'waiting_for_quota',
  'waiting_for_capable_worker',
  'waiting_for_locality_match',
  'paused_by_operator',
  'paused_by_policy',
  'paused_by_flow_cancel',
] as const;
/** Why an execution does not run. */
export type BlockingReason = (typeof BLOCKING_REASONS)[number];

export const TERMINAL_OUTCOMES = ['none', 'success', 'failed', 'cancelled', 'expired', 'skipped'] as const;
/** How an execution finished; `none` while it has not. */
export type TerminalOutcome = (typeof TERMINAL_OUTCOMES)[number];

/** Reserved, and never written by any transition: `none`. */
export const ATTEMPT_STATES = [
  'none',
  'pending_first_attempt',
  'running_attempt',
  'attempt_interrupted',
  'pending_retry_attempt',
  'pending_replay_attempt',
  'attempt_terminal',
] as const;
/** The state of the current attempt. */
export type AttemptState = (typeof ATTEMPT_STATES)[number];

/** How an attempt can finish. An attempt without an outcome is running or paused. */
export const ATTEMPT_OUTCOMES = ['success', 'failed', 'cancelled', 'expired', 'interrupted'] as const;
/** How an attempt finished. */
export type AttemptOutcome = (typeof ATTEMPT_OUTCOMES)[number];

/** The one label of an execution's state that people see. */
export const PUBLIC_STATES = [
  'waiting',
  'delayed',
  'rate_limited',
  'waiting_children',
  'active',
  'suspended',
  'completed',
  'failed',
  'cancelled',
  'expired',
  'skipped',
] as const;
/** The one label of an execution's state that people see. */
export type PublicState = (typeof PUBLIC_STATES)[number];

/** The whole state of an execution. Stored as six columns, always written together. */
export interface StateVector {
  lifecyclePhase: LifecyclePhase;
  ownershipState: OwnershipState;
  eligibilityState: EligibilityState;
  blockingReason: BlockingReason;
  terminalOutcome: TerminalOutcome;
  attemptState: AttemptState;
}
