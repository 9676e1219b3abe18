/**
 * For Drizzle on Postgres with any driver: a transaction, or the database object to begin one on. Only the parts in
 * use are described here; the package is not imported.
 */
import type { SqlExecutor } from '../contract/transactions.ts';
import type { Through } from './through.ts';

/** What Drizzle's `execute()` takes besides a string: an object that can return its SQL and parameters. */
export interface DrizzleStatement {
  getSQL(): { toQuery(config: never): { sql: string; params: unknown[] } };
}

/** What `db.transaction()` passes to its function. */
export interface DrizzleTransaction {
  execute(query: string | DrizzleStatement): PromiseLike<unknown>;
}

/** What `drizzle()` returns. */
export interface DrizzleRoot<Tx extends DrizzleTransaction> {
  transaction<Value>(
    work: (tx: Tx) => Promise<Value>,
    config?: { isolationLevel?: 'read committed' },
  ): Promise<Value>;
}

/** Submits inside a transaction of Drizzle: give it as `executor`. */
export function drizzleExecutor(tx: DrizzleTransaction): SqlExecutor {
  return async (text, params) => ({ rows: rowsOf(await tx.execute(asDrizzle(text, params))) });
}

/** Runs `ctx.tx`, or the handler of a consumer, in a transaction of Drizzle. */
export function drizzleTransactor<Tx extends DrizzleTransaction>(db: DrizzleRoot<Tx>): Through<Tx> {
  return (work) =>
    db.transaction((tx) => work(tx, drizzleExecutor(tx)), { isolationLevel: 'read committed' });
}

function asDrizzle(text: string, params: unknown[]): DrizzleStatement {
  return { getSQL: () => ({ toQuery: () => ({ sql: text, params }) }) };
}

/** Drizzle returns what its driver returns: a list of rows, or an object that has one. */
function rowsOf(answer: unknown): readonly unknown[] {
  return Array.isArray(answer) ? answer : (answer as { rows: unknown[] }).rows;
}
