/**
 * What may be asked for as the wait before a retry, of an execution or of a step, and the same in the names of the stored JSON.
 */
import type { Backoff } from '../contract/policy.ts';
import { choice, flag, number } from '../contract/shape/kinds.ts';
import { duration, msOf } from '../contract/shape/duration.ts';
import { LIMITS } from '../contract/limits.ts';
import { faultAt, shape, variants } from '../contract/shape/shape.ts';
import { DEFAULT_BACKOFF, type StoredBackoff } from './retry.ts';

type FixedBackoff = Extract<Backoff, { type: 'fixed' }>;
type ExponentialBackoff = Extract<Backoff, { type: 'exponential' }>;

const INITIAL_DELAY_MS = 1_000;
const delay = duration(LIMITS.delayMs);

export const backoffKind = variants<Backoff, 'type'>('type', {
  fixed: shape<FixedBackoff>({ type: choice(['fixed']), delay }),
  exponential: shape<ExponentialBackoff>({
    type: choice(['exponential']),
    initialDelay: delay.optional(),
    maxDelay: delay.optional(),
    multiplier: number(1, LIMITS.multiplier).optional(),
    jitter: flag.optional(),
  }).and(({ initialDelay = INITIAL_DELAY_MS, maxDelay }) => {
    if (maxDelay === undefined) return undefined;
    const found = duration(LIMITS.delayMs, msOf(initialDelay)).faultOf(maxDelay);
    return found === undefined ? undefined : faultAt('.maxDelay', found);
  }),
});

/** One that was checked. */
export function storedBackoff(backoff: Backoff | undefined): StoredBackoff {
  if (backoff === undefined) return DEFAULT_BACKOFF;
  if (backoff.type === 'fixed') return { type: 'fixed', delay_ms: msOf(backoff.delay) };
  const { initialDelay = INITIAL_DELAY_MS, maxDelay, multiplier = 2, jitter = false } = backoff;
  const initialMs = msOf(initialDelay);
  return {
    type: 'exponential',
    initial_delay_ms: initialMs,
    max_delay_ms: maxDelay === undefined ? Math.max(60_000, initialMs) : msOf(maxDelay),
    multiplier,
    jitter,
  };
}
