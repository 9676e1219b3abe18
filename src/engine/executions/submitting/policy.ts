/**
 * Checks an execution's policy and turns it into the JSON that is frozen with it. The stored names are part of the
 * read surface: SQL readers look for `retry_policy.max_retries`.
 */
import { EngineError } from '../../../contract/errors.ts';
import type { Backoff, ExecutionPolicy, RetryPolicy } from '../../../contract/policy.ts';
import { LIMITS } from '../../../contract/limits.ts';
import { DEFAULT_BACKOFF, type StoredBackoff, type StoredRetryPolicy } from '../../../model/retry.ts';
import { checkList, checkText, checkWhole, refuse } from '../../kit/checks.ts';
import { checkMembers } from '../../kit/settings.ts';

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
}

const POLICY_MEMBERS: readonly (keyof ExecutionPolicy)[] = [
  'retry',
  'maxReclaims',
  'attemptTimeoutMs',
  'deadlineMs',
  'maxReplays',
  'dedupWindowMs',
  'retentionMs',
];

/** The policy as stored JSON text, with members of the other where it has none. Anything malformed is `invalid_policy`. */
export function encodePolicy(policy: ExecutionPolicy, field: string, others: ExecutionPolicy = {}): string {
  try {
    checkMembers(policy, field, POLICY_MEMBERS);
    return JSON.stringify(storedPolicy({ ...others, ...present(policy) }, field));
  } catch (error) {
    if (!(error instanceof EngineError)) throw error;
    const detail = error.field === undefined ? {} : { field: error.field };
    throw new EngineError('invalid_policy', error.message, detail);
  }
}

function storedPolicy(policy: ExecutionPolicy, field: string): StoredPolicy {
  const whole = (name: keyof ExecutionPolicy, min: number, max: number): number | undefined =>
    policy[name] === undefined ? undefined : checkWhole(policy[name], `${field}.${name}`, min, max);
  const timeouts = present({
    max_reclaim_count: whole('maxReclaims', 0, LIMITS.maxReclaims),
    attempt_timeout_ms: whole('attemptTimeoutMs', 1, LIMITS.delayMs),
    execution_deadline_ms: whole('deadlineMs', 1, LIMITS.delayMs),
  });
  return present({
    retry_policy: policy.retry === undefined ? undefined : storedRetry(policy.retry, `${field}.retry`),
    timeout_policy: Object.keys(timeouts).length === 0 ? undefined : timeouts,
    max_replay_count: whole('maxReplays', 0, LIMITS.maxReplays),
    dedup_window_ms: whole('dedupWindowMs', 1, LIMITS.delayMs),
    retention_ms: whole('retentionMs', 0, LIMITS.delayMs),
  });
}

/** Absent members are left out, not stored as null. */
function present<Value extends object>(value: Value): { [Name in keyof Value]?: NonNullable<Value[Name]> } {
  return Object.fromEntries(Object.entries(value).filter(([, member]) => member !== undefined)) as never;
}

function storedRetry(retry: RetryPolicy, field: string): StoredRetryPolicy {
  checkMembers(retry, field, ['maxRetries', 'backoff', 'retryableCategories']);
  const stored: StoredRetryPolicy = {
    max_retries: checkWhole(retry.maxRetries, `${field}.maxRetries`, 0, LIMITS.maxRetries),
    backoff: retry.backoff === undefined ? DEFAULT_BACKOFF : storedBackoff(retry.backoff, `${field}.backoff`),
  };
  if (retry.retryableCategories !== undefined) {
    const name = `${field}.retryableCategories`;
    stored.retryable_categories = checkList(retry.retryableCategories, name, LIMITS.retryableCategories).map(
      (category, index) => checkText(category, `${name}[${index}]`, LIMITS.categoryBytes),
    );
  }
  return stored;
}

function storedBackoff(backoff: Backoff, field: string): StoredBackoff {
  if (backoff?.type === 'fixed') {
    checkMembers(backoff, field, ['type', 'delayMs']);
    return { type: 'fixed', delay_ms: checkWhole(backoff.delayMs, `${field}.delayMs`, 0, LIMITS.delayMs) };
  }
  if (backoff?.type !== 'exponential') refuse(`${field}.type`, 'must be fixed or exponential');
  checkMembers(backoff, field, ['type', 'initialDelayMs', 'maxDelayMs', 'multiplier', 'jitter']);
  const initial = checkWhole(backoff.initialDelayMs ?? 1_000, `${field}.initialDelayMs`, 0, LIMITS.delayMs);
  return {
    type: 'exponential',
    initial_delay_ms: initial,
    max_delay_ms: checkWhole(
      backoff.maxDelayMs ?? Math.max(60_000, initial),
      `${field}.maxDelayMs`,
      initial,
      LIMITS.delayMs,
    ),
    multiplier: checkMultiplier(backoff.multiplier ?? 2, `${field}.multiplier`),
    jitter: checkFlag(backoff.jitter ?? false, `${field}.jitter`),
  };
}

function checkMultiplier(value: unknown, field: string): number {
  if (typeof value !== 'number' || !(value >= 1 && value <= LIMITS.multiplier)) {
    refuse(field, `must be a number from 1 to ${LIMITS.multiplier}`);
  }
  return value;
}

function checkFlag(value: unknown, field: string): boolean {
  if (typeof value !== 'boolean') refuse(field, 'must be true or false');
  return value;
}
