/**
 * Rules for capability tokens, and how a worker's set is matched against what a route requires. Pure: the same tokens
 * always give the same result.
 */

export const CAPABILITY_LIMITS = { maxTokens: 256, maxBytes: 4_096 } as const;

/** Why a token is malformed, or undefined when it is fine. Tokens travel as comma-separated lists. */
export function capabilityFault(token: string): string | undefined {
  if (token.length === 0) return 'is empty';
  // Half of a surrogate pair has no UTF-8 encoding: the stored token would differ from the requested one.
  if (/\p{Surrogate}/u.test(token)) return 'is not well-formed text';
  for (let index = 0; index < token.length; index += 1) {
    const code = token.charCodeAt(index);
    if (code === 0x2c) return 'contains a comma';
    if (code <= 0x20 || code === 0x7f) return 'contains white space or a control character';
  }
  return undefined;
}

/** Size of the list in bytes as a comma-separated string, which is what the limit applies to. */
export function capabilityBytes(tokens: readonly string[]): number {
  const separators = Math.max(tokens.length - 1, 0);
  return tokens.reduce((bytes, token) => bytes + new TextEncoder().encode(token).length, separators);
}

/** Sorted by UTF-16 code unit and without repeats: two spellings of one requirement are one route. */
export function normaliseCapabilities(tokens: readonly string[]): string[] {
  return [...new Set(tokens)].toSorted();
}

/** True when everything required is offered. Matching is exact and case-sensitive. */
export function offersAll(required: readonly string[], offered: ReadonlySet<string>): boolean {
  return required.every((token) => offered.has(token));
}
