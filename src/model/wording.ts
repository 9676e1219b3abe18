/**
 * How gate sentences word numbers, lists and messages from elsewhere: short, and on one line. Pure text from values.
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
