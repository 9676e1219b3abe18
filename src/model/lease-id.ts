/**
 * The id of a lease: that of its execution, with the epoch in its last digits and a version of its own. The database
 * computes it in the same way; nobody stores it.
 */
const VERSION_AT = 14;
const LAST_DIGITS = 8;

export function leaseIdOf(executionUuid: string, leaseEpoch: number): string {
  const cut = executionUuid.length - LAST_DIGITS;
  const last = (Number.parseInt(executionUuid.slice(cut), 16) ^ (leaseEpoch % 2 ** 32)) >>> 0;
  return `${executionUuid.slice(0, VERSION_AT)}8${executionUuid.slice(VERSION_AT + 1, cut)}${last.toString(16).padStart(LAST_DIGITS, '0')}`;
}
