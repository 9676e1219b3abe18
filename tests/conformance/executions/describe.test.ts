/**
 * What `describe` returns on request: input, steps, children, waits and timeline, each bounded; and the detail of
 * failures, which is kept for each attempt.
 */
import { describe, expect, expectTypeOf, it } from 'vitest';
import {
  atLeast,
  LIMITS,
  type DescribedExecution,
  type ExecutionId,
  type FailureDetail,
  type ListedStep,
} from '../../../src/index.ts';
import type { Claim } from '../../../src/protocol/index.ts';
import { newKind, useBench } from '../open.ts';

const bench = useBench();
const RETRYING = { policy: { retry: { maxRetries: 9, backoff: { type: 'fixed', delay: 0 } } } } as const;

async function inside<const Part extends 'input' | 'steps' | 'children' | 'waits' | 'timeline'>(
  id: ExecutionId,
  ...include: Part[]
): Promise<DescribedExecution<Part>> {
  return (await bench.engine.executions.describe(id, { include }))!;
}

/** Fails the attempt and claims the next one. */
async function failed(claim: Claim, failure: { message: string; detail?: FailureDetail }): Promise<Claim> {
  await bench.port.fail(claim, failure);
  await bench.port.fireTimers();
  return bench.claimOne(claim.kind);
}

function detail(name: string, stack = 'at work (/srv/app/work.js:1:2)'): FailureDetail {
  return { name, stack, causes: [{ name: 'Error', message: 'no route', at: null }] };
}

describe('the description of an execution', () => {
  it('has the parts that are asked for, and their types, and no others', async () => {
    const id = await bench.submit({ payload: { user: 'ada' } });
    const plain = await bench.engine.executions.describe(id);
    expect(Object.keys(plain!)).not.toContain('input');
    const found = await inside(id, 'input', 'steps');
    expect(found).toEqual({ ...plain, input: { user: 'ada' }, steps: { items: [], truncated: false } });
    expectTypeOf(found.steps.items).toEqualTypeOf<ListedStep[]>();
    expectTypeOf(found).not.toHaveProperty('children');
    expectTypeOf(plain!).not.toHaveProperty('steps');
  });

  it.each([
    ['a part that does not exist', { include: ['stepz'] }, 'options.include[0]'],
    ['what is not a list', { include: 'steps' }, 'options.include'],
    ['an unknown option', { parts: [] }, 'options.parts'],
  ])('refuses %s', async (_, options, field) => {
    const id = await bench.submit();
    await expect(bench.engine.executions.describe(id, options as never)).rejects.toMatchObject({
      code: 'invalid_input',
      field,
    });
  });

  it('is null for an execution that does not exist, whatever is asked for', async () => {
    const id = '{fp:3}:01890a5d-ac96-774b-bcce-b302099a8057';
    expect(await bench.engine.executions.describe(id, { include: ['steps', 'timeline'] })).toBeNull();
  });
});

describe('the steps of a description', () => {
  it('are in the order they were recorded, with attempt, duration and value', async () => {
    const claim = await bench.running(RETRYING);
    await bench.port.recordStep(claim, { name: 'b', key: '1', value: { ok: true }, durationMs: 12 });
    await bench.database.moveClock(5);
    const next = await failed(claim, { message: 'no' });
    await bench.port.recordStep(next, { name: 'a', value: null });
    await bench.database.moveClock(5);
    await bench.port.recordStep(next, { name: 'rest', sleepMs: 1_000 });
    const { steps } = await inside(claim.executionId, 'steps');
    expect(steps).toMatchObject({
      items: [
        { name: 'b', key: '1', kind: 'step', attemptIndex: 0, durationMs: 12, value: { ok: true } },
        { name: 'a', key: '', kind: 'step', attemptIndex: 1, durationMs: null, value: null },
        { name: 'rest', kind: 'sleep', durationMs: null, valueStart: null },
      ],
      truncated: false,
    });
    const times = steps.items.map(({ recordedAtMs }) => recordedAtMs);
    expect(times).toEqual(times.toSorted((one, other) => one - other));
    expect(await bench.engine.executions.listSteps(claim.executionId)).toMatchObject(
      steps.items.map(({ name, recordedAtMs }) => ({ name, recordedAtMs })),
    );
  });

  it('are the last ones of 1,000, and it says that there are more', async () => {
    const claim = await bench.running();
    const record = (n: number) => bench.port.recordStep(claim, { name: 'round', key: String(n), value: n });
    await Promise.all(Array.from({ length: 999 }, (_, n) => record(n)));
    await bench.database.moveClock(5);
    await record(999);
    const { steps, stepCount } = await inside(claim.executionId, 'steps');
    expect({ stepCount, shown: steps.items.length }).toEqual({
      stepCount: 1_000,
      shown: LIMITS.describedSteps,
    });
    expect(steps.truncated).toBe(true);
    expect(steps.items.at(-1)).toMatchObject({ key: '999', value: 999 });
    expect(await bench.engine.executions.listSteps(claim.executionId)).toHaveLength(1_000);
  });

  it('have the beginning of a value that is too large, and its size', async () => {
    const claim = await bench.running();
    const value = 'ü'.repeat(LIMITS.describedValueBytes);
    await bench.port.recordStep(claim, { name: 'large', value });
    const [step] = (await inside(claim.executionId, 'steps')).steps.items;
    expect(step).toMatchObject({ value: null, valueBytes: 2 * LIMITS.describedValueBytes + 2 });
    expect(Buffer.byteLength(step!.valueStart!)).toBeLessThanOrEqual(LIMITS.describedValueBytes);
    expect(`"${value}"`.startsWith(step!.valueStart!)).toBe(true);
    expect(await bench.engine.executions.listSteps(claim.executionId)).toMatchObject([
      { value, valueStart: null },
    ]);
  });
});

describe('the children and waits of a description', () => {
  it('are the executions it spawned, oldest first', async () => {
    const claim = await bench.running();
    const kind = newKind();
    await bench.port.spawn(claim, [{ kind }]);
    await bench.database.moveClock(5);
    await bench.port.spawn(claim, [{ kind, payload: 2 }]);
    const { children } = await inside(claim.executionId, 'children');
    expect(children).toMatchObject({ items: [{ kind, state: 'waiting' }, { kind }], truncated: false });
    const [first, second] = children.items;
    expect(first!.createdAtMs).toBeLessThan(second!.createdAtMs);
    expect(Object.keys(first!).toSorted()).toEqual(['createdAtMs', 'executionId', 'kind', 'state']);
  });

  it('are its open waitpoints with the signals received so far', async () => {
    const claim = await bench.running();
    const condition = { ...atLeast(2).distinctSources().at('manager') };
    await bench.port.suspend(claim, { waits: [{ name: 'manager', condition }] });
    await bench.engine.waitpoints.approve(claim.executionId, 'manager', { by: 'ada' });
    const { waits } = await inside(claim.executionId, 'waits');
    expect(waits).toMatchObject({
      items: [{ name: 'manager', state: 'waiting', signalCount: 1 }],
      truncated: false,
    });
  });
});

describe('the timeline of a description', () => {
  it('tells of the submission, of equal attempts as one, of the lease and of the end', async () => {
    let claim = await bench.running(RETRYING);
    const { executionId } = claim;
    for (const message of ['down', 'down', 'down', 'odd']) claim = await failed(claim, { message });
    const running = (await inside(executionId, 'timeline')).timeline;
    expect(running).toMatchObject({
      items: [
        { what: 'submitted' },
        { what: 'attempts', count: 3, firstAttemptIndex: 0, lastAttemptIndex: 2, failureMessage: 'down' },
        { what: 'attempts', count: 1, lastAttemptIndex: 3, outcome: 'failed', failureMessage: 'odd' },
        { what: 'attempts', count: 1, lastAttemptIndex: 4, outcome: null, endedAtMs: null },
        { what: 'lease', workerInstanceId: 'worker-1', leaseEpoch: claim.leaseEpoch },
      ],
      truncated: false,
    });
    await bench.port.complete(claim, 1);
    const { items } = (await inside(executionId, 'timeline')).timeline;
    expect(items.slice(-2)).toMatchObject([
      { what: 'attempts', outcome: 'success' },
      { what: 'ended', state: 'completed' },
    ]);
  });

  it('tells how the leases of an attempt were given up', async () => {
    const claim = await bench.running();
    await bench.port.release(claim);
    const again = await bench.claimOne(claim.kind);
    await bench.port.pause(again, { wakeInMs: 1_000 });
    const { timeline } = await inside(claim.executionId, 'timeline');
    expect(timeline.items).toMatchObject([
      { what: 'submitted' },
      { what: 'attempts', outcome: null, pauses: ['released', 'paused'] },
    ]);
  });
});

describe('the leases of an attempt', () => {
  const leasesOf = async (id: ExecutionId) =>
    (await bench.engine.executions.listAttempts(id)).attempts.toReversed().map(({ leases }) => leases);

  it('have their owner, their times and how often they were renewed', async () => {
    const first = await bench.running(RETRYING);
    const { executionId, kind } = first;
    await bench.database.moveClock(1_000);
    await bench.port.renew([first], 30_000);
    await bench.port.renew([first], 30_000);
    await bench.port.pause(first, { wakeInMs: 1_000 });
    await bench.database.moveClock(1_000);
    await bench.port.fireTimers();
    const second = await bench.claimOne(kind, { workerInstanceId: 'worker-2' });
    await bench.port.renew([second], 30_000);
    const [running] = await leasesOf(executionId);
    expect(running).toMatchObject([
      { leaseEpoch: first.leaseEpoch, workerInstanceId: 'worker-1', renewals: 2 },
      { leaseEpoch: second.leaseEpoch, workerInstanceId: 'worker-2', renewals: 1, toMs: null },
    ]);
    expect(running![0]!.toMs! - running![0]!.fromMs).toBeGreaterThanOrEqual(1_000);
    expect(running![1]!.fromMs).toBeGreaterThanOrEqual(running![0]!.toMs! + 1_000);
    const third = await failed(second, { message: 'no' });
    await bench.port.complete(third);
    const { endedAtMs } = await bench.snapshot(executionId);
    expect(await leasesOf(executionId)).toMatchObject([
      [{ renewals: 2 }, { workerInstanceId: 'worker-2', renewals: 1, toMs: expect.any(Number) as number }],
      [{ leaseEpoch: third.leaseEpoch, workerInstanceId: 'worker-1', renewals: 0, toMs: endedAtMs }],
    ]);
    const { timeline } = await inside(executionId, 'timeline');
    expect(timeline.items.map((item) => (item.what === 'attempts' ? item.leases.length : 0))).toEqual([
      0, 2, 1, 0,
    ]);
  });

  it('are the last ones of an attempt that paused often, and none is added by a cancel meanwhile', async () => {
    let claim = await bench.running();
    for (let pause = 0; pause < 20; pause += 1) {
      await bench.port.release(claim);
      claim = await bench.claimOne(claim.kind);
    }
    await bench.port.pause(claim, { wakeInMs: 60_000 });
    const [paused] = await leasesOf(claim.executionId);
    expect(paused!.map(({ leaseEpoch }) => leaseEpoch)).toEqual(
      Array.from({ length: 16 }, (_, place) => claim.leaseEpoch - 15 + place),
    );
    await bench.engine.executions.cancel([claim.executionId], { reason: 'no longer needed' });
    expect(await leasesOf(claim.executionId)).toEqual([paused]);
  });
});

describe('the detail of a failure', () => {
  it('is kept for each attempt, over retries and pauses', async () => {
    const first = await bench.running(RETRYING);
    const { executionId } = first;
    const second = await failed(first, { message: 'one', detail: detail('FirstError') });
    await bench.port.pause(second, { wakeInMs: 1_000 });
    await bench.database.moveClock(1_000);
    await bench.port.fireTimers();
    const third = await failed(await bench.claimOne(first.kind), {
      message: 'two',
      detail: detail('SecondError'),
    });
    await failed(third, { message: 'three' });
    const details = [detail('FirstError'), detail('SecondError'), null];
    const { attempts } = (await bench.engine.executions.describe(executionId))!;
    expect(attempts.map(({ failureDetail }) => failureDetail)).toEqual(details);
    const listed = (await bench.engine.executions.listAttempts(executionId)).attempts;
    expect(listed.map(({ failureDetail }) => failureDetail)).toEqual([null, ...details.toReversed()]);
  });

  it('is in a description of the last attempts only', async () => {
    let claim = await bench.running({ policy: { retry: { ...RETRYING.policy.retry, maxRetries: 99 } } });
    const count = LIMITS.describedDetails + 2;
    for (let n = 0; n < count; n += 1) claim = await failed(claim, { message: 'no', detail: detail('E') });
    const { attempts } = await bench.snapshot(claim.executionId);
    expect(attempts.map(({ failureDetail }) => failureDetail !== null)).toEqual(
      Array.from({ length: count }, (_, n) => n >= 3),
    );
  });

  it('is cut when it is too large, at the end of a frame, and never refused', async () => {
    const claim = await bench.running();
    const frame = 'at größe (/srv/app/work.js:1:2)';
    const stack = Array.from({ length: 1_000 }, () => frame).join('\n');
    const causes = Array.from({ length: 20 }, () => {
      return { name: 'E\u0000'.repeat(200), message: '🙂'.repeat(1_000), at: null };
    });
    await bench.port.fail(claim, { message: 'no', detail: { name: 'n'.repeat(999), stack, causes } });
    const [attempt] = (await bench.snapshot(claim.executionId)).attempts;
    const kept = attempt!.failureDetail!;
    const text = [kept.name, kept.stack, ...kept.causes.flatMap(({ name, message }) => [name, message])];
    expect(Buffer.byteLength(text.join(''))).toBeLessThanOrEqual(LIMITS.failureDetailBytes);
    expect(new Set(kept.stack.split('\n'))).toEqual(new Set([frame]));
    expect(kept.causes).toHaveLength(LIMITS.failureCauses);
  });
});
