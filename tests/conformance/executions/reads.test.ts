/**
 * describe and result, in every state of an execution.
 */
import { describe, expect, it } from 'vitest';
import type { PublicState } from '../../../src/contract/states.ts';
import type { Claim } from '../../../src/protocol/index.ts';
import type { ExecutionId } from '../../../src/index.ts';
import { misplaced, newKind, useBench } from '../open.ts';

const bench = useBench();
const RETRYING = {
  policy: { retry: { maxRetries: 1, backoff: { type: 'fixed', delay: 60_000 } } },
} as const;

/** Brings an execution into a state and returns its id. */
interface State {
  name: string;
  make: () => Promise<ExecutionId>;
  state: string;
  result: object;
}

const pending = (state: PublicState) => ({ state, result: { outcome: 'pending', state } });

async function after(act: (claim: Claim) => Promise<unknown>, request = {}): Promise<ExecutionId> {
  const claim = await bench.running(request);
  await act(claim);
  return claim.executionId;
}

const STATES: State[] = [
  { name: 'waiting', make: () => bench.submit(), ...pending('waiting') },
  { name: 'delayed', make: () => bench.submit({ delay: 600_000 }), ...pending('delayed') },
  { name: 'running', make: async () => (await bench.running()).executionId, ...pending('active') },
  { name: 'released', make: () => after((claim) => bench.port.release(claim)), ...pending('waiting') },
  {
    name: 'backing off',
    make: () => after((claim) => bench.port.fail(claim, { message: 'ouch' }), RETRYING),
    ...pending('delayed'),
  },
  { name: 'lost and waiting', make: () => after(() => bench.loseLeases(), RETRYING), ...pending('waiting') },
  {
    name: 'revoked and waiting',
    make: () =>
      after(({ executionId }) => bench.engine.executions.revokeLease(executionId, { reason: 'slow' })),
    ...pending('waiting'),
  },
  {
    name: 'completed',
    make: () => after((claim) => bench.port.complete(claim, [1])),
    state: 'completed',
    result: { outcome: 'success', result: [1] },
  },
  {
    name: 'failed',
    make: () => after((claim) => bench.port.fail(claim, { message: 'ouch', category: 'c' })),
    state: 'failed',
    result: { outcome: 'failed', message: 'ouch', category: 'c', by: 'worker-1' },
  },
  {
    name: 'cancelled',
    make: () => after(({ executionId }) => bench.engine.cancel(executionId, { reason: 'why', by: 'ann' })),
    state: 'cancelled',
    result: { outcome: 'cancelled', message: 'why', category: 'cancelled', by: 'ann' },
  },
  {
    name: 'expired',
    make: () => after(() => bench.loseLeases()),
    state: 'expired',
    result: { outcome: 'expired', message: 'attempt_timeout', category: 'infra_crash', by: 'engine' },
  },
];

for (const { name, make, state, result } of STATES) {
  it(`an execution that is ${name} reads as ${state}`, async () => {
    const id = await make();
    const snapshot = await bench.snapshot(id);
    expect(snapshot).toMatchObject({ executionId: id, state, setbacks: [] });
    expect(await bench.engine.executions.result(id)).toEqual(result);
    const ended = !('state' in result);
    expect(snapshot.stateVector.lifecyclePhase === 'terminal').toBe(ended);
    expect(snapshot.endedAtMs === null).toBe(!ended);
    expect(snapshot.lease === null).toBe(name !== 'running');
    expect(snapshot.eligibleAtMs === null).toBe(state !== 'delayed');
  });
}

describe('an execution that does not exist', () => {
  it('is null to describe and not_found to result', async () => {
    const id = misplaced(await bench.submit());
    expect(await bench.engine.executions.describe(id)).toBeNull();
    expect(await bench.engine.executions.result(id)).toEqual({ outcome: 'not_found' });
  });
});

describe('timestamps', () => {
  it('follow the clock of the database: created, started, changed, finished', async () => {
    const kind = newKind();
    const id = await bench.submit({ kind });
    await bench.database.moveClock(1_000);
    const claim = await bench.claimOne(kind);
    const running = await bench.snapshot(id);
    await bench.database.moveClock(1_000);
    await bench.port.complete(claim);
    const { createdAtMs, startedAtMs, changedAtMs, endedAtMs } = await bench.snapshot(id);
    expect(running.startedAtMs! - createdAtMs).toBeGreaterThanOrEqual(1_000);
    expect(running.changedAtMs).toBe(running.startedAtMs);
    expect(startedAtMs).toBe(running.startedAtMs);
    expect(endedAtMs! - startedAtMs!).toBeGreaterThanOrEqual(1_000);
    expect(changedAtMs).toBe(endedAtMs);
  });

  it('of the start stay those of the first attempt', async () => {
    const kind = newKind();
    const claim = await bench.running({ kind, ...RETRYING });
    const { startedAtMs } = await bench.snapshot(claim.executionId);
    await bench.port.fail(claim, { message: 'ouch', retryAfterMs: 5_000 });
    await bench.database.moveClock(5_000);
    await bench.port.fireTimers();
    await bench.claimOne(kind);
    expect((await bench.snapshot(claim.executionId)).startedAtMs).toBe(startedAtMs);
  });
});

it('the history lists every finished attempt, oldest first, and the running one as the lease', async () => {
  const kind = newKind();
  const policy = { retry: { maxRetries: 5, backoff: { type: 'fixed', delay: 0 } } } as const;
  const first = await bench.running({ kind, policy });
  await bench.port.fail(first, { message: 'one' });
  await bench.port.fireTimers();
  await bench.claimOne(kind, { workerInstanceId: 'worker-2' });
  await bench.loseLeases();
  await bench.claimOne(kind, { workerInstanceId: 'worker-3' });
  await bench.engine.executions.revokeLease(first.executionId, { reason: 'slow' });
  await bench.claimOne(kind, { workerInstanceId: 'worker-4' });
  const { attempts, lease, attemptIndex, retryCount, reclaimCount } = await bench.snapshot(first.executionId);
  expect(attempts).toMatchObject([
    { attemptIndex: 0, outcome: 'failed', workerInstanceId: 'worker-1', failureMessage: 'one' },
    {
      attemptIndex: 1,
      outcome: 'interrupted',
      workerInstanceId: 'worker-2',
      failureMessage: 'attempt_timeout',
    },
    { attemptIndex: 2, outcome: 'interrupted', workerInstanceId: 'worker-3', failureMessage: 'slow' },
  ]);
  expect(lease).toMatchObject({ workerInstanceId: 'worker-4' });
  expect({ attemptIndex, retryCount, reclaimCount }).toEqual({
    attemptIndex: 3,
    retryCount: 2,
    reclaimCount: 2,
  });
});
