/**
 * What follows a failed attempt. The tables are the rules; the properties hold for every policy the engine accepts, up
 * to its limits. The SQL twin of these functions is compared elsewhere.
 */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { LIMITS } from '../contract/limits.ts';
import {
  backoffMs,
  decideRetry,
  DEFAULT_BACKOFF,
  spread,
  type FailedAttempt,
  type StoredBackoff,
  type StoredRetryPolicy,
} from './retry.ts';

type Exponential = Extract<StoredBackoff, { type: 'exponential' }>;

const NO_DRAW = 0;
const FIXED: StoredBackoff = { type: 'fixed', delay_ms: 250 };
const DOUBLING: Exponential = {
  type: 'exponential',
  initial_delay_ms: 100,
  max_delay_ms: 1_500,
  multiplier: 2,
  jitter: false,
};

function failure(change: Partial<FailedAttempt> = {}): FailedAttempt {
  return { retryCount: 0, category: 'transient', terminal: false, retryAfterMs: null, ...change };
}

const anyDelay = fc.integer({ min: 0, max: LIMITS.delayMs });
const anyExponential: fc.Arbitrary<Exponential> = fc.record({
  type: fc.constant('exponential' as const),
  initial_delay_ms: anyDelay,
  max_delay_ms: anyDelay,
  multiplier: fc.double({ min: 1, max: LIMITS.multiplier, noNaN: true }),
  jitter: fc.boolean(),
});
const anyBackoff: fc.Arbitrary<StoredBackoff> = fc.oneof(
  fc.record({ type: fc.constant('fixed' as const), delay_ms: anyDelay }),
  anyExponential,
);
const anyDraw = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });
const anyCount = fc.oneof(fc.nat({ max: 200 }), fc.nat({ max: LIMITS.maxRetries }), fc.maxSafeNat());

describe('a failed attempt', () => {
  it.each<[string, StoredRetryPolicy | undefined, Partial<FailedAttempt>]>([
    ['there is no policy', undefined, {}],
    ['there is no policy, although a delay was requested', undefined, { retryAfterMs: 10 }],
    ['the policy allows no retry', { max_retries: 0 }, {}],
    ['the only retry was spent', { max_retries: 1 }, { retryCount: 1 }],
    ['the last retry was spent', { max_retries: 3 }, { retryCount: 3 }],
    ['more retries were spent than the policy allows', { max_retries: 3 }, { retryCount: 4 }],
    [
      'no retries are left, although a delay was requested',
      { max_retries: 1 },
      { retryCount: 1, retryAfterMs: 10 },
    ],
    ['its category is not listed', { max_retries: 3, retryable_categories: ['timeout'] }, {}],
    ['its category is listed in another case', { max_retries: 3, retryable_categories: ['Transient'] }, {}],
    [
      'its category is not listed, although a delay was requested',
      { max_retries: 3, retryable_categories: ['timeout'] },
      { retryAfterMs: 10 },
    ],
    ['it must not be retried', { max_retries: 3 }, { terminal: true }],
    [
      'it must not be retried, although a delay was requested',
      { max_retries: 3 },
      { terminal: true, retryAfterMs: 10 },
    ],
    [
      'it must not be retried, although its category is listed',
      { max_retries: 3, retryable_categories: ['transient'] },
      { terminal: true },
    ],
  ])('is terminal when %s', (_why, policy, change) => {
    expect(decideRetry(policy, failure(change), NO_DRAW)).toEqual({ retry: false });
  });

  it.each<[string, StoredRetryPolicy, Partial<FailedAttempt>, number]>([
    ['after the default delay', { max_retries: 1 }, {}, 1_000],
    ['after the doubled default delay', { max_retries: 3 }, { retryCount: 2 }, 4_000],
    ['for the last time', { max_retries: 3, backoff: FIXED }, { retryCount: 2 }, 250],
    [
      'when every category is retryable',
      { max_retries: 1, backoff: FIXED, retryable_categories: [] },
      {},
      250,
    ],
    [
      'when its category is listed',
      { max_retries: 1, backoff: FIXED, retryable_categories: ['timeout', 'transient'] },
      {},
      250,
    ],
    [
      'when its own category is listed',
      { max_retries: 1, backoff: FIXED, retryable_categories: ['rate_limit'] },
      { category: 'rate_limit' },
      250,
    ],
    [
      'after the requested delay instead of a fixed one',
      { max_retries: 1, backoff: FIXED },
      { retryAfterMs: 9 },
      9,
    ],
    ['immediately if requested', { max_retries: 1, backoff: FIXED }, { retryAfterMs: 0 }, 0],
    [
      'after the requested delay, even beyond the cap of the backoff',
      { max_retries: 1, backoff: DOUBLING },
      { retryAfterMs: 90_000 },
      90_000,
    ],
    [
      'immediately when the fixed delay is zero',
      { max_retries: 1, backoff: { type: 'fixed', delay_ms: 0 } },
      {},
      0,
    ],
  ])('is retried %s', (_when, policy, change, delayMs) => {
    expect(decideRetry(policy, failure(change), NO_DRAW)).toEqual({ retry: true, delayMs });
  });

  it('is retried exactly as often as the policy allows', () => {
    fc.assert(
      fc.property(fc.nat({ max: 50 }), anyBackoff, anyDraw, (max, backoff, draw) => {
        let spent = 0;
        while (decideRetry({ max_retries: max, backoff }, failure({ retryCount: spent }), draw).retry)
          spent += 1;
        expect(spent).toBe(max);
      }),
    );
  });
});

describe('a delay', () => {
  it.each([0, 1, 2, 50, 1_000_000])('that is fixed is the same before retry %i', (retryCount) => {
    expect(backoffMs(FIXED, retryCount, 0.9)).toBe(250);
  });

  it.each([
    [0, 100],
    [1, 200],
    [2, 400],
    [3, 800],
    [4, 1_500],
    [5, 1_500],
    [1_000_000, 1_500],
  ])('that doubles is, before retry %i, %i ms and never above its cap', (retryCount, delayMs) => {
    expect(backoffMs(DOUBLING, retryCount, 0.9)).toBe(delayMs);
  });

  it.each<[string, Partial<Exponential>, number, number]>([
    ['that triples', { multiplier: 3 }, 2, 900],
    ['that grows by half', { multiplier: 1.5 }, 2, 225],
    ['that is fractional, rounded down', { initial_delay_ms: 1, multiplier: 1.5 }, 3, 3],
    ['that does not grow', { multiplier: 1 }, 1_000, 100],
    ['that starts at zero', { initial_delay_ms: 0 }, 1_000, 0],
    ['that starts above its cap', { initial_delay_ms: 9_000 }, 0, 1_500],
    ['with a cap of zero', { max_delay_ms: 0 }, 5, 0],
    ['that exceeds every number', { multiplier: 1_000, initial_delay_ms: LIMITS.delayMs }, 1_000_000, 1_500],
  ])('%s is computed exactly', (_which, change, retryCount, delayMs) => {
    expect(backoffMs({ ...DOUBLING, ...change }, retryCount, NO_DRAW)).toBe(delayMs);
  });

  it('grows by default from one second to one minute', () => {
    const delays = [0, 1, 2, 3, 4, 5, 6, 7].map((retry) => backoffMs(DEFAULT_BACKOFF, retry, 0.5));
    expect(delays).toEqual([1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]);
  });

  it.each([
    [0, 50],
    [0.5, 75],
    [0.999, 99],
  ])('with jitter lies in the upper half: a draw of %d gives %i of 100 ms', (draw, delayMs) => {
    expect(backoffMs({ ...DOUBLING, jitter: true }, 0, draw)).toBe(delayMs);
  });

  it('with jitter is between half of the plain delay and the plain delay', () => {
    fc.assert(
      fc.property(anyExponential, anyCount, anyDraw, (backoff, retryCount, draw) => {
        const plain = backoffMs({ ...backoff, jitter: false }, retryCount, draw);
        const jittered = backoffMs({ ...backoff, jitter: true }, retryCount, draw);
        expect(jittered).toBeGreaterThanOrEqual(Math.floor(plain / 2));
        expect(jittered).toBeLessThanOrEqual(plain);
      }),
    );
  });

  it('with jitter grows with the draw, and without jitter ignores it', () => {
    fc.assert(
      fc.property(anyExponential, anyCount, anyDraw, anyDraw, (backoff, retryCount, one, other) => {
        const [low, high] = one <= other ? [one, other] : [other, one];
        const grown = backoffMs(backoff, retryCount, high) - backoffMs(backoff, retryCount, low);
        expect(grown).toBeGreaterThanOrEqual(0);
        if (!backoff.jitter) expect(grown).toBe(0);
      }),
    );
  });

  it('without jitter never shrinks from one retry to the next', () => {
    fc.assert(
      fc.property(anyExponential, anyCount, (backoff, retryCount) => {
        const plain = { ...backoff, jitter: false };
        expect(backoffMs(plain, retryCount + 1, NO_DRAW)).toBeGreaterThanOrEqual(
          backoffMs(plain, retryCount, NO_DRAW),
        );
      }),
    );
  });

  it('is a whole number between zero and the cap, however many retries were spent', () => {
    fc.assert(
      fc.property(anyBackoff, anyCount, anyDraw, (backoff, retryCount, draw) => {
        const delayMs = backoffMs(backoff, retryCount, draw);
        expect(Number.isSafeInteger(delayMs)).toBe(true);
        expect(delayMs).toBeGreaterThanOrEqual(0);
        expect(delayMs).toBeLessThanOrEqual(
          backoff.type === 'fixed' ? backoff.delay_ms : backoff.max_delay_ms,
        );
      }),
    );
  });
});

it.each([
  [1, 0, 20],
  [1, 0.5, 30],
  [3, 0.5, 90],
  [9, 0.5, 110],
])('try %i with a draw of %d is spread to %i ms', (tries, draw, ms) => {
  expect(spread({ min: 20, max: 200 }, tries, draw)).toBe(ms);
});
