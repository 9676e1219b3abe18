/**
 * Idempotency keys: a submit made twice creates one execution; what makes two requests the same, how long a key stands,
 * and what happens when a response is lost. Lock waits are in tests/races/executions/idempotency.test.ts.
 */
import type pg from 'pg';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { startFaultProxy } from '../../../src/testing/fault-proxy.ts';
import type { ExecutionId, SqlExecutor, SubmitRequest } from '../../../src/index.ts';
import { newKind, useBench, WAIT } from '../open.ts';

const bench = useBench();
const DAY_MS = 86_400_000;
const clients: pg.Client[] = [];
let keys = 0;

afterEach(async () => {
  await Promise.all(clients.splice(0).map((client) => client.end()));
});

const newKey = (): string => `key-${(keys += 1)}`;
const uuidOf = (id: ExecutionId): string => id.slice(id.lastIndexOf(':') + 1);

/** A repeatable request, with an idempotency key and a kind of its own. */
function request(own: Partial<SubmitRequest> = {}): SubmitRequest {
  return { kind: newKind(), idempotencyKey: newKey(), ...own };
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

async function begin(isolation = 'READ COMMITTED'): Promise<{ client: pg.Client; executor: SqlExecutor }> {
  const client = await bench.database.connect();
  clients.push(client);
  await client.query(`BEGIN ISOLATION LEVEL ${isolation}`);
  return { client, executor: (text, params) => client.query(text, params) };
}

describe('a submit with a key', () => {
  it('made again returns the first id, while the execution waits, runs and has finished', async () => {
    const one = request({ payload: { a: 1 } });
    const first = await bench.engine.executions.submit(one);
    expect(first.outcome).toBe('submitted');
    const again = { executionId: first.executionId, outcome: 'duplicate' };
    expect(await bench.engine.executions.submit(one)).toEqual(again);
    const claim = await bench.claimOne(one.kind);
    expect(await bench.engine.executions.submit(one)).toEqual(again);
    await bench.port.complete(claim);
    expect(await bench.engine.executions.submit(one)).toEqual(again);
    expect(await countOf(one)).toBe(1);
  });

  it('made many times concurrently creates one execution', async () => {
    const one = request();
    const other = await bench.another();
    const answers = await Promise.all(
      Array.from({ length: 20 }, (_, index) =>
        (index % 2 === 0 ? bench.engine : other).executions.submit(one),
      ),
    );
    expect(new Set(answers.map(({ executionId }) => executionId)).size).toBe(1);
    expect(answers.filter(({ outcome }) => outcome === 'submitted')).toHaveLength(1);
    expect(await countOf(one)).toBe(1);
  });

  it('made twice in one call creates one execution', async () => {
    const one = request();
    const [first, second, other] = await bench.engine.executions.submit([one, { ...one }, request()]);
    expect(first!.outcome).toBe('submitted');
    expect(second).toEqual({ executionId: first!.executionId, outcome: 'duplicate' });
    expect(other!.outcome).toBe('submitted');
    expect(await countOf(one)).toBe(1);
  });

  it('in a call with requests that have no key or exist already gets its result at its own index', async () => {
    const [known, fresh, plain] = [request(), request(), { kind: newKind() }];
    const first = await bench.engine.executions.submit(known);
    const answers = await bench.engine.executions.submit([plain, known, fresh, plain]);
    expect(answers.map(({ outcome }) => outcome)).toEqual([
      'submitted',
      'duplicate',
      'submitted',
      'submitted',
    ]);
    expect(answers[1]!.executionId).toBe(first.executionId);
    expect(await countOf(plain)).toBe(2);
    expect(await bench.claimOne(fresh.kind)).toMatchObject({ executionId: answers[2]!.executionId });
  });

  it('is a different one in another namespace, and lives in the partition of its key', async () => {
    const one = request({ namespace: 'here' });
    const there = { ...one, namespace: 'there' };
    const first = await bench.engine.executions.submit(one);
    const second = await bench.engine.executions.submit(there);
    expect(second.outcome).toBe('submitted');
    expect(second.executionId).not.toBe(first.executionId);
    expect(await bench.engine.executions.submit(one)).toMatchObject({ executionId: first.executionId });
    expect(await bench.engine.executions.submit(there)).toMatchObject({ executionId: second.executionId });
  });

  it('is not confused with one whose namespace and key only concatenate to the same string', async () => {
    const kind = newKind();
    const one = { kind, namespace: 'a', idempotencyKey: 'b\nc' };
    const other = { kind, namespace: 'a\nb', idempotencyKey: 'c' };
    const answers = await bench.engine.executions.submit([one, other]);
    expect(answers.map(({ outcome }) => outcome)).toEqual(['submitted', 'submitted']);
    expect(await countOf(one)).toBe(2);
  });

  it('cannot have an id as well, and a child cannot have a key', async () => {
    const executionId = await bench.submit();
    await expect(bench.engine.executions.submit(request({ executionId }))).rejects.toMatchObject({
      code: 'invalid_input',
      field: 'request.idempotencyKey',
    });
    const parent = await bench.running();
    await expect(bench.port.spawn(parent, [request()])).rejects.toMatchObject({ code: 'invalid_input' });
  });
});

describe('a request is the same request', () => {
  const same: [string, Partial<SubmitRequest>, Partial<SubmitRequest>][] = [
    [
      'when the keys of its payload come in another order',
      { payload: { a: 1, b: { c: [1, { d: 2, e: 3 }], f: null } } },
      { payload: { b: { f: null, c: [1, { e: 3, d: 2 }] }, a: 1 } },
    ],
    ['when a key of its payload is undefined', { payload: { a: 1 } }, { payload: { a: 1, b: undefined } }],
    ['when defaults are written out', {}, { lane: 'default', namespace: 'default', tags: {}, payload: null }],
    [
      'when it is part of another trace',
      { tags: { team: 'a', traceparent: '00-1', tracestate: 'x=1' } },
      { tags: { team: 'a', traceparent: '00-2' } },
    ],
    ['when it is more urgent now, or starts later', {}, { priority: 7, delay: 5_000 }],
  ];
  it.each(same)('%s', async (_, first, second) => {
    const one = request();
    const made = await bench.engine.executions.submit({ ...one, ...first });
    expect(await bench.engine.executions.submit({ ...one, ...second })).toEqual({
      executionId: made.executionId,
      outcome: 'duplicate',
    });
  });

  it('when the default policy of the deployment has changed', async () => {
    const [before, after] = [
      await bench.another({ defaultPolicy: { retry: { maxRetries: 1 } } }),
      await bench.another({ defaultPolicy: { retry: { maxRetries: 9 }, deadline: 1_000 } }),
    ];
    const one = request();
    const { executionId } = await before.executions.submit(one);
    expect(await after.executions.submit(one)).toEqual({ executionId, outcome: 'duplicate' });
  });
});

describe('an idempotency key that stands for another request', () => {
  const others: [string, Partial<SubmitRequest>][] = [
    ['kind', { kind: 'quite-another' }],
    ['payload', { payload: { a: 2 } }],
    ['order in a list of the payload', { payload: { a: [2, 1] } }],
    ['tags', { tags: { team: 'b' } }],
  ];
  it.each(others)('is refused when it differs in its %s', async (_, other) => {
    const one = request({ payload: { a: [1, 2] }, tags: { team: 'a' } });
    await bench.engine.executions.submit(one);
    await expect(bench.engine.executions.submit({ ...one, ...other })).rejects.toMatchObject({
      code: 'idempotency_key_reused',
      field: 'request.idempotencyKey',
    });
  });

  it.each<[string, Partial<SubmitRequest>]>([
    ['lane', { lane: 'elsewhere' }],
    ['policy', { policy: { maxReplays: 1 } }],
    ['priority', { priority: 5 }],
    ['delay', { delay: 5_000 }],
  ])('is the same request when only its %s differs: that is how it runs, not what', async (_, other) => {
    const one = request({ payload: 1 });
    const { executionId } = await bench.engine.executions.submit(one);
    expect(await bench.engine.executions.submit({ ...one, ...other })).toEqual({
      executionId,
      outcome: 'duplicate',
    });
  });

  it('names the request among many, and the whole call writes nothing', async () => {
    const one = request({ payload: 1 });
    await bench.engine.executions.submit(one);
    const calls = [request(), { kind: newKind() }, { ...one, payload: 2 }, request()];
    await expect(bench.engine.executions.submit(calls)).rejects.toMatchObject({
      code: 'idempotency_key_reused',
      field: 'requests[2].idempotencyKey',
    });
    expect(await Promise.all([calls[0]!, calls[1]!, calls[3]!].map(countOf))).toEqual([0, 0, 0]);
    // Their keys are still free: another body may use them.
    expect(await bench.engine.executions.submit({ ...calls[0]!, payload: 'other' })).toMatchObject({
      outcome: 'submitted',
    });
  });

  it('is reported by its own index, even when earlier requests of the call repeat each other', async () => {
    const [one, twice] = [request({ payload: 1 }), request()];
    await bench.engine.executions.submit(one);
    await expect(
      bench.engine.executions.submit([twice, { ...twice }, { ...one, payload: 2 }]),
    ).rejects.toMatchObject({
      field: 'requests[2].idempotencyKey',
    });
    await expect(bench.engine.executions.submit([twice, { ...twice, payload: 3 }])).rejects.toMatchObject({
      code: 'idempotency_key_reused',
      field: 'requests[1].idempotencyKey',
    });
    expect(await countOf(twice)).toBe(0);
  });

  it('fails only its own caller, not those whose submits share its statement', async () => {
    const one = request({ payload: 1 });
    await bench.engine.executions.submit(one);
    const good = Array.from({ length: 5 }, () => request());
    const settled = await Promise.allSettled([
      ...good.slice(0, 3).map((each) => bench.engine.executions.submit(each)),
      bench.engine.executions.submit({ ...one, payload: 2 }),
      ...good.slice(3).map((each) => bench.engine.executions.submit(each)),
    ]);
    const refused = settled.flatMap((each) => (each.status === 'rejected' ? [each.reason] : []));
    expect(refused).toMatchObject([{ code: 'idempotency_key_reused', field: 'request.idempotencyKey' }]);
    expect(await Promise.all(good.map(countOf))).toEqual([1, 1, 1, 1, 1]);
  });
});

describe('an idempotency key stands for its execution', () => {
  it('for a day by default, and is free after that once the execution has finished', async () => {
    const one = request();
    const { executionId } = await bench.engine.executions.submit(one);
    await finish(one);
    await bench.database.moveClock(DAY_MS - 60_000);
    expect(await bench.engine.executions.submit(one)).toEqual({ executionId, outcome: 'duplicate' });
    await bench.database.moveClock(60_000);
    const next = await bench.engine.executions.submit({ ...one, payload: 'may differ now' });
    expect(next.outcome).toBe('submitted');
    expect(next.executionId).not.toBe(executionId);
    expect(await bench.engine.executions.submit({ ...one, payload: 'may differ now' })).toEqual({
      executionId: next.executionId,
      outcome: 'duplicate',
    });
  });

  it('for as long as its policy sets', async () => {
    const one = request({ policy: { dedupWindow: 1_000 } });
    await bench.engine.executions.submit(one);
    await finish(one);
    await bench.database.moveClock(1_000);
    expect(await bench.engine.executions.submit(one)).toMatchObject({ outcome: 'submitted' });
    expect(await countOf(one)).toBe(2);
  });

  it('past its window while the execution has not finished', async () => {
    const one = request({ policy: { dedupWindow: 1_000 } });
    const { executionId } = await bench.engine.executions.submit(one);
    const claim = await bench.claimOne(one.kind);
    await bench.database.moveClock(2_000);
    expect(await bench.engine.executions.submit(one)).toEqual({ executionId, outcome: 'duplicate' });
    await expect(bench.engine.executions.submit({ ...one, payload: 'other' })).rejects.toMatchObject({
      code: 'idempotency_key_reused',
    });
    await bench.port.complete(claim);
    expect(await bench.engine.executions.submit(one)).toMatchObject({ outcome: 'submitted' });
  });

  it('after the execution was forgotten, until its window is over', async () => {
    const one = request({ policy: { retention: 0 } });
    const { executionId } = await bench.engine.executions.submit(one);
    await finish(one);
    await bench.reconcile();
    expect(await bench.engine.executions.describe(executionId)).toBeNull();
    expect(await bench.engine.executions.submit(one)).toEqual({ executionId, outcome: 'duplicate' });
    expect(await countOf(one)).toBe(0);
    await bench.database.moveClock(DAY_MS);
    expect(await bench.engine.executions.submit(one)).toMatchObject({ outcome: 'submitted' });
  });

  it('while the execution was replayed and runs again', async () => {
    const one = request({ policy: { dedupWindow: 1_000 } });
    const { executionId } = await bench.engine.executions.submit(one);
    await finish(one);
    await bench.engine.executions.replay(executionId, { reason: 'again' });
    await bench.database.moveClock(2_000);
    expect(await bench.engine.executions.submit(one)).toEqual({ executionId, outcome: 'duplicate' });
  });
});

describe('inside a transaction of the caller an idempotency key', () => {
  it('is taken by the commit and free after a rollback', async () => {
    const one = request();
    const undone = await begin();
    await bench.engine.executions.submit(one, { executor: undone.executor });
    await undone.client.query('ROLLBACK');
    const done = await begin();
    const made = await bench.engine.executions.submit(one, { executor: done.executor });
    expect(made.outcome).toBe('submitted');
    expect(await bench.engine.executions.submit(one, { executor: done.executor })).toEqual({
      executionId: made.executionId,
      outcome: 'duplicate',
    });
    await done.client.query('COMMIT');
    expect(await bench.engine.executions.submit(one)).toMatchObject({ outcome: 'duplicate' });
  });

  it('not yet committed makes others wait, and they then get its id', async () => {
    const one = request();
    const { client, executor } = await begin();
    const made = await bench.engine.executions.submit(one, { executor });
    const second = bench.engine.executions.submit(one);
    await vi.waitFor(async () => {
      const waiting = await client.query(
        `SELECT FROM pg_stat_activity WHERE pg_backend_pid() = ANY (pg_blocking_pids(pid))`,
      );
      expect(waiting.rowCount).toBe(1);
    }, WAIT);
    await client.query('COMMIT');
    expect(await second).toEqual({ executionId: made.executionId, outcome: 'duplicate' });
    expect(await countOf(one)).toBe(1);
  });

  it('taken by a transaction this one cannot see is reported as retry_transaction, not as a second execution', async () => {
    const one = request();
    const { client, executor } = await begin('REPEATABLE READ');
    await client.query('SELECT 1');
    await bench.engine.executions.submit({ kind: one.kind });
    const { executionId } = await bench.engine.executions.submit(one);
    await expect(bench.engine.executions.submit(one, { executor })).rejects.toMatchObject({
      code: 'retry_transaction',
      sqlState: '40001',
    });
    const again = await begin('REPEATABLE READ');
    expect(await bench.engine.executions.submit(one, { executor: again.executor })).toEqual({
      executionId,
      outcome: 'duplicate',
    });
  });

  it('that stands for another request names the field', async () => {
    const one = request({ payload: 1 });
    await bench.engine.executions.submit(one);
    const { executor } = await begin();
    await expect(
      bench.engine.executions.submit([request(), { ...one, payload: 2 }], { executor }),
    ).rejects.toMatchObject({ code: 'idempotency_key_reused', field: 'requests[1].idempotencyKey' });
  });
});

it('a submit whose response was lost is reported as submitted, not as a duplicate of itself', async () => {
  const proxy = await startFaultProxy({ targetPort: Number(new URL(bench.database.url).port) });
  try {
    const engine = await bench.another({
      databaseUrl: proxy.url(bench.database.url),
      listen: 'off',
      poolSize: 1,
    });
    const one = request();
    await engine.executions.submit({ kind: one.kind });
    const lost = proxy.cutAfter('ff_submit');
    const answer = await engine.executions.submit(one);
    await lost;
    expect(answer.outcome).toBe('submitted');
    expect(await engine.executions.submit(one)).toEqual({
      executionId: answer.executionId,
      outcome: 'duplicate',
    });
    expect(await countOf(one)).toBe(2);
    const found = await bench.database.query('SELECT FROM ff_idempotency WHERE execution_id = $1', [
      uuidOf(answer.executionId),
    ]);
    expect(found.rowCount).toBe(1);
  } finally {
    await proxy.close();
  }
});
