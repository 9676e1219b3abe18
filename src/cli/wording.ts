/**
 * How times, counts, states and commands are spelled, and why an execution is where it is. Text from values;
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

/** `12,500`, in every locale. */
export function thousands(count: number): string {
  return count.toLocaleString('en-US');
}

/** `1 member`, `1,200 members`. */
export function counted(count: number, noun: string): string {
  return `${thousands(count)} ${noun}${count === 1 ? '' : 's'}`;
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
