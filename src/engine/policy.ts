/**
 * Checks an execution's policy and turns it into the JSON that is frozen with it. The stored names are part of the
 * read surface: SQL readers look for `retry_policy.max_retries`.
 */
import { EngineError } from '../contract/errors.ts';
import type { Backoff, ExecutionPolicy, RetryPolicy } from '../contract/engine.ts';
import { LIMITS } from '../contract/limits.ts';
import { DEFAULT_BACKOFF, type StoredBackoff, type StoredRetryPolicy } from '../model/retry.ts';
import { checkList, checkText, checkWhole, refuse } from './checks.ts';
import { checkMembers } from './members.ts';

interface StoredPolicy {
  retry_policy?: StoredRetryPolicy;
  timeout_policy?: { max_reclaim_count: number };
}

/** The policy as stored JSON text. Anything malformed is `invalid_policy`. */
export function encodePolicy(policy: ExecutionPolicy | undefined, field: string): string {
  if (policy === undefined) return '{}';
  try {
    return JSON.stringify(storedPolicy(policy, field));
  } catch (error) {
    if (!(error instanceof EngineError)) throw error;
    const detail = error.field === undefined ? {} : { field: error.field };
    throw new EngineError('invalid_policy', error.message, detail);
  }
}

function storedPolicy(policy: ExecutionPolicy, field: string): StoredPolicy {
  checkMembers(policy, field, ['retry', 'maxReclaims']);
  const stored: StoredPolicy = {};
  if (policy.retry !== undefined) stored.retry_policy = storedRetry(policy.retry, `${field}.retry`);
  if (policy.maxReclaims !== undefined) {
    const max = checkWhole(policy.maxReclaims, `${field}.maxReclaims`, 0, LIMITS.maxReclaims);
    stored.timeout_policy = { max_reclaim_count: max };
  }
  return stored;
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
