/**
 * Transactions of user code: how the engine runs statements in one, and how it provides one.
 */

/** Runs one statement inside the caller's own transaction. All parameters and all returned columns are strings. */
export type SqlExecutor = (text: string, params: (string | null)[]) => Promise<{ rows: readonly unknown[] }>;

/** Runs work in a transaction and commits when it returns. The executor runs statements in the same transaction. */
export type Transactor<Tx> = <Value>(
  work: (tx: Tx, executor: SqlExecutor) => Promise<Value>,
) => Promise<Value>;

/** A transaction with the `query` method of `pg`. */
export interface SqlTransaction {
  query<Row = Record<string, unknown>>(
    text: string,
    params?: unknown[],
  ): Promise<{ rows: Row[]; rowCount: number | null }>;
}

/**
 * Runs work in a transaction on a connection reserved for that, so that leases are renewed meanwhile; with `through`,
 * in a transaction of another library. Resolves once it is committed. Work that ends its transaction itself is refused.
 */
export type Transact = <Value, Tx = SqlTransaction>(
  work: (tx: Tx, executor: SqlExecutor) => Promise<Value>,
  options?: { through?: Transactor<Tx> },
) => Promise<Value>;
