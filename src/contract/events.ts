/**
 * The event vocabulary: every fact the log can hold, by family. Payloads stay out of events; an event says what
 * happened to which execution under which lease, never what the work was about.
 */

/**
 * `released` closes the history of a lease whose worker gave it back without ending the execution (a retry was
 * scheduled, or the work was handed back), so that every grant has exactly one end in the log.
 */
export const LEASE_EVENTS = ['acquired', 'renewed', 'expired', 'reclaimed', 'revoked', 'released'] as const;
export type LeaseEvent = (typeof LEASE_EVENTS)[number];

/** A completion event's type is the terminal outcome. */
export const COMPLETION_EVENTS = ['success', 'failed', 'cancelled', 'expired', 'skipped'] as const;
export type CompletionEvent = (typeof COMPLETION_EVENTS)[number];

/** What an operator did to an execution. */
export const OPERATOR_EVENTS = ['priority_changed', 'replayed'] as const;
export type OperatorEvent = (typeof OPERATOR_EVENTS)[number];
