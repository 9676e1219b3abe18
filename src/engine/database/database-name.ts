/**
 * The name of the database behind a URL or a pool, as the driver reads it, defaults and environment included. Never a
 * password, and no parameter of a URL, since any of them may be secret.
 */
import pg from 'pg';
import type { DatabaseName } from '../../contract/database-name.ts';
import type { DatabaseOptions } from './database.ts';

/** What a `pg.Pool` was made with, as far as it names a database. */
interface PoolTarget {
  connectionString?: string;
  host?: string;
  port?: number;
  database?: string;
  user?: string;
}

/** Undefined for a pool that does not tell. */
export function databaseNameOf({
  databaseUrl,
  pool,
}: Pick<DatabaseOptions, 'databaseUrl' | 'pool'>): DatabaseName | undefined {
  const given =
    pool === undefined ? { connectionString: databaseUrl! } : (pool.options as PoolTarget | undefined);
  if (given === undefined) return undefined;
  const { connectionString, host, port, database, user }: PoolTarget = given;
  try {
    // Reads its options, and does not connect.
    const client = new pg.Client({ connectionString, host, port, database, user });
    const name = { host: client.host, port: client.port, database: client.database!, user: client.user! };
    return Object.values(name).every((part) => part !== undefined) ? name : undefined;
  } catch {
    return undefined;
  }
}
