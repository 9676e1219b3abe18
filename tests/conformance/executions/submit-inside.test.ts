/**
 * Submitting inside the caller's own transaction: visible with its commit, never after a rollback, and a conflict in it
 * is the caller's to retry.
 */
import type pg from 'pg';
import { afterEach, describe, expect, it, vi, type Mock } from 'vitest';
import { uuidV7 } from '../../../src/contract/ids.ts';
import type { Connection, ExecutionId, SqlExecutor } from '../../../src/index.ts';
import type { Hint } from '../../../src/protocol/index.ts';
import { claimRequest, LISTENING, newKind, useBench, WAIT } from '../open.ts';
import { workerPort } from '../../../src/connect/port.ts';

const bench = useBench();
const clients: pg.Client[] = [];

afterEach(async () => {
  await Promise.all(clients.splice(0).map((client) => client.end()));
});

/** A connection of the application's own, inside a transaction. */
async function begin(isolation = 'READ COMMITTED'): Promise<{ client: pg.Client; executor: SqlExecutor }> {
  const client = await bench.database.connect();
  clients.push(client);
  await client.query(`BEGIN ISOLATION LEVEL ${isolation}`);
  return { client, executor: (text, params) => client.query(text, params) };
}

/** Not counting the statement that reads which transaction it is. */
function submitsIn(calls: Mock<SqlExecutor>): number {
  return calls.mock.calls.filter(([text]) => text.includes('ff_submit')).length;
}

function newId(): ExecutionId {
  return `{fp:9}:${uuidV7(1_700_000_000_000, crypto.getRandomValues(new Uint8Array(10)))}`;
}

describe('inside a transaction, an execution', () => {
  it('exists once the transaction has committed, and not before', async () => {
    const { client, executor } = await begin();
    const kind = newKind();
    const { executionId, outcome } = await bench.engine.executions.submit({ kind, payload: 1 }, { executor });
    expect(outcome).toBe('submitted');
    expect(await bench.engine.executions.describe(executionId)).toBeNull();
    expect(await bench.claim({ kinds: [kind] })).toEqual([]);
    await client.query('COMMIT');
    expect(await bench.claimOne(kind)).toMatchObject({ executionId, payload: 1 });
  });

  it('never exists after a rollback', async () => {
    const { client, executor } = await begin();
    const kind = newKind();
    const [answer] = await bench.engine.executions.submit([{ kind }, { kind, delay: 5 }], { executor });
    await client.query('ROLLBACK');
    expect(await bench.engine.executions.result(answer!.executionId)).toEqual({ outcome: 'not_found' });
    expect(await bench.claim({ kinds: [kind] })).toEqual([]);
  });

  it('may be one of many, delayed, or a duplicate', async () => {
    const { client, executor } = await begin();
    const executionId = newId();
    await bench.submit({ executionId });
    const answers = await bench.engine.executions.submit(
      [{ kind: newKind() }, { kind: newKind(), delay: 60_000 }, { kind: newKind(), executionId }],
      { executor },
    );
    await client.query('COMMIT');
    expect(answers.map(({ outcome }) => outcome)).toEqual(['submitted', 'submitted', 'duplicate']);
    expect(await bench.snapshot(answers[1]!.executionId)).toMatchObject({ state: 'delayed' });
  });

  for (const isolation of ['REPEATABLE READ', 'SERIALIZABLE']) {
    it(`may be submitted at ${isolation}`, async () => {
      const { client, executor } = await begin(isolation);
      const kind = newKind();
      const { executionId } = await bench.engine.executions.submit({ kind }, { executor });
      await client.query('COMMIT');
      expect(await bench.claimOne(kind)).toMatchObject({ executionId });
    });
  }

  it('is refused outside a transaction: on a plain connection, a pool, or after the transaction has ended', async () => {
    const kind = newKind();
    const { client, executor } = await begin();
    await client.query('ROLLBACK');
    const ofPool: SqlExecutor = (text, params) => bench.database.query(text, params);
    for (const without of [executor, ofPool])
      await expect(bench.engine.executions.submit({ kind }, { executor: without })).rejects.toMatchObject({
        code: 'invalid_input',
        field: 'options.executor',
        message: expect.stringContaining('begin one on its connection'),
      });
    expect(await bench.claim({ kinds: [kind] })).toEqual([]);
  });

  it('is refused when its transaction is replaced between two statements of one submit', async () => {
    const kind = newKind();
    const { client, executor } = await begin();
    // For an unknown kind, a first statement reports that and writes nothing.
    const replacing: SqlExecutor = async (text, params) => {
      const answer = await executor(text, params).finally(async () => {
        if (text.includes('ff_submit')) await client.query('ROLLBACK; BEGIN');
      });
      return answer;
    };
    await expect(bench.engine.executions.submit({ kind }, { executor: replacing })).rejects.toMatchObject({
      code: 'invalid_input',
      field: 'options.executor',
    });
    await client.query('COMMIT');
    expect(await bench.claim({ kinds: [kind] })).toEqual([]);
  });

  it('is validated before the transaction is touched', async () => {
    const { client, executor } = await begin();
    const calls = vi.fn<SqlExecutor>(executor);
    const kind = newKind();
    const bad = bench.engine.executions.submit([{ kind }, { kind, priority: -1 }], { executor: calls });
    await expect(bad).rejects.toMatchObject({ code: 'invalid_input', field: 'requests[1].priority' });
    expect(calls).not.toHaveBeenCalled();
    await bench.engine.executions.submit({ kind }, { executor: calls });
    await client.query('COMMIT');
    expect(await bench.claim({ kinds: [kind] })).toHaveLength(1);
  });

  it('takes one statement, however many kinds its hint would have to name', async () => {
    const { client, executor } = await begin();
    const calls = vi.fn<SqlExecutor>(executor);
    const requests = Array.from({ length: 600 }, (_, index) => ({ kind: newKind(), payload: index }));
    // Known before: for new ones a first statement reports that and writes nothing.
    await bench.engine.executions.submit(requests.map(({ kind }) => ({ kind, delay: 3_600_000 })));
    expect(await bench.engine.executions.submit(requests, { executor: calls })).toHaveLength(600);
    expect(submitsIn(calls)).toBe(1);
    await client.query('COMMIT');
    expect(await bench.claimOne(requests[599]!.kind)).toMatchObject({ payload: 599 });
  });
});

describe('a conflict inside a transaction is not retried but reported as retry_transaction', () => {
  it('when an execution was submitted by a transaction this one cannot see', async () => {
    const { client, executor } = await begin('REPEATABLE READ');
    await client.query('SELECT 1');
    const executionId = newId();
    const kind = newKind();
    await bench.submit({ kind, executionId });
    const calls = vi.fn<SqlExecutor>(executor);
    await bench.engine.executions.submit({ kind }, { executor });
    await expect(
      bench.engine.executions.submit({ kind, executionId }, { executor: calls }),
    ).rejects.toMatchObject({
      code: 'retry_transaction',
      sqlState: '40001',
    });
  });

  it('when a lock could not be acquired in time', async () => {
    const [first, second] = [await begin(), await begin()];
    const executionId = newId();
    const kind = newKind();
    await bench.running({ kind });
    await bench.engine.executions.submit({ kind, executionId }, { executor: first.executor });
    await second.client.query(`SET LOCAL lock_timeout = '20ms'`);
    await expect(
      bench.engine.executions.submit({ kind, executionId }, { executor: second.executor }),
    ).rejects.toMatchObject({ code: 'retry_transaction', sqlState: '55P03' });
  });

  it('when two transactions deadlock, and the survivor continues', async () => {
    const [first, second] = [await begin(), await begin()];
    const [a, b] = [newId(), newId()];
    const kind = newKind();
    await bench.running({ kind });
    await bench.engine.executions.submit({ kind, executionId: a }, { executor: first.executor });
    await bench.engine.executions.submit({ kind, executionId: b }, { executor: second.executor });
    const crossed = await Promise.allSettled([
      bench.engine.executions
        .submit({ kind, executionId: b }, { executor: first.executor })
        .finally(() => end(first)),
      bench.engine.executions
        .submit({ kind, executionId: a }, { executor: second.executor })
        .finally(() => end(second)),
    ]);
    const refused = crossed.flatMap((settled) => (settled.status === 'rejected' ? [settled.reason] : []));
    expect(refused).toMatchObject([{ code: 'retry_transaction', sqlState: '40P01' }]);
    expect(await bench.claim({ kinds: [kind] })).toHaveLength(2);
  });

  it('and a second try in a new transaction succeeds', async () => {
    const failed = await begin('REPEATABLE READ');
    await failed.client.query('SELECT 1');
    const executionId = newId();
    const kind = newKind();
    await bench.submit({ kind, executionId });
    await expect(
      bench.engine.executions.submit({ kind, executionId }, { executor: failed.executor }),
    ).rejects.toThrow();
    await failed.client.query('ROLLBACK');
    const again = await begin('REPEATABLE READ');
    expect(
      await bench.engine.executions.submit({ kind, executionId }, { executor: again.executor }),
    ).toMatchObject({
      outcome: 'duplicate',
    });
    await again.client.query('COMMIT');
    expect(await bench.claim({ kinds: [kind] })).toHaveLength(1);
  });
});

/** Commits what is left to commit; a refused transaction rolls back at this point. */
async function end({ client }: { client: pg.Client }): Promise<void> {
  await client.query('COMMIT');
}

/** Waits until hints of other processes reach this engine, and makes their route known to it. */
async function untilListening(engine: Connection): Promise<void> {
  const kind = newKind();
  const heard = vi.fn<(hint: Hint) => boolean>(() => false);
  const stop = workerPort(engine).watch({ kinds: [kind] }, heard);
  const other = await bench.another();
  await vi.waitFor(async () => {
    await other.executions.submit({ kind });
    expect(heard.mock.calls.some(([hint]) => hint.routes !== 'all' && hint.routes.length > 0)).toBe(true);
  }, WAIT);
  stop();
  await workerPort(engine).claim({ ...claimRequest(), kinds: [kind] });
  await workerPort(engine).claim({ ...claimRequest(), kinds: [kind] });
}

describe('a watcher in another process', () => {
  it('is notified by a commit, and not by a rollback or a submit without a hint', async () => {
    const kind = newKind();
    await bench.running({ kind });
    const watching = await bench.another();
    if (LISTENING) await untilListening(watching);
    const heard = vi.fn<(hint: Hint) => boolean>(() => false);
    workerPort(watching).watch({ kinds: [kind] }, heard);

    const undone = await begin();
    await bench.engine.executions.submit({ kind }, { executor: undone.executor });
    await undone.client.query('ROLLBACK');
    const silent = await begin();
    await bench.engine.executions.submit({ kind }, { executor: silent.executor, hint: 'off' });
    await silent.client.query('COMMIT');
    const committed = await begin();
    await bench.engine.executions.submit([{ kind, delay: 60_000 }, { kind }], {
      executor: committed.executor,
    });
    await committed.client.query('COMMIT');

    if (LISTENING) {
      await vi.waitFor(() => expect(heard).toHaveBeenCalled(), WAIT);
      expect(heard.mock.calls.map(([hint]) => hint)).toMatchObject([
        { routes: [expect.any(Number)], dueInMs: 60_000 },
      ]);
    }
    expect(await bench.claim({ kinds: [kind] })).toHaveLength(2);
  });
});
