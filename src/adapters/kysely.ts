/**
 * For Kysely on Postgres with any dialect: a transaction, or the database object to begin one on. Only the parts in use
 * are described here; the package is not imported.
 */
import type { SqlExecutor } from '../contract/transactions.ts';
import type { Through } from './through.ts';

/** Kysely's compiled query, made from a string. */
export interface KyselyStatement {
  readonly sql: string;
  readonly parameters: readonly unknown[];
  readonly query: {
    readonly kind: 'RawNode';
    readonly sqlFragments: readonly string[];
    readonly parameters: readonly [];
  };
  readonly queryId: { readonly queryId: string };
}

/** `Transaction<DB>`. */
export interface KyselyTransaction {
  /** Plugins rename columns and rewrite values; the engine's statements must not go through them. */
  withoutPlugins(): {
    executeQuery(statement: KyselyStatement): Promise<{ readonly rows: readonly unknown[] }>;
  };
}

/** `Kysely<DB>`. */
export interface KyselyRoot<Trx extends KyselyTransaction> {
  transaction(): {
    setIsolationLevel(level: 'read committed'): {
      execute<Value>(work: (trx: Trx) => Promise<Value>): Promise<Value>;
    };
  };
}

/** Submits inside a transaction of Kysely: give it as `executor`. */
export function kyselyExecutor(trx: KyselyTransaction): SqlExecutor {
  return (text, params) =>
    trx.withoutPlugins().executeQuery({
      sql: text,
      parameters: params,
      query: { kind: 'RawNode', sqlFragments: [text], parameters: [] },
      queryId: { queryId: 'flowfabric' },
    });
}

/** Runs `ctx.tx`, or the handler of a consumer, in a transaction of Kysely. */
export function kyselyTransactor<Trx extends KyselyTransaction>(db: KyselyRoot<Trx>): Through<Trx> {
  return (work) =>
    db
      .transaction()
      .setIsolationLevel('read committed')
      .execute((trx) => work(trx, kyselyExecutor(trx)));
}
