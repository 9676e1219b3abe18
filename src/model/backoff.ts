/**
 * What may be asked for as the wait before a retry, of an execution or of a step, and the same in the names of the stored JSON.
 */
import type { Backoff } from '../contract/policy.ts';
import { choice, flag, number, whole } from '../contract/shape/kinds.ts';
import { LIMITS } from '../contract/limits.ts';
import { faultAt, shape, variants } from '../contract/shape/shape.ts';
import { DEFAULT_BACKOFF, type StoredBackoff } from './retry.ts';

type FixedBackoff = Extract<Backoff, { type: 'fixed' }>;
type ExponentialBackoff = Extract<Backoff, { type: 'exponential' }>;

const INITIAL_DELAY_MS = 1_000;
const delay = whole(0, LIMITS.delayMs);

export const backoffKind = variants<Backoff, 'type'>('type', {
  fixed: shape<FixedBackoff>({ type: choice(['fixed']), delayMs: delay }),
  exponential: shape<ExponentialBackoff>({
    type: choice(['exponential']),
    initialDelayMs: delay.optional(),
    maxDelayMs: delay.optional(),
    multiplier: number(1, LIMITS.multiplier).optional(),
    jitter: flag.optional(),
  }).and(({ initialDelayMs = INITIAL_DELAY_MS, maxDelayMs }) =>
    maxDelayMs === undefined || maxDelayMs >= initialDelayMs
      ? undefined
      : faultAt('.maxDelayMs', whole(initialDelayMs, LIMITS.delayMs).faultOf(maxDelayMs)!),
  ),
});

/** One that was checked. */
export function storedBackoff(backoff: Backoff | undefined): StoredBackoff {
  if (backoff === undefined) return DEFAULT_BACKOFF;
  if (backoff.type === 'fixed') return { type: 'fixed', delay_ms: backoff.delayMs };
  const { initialDelayMs = INITIAL_DELAY_MS, multiplier = 2, jitter = false } = backoff;
  return {
    type: 'exponential',
    initial_delay_ms: initialDelayMs,
    max_delay_ms: backoff.maxDelayMs ?? Math.max(60_000, initialDelayMs),
    multiplier,
    jitter,
  };
}
