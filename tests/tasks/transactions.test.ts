/**
 * Transactions of handlers: they do not block the renewal of leases, however long and however many they are; and when
 * the reply to a COMMIT is lost, their writes exist once.
 */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import pg from 'pg';
import type { Connection } from '../../src/connect/connection.ts';
import type { SqlTransaction, Transactor } from '../../src/contract/transactions.ts';
import type { ExecutionId } from '../../src/contract/ids.ts';
import { connectionBudget } from '../../src/engine/database/connection-budget.ts';
import { LIMITS } from '../../src/contract/limits.ts';
import { task } from '../../src/define/task.ts';
import { startFaultProxy, type FaultProxy } from '../../src/testing/fault-proxy.ts';
import type { TaskContext } from '../../src/define/task-context.ts';
import { handle } from '../../src/define/handlers.ts';
import { latch, newKind, SOON, useCrew } from '../worker/crew.ts';

const LEASE_MS = 30_000;
const INSERT = 'INSERT INTO public.paid VALUES ($1)';
const crew = useCrew();
let proxy: FaultProxy;

beforeAll(async () => {
  await crew.database.query('CREATE TABLE public.paid (execution_id text)');
  proxy = await startFaultProxy({ targetPort: Number(new URL(crew.database.url).port) });
});
afterAll(() => proxy.close());
beforeEach(() => crew.database.query('TRUNCATE public.paid'));

async function paidBy(id: ExecutionId): Promise<number> {
  const found = await crew.database.query<{ n: number }>(
    'SELECT count(*) AS n FROM public.paid WHERE execution_id = $1',
    [id],
  );
  return found.rows[0]!.n;
}

/** Advances the clock by most of a lease, several times; each time all leases are renewed before the next. */
async function renewThroughLeases(ids: readonly ExecutionId[]): Promise<void> {
  await crew.connect({ reconcile: 'on' });
  for (let renewed = 1; renewed <= 3; renewed += 1) {
    await crew.database.moveClock(LEASE_MS * 0.7);
    await crew.ringAllWorkers();
    for (const id of ids) {
      const renewals = async () =>
        (await crew.eventsOf(id)).filter((event) => event === 'lease.renewed').length;
      await expect.poll(renewals, SOON).toBeGreaterThanOrEqual(renewed);
    }
  }
}

async function checkFirstAttempts(engine: Connection, ids: readonly ExecutionId[]): Promise<void> {
  for (const id of ids) {
    expect(await engine.executions.wait(id)).toMatchObject({ outcome: 'success' });
    expect(await engine.executions.describe(id)).toMatchObject({ attemptIndex: 0, reclaimCount: 0 });
    expect(await crew.eventsOf(id)).not.toContain('lease.expired');
  }
}

describe('with one connection for the engine', () => {
  test('an open transaction blocks the renewal of neither its own lease nor other leases of its worker', async () => {
    const engine = await crew.connect({ poolSize: 1 });
    const [inside, held] = [latch(), latch()];
    const [paying, plain] = [task<null>(newKind()), task<null>(newKind())];
    crew.work(engine, {
      lease: LEASE_MS,
      handlers: [
        handle(paying, (_, ctx) =>
          ctx.tx('pay', async (tx) => {
            await tx.query(INSERT, [ctx.executionId]);
            inside.open();
            await held.opened;
          }),
        ),
        handle(plain, () => held.opened),
      ],
    });
    const ids = [await engine.submit(paying, null), await engine.submit(plain, null)].map(
      ({ executionId }) => executionId,
    );
    await inside.opened;
    await renewThroughLeases(ids);
    expect(await paidBy(ids[0]!)).toBe(0);
    held.open();
    await checkFirstAttempts(engine, ids);
    expect(await paidBy(ids[0]!)).toBe(1);
  });

  test('nor do ten concurrent transactions, of which as many are open as the limit allows', async () => {
    const engine = await crew.connect({ poolSize: 1 });
    const held = latch();
    const paying = task<null>(newKind());
    const started: TaskContext[] = [];
    let open = 0;
    crew.work(engine, {
      lease: LEASE_MS,
      handlers: [
        handle(paying, async (_, ctx) => {
          started.push(ctx);
          await ctx.tx('pay', async (tx) => {
            await tx.query(INSERT, [ctx.executionId]);
            open += 1;
            await held.opened;
          });
        }),
      ],
    });
    const submitted = await engine.submitMany(
      paying,
      Array.from({ length: 10 }, () => ({ input: null })),
    );
    const ids = submitted.map(({ executionId }) => executionId);
    await expect.poll(() => [started.length, open], SOON).toEqual([10, connectionBudget(1).transactions]);
    await renewThroughLeases(ids);
    expect(open).toBe(connectionBudget(1).transactions);
    expect(started.filter((ctx) => ctx.signal.aborted)).toEqual([]);
    held.open();
    await checkFirstAttempts(engine, ids);
    expect(await Promise.all(ids.map((id) => paidBy(id)))).toEqual(ids.map(() => 1));
  });

  test('nor do ten transactions of one handler', async () => {
    const engine = await crew.connect({ poolSize: 1 });
    const held = latch();
    const paying = task<null>(newKind());
    let open = 0;
    crew.work(engine, {
      lease: LEASE_MS,
      handlers: [
        handle(paying, (_, ctx) =>
          Promise.all(
            Array.from({ length: 10 }, (__, index) =>
              ctx.tx('pay', String(index), async (tx) => {
                await tx.query(INSERT, [ctx.executionId]);
                open += 1;
                await held.opened;
                return index;
              }),
            ),
          ),
        ),
      ],
    });
    const { executionId } = await engine.submit(paying, null);
    await expect.poll(() => open, SOON).toBe(connectionBudget(1).transactions);
    await renewThroughLeases([executionId]);
    held.open();
    await checkFirstAttempts(engine, [executionId]);
    expect(await paidBy(executionId)).toBe(10);
  });
});

/** A transactor as an application would write it, on its own connections. */
function ownTransactor(url: string): Transactor<SqlTransaction> {
  return async (work) => {
    const client = new pg.Client({ connectionString: url });
    client.on('error', () => undefined);
    await client.connect();
    try {
      await client.query('BEGIN');
      const value = await work(client as never, (text, params) => client.query(text, params));
      await client.query('COMMIT');
      return value;
    } finally {
      // Closing rolls back uncommitted work.
      await client.end().catch(() => undefined);
    }
  };
}

describe.each(['a connection of the engine', 'a transactor of the application'])('through %s', (whose) => {
  const options = (url: string) =>
    whose === 'a connection of the engine' ? {} : { through: ownTransactor(url) };

  /** Pays once through the proxy; there is no second attempt. */
  async function payThroughProxy(): Promise<{ engine: Connection; executionId: ExecutionId }> {
    const url = proxy.url(crew.database.url);
    const engine = await crew.connect({ databaseUrl: url, listen: 'off' });
    const paying = task<null>(newKind());
    let calls = 0;
    crew.work(engine, {
      poll: 20,
      handlers: [
        handle(paying, async (_, ctx) => {
          const work = async (tx: SqlTransaction) => {
            await tx.query(INSERT, [ctx.executionId]);
            calls += 1;
            return `paid in call ${calls} of attempt ${ctx.attemptIndex}`;
          };
          return ctx.tx('pay', work, options(url));
        }),
      ],
    });
    const { executionId } = await engine.submit(paying, null);
    return { engine, executionId };
  }

  test('a COMMIT whose reply is lost has happened: the handler continues, and the row exists once', async () => {
    const struck = proxy.cutAfter(/COMMIT$/);
    const { engine, executionId } = await payThroughProxy();
    expect(await struck).toMatch(/COMMIT$/);
    await expectPaid(engine, executionId, 'paid in call 1 of attempt 0');
  });

  test('a COMMIT that never arrived has not happened: the same attempt pays, once', async () => {
    const struck = proxy.cutBefore(/COMMIT$/);
    const { engine, executionId } = await payThroughProxy();
    await struck;
    await expectPaid(engine, executionId, 'paid in call 2 of attempt 0');
  });

  test('a connection lost between the record and the COMMIT leaves neither, and costs no attempt', async () => {
    const struck = proxy.cutAfter('ff_record_steps');
    const { engine, executionId } = await payThroughProxy();
    await struck;
    await expectPaid(engine, executionId, 'paid in call 2 of attempt 0');
  });

  test('a connection lost between two statements of the work costs no attempt', async () => {
    const struck = proxy.cutAfter(/^INSERT INTO public.paid/);
    const { engine, executionId } = await payThroughProxy();
    await struck;
    await expectPaid(engine, executionId, 'paid in call 1 of attempt 0');
  });

  test('a connection that is lost again and again fails the attempt with an error of the engine', async () => {
    const engine = await crew.connect();
    const paying = task<null>(newKind(), { retry: { maxRetries: 0 } });
    let calls = 0;
    const work = async (tx: SqlTransaction) => {
      calls += 1;
      await tx.query('SELECT pg_terminate_backend(pg_backend_pid())');
    };
    crew.work(engine, {
      handlers: [handle(paying, (_, ctx) => ctx.tx('pay', work, options(crew.database.url)))],
    });
    const end = await (await engine.submit(paying, null)).wait();
    expect(end).toMatchObject({ outcome: 'failed', message: expect.stringContaining('was lost') });
    expect(JSON.stringify(end)).not.toMatch(/terminat/);
    expect(calls).toBe(LIMITS.transactionTries);
  });
});

async function expectPaid(engine: Connection, executionId: ExecutionId, result: string): Promise<void> {
  expect(await engine.executions.wait(executionId)).toEqual({ outcome: 'success', result });
  expect(await paidBy(executionId)).toBe(1);
}

test('an error thrown in a transaction rolls it back, and reaches the handler', async () => {
  const engine = await crew.connect();
  const paying = task<null>(newKind());
  crew.work(engine, {
    handlers: [
      handle(paying, async (_, ctx) => {
        const thrown = await ctx
          .tx('pay', async (tx) => {
            await tx.query(INSERT, [ctx.executionId]);
            throw new Error('out of money');
          })
          .catch((error: unknown) => (error as Error).message);
        return [thrown, await ctx.step('after', () => 'went on')];
      }),
    ],
  });
  const { executionId } = await engine.submit(paying, null);
  expect(await engine.executions.wait(executionId)).toEqual({
    outcome: 'success',
    result: ['out of money', 'went on'],
  });
  expect(await paidBy(executionId)).toBe(0);
});
