/**
 * How times, counts, states and commands are spelled, and why an execution is where it is. Text from values;
 * the sentences about executions are the engine's.
 */
import type { FlowState } from '../contract/flows.ts';
import type { Explanation } from '../contract/operations.ts';
import { shortDuration } from '../contract/shape/duration.ts';
import type { PublicState } from '../contract/states.ts';
import type { Tone } from './style.ts';
import { printable } from '../contract/secrets.ts';
import { cutTo } from './text-width.ts';

/** A time in UTC. */
export function instant(ms: number): string {
  return new Date(ms).toISOString();
}

/** A time of the day in UTC, for events that are printed as they happen. */
export function timeOfDay(ms: number): string {
  return instant(ms).slice(11, -1);
}

/** `4m10s ago`. */
export function ago(ms: number): string {
  return `${shortDuration(ms)} ago`;
}

/** `12,500`, in every locale. */
export function thousands(count: number): string {
  return count.toLocaleString('en-US');
}

/** `1 member`, `1,200 members`. */
export function counted(count: number, noun: string): string {
  return `${thousands(count)} ${noun}${count === 1 ? '' : 's'}`;
}

/** The text on one line of at most so many columns. */
export function cutLine(text: string, columns: number): string {
  return cutTo(printable(text), columns);
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

const FLOW_TONES: Partial<Record<FlowState, Tone>> = {
  completed: 'good',
  failed: 'bad',
  cancelled: 'warn',
  cancelling: 'warn',
};

export function flowToneOf(state: FlowState): Tone {
  return FLOW_TONES[state] ?? 'plain';
}

type Explained = Extract<Explanation, { outcome: 'explained' }>;

/** Why an execution is where it is, in one sentence: the engine's. */
export function whyOf({ holding }: Explained): string {
  return holding === null
    ? 'Nothing keeps it from running: a worker should claim it any moment.'
    : printable(holding.detail);
}
