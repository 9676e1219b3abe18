/**
 * Durations as people write them: `'90s'`, `'1h30m'`, `{ hours: 1, minutes: 30 }`, or a number of milliseconds. Every
 * option that is a duration takes all of them.
 */
import { fault, isObject, Kind } from './shape.ts';

/** A duration as the sum of its parts. */
export interface DurationParts {
  days?: number;
  hours?: number;
  minutes?: number;
  seconds?: number;
  milliseconds?: number;
}

/** `'90s'`, `'1h30m'`, `{ hours: 1, minutes: 30 }`, or a number of milliseconds. */
export type Duration = string | number | DurationParts;

const UNIT_MS = { d: 86_400_000, h: 3_600_000, m: 60_000, s: 1_000, ms: 1 } as const;
const PART_MS: Record<keyof DurationParts, number> = {
  days: UNIT_MS.d,
  hours: UNIT_MS.h,
  minutes: UNIT_MS.m,
  seconds: UNIT_MS.s,
  milliseconds: UNIT_MS.ms,
};

const PART = /(\d+(?:\.\d+)?)(ms|d|h|m|s)/g;

const READ_UNITS = ['d', 'h', 'm', 's'] as const;

/** Returns a duration in whole milliseconds. Throws `invalid_input` unless it is from `minMs` to `maxMs`. */
export function durationMs(value: unknown, field: string, maxMs: number, minMs = 0): number {
  return msOf(duration(maxMs, minMs).check(value, field));
}

/** A duration in a closed range. */
export function duration(maxMs: number, minMs = 0): Kind<Duration> {
  const other = fault(
    `must be a duration from ${minMs} to ${maxMs} ms, such as '90s', '1h30m', { minutes: 5 } or 500`,
  );
  return new Kind((value) => {
    const ms = msOf(value);
    return ms >= minMs && ms <= maxMs ? undefined : other;
  });
}

/** The whole milliseconds of a duration; NaN for anything else. */
export function msOf(value: unknown): number {
  if (typeof value === 'number') return Math.round(value);
  return Math.round(typeof value === 'string' ? textMs(value) : partsMs(value));
}

function textMs(text: string): number {
  let ms = 0;
  const rest = text.replaceAll(PART, (_, amount: string, unit: keyof typeof UNIT_MS) => {
    ms += Number(amount) * UNIT_MS[unit];
    return '';
  });
  return text !== '' && rest === '' ? ms : Number.NaN;
}

function partsMs(parts: unknown): number {
  const entries = isObject(parts) ? Object.entries(parts) : [];
  let ms = entries.length === 0 ? Number.NaN : 0;
  for (const [name, amount] of entries) {
    const isAmount = typeof amount === 'number' && amount >= 0;
    ms += isAmount ? amount * PART_MS[name as keyof DurationParts] : Number.NaN;
  }
  return ms;
}

/** For people to read, in its two largest units: `4m10s`, `2h05m`. Below a second, milliseconds; a negative one is 0. */
export function shortDuration(ms: number): string {
  const whole = Math.max(Math.round(ms), 0);
  const first = READ_UNITS.findIndex((unit) => whole >= UNIT_MS[unit]);
  if (first < 0) return `${whole}ms`;
  const [unit, next] = [READ_UNITS[first]!, READ_UNITS[first + 1]];
  const amount = `${Math.floor(whole / UNIT_MS[unit])}${unit}`;
  const rest = next === undefined ? 0 : Math.floor((whole % UNIT_MS[unit]) / UNIT_MS[next]);
  return rest === 0 ? amount : `${amount}${String(rest).padStart(2, '0')}${next}`;
}
