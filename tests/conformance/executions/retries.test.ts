/**
 * What follows a failure: another attempt after a delay, or the outcome. The delay passes by moving the clock.
 */
import { describe, expect, it } from 'vitest';
import type { Backoff, ExecutionPolicy } from '../../../src/index.ts';
import type { Claim, Failure } from '../../../src/protocol/index.ts';
import { newKind, useBench } from '../open.ts';
import { workerPort } from '../../../src/connect/port.ts';

const bench = useBench();
const OUCH = { message: 'ouch' };

function retrying(maxRetries: number, backoff?: Backoff): ExecutionPolicy {
  return { retry: backoff === undefined ? { maxRetries } : { maxRetries, backoff } };
}

/** Moves the clock until a retry is due, and claims it. */
async function nextAttempt(claim: Claim, delayMs: number): Promise<Claim> {
  await bench.database.moveClock(delayMs);
  await bench.port.fireTimers();
  return bench.claimOne(claim.kind);
}

describe('a failure with retries left', () => {
  it('is retried as a new attempt after the delay', async () => {
    const claim = await bench.running({ policy: retrying(2, { type: 'fixed', delay: 60_000 }) });
    expect(await bench.port.fail(claim, { message: 'ouch', category: 'timeout' })).toEqual({
      outcome: 'retry_scheduled',
      repeated: false,
      retryInMs: 60_000,
      maxRetries: 2,
    });
    const waiting = await bench.snapshot(claim.executionId);
    expect(waiting).toMatchObject({
      state: 'delayed',
      stateVector: {
        lifecyclePhase: 'runnable',
        ownershipState: 'unowned',
        eligibilityState: 'not_eligible_until_time',
        blockingReason: 'waiting_for_retry_backoff',
        attemptState: 'pending_retry_attempt',
      },
      attemptIndex: 1,
      leaseEpoch: 1,
      retryCount: 1,
      reclaimCount: 0,
      lease: null,
      endedAtMs: null,
    });
    expect(waiting.attempts).toMatchObject([
      { attemptIndex: 0, outcome: 'failed', failureMessage: 'ouch', failureCategory: 'timeout' },
    ]);
    expect(waiting.eligibleAtMs! - waiting.changedAtMs).toBeLessThanOrEqual(60_000);
    expect(await bench.engine.executions.result(claim.executionId)).toEqual({
      outcome: 'pending',
      state: 'delayed',
    });
    await bench.port.fireTimers();
    expect(await bench.claim({ kinds: [claim.kind] })).toEqual([]);
    expect(await nextAttempt(claim, 60_000)).toMatchObject({
      executionId: claim.executionId,
      attemptIndex: 1,
      leaseEpoch: 2,
      retryCount: 1,
      resumed: false,
      reclaimed: false,
    });
  });

  it('reads as waiting from the moment it is due', async () => {
    const claim = await bench.running({ policy: retrying(1, { type: 'fixed', delay: 60_000 }) });
    await bench.port.fail(claim, OUCH);
    await bench.database.moveClock(60_000);
    expect(await bench.snapshot(claim.executionId)).toMatchObject({ state: 'waiting' });
  });

  it('succeeds in the end when a later attempt completes', async () => {
    const claim = await bench.running({ policy: retrying(1) });
    await bench.port.fail(claim, OUCH);
    await bench.port.complete(await nextAttempt(claim, 1_000), 'at last');
    expect(await bench.engine.executions.result(claim.executionId)).toEqual({
      outcome: 'success',
      result: 'at last',
    });
    const { attempts } = await bench.snapshot(claim.executionId);
    expect(attempts).toMatchObject([
      { attemptIndex: 0, outcome: 'failed' },
      { attemptIndex: 1, outcome: 'success' },
    ]);
  });

  it('returns the remaining delay when it is reported again', async () => {
    const claim = await bench.running({ policy: retrying(1, { type: 'fixed', delay: 60_000 }) });
    await bench.port.fail(claim, OUCH);
    await bench.database.moveClock(20_000);
    const again = await bench.port.fail(claim, { message: 'other', retryAfterMs: 5 });
    expect(again).toMatchObject({ outcome: 'retry_scheduled', repeated: true });
    expect(again).toHaveProperty(
      'retryInMs',
      expect.toSatisfy((ms) => ms > 0 && ms <= 40_000),
    );
  });
});

describe('the execution fails', () => {
  it('when the retries are used up, with the last failure', async () => {
    const first = await bench.running({ policy: retrying(2, { type: 'fixed', delay: 10 }) });
    await bench.port.fail(first, { message: 'one' });
    const second = await nextAttempt(first, 10);
    await bench.port.fail(second, { message: 'two' });
    const third = await nextAttempt(first, 10);
    expect(third).toMatchObject({ attemptIndex: 2, retryCount: 2, leaseEpoch: 3 });
    expect(await bench.port.fail(third, { message: 'three' })).toMatchObject({
      outcome: 'failed',
      repeated: false,
    });
    expect(await bench.engine.executions.result(first.executionId)).toMatchObject({
      outcome: 'failed',
      message: 'three',
    });
    const { attempts, retryCount } = await bench.snapshot(first.executionId);
    expect(attempts.map(({ failureMessage }) => failureMessage)).toEqual(['one', 'two', 'three']);
    expect(retryCount).toBe(2);
  });

  const ENDS: Record<string, { policy?: ExecutionPolicy; failure?: Partial<Failure> }> = {
    'without a policy': {},
    'with a policy without retries': { policy: { maxReclaims: 3 } },
    'with zero retries': { policy: retrying(0) },
    'when the failure asks for no retry': { policy: retrying(9), failure: { retry: 'never' } },
    'when the failure asks for no retry and for a delay': {
      policy: retrying(9),
      failure: { retry: 'never', retryAfterMs: 5 },
    },
    'when the category is not retryable': {
      policy: { retry: { maxRetries: 9, retryableCategories: ['timeout', 'network'] } },
      failure: { category: 'permanent' },
    },
    'when no category is given and transient is not retryable': {
      policy: { retry: { maxRetries: 9, retryableCategories: ['timeout'] } },
    },
  };
  for (const [name, { policy, failure }] of Object.entries(ENDS)) {
    it(`at once ${name}`, async () => {
      const claim = await bench.running(policy === undefined ? {} : { policy });
      expect(await bench.port.fail(claim, { ...OUCH, ...failure })).toMatchObject({
        outcome: 'failed',
        repeated: false,
      });
      expect(await bench.engine.executions.result(claim.executionId)).toMatchObject({ outcome: 'failed' });
    });
  }
});

describe('the delay', () => {
  const BACKOFFS: Record<string, { backoff?: Backoff; delays: number[] }> = {
    'doubles from one second by default': { delays: [1_000, 2_000, 4_000, 8_000] },
    'is the same each time when it is fixed': {
      backoff: { type: 'fixed', delay: 77 },
      delays: [77, 77, 77],
    },
    'may be zero': { backoff: { type: 'fixed', delay: 0 }, delays: [0, 0] },
    'grows by the multiplier up to the maximum': {
      backoff: { type: 'exponential', initialDelay: 100, maxDelay: 1_000, multiplier: 3 },
      delays: [100, 300, 900, 1_000, 1_000],
    },
    'may grow by a fraction': {
      backoff: { type: 'exponential', initialDelay: 100, multiplier: 1.5 },
      delays: [100, 150, 225],
    },
  };
  for (const [name, { backoff, delays }] of Object.entries(BACKOFFS)) {
    it(name, async () => {
      let claim = await bench.running({ policy: retrying(delays.length, backoff) });
      for (const retryInMs of delays) {
        expect(await bench.port.fail(claim, OUCH)).toMatchObject({
          outcome: 'retry_scheduled',
          repeated: false,
          retryInMs,
        });
        claim = await nextAttempt(claim, retryInMs);
      }
    });
  }

  it('is spread over its upper half with jitter', async () => {
    const backoff: Backoff = { type: 'exponential', initialDelay: 1_000, jitter: true };
    const kind = newKind();
    await bench.engine.executions.submit(
      Array.from({ length: 30 }, () => ({ kind, policy: retrying(1, backoff) })),
    );
    const claims = await bench.claim({ kinds: [kind] });
    const answers = await Promise.all(claims.map((claim) => bench.port.fail(claim, OUCH)));
    const delays = answers.map((answer) => (answer.outcome === 'retry_scheduled' ? answer.retryInMs : -1));
    expect(Math.min(...delays)).toBeGreaterThanOrEqual(500);
    expect(Math.max(...delays)).toBeLessThanOrEqual(1_000);
    expect(new Set(delays).size).toBeGreaterThan(5);
  });

  it('is the one the failure asks for, longer or shorter', async () => {
    const claim = await bench.running({ policy: retrying(2) });
    expect(await bench.port.fail(claim, { ...OUCH, retryAfterMs: 3_600_000 })).toMatchObject({
      retryInMs: 3_600_000,
    });
    const next = await nextAttempt(claim, 3_600_000);
    expect(await bench.port.fail(next, { ...OUCH, retryAfterMs: 0 })).toMatchObject({ retryInMs: 0 });
    expect(await nextAttempt(claim, 0)).toMatchObject({ attemptIndex: 2 });
  });
});

describe('a retryable category', () => {
  it('is retried', async () => {
    const policy = { retry: { maxRetries: 1, retryableCategories: ['timeout', 'network'] } };
    const claim = await bench.running({ policy });
    expect(await bench.port.fail(claim, { ...OUCH, category: 'network' })).toMatchObject({
      outcome: 'retry_scheduled',
    });
  });

  it('is any when the list is empty', async () => {
    const claim = await bench.running({ policy: { retry: { maxRetries: 1, retryableCategories: [] } } });
    expect(await bench.port.fail(claim, { ...OUCH, category: 'anything' })).toMatchObject({
      outcome: 'retry_scheduled',
    });
  });
});

describe('fireTimers', () => {
  it('fires the timers that are due, once, and returns how many', async () => {
    await bench.database.moveClock(10_000_000);
    while ((await bench.port.fireTimers()) > 0);
    const kind = newKind();
    await bench.engine.executions.submit([
      { kind, delay: 1_000 },
      { kind, delay: 1_000 },
      { kind, delay: 5_000 },
    ]);
    expect(await bench.port.fireTimers()).toBe(0);
    await bench.database.moveClock(1_000);
    expect(await bench.port.fireTimers()).toBe(2);
    expect(await bench.port.fireTimers()).toBe(0);
    expect(await bench.claim({ kinds: [kind] })).toHaveLength(2);
  });

  it('by concurrent rivals makes each execution claimable once', async () => {
    await bench.database.moveClock(10_000_000);
    while ((await bench.port.fireTimers()) > 0);
    const kind = newKind();
    await bench.engine.executions.submit(Array.from({ length: 40 }, () => ({ kind, delay: 1_000 })));
    await bench.database.moveClock(1_000);
    const rivals = [bench.engine, await bench.another(), bench.engine];
    const fired = await Promise.all(rivals.map((engine) => workerPort(engine).fireTimers()));
    const rest = await bench.port.fireTimers();
    expect([...fired, rest].reduce((sum, count) => sum + count)).toBe(40);
    expect(await bench.claim({ kinds: [kind] })).toHaveLength(40);
  });

  it('skips executions cancelled meanwhile', async () => {
    const kind = newKind();
    const id = await bench.submit({ kind, delay: 1_000 });
    await bench.engine.cancel(id, { reason: 'never mind' });
    await bench.database.moveClock(1_000);
    await bench.port.fireTimers();
    expect(await bench.claim({ kinds: [kind] })).toEqual([]);
    expect(await bench.snapshot(id)).toMatchObject({ state: 'cancelled' });
  });

  it('is also done by the reconcilers when no worker does it', async () => {
    const kind = newKind();
    const id = await bench.submit({ kind, delay: 1_000 });
    await bench.database.moveClock(1_000);
    await bench.reconcile();
    expect(await bench.claimOne(kind)).toMatchObject({ executionId: id });
  });
});
