/**
 * Transactions of the caller's own code: committed when the work returns, rolled back when it throws, with a step that
 * is stored exactly when the rest is. The engine keeps working meanwhile.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Claim } from '../../../src/protocol/index.ts';
import type { SqlExecutor } from '../../../src/index.ts';
import { connectionBudget } from '../../../src/engine/database/connection-budget.ts';
import { LEASE_MS, newKind, useBench, WAIT } from '../open.ts';
import { workerPort } from '../../../src/connect/port.ts';

const bench = useBench();
const AT_ONCE = connectionBudget(Number(process.env['FLOWFABRIC_TEST_POOL'] || '10')).transactions;
const INSERT = 'INSERT INTO public.booking VALUES ($1)';
const ENDINGS = ['ROLLBACK', 'COMMIT', 'ROLLBACK; BEGIN', 'COMMIT AND CHAIN'];

beforeAll(() => bench.database.query('CREATE TABLE public.booking (what text PRIMARY KEY)'));
afterAll(() => bench.database.query('DROP TABLE public.booking'));

async function bookings(like: string): Promise<string[]> {
  const found = await bench.database.query<{ what: string }>(
    'SELECT what FROM public.booking WHERE what LIKE $1 ORDER BY 1',
    [`${like}%`],
  );
  return found.rows.map(({ what }) => what);
}

const stepsOf = async ({ executionId }: Claim) =>
  (await bench.engine.executions.listSteps(executionId)).map(({ name, value }) => [name, value]);

describe('transact', () => {
  it('commits what the work did and returns its value', async () => {
    const answer = await bench.port.transact(async (tx) => {
      await tx.query(INSERT, ['room 1']);
      const { rows } = await tx.query<{ n: string }>(
        'SELECT count(*) AS n FROM public.booking WHERE what = $1',
        ['room 1'],
      );
      return rows.length;
    });
    expect(answer).toBe(1);
    expect(await bookings('room 1')).toEqual(['room 1']);
  });

  it('rolls back when the work throws, and rethrows the same error', async () => {
    const mine = new Error('mine');
    const attempt = bench.port.transact(async (tx) => {
      await tx.query(INSERT, ['room 2']);
      throw mine;
    });
    await expect(attempt).rejects.toBe(mine);
    expect(await bookings('room 2')).toEqual([]);
    expect(await bench.port.transact(async () => 'still works')).toBe('still works');
  });

  it('is not reported as committed after a failed statement, even when the work continues', async () => {
    const attempt = bench.port.transact(async (tx) => {
      await tx.query(INSERT, ['room 3']);
      await tx.query('SELECT 1/0').catch(() => undefined);
      return 'ignored';
    });
    await expect(attempt).rejects.toMatchObject({ name: 'EngineError' });
    expect(await bookings('room 3')).toEqual([]);
  });

  it.each(ENDINGS)('is not reported as committed when its work sends %s', async (statement) => {
    const attempt = bench.port.transact(async (tx) => {
      await tx.query(INSERT, [`room ${statement}`]);
      await tx.query(statement);
      return 'ignored';
    });
    await expect(attempt).rejects.toMatchObject({ name: 'EngineError', code: 'invalid_step' });
    expect(await bench.port.transact(async () => 'still works')).toBe('still works');
  });

  it('is not reported as committed when something it left running rolls it back', async () => {
    const attempt = bench.port.transact(async (tx) => {
      await tx.query(INSERT, ['room 4']);
      // Not awaited: the second is sent when the first returns, after the work has returned.
      void tx.query('SELECT 1').then(() => tx.query('ROLLBACK'));
      await tx.query('SELECT 2');
      return 'ignored';
    });
    await expect(attempt).rejects.toMatchObject({ code: 'invalid_step' });
    expect(await bookings('room 4')).toEqual([]);
  });

  it('runs a limited number concurrently, and the next when one finishes', async () => {
    const leave: (() => void)[] = [];
    let entered = 0;
    const all = Array.from({ length: AT_ONCE + 1 }, (_, index) =>
      bench.port.transact(async (tx) => {
        await tx.query('SELECT 1');
        entered += 1;
        await new Promise<void>((resolve) => leave.push(resolve));
        return index;
      }),
    );
    await expect.poll(() => entered, WAIT).toBe(AT_ONCE);
    leave.shift()!();
    await expect.poll(() => entered, WAIT).toBe(AT_ONCE + 1);
    for (const go of leave) go();
    expect(await Promise.all(all)).toEqual(all.map((_, index) => index));
  });

  it('is refused by a closed engine', async () => {
    const engine = await bench.another();
    await engine.close();
    await expect(workerPort(engine).transact(async () => 1)).rejects.toMatchObject({ code: 'closed' });
  });
});

describe('a step recorded in a transaction', () => {
  it.each(ENDINGS)('is not stored after %s, alone or in another transaction', async (statement) => {
    const claim = await bench.running();
    const attempt = bench.port.transact(async (tx, executor) => {
      await tx.query(statement);
      await bench.port.recordStep(claim, { name: 'book' }, { executor });
    });
    await expect(attempt).rejects.toMatchObject({ code: 'invalid_step', sqlState: 'FF007' });
    expect(await stepsOf(claim)).toEqual([]);
  });

  it('is refused on an executor outside a transaction', async () => {
    const claim = await bench.running();
    const client = await bench.database.connect();
    const executor: SqlExecutor = (text, params) => client.query(text, params);
    await expect(bench.port.recordStep(claim, { name: 'book' }, { executor })).rejects.toMatchObject({
      code: 'invalid_input',
      field: 'options.executor',
    });
    expect(await stepsOf(claim)).toEqual([]);
    await client.end();
  });

  it('exists once that commits, and not before', async () => {
    const claim = await bench.running();
    await bench.port.transact(async (tx, executor) => {
      await tx.query(INSERT, ['seat 1']);
      const step = { name: 'book', value: 1 };
      expect(await bench.port.recordStep(claim, step, { executor })).toMatchObject({
        outcome: 'recorded',
        repeated: false,
        step: { kind: 'step', value: 1, dueInMs: null },
      });
      expect(await stepsOf(claim)).toEqual([]);
    });
    expect(await stepsOf(claim)).toEqual([['book', 1]]);
    expect(await bookings('seat 1')).toEqual(['seat 1']);
  });

  it('never exists when that rolls back', async () => {
    const claim = await bench.running();
    const attempt = bench.port.transact(async (_, executor) => {
      await bench.port.recordStep(claim, { name: 'book' }, { executor });
      throw new Error('no');
    });
    await expect(attempt).rejects.toThrow('no');
    expect(await stepsOf(claim)).toEqual([]);
    expect(await bench.port.recordStep(claim, { name: 'book', value: 2 })).toMatchObject({
      repeated: false,
    });
  });

  it('returns the first record when there is one, so that the work can be undone', async () => {
    const claim = await bench.running();
    await bench.port.recordStep(claim, { name: 'book', value: 'first' });
    const answer = await bench.port.transact((_, executor) =>
      bench.port.recordStep(claim, { name: 'book', value: 'second' }, { executor }),
    );
    expect(answer).toMatchObject({ outcome: 'recorded', repeated: true, step: { value: 'first' } });
  });

  it('may be a sleep, whose due time is a number', async () => {
    const claim = await bench.running();
    const answer = await bench.port.transact((_, executor) =>
      bench.port.recordStep(claim, { name: 'nap', sleepMs: 5_000 }, { executor }),
    );
    expect(answer).toMatchObject({ outcome: 'recorded', step: { kind: 'sleep', dueInMs: 5_000 } });
  });

  it('blocks no renewal, and delays the completion until it is committed', async () => {
    const claim = await bench.running();
    const order: string[] = [];
    let completing: Promise<unknown> | undefined;
    await bench.port.transact(async (_, executor) => {
      await bench.port.recordStep(claim, { name: 'book' }, { executor });
      expect(await bench.port.renew([claim], LEASE_MS)).toEqual([{ outcome: 'renewed' }]);
      await bench.database.moveClock(LEASE_MS - 1_000);
      expect(await bench.port.renew([claim], LEASE_MS)).toEqual([{ outcome: 'renewed' }]);
      completing = bench.port.complete(claim).then(() => order.push('completed'));
      // Sent, and blocked by this transaction.
      await expect
        .poll(async () => (await bench.database.query(WAITING)).rows.length, WAIT)
        .toBeGreaterThanOrEqual(1);
      order.push('committing');
    });
    await completing;
    expect(order).toEqual(['committing', 'completed']);
    expect(await stepsOf(claim)).toEqual([['book', null]]);
  });

  it('is refused without the lease, and the transaction stays the caller’s to end', async () => {
    const kind = newKind();
    const claim = await bench.running({ kind });
    await bench.port.release(claim);
    await bench.claimOne(kind);
    const answer = await bench.port.transact(async (tx, executor) => {
      await tx.query(INSERT, ['seat 2']);
      return bench.port.recordStep(claim, { name: 'book' }, { executor });
    });
    expect(answer).toEqual({ outcome: 'stale_lease', leaseEpoch: 2 });
    expect(await bookings('seat 2')).toEqual(['seat 2']);
  });

  it.each(['REPEATABLE READ', 'SERIALIZABLE'])('is refused at %s', async (isolation) => {
    const claim = await bench.running();
    const client = await bench.database.connect();
    const executor: SqlExecutor = (text, params) => client.query(text, params);
    await client.query(`BEGIN ISOLATION LEVEL ${isolation}`);
    await expect(bench.port.recordStep(claim, { name: 'a' }, { executor })).rejects.toMatchObject({
      code: 'isolation_unsupported',
    });
    await client.query('ROLLBACK');
    await client.end();
  });
});

const WAITING = `SELECT pid FROM pg_stat_activity
  WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%ff_complete%'`;
