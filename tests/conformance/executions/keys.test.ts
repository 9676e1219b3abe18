/**
 * Keys: one open execution for each, found by it, attached to, refused or replaced. Lock waits are in
 * tests/races/executions/keys.test.ts.
 */
import { describe, expect, it, vi } from 'vitest';
import { startFaultProxy } from '../../../src/testing/fault-proxy.ts';
import { task, type ExecutionId, type SqlExecutor, type SubmitRequest } from '../../../src/index.ts';
import { partitionOfKey } from '../../../src/contract/ids.ts';
import { LEASE_MS, newKind, useBench, WAIT } from '../open.ts';

const bench = useBench();
let keys = 0;

const newKey = (): string => `order-${(keys += 1)}`;

/** A request with a key and a kind of its own. */
function request(own: Partial<SubmitRequest> = {}): SubmitRequest & { key: string } {
  return { kind: newKind(), key: newKey(), ...own } as SubmitRequest & { key: string };
}

async function holderOf({ key, namespace }: SubmitRequest): Promise<ExecutionId | null> {
  const found = await bench.engine.executions.byKey(key!, namespace === undefined ? {} : { namespace });
  return found === null ? null : found.executionId;
}

async function stateOf(id: ExecutionId): Promise<string> {
  return (await bench.snapshot(id)).state;
}

async function countOf({ kind }: SubmitRequest): Promise<number> {
  const found = await bench.database.query<{ n: number }>(
    `SELECT count(*)::int AS n FROM ff_execution JOIN ff_route USING (route_id) WHERE kind = $1`,
    [kind],
  );
  return found.rows[0]!.n;
}

/** Runs the execution of this kind until it has finished. */
async function finish({ kind }: SubmitRequest): Promise<void> {
  expect(await bench.port.complete(await bench.claimOne(kind))).toMatchObject({ outcome: 'completed' });
}

describe('a key', () => {
  it('places its execution by namespace and key, and is shown by describe', async () => {
    const one = request({ namespace: 'shop' });
    const { executionId, outcome } = await bench.engine.executions.submit(one);
    expect(outcome).toBe('submitted');
    expect(executionId.startsWith(`{fp:${partitionOfKey('shop', one.key)}}:`)).toBe(true);
    expect(await bench.snapshot(executionId)).toMatchObject({ key: one.key, namespace: 'shop' });
    expect(await bench.snapshot(await bench.submit())).toMatchObject({ key: null });
  });

  it('finds the open execution, and after its end still finds it', async () => {
    const one = request();
    expect(await holderOf(one)).toBeNull();
    const { executionId } = await bench.engine.executions.submit(one);
    expect(await bench.engine.executions.byKey(one.key)).toEqual({ executionId, kind: one.kind });
    await finish(one);
    expect(await holderOf(one)).toBe(executionId);
  });

  it('means another execution in another namespace', async () => {
    const one = request();
    const first = await bench.engine.executions.submit(one);
    const second = await bench.engine.executions.submit({ ...one, namespace: 'other' });
    expect(second.outcome).toBe('submitted');
    expect(await holderOf(one)).toBe(first.executionId);
    expect(await holderOf({ ...one, namespace: 'other' })).toBe(second.executionId);
  });

  it('is free again when its execution has finished, however the next submit treats an open one', async () => {
    const one = request();
    for (const ifExists of ['attach', 'refuse', 'replace'] as const) {
      const { executionId, outcome } = await bench.engine.executions.submit({ ...one, ifExists });
      expect(outcome).toBe('submitted');
      expect(await holderOf(one)).toBe(executionId);
      await finish(one);
    }
    expect(await countOf(one)).toBe(3);
  });

  it('is forgotten with its execution, and stays with a later one', async () => {
    const policy = { retention: 1_000 };
    const [gone, kept] = [request({ policy }), request({ policy })];
    await bench.engine.executions.submit([gone, kept]);
    await finish(gone);
    await finish(kept);
    const { executionId } = await bench.engine.executions.submit(kept);
    await bench.database.moveClock(2_000);
    await bench.reconcile();
    expect(await holderOf(gone)).toBeNull();
    expect(await holderOf(kept)).toBe(executionId);
    expect(await countOf(kept)).toBe(1);
  });
});

describe('a submit whose key names an open execution', () => {
  it('attaches by default: it returns that one and submits nothing', async () => {
    const one = request();
    const first = await bench.engine.executions.submit(one);
    const again = { executionId: first.executionId, outcome: 'attached' };
    expect(await bench.engine.executions.submit({ ...one, payload: 'another' })).toEqual(again);
    await bench.claimOne(one.kind);
    expect(await bench.engine.executions.submit({ ...one, ifExists: 'attach' })).toEqual(again);
    expect(await countOf(one)).toBe(1);
  });

  it('does not attach to one of another task: it throws, and nothing of its call is written', async () => {
    const one = request();
    await bench.engine.executions.submit(one);
    const other = request();
    await expect(bench.engine.executions.submit([other, { ...one, kind: other.kind }])).rejects.toMatchObject(
      { code: 'key_of_another_task', field: 'requests[1].key' },
    );
    await expect(bench.engine.executions.submit({ ...one, kind: other.kind })).rejects.toMatchObject({
      code: 'key_of_another_task',
      field: 'request.key',
    });
    expect(await countOf(other)).toBe(0);
    expect(await holderOf(other)).toBeNull();
  });

  it('refuses if told to, whatever the task', async () => {
    const one = request({ ifExists: 'refuse' });
    const first = await bench.engine.executions.submit(one);
    const refused = { executionId: first.executionId, outcome: 'refused' };
    expect(await bench.engine.executions.submit(one)).toEqual(refused);
    expect(await bench.engine.executions.submit({ ...one, kind: newKind() })).toEqual(refused);
    expect(await countOf(one)).toBe(1);
  });

  it('replaces it if told to: a waiting, a running and a suspended one are cancelled in the same commit', async () => {
    const one = request({ ifExists: 'replace' });
    const replaced: ExecutionId[] = [];
    let before = (await bench.engine.executions.submit(one)).executionId;
    for (const prepare of [
      async () => undefined,
      async () => bench.claimOne(one.kind),
      async () =>
        bench.port.suspend(await bench.claimOne(one.kind), {
          waits: [{ name: 'w', condition: { kind: 'count', n: 1, by: 'signals', waitpoints: ['w'] } }],
        }),
    ]) {
      await prepare();
      const next = await bench.engine.executions.submit(one);
      expect(next).toMatchObject({ outcome: 'replaced', replacedId: before });
      expect(await holderOf(one)).toBe(next.executionId);
      expect(await bench.engine.executions.result(before)).toMatchObject({
        outcome: 'cancelled',
        message: 'replaced',
        by: 'engine',
      });
      expect(await bench.snapshot(before)).toMatchObject({ key: null });
      replaced.push(before);
      before = next.executionId;
    }
    expect(await stateOf(before)).toBe('waiting');
  });

  it('replaces it also by an execution of another task', async () => {
    const one = request();
    const first = await bench.engine.executions.submit(one);
    const other = { ...one, kind: newKind(), ifExists: 'replace' as const };
    const second = await bench.engine.executions.submit(other);
    expect(second).toMatchObject({ outcome: 'replaced', replacedId: first.executionId });
    expect(await bench.engine.executions.byKey(one.key)).toEqual({
      executionId: second.executionId,
      kind: other.kind,
    });
  });

  it('refuses the result of the handler that was replaced', async () => {
    const one = request();
    await bench.engine.executions.submit(one);
    const claim = await bench.claimOne(one.kind);
    await bench.engine.executions.submit({ ...one, ifExists: 'replace' });
    expect(await bench.port.complete(claim)).toMatchObject({ outcome: 'not_active' });
    expect(await bench.port.renew([claim], LEASE_MS)).toMatchObject([{ outcome: 'not_active' }]);
  });

  it('decides calls made at once one after the other', async () => {
    const one = request();
    const answers = await Promise.all(Array.from({ length: 20 }, () => bench.engine.executions.submit(one)));
    expect(answers.filter(({ outcome }) => outcome === 'submitted')).toHaveLength(1);
    expect(answers.filter(({ outcome }) => outcome === 'attached')).toHaveLength(19);
    expect(new Set(answers.map(({ executionId }) => executionId)).size).toBe(1);
    const rivals = await Promise.all(
      Array.from({ length: 20 }, () => bench.engine.executions.submit({ ...one, ifExists: 'replace' })),
    );
    expect(new Set(rivals.map(({ replacedId }) => replacedId)).size).toBe(20);
    expect(await countOf(one)).toBe(21);
    const open = await bench.engine.executions.list({ filter: { states: ['waiting'], kind: one.kind } });
    expect(open.executions.map(({ executionId }) => executionId)).toEqual([await holderOf(one)]);
  });

  it('decides each request of a call on its own', async () => {
    const kind = newKind();
    const [a, b, c] = [request({ kind }), request({ kind }), request({ kind })];
    await bench.engine.executions.submit([a, b]);
    const answers = await bench.engine.executions.submit([
      { ...c, ifExists: 'replace' },
      { kind },
      { ...a, ifExists: 'replace' },
      { ...b, ifExists: 'refuse' },
    ]);
    expect(answers.map(({ outcome }) => outcome)).toEqual(['submitted', 'submitted', 'replaced', 'refused']);
    expect(await countOf({ kind })).toBe(5);
  });
});

describe('a replay', () => {
  it('of an execution that has its key is open again under it', async () => {
    const one = request();
    const { executionId } = await bench.engine.executions.submit(one);
    await finish(one);
    expect(await bench.engine.executions.replay(executionId, { reason: 'again' })).toMatchObject({
      outcome: 'replayed',
    });
    expect(await bench.engine.executions.submit(one)).toEqual({ executionId, outcome: 'attached' });
  });

  it('of one whose key another has taken is refused, also when that one has finished', async () => {
    const one = request();
    const { executionId } = await bench.engine.executions.submit(one);
    await finish(one);
    await bench.engine.executions.submit(one);
    const refused = { executionId, outcome: 'key_taken' };
    expect(await bench.engine.executions.replay(executionId, { reason: 'again' })).toEqual(refused);
    await finish(one);
    expect(await bench.engine.executions.replay(executionId, { reason: 'again' })).toEqual(refused);
  });
});

describe('an idempotency key beside a key', () => {
  it('is meant under that key: the same one under another key is another request', async () => {
    const kind = newKind();
    const [a, b] = [request({ kind, idempotencyKey: 'once' }), request({ kind, idempotencyKey: 'once' })];
    const first = await bench.engine.executions.submit(a);
    const second = await bench.engine.executions.submit(b);
    expect([first.outcome, second.outcome]).toEqual(['submitted', 'submitted']);
    expect(await bench.engine.executions.submit(a)).toEqual({ ...first, outcome: 'duplicate' });
    expect(await bench.engine.executions.submit({ kind, idempotencyKey: 'once' })).toMatchObject({
      outcome: 'submitted',
    });
  });

  it('comes first: a repeated replace replaces nothing, and one that has finished is not submitted again', async () => {
    const one = request();
    await bench.engine.executions.submit(one);
    const replacing = { ...one, ifExists: 'replace' as const, idempotencyKey: 'r-1' };
    const first = await bench.engine.executions.submit(replacing);
    expect(first.outcome).toBe('replaced');
    const again = { executionId: first.executionId, outcome: 'duplicate' };
    expect(await bench.engine.executions.submit(replacing)).toEqual(again);
    await finish(one);
    expect(await bench.engine.executions.submit(replacing)).toEqual(again);
    expect(await countOf(one)).toBe(2);
  });

  it('stands for the execution that was attached to, and for nothing after a refusal', async () => {
    const one = request();
    const { executionId } = await bench.engine.executions.submit(one);
    const attaching = { ...one, idempotencyKey: 'a-1' };
    expect(await bench.engine.executions.submit(attaching)).toEqual({ executionId, outcome: 'attached' });
    const refusing = { ...one, idempotencyKey: 'a-2', ifExists: 'refuse' as const };
    expect(await bench.engine.executions.submit(refusing)).toEqual({ executionId, outcome: 'refused' });
    await finish(one);
    expect(await bench.engine.executions.submit(attaching)).toEqual({ executionId, outcome: 'duplicate' });
    expect(await bench.engine.executions.submit(refusing)).toMatchObject({ outcome: 'submitted' });
  });
});

describe('inside a transaction of the caller', () => {
  async function inside<Value>(
    isolation: string,
    end: 'COMMIT' | 'ROLLBACK',
    work: (executor: SqlExecutor) => Promise<Value>,
  ): Promise<Value> {
    const client = await bench.database.connect();
    try {
      await client.query(`BEGIN ISOLATION LEVEL ${isolation}`);
      const value = await work((text, params) => client.query(text, params));
      await client.query(end);
      return value;
    } finally {
      await client.end();
    }
  }

  for (const isolation of ['READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE'])
    it(`at ${isolation}, a key is taken, attached to and rolled back with it`, async () => {
      const one = request();
      await bench.submit({ kind: one.kind, delay: '1d' });
      await inside(isolation, 'ROLLBACK', (executor) => bench.engine.executions.submit(one, { executor }));
      expect(await holderOf(one)).toBeNull();
      const [first, again] = await inside(isolation, 'COMMIT', async (executor) => [
        await bench.engine.executions.submit(one, { executor }),
        await bench.engine.executions.submit(one, { executor }),
      ]);
      expect(again).toEqual({ executionId: first!.executionId, outcome: 'attached' });
      expect(await holderOf(one)).toBe(first!.executionId);
    });

  it('replacing is refused: the execution would stay locked until the caller commits', async () => {
    const one = request({ ifExists: 'replace' });
    await inside('READ COMMITTED', 'ROLLBACK', async (executor) => {
      await expect(bench.engine.executions.submit(one, { executor })).rejects.toMatchObject({
        code: 'invalid_input',
        field: 'request.ifExists',
      });
    });
  });
});

describe('a connection lost before the answer', () => {
  it('does not replace twice: the same call made again finds its own execution', async () => {
    const proxy = await startFaultProxy({ targetPort: Number(new URL(bench.database.url).port) });
    try {
      const databaseUrl = proxy.url(bench.database.url);
      const behind = await bench.another({ databaseUrl, listen: 'off', poolSize: 1 });
      const one = request();
      const first = await behind.executions.submit(one);
      const lost = proxy.cutAfter('ff_submit');
      const second = await behind.executions.submit({ ...one, ifExists: 'replace' });
      await lost;
      expect(second.outcome).toBe('submitted');
      expect(await holderOf(one)).toBe(second.executionId);
      expect(await stateOf(first.executionId)).toBe('cancelled');
      expect(await stateOf(second.executionId)).toBe('waiting');
      expect(await countOf(one)).toBe(2);
    } finally {
      await proxy.close();
    }
  });
});

describe('a handle by key', () => {
  const order = task<{ n: number }, string>(newKind());

  it('has the verbs and types of the handle that submit returns', async () => {
    const key = newKey();
    expect(await bench.engine.byKey(key)).toBeNull();
    const run = await bench.engine.submit(order, { n: 1 }, { key });
    const handle = await bench.engine.byKey(key, { task: order });
    expect(handle!.executionId).toBe(run.executionId);
    expect(Object.keys(handle!).toSorted()).toEqual(
      Object.keys(run)
        .filter((name) => name !== 'outcome')
        .toSorted(),
    );
    await bench.port.complete(await bench.claimOne(order.name), 'packed');
    const result: string = await handle!.result();
    expect(result).toBe('packed');
    expect(await (await bench.engine.byKey(key))!.result()).toBe('packed');
  });

  it('is refused for another task', async () => {
    const one = request();
    await bench.engine.executions.submit(one);
    await expect(bench.engine.byKey(one.key, { task: order })).rejects.toMatchObject({
      code: 'key_of_another_task',
    });
  });

  it('wakes whoever waits for the result of an execution that is replaced', async () => {
    const key = newKey();
    const first = await bench.engine.submit(order, { n: 1 }, { key });
    const ended = first.wait();
    await vi.waitFor(async () => {
      await bench.engine.submit(order, { n: 2 }, { key, ifExists: 'replace' });
    }, WAIT);
    expect(await ended).toMatchObject({ outcome: 'cancelled', message: 'replaced' });
  });
});
