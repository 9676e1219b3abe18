/**
 * Decides what follows a failed attempt: a retry and its delay, or a terminal failure. `ff_fail` applies the same rules
 * in SQL; a test compares the two over a table of policies.
 */

/** The retry policy as it is frozen with the execution; the names are those of the stored JSON. */
export interface StoredRetryPolicy {
  max_retries: number;
  backoff?: StoredBackoff;
  retryable_categories?: readonly string[];
}

export type StoredBackoff =
  | { type: 'fixed'; delay_ms: number }
  | {
      type: 'exponential';
      initial_delay_ms: number;
      max_delay_ms: number;
      multiplier: number;
      jitter: boolean;
    };

export interface FailedAttempt {
  /** Retries already spent. */
  retryCount: number;
  category: string;
  /** A failure that must not be retried, whatever the policy allows. */
  terminal: boolean;
  /** A delay requested by the handler, which replaces the computed one. */
  retryAfterMs: number | null;
}

export type RetryDecision = { retry: true; delayMs: number } | { retry: false };

export const DEFAULT_BACKOFF: StoredBackoff = {
  type: 'exponential',
  initial_delay_ms: 1_000,
  max_delay_ms: 60_000,
  multiplier: 2,
  jitter: false,
};

/** Delay before retry number `retryCount` (zero-based). `draw` in [0, 1) spreads a jittered delay over its upper half. */
export function backoffMs(backoff: StoredBackoff, retryCount: number, draw: number): number {
  if (backoff.type === 'fixed') return backoff.delay_ms;
  const grown = grownMs(backoff.initial_delay_ms, backoff.max_delay_ms, backoff.multiplier, retryCount);
  return Math.floor(backoff.jitter ? grown / 2 + (grown / 2) * draw : grown);
}

/** Compares logarithms first, so that no power overflows however many retries there were. */
function grownMs(initial: number, max: number, multiplier: number, retryCount: number): number {
  if (initial === 0) return 0;
  if (retryCount * Math.log(multiplier) >= Math.log(max / initial)) return max;
  return Math.min(initial * multiplier ** retryCount, max);
}

/**
 * Full jitter over a doubling range, so that rivals that collided once do not collide again. `draw` in [0, 1) chooses
 * within it.
 */
export function spread(range: { min: number; max: number }, tries: number, draw: number): number {
  const top = Math.min(range.max, range.min * 2 ** tries);
  return range.min + draw * (top - range.min);
}

/** No policy means no retries. An empty or absent category list means every category is retryable. */
export function decideRetry(
  policy: StoredRetryPolicy | undefined,
  failure: FailedAttempt,
  draw: number,
): RetryDecision {
  if (policy === undefined || failure.terminal) return { retry: false };
  if (failure.retryCount >= policy.max_retries) return { retry: false };
  const categories = policy.retryable_categories ?? [];
  if (categories.length > 0 && !categories.includes(failure.category)) return { retry: false };
  const delayMs =
    failure.retryAfterMs ?? backoffMs(policy.backoff ?? DEFAULT_BACKOFF, failure.retryCount, draw);
  return { retry: true, delayMs };
}
