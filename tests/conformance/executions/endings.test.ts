/**
 * What the owner of a lease does with it, and what it gets back when the lease is no longer its own. Retries are in
 * retries.test.ts, lost leases in lost-leases.test.ts.
 */
import { describe, expect, it } from 'vitest';
import type { Claim, LeaseRef } from '../../../src/protocol/index.ts';
import { LEASE_MS, misplaced, newKind, useBench } from '../open.ts';

const bench = useBench();
const OUCH = { message: 'ouch' };

const VERBS = {
  complete: (lease: LeaseRef) => bench.port.complete(lease, 'result'),
  fail: (lease: LeaseRef) => bench.port.fail(lease, OUCH),
  release: (lease: LeaseRef) => bench.port.release(lease),
  renew: async (lease: LeaseRef) => (await bench.port.renew([lease], LEASE_MS))[0],
};
const ENDINGS = ['complete', 'fail', 'release'] as const;

/** A claim whose execution went back to the queue and is now under another lease. */
async function superseded(): Promise<{ old: Claim; current: Claim }> {
  const kind = newKind();
  const old = await bench.running({ kind });
  await bench.port.release(old);
  return { old, current: await bench.claimOne(kind) };
}

describe('complete', () => {
  it('finishes the execution with its result', async () => {
    const claim = await bench.running();
    expect(await bench.port.complete(claim, { answer: 42 })).toEqual({
      outcome: 'completed',
      repeated: false,
    });
    expect(await bench.engine.executions.result(claim.executionId)).toEqual({
      outcome: 'success',
      result: { answer: 42 },
    });
    const { stateVector, ...snapshot } = await bench.snapshot(claim.executionId);
    expect(stateVector).toEqual({
      lifecyclePhase: 'terminal',
      ownershipState: 'unowned',
      eligibilityState: 'not_applicable',
      blockingReason: 'none',
      terminalOutcome: 'success',
      attemptState: 'attempt_terminal',
    });
    expect(snapshot).toMatchObject({ state: 'completed', lease: null, attemptIndex: 0, leaseEpoch: 1 });
    expect(snapshot.attempts).toMatchObject([{ attemptIndex: 0, outcome: 'success', failureMessage: null }]);
    expect(snapshot.endedAtMs).toBe(snapshot.attempts[0]!.endedAtMs);
  });

  for (const result of [undefined, null, false, 0, '', [], 'text', { deep: [{ er: 1 }] }]) {
    it(`stores the result ${JSON.stringify(result)}`, async () => {
      const claim = await bench.running();
      await bench.port.complete(claim, result);
      const stored = await bench.engine.executions.result(claim.executionId);
      expect(stored).toEqual({ outcome: 'success', result: result ?? null });
    });
  }

  it('keeps the first result when it is sent twice', async () => {
    const claim = await bench.running();
    await bench.port.complete(claim, 'first');
    expect(await bench.port.complete(claim, 'second')).toEqual({ outcome: 'completed', repeated: true });
    expect(await bench.engine.executions.result(claim.executionId)).toEqual({
      outcome: 'success',
      result: 'first',
    });
  });
});

describe('fail without a policy', () => {
  it('finishes the execution with its message and category', async () => {
    const claim = await bench.running();
    const failure = { message: 'no such file', category: 'permanent' };
    expect(await bench.port.fail(claim, failure)).toEqual({
      outcome: 'failed',
      repeated: false,
      maxRetries: 0,
    });
    expect(await bench.engine.executions.result(claim.executionId)).toEqual({
      outcome: 'failed',
      message: 'no such file',
      category: 'permanent',
      by: 'worker-1',
    });
    expect(await bench.snapshot(claim.executionId)).toMatchObject({
      state: 'failed',
      lease: null,
      stateVector: {
        lifecyclePhase: 'terminal',
        terminalOutcome: 'failed',
        attemptState: 'attempt_terminal',
      },
      attempts: [{ outcome: 'failed', failureMessage: 'no such file', failureCategory: 'permanent' }],
    });
  });

  it('has the category transient by default', async () => {
    const claim = await bench.running();
    await bench.port.fail(claim, OUCH);
    expect(await bench.engine.executions.result(claim.executionId)).toMatchObject({ category: 'transient' });
  });

  it('has the category permanent by default if it rules out a retry', async () => {
    const claim = await bench.running();
    await bench.port.fail(claim, { ...OUCH, retry: 'never' });
    expect(await bench.engine.executions.result(claim.executionId)).toMatchObject({ category: 'permanent' });
  });

  it('keeps the first message when it is sent twice', async () => {
    const claim = await bench.running();
    await bench.port.fail(claim, OUCH);
    expect(await bench.port.fail(claim, { message: 'again' })).toMatchObject({
      outcome: 'failed',
      repeated: true,
    });
    expect(await bench.engine.executions.result(claim.executionId)).toMatchObject({ message: 'ouch' });
  });
});

describe('release', () => {
  it('returns the work unharmed: the next claim continues the same attempt under a new lease', async () => {
    const kind = newKind();
    const claim = await bench.running({ kind, payload: 'p' });
    const before = await bench.snapshot(claim.executionId);
    expect(await bench.port.release(claim)).toEqual({ outcome: 'released', repeated: false });
    expect(await bench.snapshot(claim.executionId)).toMatchObject({
      state: 'waiting',
      lease: null,
      retryCount: 0,
      reclaimCount: 0,
      stateVector: {
        lifecyclePhase: 'runnable',
        eligibilityState: 'eligible_now',
        attemptState: 'attempt_interrupted',
      },
      attempts: [{ attemptIndex: 0, outcome: null, endedAtMs: null }],
    });
    const next = await bench.claimOne(kind);
    expect(next).toMatchObject({
      executionId: claim.executionId,
      attemptIndex: 0,
      leaseEpoch: claim.leaseEpoch + 1,
      resumed: true,
      reclaimed: false,
      retryCount: 0,
      payload: 'p',
    });
    expect(next.leaseId).not.toBe(claim.leaseId);
    await bench.port.complete(next);
    const after = await bench.snapshot(claim.executionId);
    expect(after.attempts).toMatchObject([{ attemptIndex: 0, outcome: 'success' }]);
    expect(after.attempts[0]!.startedAtMs).toBe(before.startedAtMs);
  });

  it('may happen any number of times at no cost', async () => {
    const kind = newKind();
    await bench.submit({ kind });
    for (let leaseEpoch = 1; leaseEpoch <= 4; leaseEpoch += 1) {
      const claim = await bench.claimOne(kind);
      expect(claim).toMatchObject({ attemptIndex: 0, leaseEpoch, resumed: leaseEpoch > 1, retryCount: 0 });
      await bench.port.release(claim);
    }
  });

  it('sent twice returns the first outcome again', async () => {
    const claim = await bench.running();
    await bench.port.release(claim);
    expect(await bench.port.release(claim)).toEqual({ outcome: 'released', repeated: true });
    expect((await bench.snapshot(claim.executionId)).stateVector.lifecyclePhase).toBe('runnable');
  });
});

describe('repeated after other things happened', () => {
  it('a completion returns its first outcome long after the lease would have lapsed', async () => {
    const claim = await bench.running();
    await bench.port.complete(claim);
    await bench.loseLeases();
    expect(await bench.port.complete(claim)).toEqual({ outcome: 'completed', repeated: true });
  });

  it('a failure returns its first outcome while the next attempt runs, and when that has finished', async () => {
    const kind = newKind();
    const policy = { retry: { maxRetries: 1, backoff: { type: 'fixed', delay: 0 } } } as const;
    const claim = await bench.running({ kind, policy });
    await bench.port.fail(claim, OUCH);
    await bench.port.fireTimers();
    const next = await bench.claimOne(kind);
    const answer = { outcome: 'retry_scheduled', repeated: true };
    expect(await bench.port.fail(claim, OUCH)).toMatchObject(answer);
    await bench.port.complete(next);
    expect(await bench.port.fail(claim, OUCH)).toMatchObject(answer);
    expect(await bench.engine.executions.result(claim.executionId)).toMatchObject({ outcome: 'success' });
  });

  it('a release returns its first outcome when the work is under another lease', async () => {
    const { old } = await superseded();
    expect(await bench.port.release(old)).toEqual({ outcome: 'released', repeated: true });
  });

  it('a release returns its first outcome when another lease has finished the work', async () => {
    const { old, current } = await superseded();
    await bench.port.complete(current);
    expect(await bench.port.release(old)).toEqual({ outcome: 'released', repeated: true });
  });
});

describe('an outcome that contradicts an earlier one of the same lease is a conflict', () => {
  for (const first of ['complete', 'fail'] as const) {
    for (const second of ENDINGS.filter((verb) => verb !== first)) {
      it(`${second} after ${first}`, async () => {
        const claim = await bench.running();
        await VERBS[first](claim);
        const before = await bench.engine.executions.result(claim.executionId);
        expect(await VERBS[second](claim)).toEqual({
          outcome: 'conflict',
          lifecyclePhase: 'terminal',
          terminalOutcome: first === 'complete' ? 'success' : 'failed',
        });
        expect(await bench.engine.executions.result(claim.executionId)).toEqual(before);
      });
    }
  }

  it('complete after a failure that is retried', async () => {
    const claim = await bench.running({ policy: { retry: { maxRetries: 1 } } });
    await bench.port.fail(claim, OUCH);
    expect(await bench.port.complete(claim)).toEqual({
      outcome: 'conflict',
      lifecyclePhase: 'runnable',
      terminalOutcome: 'none',
    });
  });
});

/** The calls that free the worker and leave the attempt open. */
const GIVE_UP = {
  release: (lease: LeaseRef) => bench.port.release(lease),
  pause: (lease: LeaseRef) => bench.port.pause(lease, { wakeInMs: 3_600_000 }),
  suspend: (lease: LeaseRef) =>
    bench.port.suspend(lease, {
      waits: [{ name: 'told', condition: { kind: 'count', n: 1, by: 'signals', waitpoints: ['told'] } }],
    }),
};
type GivingUp = keyof typeof GIVE_UP;

describe.each(Object.keys(GIVE_UP) as GivingUp[])('after %s', (first) => {
  const phase = first === 'suspend' ? 'suspended' : 'runnable';

  it('the same call again returns its first outcome', async () => {
    const claim = await bench.running();
    const answer = await GIVE_UP[first](claim);
    expect(answer).toMatchObject({ repeated: false });
    expect(await GIVE_UP[first](claim)).toEqual({ ...answer, repeated: true });
  });

  it.each((Object.keys(GIVE_UP) as GivingUp[]).filter((verb) => verb !== first))(
    '%s by the same lease is a conflict, and changes nothing',
    async (second) => {
      const claim = await bench.running();
      await GIVE_UP[first](claim);
      const before = await bench.snapshot(claim.executionId);
      const conflict = { outcome: 'conflict', lifecyclePhase: phase, terminalOutcome: 'none' };
      expect(await GIVE_UP[second](claim)).toEqual(conflict);
      expect(await GIVE_UP[second](claim)).toEqual(conflict);
      expect(await bench.snapshot(claim.executionId)).toEqual(before);
    },
  );
});

it('every lease of an attempt gets the outcome of how it was given up itself, whatever the others did', async () => {
  const kind = newKind();
  const turns: GivingUp[] = ['release', 'release', 'pause', 'release', 'pause', 'pause', 'release'];
  const claims: Claim[] = [await bench.running({ kind })];
  for (const [place, verb] of turns.entries()) {
    if (place > 0) claims.push(await bench.claimOne(kind));
    if (verb === 'pause') await bench.port.pause(claims[place]!, { wakeInMs: 0 });
    else await GIVE_UP[verb](claims[place]!);
    await bench.port.fireTimers();
  }
  for (const [place, verb] of turns.entries()) {
    expect(await GIVE_UP[verb](claims[place]!)).toMatchObject({ repeated: true });
    const other = verb === 'pause' ? 'release' : 'pause';
    expect(await GIVE_UP[other](claims[place]!)).toMatchObject({ outcome: 'conflict' });
    expect(await GIVE_UP.suspend(claims[place]!)).toMatchObject({ outcome: 'conflict' });
  }
});

it('of very many leases given up in turns, only the newest are remembered', async () => {
  const found = await bench.database.query<{ by: string | null }>(
    `WITH RECURSIVE turn AS (
       SELECT 1 AS epoch, ff_also_given_up(NULL, 4 * 1 + 1) AS kept
       UNION ALL SELECT epoch + 1, ff_also_given_up(kept, 4 * (epoch + 1) + (epoch + 1) % 2) FROM turn WHERE epoch < 1000)
     SELECT ff_given_up_by((SELECT kept FROM turn WHERE epoch = 1000), epoch) AS by FROM unnest(ARRAY[1, 900, 999, 1000, 1001]) epoch`,
  );
  expect(found.rows.map(({ by }) => by)).toEqual([null, null, 'pause', 'release', null]);
});

for (const verb of ['complete', 'fail', 'release', 'renew'] as const) {
  describe(`${verb} is refused`, () => {
    it('with not_found when the execution does not exist, or is in another partition', async () => {
      const claim = await bench.running();
      const nowhere = { ...claim, executionId: misplaced(claim.executionId) };
      expect(await VERBS[verb](nowhere)).toEqual({ outcome: 'not_found' });
      expect((await bench.snapshot(claim.executionId)).state).toBe('active');
    });

    it('with not_active when it was never claimed', async () => {
      const executionId = await bench.submit();
      expect(await VERBS[verb]({ executionId, attemptIndex: 0, leaseEpoch: 0 })).toEqual({
        outcome: 'not_active',
        lifecyclePhase: 'runnable',
        terminalOutcome: 'none',
        leaseEpoch: 0,
      });
    });

    it('with not_active, the outcome and the epoch when it was cancelled', async () => {
      const claim = await bench.running();
      await bench.engine.cancel(claim.executionId, { reason: 'enough' });
      expect(await VERBS[verb](claim)).toEqual({
        outcome: 'not_active',
        lifecyclePhase: 'terminal',
        terminalOutcome: 'cancelled',
        leaseEpoch: claim.leaseEpoch + 1,
      });
    });

    it('with stale_lease and the current epoch when it is under another lease', async () => {
      const { current } = await superseded();
      const stale = { ...current, leaseEpoch: current.leaseEpoch + 5 };
      expect(await VERBS[verb](stale)).toEqual({ outcome: 'stale_lease', leaseEpoch: current.leaseEpoch });
      expect(await VERBS[verb]({ ...current, attemptIndex: 3 })).toMatchObject({ outcome: 'stale_lease' });
      expect((await bench.snapshot(current.executionId)).lease).toMatchObject({ leaseId: current.leaseId });
    });

    it('with lease_expired from the moment the lease lapses, before and after that is noticed', async () => {
      const claim = await bench.running();
      await bench.database.moveClock(LEASE_MS);
      expect(await VERBS[verb](claim)).toEqual({ outcome: 'lease_expired' });
      expect((await bench.snapshot(claim.executionId)).state).toBe('active');
      await bench.reconcile();
      expect((await bench.snapshot(claim.executionId)).state).toBe('expired');
      expect(await VERBS[verb](claim)).toEqual({ outcome: 'lease_expired' });
    });

    it('with lease_revoked when the lease was revoked, also when the work is under another one', async () => {
      const kind = newKind();
      const claim = await bench.running({ kind });
      await bench.engine.executions.revokeLease(claim.executionId, { reason: 'slow' });
      expect(await VERBS[verb](claim)).toEqual({ outcome: 'lease_revoked' });
      const next = await bench.claimOne(kind);
      expect(await VERBS[verb](claim)).toEqual({ outcome: 'lease_revoked' });
      expect((await bench.snapshot(claim.executionId)).lease).toMatchObject({ leaseId: next.leaseId });
    });
  });
}

describe('after a release', () => {
  for (const verb of ['complete', 'fail', 'renew'] as const) {
    it(`${verb} by the old lease is refused, whoever owns the work`, async () => {
      const kind = newKind();
      const old = await bench.running({ kind });
      await bench.port.release(old);
      expect(await VERBS[verb](old)).toMatchObject({ outcome: 'not_active', lifecyclePhase: 'runnable' });
      const current = await bench.claimOne(kind);
      expect(await VERBS[verb](old)).toEqual({ outcome: 'stale_lease', leaseEpoch: current.leaseEpoch });
    });
  }

  it('renewing a completed lease returns that the execution has finished', async () => {
    const claim = await bench.running();
    await bench.port.complete(claim);
    expect(await VERBS.renew(claim)).toMatchObject({ outcome: 'not_active', terminalOutcome: 'success' });
  });
});
