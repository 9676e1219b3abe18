/**
 * Durations as people write them: `'90s'`, `'1h30m'`, `{ hours: 1, minutes: 30 }`. A bare number is refused, because
 * its unit cannot be seen.
 */
import { isObject, refuse } from './shape.ts';

/** A duration as the sum of its parts. */
export interface DurationParts {
  days?: number;
  hours?: number;
  minutes?: number;
  seconds?: number;
  milliseconds?: number;
}

/** `'90s'`, `'1h30m'` or `{ hours: 1, minutes: 30 }`. */
export type Duration = string | DurationParts;

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

/** Returns a duration in whole milliseconds. Throws `invalid_input` unless it is from 0 to `maxMs`. */
export function durationMs(duration: unknown, field: string, maxMs: number): number {
  const ms = typeof duration === 'string' ? textMs(duration) : partsMs(duration);
  if (ms !== undefined && Number.isFinite(ms) && ms >= 0 && ms <= maxMs) return Math.round(ms);
  refuse(field, `must be a duration such as '90s', '1h30m' or { minutes: 5 }, at most ${maxMs} ms`);
}

function textMs(text: string): number | undefined {
  let ms = 0;
  const rest = text.replaceAll(PART, (_, amount: string, unit: keyof typeof UNIT_MS) => {
    ms += Number(amount) * UNIT_MS[unit];
    return '';
  });
  return text !== '' && rest === '' ? ms : undefined;
}

function partsMs(parts: unknown): number | undefined {
  if (!isObject(parts)) return undefined;
  const entries = Object.entries(parts);
  if (entries.length === 0) return undefined;
  let ms = 0;
  for (const [name, amount] of entries) {
    const unit = PART_MS[name as keyof DurationParts];
    if (unit === undefined || typeof amount !== 'number' || !(amount >= 0)) return undefined;
    ms += amount * unit;
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
