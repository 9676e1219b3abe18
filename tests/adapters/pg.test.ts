/**
 * The adapter for `pg`, on a pool and its clients.
 */
import pg from 'pg';
import { expect, test } from 'vitest';
import { pgExecutor, pgTransactor } from '../../src/adapters/index.ts';
import { plainDatabase } from '../setup/database.ts';
import { describeLibrary, type Library } from './library.ts';

describeLibrary('pg', async (url): Promise<Library<pg.PoolClient>> => {
  const pool = new pg.Pool({ connectionString: url, max: 2 });
  // Dropping the database may end a connection before its pool does.
  pool.on('error', () => undefined);
  return {
    async transaction(work) {
      const client = await pool.connect();
      try {
        await client.query('BEGIN');
        const value = await work(client);
        await client.query('COMMIT');
        return value;
      } catch (error) {
        await client.query('ROLLBACK');
        throw error;
      } finally {
        client.release();
      }
    },
    executor: pgExecutor,
    transactor: pgTransactor(pool),
    write: (client, id) => client.query('INSERT INTO public.booking VALUES ($1)', [id]),
    send: (client, statement) => client.query(statement),
    close: () => pool.end(),
  };
});

test('a connection that breaks inside a transaction fails only that transaction', async () => {
  await using database = await plainDatabase();
  const pool = new pg.Pool({ connectionString: database.url, max: 1 });
  // Dropping the database may end a connection before its pool does.
  pool.on('error', () => undefined);
  const transact = pgTransactor(pool);
  const cut = transact(async (client) => {
    const { rows } = await client.query<{ pid: number }>('SELECT pg_backend_pid() AS pid');
    const ended = new Promise((resolve) => client.once('end', resolve));
    await database.query('SELECT pg_terminate_backend($1)', [rows[0]!.pid]);
    await ended;
    return client.query('SELECT 1');
  });
  await expect(cut).rejects.toThrow();
  expect(await transact(async (client) => (await client.query('SELECT 1 AS one')).rows)).toEqual([
    { one: 1 },
  ]);
  await pool.end();
});
