/**
 * One process opens no more connections than its budget, which options, documentation and doctor agree on; and a caller
 * that waits for one in vain learns the limit.
 */
import { readFile } from 'node:fs/promises';
import { beforeAll, expect, it, onTestFinished } from 'vitest';
import { connect, type ConnectOptions } from '../../../src/connect/connect.ts';
import type { Connection } from '../../../src/connect/connection.ts';
import { task } from '../../../src/define/task.ts';
import { connectionBudget } from '../../../src/engine/database/connection-budget.ts';
import { migrate } from '../../../src/engine/database/migrations/migrate.ts';
import { handle } from '../../../src/define/handlers.ts';
import { startWorker } from '../../../src/connect/worker.ts';
import { runCommand } from '../../cli/processes.ts';
import { latch } from '../../worker/crew.ts';
import { useRoles, type Role } from './roles.ts';
import { workerPort } from '../../../src/connect/port.ts';
import { patiently } from '../../setup/patience.ts';

const roles = useRoles();
const LONG = { timeout: patiently(30_000) };
let role: Role;

beforeAll(async () => {
  role = await roles.create();
  await migrate({ databaseUrl: roles.database.url, grantTo: role.name });
});

async function open(options: ConnectOptions): Promise<Connection> {
  const connection = await connect({ databaseUrl: role.url, reconcile: 'off', ...options });
  onTestFinished(() => connection.close({ deadline: 0 }));
  return connection;
}

/** By purpose. */
async function openNow(): Promise<Record<string, number>> {
  const { rows } = await roles.database.query<{ name: string; count: number }>(
    'SELECT application_name AS name, count(*) AS count FROM pg_stat_activity WHERE usename = $1 GROUP BY 1',
    [role.name],
  );
  return Object.fromEntries(rows.map(({ name, count }) => [name, count]));
}

async function limitRole(connections: number): Promise<void> {
  await roles.admin(`ALTER ROLE ${role.name} CONNECTION LIMIT ${connections}`);
}

it('the budget is what the documentation states', async () => {
  const { total } = connectionBudget();
  const small = connectionBudget(1).total;
  const page = await readFile(new URL('../../../docs/operations.md', import.meta.url), 'utf8');
  const operations = page.replaceAll(/\s+/g, ' '); // a sentence may be wrapped anywhere
  expect(operations).toContain(`at most ${total} connections`);
  expect(operations).toContain(`with \`poolSize: 1\` at most ${small}`);
  const examined = await runCommand({ args: ['doctor'], databaseUrl: roles.database.url });
  expect(examined.output).toContain(`a process needs ${total}.`);
});

it.each([1, 3])('the budget is not exceeded under load with poolSize: %i', LONG, async (poolSize) => {
  const budget = connectionBudget(poolSize);
  // One more would be refused.
  await limitRole(budget.total);
  onTestFinished(() => limitRole(-1));
  const connection = await open({ databaseUrl: role.url, poolSize });
  await connection.lanes.pause(`lane-${poolSize}`);
  const held = latch();
  const errors: unknown[] = [];
  for (let n = 0; n < 6; n += 1)
    await connection.events.consume(
      `consumer-${poolSize}-${n}`,
      async (_events, tx) => {
        await tx.query('SELECT 1');
        await held.opened;
      },
      { onError: (error) => errors.push(error) },
    );
  const transacting = Array.from({ length: 6 }, (_, n) =>
    workerPort(connection).transact(async (tx) => {
      await tx.query('SELECT 1');
      await held.opened;
      return n;
    }),
  );
  let most = 0;
  await expect
    .poll(async () => {
      await Promise.all(Array.from({ length: 20 }, () => connection.workers.list()));
      const counts = await openNow();
      most = Math.max(
        most,
        Object.values(counts).reduce((sum, count) => sum + count, 0),
      );
      return counts;
    }, LONG)
    .toEqual({
      flowfabric: budget.statements,
      'flowfabric listener': budget.listener,
      'flowfabric transactions': budget.transactions + budget.handlings,
    });
  expect(most).toBe(budget.total);
  held.open();
  expect(await Promise.all(transacting)).toEqual([0, 1, 2, 3, 4, 5]);
  expect(errors).toEqual([]);
});

it('a budget above the limit of the role fails transactions, after a warning', LONG, async () => {
  const { statements, listener, total } = connectionBudget(1);
  await limitRole(statements + listener);
  onTestFinished(() => limitRole(-1));
  const connection = await open({ databaseUrl: role.url, poolSize: 1 });
  await expect.poll(openNow, LONG).toMatchObject({ 'flowfabric listener': 1 });
  const warnings: unknown[] = [];
  const refused = latch<unknown>();
  const silent = (): void => undefined;
  const worker = startWorker(connection, {
    log: { debug: silent, info: silent, error: silent, warn: (facts: object) => warnings.push(facts) },
    handlers: [
      handle(task('books'), (_, ctx) =>
        ctx.tx('book', async () => 1).catch((error: unknown) => refused.open(error)),
      ),
    ],
  });
  onTestFinished(() => worker.stop({ deadline: 0 }));
  await connection.executions.submit({ kind: 'books' });
  expect(await refused.opened).toMatchObject({
    code: 'no_connection',
    sqlState: '53300',
    message: expect.stringMatching(
      new RegExp(`opens up to ${total} connections: 1 for statements`),
    ) as unknown,
  });
  expect(warnings).toMatchObject([{ code: 'no_connection' }]);
});
