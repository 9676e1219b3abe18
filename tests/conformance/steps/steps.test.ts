/**
 * What a running execution writes besides its outcome: steps that are kept over attempts, sleeps by the database's
 * clock, progress, and steps recorded in a transaction of the caller's own.
 */
import { describe, expect, it } from 'vitest';
import { LIMITS } from '../../../src/index.ts';
import type { Claim, LeaseRef, NewStep } from '../../../src/protocol/index.ts';
import { startFaultProxy } from '../../../src/testing/fault-proxy.ts';
import { UNSTORABLE } from '../../engine/refused.ts';
import { LEASE_MS, misplaced, newKind, useBench } from '../open.ts';
import { workerPort } from '../../../src/connect/port.ts';

const bench = useBench();
const RETRYING = { policy: { retry: { maxRetries: 3 } } };
const NOON_MS = 12 * 3_600_000;

const record = (lease: LeaseRef, step: NewStep) => bench.port.recordStep(lease, step);

describe('recordStep', () => {
  it('stores the value of a step and returns it', async () => {
    const claim = await bench.running();
    const step = { kind: 'step', name: 'charge', key: '', value: { amount: 7 }, end: null, dueInMs: null };
    expect(await record(claim, { name: 'charge', value: { amount: 7 } })).toEqual({
      outcome: 'recorded',
      repeated: false,
      step,
    });
    expect(await bench.engine.executions.listSteps(claim.executionId)).toMatchObject([step]);
    expect(await bench.snapshot(claim.executionId)).toMatchObject({ stepCount: 1, state: 'active' });
  });

  for (const value of [undefined, null, false, 0, '', [], 'text', { deep: [{ er: 1 }] }]) {
    it(`stores the value ${JSON.stringify(value)}`, async () => {
      const claim = await bench.running();
      await record(claim, { name: 'step', value });
      expect(await bench.engine.executions.listSteps(claim.executionId)).toMatchObject([
        { value: value ?? null },
      ]);
    });
  }

  it('returns the first record again, whatever is sent later', async () => {
    const claim = await bench.running();
    const first = await record(claim, { name: 'step', value: 'first' });
    expect(await record(claim, { name: 'step', value: 'second' })).toEqual({ ...first, repeated: true });
    expect(await record(claim, { name: 'step', sleepMs: 5 })).toEqual({ ...first, repeated: true });
    expect(await bench.engine.executions.listSteps(claim.executionId)).toHaveLength(1);
  });

  it('distinguishes steps by name and key', async () => {
    const claim = await bench.running();
    const keys: [string, string][] = [
      ['a', ''],
      ['a', 'b'],
      ['a/b', ''],
      ['a', 'b/c'],
      ['a/b', 'c'],
      ['ü', '🙂'],
    ];
    const answers = await Promise.all(
      keys.map(([name, key]) => record(claim, { name, key, value: [name, key] })),
    );
    expect(answers.map((answer) => answer.outcome === 'recorded' && !answer.repeated)).not.toContain(false);
    const steps = await bench.engine.executions.listSteps(claim.executionId);
    expect(steps.map(({ name, key, value }) => ({ name, key, value }))).toEqual(
      expect.arrayContaining(keys.map(([name, key]) => ({ name, key, value: [name, key] }))),
    );
    expect(steps).toHaveLength(keys.length);
  });

  it('accepts many concurrently, of many executions', async () => {
    const kind = newKind();
    await bench.engine.executions.submit(Array.from({ length: 5 }, () => ({ kind })));
    const claims = await bench.claim({ kinds: [kind] });
    const answers = await Promise.all(
      Array.from({ length: 500 }, (_, index) =>
        record(claims[index % 5]!, { name: 'part', key: String(index), value: index }),
      ),
    );
    expect(answers.map((answer) => answer.outcome === 'recorded' && answer.step.value)).toEqual(
      Array.from({ length: 500 }, (_, index) => index),
    );
    for (const claim of claims)
      expect(await bench.engine.executions.listSteps(claim.executionId)).toHaveLength(100);
  });

  it('is kept over attempts, pauses and the outcome', async () => {
    const kind = newKind();
    const first = await bench.running({ kind, ...RETRYING });
    await record(first, { name: 'once', value: 1 });
    await bench.port.fail(first, { message: 'no', retryAfterMs: 0 });
    await bench.port.fireTimers();
    const second = await bench.claimOne(kind);
    expect(await record(second, { name: 'once', value: 2 })).toMatchObject({
      repeated: true,
      step: { value: 1 },
    });
    await bench.port.release(second);
    const third = await bench.claimOne(kind);
    await record(third, { name: 'twice', value: 3 });
    await bench.loseLeases();
    const fourth = await bench.claimOne(kind);
    expect(fourth).toMatchObject({ attemptIndex: 2, executionId: first.executionId });
    await bench.port.complete(fourth);
    const steps = await bench.engine.executions.listSteps(first.executionId);
    expect(steps.map(({ name, value }) => [name, value]).toSorted()).toEqual([
      ['once', 1],
      ['twice', 3],
    ]);
  });

  it('leaves an execution without steps, or one that does not exist, with an empty list', async () => {
    const id = await bench.submit();
    expect(await bench.engine.executions.listSteps(id)).toEqual([]);
    expect(await bench.engine.executions.listSteps(misplaced(id))).toEqual([]);
  });
});

describe('a sleep', () => {
  it('finishes by the clock of the database, and once started is not started over', async () => {
    const claim = await bench.running();
    const begun = await record(claim, { name: 'nap', sleepMs: NOON_MS });
    expect(begun).toMatchObject({ outcome: 'recorded', step: { kind: 'sleep', dueInMs: NOON_MS } });
    await bench.database.moveClock(LEASE_MS / 2);
    const again = await record(claim, { name: 'nap', sleepMs: 2 * NOON_MS });
    expect(again).toMatchObject({ outcome: 'recorded', repeated: true });
    expect(again.outcome === 'recorded' && again.step.dueInMs).toBeLessThanOrEqual(NOON_MS - LEASE_MS / 2);
    const value = (step: unknown) => (step as { value: number }).value;
    expect(value((again as { step: unknown }).step)).toBe(value((begun as { step: unknown }).step));
    await bench.database.moveClock(NOON_MS);
    expect(await bench.engine.executions.listSteps(claim.executionId)).toMatchObject([
      { kind: 'sleep', dueInMs: 0 },
    ]);
  });

  it('of zero is due at once', async () => {
    const claim = await bench.running();
    expect(await record(claim, { name: 'nap', sleepMs: 0 })).toMatchObject({ step: { dueInMs: 0 } });
  });
});

/** A lease that its worker has lost, and the outcome of recording a step under it. */
const LOST: Record<string, { lose: (claim: Claim, kind: string) => Promise<unknown>; answer: object }> = {
  released: {
    lose: (claim) => bench.port.release(claim),
    answer: { outcome: 'not_active', lifecyclePhase: 'runnable', terminalOutcome: 'none', leaseEpoch: 1 },
  },
  completed: {
    lose: (claim) => bench.port.complete(claim),
    answer: { outcome: 'not_active', lifecyclePhase: 'terminal', terminalOutcome: 'success', leaseEpoch: 1 },
  },
  cancelled: {
    lose: (claim) => bench.engine.cancel(claim.executionId, { reason: 'why' }),
    answer: {
      outcome: 'not_active',
      lifecyclePhase: 'terminal',
      terminalOutcome: 'cancelled',
      leaseEpoch: 2,
    },
  },
  revoked: {
    lose: (claim) => bench.engine.executions.revokeLease(claim.executionId, { reason: 'why' }),
    answer: { outcome: 'lease_revoked' },
  },
  lapsed: { lose: () => bench.database.moveClock(LEASE_MS), answer: { outcome: 'lease_expired' } },
  'lapsed and noticed': { lose: () => bench.loseLeases(), answer: { outcome: 'lease_expired' } },
  'granted to another worker': {
    lose: async (claim, kind) => {
      await bench.port.release(claim);
      await bench.claimOne(kind);
    },
    answer: { outcome: 'stale_lease', leaseEpoch: 2 },
  },
};

describe('without the lease', () => {
  it.each(Object.keys(LOST))('that was %s, neither step, sleep nor progress is written', async (how) => {
    const kind = newKind();
    const claim = await bench.running({ kind });
    await record(claim, { name: 'before', value: 1 });
    await LOST[how]!.lose(claim, kind);
    expect(await record(claim, { name: 'after', value: 1 })).toEqual(LOST[how]!.answer);
    expect(await record(claim, { name: 'before', value: 1 })).toEqual(LOST[how]!.answer);
    expect(await record(claim, { name: 'nap', sleepMs: 1 })).toEqual(LOST[how]!.answer);
    await bench.port.reportProgress(claim, { percent: 50 });
    expect(await bench.snapshot(claim.executionId)).toMatchObject({ stepCount: 1, progress: null });
  });

  it('of an execution that does not exist, the outcome is not_found', async () => {
    const claim = await bench.running();
    const elsewhere = { ...claim, executionId: misplaced(claim.executionId) };
    expect(await record(elsewhere, { name: 'step' })).toEqual({ outcome: 'not_found' });
  });

  it('a step sent together with one of the next lease is refused alone', async () => {
    const kind = newKind();
    const old = await bench.running({ kind });
    await bench.port.release(old);
    const held = await bench.claimOne(kind);
    const answers = await Promise.all([
      record(old, { name: 'by the old one', value: 1 }),
      record(held, { name: 'by the new one', value: 2 }),
      record(old, { name: 'again by the old one', value: 3 }),
    ]);
    expect(answers.map(({ outcome }) => outcome)).toEqual(['stale_lease', 'recorded', 'stale_lease']);
    const steps = await bench.engine.executions.listSteps(held.executionId);
    expect(steps.map(({ name }) => name)).toEqual(['by the new one']);
  });
});

describe('a response that was lost', () => {
  it('of a step, a sleep or progress is recovered when the engine tries again', async () => {
    const proxy = await startFaultProxy({ targetPort: Number(new URL(bench.database.url).port) });
    const engine = await bench.another({ databaseUrl: proxy.url(bench.database.url), listen: 'off' });
    try {
      const claim = await bench.running();
      const step = { name: 'step', value: 'kept' };
      let cut = proxy.cutAfter('ff_record_steps');
      const answer = await workerPort(engine).recordStep(claim, step);
      await cut;
      expect(answer).toMatchObject({ outcome: 'recorded', repeated: true, step: { value: 'kept' } });
      cut = proxy.cutAfter('ff_report_progress');
      await workerPort(engine).reportProgress(claim, { percent: 5 });
      await cut;
      expect(await bench.snapshot(claim.executionId)).toMatchObject({
        stepCount: 1,
        progress: { percent: 5 },
      });
    } finally {
      await engine.close();
      await proxy.close();
    }
  });
});

describe('reportProgress', () => {
  it('overwrites the last report', async () => {
    const claim = await bench.running();
    expect(await bench.snapshot(claim.executionId)).toMatchObject({ progress: null });
    await bench.port.reportProgress(claim, { percent: 12.5, message: 'reading' });
    expect(await bench.snapshot(claim.executionId)).toMatchObject({
      progress: { percent: 12.5, message: 'reading' },
    });
    await bench.port.reportProgress(claim, { percent: 100 });
    await bench.port.complete(claim);
    expect(await bench.snapshot(claim.executionId)).toMatchObject({
      progress: { percent: 100, message: null },
    });
  });

  it('cuts a long message between characters, and replaces what cannot be stored', async () => {
    const claim = await bench.running();
    await bench.port.reportProgress(claim, { message: `a${'ü'.repeat(LIMITS.progressBytes)}` });
    const cut = (await bench.snapshot(claim.executionId)).progress?.message ?? '';
    expect(Buffer.byteLength(cut)).toBe(LIMITS.progressBytes - 1);
    expect(cut).toMatch(/^aü+$/);
    for (const message of Object.values(UNSTORABLE) as string[]) {
      await bench.port.reportProgress(claim, { message });
      expect((await bench.snapshot(claim.executionId)).progress?.message).toContain('\uFFFD');
    }
  });

  it('concurrently for many executions keeps one report each', async () => {
    const kind = newKind();
    await bench.engine.executions.submit(Array.from({ length: 3 }, () => ({ kind })));
    const claims = await bench.claim({ kinds: [kind] });
    await Promise.all(
      Array.from({ length: 30 }, (_, index) =>
        bench.port.reportProgress(claims[index % 3]!, { percent: index }),
      ),
    );
    for (const claim of claims) {
      expect((await bench.snapshot(claim.executionId)).progress?.percent).toBeGreaterThanOrEqual(0);
    }
  });
});

describe('recordOrder', () => {
  it('stores from an index on, and replaces what was stored behind it', async () => {
    const claim = await bench.running();
    const store = (place: number, ends: string[]) => bench.port.recordOrder(claim, { place, ends });
    expect(await store(0, ['a', 'b', 'c'])).toEqual({ outcome: 'recorded' });
    expect(await store(0, ['a', 'b', 'c'])).toEqual({ outcome: 'recorded' });
    expect(await store(2, ['d', 'e'])).toEqual({ outcome: 'recorded' });
    expect(await bench.port.readOrder(claim.executionId)).toEqual(['a', 'b', 'd', 'e']);
  });

  it('refuses a worker that lost its lease, and stores nothing', async () => {
    const claim = await bench.running(RETRYING);
    await bench.port.fail(claim, { message: 'again' });
    expect(await bench.port.recordOrder(claim, { place: 0, ends: ['a'] })).toMatchObject({
      outcome: 'not_active',
    });
    expect(await bench.port.readOrder(claim.executionId)).toEqual([]);
  });

  it.each([
    ['order.place', { place: -1, ends: [] }],
    ['order.ends', { place: 0, ends: 'a' }],
    ['order.ends[0]', { place: 0, ends: [''] }],
    ['order.more', { place: 0, ends: [], more: 1 }],
  ])('refuses an invalid %s', async (field, order) => {
    const claim = await bench.running();
    const refused = bench.port.recordOrder(claim, order as never);
    await expect(refused).rejects.toMatchObject({ code: 'invalid_input', field });
  });

  it('is forgotten by a replay from the start, and by no other', async () => {
    const claim = await bench.running();
    await bench.port.recordOrder(claim, { place: 0, ends: ['a'] });
    await bench.port.complete(claim);
    await bench.engine.executions.replay(claim.executionId, { reason: 'again' });
    expect(await bench.port.readOrder(claim.executionId)).toEqual(['a']);
    await bench.engine.cancel(claim.executionId, { reason: 'enough' });
    await bench.engine.executions.replay(claim.executionId, { reason: 'anew', from: 'start' });
    expect(await bench.port.readOrder(claim.executionId)).toEqual([]);
  });
});
