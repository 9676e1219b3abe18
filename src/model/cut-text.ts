/**
 * Truncates messages that are stored for people: a report must not fail because it is long.
 */

/** Cuts a string to a number of bytes without splitting a character; characters Postgres cannot store are replaced. */
export function cutText(text: string, maxBytes: number): string {
  const bytes = new TextEncoder().encode(text.replaceAll('\u0000', '\uFFFD'));
  return new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes.subarray(0, maxBytes), { stream: true });
}

/** Bytes of a string as UTF-8. */
export function bytesOf(text: string): number {
  return new TextEncoder().encode(text).length;
}
