/**
 * Steps, pauses and children at their limits and beyond: refused with a code, the field and a sentence, before anything
 * is written.
 */
import { describe, expect, it } from 'vitest';
import { uuidV7 } from '../../../src/contract/ids.ts';
import { LIMITS, type ExecutionId, type SqlExecutor } from '../../../src/index.ts';
import type { LeaseRef, NewStep, PauseRequest } from '../../../src/protocol/index.ts';
import { expectRefused } from '../../engine/refused.ts';
import { newKind, useBench } from '../open.ts';

const bench = useBench();

function newId(): ExecutionId {
  return `{fp:9}:${uuidV7(1_700_000_000_000, crypto.getRandomValues(new Uint8Array(10)))}`;
}

const record = (lease: LeaseRef, step: NewStep) => bench.port.recordStep(lease, step);

const forChildren = (ids: readonly string[], needed = ids.length): PauseRequest => ({
  children: { executionIds: ids, needed },
});

describe('a step', () => {
  it('the longest names, keys and values are stored', async () => {
    const claim = await bench.running();
    const name = 'n'.repeat(LIMITS.stepNameBytes);
    const key = 'ü'.repeat(LIMITS.stepKeyBytes / 2);
    const value = 'v'.repeat(LIMITS.payloadBytes - 2);
    expect(await record(claim, { name, key, value })).toMatchObject({ outcome: 'recorded' });
    expect(await bench.engine.executions.listSteps(claim.executionId)).toMatchObject([{ name, key, value }]);
    expect(await record(claim, { name: 'long', sleepMs: LIMITS.delayMs })).toMatchObject({
      step: { dueInMs: LIMITS.delayMs },
    });
  });

  const executor: SqlExecutor = async () => ({ rows: [] });
  const call = (step: unknown, options?: unknown) => async () =>
    bench.port.recordStep(await bench.running(), step as NewStep, options as never);
  it.each<[what: string, act: () => Promise<unknown>, field: string, code?: 'payload_too_large']>([
    ['no step', call(undefined), 'step'],
    ['a list for a step', call([]), 'step'],
    ['an unknown key', call({ name: 'a', vaule: 1 }), 'step.vaule'],
    ['no name', call({ value: 1 }), 'step.name'],
    ['an empty name', call({ name: '' }), 'step.name'],
    ['a name over its limit', call({ name: 'n'.repeat(LIMITS.stepNameBytes + 1) }), 'step.name'],
    ['a name that cannot be stored', call({ name: 'a\u0000' }), 'step.name'],
    ['a key that is a number', call({ name: 'a', key: 5 }), 'step.key'],
    ['a key over its limit', call({ name: 'a', key: 'ü'.repeat(LIMITS.stepKeyBytes / 2 + 1) }), 'step.key'],
    ['a key that cannot be stored', call({ name: 'a', key: '\uD83D' }), 'step.key'],
    ['a value that is not JSON', call({ name: 'a', value: { b: Number.NaN } }), 'step.value.b'],
    [
      'a value over its limit',
      call({ name: 'a', value: 'v'.repeat(LIMITS.payloadBytes - 1) }),
      'step.value',
      'payload_too_large',
    ],
    ['a negative sleep', call({ name: 'a', sleepMs: -1 }), 'step.sleepMs'],
    ['a sleep of half a millisecond', call({ name: 'a', sleepMs: 0.5 }), 'step.sleepMs'],
    ['a sleep over its limit', call({ name: 'a', sleepMs: LIMITS.delayMs + 1 }), 'step.sleepMs'],
    ['a sleep with a value', call({ name: 'a', sleepMs: 1, value: 1 }), 'step.value'],
    ['options that are not an object', call({ name: 'a' }, 5), 'options'],
    ['an unknown option', call({ name: 'a' }, { excutor: executor }), 'options.excutor'],
    ['an invalid executor', call({ name: 'a' }, { executor: 5 }), 'options.executor'],
  ])('%s is refused', async (_, act, field, code = 'invalid_input' as never) => {
    await bench.running();
    const before = (await bench.database.query('SELECT count(*) AS n FROM ff_step')).rows;
    await expect(act()).rejects.toMatchObject({ name: 'EngineError', code, field });
    expect((await bench.database.query('SELECT count(*) AS n FROM ff_step')).rows).toEqual(before);
  });

  it.each([
    ['percent', { percent: -1 }],
    ['percent', { percent: 101 }],
    ['percent', { percent: Number.NaN }],
    ['percent', { percent: '5' }],
    ['message', { message: 5 }],
    ['persent', { persent: 5 }],
  ])('progress with an invalid %s is refused', async (field, progress) => {
    const claim = await bench.running();
    await expectRefused(bench.database, () => bench.port.reportProgress(claim, progress as never), {
      code: 'invalid_input',
      field: `progress.${field}`,
    });
  });

  it.each([
    ['executionId', 'x', 'invalid_id'],
    ['attemptIndex', -1, 'invalid_input'],
    ['leaseEpoch', 1.5, 'invalid_input'],
  ] as const)('a lease with an invalid %s is refused by every call', async (field, value, code) => {
    const lease = { ...(await bench.running()), [field]: value } as unknown as LeaseRef;
    const refusal = { code, field: `lease.${field}` };
    for (const act of [
      () => record(lease, { name: 'a' }),
      () => bench.port.reportProgress(lease, { percent: 1 }),
      () => bench.port.pause(lease, { wakeInMs: 1 }),
      () => bench.port.spawn(lease, [{ kind: newKind() }]),
    ]) {
      await expectRefused(bench.database, act, refusal);
    }
  });
});

describe('a pause or a spawn', () => {
  const ids = [newId(), newId()];
  it.each<[what: string, request: unknown, field: string, code?: 'too_many' | 'invalid_id']>([
    ['no request', undefined, 'request'],
    ['an empty request', {}, 'request'],
    ['an unknown key', { wakeInMs: 1, wake: 1 }, 'request.wake'],
    ['a time before now', { wakeInMs: -1 }, 'request.wakeInMs'],
    ['a time that is a string', { wakeInMs: '5' }, 'request.wakeInMs'],
    ['a time over the limit', { wakeInMs: LIMITS.delayMs + 1 }, 'request.wakeInMs'],
    ['children that are not an object', { children: 5 }, 'request.children'],
    ['an unknown key of children', { children: { ids } }, 'request.children.ids'],
    ['no list of children', { children: { needed: 1 } }, 'request.children.executionIds'],
    ['no children', forChildren([]), 'request.children.needed'],
    ['none needed', forChildren(ids, 0), 'request.children.needed'],
    ['more needed than given', forChildren(ids, 3), 'request.children.needed'],
    ['an invalid id', forChildren([ids[0]!, 'x']), 'request.children.executionIds[1]', 'invalid_id'],
    // oxlint-disable-next-line no-sparse-arrays -- the hole is what is refused
    ['a hole', forChildren([, ids[0]!] as string[]), 'request.children.executionIds[0]'],
    [
      'more children than the limit',
      forChildren(Array.from({ length: LIMITS.awaitedChildren + 1 }, () => ids[0]!)),
      'request.children.executionIds',
      'too_many',
    ],
  ])('of a pause is refused: %s', async (_, request, field, code = 'invalid_input' as never) => {
    const claim = await bench.running();
    await expectRefused(bench.database, () => bench.port.pause(claim, request as PauseRequest), {
      code,
      field,
    });
    expect(await bench.snapshot(claim.executionId)).toMatchObject({ state: 'active' });
  });

  it('may wait for as many children as the limit', async () => {
    const claim = await bench.running();
    const many = Array.from({ length: LIMITS.awaitedChildren - 1 }, newId);
    const spawned = await bench.port.spawn(claim, [{ kind: newKind() }]);
    const [child] = spawned.outcome === 'spawned' ? spawned.children : [];
    const request = forChildren([...many, child!.executionId]);
    expect(await bench.port.pause(claim, request)).toMatchObject({ outcome: 'paused' });
  });

  it('does not wait for an execution that is not its child: its outcome would not be reported', async () => {
    const claim = await bench.running();
    const { executionId } = await bench.engine.executions.submit({ kind: newKind() });
    expect(await bench.port.pause(claim, forChildren([executionId]))).toEqual({ outcome: 'due' });
    expect(await bench.port.pause(claim, forChildren([newId(), newId()]))).toEqual({ outcome: 'due' });
  });

  it.each<[what: string, requests: unknown, field: string, code?: 'too_many']>([
    ['no list', undefined, 'requests'],
    ['a request without a kind', [{ kind: 'a' }, {}], 'requests[1].kind'],
    ['an unknown key', [{ kind: 'a', dealyMs: 1 }], 'requests[0].dealyMs'],
    [
      'more than the limit',
      Array.from({ length: LIMITS.submitBatch + 1 }, () => ({ kind: 'a' })),
      'requests',
      'too_many',
    ],
  ])('of a spawn is refused: %s', async (_, requests, field, code = 'invalid_input' as never) => {
    const claim = await bench.running();
    await expectRefused(bench.database, () => bench.port.spawn(claim, requests as never), { code, field });
  });
});
