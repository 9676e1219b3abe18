/**
 * The throw-away databases themselves: each is separate, moving the clock of one affects all its connections, and
 * nothing is left of it. What the assertions in it reject is tested beside the engine.
 */
import pg from 'pg';
import { inject, expect, it } from 'vitest';
import { createTestDatabase } from '../../src/testing/index.ts';
import { emptyDatabase, plainDatabase, testDatabase } from '../setup/database.ts';

const HOUR_MS = 3_600_000;
const NOW = 'SELECT ff_now_ms() AS now, (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS real';
const TRIGGERS = `SELECT count(*) AS n FROM pg_trigger WHERE tgname LIKE 'ff_assert%'`;

async function databaseNames(): Promise<string[]> {
  await using database = await emptyDatabase();
  const found = await database.query<{ datname: string }>('SELECT datname FROM pg_database');
  return found.rows.map(({ datname }) => datname);
}

it('copies the template for many at once, each a separate database', async () => {
  const databases = await Promise.all(Array.from({ length: 4 }, () => testDatabase()));
  const [first, second] = databases;
  await first?.query(`INSERT INTO ff_lane (lane) VALUES ('only here')`);
  expect((await second?.query('SELECT * FROM ff_lane'))?.rows).toEqual([]);
  await Promise.all(databases.map((database) => database.drop()));
});

it('waits until the last connection to the template is gone', async () => {
  const { url } = inject('testServer');
  await using template = await emptyDatabase();
  const user = await template.connect();
  const copied = createTestDatabase({ serverUrl: url, template: template.name });
  await user.query('SELECT 1');
  await user.end();
  await using copy = await copied;
  expect((await copy.query('SELECT current_database() AS name')).rows).toEqual([{ name: copy.name }]);
});

it('is migrated, has assertions and a movable clock without a template too', async () => {
  await using database = await createTestDatabase({ serverUrl: inject('testServer').url });
  expect((await database.query<{ n: number }>(TRIGGERS)).rows[0]?.n).toBe(7);
  await database.setClockOffset(HOUR_MS);
  await database.moveClock('1h');
  const client = await database.connect();
  const { now, real } = (await client.query<{ now: number; real: number }>(NOW)).rows[0] ?? {
    now: 0,
    real: 0,
  };
  expect(Math.round((now - real) / HOUR_MS)).toBe(2);
});

it('is plain on request: no assertions, and a clock that refuses to be moved', async () => {
  await using database = await plainDatabase();
  expect((await database.query<{ n: number }>(TRIGGERS)).rows[0]?.n).toBe(0);
  await expect(database.moveClock(1)).rejects.toMatchObject({ code: 'invalid_input' });
  await expect(database.moveClock('soon')).rejects.toMatchObject({ code: 'invalid_input', field: 'by' });
});

it('lets a closing connection close without reporting that it was terminated', async () => {
  const database = await emptyDatabase();
  const errors: string[] = [];
  const client = new pg.Client({ connectionString: database.url });
  client.on('error', (error) => errors.push(error.message));
  await client.connect();
  const leaving = client.query('SELECT pg_sleep(0.2)').then(
    () => client.end(),
    (error: Error) => errors.push(error.message),
  );
  await database.drop();
  await leaving;
  expect(errors).toEqual([]);
});

it('is gone after drop(), along with its open connections', async () => {
  const database = await testDatabase();
  const client = await database.connect();
  await client.query('BEGIN');
  await database.drop();
  await database.drop();
  await expect(client.query('SELECT 1')).rejects.toThrow();
  expect(await databaseNames()).not.toContain(database.name);
});
