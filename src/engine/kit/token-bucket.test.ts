/**
 * How many tokens there are at which time: no clock, no timers.
 */
import { expect, it } from 'vitest';
import { TokenBucket } from './token-bucket.ts';

const LIMIT = { burst: 4, everyMs: 2 };

/** Takes what there is at this time. */
function takenAt(bucket: TokenBucket, nowMs: number): number {
  let taken = 0;
  while (bucket.take(nowMs) === 0) taken += 1;
  return taken;
}

it('as many as the burst are taken at once, and then one per interval', () => {
  const bucket = new TokenBucket(LIMIT);
  expect([0, 1, 2, 3, 4, 6].map((ms) => takenAt(bucket, 1_000 + ms))).toEqual([4, 0, 1, 0, 1, 1]);
});

it('without a token, the wait until the next one is returned, and nothing is taken', () => {
  const bucket = new TokenBucket(LIMIT);
  takenAt(bucket, 1_000);
  expect(bucket.take(1_000.5)).toBe(1.5);
  expect(bucket.take(1_001.5)).toBe(0.5);
  expect(bucket.take(1_002)).toBe(0);
});

it('tokens that are not used return, up to the burst and no further', () => {
  const bucket = new TokenBucket(LIMIT);
  takenAt(bucket, 1_000);
  expect(takenAt(bucket, 1_005)).toBe(2);
  expect(takenAt(bucket, 9_000)).toBe(4);
});

it('used as fast as possible, it gives the burst and one per interval, also when asked at odd times', () => {
  const bucket = new TokenBucket(LIMIT);
  let taken = 0;
  for (let ms = 0; ms < 1_000; ms += 0.7) taken += takenAt(bucket, ms);
  expect(taken).toBe(4 + 499);
});
