/**
 * Database roles with few rights, for tests of what the engine needs. Roles belong to the whole server, so each has a
 * unique name and is dropped after the database that granted it rights.
 */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, inject } from 'vitest';
import pg from 'pg';
import type { TestDatabase } from '../../../src/testing/test-database.ts';
import { emptyDatabase } from '../../setup/database.ts';

export interface Role {
  name: string;
  password: string;
  /** The connection string of this role for the database of the file. */
  url: string;
}

export interface Roles {
  readonly database: TestDatabase;
  /** A role that may connect and nothing else. */
  create(): Promise<Role>;
  /** Runs statements as the superuser. */
  admin(...statements: string[]): Promise<void>;
}

/** An empty database and roles on it, for the tests of one file. */
export function useRoles(): Roles {
  const names: string[] = [];
  let database: TestDatabase;
  beforeAll(async () => {
    database = await emptyDatabase();
  });
  afterAll(async () => {
    await database?.drop();
    await onServer(inject('testServer').url, ...names.map((name) => `DROP ROLE ${name}`));
  });
  return {
    get database() {
      return database;
    },
    async create() {
      const name = `ff_role_${randomUUID().replaceAll('-', '')}`;
      const password = randomUUID();
      await onServer(database.url, `CREATE ROLE ${name} LOGIN PASSWORD '${password}'`);
      names.push(name);
      const url = new URL(database.url);
      url.username = name;
      url.password = password;
      return { name, password, url: url.href };
    },
    admin: (...statements) => onServer(database.url, ...statements),
  };
}

async function onServer(url: string, ...statements: string[]): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    for (const statement of statements) await client.query(statement);
  } finally {
    await client.end();
  }
}
