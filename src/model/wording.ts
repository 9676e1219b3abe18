/**
 * How gate sentences word numbers, durations and messages from elsewhere: short, and on one line. Pure text from
 * values.
 */

/** How many characters of a failure's message are quoted. */
const QUOTED_CHARS = 200;
/** How many items of a list are named. */
const NAMED = 3;

export function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`;
}

/** On one line, and cut to fit into a sentence. */
export function quoted(message: string): string {
  const chars = [...message.replaceAll(/\s+/g, ' ').trim()];
  return chars.length > QUOTED_CHARS ? `${chars.slice(0, QUOTED_CHARS - 1).join('')}…` : chars.join('');
}

/** The first few, and how many more there are. */
export function firstOf(texts: readonly string[], separator: string): string {
  const more = texts.length - NAMED;
  return `${texts.slice(0, NAMED).join(separator)}${more > 0 ? ` and ${more} more` : ''}`;
}

const UNITS = [
  ['d', 86_400_000],
  ['h', 3_600_000],
  ['m', 60_000],
  ['s', 1_000],
] as const;

/** A duration in its two largest units: `4m10s`, `2h05m`. Below a second, milliseconds; a negative one is 0. */
export function spoken(ms: number): string {
  const whole = Math.max(Math.round(ms), 0);
  const first = UNITS.findIndex(([, unitMs]) => whole >= unitMs);
  if (first < 0) return `${whole}ms`;
  const [[name, unitMs], second] = [UNITS[first]!, UNITS[first + 1]];
  const rest = second === undefined ? 0 : Math.floor((whole % unitMs) / second[1]);
  return `${Math.floor(whole / unitMs)}${name}${rest === 0 ? '' : `${String(rest).padStart(2, '0')}${second![0]}`}`;
}
