/**
 * Claiming: which worker gets which work, in which order, and what a claim returns when there is none.
 */
import { describe, expect, it, vi } from 'vitest';
import type { Claim, ClaimRequest, Hint } from '../../../src/protocol/index.ts';
import { claimRequest, LEASE_MS, LISTENING, newKind, useBench, WAIT } from '../open.ts';
import { workerPort } from '../../../src/connect/port.ts';

const bench = useBench();

function payloads(claims: readonly Claim[]): unknown[] {
  return claims.map(({ payload }) => payload);
}

/** Claims until a call returns nothing; each inner list is one call. */
async function drain(request: Partial<ClaimRequest> & { kinds: string[] }): Promise<Claim[][]> {
  const calls: Claim[][] = [];
  for (let claims = await bench.claim(request); claims.length > 0; claims = await bench.claim(request)) {
    calls.push(claims);
  }
  return calls;
}

describe('a claim', () => {
  it('returns everything about the execution and its lease', async () => {
    const kind = newKind();
    const submitted = {
      kind,
      lane: 'l1',
      namespace: 'n1',
      priority: 7,
      tags: { 'a.b': 'c' },
      payload: { x: 1 },
    };
    const executionId = await bench.submit(submitted);
    const claim = await bench.claimOne(kind);
    const { createdAtMs } = await bench.snapshot(executionId);
    expect(claim).toEqual({
      ...submitted,
      executionId,
      attemptIndex: 0,
      leaseEpoch: 1,
      leaseId: expect.stringMatching(/^[0-9a-f-]{36}$/),
      retryCount: 0,
      resumed: false,
      reclaimed: false,
      redacted: false,
      createdAtMs,
      generation: 0,
      flowId: null,
      leaseMs: LEASE_MS,
    });
  });

  it('makes the execution active under a lease of the claiming worker', async () => {
    const kind = newKind();
    await bench.submit({ kind });
    const claim = await bench.claimOne(kind, { workerId: 'w', workerInstanceId: 'w-7', leaseMs: 5_000 });
    const { state, stateVector, lease, startedAtMs } = await bench.snapshot(claim.executionId);
    expect({ state, ...stateVector }).toMatchObject({
      state: 'active',
      lifecyclePhase: 'active',
      ownershipState: 'leased',
      attemptState: 'running_attempt',
    });
    expect(lease).toMatchObject({ leaseId: claim.leaseId, workerId: 'w', workerInstanceId: 'w-7' });
    expect(lease!.expiresAtMs - lease!.acquiredAtMs).toBe(5_000);
    expect(startedAtMs).toBe(lease!.acquiredAtMs);
  });

  it('takes only the given kinds', async () => {
    const [wanted, also, other] = [newKind(), newKind(), newKind()];
    for (const kind of [wanted, also, other]) await bench.submit({ kind, payload: kind });
    expect(payloads(await bench.claim({ kinds: [wanted, also] })).toSorted()).toEqual(
      [wanted, also].toSorted(),
    );
    expect(payloads(await bench.claim({ kinds: [other] }))).toEqual([other]);
  });

  it('takes from every lane unless lanes are given', async () => {
    const kind = newKind();
    for (const lane of ['red', 'green', 'blue']) await bench.submit({ kind, lane, payload: lane });
    expect(payloads(await bench.claim({ kinds: [kind], lanes: ['green', 'none such'] }))).toEqual(['green']);
    expect(payloads((await drain({ kinds: [kind] })).flat()).toSorted()).toEqual(['blue', 'red']);
  });

  it('takes nothing when no kind or no lane is given', async () => {
    const kind = newKind();
    await bench.submit({ kind });
    expect(await bench.claim({ kinds: [] })).toEqual([]);
    expect(await bench.claim({ kinds: [kind], lanes: [] })).toEqual([]);
  });

  it('takes work that requires some of the capabilities offered, or none', async () => {
    const kind = newKind();
    const required = {
      none: [],
      gpu: ['gpu'],
      both: ['eu', 'gpu'],
      more: ['eu', 'gpu', 'tpu'],
      case: ['GPU'],
    };
    for (const [payload, capabilities] of Object.entries(required)) {
      await bench.submit({ kind, payload, capabilities });
    }
    expect(payloads(await bench.claim({ kinds: [kind] }))).toEqual(['none']);
    const offering = { kinds: [kind], capabilities: ['gpu', 'eu', 'gpu', 'unasked'] };
    expect(payloads(await bench.claim(offering)).toSorted()).toEqual(['both', 'gpu']);
    expect(await bench.claim(offering)).toEqual([]);
  });

  it('takes at most the requested number', async () => {
    const kind = newKind();
    await bench.engine.executions.submit(Array.from({ length: 7 }, () => ({ kind })));
    const calls = await drain({ kinds: [kind], limit: 3 });
    expect(calls.map((claims) => claims.length)).toEqual([3, 3, 1]);
  });

  it('grants every execution to exactly one of many rivals', async () => {
    const kind = newKind();
    await bench.engine.executions.submit(Array.from({ length: 60 }, () => ({ kind })));
    const rivals = [bench.engine, await bench.another(), await bench.another()];
    await Promise.all(
      rivals.map((rival) => workerPort(rival).claim({ ...claimRequest(), kinds: [newKind()] })),
    );
    const answers = await Promise.all(
      Array.from({ length: 30 }, (_, index) =>
        workerPort(rivals[index % 3]!).claim({ ...claimRequest(), kinds: [kind], limit: 4 }),
      ),
    );
    const rest = await drain({ kinds: [kind] });
    const ids = [...answers.flatMap(({ claims }) => claims), ...rest.flat()].map(
      (claim) => claim.executionId,
    );
    expect(ids).toHaveLength(60);
    expect(new Set(ids).size).toBe(60);
  });

  it('skips work that is claimed, finished or cancelled', async () => {
    const kind = newKind();
    const [first, second] = [await bench.running({ kind }), await bench.running({ kind })];
    await bench.port.complete(first);
    await bench.engine.cancel(second.executionId, { reason: 'enough' });
    const third = await bench.submit({ kind });
    await bench.engine.cancel(third, { reason: 'never mind' });
    expect(await bench.claim({ kinds: [kind] })).toEqual([]);
  });

  it('finds work behind many cancelled executions in a single call', async () => {
    const kind = newKind();
    await bench.running({ kind });
    await bench.port.claim({ ...claimRequest(), kinds: [kind] });
    const answers = await bench.engine.executions.submit(Array.from({ length: 100 }, () => ({ kind })));
    await bench.engine.cancel(
      answers.map(({ executionId }) => executionId),
      { reason: 'never mind' },
    );
    const last = await bench.submit({ kind });
    const { claims } = await bench.port.claim({ ...claimRequest(), kinds: [kind], limit: 5 });
    expect(claims.map(({ executionId }) => executionId)).toEqual([last]);
  });
});

describe('the order within a lane', () => {
  it('is by priority, then by time of submit', async () => {
    const kind = newKind();
    for (const [priority, payload] of [
      [0, 'low 1'],
      [9_000, 'high 1'],
      [5, 'middle'],
      [9_000, 'high 2'],
      [0, 'low 2'],
    ] as const) {
      await bench.submit({ kind, priority, payload });
    }
    const calls = await drain({ kinds: [kind], limit: 2 });
    expect(payloads(calls.flat())).toEqual(['high 1', 'high 2', 'middle', 'low 1', 'low 2']);
  });

  it('is by priority across all kinds of a worker', async () => {
    const [a, b] = [newKind(), newKind()];
    await bench.submit({ kind: a, priority: 1, payload: 'a1' });
    await bench.submit({ kind: b, priority: 2, payload: 'b2' });
    await bench.submit({ kind: a, priority: 3, payload: 'a3' });
    await bench.submit({ kind: b, priority: 0, payload: 'b0' });
    expect(payloads(await bench.claim({ kinds: [a, b], limit: 3 }))).toEqual(['a3', 'b2', 'a1']);
  });

  it('is the order of the list for executions of one call', async () => {
    const kind = newKind();
    await bench.engine.executions.submit(Array.from({ length: 20 }, (_, payload) => ({ kind, payload })));
    expect(payloads(await bench.claim({ kinds: [kind] }))).toEqual(
      Array.from({ length: 20 }, (_, index) => index),
    );
  });
});

describe('lanes take turns', () => {
  it('so that a busy lane starves no other, whatever its priorities', async () => {
    const kind = newKind();
    await bench.engine.executions.submit(
      Array.from({ length: 60 }, () => ({ kind, lane: 'busy', priority: 100 })),
    );
    await bench.engine.executions.submit([
      { kind, lane: 'quiet' },
      { kind, lane: 'calm' },
    ]);
    const lanes: string[] = [];
    for (let calls = 0; calls < 4; calls += 1) {
      lanes.push(...(await bench.claim({ kinds: [kind], limit: 5 })).map(({ lane }) => lane));
    }
    expect(lanes).toHaveLength(20);
    expect(lanes).toContain('quiet');
    expect(lanes).toContain('calm');
  });

  it('and the lane whose turn it is does not keep the others from filling the claim', async () => {
    const kind = newKind();
    for (const lane of ['one', 'two']) {
      await bench.engine.executions.submit(Array.from({ length: 3 }, () => ({ kind, lane })));
    }
    expect((await drain({ kinds: [kind], limit: 6 })).map((claims) => claims.length)).toEqual([6]);
  });
});

describe('an empty claim', () => {
  it('reports no due time when no timer is set, and otherwise the next one', async () => {
    const lonely = await bench.another();
    await bench.database.moveClock(1_000_000);
    while ((await workerPort(lonely).fireTimers()) > 0);
    const nothing = { ...claimRequest(), kinds: [newKind()] };
    expect(await workerPort(lonely).claim(nothing)).toEqual({ claims: [], nextDueInMs: null, passedBy: 0 });
    await bench.engine.executions.submit([
      { kind: newKind(), delay: 500_000 },
      { kind: newKind(), delay: 900_000 },
    ]);
    const { nextDueInMs } = await workerPort(lonely).claim(nothing);
    expect(nextDueInMs).toBeGreaterThan(0);
    expect(nextDueInMs).toBeLessThanOrEqual(500_000);
    await bench.database.moveClock(500_000);
    expect(await workerPort(lonely).claim(nothing)).toMatchObject({ nextDueInMs: 0 });
    expect(await workerPort(lonely).fireTimers()).toBe(1);
    const later = await workerPort(lonely).claim(nothing);
    expect(later.nextDueInMs).toBeGreaterThan(0);
    expect(later.nextDueInMs).toBeLessThanOrEqual(400_000);
  });
});

describe('a watcher', () => {
  /** Watches an engine without a listening connection, so that its hints can be counted. */
  async function watched(kind: string) {
    await bench.running({ kind });
    const engine = await bench.another({ listen: 'off' });
    await workerPort(engine).claim({ ...claimRequest(), kinds: [kind] });
    const heard: Hint[] = [];
    const stop = workerPort(engine).watch({ kinds: [kind] }, (hint) => heard.push(hint) > 0);
    return { engine, heard, stop };
  }

  it('is notified of work it can run, and of no other', async () => {
    const [kind, other] = [newKind(), newKind()];
    await bench.running({ kind: other });
    const { engine, heard } = await watched(kind);
    await engine.executions.submit({ kind: other });
    await engine.executions.submit([{ kind }, { kind }]);
    expect(heard).toEqual([
      { count: 2, routes: [expect.any(Number)], dueInMs: null, workers: [], ended: [], streams: [] },
    ]);
  });

  it('is notified when a delay will be due', async () => {
    const { engine, heard } = await watched(newKind());
    await engine.executions.submit([
      { kind: newKind(), delay: 9_000 },
      { kind: newKind(), delay: 4_000 },
    ]);
    expect(heard).toMatchObject([{ dueInMs: 4_000 }]);
  });

  it('is notified when a retry will be due', async () => {
    const { engine, heard } = await watched(newKind());
    const claim = await bench.running({ policy: { retry: { maxRetries: 1 } } });
    await workerPort(engine).fail(claim, { message: 'no', retryAfterMs: 7_000 });
    expect(heard).toMatchObject([{ dueInMs: 7_000 }]);
  });

  it('is not notified after it stopped', async () => {
    const kind = newKind();
    const { engine, heard, stop } = await watched(kind);
    stop();
    await engine.executions.submit({ kind });
    expect(heard).toEqual([]);
  });

  it('is notified of work that came back, and the worker that lost it is too', async () => {
    const kind = newKind();
    const { executionId } = await bench.running({ kind });
    const { engine, heard } = await watched(kind);
    await engine.executions.revokeLease(executionId, { reason: 'slow' });
    await workerPort(engine).release(await bench.claimOne(kind));
    await engine.cancel((await bench.claimOne(kind)).executionId, { reason: 'enough' });
    expect(heard).toMatchObject([
      { workers: ['worker-1'], count: 1, routes: [expect.any(Number)] },
      { workers: [], count: 1, routes: [expect.any(Number)] },
      { workers: ['worker-1'], count: 0, routes: [] },
    ]);
  });

  it('in another process is notified too, if it listens', async () => {
    const kind = newKind();
    await bench.running({ kind });
    const other = await bench.another();
    await workerPort(other).claim({ ...claimRequest(), kinds: [kind] });
    const heard = vi.fn<(hint: Hint) => boolean>(() => false);
    workerPort(other).watch({ kinds: [kind] }, heard);
    if (!LISTENING) return;
    await vi.waitFor(async () => {
      await bench.submit({ kind });
      expect(heard.mock.calls.some(([hint]) => hint.routes !== 'all' && hint.routes.length === 1)).toBe(true);
    }, WAIT);
  });
});

it('a closed engine refuses every call and may be closed again', async () => {
  const engine = await bench.another();
  await engine.close();
  await engine.close();
  await expect(engine.executions.submit({ kind: newKind() })).rejects.toMatchObject({ code: 'closed' });
  await expect(workerPort(engine).claim({ ...claimRequest(), kinds: [newKind()] })).rejects.toMatchObject({
    code: 'closed',
  });
  await expect(workerPort(engine).fireTimers()).rejects.toMatchObject({ code: 'closed' });
  expect(() => workerPort(engine).watch({ kinds: [] }, () => false)).toThrow(/closed/);
});
