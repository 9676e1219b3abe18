/**
 * Freeing the worker without finishing the attempt, until a time or until children have finished; and spawning them.
 * Time passes by moving the clock, and timers fire when a test fires them.
 */
import { describe, expect, it } from 'vitest';
import { uuidV7 } from '../../../src/contract/ids.ts';
import { LIMITS, type ExecutionId } from '../../../src/index.ts';
import type { Claim, PauseRequest } from '../../../src/protocol/index.ts';
import { startFaultProxy } from '../../../src/testing/fault-proxy.ts';
import { LEASE_MS, misplaced, newKind, useBench } from '../open.ts';
import { workerPort } from '../../../src/connect/port.ts';

const bench = useBench();
const MINUTE_MS = 60_000;
const WHY = { reason: 'why' };

function newId(): ExecutionId {
  return `{fp:9}:${uuidV7(1_700_000_000_000, crypto.getRandomValues(new Uint8Array(10)))}`;
}

interface Family {
  kind: string;
  parent: Claim;
  children: Claim[];
  ids: ExecutionId[];
}

/** A running parent and its running children. */
async function family(count: number): Promise<Family> {
  const [kind, childKind] = [newKind(), newKind()];
  const parent = await bench.running({ kind });
  await bench.port.spawn(
    parent,
    Array.from({ length: count }, () => ({ kind: childKind })),
  );
  const children = await bench.claim({ kinds: [childKind], leaseMs: 10 * LEASE_MS });
  return { kind, parent, children, ids: children.map(({ executionId }) => executionId) };
}

const forChildren = (ids: readonly string[], needed = ids.length): PauseRequest => ({
  children: { executionIds: ids, needed },
});

/** Fires whatever is due. */
async function fire(): Promise<void> {
  while ((await bench.port.fireTimers()) > 0);
}

describe('a pause until a time', () => {
  it('returns the lease, keeps the attempt, and finishes by the clock of the database', async () => {
    const kind = newKind();
    const claim = await bench.running({ kind });
    expect(await bench.port.pause(claim, { wakeInMs: MINUTE_MS })).toEqual({
      outcome: 'paused',
      repeated: false,
    });
    const paused = await bench.snapshot(claim.executionId);
    expect(paused).toMatchObject({
      state: 'delayed',
      lease: null,
      attemptIndex: 0,
      stateVector: {
        lifecyclePhase: 'runnable',
        eligibilityState: 'not_eligible_until_time',
        blockingReason: 'waiting_for_delay',
        attemptState: 'attempt_interrupted',
      },
      attempts: [{ attemptIndex: 0, outcome: null }],
    });
    expect(paused.eligibleAtMs).toBeGreaterThan(paused.startedAtMs! + MINUTE_MS - 1);
    await fire();
    expect(await bench.claim({ kinds: [kind] })).toEqual([]);
    await bench.database.moveClock(MINUTE_MS);
    await fire();
    const resumed = await bench.claimOne(kind);
    expect(resumed).toMatchObject({
      executionId: claim.executionId,
      attemptIndex: 0,
      resumed: true,
      retryCount: 0,
    });
    expect(await bench.port.complete(resumed)).toMatchObject({ outcome: 'completed' });
    expect((await bench.snapshot(claim.executionId)).attempts).toHaveLength(1);
  });

  it('of zero is due at once, any number of times', async () => {
    const kind = newKind();
    let claim = await bench.running({ kind });
    for (let round = 0; round < 3; round += 1) {
      expect(await bench.port.pause(claim, { wakeInMs: 0 })).toMatchObject({ outcome: 'paused' });
      await fire();
      claim = await bench.claimOne(kind);
    }
    expect(claim).toMatchObject({ attemptIndex: 0, resumed: true, leaseEpoch: 4 });
  });

  it('may be as long as the longest delay', async () => {
    const claim = await bench.running();
    expect(await bench.port.pause(claim, { wakeInMs: LIMITS.delayMs })).toMatchObject({
      outcome: 'paused',
    });
  });

  it('can be cancelled, and its timer then has no effect', async () => {
    const claim = await bench.running();
    await bench.port.pause(claim, { wakeInMs: MINUTE_MS });
    expect(await bench.engine.cancel(claim.executionId, WHY)).toMatchObject({ outcome: 'cancelled' });
    await bench.database.moveClock(MINUTE_MS);
    await fire();
    expect(await bench.snapshot(claim.executionId)).toMatchObject({ state: 'cancelled' });
  });
});

describe('a pause for children', () => {
  it('blocks until the last one needed has finished, whatever its outcome', async () => {
    const { kind, parent, children, ids } = await family(3);
    expect(await bench.port.pause(parent, forChildren(ids))).toEqual({
      outcome: 'paused',
      repeated: false,
    });
    expect(await bench.snapshot(parent.executionId)).toMatchObject({
      state: 'waiting_children',
      stateVector: { eligibilityState: 'blocked_by_dependencies', blockingReason: 'waiting_for_children' },
    });
    await bench.port.complete(children[0]!);
    await bench.port.fail(children[1]!, { message: 'no' });
    await fire();
    expect(await bench.claim({ kinds: [kind] })).toEqual([]);
    await bench.engine.cancel(ids[2]!, WHY);
    await fire();
    expect(await bench.claimOne(kind)).toMatchObject({ attemptIndex: 0, resumed: true });
  });

  it('finishes with the first when one is enough', async () => {
    const { kind, parent, children, ids } = await family(2);
    await bench.port.pause(parent, forChildren(ids, 1));
    await bench.port.complete(children[1]!);
    await fire();
    const resumed = await bench.claimOne(kind);
    await bench.port.complete(children[0]!);
    await fire();
    expect(await bench.port.complete(resumed)).toMatchObject({ outcome: 'completed' });
  });

  it('does not start when enough have finished: the lease is kept', async () => {
    const { parent, children, ids } = await family(2);
    await bench.port.complete(children[0]!);
    expect(await bench.port.pause(parent, forChildren(ids, 1))).toEqual({ outcome: 'due' });
    expect(await bench.port.pause(parent, { ...forChildren(ids, 1), wakeInMs: 5 })).toEqual({
      outcome: 'due',
    });
    expect(await bench.snapshot(parent.executionId)).toMatchObject({ state: 'active' });
    expect(await bench.port.complete(parent)).toMatchObject({ outcome: 'completed' });
  });

  it('or a time finishes with whichever comes first', async () => {
    const [early, late] = [await family(1), await family(1)];
    for (const { parent, ids } of [early, late]) {
      expect(await bench.port.pause(parent, { ...forChildren(ids), wakeInMs: MINUTE_MS })).toMatchObject({
        outcome: 'paused',
      });
    }
    await bench.port.complete(early.children[0]!);
    await fire();
    const woken = await bench.claimOne(early.kind, { leaseMs: 10 * LEASE_MS });
    expect(await bench.claim({ kinds: [late.kind] })).toEqual([]);
    await bench.database.moveClock(MINUTE_MS);
    await fire();
    expect(await bench.claimOne(late.kind)).toMatchObject({ executionId: late.parent.executionId });
    // The later of the two has no effect.
    expect(await bench.port.complete(woken)).toMatchObject({ outcome: 'completed' });
  });

  it('can be repeated, for other children', async () => {
    const { kind, parent, children, ids } = await family(2);
    await bench.port.pause(parent, forChildren(ids.slice(0, 1)));
    await bench.port.complete(children[0]!);
    await fire();
    const second = await bench.claimOne(kind);
    expect(await bench.port.pause(second, forChildren(ids))).toEqual({
      outcome: 'paused',
      repeated: false,
    });
    await bench.port.complete(children[1]!);
    await fire();
    expect(await bench.claimOne(kind)).toMatchObject({ leaseEpoch: expect.any(Number), resumed: true });
  });

  it('finishes when the lease of a child lapses for the last time', async () => {
    const kind = newKind();
    const parent = await bench.running({ kind });
    const childKind = newKind();
    const spawned = await bench.port.spawn(parent, [{ kind: childKind }]);
    await bench.claimOne(childKind);
    await bench.port.pause(
      parent,
      forChildren(
        spawned.outcome === 'spawned' ? spawned.children.map(({ executionId }) => executionId) : [],
      ),
    );
    await bench.loseLeases();
    await fire();
    expect(await bench.claimOne(kind)).toMatchObject({ executionId: parent.executionId });
  });
});

/** A lease that its worker has lost, and the outcomes of a pause and a spawn under it. */
const LOST: Record<
  string,
  { lose: (claim: Claim, kind: string) => Promise<unknown>; pause: object; spawn?: object }
> = {
  completed: {
    lose: (claim) => bench.port.complete(claim),
    pause: { outcome: 'conflict', lifecyclePhase: 'terminal', terminalOutcome: 'success' },
    spawn: { outcome: 'not_active', lifecyclePhase: 'terminal', terminalOutcome: 'success', leaseEpoch: 1 },
  },
  failed: {
    lose: (claim) => bench.port.fail(claim, { message: 'no' }),
    pause: { outcome: 'conflict', lifecyclePhase: 'terminal', terminalOutcome: 'failed' },
    spawn: { outcome: 'not_active', lifecyclePhase: 'terminal', terminalOutcome: 'failed', leaseEpoch: 1 },
  },
  cancelled: {
    lose: (claim) => bench.engine.cancel(claim.executionId, WHY),
    pause: { outcome: 'not_active', lifecyclePhase: 'terminal', terminalOutcome: 'cancelled', leaseEpoch: 2 },
  },
  revoked: {
    lose: (claim) => bench.engine.executions.revokeLease(claim.executionId, WHY),
    pause: { outcome: 'lease_revoked' },
  },
  lapsed: { lose: () => bench.database.moveClock(LEASE_MS), pause: { outcome: 'lease_expired' } },
  'lapsed and noticed': { lose: () => bench.loseLeases(), pause: { outcome: 'lease_expired' } },
  'revoked and granted to another worker': {
    lose: async (claim, kind) => {
      await bench.engine.executions.revokeLease(claim.executionId, WHY);
      await bench.claimOne(kind);
    },
    pause: { outcome: 'lease_revoked' },
  },
};

describe('without the lease', () => {
  it.each(Object.keys(LOST))('that was %s, neither a pause nor a child is created', async (how) => {
    const kind = newKind();
    const childKind = newKind();
    const claim = await bench.running({ kind });
    const { lose, pause, spawn } = LOST[how]!;
    await lose(claim, kind);
    expect(await bench.port.pause(claim, { wakeInMs: 1 })).toEqual(pause);
    expect(await bench.port.pause(claim, forChildren([newId()]))).toEqual(pause);
    expect(await bench.port.spawn(claim, [{ kind: childKind }])).toEqual(spawn ?? pause);
    expect(await bench.claim({ kinds: [childKind] })).toEqual([]);
  });

  it('of an unknown epoch, the outcome is stale_lease', async () => {
    const claim = await bench.running();
    const stale = { ...claim, leaseEpoch: 9 };
    expect(await bench.port.pause(stale, { wakeInMs: 1 })).toEqual({
      outcome: 'stale_lease',
      leaseEpoch: 1,
    });
    expect(await bench.port.spawn(stale, [{ kind: newKind() }])).toEqual({
      outcome: 'stale_lease',
      leaseEpoch: 1,
    });
  });

  it('of an execution that does not exist, the outcome is not_found', async () => {
    const claim = await bench.running();
    const elsewhere = { ...claim, executionId: misplaced(claim.executionId) };
    expect(await bench.port.pause(elsewhere, { wakeInMs: 1 })).toEqual({ outcome: 'not_found' });
    expect(await bench.port.spawn(elsewhere, [{ kind: newKind() }])).toEqual({ outcome: 'not_found' });
  });
});

describe('a repeated call', () => {
  it('returns the first outcome, even when the attempt has continued since', async () => {
    const kind = newKind();
    const first = await bench.running({ kind });
    const again = { outcome: 'paused', repeated: true };
    await bench.port.pause(first, { wakeInMs: 0 });
    expect(await bench.port.pause(first, { wakeInMs: 0 })).toEqual(again);
    await fire();
    const second = await bench.claimOne(kind);
    expect(await bench.port.pause(first, { wakeInMs: 0 })).toEqual(again);
    expect(await bench.snapshot(first.executionId)).toMatchObject({ state: 'active' });
    await bench.port.complete(second);
    expect(await bench.port.pause(first, { wakeInMs: 0 })).toEqual(again);
  });

  it('whose response was lost takes effect once', async () => {
    const proxy = await startFaultProxy({ targetPort: Number(new URL(bench.database.url).port) });
    const engine = await bench.another({ databaseUrl: proxy.url(bench.database.url), listen: 'off' });
    try {
      const [kind, childKind] = [newKind(), newKind()];
      const claim = await bench.running({ kind });
      let cut = proxy.cutAfter('ff_spawn');
      const spawned = await workerPort(engine).spawn(claim, [{ kind: childKind }, { kind: childKind }]);
      await cut;
      expect(spawned).toMatchObject({ children: [{ outcome: 'submitted' }, { outcome: 'submitted' }] });
      expect(await bench.claim({ kinds: [childKind] })).toHaveLength(2);
      cut = proxy.cutAfter('ff_pause');
      const paused = await workerPort(engine).pause(claim, { wakeInMs: 0 });
      await cut;
      expect(paused).toEqual({ outcome: 'paused', repeated: true });
      await fire();
      expect(await bench.claimOne(kind)).toMatchObject({ attemptIndex: 0, leaseEpoch: 2 });
    } finally {
      await engine.close();
      await proxy.close();
    }
  });
});

describe('spawn', () => {
  it('submits children that know their parent', async () => {
    const parent = await bench.running({ executionId: newId() });
    const [kind, executionId] = [newKind(), newId()];
    const spawned = await bench.port.spawn(parent, [
      { kind, executionId, payload: { n: 1 } },
      { kind: newKind(), delay: MINUTE_MS },
    ]);
    expect(spawned).toMatchObject({
      outcome: 'spawned',
      children: [{ executionId, outcome: 'submitted' }, {}],
    });
    expect(await bench.snapshot(executionId)).toMatchObject({ parentId: parent.executionId });
    expect(await bench.claimOne(kind)).toMatchObject({ executionId, payload: { n: 1 } });
    expect(await bench.port.spawn(parent, [{ kind, executionId }])).toEqual({
      outcome: 'spawned',
      children: [{ executionId, outcome: 'duplicate' }],
    });
  });

  it('of an empty list creates nothing', async () => {
    expect(await bench.port.spawn(await bench.running(), [])).toEqual({ outcome: 'spawned', children: [] });
  });

  it('creates children that outlive their parent and do not wake it once it has finished', async () => {
    const { parent, children } = await family(1);
    await bench.port.complete(parent);
    await bench.port.complete(children[0]!);
    await fire();
    expect(await bench.snapshot(parent.executionId)).toMatchObject({ state: 'completed' });
  });
});
