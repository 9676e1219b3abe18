/**
 * What is shown of the database a process works on: never a password, and no parameter.
 */
import { afterEach, expect, it, vi } from 'vitest';
import type { PoolLike } from './database.ts';
import { databaseNameOf } from './database-name.ts';

afterEach(() => void vi.unstubAllEnvs());

const NAME = { host: 'db.internal', port: 6543, database: 'app', user: 'ada' };

function pool(options: object | undefined): PoolLike {
  return { query: async () => ({ rows: [] }), ...(options === undefined ? {} : { options }) } as PoolLike;
}

it('is read from a URL, without its password and parameters', () => {
  const databaseUrl = 'postgres://ada:hunter2@db.internal:6543/app?password=hunter3&options=secret';
  expect(databaseNameOf({ databaseUrl })).toEqual(NAME);
});

it('has the defaults of the driver, which come from the environment', () => {
  vi.stubEnv('PGUSER', 'ada');
  vi.stubEnv('PGPORT', '6543');
  expect(databaseNameOf({ databaseUrl: 'postgres://db.internal/app' })).toEqual(NAME);
});

it('is read from the pool of the application', () => {
  expect(databaseNameOf({ pool: pool({ ...NAME, password: 'hunter2', max: 3 }) })).toEqual(NAME);
  const connectionString = 'postgres://ada:hunter2@db.internal:6543/app';
  expect(databaseNameOf({ pool: pool({ connectionString }) })).toEqual(NAME);
});

it('is unknown for a pool that does not tell', () => {
  expect(databaseNameOf({ pool: pool(undefined) })).toBeUndefined();
});
