/**
 * Checks an execution's policy and turns it into the JSON that is stored with it. The stored names are part of the
 * read surface: SQL readers use `retry_policy.max_retries`.
 */
import type { ExecutionPolicy, RetryPolicy } from '../../../contract/policy.ts';
import type { Redaction } from '../../../contract/redaction.ts';
import { choice, list, refusedAs, string, whole } from '../../../contract/shape/kinds.ts';
import { duration, msOf, type Duration } from '../../../contract/shape/duration.ts';
import { LIMITS } from '../../../contract/limits.ts';
import { shape, type Kind } from '../../../contract/shape/shape.ts';
import { redactionKind } from '../../../model/redaction.ts';
import { backoffKind, storedBackoff } from '../../../model/backoff.ts';
import type { StoredRetryPolicy } from '../../../model/retry.ts';

interface StoredPolicy {
  retry_policy?: StoredRetryPolicy;
  timeout_policy?: {
    max_reclaim_count?: number;
    attempt_timeout_ms?: number;
    execution_deadline_ms?: number;
  };
  max_replay_count?: number;
  dedup_window_ms?: number;
  retention_ms?: number;
  events?: 'all';
  /** Of a child that does not end with its parent. */
  detached?: true;
  redact?: Redaction;
}

const limit = duration(LIMITS.delayMs, 1);

/** Anything malformed is `invalid_policy`. */
export const executionPolicy: Kind<ExecutionPolicy> = refusedAs(
  'invalid_policy',
  shape<ExecutionPolicy>({
    retry: shape<RetryPolicy>({
      maxRetries: whole(0, LIMITS.maxRetries),
      backoff: backoffKind.optional(),
      retryableCategories: list(string(LIMITS.categoryBytes), LIMITS.retryableCategories).optional(),
    }).optional(),
    maxReclaims: whole(0, LIMITS.maxReclaims).optional(),
    attemptTimeout: limit.optional(),
    deadline: limit.optional(),
    maxReplays: whole(0, LIMITS.maxReplays).optional(),
    dedupWindow: limit.optional(),
    retention: duration(LIMITS.delayMs).optional(),
    events: choice(['all'] as const).optional(),
    redact: redactionKind.optional(),
  }),
);

/** A checked policy as the JSON string to store; what it leaves out is taken from `others`. */
export function encodePolicy(policy: ExecutionPolicy, others: ExecutionPolicy = {}): string {
  return JSON.stringify(storedPolicy({ ...others, ...present(policy) }));
}

/** The same policy, as stored, for a child that does not end with its parent. */
export function detachedPolicy(stored: string): string {
  return JSON.stringify({ ...(JSON.parse(stored) as StoredPolicy), detached: true } satisfies StoredPolicy);
}

function storedPolicy(policy: ExecutionPolicy): StoredPolicy {
  const timeouts = present({
    max_reclaim_count: policy.maxReclaims,
    attempt_timeout_ms: optionalMs(policy.attemptTimeout),
    execution_deadline_ms: optionalMs(policy.deadline),
  });
  return present({
    retry_policy: policy.retry === undefined ? undefined : storedRetry(policy.retry),
    timeout_policy: Object.keys(timeouts).length === 0 ? undefined : timeouts,
    max_replay_count: policy.maxReplays,
    dedup_window_ms: optionalMs(policy.dedupWindow),
    retention_ms: optionalMs(policy.retention),
    events: policy.events,
    redact: policy.redact,
  });
}

/** Of a duration that was checked, or of none. */
export function optionalMs(given: Duration | undefined): number | undefined {
  return given === undefined ? undefined : msOf(given);
}

/** Undefined values are left out, not stored as null. */
function present<Value extends object>(value: Value): { [Name in keyof Value]?: NonNullable<Value[Name]> } {
  return Object.fromEntries(Object.entries(value).filter(([, entry]) => entry !== undefined)) as never;
}

function storedRetry({ maxRetries, backoff, retryableCategories }: RetryPolicy): StoredRetryPolicy {
  return {
    max_retries: maxRetries,
    backoff: storedBackoff(backoff),
    ...(retryableCategories === undefined ? {} : { retryable_categories: [...retryableCategories] }),
  };
}
