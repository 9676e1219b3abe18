/**
 * Why an execution does not run, on a real engine, for everything that can hold one back. The sentences themselves are
 * tested with the model; these tests check the facts behind them.
 */
import { afterEach, describe, expect, it } from 'vitest';
import type { Explanation, Gate, GateName } from '../../../src/contract/operations.ts';
import type { Claim, WorkerRegistration } from '../../../src/protocol/index.ts';
import type { ExecutionId } from '../../../src/index.ts';
import { misplaced, newKind, useBench } from '../open.ts';

const bench = useBench();
const MINUTE_MS = 60_000;
/** Longer than a worker counts as alive without a heartbeat. */
const SILENCE_MS = 30_001;
const RETRYING = {
  policy: { retry: { maxRetries: 5, backoff: { type: 'fixed', delay: MINUTE_MS } } },
} as const;

type Explained = Extract<Explanation, { outcome: 'explained' }>;

async function explain(id: ExecutionId): Promise<Explained> {
  const answer = await bench.engine.executions.explain(id);
  if (answer.outcome !== 'explained') throw new Error(`${id} was not found`);
  expect(answer.executionId).toBe(id);
  expect(answer.holding).toEqual(answer.gates.find(({ holds }) => holds) ?? null);
  return answer;
}

const holders = ({ gates }: Explained) => gates.filter(({ holds }) => holds).map((one) => one.gate);

async function gate(id: ExecutionId, name: GateName): Promise<Gate> {
  return (await explain(id)).gates.find((one) => one.gate === name)!;
}

let workers = 0;

/** Registers a worker with one free slot. */
async function worker(registration: Partial<WorkerRegistration> & { kinds: string[] }): Promise<string> {
  workers += 1;
  const workerInstanceId = registration.workerInstanceId ?? `w-${workers}`;
  await bench.port.registerWorker({
    workerInstanceId,
    workerId: 'w',
    concurrency: 1,
    running: 0,
    uptimeMs: 0,
    stopping: false,
    ...registration,
  });
  return workerInstanceId;
}

afterEach(async () => {
  for (const { workerInstanceId } of await bench.engine.workers.list())
    await bench.port.forgetWorker(workerInstanceId);
});

/** An execution that a free worker could claim at once. */
async function takeable(
  request: { kind?: string; lane?: string; delay?: number } = {},
): Promise<ExecutionId> {
  const kind = request.kind ?? newKind();
  await worker({ kinds: [kind] });
  return bench.submit({ ...request, kind });
}

describe('nothing', () => {
  it('holds an execution that a free worker should claim any moment', async () => {
    const answer = await explain(await takeable());
    expect(answer).toMatchObject({ state: 'waiting', holding: null });
    expect(holders(answer)).toEqual([]);
  });

  it('is known about an execution that does not exist', async () => {
    const id = misplaced(await bench.submit());
    expect(await bench.engine.executions.explain(id)).toEqual({ outcome: 'not_found' });
    await expect(bench.engine.executions.explain('nonsense')).rejects.toMatchObject({ code: 'invalid_id' });
  });
});

describe('a terminal state', () => {
  it.each<[string, (claim: Claim) => Promise<unknown>, object]>([
    ['completed', (claim) => bench.port.complete(claim, 1), { outcome: 'success', message: null }],
    [
      'failed',
      (claim) => bench.port.fail(claim, { message: 'no such user' }),
      { outcome: 'failed', message: 'no such user' },
    ],
    [
      'cancelled',
      ({ executionId }) => bench.engine.cancel(executionId, { reason: 'why' }),
      { outcome: 'cancelled', message: 'why' },
    ],
  ])('holds what is %s, and nothing else does', async (state, end, facts) => {
    const claim = await bench.running({ lane: 'paused-later' });
    await end(claim);
    await bench.engine.lanes.pause('paused-later');
    const answer = await explain(claim.executionId);
    await bench.engine.lanes.resume('paused-later');
    expect(holders(answer)).toEqual(['ended']);
    expect(answer).toMatchObject({ state, holding: { gate: 'ended', facts } });
    expect(answer.holding!.detail).toContain('replay');
  });
});

describe('running', () => {
  it('names the worker and the remaining time of its lease', async () => {
    const claim = await bench.running();
    const answer = await explain(claim.executionId);
    expect(answer.state).toBe('active');
    expect(holders(answer)).toEqual(['running']);
    expect(answer.holding!.facts['workerInstanceId']).toBe('worker-1');
    expect(answer.holding!.facts['expiresInMs']).toBeGreaterThan(0);
  });

  it('says when the worker has not been heard of, long before its lease expires', async () => {
    await worker({ workerInstanceId: 'worker-1', kinds: [newKind()] });
    const { executionId } = await bench.running();
    expect((await explain(executionId)).holding!.detail).not.toContain('heartbeat');
    await bench.database.moveClock(16_000);
    const { detail, facts } = (await explain(executionId)).holding!;
    expect(detail).toMatch(/^Worker worker-1 is running it, but has sent no heartbeat for 16s; /);
    expect(facts['silentForMs']).toBeGreaterThanOrEqual(16_000);
    await bench.port.forgetWorker('worker-1');
    expect((await explain(executionId)).holding!.detail).toContain(', but is not registered; ');
  });

  it('reports a lapsed lease that was not noticed yet', async () => {
    const claim = await bench.running(RETRYING);
    await bench.database.moveClock(MINUTE_MS);
    const { holding } = await explain(claim.executionId);
    expect(holding).toMatchObject({ gate: 'running', detail: expect.stringContaining('expired') });
    expect(holding!.facts['expiresInMs']).toBeLessThan(0);
    await bench.reconcile();
    expect(holders(await explain(claim.executionId))).toEqual(['no_worker']);
  });
});

describe('a setback', () => {
  const setBack = (id: ExecutionId, reconciler: string) =>
    bench.database.query(
      `INSERT INTO ff_setback SELECT $2, execution_id, partition_key, 3, ff_now_ms() + 60000, 'contention'
       FROM ff_execution WHERE execution_id = $1`,
      [id.split('}:')[1], reconciler],
    );
  const clear = () => bench.database.query('DELETE FROM ff_setback');

  it('holds an execution whose due timer could not be fired', async () => {
    const id = await takeable({ delay: 1_000 });
    await setBack(id, 'due-timers');
    await bench.database.moveClock(2_000);
    const answer = await explain(id);
    await clear();
    expect(answer.holding).toMatchObject({
      gate: 'setback',
      facts: { setbacks: [{ reconciler: 'due-timers', failures: 3, errorCode: 'contention' }] },
    });
    expect(holders(answer)).toEqual(['setback', 'delayed']);
  });

  it('concerns a lapsed lease, and not a valid one', async () => {
    const { executionId } = await bench.running(RETRYING);
    await setBack(executionId, 'expired-leases');
    expect(holders(await explain(executionId))).toEqual(['running']);
    await bench.database.moveClock(MINUTE_MS - 1);
    expect(holders(await explain(executionId))).toEqual(['running', 'setback']);
    await clear();
  });
});

describe('delayed', () => {
  it('holds an execution until its first start', async () => {
    const id = await takeable({ delay: 10 * MINUTE_MS });
    const answer = await explain(id);
    expect(answer).toMatchObject({ state: 'delayed', holding: { facts: { reason: 'first_start' } } });
    expect(holders(answer)).toEqual(['delayed']);
    expect(answer.holding!.facts['eligibleInMs']).toBeGreaterThan(9 * MINUTE_MS);
    await bench.database.moveClock(10 * MINUTE_MS);
    expect(await explain(id)).toMatchObject({ state: 'waiting', holding: { gate: 'delayed' } });
    await worker({ kinds: [(await bench.snapshot(id)).kind] });
    await bench.port.fireTimers();
    expect((await explain(id)).holding).toBeNull();
  });

  it('holds a sleeping execution', async () => {
    const kind = newKind();
    await worker({ kinds: [kind] });
    const claim = await bench.running({ kind });
    await bench.port.pause(claim, { wakeInMs: MINUTE_MS });
    const answer = await explain(claim.executionId);
    expect(answer.holding).toMatchObject({ gate: 'delayed', facts: { reason: 'sleep' } });
    expect(holders(answer)).toEqual(['delayed']);
  });

  it('is shown with the other gates that will hold afterwards', async () => {
    const lane = `lane-of-${newKind()}`;
    const id = await bench.submit({ delay: MINUTE_MS, lane });
    await bench.engine.lanes.pause(lane);
    expect(holders(await explain(id))).toEqual(['delayed', 'lane_paused', 'no_worker']);
  });
});

describe('backing off', () => {
  it('names the failure, the attempt and the time', async () => {
    const kind = newKind();
    await worker({ kinds: [kind] });
    const claim = await bench.running({ kind, ...RETRYING });
    await bench.port.fail(claim, { message: `boom ${'!'.repeat(500)}`, category: 'net' });
    const answer = await explain(claim.executionId);
    expect(holders(answer)).toEqual(['backing_off']);
    const { facts, detail } = answer.holding!;
    expect(facts).toMatchObject({ attemptIndex: 1, failedAttemptIndex: 0, category: 'net' });
    expect(facts['message']).toMatch(/^boom !{194}…$/);
    expect(detail).toContain('Attempt 1 failed (boom !!!');
    expect(facts['eligibleInMs']).toBeGreaterThan(0);
    expect(facts['eligibleInMs']).toBeLessThanOrEqual(MINUTE_MS);
  });
});

describe('waiting for children', () => {
  async function family(count: number): Promise<{ parent: Claim; ids: ExecutionId[]; childKind: string }> {
    const [kind, childKind] = [newKind(), newKind()];
    await worker({ kinds: [kind] });
    const parent = await bench.running({ kind });
    const spawned = await bench.port.spawn(
      parent,
      Array.from({ length: count }, () => ({ kind: childKind })),
    );
    if (spawned.outcome !== 'spawned') throw new Error('the parent lost its lease');
    return { parent, ids: spawned.children.map(({ executionId }) => executionId), childKind };
  }

  it('counts the open children, and names the first of them', async () => {
    const { parent, ids, childKind } = await family(7);
    await bench.port.pause(parent, { children: { executionIds: ids, needed: 6 } });
    const [child] = await bench.claim({ kinds: [childKind], limit: 1 });
    await bench.port.complete(child!);
    const answer = await explain(parent.executionId);
    expect(answer.state).toBe('waiting_children');
    expect(holders(answer)).toEqual(['waiting_children']);
    const stillOpen = ids.filter((id) => id !== child!.executionId);
    expect(answer.holding!.facts).toEqual({
      needed: 6,
      total: 7,
      ended: 1,
      open: 6,
      firstOpen: stillOpen.slice(0, 5),
    });
  });

  it('is shown beside the time that may come first, and gone when the execution resumes', async () => {
    const { parent, ids } = await family(1);
    const request = { wakeInMs: MINUTE_MS, children: { executionIds: ids, needed: 1 } };
    await bench.port.pause(parent, request);
    expect(holders(await explain(parent.executionId))).toEqual(['delayed', 'waiting_children']);
    await bench.database.moveClock(MINUTE_MS);
    await bench.port.fireTimers();
    expect(holders(await explain(parent.executionId))).not.toContain('waiting_children');
  });
});

describe('a paused lane', () => {
  it('holds what waits in it until it is resumed', async () => {
    const lane = `lane-of-${newKind()}`;
    const id = await takeable({ lane });
    await bench.engine.lanes.pause(lane, { reason: 'the mail server is down', by: 'ada' });
    const answer = await explain(id);
    const facts = { lane, pausedBy: 'ada', pauseReason: 'the mail server is down' };
    expect(answer.holding).toMatchObject({ gate: 'lane_paused', facts });
    expect(answer.holding!.detail).toMatch(/ has been paused for \d+m?s by ada \(the mail server is down\);/);
    expect(holders(answer)).toEqual(['lane_paused']);
    await bench.engine.lanes.resume(lane);
    expect((await explain(id)).holding).toBeNull();
    expect((await gate(id, 'lane_paused')).facts).toEqual({ lane });
  });

  it('reports how long it has been paused', async () => {
    const lane = `lane-of-${newKind()}`;
    const id = await bench.submit({ lane });
    await bench.engine.lanes.pause(lane);
    const { pausedAtMs } = (await explain(id)).holding!.facts;
    expect(pausedAtMs).toEqual(expect.any(Number));
    await bench.database.moveClock(190 * MINUTE_MS);
    const { detail, facts } = (await explain(id)).holding!;
    expect(detail).toContain('has been paused for 3h10m by operator;');
    expect(facts).toMatchObject({ pausedAtMs, pauseReason: null });
    expect(facts['pausedAgoMs']).toBeGreaterThanOrEqual(190 * MINUTE_MS);
  });

  it('holds when it was paused by SQL, without a note', async () => {
    const lane = `lane-of-${newKind()}`;
    const id = await takeable({ lane });
    await bench.database.query('UPDATE ff_lane SET paused = true WHERE lane = $1', [lane]);
    const { detail, facts } = (await explain(id)).holding!;
    expect(detail).toMatch(/^Lane \S+ is paused; nothing is claimed from it until it is resumed\.$/);
    expect(facts).toEqual({ lane, pausedAtMs: null, pausedAgoMs: null, pausedBy: null, pauseReason: null });
  });
});

describe('no worker', () => {
  const REQUEST = { lane: 'slow', capabilities: ['eu', 'gpu'] };
  const lacking = async (id: ExecutionId) => (await gate(id, 'no_worker')).facts['lacking'] ?? 'nothing';

  it('is registered, handles the kind, serves the lane, or offers the capabilities', async () => {
    const kind = newKind();
    const id = await bench.submit({ ...REQUEST, kind });
    expect(await lacking(id)).toBe('workers');
    await worker({ kinds: ['other'], lanes: ['slow'], capabilities: ['eu', 'gpu'] });
    expect(await lacking(id)).toBe('kind');
    await worker({ kinds: ['other', kind], lanes: ['fast'], capabilities: ['eu', 'gpu'] });
    expect(await lacking(id)).toBe('lane');
    await worker({ kinds: [kind], capabilities: ['gpu', 'us'] });
    expect(await lacking(id)).toBe('capabilities');
    expect((await gate(id, 'no_worker')).facts).toMatchObject({ live: 3, missingCapabilities: ['eu'] });
    expect(holders(await explain(id))).toEqual(['no_worker']);
    await worker({ kinds: [kind], lanes: ['fast', 'slow'], capabilities: ['us', 'gpu', 'eu'] });
    expect(await lacking(id)).toBe('nothing');
    expect((await explain(id)).holding).toBeNull();
  });

  it('agrees with whether a claim by such a worker is granted', async () => {
    const kind = newKind();
    const id = await bench.submit({ ...REQUEST, kind });
    const demand = { kinds: [kind], lanes: ['slow'], capabilities: ['eu', 'gpu'] };
    for (const lack of [{ lanes: [] }, { capabilities: ['eu'] }, { kinds: ['other'] }]) {
      const workerInstanceId = await worker({ ...demand, ...lack });
      expect(holders(await explain(id))).toEqual(['no_worker']);
      expect(await bench.claim({ ...demand, ...lack })).toEqual([]);
      await bench.port.forgetWorker(workerInstanceId);
    }
    await worker(demand);
    expect((await explain(id)).holding).toBeNull();
    expect(await bench.claim(demand)).toHaveLength(1);
  });

  it('counts as alive after a long silence', async () => {
    const id = await takeable();
    await bench.database.moveClock(SILENCE_MS);
    expect(await lacking(id)).toBe('workers');
  });
});

describe('busy workers', () => {
  it('hold what only they could run', async () => {
    const kind = newKind();
    const id = await bench.submit({ kind });
    await worker({ kinds: ['other'] });
    await worker({ kinds: [kind], concurrency: 2, running: 2 });
    await worker({ kinds: [kind], stopping: true });
    const answer = await explain(id);
    expect(answer.holding).toMatchObject({
      gate: 'workers_busy',
      facts: { matching: 2, free: 0, stopping: 1 },
    });
    await worker({ kinds: [kind], concurrency: 2, running: 1 });
    expect((await explain(id)).holding).toBeNull();
    expect(await gate(id, 'workers_busy')).toMatchObject({ facts: { matching: 3, free: 1, stopping: 1 } });
  });
});

describe('the queue', () => {
  it('holds what comes after others: by priority, then by age, on its own route only', async () => {
    const kind = newKind();
    await worker({ kinds: [kind] });
    const submit = (priority: number, lane = 'default') => bench.submit({ kind, priority, lane });
    const [low, middle, high] = [await submit(1), await submit(5), await submit(9)];
    const alsoMiddle = await submit(5);
    await submit(9, `lane-of-${kind}`);
    const ahead = async (id: ExecutionId) => (await gate(id, 'queued')).facts;
    expect(await ahead(high)).toEqual({ ahead: 0, isCapped: false });
    expect(await ahead(middle)).toEqual({ ahead: 1, isCapped: false });
    expect(await ahead(alsoMiddle)).toEqual({ ahead: 2, isCapped: false });
    expect(await ahead(low)).toEqual({ ahead: 3, isCapped: false });
    expect((await explain(high)).holding).toBeNull();
    expect((await explain(low)).holding).toMatchObject({ gate: 'queued' });
    // A cancelled execution leaves its entry behind, which no longer counts.
    await bench.engine.cancel([high, middle], { reason: 'why' });
    expect(await ahead(alsoMiddle)).toEqual({ ahead: 0, isCapped: false });
    expect(await ahead(low)).toEqual({ ahead: 1, isCapped: false });
  });

  it('is counted up to a limit', async () => {
    const kind = newKind();
    await worker({ kinds: [kind] });
    await bench.engine.executions.submit(Array.from({ length: 1_000 }, () => ({ kind })));
    const last = await bench.submit({ kind });
    expect((await explain(last)).holding).toMatchObject({
      gate: 'queued',
      facts: { ahead: 1_000, isCapped: true },
    });
  });
});
