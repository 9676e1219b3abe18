/**
 * For `pg` (node-postgres): a client inside a transaction, or a pool to begin one on. Only the parts in use are
 * described here; the package is not imported.
 */
import type { SqlExecutor } from '../contract/transactions.ts';
import type { Through } from './through.ts';

/** `pg.Client` or `pg.PoolClient`. */
export interface PgClient {
  query(text: string, params?: unknown[]): Promise<{ rows: unknown[] }>;
}

/** A client of a pool, as far as it is used. */
export interface PgPoolClient extends PgClient {
  release(broken?: boolean): void;
  on(event: 'error', listener: () => void): unknown;
  removeListener(event: 'error', listener: () => void): unknown;
}

/** `pg.Pool`. */
export interface PgPool<Client extends PgPoolClient> {
  connect(): Promise<Client>;
  /** Never called. The compiler infers `Client` only if this has as many overloads as `pg` has. */
  connect(callback: (...args: never[]) => void): void;
}

/** For a client on which you have sent BEGIN. A pool does not work: each of its queries may use another connection. */
export function pgExecutor(client: PgClient): SqlExecutor {
  return async (text, params) => ({ rows: (await client.query(text, params)).rows });
}

/** Runs `ctx.tx`, or the handler of a consumer, in a transaction of a `pg` pool. */
export function pgTransactor<Client extends PgPoolClient>(pool: PgPool<Client>): Through<Client> {
  return async (work) => {
    const client = await pool.connect();
    let broken = false;
    client.on('error', heard);
    try {
      await client.query('BEGIN ISOLATION LEVEL READ COMMITTED');
      const value = await work(client, pgExecutor(client));
      await client.query('COMMIT');
      return value;
    } catch (error) {
      broken = await client.query('ROLLBACK').then(
        () => false,
        () => true,
      );
      throw error;
    } finally {
      client.removeListener('error', heard);
      client.release(broken);
    }
  };
}

/**
 * A broken connection emits an error, which would end the process if nobody listened. The next statement fails anyway.
 */
function heard(): void {}
