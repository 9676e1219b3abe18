/**
 * How times, durations, counts, states and commands are spelled, and why an execution is where it is. Text from values;
 * the sentences about executions are the engine's.
 */
import type { Explanation } from '../contract/operations.ts';
import type { PublicState } from '../contract/states.ts';
import type { Tone } from './style.ts';
import { printable } from './secrets.ts';

/** A time in UTC. */
export function instant(ms: number): string {
  return new Date(ms).toISOString();
}

const UNITS = [
  ['d', 86_400_000],
  ['h', 3_600_000],
  ['m', 60_000],
  ['s', 1_000],
] as const;

/** A duration in its two largest units: `2h04m`. Below a second, milliseconds; a negative one is 0. */
export function span(ms: number): string {
  const first = UNITS.findIndex(([, unitMs]) => ms >= unitMs);
  if (first < 0) return `${Math.max(Math.round(ms), 0)}ms`;
  const [[name, unitMs], next] = [UNITS[first]!, UNITS[first + 1]];
  const whole = `${Math.floor(ms / unitMs)}${name}`;
  if (next === undefined) return whole;
  const rest = Math.floor((ms % unitMs) / next[1]);
  return rest === 0 ? whole : `${whole}${String(rest).padStart(2, '0')}${next[0]}`;
}

/** `12,500`, in every locale. */
export function thousands(count: number): string {
  return count.toLocaleString('en-US');
}

/** The text on one line of at most this many characters. */
export function cutLine(text: string, most: number): string {
  const characters = [...printable(text)];
  return characters.length > most ? `${characters.slice(0, most - 1).join('')}…` : characters.join('');
}

const PLAIN_WORD = /^[\w@%+=:,./-]+$/;

/** A command as it can be pasted into a shell. */
export function commandLine(words: readonly string[]): string {
  return words
    .map((word) => (PLAIN_WORD.test(word) ? word : `'${word.replaceAll("'", String.raw`'\''`)}'`))
    .join(' ');
}

const TONES: Partial<Record<PublicState, Tone>> = {
  completed: 'good',
  failed: 'bad',
  expired: 'bad',
  cancelled: 'warn',
};

export function toneOf(state: PublicState): Tone {
  return TONES[state] ?? 'plain';
}

type Explained = Extract<Explanation, { outcome: 'explained' }>;

/** Why an execution is where it is, in one sentence: the engine's. */
export function whyOf({ holding }: Explained): string {
  return holding === null
    ? 'Nothing keeps it from running: a worker should claim it any moment.'
    : printable(holding.detail);
}
