/**
 * The adapter for Kysely, plain and with a plugin that renames result columns.
 */
import { CamelCasePlugin, Kysely, PostgresDialect, sql, type Transaction } from 'kysely';
import pg from 'pg';
import { kyselyExecutor, kyselyTransactor } from '../../src/adapters/index.ts';
import { describeLibrary, type Library } from './library.ts';

interface Tables {
  'public.booking': { id: string };
}

const PLUGINS = { Kysely: [], 'Kysely with camel-case names': [new CamelCasePlugin()] };

for (const [name, plugins] of Object.entries(PLUGINS)) {
  describeLibrary(name, async (url): Promise<Library<Transaction<Tables>>> => {
    const pool = new pg.Pool({ connectionString: url, max: 2 });
    // Dropping the database may end a connection before its pool does.
    pool.on('error', () => undefined);
    pool.on('connect', (client) => client.on('error', () => undefined));
    const db = new Kysely<Tables>({ dialect: new PostgresDialect({ pool }), plugins });
    return {
      transaction: (work) => db.transaction().execute(work),
      executor: kyselyExecutor,
      transactor: kyselyTransactor(db),
      write: (trx, id) => trx.insertInto('public.booking').values({ id }).execute(),
      send: (trx, statement) => sql.raw(statement).execute(trx),
      close: () => db.destroy(),
    };
  });
}
