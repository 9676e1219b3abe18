/**
 * A lease whose execution is locked whenever it is to be renewed: it is tried again soon, and not only at the next beat.
 */
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import type { Claim, RenewOutcome, WorkerPort } from '../../contract/protocol.ts';
import { HeldLease, LeaseWatch } from './lease-watch.ts';

const LEASE_MS = 60_000;

beforeEach(() => vi.useFakeTimers());
afterEach(() => vi.useRealTimers());

/** A lease that a renewal finds locked this many times. */
function watched(heldTimes: number) {
  let calls = 0;
  const renew = async (): Promise<RenewOutcome[]> => {
    calls += 1;
    return [{ outcome: calls <= heldTimes ? 'held' : 'renewed' }];
  };
  const watch = new LeaseWatch({ renew } as unknown as WorkerPort, LEASE_MS, () => undefined);
  const lease = new HeldLease({ executionId: 'x', leaseMs: LEASE_MS } as unknown as Claim, performance.now());
  watch.add(lease);
  return { watch, lease, calls: () => calls };
}

it('is renewed within a fraction of its time, though it was locked at the beat', async () => {
  const { watch, lease, calls } = watched(5);
  await vi.advanceTimersByTimeAsync(LEASE_MS / 3);
  expect(calls()).toBe(1);
  await vi.advanceTimersByTimeAsync(LEASE_MS / 10);
  expect(calls()).toBe(6);
  expect(lease.unconfirmedMs).toBeLessThan(LEASE_MS / 10);
  watch.remove(lease);
});

it('is not asked for again once it is released', async () => {
  const { watch, lease, calls } = watched(Number.POSITIVE_INFINITY);
  await vi.advanceTimersByTimeAsync(LEASE_MS / 3);
  watch.remove(lease);
  await vi.advanceTimersByTimeAsync(LEASE_MS);
  expect(calls()).toBe(1);
});
