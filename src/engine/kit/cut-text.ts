/**
 * Truncates messages that are stored for people: a report must not fail because it is long.
 */

/** Cuts a string to a number of bytes without splitting a character; characters Postgres cannot store are replaced. */
export function cutText(text: string, maxBytes: number): string {
  const bytes = Buffer.from(text.replaceAll('\u0000', '\uFFFD'));
  if (bytes.length <= maxBytes) return bytes.toString();
  return new TextDecoder().decode(bytes.subarray(0, maxBytes), { stream: true });
}
