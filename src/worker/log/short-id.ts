/**
 * The form in which an id is shown on a terminal.
 */

/**
 * Characters of the uuid: its milliseconds, which all executions of one submit share, and 26 random bits. Any command
 * takes them for the id.
 */
const SHORT = 23;

export function shortId(executionId: unknown): string {
  const id = String(executionId);
  return id.slice(id.indexOf('}:') + 2).slice(0, SHORT);
}
