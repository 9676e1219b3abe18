/**
 * The adapter for postgres.js, plain and with the settings that change how it sends arrays and names columns.
 */
import postgres from 'postgres';
import { postgresJsExecutor, postgresJsTransactor } from '../../src/adapters/index.ts';
import { describeLibrary, type Library } from './library.ts';

const SETTINGS = {
  'postgres.js': {},
  'postgres.js with camel-case names and JSON keys': { transform: postgres.camel },
  'postgres.js that does not ask for array types': { fetch_types: false, prepare: false },
};

for (const [name, settings] of Object.entries(SETTINGS)) {
  describeLibrary(name, async (url): Promise<Library<postgres.TransactionSql>> => {
    const sql = postgres(url, { max: 2, ...settings });
    return {
      transaction: async <Value>(work: (sql: postgres.TransactionSql) => Promise<Value>) =>
        (await sql.begin(async (own) => [await work(own)]))[0] as Value,
      executor: postgresJsExecutor,
      transactor: postgresJsTransactor(sql),
      write: (own, id) => own`INSERT INTO public.booking VALUES (${id})`,
      send: (own, statement) => own.unsafe(statement),
      close: () => sql.end(),
      losing: 'throws past its caller',
    };
  });
}
