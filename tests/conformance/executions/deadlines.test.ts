/**
 * Time limits: an execution that expires at its deadline whatever it is doing, an attempt that takes too long, and a
 * clock that jumps. Time is moved in the database; no test waits for it to pass.
 */
import { describe, expect, it } from 'vitest';
import type { Claim, LeaseRefusal } from '../../../src/protocol/index.ts';
import type { ExecutionId } from '../../../src/index.ts';
import { claimRequest, LEASE_MS, newKind, useBench } from '../open.ts';
import { workerPort } from '../../../src/connect/port.ts';

const bench = useBench();
const DEADLINE_MS = 20_000;
const LIMIT_MS = 10_000;
const BACKOFF_MS = 60_000;
const BY_DEADLINE = { deadline: DEADLINE_MS };
const BY_LIMIT = { attemptTimeout: LIMIT_MS };
const AGAIN = { retry: { maxRetries: 1, backoff: { type: 'fixed', delay: BACKOFF_MS } } } as const;
const OVER = { outcome: 'expired', message: 'execution_deadline', category: 'timeout', by: 'engine' };
const TOO_LONG = { ...OVER, message: 'attempt_time_limit' };

const uuidOf = (id: ExecutionId): string => id.slice(id.lastIndexOf(':') + 1);

/** Moves the clock and fires the timers that became due, until none is left. */
async function pass(ms: number): Promise<void> {
  await bench.database.moveClock(ms);
  while ((await bench.port.fireTimers()) > 0);
}

async function timersOf(id: ExecutionId): Promise<string[]> {
  const found = await bench.database.query<{ kind: string }>(
    'SELECT kind::text FROM ff_timer WHERE execution_id = $1 ORDER BY kind',
    [uuidOf(id)],
  );
  return found.rows.map(({ kind }) => kind);
}

async function eventsOf(id: ExecutionId): Promise<string[]> {
  const found = await bench.database.query<{ event: string }>(
    `SELECT family || '.' || event_type AS event FROM ff_event WHERE execution_id = $1 ORDER BY ev_id`,
    [uuidOf(id)],
  );
  return found.rows.map(({ event }) => event);
}

/** The outcomes of every call that this lease allows. */
async function toldTo(lease: Claim): Promise<string[]> {
  const { engine } = bench;
  const outcomes: { outcome: string }[] = [
    await workerPort(engine).complete(lease),
    await workerPort(engine).fail(lease, { message: 'late' }),
    await workerPort(engine).release(lease),
    await workerPort(engine).pause(lease, { wakeInMs: 1_000 }),
    await workerPort(engine).recordStep(lease, { name: 'late', value: 1 }),
    await workerPort(engine).spawn(lease, [{ kind: newKind() }]),
    ...(await workerPort(engine).renew([lease], LEASE_MS)),
  ];
  return [...new Set(outcomes.map(({ outcome }) => outcome))];
}

describe('at its deadline an execution ends as expired', () => {
  it('when no worker ever claimed it, without creating an attempt', async () => {
    const kind = newKind();
    const executionId = await bench.submit({ kind, policy: BY_DEADLINE });
    const { createdAtMs, deadlineAtMs } = await bench.snapshot(executionId);
    expect(deadlineAtMs).toBe(createdAtMs + DEADLINE_MS);
    await pass(DEADLINE_MS);
    expect(await bench.engine.executions.result(executionId)).toEqual(OVER);
    expect(await bench.snapshot(executionId)).toMatchObject({
      state: 'expired',
      stateVector: { terminalOutcome: 'expired', attemptState: 'pending_first_attempt' },
      startedAtMs: null,
      attempts: [],
    });
    expect(await bench.claim({ kinds: [kind] }), 'claimed after its end').toEqual([]);
    expect(await eventsOf(executionId)).toEqual(['completion.expired']);
  });

  it('when its delay is longer, and the delay wakes nothing later', async () => {
    const kind = newKind();
    const executionId = await bench.submit({ kind, delay: 3 * DEADLINE_MS, policy: BY_DEADLINE });
    await pass(DEADLINE_MS);
    expect(await bench.engine.executions.result(executionId)).toEqual(OVER);
    expect(await bench.snapshot(executionId)).toMatchObject({ state: 'expired', eligibleAtMs: null });
    await pass(3 * DEADLINE_MS);
    expect(await bench.claim({ kinds: [kind] })).toEqual([]);
    expect(await timersOf(executionId)).toEqual([]);
  });

  it('when it runs, and every later call of its worker is refused with timed_out', async () => {
    const claim = await bench.running({ policy: { ...BY_DEADLINE, ...AGAIN } });
    await pass(DEADLINE_MS);
    expect(await toldTo(claim)).toEqual(['timed_out']);
    expect(await bench.engine.executions.result(claim.executionId)).toEqual(OVER);
    expect(await bench.snapshot(claim.executionId)).toMatchObject({
      stateVector: {
        terminalOutcome: 'expired',
        attemptState: 'attempt_terminal',
        ownershipState: 'unowned',
      },
      leaseEpoch: claim.leaseEpoch + 1,
      retryCount: 0,
      lease: null,
      stepCount: 0,
      attempts: [
        {
          attemptIndex: 0,
          outcome: 'expired',
          failureMessage: 'execution_deadline',
          failureCategory: 'timeout',
          workerInstanceId: 'worker-1',
        },
      ],
    });
    expect(await eventsOf(claim.executionId)).toEqual([
      'lease.acquired',
      'lease.revoked',
      'completion.expired',
    ]);
  });

  it('when it backs off before its next attempt, and the failed attempt stays failed', async () => {
    const claim = await bench.running({ policy: { ...BY_DEADLINE, ...AGAIN } });
    await bench.port.fail(claim, { message: 'ouch' });
    await pass(DEADLINE_MS);
    expect(await bench.engine.executions.result(claim.executionId)).toEqual(OVER);
    const { attempts } = await bench.snapshot(claim.executionId);
    expect(attempts).toMatchObject([{ attemptIndex: 0, outcome: 'failed', failureMessage: 'ouch' }]);
    await pass(BACKOFF_MS);
    expect(await bench.claim({ kinds: [claim.kind] })).toEqual([]);
  });

  it.each(['released', 'paused'] as const)(
    'when it was %s, and its open attempt expires with it',
    async (how) => {
      const claim = await bench.running({ policy: BY_DEADLINE });
      if (how === 'released') await bench.port.release(claim);
      else await bench.port.pause(claim, { wakeInMs: 10 * DEADLINE_MS });
      await pass(DEADLINE_MS);
      expect(await bench.engine.executions.result(claim.executionId)).toEqual(OVER);
      expect((await bench.snapshot(claim.executionId)).attempts).toMatchObject([
        { attemptIndex: 0, outcome: 'expired', workerInstanceId: 'worker-1' },
      ]);
      expect(await bench.claim({ kinds: [claim.kind] })).toEqual([]);
    },
  );

  it('when it waits for children, and a child that finishes later wakes nothing', async () => {
    const parent = await bench.running({ policy: BY_DEADLINE });
    const kind = newKind();
    const spawned = await bench.port.spawn(parent, [{ kind, detached: true }]);
    const executionIds = spawned.outcome === 'spawned' ? spawned.children.map((c) => c.executionId) : [];
    await bench.port.pause(parent, { children: { executionIds, needed: 1 } });
    await pass(DEADLINE_MS);
    expect(await bench.engine.executions.result(parent.executionId)).toEqual(OVER);
    expect(await bench.port.complete(await bench.claimOne(kind))).toMatchObject({ outcome: 'completed' });
    await pass(0);
    expect(await bench.claim({ kinds: [parent.kind] })).toEqual([]);
    expect(await timersOf(parent.executionId)).toEqual([]);
  });

  it('and not earlier', async () => {
    const executionId = await bench.submit({ policy: BY_DEADLINE });
    await pass(DEADLINE_MS - 5_000);
    expect(await bench.engine.executions.result(executionId)).toMatchObject({ outcome: 'pending' });
    await pass(5_000);
    expect(await bench.engine.executions.result(executionId)).toEqual(OVER);
  });

  it('and notifies every waiter', async () => {
    const executionId = await bench.submit({ policy: BY_DEADLINE });
    const end = bench.engine.executions.wait(executionId);
    await pass(DEADLINE_MS);
    expect(await end).toEqual(OVER);
  });

  it('and resumes a parent that waits for it', async () => {
    const parent = await bench.running();
    const spawned = await bench.port.spawn(parent, [{ kind: newKind(), policy: BY_DEADLINE }]);
    const executionIds = spawned.outcome === 'spawned' ? spawned.children.map((c) => c.executionId) : [];
    await bench.port.pause(parent, { children: { executionIds, needed: 1 } });
    await pass(DEADLINE_MS);
    expect(await bench.claimOne(parent.kind)).toMatchObject({ resumed: true, attemptIndex: 0 });
  });
});

describe('an attempt that takes too long', () => {
  it('expires and is retried after the backoff of its policy', async () => {
    const claim = await bench.running({ policy: { ...BY_LIMIT, ...AGAIN } });
    await pass(LIMIT_MS);
    expect(await toldTo(claim)).toEqual(['timed_out']);
    const snapshot = await bench.snapshot(claim.executionId);
    expect(snapshot).toMatchObject({
      state: 'delayed',
      stateVector: { blockingReason: 'waiting_for_retry_backoff', attemptState: 'pending_retry_attempt' },
      attemptIndex: 1,
      leaseEpoch: claim.leaseEpoch + 1,
      retryCount: 1,
      reclaimCount: 0,
      attempts: [{ outcome: 'expired', failureMessage: 'attempt_time_limit', failureCategory: 'timeout' }],
    });
    expect(await bench.claim({ kinds: [claim.kind] }), 'claimed during its backoff').toEqual([]);
    await pass(BACKOFF_MS);
    const next = await bench.claimOne(claim.kind);
    expect(next).toMatchObject({ attemptIndex: 1, retryCount: 1, resumed: false, reclaimed: false });
    expect(await bench.port.complete(claim, 'too late')).toEqual({ outcome: 'timed_out' });
    expect(await bench.port.complete(next, 'in time')).toMatchObject({ outcome: 'completed' });
    expect(await bench.engine.executions.result(claim.executionId)).toEqual({
      outcome: 'success',
      result: 'in time',
    });
  });

  it('finishes the execution when no retry is left', async () => {
    const claim = await bench.running({ policy: { ...BY_LIMIT, ...AGAIN } });
    await pass(LIMIT_MS);
    await pass(BACKOFF_MS);
    const second = await bench.claimOne(claim.kind);
    await pass(LIMIT_MS);
    expect(await bench.engine.executions.result(claim.executionId)).toEqual(TOO_LONG);
    expect(await bench.port.fail(second, { message: 'late' })).toEqual({ outcome: 'timed_out' });
    expect((await bench.snapshot(claim.executionId)).attempts).toMatchObject([
      { outcome: 'expired' },
      { outcome: 'expired' },
    ]);
  });

  it.each([
    [['timeout'], 'delayed'],
    [['transient'], 'expired'],
  ])('counts as a failure of category timeout where only %j are retried', async (only, state) => {
    const retry = { ...AGAIN.retry, retryableCategories: only };
    const claim = await bench.running({ policy: { ...BY_LIMIT, retry } });
    await pass(LIMIT_MS);
    expect((await bench.snapshot(claim.executionId)).state).toBe(state);
  });

  it('is not extended by renewals, and time in the queue does not count', async () => {
    const kind = newKind();
    const executionId = await bench.submit({ kind, policy: BY_LIMIT });
    await pass(3 * LIMIT_MS);
    const claim = await bench.claimOne(kind);
    await pass(LIMIT_MS - 3_000);
    expect(await bench.port.renew([claim], LEASE_MS)).toEqual([{ outcome: 'renewed' }]);
    await pass(3_000);
    expect(await bench.engine.executions.result(executionId)).toEqual(TOO_LONG);
  });

  it.each(['released', 'paused'] as const)('has its full time again after it was %s', async (how) => {
    const claim = await bench.running({ policy: BY_LIMIT });
    await bench.database.moveClock(LIMIT_MS - 3_000);
    if (how === 'released') await bench.port.release(claim);
    else await bench.port.pause(claim, { wakeInMs: 2 * LIMIT_MS });
    expect(await timersOf(claim.executionId), 'the limit of the lease that was given up').not.toContain(
      'attempt_limit',
    );
    await pass(2 * LIMIT_MS);
    const again = await bench.claimOne(claim.kind);
    await pass(LIMIT_MS - 3_000);
    expect(await bench.port.renew([again], LEASE_MS)).toEqual([{ outcome: 'renewed' }]);
    await pass(3_000);
    expect(await bench.engine.executions.result(claim.executionId)).toEqual(TOO_LONG);
  });

  it('makes a claim return when it will be due', async () => {
    const kind = newKind();
    await bench.submit({ kind, policy: { attemptTimeout: 1_234 } });
    const request = { ...claimRequest(), kinds: [kind] };
    const first = await bench.port.claim(request);
    const { claims, nextDueInMs } = first.claims.length > 0 ? first : await bench.port.claim(request);
    expect(claims).toHaveLength(1);
    expect(nextDueInMs).toBeLessThanOrEqual(1_234);
    await pass(1_234);
  });

  it('in an execution that is also past its deadline expires the execution, once', async () => {
    const both = { deadline: LIMIT_MS, attemptTimeout: LIMIT_MS };
    const claim = await bench.running({ policy: { ...both, ...AGAIN } });
    await pass(LIMIT_MS + 1_000);
    expect(await bench.engine.executions.result(claim.executionId)).toEqual(OVER);
    expect(await eventsOf(claim.executionId)).toEqual([
      'lease.acquired',
      'lease.revoked',
      'completion.expired',
    ]);
    expect(await timersOf(claim.executionId)).toEqual([]);
  });
});

describe('a limit that was not reached', () => {
  type Ending = (claim: Claim) => Promise<{ outcome: string } | LeaseRefusal>;
  const endings: [string, Ending][] = [
    ['completed', (claim) => bench.port.complete(claim)],
    ['failed', (claim) => bench.port.fail(claim, { message: 'no' })],
    ['cancelled', (claim) => bench.engine.cancel(claim.executionId, { reason: 'no' })],
  ];

  it.each(endings)('leaves no timer behind an execution that was %s', async (outcome, end) => {
    const claim = await bench.running({ policy: { ...BY_LIMIT, ...BY_DEADLINE } });
    expect(await timersOf(claim.executionId)).toEqual(['attempt_limit', 'deadline']);
    expect(await end(claim)).toMatchObject({ outcome });
    expect(await timersOf(claim.executionId)).toEqual([]);
  });

  it('leaves none behind a lost lease, and the deadline stays', async () => {
    const claim = await bench.running({
      policy: { deadline: 600_000, attemptTimeout: 300_000, ...AGAIN },
    });
    await bench.loseLeases();
    expect(await timersOf(claim.executionId)).toEqual(['deadline']);
    await bench.engine.cancel(claim.executionId, { reason: 'enough' });
    expect(await timersOf(claim.executionId)).toEqual([]);
  });
});

describe('a clock that jumps', () => {
  it('back before a deadline was noticed does not lose it, and forward again fires it once', async () => {
    const executionId = await bench.submit({ policy: BY_DEADLINE });
    await bench.database.moveClock(DEADLINE_MS);
    await bench.database.moveClock(-DEADLINE_MS);
    await pass(0);
    expect(await bench.engine.executions.result(executionId)).toMatchObject({ outcome: 'pending' });
    await pass(DEADLINE_MS);
    await pass(-DEADLINE_MS);
    await pass(DEADLINE_MS);
    expect(await bench.engine.executions.result(executionId)).toEqual(OVER);
    expect(await eventsOf(executionId)).toEqual(['completion.expired']);
  });

  it('back after a delay was due does not delay it again, and forward again does not wake it twice', async () => {
    const kind = newKind();
    await bench.submit({ kind, delay: DEADLINE_MS });
    await pass(DEADLINE_MS);
    await pass(-DEADLINE_MS);
    const claim = await bench.claimOne(kind);
    await pass(DEADLINE_MS);
    expect(await bench.claim({ kinds: [kind] })).toEqual([]);
    expect(await bench.port.complete(claim)).toMatchObject({ outcome: 'completed' });
  });

  it('back while an attempt runs only gives it more time', async () => {
    await bench.database.moveClock(600_000);
    const claim = await bench.running({ policy: BY_LIMIT });
    await pass(-600_000);
    await pass(LIMIT_MS);
    expect(await bench.port.renew([claim], LEASE_MS)).toEqual([{ outcome: 'renewed' }]);
    await bench.database.moveClock(600_000 - LIMIT_MS);
    await pass(LIMIT_MS);
    expect(await bench.engine.executions.result(claim.executionId)).toEqual(TOO_LONG);
    expect(
      (await eventsOf(claim.executionId)).filter((event) => event === 'completion.expired'),
    ).toHaveLength(1);
  });
});
