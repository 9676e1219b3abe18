/**
 * The connection breaks at each operation, once before its statement reaches the server and once after its commit. The
 * call succeeds by the engine's own retry or reports that the database is unavailable, and the state is correct.
 */
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import type { Connection } from '../../../src/connect/connection.ts';
import type { Claim } from '../../../src/contract/protocol.ts';
import type { ExecutionId } from '../../../src/contract/ids.ts';
import { startFaultProxy, type FaultProxy } from '../../../src/testing/fault-proxy.ts';
import { AGAIN, newKind, resultOf, SOON, useCrew, uuidOf } from '../../worker/crew.ts';
import { faultsOf } from '../checker.ts';
import { workerPort } from '../../../src/connect/port.ts';

const LEASE_MS = 60_000;
const crew = useCrew();
let proxy: FaultProxy;

beforeAll(async () => {
  proxy = await startFaultProxy({ targetPort: Number(new URL(crew.database.url).port) });
});
afterEach(() => expect(proxy.connectionCount).toBe(0));
afterAll(() => proxy.close());

type When = 'before' | 'after';

async function cut(when: When, pattern: string | RegExp): Promise<void> {
  await (when === 'before' ? proxy.cutBefore(pattern) : proxy.cutAfter(pattern));
}

/** An engine behind the proxy; closed by the test, so that no connection of one test hits a fault of the next. */
async function withEngine(use: (engine: Connection, kind: string) => Promise<void>): Promise<void> {
  const engine = await crew.connect({ databaseUrl: proxy.url(crew.database.url), listen: 'off' });
  try {
    await use(engine, newKind());
  } finally {
    await engine.close();
    await expect.poll(() => proxy.connectionCount, SOON).toBe(0);
  }
}

function claimAll(engine: Connection, kind: string, workerInstanceId = 'w-1', limit = 10): Promise<Claim[]> {
  const request = { workerId: 'w', workerInstanceId, kinds: [kind], limit, leaseMs: LEASE_MS };
  return workerPort(engine)
    .claim(request)
    .then(({ claims }) => claims);
}

async function oneClaim(engine: Connection, kind: string): Promise<Claim> {
  await engine.executions.submit({ kind, policy: AGAIN });
  const [claim] = await claimAll(engine, kind);
  return claim!;
}

async function countOf(kind: string): Promise<number> {
  const found = await crew.database.query<{ n: number }>(
    'SELECT count(*) AS n FROM ff_execution JOIN ff_route USING (route_id) WHERE kind = $1',
    [kind],
  );
  return found.rows[0]!.n;
}

const sorted = (ids: readonly { executionId: ExecutionId }[]) =>
  ids.map((item) => item.executionId).toSorted();

describe.each(['before', 'after'] as const)('cut %s the commit', (when) => {
  const repeated = when === 'after';

  test('a submit happens once', () =>
    withEngine(async (engine, kind) => {
      const struck = cut(when, 'ff_submit');
      const submitted = await engine.executions.submit([{ kind }, { kind }, { kind }]);
      await struck;
      expect(submitted.map(({ outcome }) => outcome)).toEqual(['submitted', 'submitted', 'submitted']);
      expect(await countOf(kind)).toBe(3);
      expect(sorted(await claimAll(engine, kind))).toEqual(sorted(submitted));
    }));

  test('a complete returns completed', () =>
    withEngine(async (engine, kind) => {
      const claim = await oneClaim(engine, kind);
      const struck = cut(when, 'ff_complete');
      expect(await workerPort(engine).complete(claim, { answer: 42 })).toEqual({
        outcome: 'completed',
        repeated,
      });
      await struck;
      expect(await engine.executions.result(claim.executionId)).toEqual({
        outcome: 'success',
        result: { answer: 42 },
      });
      expect(await faultsOf(crew.database.url, kind)).toEqual([]);
    }));

  test('a fail spends one retry', () =>
    withEngine(async (engine, kind) => {
      const claim = await oneClaim(engine, kind);
      const struck = cut(when, 'ff_fail');
      expect(await workerPort(engine).fail(claim, { message: 'no' })).toMatchObject({
        outcome: 'retry_scheduled',
        repeated,
      });
      await struck;
      expect(await engine.executions.describe(claim.executionId)).toMatchObject({
        retryCount: 1,
        attemptIndex: 1,
      });
      expect(await crew.eventsOf(claim.executionId)).toEqual(['lease.acquired', 'lease.released']);
      // Its timer must not be among those another test fires.
      await engine.cancel(claim.executionId, { reason: 'done' });
    }));

  test('a release happens once', () =>
    withEngine(async (engine, kind) => {
      const claim = await oneClaim(engine, kind);
      const struck = cut(when, 'ff_release');
      expect(await workerPort(engine).release(claim)).toEqual({ outcome: 'released', repeated });
      await struck;
      const [again, ...more] = await claimAll(engine, kind);
      expect(more).toEqual([]);
      expect(again).toMatchObject({ executionId: claim.executionId, attemptIndex: 0, resumed: true });
    }));

  test('a cancel cancels', () =>
    withEngine(async (engine, kind) => {
      const claim = await oneClaim(engine, kind);
      const struck = cut(when, 'ff_cancel');
      const { outcome } = await engine.cancel(claim.executionId, { reason: 'no' });
      await struck;
      expect(outcome).toBe(when === 'before' ? 'cancelled' : 'already_cancelled');
      expect(await resultOf(engine, claim.executionId)).toBe('cancelled');
      expect(await faultsOf(crew.database.url, kind)).toEqual([]);
    }));

  test('a renewal keeps the lease', () =>
    withEngine(async (engine, kind) => {
      const claim = await oneClaim(engine, kind);
      const before = (await engine.executions.describe(claim.executionId))!.lease!.expiresAtMs;
      const struck = cut(when, 'ff_renew');
      expect(await workerPort(engine).renew([claim], 2 * LEASE_MS)).toEqual([{ outcome: 'renewed' }]);
      await struck;
      const after = (await engine.executions.describe(claim.executionId))!.lease!.expiresAtMs;
      expect(after).toBeGreaterThanOrEqual(before + LEASE_MS);
    }));

  test('firing timers makes each claimable once', () =>
    withEngine(async (engine, kind) => {
      await engine.executions.submit([
        { kind, delay: 1_000 },
        { kind, delay: 1_000 },
      ]);
      await crew.database.moveClock(1_000);
      const struck = cut(when, 'ff_fire_timers');
      // Timers left by other tests may be due as well; a repeated firing finds none.
      const due = await workerPort(engine).fireTimers();
      expect(when === 'before' ? due >= 2 : due === 0).toBe(true);
      await struck;
      expect(await claimAll(engine, kind)).toHaveLength(2);
    }));

  test('a revocation that names no lease is not retried', () =>
    withEngine(async (engine, kind) => {
      const claim = await oneClaim(engine, kind);
      const struck = cut(when, 'ff_revoke_leases');
      await expect(
        engine.executions.revokeLease(claim.executionId, { reason: 'stuck' }),
      ).rejects.toMatchObject({
        code: 'unavailable',
      });
      await struck;
      const found = await engine.executions.describe(claim.executionId);
      expect(found).toMatchObject({ reclaimCount: when === 'before' ? 0 : 1 });
    }));

  test('what a claim was granted is found by the next claim of the same worker', () =>
    withEngine(async (engine, kind) => {
      const submitted = await engine.executions.submit([{ kind }, { kind }, { kind }]);
      const struck = cut(when, 'ff_claim(');
      await expect(claimAll(engine, kind)).rejects.toMatchObject({ code: 'unavailable' });
      await struck;
      const found = await claimAll(engine, kind);
      expect(sorted(found)).toEqual(sorted(submitted));
      expect(found.map(({ attemptIndex, leaseEpoch }) => [attemptIndex, leaseEpoch])).toEqual(
        submitted.map(() => [0, 1]),
      );
      // Another worker gets nothing, and the first one nothing twice.
      expect(await claimAll(engine, kind, 'w-2')).toEqual([]);
      expect(await claimAll(engine, kind)).toEqual([]);
      for (const claim of found)
        expect(await workerPort(engine).complete(claim)).toMatchObject({ outcome: 'completed' });
      expect(await faultsOf(crew.database.url, kind)).toEqual([]);
    }));

  test('a worker completes everything on the first attempt', () =>
    withEngine(async (engine, kind) => {
      const submitted = await engine.executions.submit(Array.from({ length: 20 }, () => ({ kind })));
      const struck = ['ff_claim(', 'ff_complete'].map((name) => cut(when, name));
      const worker = crew.work(engine, { poll: 50, handlers: { [kind]: () => undefined } });
      await Promise.all(struck);
      await expect.poll(() => worker.stats.completed, SOON).toBe(20);
      expect(worker.stats).toMatchObject({ lost: 0, failed: 0, claimErrors: 1 });
      await worker.stop();
      expect(await faultsOf(crew.database.url, kind)).toEqual([]);
      for (const { executionId } of submitted) {
        const events = await crew.eventsOf(executionId);
        expect(events.filter((event) => event !== 'lease.renewed')).toEqual([
          'lease.acquired',
          'completion.success',
        ]);
      }
    }));
});

test.each([1, 2, 3])('what a lost claim of three was granted is handed out once, %i at a time', (limit) =>
  withEngine(async (engine, kind) => {
    const submitted = await engine.executions.submit([{ kind }, { kind }, { kind }]);
    const struck = cut('after', 'ff_claim(');
    await expect(claimAll(engine, kind, 'w-1', 3)).rejects.toMatchObject({ code: 'unavailable' });
    await struck;
    const found: Claim[] = [];
    for (let round = 0; round < 5; round += 1) {
      const both = [claimAll(engine, kind, 'w-1', limit), claimAll(engine, kind, 'w-1', limit)];
      found.push(...(await Promise.all(both)).flat());
    }
    expect(sorted(found)).toEqual(sorted(submitted));
  }),
);

/** Matches from its second use on: the statement of the second round of one claim call. */
class SecondTime extends RegExp {
  #seen = 0;

  override [Symbol.search](text: string): number {
    const at = super[Symbol.search](text);
    if (at >= 0) this.#seen += 1;
    return this.#seen > 1 ? at : -1;
  }
}

test('a claim that goes lane by lane and breaks at the second one does not lose what the first one granted', () =>
  withEngine(async (engine, kind) => {
    const lanes = [`a-${kind}`, `b-${kind}`];
    // A claim that found something makes the next one go through the lanes in turn.
    await engine.executions.submit(lanes.map((lane) => ({ kind, lane })));
    expect(await claimAll(engine, kind)).toHaveLength(2);
    const submitted = await engine.executions.submit(lanes.map((lane) => ({ kind, lane })));
    const struck = proxy.cutAfter(new SecondTime(String.raw`ff_claim\(`));
    const found = await claimAll(engine, kind);
    await struck;
    expect(found).toHaveLength(1);
    found.push(...(await claimAll(engine, kind)));
    expect(sorted(found)).toEqual(sorted(submitted));
  }));

test('cutting every connection of a busy worker again and again only costs time', () =>
  withEngine(async (engine, kind) => {
    const worker = crew.work(engine, {
      poll: 50,
      handlers: { [kind]: ({ payload }: { payload: number }) => payload * 2 },
    });
    const ids: ExecutionId[] = [];
    for (let round = 0; round < 8; round += 1) {
      const payloads = Array.from({ length: 10 }, (_, n) => ({ kind, payload: n, policy: AGAIN }));
      const submitted = engine.executions.submit(payloads);
      proxy.cutAll();
      ids.push(...(await submitted).map(({ executionId }) => executionId));
      await expect.poll(() => worker.stats.completed, SOON).toBeGreaterThan(round * 5);
      proxy.cutAll();
    }
    const pending = async () =>
      (await Promise.all(ids.map((id) => resultOf(engine, id)))).filter((outcome) => outcome !== 'success');
    await expect.poll(pending, SOON).toEqual([]);
    await worker.stop();
    expect(worker.stats.lost).toBe(0);
    expect(await faultsOf(crew.database.url, kind)).toEqual([]);
    expect(new Set(ids.map((id) => uuidOf(id))).size).toBe(80);
  }));
