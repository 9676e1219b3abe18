/**
 * The policy of an execution: how failures and lost leases are treated, and how long it is kept. Frozen at submit.
 */
import type { Redaction } from './redaction.ts';
import type { Duration } from './shape/duration.ts';

/** The delay before a retry. Exponential defaults: from 1 s to 60 s, multiplier 2, no jitter. */
export type Backoff =
  | { type: 'fixed'; delay: Duration }
  | {
      type: 'exponential';
      initialDelay?: Duration;
      maxDelay?: Duration;
      multiplier?: number;
      jitter?: boolean;
    };

/** How often, and how soon, a failed attempt is retried. */
export interface RetryPolicy {
  /** Attempts after the first one. */
  maxRetries: number;
  /** Default: exponential from 1 s to 60 s, doubling, without jitter. */
  backoff?: Backoff;
  /** Only failures of these categories are retried. Default, and when empty: all of them. */
  retryableCategories?: string[];
}

/** How failures and lost leases are treated, and how long an execution is kept. Frozen at submit. */
export interface ExecutionPolicy {
  /** Without it the first failure or lapsed lease is final. */
  retry?: RetryPolicy;
  /** How many leases may be lost or revoked before another revocation fails the execution. Default 100. */
  maxReclaims?: number;
  /** How long one attempt may run without a pause, by the database's clock, before it is retried. Default: no limit. */
  attemptTimeout?: Duration;
  /** How long the execution may take in total, from its submit or last replay, before it expires. Default: no limit. */
  deadline?: Duration;
  /** How often it may be replayed. Default 10. */
  maxReplays?: number;
  /** How long its idempotency key is kept, at least. Default 24 hours. */
  dedupWindow?: Duration;
  /** How long it is kept after it has finished. Default: the connection's `retention`. */
  retention?: Duration;
  /** Also tells of its submit, its steps and its progress, and its completion carries the result. Default: not. */
  events?: 'all';
  /** What reads do not show of its values. Default: nothing is hidden. */
  redact?: Redaction;
}
