/**
 * How transactions of handlers end when they are not simply awaited: code that a handler left running inside cannot
 * write afterwards, cannot silently undo a commit, and cannot keep the process alive.
 */
import { expect, test } from 'vitest';
import type { SqlTransaction } from '../../src/contract/transactions.ts';
import { task } from '../../src/define/task.ts';
import { handle } from '../../src/define/handlers.ts';
import { latch, newKind, useCrew } from '../worker/crew.ts';

const crew = useCrew();

test('closing does not wait for a handler that keeps its transaction open, and rolls it back', async () => {
  const engine = await crew.connect();
  await crew.database.query('CREATE TABLE public.held (n int)');
  const holding = task<null>(newKind());
  const [inside, held] = [latch(), latch()];
  const worker = crew.work(engine, {
    handlers: [
      handle(holding, (_, ctx) =>
        ctx.tx('hold', async (tx) => {
          await tx.query('INSERT INTO public.held VALUES (1)');
          inside.open();
          await held.opened;
        }),
      ),
    ],
  });
  await engine.submit(holding, null);
  await inside.opened;
  await worker.stop({ deadline: 0 });
  await engine.close();
  held.open();
  // Waits for the lock of the transaction, if it is still held.
  await crew.database.query('ALTER TABLE public.held ADD later int');
  expect((await crew.database.query('SELECT n FROM public.held')).rows).toEqual([]);
});

test('a transaction that a handler kept is refused once it has ended', async () => {
  const engine = await crew.connect();
  await crew.database.query('CREATE TABLE public.kept (n int)');
  const keeping = task<null>(newKind());
  const kept: SqlTransaction[] = [];
  crew.work(engine, {
    handlers: [handle(keeping, (_, ctx) => ctx.tx('keep', async (tx) => void kept.push(tx)))],
  });
  const run = await engine.submit(keeping, null);
  await run.result();
  await expect(kept[0]!.query('INSERT INTO public.kept VALUES (1)')).rejects.toThrow(
    'The transaction has ended: await every query that uses it.',
  );
  expect((await crew.database.query('SELECT n FROM public.kept')).rows).toEqual([]);
});

test('a COMMIT that the database turned into a rollback is a failure, not a success', async () => {
  const engine = await crew.connect();
  const careless = task<null>(newKind(), { retry: { maxRetries: 0 } });
  crew.work(engine, {
    handlers: [
      handle(careless, (_, ctx) =>
        ctx.tx('careless', async (tx) => {
          // Not awaited: its second statement fails after the step was recorded and before the COMMIT.
          void tx
            .query('SELECT 1')
            .then(() => tx.query('SELECT 1 / 0'))
            .catch(() => undefined);
          return 'lost';
        }),
      ),
    ],
  });
  const run = await engine.submit(careless, null);
  expect(await run.wait()).toMatchObject({ outcome: 'failed' });
  expect(await engine.executions.listSteps(run.executionId)).toEqual([]);
});

test('a transaction may return the result of its last query', async () => {
  const engine = await crew.connect();
  const asking = task<null>(newKind());
  crew.work(engine, {
    handlers: [handle(asking, (_, ctx) => ctx.tx('ask', (tx) => tx.query('SELECT 1 AS one')))],
  });
  const run = await engine.submit(asking, null);
  expect(await run.result()).toEqual({ rows: [{ one: 1 }], rowCount: 1 });
});
