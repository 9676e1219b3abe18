/**
 * Transactions of user code: how the engine is given one, and how it gives one.
 */

/** Runs one statement inside a transaction of the caller's own. All its parameters are texts, and so is what each row answers. */
export type SqlExecutor = (text: string, params: (string | null)[]) => Promise<{ rows: readonly unknown[] }>;

/** Runs work in a transaction and commits when it returns. The executor is the same transaction's. */
export type Transactor<Tx> = <Value>(
  work: (tx: Tx, executor: SqlExecutor) => Promise<Value>,
) => Promise<Value>;

/** One statement on a transaction, as `pg` spells it. */
export interface SqlTransaction {
  query<Row = Record<string, unknown>>(
    text: string,
    params?: unknown[],
  ): Promise<{ rows: Row[]; rowCount: number | null }>;
}

/**
 * Runs work in a transaction on a connection kept for that, so that leases are renewed meanwhile; or, with `through`, in one of a
 * library's. Answers once it is committed. Work that ends its transaction itself is refused.
 */
export type Transact = <Value, Tx = SqlTransaction>(
  work: (tx: Tx, executor: SqlExecutor) => Promise<Value>,
  options?: { through?: Transactor<Tx> },
) => Promise<Value>;
