/**
 * How an execution is to be treated: tried again, given up, kept. Frozen with it when it is submitted.
 */

export type Backoff =
  | { type: 'fixed'; delayMs: number }
  | {
      type: 'exponential';
      initialDelayMs?: number;
      maxDelayMs?: number;
      multiplier?: number;
      jitter?: boolean;
    };

/** How often, and how soon, a failed attempt is tried again. */
export interface RetryPolicy {
  /** Tries after the first one. */
  maxRetries: number;
  /** Default: exponential from 1 s to 60 s, doubling, without jitter. */
  backoff?: Backoff;
  /** When given and not empty, failures of other categories are not retried. */
  retryableCategories?: string[];
}

/** Frozen with the execution when it is submitted. */
export interface ExecutionPolicy {
  /** Absent: a failure or a lost lease is the end. */
  retry?: RetryPolicy;
  /** Leases that may be lost or revoked with the execution going on; a revocation beyond that fails it. Default 100. */
  maxReclaims?: number;
  /** How long a worker may run one attempt without giving it up, by the database's clock. Then it is tried again. */
  attemptTimeoutMs?: number;
  /** How long the execution may take in all, from its submit or its last replay; then it ends as expired. */
  deadlineMs?: number;
  /** How often it may be replayed. Default 10. */
  maxReplays?: number;
  /** How long its idempotency key stands for it, at least. Default 24 hours. */
  dedupWindowMs?: number;
  /** How long it is kept after its end. Default: as long as the deployment keeps things. */
  retentionMs?: number;
}
