/**
 * How often others are notified of work that stays locked.
 */
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { LIMITS } from '../../../contract/limits.ts';
import { HandOn } from './hand-on.ts';

beforeEach(() => vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] }));
afterEach(() => vi.useRealTimers());

/** The rings when a claim skips some every `everyMs`, for `forMs`. */
function ringsOf(handOn: HandOn, everyMs: number, forMs: number): number {
  const ring = vi.fn();
  for (let ms = 0; ms < forMs; ms += everyMs) {
    handOn.pass(ring);
    vi.advanceTimersByTime(everyMs);
  }
  return ring.mock.calls.length;
}

it('the first is reported at once, and the next ones less and less often', () => {
  const handOn = new HandOn();
  expect(ringsOf(handOn, 1, 1)).toBe(1);
  expect(ringsOf(handOn, 5, 60_000)).toBeLessThanOrEqual(20);
});

it('one that is passed by seldom, but again and again, is reported less and less often as well', () => {
  expect(ringsOf(new HandOn(), 1_000, 60_000)).toBeLessThanOrEqual(20);
});

it('the last one is reported when the rest is over', () => {
  const handOn = new HandOn();
  ringsOf(handOn, 5, 60_000);
  vi.advanceTimersByTime(1);
  const ring = vi.fn();
  handOn.pass(ring);
  expect(ring).not.toHaveBeenCalled();
  vi.advanceTimersByTime(LIMITS.handOnMs);
  expect(ring).toHaveBeenCalledOnce();
});

it('after a time without any, the next is reported at once again', () => {
  const handOn = new HandOn();
  ringsOf(handOn, 5, 60_000);
  vi.advanceTimersByTime(2 * LIMITS.handOnMs);
  expect(ringsOf(handOn, 1, 1)).toBe(1);
  expect(ringsOf(handOn, 5, 200)).toBeGreaterThan(2);
});
