/**
 * How often an idle process queries the database. Counted over a stretch of real time; a slow machine queries less, so
 * the upper bound holds everywhere.
 */
import pg from 'pg';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { connect, handle, startWorker, task } from '../../src/index.ts';
import type { TestDatabase } from '../../src/testing/test-database.ts';
import { plainDatabase } from '../setup/database.ts';
import { patiently } from '../setup/patience.ts';

/** Per second: one check of the leases, and now and then tickets, timers, routes and the queue. */
const STATEMENTS_PER_SECOND = 2;
const WATCHED_MS = 8_000;

let database: TestDatabase;
beforeAll(async () => {
  database = await plainDatabase();
});
afterAll(() => database.drop());

it('an idle worker that also runs the reconcilers queries less than twice a second', async () => {
  const pool = new pg.Pool({ connectionString: database.url });
  pool.on('error', () => undefined);
  let statements = 0;
  const counting = {
    query: (config: pg.QueryConfig) => {
      statements += 1;
      return pool.query(config);
    },
  };
  const engine = await connect({ pool: counting as never, schema: database.schema, listenUrl: database.url });
  const worker = startWorker(engine, { log: 'silent', handlers: [handle(task('idle'), () => null)] });
  // All first passes run at the start.
  const passed = () => engine.upkeep.reports().every(({ passes }) => passes > 0);
  await expect.poll(passed, { timeout: patiently(10_000) }).toBe(true);
  const before = statements;
  const started = performance.now();
  await expect
    .poll(() => performance.now() - started, { timeout: patiently(WATCHED_MS * 2), interval: 100 })
    .toBeGreaterThan(WATCHED_MS);
  const perSecond = ((statements - before) * 1_000) / (performance.now() - started);
  await worker.stop();
  await engine.close();
  await pool.end();
  expect(perSecond).toBeLessThan(STATEMENTS_PER_SECOND);
});
