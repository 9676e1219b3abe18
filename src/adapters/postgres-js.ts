/**
 * For `postgres` (postgres.js): the `sql` of a transaction, or the root `sql` to begin one on. Only the parts in use
 * are described here; the package is not imported.
 */
import type { SqlExecutor } from '../contract/transactions.ts';
import type { Through } from './through.ts';

/** What `sql.begin()` passes to its function. */
export interface PostgresJsSql {
  unsafe(text: string, params?: (string | null)[]): PromiseLike<readonly unknown[]>;
}

/** What `postgres()` returns. */
export interface PostgresJsRoot<Sql extends PostgresJsSql> {
  begin(options: string, work: (sql: Sql) => Promise<unknown>): Promise<unknown>;
}

/** Submits inside a transaction of postgres.js: give it as `executor`. */
export function postgresJsExecutor(sql: PostgresJsSql): SqlExecutor {
  return async (text, params) => ({ rows: [...(await sql.unsafe(text, params))] });
}

/** Runs `ctx.tx`, or the handler of a consumer, in a transaction of postgres.js. */
export function postgresJsTransactor<Sql extends PostgresJsSql>(root: PostgresJsRoot<Sql>): Through<Sql> {
  return async <Value>(work: (sql: Sql, executor: SqlExecutor) => Promise<Value>): Promise<Value> => {
    // In an object, because the library awaits the items of a returned list.
    const done = (await root.begin('ISOLATION LEVEL READ COMMITTED', async (sql) => ({
      value: await work(sql, postgresJsExecutor(sql)),
    }))) as { value: Value };
    return done.value;
  };
}
