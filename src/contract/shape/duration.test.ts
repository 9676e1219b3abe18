/**
 * Durations in every form that an option may have.
 */
import { describe, expect, it } from 'vitest';
import { duration, durationMs, msOf, shortDuration, type Duration } from './duration.ts';

const DAY_MS = 86_400_000;

describe('a duration', () => {
  it.each<[Duration, number]>([
    ['90s', 90_000],
    ['1h30m', 5_400_000],
    ['1d2h3m4s5ms', 93_784_005],
    ['1.5s', 1_500],
    ['0s', 0],
    [{ minutes: 5 }, 300_000],
    [{ days: 1, hours: 2, minutes: 3, seconds: 4, milliseconds: 5 }, 93_784_005],
    [250, 250],
    [0, 0],
    [0.6, 1],
  ])('%j is %i ms', (given, ms) => {
    expect(durationMs(given, 'delay', 2 * DAY_MS)).toBe(ms);
    expect(msOf(given)).toBe(ms);
  });

  it.each([
    '',
    '5',
    'soon',
    '5 m',
    '-5m',
    'm',
    {},
    { weeks: 1 },
    { minutes: -1 },
    { minutes: '5' },
    [5],
    null,
    undefined,
    true,
    5n,
    new Date(0),
    -1,
    Number.NaN,
    Infinity,
    '3d',
  ])('is not %o', (given) => {
    expect(() => durationMs(given, 'delay', 2 * DAY_MS)).toThrow(
      expect.objectContaining({
        code: 'invalid_input',
        field: 'delay',
        message:
          "delay must be a duration from 0 to 172800000 ms, such as '90s', '1h30m', { minutes: 5 } or 500.",
      }),
    );
  });

  it('has bounds', () => {
    const kind = duration(DAY_MS, 50);
    expect([49, '50ms', '1d', DAY_MS + 1].map((given) => kind.faultOf(given) === undefined)).toEqual([
      false,
      true,
      true,
      false,
    ]);
  });

  it.each([
    [0, '0ms'],
    [999, '999ms'],
    [250_000, '4m10s'],
    [7_500_000, '2h05m'],
    [DAY_MS, '1d'],
  ])('of %i ms reads %s', (ms, text) => expect(shortDuration(ms)).toBe(text));
});
