/**
 * The adapter for Drizzle, on both of its server drivers, which return results in different shapes.
 */
import { drizzle as onPg, type NodePgDatabase } from 'drizzle-orm/node-postgres';
import { drizzle as onPostgresJs, type PostgresJsDatabase } from 'drizzle-orm/postgres-js';
import { pgTable, text } from 'drizzle-orm/pg-core';
import pg from 'pg';
import postgres from 'postgres';
import { drizzleExecutor, drizzleTransactor } from '../../src/adapters/index.ts';
import { describeLibrary, type Library } from './library.ts';

type TransactionOf<Db extends { transaction: (work: never) => unknown }> = Parameters<
  Parameters<Db['transaction']>[0]
>[0];

const booking = pgTable('booking', { id: text().primaryKey() });

describeLibrary('Drizzle on pg', async (url): Promise<Library<TransactionOf<NodePgDatabase>>> => {
  const pool = new pg.Pool({ connectionString: url, max: 2 });
  // Dropping the database may end a connection before its pool does.
  pool.on('error', () => undefined);
  pool.on('connect', (client) => client.on('error', () => undefined));
  const db = onPg(pool);
  return {
    transaction: (work) => db.transaction(work),
    executor: drizzleExecutor,
    transactor: drizzleTransactor(db),
    write: (tx, id) => tx.insert(booking).values({ id }),
    send: (tx, statement) => tx.execute(statement),
    close: () => pool.end(),
  };
});

describeLibrary(
  'Drizzle on postgres.js',
  async (url): Promise<Library<TransactionOf<PostgresJsDatabase>>> => {
    const sql = postgres(url, { max: 2 });
    const db = onPostgresJs(sql);
    return {
      transaction: (work) => db.transaction(work),
      executor: drizzleExecutor,
      transactor: drizzleTransactor(db),
      write: (tx, id) => tx.insert(booking).values({ id }),
      send: async (tx, statement) => tx.execute(statement),
      close: () => sql.end(),
      losing: 'throws past its caller',
    };
  },
);
