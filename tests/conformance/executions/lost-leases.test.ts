/**
 * Leases between their grant and their loss: renewed, lapsed, revoked. A lease lapses because a test moves the clock;
 * the reconcilers of another connection notice.
 */
import { describe, expect, it } from 'vitest';
import type { Claim } from '../../../src/protocol/index.ts';
import type { ExecutionPolicy } from '../../../src/index.ts';
import { LEASE_MS, misplaced, newKind, useBench } from '../open.ts';

const bench = useBench();
const SLOW = { reason: 'slow' };

function retrying(maxRetries: number): { policy: ExecutionPolicy } {
  return { policy: { retry: { maxRetries } } };
}

describe('renew', () => {
  it('keeps a lease from lapsing, counted from now, and keeps its id', async () => {
    const claim = await bench.running();
    await bench.database.moveClock(LEASE_MS * 0.6);
    expect(await bench.port.renew([claim], LEASE_MS)).toEqual([{ outcome: 'renewed' }]);
    await bench.database.moveClock(LEASE_MS * 0.6);
    await bench.reconcile();
    const { lease, leaseEpoch } = await bench.snapshot(claim.executionId);
    expect({ ...lease, leaseEpoch }).toMatchObject({ leaseId: claim.leaseId, leaseEpoch: claim.leaseEpoch });
    expect(await bench.port.complete(claim)).toMatchObject({ outcome: 'completed' });
  });

  it('may set another length than the claim did', async () => {
    const claim = await bench.running();
    const before = await bench.snapshot(claim.executionId);
    await bench.port.renew([claim], 10 * LEASE_MS);
    const after = await bench.snapshot(claim.executionId);
    expect(after.lease!.expiresAtMs - before.lease!.expiresAtMs).toBeGreaterThanOrEqual(9 * LEASE_MS);
    expect(after.lease!.acquiredAtMs).toBe(before.lease!.acquiredAtMs);
  });

  it('renews many in one call and returns an outcome for each, in the order given', async () => {
    const lost = await bench.running();
    await bench.database.moveClock(LEASE_MS);
    const kind = newKind();
    await bench.engine.executions.submit(Array.from({ length: 6 }, () => ({ kind })));
    const claims = await bench.claim({ kinds: [kind] });
    const [good, done, taken, released, cancelled, last] = claims as [
      Claim,
      Claim,
      Claim,
      Claim,
      Claim,
      Claim,
    ];
    await bench.port.complete(done);
    await bench.engine.executions.revokeLease(taken.executionId, SLOW);
    await bench.port.release(released);
    await bench.engine.cancel(cancelled.executionId, SLOW);
    const unknown = { ...(await bench.running()), executionId: misplaced(good.executionId) };
    const stale = { ...(await bench.running()), leaseEpoch: 9 };
    const leases = [last, done, taken, released, cancelled, unknown, stale, lost];
    expect(await bench.port.renew(leases, LEASE_MS)).toMatchObject([
      { outcome: 'renewed' },
      { outcome: 'not_active', lifecyclePhase: 'terminal', terminalOutcome: 'success' },
      { outcome: 'lease_revoked' },
      { outcome: 'not_active', lifecyclePhase: 'runnable', terminalOutcome: 'none' },
      { outcome: 'not_active', lifecyclePhase: 'terminal', terminalOutcome: 'cancelled' },
      { outcome: 'not_found' },
      { outcome: 'stale_lease', leaseEpoch: 1 },
      { outcome: 'lease_expired' },
    ]);
  });

  it('renews two hundred leases in one call', async () => {
    const kind = newKind();
    await bench.engine.executions.submit(Array.from({ length: 200 }, () => ({ kind })));
    const claims = await bench.claim({ kinds: [kind], limit: 200 });
    const answers = await bench.port.renew(claims, LEASE_MS);
    expect(answers.filter(({ outcome }) => outcome === 'renewed')).toHaveLength(200);
    await bench.engine.cancel(
      claims.map(({ executionId }) => executionId),
      SLOW,
    );
  });

  it('of an empty list returns an empty list', async () => {
    expect(await bench.port.renew([], LEASE_MS)).toEqual([]);
  });
});

describe('a lease that lapses', () => {
  it('ends the attempt, and another worker starts the next one as a retry', async () => {
    const kind = newKind();
    const lost = await bench.running({ kind, ...retrying(1) });
    await bench.loseLeases();
    const waiting = await bench.snapshot(lost.executionId);
    expect(waiting).toMatchObject({
      state: 'waiting',
      stateVector: {
        lifecyclePhase: 'runnable',
        eligibilityState: 'eligible_now',
        attemptState: 'pending_retry_attempt',
      },
      attemptIndex: 1,
      retryCount: 1,
      reclaimCount: 1,
      lease: null,
    });
    expect(waiting.attempts).toMatchObject([
      {
        attemptIndex: 0,
        outcome: 'interrupted',
        failureMessage: 'attempt_timeout',
        workerInstanceId: 'worker-1',
      },
    ]);
    const next = await bench.claimOne(kind, { workerInstanceId: 'worker-2' });
    expect(next).toMatchObject({
      executionId: lost.executionId,
      attemptIndex: 1,
      retryCount: 1,
      reclaimed: true,
      resumed: false,
    });
    expect(next.leaseEpoch).toBeGreaterThan(lost.leaseEpoch);
  });

  it('fences the old worker out while the new one works', async () => {
    const kind = newKind();
    const lost = await bench.running({ kind, ...retrying(1) });
    await bench.loseLeases();
    const next = await bench.claimOne(kind);
    expect(await bench.port.complete(lost, 'zombie')).toEqual({ outcome: 'lease_expired' });
    expect(await bench.port.fail(lost, { message: 'zombie' })).toEqual({ outcome: 'lease_expired' });
    expect(await bench.port.complete(next, 'mine')).toMatchObject({ outcome: 'completed' });
    expect(await bench.engine.executions.result(lost.executionId)).toEqual({
      outcome: 'success',
      result: 'mine',
    });
    expect(await bench.port.complete(lost, 'zombie')).toEqual({ outcome: 'lease_expired' });
  });

  it('counts as reclaimed only for the attempt that follows it', async () => {
    const kind = newKind();
    await bench.running({ kind, ...retrying(3) });
    await bench.loseLeases();
    const second = await bench.claimOne(kind);
    await bench.port.release(second);
    expect(await bench.claimOne(kind)).toMatchObject({ attemptIndex: 1, resumed: true, reclaimed: false });
  });

  it('ends a paused and resumed attempt too', async () => {
    const kind = newKind();
    const first = await bench.running({ kind, ...retrying(1) });
    await bench.port.release(first);
    await bench.claimOne(kind, { workerInstanceId: 'worker-9' });
    await bench.loseLeases();
    const { attempts } = await bench.snapshot(first.executionId);
    expect(attempts).toMatchObject([
      { attemptIndex: 0, outcome: 'interrupted', workerInstanceId: 'worker-9' },
    ]);
    expect(await bench.claimOne(kind)).toMatchObject({ attemptIndex: 1, reclaimed: true, resumed: false });
  });

  it.each([0, 2])('expires the execution when %i retries are used up', async (maxRetries) => {
    const kind = newKind();
    const { executionId } = await bench.running({ kind, ...retrying(maxRetries) });
    for (let lost = 0; lost < maxRetries; lost += 1) {
      await bench.loseLeases();
      await bench.claimOne(kind);
    }
    await bench.loseLeases();
    expect(await bench.engine.executions.result(executionId)).toEqual({
      outcome: 'expired',
      message: 'attempt_timeout',
      category: 'infra_crash',
      by: 'engine',
    });
    const snapshot = await bench.snapshot(executionId);
    expect(snapshot).toMatchObject({
      state: 'expired',
      attemptIndex: maxRetries,
      retryCount: maxRetries,
    });
    expect(snapshot.attempts.map(({ outcome }) => outcome)).toEqual(
      Array.from({ length: maxRetries + 1 }, () => 'interrupted'),
    );
    expect(await bench.claim({ kinds: [kind] })).toEqual([]);
  });

  it('expires the execution when there is no policy', async () => {
    const { executionId } = await bench.running();
    await bench.loseLeases();
    expect(await bench.engine.executions.result(executionId)).toMatchObject({ outcome: 'expired' });
  });

  it('is retried whatever the categories are, because the work is not at fault', async () => {
    const policy = { retry: { maxRetries: 1, retryableCategories: ['timeout'] } };
    const { executionId } = await bench.running({ policy });
    await bench.loseLeases();
    expect(await bench.snapshot(executionId)).toMatchObject({ state: 'waiting' });
  });

  it('does not affect other leases', async () => {
    const [done, held] = [await bench.running(), await bench.running()];
    const lost = await bench.running(retrying(1));
    await bench.port.complete(done);
    await bench.port.renew([held], 10 * LEASE_MS);
    await bench.loseLeases();
    expect(await bench.snapshot(lost.executionId)).toMatchObject({ state: 'waiting' });
    expect(await bench.snapshot(held.executionId)).toMatchObject({ state: 'active' });
    expect(await bench.snapshot(done.executionId)).toMatchObject({
      state: 'completed',
      reclaimCount: 0,
    });
  });
});

describe('revokeLease', () => {
  it('returns the work to the queue without spending a retry', async () => {
    const kind = newKind();
    const taken = await bench.running({ kind });
    expect(await bench.engine.executions.revokeLease(taken.executionId, { ...SLOW, by: 'ann' })).toEqual({
      outcome: 'revoked',
    });
    expect(await bench.snapshot(taken.executionId)).toMatchObject({
      state: 'waiting',
      attemptIndex: 1,
      retryCount: 0,
      reclaimCount: 1,
      lease: null,
      attempts: [{ attemptIndex: 0, outcome: 'interrupted', failureMessage: 'slow' }],
    });
    expect(await bench.claimOne(kind)).toMatchObject({ attemptIndex: 1, reclaimed: true, retryCount: 0 });
  });

  it('may name the lease it means', async () => {
    const kind = newKind();
    const first = await bench.running({ kind });
    const request = { ...SLOW, leaseId: first.leaseId };
    expect(await bench.engine.executions.revokeLease(first.executionId, request)).toEqual({
      outcome: 'revoked',
    });
    const second = await bench.claimOne(kind);
    expect(await bench.engine.executions.revokeLease(first.executionId, request)).toEqual({
      outcome: 'stale_lease',
      leaseEpoch: second.leaseEpoch,
    });
    expect((await bench.snapshot(first.executionId)).lease).toMatchObject({ leaseId: second.leaseId });
  });

  it('is refused where there is no lease', async () => {
    const waiting = await bench.submit();
    expect(await bench.engine.executions.revokeLease(waiting, SLOW)).toEqual({
      outcome: 'no_active_lease',
      lifecyclePhase: 'runnable',
    });
    const done = await bench.running();
    await bench.port.complete(done);
    expect(await bench.engine.executions.revokeLease(done.executionId, SLOW)).toEqual({
      outcome: 'no_active_lease',
      lifecyclePhase: 'terminal',
    });
    expect(await bench.engine.executions.revokeLease(misplaced(waiting), SLOW)).toEqual({
      outcome: 'not_found',
    });
  });

  it('is capped: one more than allowed fails the execution', async () => {
    const kind = newKind();
    const { executionId } = await bench.running({
      kind,
      policy: { maxReclaims: 2, retry: { maxRetries: 5 } },
    });
    for (let taken = 0; taken < 2; taken += 1) {
      expect(await bench.engine.executions.revokeLease(executionId, SLOW)).toEqual({ outcome: 'revoked' });
      await bench.claimOne(kind);
    }
    expect(await bench.engine.executions.revokeLease(executionId, { ...SLOW, by: 'ann' })).toEqual({
      outcome: 'reclaims_exhausted',
    });
    expect(await bench.engine.executions.result(executionId)).toMatchObject({ outcome: 'failed', by: 'ann' });
    expect(await bench.snapshot(executionId)).toMatchObject({
      state: 'failed',
      retryCount: 0,
      reclaimCount: 2,
      attemptIndex: 2,
    });
    expect(await bench.engine.executions.revokeLease(executionId, SLOW)).toMatchObject({
      outcome: 'no_active_lease',
    });
  });

  it('that is not allowed at all fails the execution at once', async () => {
    const { executionId } = await bench.running({ policy: { maxReclaims: 0 } });
    expect(await bench.engine.executions.revokeLease(executionId, SLOW)).toEqual({
      outcome: 'reclaims_exhausted',
    });
  });

  it('counts lapsed leases as well', async () => {
    const kind = newKind();
    const policy = { maxReclaims: 1, retry: { maxRetries: 5 } };
    const { executionId } = await bench.running({ kind, policy });
    await bench.loseLeases();
    await bench.claimOne(kind);
    expect(await bench.engine.executions.revokeLease(executionId, SLOW)).toEqual({
      outcome: 'reclaims_exhausted',
    });
  });

  it('works on a lease that lapsed and was not noticed yet', async () => {
    const { executionId } = await bench.running();
    await bench.database.moveClock(LEASE_MS);
    expect(await bench.engine.executions.revokeLease(executionId, SLOW)).toEqual({ outcome: 'revoked' });
    expect(await bench.snapshot(executionId)).toMatchObject({ state: 'waiting', retryCount: 0 });
  });
});
