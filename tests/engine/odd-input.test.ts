/**
 * Input that no type allows and a program may pass all the same: refused with a code and a field, or accepted for what
 * it means; never a TypeError of the language, a warning of Node, or silence.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { task } from '../../src/define/index.ts';
import { connect, LIMITS, migrate } from '../../src/index.ts';
import type { Claim } from '../../src/protocol/index.ts';
import { newKind, useBench } from '../conformance/open.ts';

const bench = useBench();
const WHY = { reason: 'why' };
let lease: Claim;

beforeAll(async () => {
  lease = await bench.running();
});

/** A list with a hole in first position. */
function holed<Item>(item: Item): Item[] {
  const list: Item[] = [];
  list[1] = item;
  return list;
}

/** An object with one property, which has another value when it is read again. */
function changing(name: string, first: unknown, later: unknown): object {
  let reads = 0;
  return Object.defineProperty({}, name, {
    enumerable: true,
    get() {
      reads += 1;
      return reads === 1 ? first : later;
    },
  });
}

describe('refused', () => {
  it.each<[string, () => Promise<unknown>, object]>([
    ['fireTimers(null)', () => bench.port.fireTimers(null as never), { field: 'options' }],
    [
      'fireTimers with an unknown option value',
      () => bench.port.fireTimers({ flows: 'x' } as never),
      { field: 'options.flows' },
    ],
    [
      'a lease id that is a symbol',
      () => bench.engine.executions.revokeLease(lease.executionId, { ...WHY, leaseId: Symbol('x') as never }),
      { field: 'leaseId' },
    ],
    [
      'a lease id that only converts to one',
      () =>
        bench.engine.executions.revokeLease(lease.executionId, {
          ...WHY,
          leaseId: { toString: () => lease.leaseId } as never,
        }),
      { field: 'leaseId' },
    ],
    [
      'a hole in a payload',
      () => bench.engine.executions.submit({ kind: 'k', payload: { list: holed(1) } }),
      { field: 'request.payload.list[0]' },
    ],
    [
      'a hole among requests',
      () => bench.engine.executions.submit(holed({ kind: 'k' })),
      { field: 'requests[0]' },
    ],
    [
      'a hole among ids',
      () => bench.engine.cancel(holed(lease.executionId), WHY),
      { field: 'executionIds[0]' },
    ],
    ['a hole among leases', () => bench.port.renew(holed(lease), 60_000), { field: 'leases[0]' }],
    [
      'a hole among capabilities',
      () => bench.engine.executions.submit({ kind: 'k', capabilities: holed('c') }),
      { code: 'invalid_capabilities' },
    ],
    [
      'a Map as options',
      () => bench.engine.executions.list(new Map([['limit', 5]]) as never),
      { message: expect.stringContaining('must be an object') },
    ],
    [
      'a Date as a note',
      () => bench.engine.lanes.pause('a-lane', new Date() as never),
      { message: expect.stringContaining('must be an object') },
    ],
    [
      'tags that are other tags when they are read again',
      () =>
        bench.engine.executions.submit({ kind: 'k', tags: changing('a', 'fine', { deep: [1] }) as never }),
      { field: 'request.tags.a' },
    ],
    [
      'an object that is not a task',
      () => bench.engine.submitMany({} as never, [{ input: 1 } as never]),
      { field: 'task' },
    ],
  ])('%s', async (_, call, refusal) => {
    await expect(call()).rejects.toMatchObject({ name: 'EngineError', code: 'invalid_input', ...refusal });
  });

  it.each([
    'postgres://localhost:99999/x',
    'postgres://user:secret@localhost:port/x',
    'postgres://[::1',
    'postgres://localhost/x?sslcert=/nowhere',
    'mysql://x',
    '',
  ])('the URL %s, without quoting it', async (databaseUrl) => {
    const refusal = { name: 'EngineError', code: 'invalid_input', field: 'databaseUrl' };
    for (const call of [migrate, connect]) {
      const error: unknown = await call({ databaseUrl }).catch((thrown: unknown) => thrown);
      expect(error).toMatchObject(refusal);
      if (databaseUrl !== '') expect((error as Error).message).not.toContain(databaseUrl);
    }
  });

  it('a URL from an environment variable that is not set, saying so', async () => {
    const refusal = { name: 'EngineError', code: 'invalid_input', field: 'databaseUrl' };
    await expect(connect({ databaseUrl: undefined } as never)).rejects.toMatchObject({
      ...refusal,
      message: 'databaseUrl is not set (is DATABASE_URL set?): give databaseUrl or pool.',
    });
    await expect(connect({})).rejects.toMatchObject({
      ...refusal,
      message: 'Give either databaseUrl or pool.',
    });
  });

  it('an unknown option of a submit, naming all that are known', async () => {
    const submitted = bench.engine.submit(task<null>('k'), null, { excutor: null } as never);
    await expect(submitted).rejects.toMatchObject({
      code: 'invalid_input',
      field: 'options.excutor',
      message: expect.stringMatching(/known: lane, .*idempotencyKey, key, ifExists, executor, hint\)/),
    });
  });

  it.each([
    null,
    undefined,
    5,
    { databaseUrl: 'postgres://localhost/x', schema: Symbol('x') },
    { url: 'postgres://localhost/x' },
  ])('migrate(%s)', async (options) => {
    await expect(migrate(options as never)).rejects.toMatchObject({
      name: 'EngineError',
      code: 'invalid_input',
    });
  });
});

describe('what is stored is what was checked', () => {
  it('a priority that changes into JSON cannot set anything else', async () => {
    const request = changing('priority', 1, '0,"namespace":"another","x":1');
    const kind = newKind();
    await expect(
      bench.engine.executions.submit(Object.assign(request, { kind, namespace: 'mine' }) as never),
    ).rejects.toMatchObject({ name: 'EngineError' });
    expect(await bench.claim({ kinds: [kind] })).toEqual([]);
  });

  it('tags of a class with a toJSON of its own are its properties', async () => {
    class Tags {
      a = '1';
      toJSON(): object {
        return { a: { deep: [1] }, b: 5 };
      }
    }
    const id = await bench.submit({ tags: new Tags() as never });
    expect(await bench.snapshot(id)).toMatchObject({ tags: { a: '1' } });
    await bench.engine.executions.setTags(id, { set: new Tags() as never });
    expect((await bench.snapshot(id)).tags).toEqual({ a: '1' });
  });
});

describe('accepted for what it means', () => {
  it('progress too small to be stored is zero, and does not affect another report', async () => {
    const other = await bench.running();
    await Promise.all([
      bench.port.reportProgress(lease, { percent: 5e-324 }),
      bench.port.reportProgress(other, { percent: 33.3 }),
    ]);
    const percents = await Promise.all([lease, other].map(({ executionId }) => bench.snapshot(executionId)));
    expect(percents.map(({ progress }) => progress?.percent)).toEqual([0, 33.3]);
  });
});

describe('one AbortSignal', () => {
  const warnings: Error[] = [];
  const note = (warning: Error): void => void warnings.push(warning);
  beforeAll(() => process.on('warning', note));
  afterAll(() => process.off('warning', note));

  it('may end any number of waits, without a warning', async () => {
    const stop = new AbortController();
    const ids = await Promise.all(Array.from({ length: 30 }, () => bench.submit({ kind: newKind() })));
    const waits = ids.map((id) => bench.engine.executions.wait(id, { signal: stop.signal }));
    stop.abort(new Error('enough'));
    const ends = await Promise.allSettled(waits);
    expect(ends.filter(({ status }) => status === 'rejected')).toHaveLength(30);
    // Node emits warnings a turn later.
    await new Promise((resolve) => setImmediate(resolve));
    expect(warnings.filter(({ name }) => name === 'MaxListenersExceededWarning')).toEqual([]);
  });
});

describe('a pattern that takes forever', () => {
  const schema = { type: 'object', properties: { word: { type: 'string', pattern: '^(a+)+$' } } };
  const slow = { word: `${'a'.repeat(200)}!` };

  async function token(): Promise<string> {
    const claim = await bench.running();
    const made = await bench.port.createWaitpoint(claim, { name: 'w', schema });
    return (made as { waitpoint: { token: string } }).waitpoint.token;
  }

  it('is interrupted: the payload is refused, and the next one is checked', async () => {
    const given = await token();
    await expect(bench.engine.signal({ token: given, payload: slow })).rejects.toMatchObject({
      name: 'EngineError',
      code: 'invalid_input',
      field: 'payload',
      message: expect.stringContaining(`${LIMITS.schemaCheckMs} ms`),
    });
    await expect(bench.engine.signal({ token: given, payload: { word: 'b' } })).rejects.toMatchObject({
      code: 'invalid_input',
      field: 'payload.word',
    });
    const { outcome } = await bench.engine.signal({ token: given, payload: { word: 'aaa' } });
    expect(outcome).toBe('accepted');
  });
});
