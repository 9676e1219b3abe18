/**
 * Text that fits a line: on one line, without control characters, without secrets, and not too long.
 */
import { printable, withoutSecrets } from '../../contract/secrets.ts';
import { LOG_LIMITS } from './limits.ts';

/** The text with at most this many characters; the last one shows that something was left out. */
export function cutTo(text: string, most: number): string {
  if (text.length <= most) return text;
  // A pair of surrogates is not cut in two.
  const end = /[\uD800-\uDBFF]/.test(text[most - 2]!) ? most - 2 : most - 1;
  return `${text.slice(0, end)}…`;
}

/** Any text as part of a line. Secrets first: one that is cut in two is not recognised. */
export function shownText(text: string): string {
  return cutTo(printable(withoutSecrets(cutTo(text, LOG_LIMITS.read))), LOG_LIMITS.text);
}

/** The names, as many as a line has room for. */
export function shownNames(names: readonly string[]): string[] {
  const some = names.slice(0, LOG_LIMITS.names).map(shownText);
  return names.length > some.length ? [...some, `… and ${names.length - some.length} more`] : some;
}
