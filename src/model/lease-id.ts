/**
 * The id of a lease: that of its execution, with the epoch in its last digits and a version of its own. The database
 * computes it in the same way; nobody stores it.
 */
const VERSION_AT = 14;
const LAST_DIGITS = 8;
const HEX_DIGITS = '0123456789abcdef';

export function leaseIdOf(executionUuid: string, leaseEpoch: number): string {
  if (leaseEpoch < HEX_DIGITS.length) return firstLeaseIdOf(executionUuid, leaseEpoch);
  const cut = executionUuid.length - LAST_DIGITS;
  const last = (Number.parseInt(executionUuid.slice(cut), 16) ^ (leaseEpoch % 2 ** 32)) >>> 0;
  return `${executionUuid.slice(0, VERSION_AT)}8${executionUuid.slice(VERSION_AT + 1, cut)}${last.toString(16).padStart(LAST_DIGITS, '0')}`;
}

/** The epoch of most leases is a single digit, and changes only the last one: one is made for every claim. */
function firstLeaseIdOf(executionUuid: string, leaseEpoch: number): string {
  const end = executionUuid.length - 1;
  const last = HEX_DIGITS[HEX_DIGITS.indexOf(executionUuid[end]!) ^ leaseEpoch]!;
  return `${executionUuid.slice(0, VERSION_AT)}8${executionUuid.slice(VERSION_AT + 1, end)}${last}`;
}
