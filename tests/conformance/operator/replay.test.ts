/**
 * Replaying: a finished execution runs again, counted and limited, with its history and, unless it starts over, with
 * the values of its steps. How a handler sees it is in tests/tasks/replaying.test.ts.
 */
import { describe, expect, it } from 'vitest';
import type { Claim } from '../../../src/protocol/index.ts';
import type { ExecutionId, ExecutionPolicy } from '../../../src/index.ts';
import { openEngine } from '../../../src/engine/open.ts';
import { replay as replayAt } from '../../../src/engine/operator/verbs.ts';
import { misplaced, newKind, useBench } from '../open.ts';

const bench = useBench();
const WHY = { reason: 'fixed the bug', by: 'ann' };
const RETRYING: ExecutionPolicy = { retry: { maxRetries: 1, backoff: { type: 'fixed', delay: 1_000 } } };

const uuidOf = (id: ExecutionId): string => id.slice(id.lastIndexOf(':') + 1);

async function failed(policy: ExecutionPolicy = {}): Promise<Claim> {
  const claim = await bench.running({ policy });
  expect(await bench.port.fail(claim, { message: 'ouch', retry: 'never' })).toMatchObject({
    outcome: 'failed',
  });
  return claim;
}

async function operatorEvents(id: ExecutionId): Promise<unknown[]> {
  const found = await bench.database.query(
    `SELECT event_type, attempt_index, lease_epoch, detail FROM ff_event
     WHERE execution_id = $1 AND family = 'operator' ORDER BY ev_id`,
    [uuidOf(id)],
  );
  return found.rows;
}

describe('a replay re-opens', () => {
  it('a failed execution: with a new attempt, retries and reclaims from 0, and its history', async () => {
    const first = await bench.running({ policy: RETRYING });
    await bench.port.fail(first, { message: 'once' });
    await bench.database.moveClock(1_000);
    await bench.port.fireTimers();
    const second = await bench.claimOne(first.kind);
    await bench.port.fail(second, { message: 'twice' });
    const { executionId } = first;
    expect(await bench.engine.executions.replay(executionId, WHY)).toEqual({
      executionId,
      outcome: 'replayed',
      replayCount: 1,
    });
    expect(await bench.engine.executions.result(executionId)).toEqual({
      outcome: 'pending',
      state: 'waiting',
    });
    expect(await bench.snapshot(executionId)).toMatchObject({
      stateVector: { attemptState: 'pending_replay_attempt', terminalOutcome: 'none' },
      attemptIndex: 2,
      leaseEpoch: second.leaseEpoch + 1,
      retryCount: 0,
      reclaimCount: 0,
      replayCount: 1,
      endedAtMs: null,
      attempts: [{ failureMessage: 'once' }, { failureMessage: 'twice' }],
    });
    const third = await bench.claimOne(first.kind);
    expect(third).toMatchObject({ attemptIndex: 2, retryCount: 0, resumed: false, generation: 0 });
    // The retries of the policy are available again.
    expect(await bench.port.fail(third, { message: 'thrice' })).toMatchObject({
      outcome: 'retry_scheduled',
    });
  });

  it.each(['completed', 'cancelled', 'cancelled before it began', 'expired'] as const)(
    'an execution that was %s',
    async (how) => {
      const kind = newKind();
      const executionId = await bench.submit({ kind, policy: { deadline: 5_000 } });
      if (how === 'completed') await bench.port.complete(await bench.claimOne(kind), 'first');
      if (how === 'cancelled') await bench.claimOne(kind);
      if (how.startsWith('cancelled')) await bench.engine.cancel(executionId, WHY);
      if (how === 'expired') {
        await bench.database.moveClock(5_000);
        await bench.port.fireTimers();
      }
      expect(await bench.engine.executions.replay(executionId, WHY)).toMatchObject({ outcome: 'replayed' });
      const claim = await bench.claimOne(kind);
      expect(claim).toMatchObject({ executionId, attemptIndex: 1, reclaimed: false, resumed: false });
      expect(await bench.port.complete(claim, 'second')).toMatchObject({ outcome: 'completed' });
      expect(await bench.engine.executions.result(executionId)).toEqual({
        outcome: 'success',
        result: 'second',
      });
    },
  );

  it('an execution with an operator event that has who, why, from where and the outcome before', async () => {
    const { executionId, leaseEpoch } = await failed();
    await bench.engine.executions.replay(executionId, WHY);
    expect(await operatorEvents(executionId)).toEqual([
      {
        event_type: 'replayed',
        attempt_index: 1,
        lease_epoch: leaseEpoch + 1,
        detail: {
          by: 'ann',
          reason: 'fixed the bug',
          from: 'failed_step',
          replay_count: 1,
          previous_outcome: 'failed',
        },
      },
    ]);
  });

  it('an execution with a new deadline', async () => {
    const policy = { deadline: 60_000 };
    const { executionId, kind } = await failed(policy);
    const before = await bench.snapshot(executionId);
    await bench.database.moveClock(50_000);
    await bench.engine.executions.replay(executionId, WHY);
    const { deadlineAtMs, changedAtMs } = await bench.snapshot(executionId);
    // The two are read from the clock one after the other.
    expect(deadlineAtMs).toBeLessThanOrEqual(changedAtMs + 60_000);
    expect(deadlineAtMs).toBeGreaterThanOrEqual(before.deadlineAtMs! + 50_000);
    // The first deadline passes without effect.
    await bench.database.moveClock(20_000);
    await bench.port.fireTimers();
    const claim = await bench.claimOne(kind);
    await bench.database.moveClock(60_000);
    await bench.port.fireTimers();
    expect(await bench.port.complete(claim)).toEqual({ outcome: 'timed_out' });
  });

  it('an execution, and waiting for its outcome waits for the next one', async () => {
    const { executionId, kind } = await failed();
    await bench.engine.executions.replay(executionId, WHY);
    const end = bench.engine.executions.wait(executionId);
    await bench.port.complete(await bench.claimOne(kind), 'well');
    expect(await end).toEqual({ outcome: 'success', result: 'well' });
  });

  it('an execution, and a parent that was notified of the first outcome is notified of the next', async () => {
    const parent = await bench.running();
    const kind = newKind();
    const spawned = await bench.port.spawn(parent, [{ kind }]);
    const executionIds = spawned.outcome === 'spawned' ? spawned.children.map((c) => c.executionId) : [];
    await bench.port.fail(await bench.claimOne(kind), { message: 'no', retry: 'never' });
    await bench.engine.executions.replay(executionIds[0]!, WHY);
    // Re-opened, it is waited for again; the notice of its first outcome must not wake the parent.
    expect(await bench.port.pause(parent, { children: { executionIds, needed: 1 } })).toMatchObject({
      outcome: 'paused',
    });
    await bench.port.fireTimers();
    expect(await bench.claim({ kinds: [parent.kind] })).toEqual([]);
    await bench.port.complete(await bench.claimOne(kind));
    await bench.port.fireTimers();
    expect(await bench.claimOne(parent.kind)).toMatchObject({ resumed: true });
  });
});

describe('steps', () => {
  async function withSteps(): Promise<Claim> {
    const claim = await bench.running();
    await bench.port.recordStep(claim, { name: 'paid', value: 42 });
    await bench.port.recordStep(claim, { name: 'rest', sleepMs: 60_000 });
    await bench.port.fail(claim, { message: 'ouch', retry: 'never' });
    return claim;
  }

  it('are kept by a replay from the failed step, and recording one again returns the first value', async () => {
    const { executionId, kind } = await withSteps();
    await bench.engine.executions.replay(executionId, { ...WHY, from: 'failed_step' });
    expect(await bench.engine.executions.listSteps(executionId)).toHaveLength(2);
    const claim = await bench.claimOne(kind);
    expect(await bench.port.recordStep(claim, { name: 'paid', value: 43 })).toMatchObject({
      outcome: 'recorded',
      repeated: true,
      step: { value: 42 },
    });
    expect(claim.generation).toBe(0);
  });

  it('no longer count after a replay from the start, any number of times, and stay in the history', async () => {
    const { executionId, kind } = await withSteps();
    for (const generation of [1, 2]) {
      await bench.engine.executions.replay(executionId, { ...WHY, from: 'start' });
      expect(await bench.engine.executions.listSteps(executionId)).toEqual([]);
      expect((await bench.snapshot(executionId)).stepCount).toBe(0);
      const claim = await bench.claimOne(kind);
      expect(claim.generation).toBe(generation);
      expect(await bench.port.recordStep(claim, { name: 'paid', value: 42 + generation })).toMatchObject({
        repeated: false,
        step: { value: 42 + generation },
      });
      await bench.port.complete(claim);
    }
    const kept = await bench.database.query(
      `SELECT retired_by, value FROM ff_step WHERE execution_id = $1 AND name = 'paid' ORDER BY value`,
      [uuidOf(executionId)],
    );
    expect(kept.rows).toEqual([
      { retired_by: 1, value: 42 },
      { retired_by: 2, value: 43 },
      { retired_by: 0, value: 44 },
    ]);
  });
});

describe('a replay is refused', () => {
  it('when the execution has not finished', async () => {
    const waiting = await bench.submit();
    const { executionId: active } = await bench.running();
    expect(await bench.engine.executions.replay([waiting, active], WHY)).toEqual([
      { executionId: waiting, outcome: 'not_terminal', lifecyclePhase: 'runnable' },
      { executionId: active, outcome: 'not_terminal', lifecyclePhase: 'active' },
    ]);
    expect(await operatorEvents(waiting)).toEqual([]);
  });

  it.each([
    ['after ten times by default', {}, 10],
    ['after the limit of the policy', { maxReplays: 2 }, 2],
    ['always when the policy allows none', { maxReplays: 0 }, 0],
  ])('%s', async (_, policy, times) => {
    const { executionId, kind } = await failed(policy);
    for (let round = 1; round <= times; round += 1) {
      expect(await bench.engine.executions.replay(executionId, WHY)).toMatchObject({
        outcome: 'replayed',
        replayCount: round,
      });
      await bench.port.complete(await bench.claimOne(kind));
    }
    expect(await bench.engine.executions.replay(executionId, WHY)).toEqual({
      executionId,
      outcome: 'replays_exhausted',
      replayCount: times,
    });
    expect(await bench.claim({ kinds: [kind] })).toEqual([]);
  });

  it('when the execution does not exist, or is in another partition', async () => {
    const { executionId } = await failed();
    const elsewhere = misplaced(executionId);
    expect(await bench.engine.executions.replay([elsewhere, executionId, executionId], WHY)).toEqual([
      { executionId: elsewhere, outcome: 'not_found' },
      { executionId, outcome: 'replayed', replayCount: 1 },
      { executionId, outcome: 'replayed', replayCount: 1 },
    ]);
  });

  it.each([
    [{ reason: '' }, 'reason'],
    [{ reason: 'x', from: 'middle' }, 'from'],
    [{ reason: 'x', force: true }, 'force'],
  ])('when the request is %j', async (request, field) => {
    const { executionId } = await failed();
    await expect(bench.engine.executions.replay(executionId, request as never)).rejects.toMatchObject({
      code: 'invalid_input',
      field: expect.stringContaining(field),
    });
  });

  it('with moved when it is not at the epoch it was seen at', async () => {
    const { engine, context } = await openEngine({
      databaseUrl: bench.database.url,
      listen: 'off',
      poolSize: 1,
    });
    try {
      const { executionId, kind, leaseEpoch } = await failed();
      const request = { reason: 'bulk' };
      expect(await replayAt(context, [executionId], request, [leaseEpoch + 1])).toEqual([
        { executionId, outcome: 'moved' },
      ]);
      expect(await replayAt(context, [executionId], request, [leaseEpoch])).toMatchObject([
        { outcome: 'replayed' },
      ]);
      await bench.port.complete(await bench.claimOne(kind));
      // Finished again: a caller that saw the first outcome must not run it a third time.
      expect(await replayAt(context, [executionId], request, [leaseEpoch])).toMatchObject([
        { outcome: 'moved' },
      ]);
    } finally {
      await engine.close();
    }
  });
});

it('every call under a lease from before a replay is refused', async () => {
  const zombie = await bench.running({ policy: { maxReplays: 5 } });
  await bench.engine.cancel(zombie.executionId, WHY);
  await bench.engine.executions.replay(zombie.executionId, WHY);
  expect(await bench.port.complete(zombie, 'too late')).toMatchObject({ outcome: 'not_active' });
  const now = await bench.claimOne(zombie.kind);
  const told = [
    await bench.port.complete(zombie, 'too late'),
    await bench.port.fail(zombie, { message: 'too late' }),
    await bench.port.release(zombie),
    await bench.port.recordStep(zombie, { name: 'late', value: 1 }),
    ...(await bench.port.renew([zombie], 30_000)),
  ];
  expect(told.map(({ outcome }) => outcome)).toEqual(told.map(() => 'stale_lease'));
  expect(await bench.port.complete(now, 'in time')).toMatchObject({ outcome: 'completed' });
  expect(await bench.engine.executions.result(zombie.executionId)).toEqual({
    outcome: 'success',
    result: 'in time',
  });
});
