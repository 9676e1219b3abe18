/**
 * Reconcilers in several processes: one at a time runs the passes, another takes over when it stops, and a database
 * failure costs one pass and no more.
 */
import { expect, onTestFinished, test } from 'vitest';
import type { Connection } from '../../src/connect/connection.ts';
import { openEngine } from '../../src/engine/open.ts';
import type { ReconcilerReport } from '../../src/contract/operations.ts';
import { takeTickets } from '../../src/engine/upkeep/bookkeeping.sql.ts';
import { startFaultProxy } from '../../src/testing/fault-proxy.ts';
import { AGAIN, newKind, resultOf, SOON, useCrew } from '../worker/crew.ts';
import { workerPort } from '../../src/connect/port.ts';

/** How long a ticket keeps others away. */
const HOLD_MS = 3_000;
const crew = useCrew();

function reportOf(connection: Connection, name = 'expired-leases'): ReconcilerReport {
  return connection.upkeep.reports().find((report) => report.name === name)!;
}

async function passesFrom(connection: Connection): Promise<void> {
  const before = reportOf(connection).passes;
  await expect.poll(() => reportOf(connection).passes, SOON).toBeGreaterThan(before);
}

async function holders(): Promise<(string | null)[]> {
  const found = await crew.database.query<{ holder: string | null }>(
    'SELECT DISTINCT holder FROM ff_reconciler',
  );
  return found.rows.map(({ holder }) => holder);
}

test('one process runs the passes; when it closes, another takes over before its ticket expires', async () => {
  const first = await crew.connect({ reconcile: 'on' });
  await passesFrom(first);
  const second = await crew.connect({ reconcile: 'on' });
  const [holder] = await holders();
  await passesFrom(first);
  await passesFrom(first);
  expect(reportOf(second).passes).toBe(0);
  expect(await holders()).toEqual([holder]);
  await first.close();
  await passesFrom(second);
  expect(await holders()).not.toContain(holder);
});

test('a silent process loses its ticket when it expires, and runs no more passes when it is back', async () => {
  const proxy = await startFaultProxy({ targetPort: Number(new URL(crew.database.url).port) });
  onTestFinished(() => proxy.close());
  const silent = await crew.connect({
    reconcile: 'on',
    databaseUrl: proxy.url(crew.database.url),
    listen: 'off',
  });
  await passesFrom(silent);
  const second = await crew.connect({ reconcile: 'on' });
  proxy.stall();
  await crew.database.moveClock(HOLD_MS);
  await passesFrom(second);
  const [holder] = await holders();
  proxy.resume();
  await passesFrom(second);
  await passesFrom(second);
  const after = reportOf(silent).passes;
  await passesFrom(second);
  expect(reportOf(silent).passes).toBe(after);
  expect(await holders()).toEqual([holder]);
});

test('repairs are counted', async () => {
  const engine = await crew.connect({ reconcile: 'on' });
  const kind = newKind();
  const submitted = await engine.executions.submit(
    Array.from({ length: 5 }, () => ({ kind, policy: AGAIN })),
  );
  await engine.executions.submit({ kind, delay: 30_000 });
  await workerPort(engine).claim({
    workerId: 'g',
    workerInstanceId: 'g-1',
    kinds: [kind],
    limit: 3,
    leaseMs: 20_000,
  });
  await crew.database.moveClock(30_001);
  await expect.poll(() => reportOf(engine).acted, SOON).toBe(3);
  await expect.poll(() => reportOf(engine, 'due-timers').acted, SOON).toBe(1);
  expect(reportOf(engine)).toMatchObject({ failed: 0, splits: 0, errors: 0, timeouts: 0 });
  const worker = crew.work(engine, { handlers: { [kind]: (task) => task.reclaimed } });
  await expect.poll(() => worker.stats.completed, SOON).toBe(6);
  const results = await Promise.all(
    submitted.map(({ executionId }) => engine.executions.result(executionId)),
  );
  expect(results.filter((result) => result.outcome === 'success' && result.result)).toHaveLength(3);
});

test('a pass that fails at the database is counted, and the next one does the work', async () => {
  const engine = await crew.connect({ reconcile: 'on' });
  const kind = newKind();
  const { executionId } = await engine.executions.submit({ kind, delay: 10_000 });
  await crew.database.query('ALTER TABLE ff_timer RENAME TO ff_timer_away');
  await crew.database.moveClock(10_001);
  await expect
    .poll(() => reportOf(engine, 'due-timers').errors, SOON)
    .toBeGreaterThan(0)
    .finally(() => crew.database.query('ALTER TABLE ff_timer_away RENAME TO ff_timer'));
  crew.work(engine, { handlers: { [kind]: () => undefined } });
  await expect.poll(() => resultOf(engine, executionId), SOON).toBe('success');
  expect(reportOf(engine, 'due-timers')).toMatchObject({ failed: 0 });
});

test('a process configured without reconcilers repairs nothing', async () => {
  const engine = await crew.connect();
  expect(engine.upkeep.reports()).toEqual([]);
});

test('the ticket of a holder that died before the clock went back blocks nobody', async () => {
  const names = ['after-the-clock'];
  const { context, engine } = await openEngine({
    databaseUrl: crew.database.url,
    listen: 'off',
    poolSize: 1,
  });
  const take = (holder: string) => takeTickets(context.database, names, holder, 6_000);
  expect(await take('dead')).toEqual(names);
  expect(await take('rival')).toEqual([]);
  await crew.database.moveClock(-3_600_000);
  expect(await take('rival')).toEqual(names);
  await crew.database.moveClock(3_600_000);
  await engine.close();
});
