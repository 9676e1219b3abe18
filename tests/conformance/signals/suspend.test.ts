/**
 * Freeing the worker until a signal arrives: what a suspension keeps, what ends it, and what happens on timeout. Time
 * passes by moving the clock, and timers fire when a test fires them.
 */
import { describe, expect, it } from 'vitest';
import type { Claim, SuspendRequest } from '../../../src/protocol/index.ts';
import type { SignalCondition, TimeoutBehaviour } from '../../../src/index.ts';
import { newKind, useBench } from '../open.ts';

const bench = useBench();
const HOUR_MS = 3_600_000;

const said = (waitpoint: string, n = 1): SignalCondition => ({
  kind: 'count',
  n,
  by: 'signals',
  waitpoints: [waitpoint],
});

function forApproval(more: Partial<SuspendRequest['waits'][number]> = {}): SuspendRequest {
  return { waits: [{ name: 'approval', condition: said('approval'), reason: 'approval', ...more }] };
}

async function suspended(request: SuspendRequest = forApproval(), kind = newKind()): Promise<Claim> {
  const claim = await bench.running({ kind });
  expect(await bench.port.suspend(claim, request)).toEqual({ outcome: 'suspended', repeated: false });
  return claim;
}

async function fire(ms = 0): Promise<void> {
  if (ms > 0) await bench.database.moveClock(ms);
  while ((await bench.port.fireTimers()) > 0);
}

const approve = (claim: Claim, waitpoint = 'approval', by = 'ann') =>
  bench.engine.waitpoints.approve(claim.executionId, waitpoint, { by });

describe('a suspended execution', () => {
  it('has no lease, keeps its attempt, and is claimed again in the same one when it is signalled', async () => {
    const kind = newKind();
    const claim = await suspended(forApproval(), kind);
    expect(await bench.snapshot(claim.executionId)).toMatchObject({
      state: 'suspended',
      lease: null,
      attemptIndex: 0,
      stateVector: {
        lifecyclePhase: 'suspended',
        blockingReason: 'waiting_for_approval',
        attemptState: 'attempt_interrupted',
      },
    });
    expect(await bench.claim({ kinds: [kind] })).toEqual([]);
    expect(await approve(claim)).toMatchObject({ outcome: 'accepted', effect: 'resumed' });
    const resumed = await bench.claimOne(kind);
    expect(resumed).toMatchObject({
      executionId: claim.executionId,
      attemptIndex: 0,
      resumed: true,
      retryCount: 0,
    });
    expect(resumed.leaseEpoch).toBeGreaterThan(claim.leaseEpoch);
    const [step] = await bench.engine.executions.listSteps(claim.executionId);
    expect(step).toMatchObject({
      kind: 'wait',
      name: 'approval',
      end: {
        outcome: 'satisfied',
        signals: [{ name: 'approved', waitpoint: 'approval', source: { type: 'operator', identity: 'ann' } }],
      },
    });
    expect(await bench.port.complete(resumed)).toMatchObject({ outcome: 'completed' });
  });

  it('returns the same outcome when its worker asks again, even after it was resumed', async () => {
    const claim = await suspended();
    expect(await bench.port.suspend(claim, forApproval())).toEqual({
      outcome: 'suspended',
      repeated: true,
    });
    await approve(claim);
    expect(await bench.port.suspend(claim, forApproval())).toEqual({
      outcome: 'suspended',
      repeated: true,
    });
  });

  it('is refused to a worker that lost its lease, and nothing is written', async () => {
    const claim = await bench.running();
    await bench.engine.executions.revokeLease(claim.executionId, { reason: 'why' });
    expect(await bench.port.suspend(claim, forApproval())).toEqual({ outcome: 'lease_revoked' });
    expect(await bench.engine.executions.listSteps(claim.executionId)).toEqual([]);
    expect((await bench.engine.waitpoints.list({ executionId: claim.executionId })).waitpoints).toEqual([]);
  });

  it('keeps its lease when the condition is already met', async () => {
    const claim = await bench.running();
    await bench.port.createWaitpoint(claim, { name: 'approval' });
    expect(await approve(claim)).toMatchObject({ outcome: 'accepted', effect: 'buffered' });
    const outcome = await bench.port.suspend(claim, forApproval());
    expect(outcome).toMatchObject({
      outcome: 'already_satisfied',
      ended: [{ name: 'approval', key: '', end: { outcome: 'satisfied', signals: [{ name: 'approved' }] } }],
    });
    expect(await bench.snapshot(claim.executionId)).toMatchObject({ state: 'active' });
    expect(await approve(claim)).toEqual({ outcome: 'closed' });
  });

  it('opens its waits and accepts signals without suspending in mode look', async () => {
    const claim = await bench.running();
    const look = { ...forApproval(), mode: 'poll' as const };
    expect(await bench.port.suspend(claim, look)).toEqual({ outcome: 'open' });
    expect(await approve(claim)).toMatchObject({ effect: 'buffered' });
    expect(await bench.port.suspend(claim, look)).toMatchObject({ outcome: 'already_satisfied' });
    expect(await bench.snapshot(claim.executionId)).toMatchObject({ state: 'active' });
  });

  it('has the resume delay of its wait before it is claimable', async () => {
    const kind = newKind();
    const claim = await suspended(forApproval({ resumeDelayMs: HOUR_MS }), kind);
    await approve(claim);
    expect(await bench.snapshot(claim.executionId)).toMatchObject({
      state: 'delayed',
      stateVector: { blockingReason: 'waiting_for_resume_delay' },
    });
    await fire(HOUR_MS);
    await bench.claimOne(kind);
  });

  it('can be cancelled, and accepts no signal after that', async () => {
    const claim = await suspended();
    expect(await bench.engine.cancel(claim.executionId, { reason: 'why' })).toMatchObject({
      outcome: 'cancelled',
    });
    expect(await approve(claim)).toEqual({ outcome: 'closed' });
    expect((await bench.engine.waitpoints.list({ executionId: claim.executionId })).waitpoints).toEqual([]);
  });

  it('expires at its deadline', async () => {
    const claim = await bench.running({ policy: { deadline: HOUR_MS } });
    await bench.port.suspend(claim, forApproval());
    await fire(HOUR_MS);
    expect(await bench.engine.executions.result(claim.executionId)).toMatchObject({ outcome: 'expired' });
  });
});

describe('several waits together', () => {
  const both: SuspendRequest = {
    waits: [
      { name: 'yes', condition: said('yes') },
      { name: 'no', condition: said('no') },
    ],
  };

  it('resume when the first finishes; the other is waited for again, with the signals it got meanwhile', async () => {
    const kind = newKind();
    const claim = await suspended(both, kind);
    expect(await approve(claim, 'no')).toMatchObject({ effect: 'resumed' });
    expect(await approve(claim, 'yes')).toMatchObject({ effect: 'buffered' });
    const resumed = await bench.claimOne(kind);
    const ends = await bench.engine.executions.listSteps(claim.executionId);
    expect(ends.find(({ name }) => name === 'no')!.end).not.toBeNull();
    expect(ends.find(({ name }) => name === 'yes')!.end).toBeNull();
    expect(await bench.port.suspend(resumed, both)).toMatchObject({
      outcome: 'already_satisfied',
      ended: [{ name: 'yes' }, { name: 'no' }],
    });
  });

  it('are woken by a time, and by children, and stay open', async () => {
    const [kind, childKind] = [newKind(), newKind()];
    const claim = await bench.running({ kind });
    await bench.port.suspend(claim, { ...forApproval({ timeoutMs: 2 * HOUR_MS }), wakeInMs: HOUR_MS });
    await fire(HOUR_MS);
    const woken = await bench.claimOne(kind);
    const spawned = await bench.port.spawn(woken, [{ kind: childKind }]);
    if (spawned.outcome !== 'spawned') throw new Error('not spawned');
    const ids = spawned.children.map(({ executionId }) => executionId);
    await bench.port.suspend(woken, { ...forApproval(), children: { executionIds: ids, needed: 1 } });
    await bench.port.complete(await bench.claimOne(childKind));
    await fire();
    const again = await bench.claimOne(kind);
    expect(
      await bench.port.suspend(again, { ...forApproval(), children: { executionIds: ids, needed: 1 } }),
    ).toEqual({ outcome: 'due' });
    // The timeout is counted from the start of the wait.
    expect(await bench.port.suspend(again, forApproval())).toMatchObject({ outcome: 'suspended' });
    await fire(HOUR_MS);
    expect(await bench.engine.executions.result(claim.executionId)).toMatchObject({ outcome: 'failed' });
  });
});

describe('on timeout', () => {
  async function overdue(onTimeout: TimeoutBehaviour | undefined, kind = newKind()): Promise<Claim> {
    const claim = await suspended(
      forApproval({ timeoutMs: HOUR_MS, ...(onTimeout === undefined ? {} : { onTimeout }) }),
      kind,
    );
    await fire(HOUR_MS);
    return claim;
  }

  it.each([
    [undefined, 'failed'],
    ['fail', 'failed'],
    ['cancel', 'cancelled'],
    ['expire', 'expired'],
  ] as const)('%s finishes it as %s, and later signals are refused', async (onTimeout, outcome) => {
    const claim = await overdue(onTimeout);
    expect(await bench.engine.executions.result(claim.executionId)).toMatchObject({
      outcome,
      message: 'suspension_timeout:approval',
      category: 'timeout',
      by: 'engine',
    });
    expect(await approve(claim)).toEqual({ outcome: 'closed' });
  });

  it('resume continues without a signal', async () => {
    const kind = newKind();
    const claim = await overdue('resume', kind);
    await bench.claimOne(kind);
    const [step] = await bench.engine.executions.listSteps(claim.executionId);
    expect(step).toMatchObject({ end: { outcome: 'timed_out', signals: [] } });
    expect(await approve(claim)).toEqual({ outcome: 'closed' });
  });

  it('escalate keeps waiting for an operator, without a timeout', async () => {
    const kind = newKind();
    const claim = await overdue('escalate', kind);
    expect(await bench.snapshot(claim.executionId)).toMatchObject({
      state: 'suspended',
      stateVector: { blockingReason: 'paused_by_operator' },
    });
    await fire(100 * HOUR_MS);
    expect(await approve(claim)).toMatchObject({ effect: 'resumed' });
    await bench.claimOne(kind);
  });

  it('escalate is not undone when the execution is resumed for another wait', async () => {
    const kind = newKind();
    const waits: SuspendRequest['waits'] = [
      { name: 'a', condition: said('a'), timeoutMs: HOUR_MS, onTimeout: 'escalate', reason: 'approval' },
      { name: 'b', condition: said('b'), reason: 'callback' },
    ];
    const claim = await suspended({ waits }, kind);
    await fire(HOUR_MS);
    await approve(claim, 'b');
    const again = await bench.claimOne(kind);
    expect(await bench.port.suspend(again, { waits: waits.slice(0, 1) })).toMatchObject({
      outcome: 'suspended',
    });
    expect(await bench.snapshot(claim.executionId)).toMatchObject({
      stateVector: { blockingReason: 'paused_by_operator' },
    });
    const { waitpoints } = await bench.engine.waitpoints.list({ executionId: claim.executionId });
    expect(waitpoints).toMatchObject([{ name: 'a', reason: 'review', timeoutAtMs: null }]);
  });

  it.each([
    ['resume', 'already_satisfied'],
    ['fail', 'suspended'],
  ] as const)(
    '%s also applies while a worker owns it, and invalidates its token',
    async (onTimeout, outcome) => {
      const claim = await bench.running();
      const look = { ...forApproval({ timeoutMs: HOUR_MS, onTimeout }), mode: 'poll' as const };
      const lease = { ...claim };
      expect(await bench.port.suspend(lease, look)).toEqual({ outcome: 'open' });
      await bench.port.renew([claim], 10 * HOUR_MS);
      const { token } = await bench.engine.waitpoints.issueToken(claim.executionId, 'approval', {
        expiresIn: 2 * HOUR_MS,
      });
      await bench.database.moveClock(HOUR_MS);
      expect(await bench.engine.signal({ token })).toEqual({ outcome: 'expired' });
      expect(await bench.port.suspend(lease, look)).toMatchObject({ outcome });
      expect(await bench.engine.signal({ token })).toEqual({ outcome: 'expired' });
      await fire();
      const end = await bench.engine.executions.result(claim.executionId);
      expect(end.outcome).toBe(onTimeout === 'fail' ? 'failed' : 'pending');
    },
  );

  it('a satisfied wait does not fire its timer', async () => {
    const kind = newKind();
    const claim = await suspended(forApproval({ timeoutMs: HOUR_MS }), kind);
    await approve(claim);
    const resumed = await bench.claimOne(kind, { leaseMs: 10 * HOUR_MS });
    await fire(2 * HOUR_MS);
    expect(await bench.snapshot(claim.executionId)).toMatchObject({ state: 'active' });
    expect(await bench.port.complete(resumed)).toMatchObject({ outcome: 'completed' });
  });
});

describe('a finished execution', () => {
  it('leaves no timers behind when it is forgotten', async () => {
    const claim = await bench.running({ policy: { retention: 1_000 } });
    await bench.port.createWaitpoint(claim, { name: 'far', expiresInMs: 1_000 * HOUR_MS });
    await bench.port.complete(claim);
    await bench.database.moveClock(HOUR_MS);
    await bench.reconcile();
    expect(await bench.engine.executions.describe(claim.executionId)).toBeNull();
    const uuid = claim.executionId.split(':').at(-1);
    for (const table of ['ff_timer', 'ff_waitpoint', 'ff_signal', 'ff_step', 'ff_suspension']) {
      const { rows } = await bench.database.query(`SELECT 1 FROM ${table} WHERE execution_id = $1`, [uuid]);
      expect(rows).toEqual([]);
    }
  });
});

describe('a replay', () => {
  it('after a timeout waits again, at a new waitpoint', async () => {
    const kind = newKind();
    const request = forApproval({ timeoutMs: HOUR_MS });
    const claim = await suspended(request, kind);
    const { token } = await bench.engine.waitpoints.issueToken(claim.executionId, 'approval');
    await fire(HOUR_MS);
    await bench.engine.executions.replay(claim.executionId, { reason: 'again' });
    const again = await bench.claimOne(kind);
    expect(await bench.port.suspend(again, request)).toMatchObject({ outcome: 'suspended' });
    await expect(bench.engine.signal({ token })).rejects.toMatchObject({ code: 'invalid_token' });
    await fire(HOUR_MS / 2);
    expect(await approve(claim)).toMatchObject({ effect: 'resumed' });
  });

  it('keeps the signals, and from the start discards them', async () => {
    const kind = newKind();
    const claim = await suspended(forApproval(), kind);
    await approve(claim);
    await bench.port.fail(await bench.claimOne(kind), { message: 'later', retry: 'never' });
    await bench.engine.executions.replay(claim.executionId, { reason: 'again' });
    const kept = await bench.claimOne(kind);
    expect(await bench.port.suspend(kept, forApproval())).toMatchObject({ outcome: 'already_satisfied' });
    await bench.port.fail(kept, { message: 'later', retry: 'never' });
    await bench.engine.executions.replay(claim.executionId, { reason: 'again', from: 'start' });
    const anew = await bench.claimOne(kind);
    expect(await bench.port.suspend(anew, forApproval())).toMatchObject({ outcome: 'suspended' });
  });
});
