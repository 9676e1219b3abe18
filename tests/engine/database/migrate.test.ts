/**
 * Migrating: once, from any number of processes, all or nothing, and never over a schema this code does not know.
 */
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { connect, migrate, type EngineError } from '../../../src/index.ts';
import { readMigrations } from '../../../src/engine/database/migrations/migrate.ts';
import type { TestDatabase } from '../../../src/testing/test-database.ts';
import { emptyDatabase, plainDatabase } from '../../setup/database.ts';

let database: TestDatabase;

async function objects(schema = 'flowfabric'): Promise<string[]> {
  const found = await database.query<{ name: string }>(
    `SELECT c.relname AS name FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1
     UNION ALL
     SELECT p.proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = $1
     UNION ALL
     SELECT t.typname FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace WHERE n.nspname = $1
     ORDER BY 1`,
    [schema],
  );
  return found.rows.map(({ name }) => name);
}

/** Writes a migration into the ledger that has no file in this version. */
async function pretendNewer(breaking: boolean): Promise<void> {
  await database.query(
    `INSERT INTO ff_migration (version, name, checksum, breaking, applied_at_ms)
     SELECT max(version) + 1, '9999_from_the_future.sql', 'x', $1, 0 FROM ff_migration`,
    [breaking],
  );
}

async function canConnect(): Promise<void> {
  const engine = await connect({ databaseUrl: database.url, reconcile: 'off' });
  try {
    const { executionId } = await engine.executions.submit({ kind: 'k' });
    expect(await engine.executions.result(executionId)).toMatchObject({ outcome: 'pending' });
  } finally {
    await engine.close();
  }
}

describe('on an empty database', () => {
  beforeEach(async () => {
    database = await emptyDatabase();
  });
  afterEach(() => database.drop());

  it('everything is applied once, in order', async () => {
    const files = readMigrations().map(({ name }) => name);
    expect(files.length).toBeGreaterThan(1);
    expect(await migrate({ databaseUrl: database.url })).toEqual({ applied: [...files, 'functions'] });
    expect(await migrate({ databaseUrl: database.url })).toEqual({ applied: [] });
    await canConnect();
  });

  it('eight concurrent processes apply it once between them', async () => {
    const files = readMigrations().map(({ name }) => name);
    const reports = await Promise.all(
      Array.from({ length: 8 }, () => migrate({ databaseUrl: database.url })),
    );
    const applied = reports.map((report) => report.applied).filter((names) => names.length > 0);
    expect(applied).toEqual([[...files, 'functions']]);
    await canConnect();
  });

  it('eight concurrent processes apply it once even where transactions are serializable by default', async () => {
    await database.query(
      `ALTER DATABASE ${database.name} SET default_transaction_isolation = 'serializable'`,
    );
    const settled = await Promise.allSettled(
      Array.from({ length: 8 }, () => migrate({ databaseUrl: database.url })),
    );
    const answers = settled.map((one) => {
      if (one.status === 'rejected') return (one.reason as EngineError).message;
      return one.value.applied.length > 0 ? 'applied' : 'nothing to do';
    });
    expect(answers.toSorted()).toEqual(['applied', ...Array.from({ length: 7 }, () => 'nothing to do')]);
  });

  it('a connection that breaks while it waits for its turn is reported as unavailable', async () => {
    const rival = await database.connect();
    await rival.query(`SELECT pg_advisory_lock(hashtextextended('flowfabric:flowfabric', 0))`);
    const migrating = migrate({ databaseUrl: database.url }).catch((error: unknown) => error);
    await vi.waitFor(async () => {
      const broken = await database.query(
        `SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted`,
      );
      expect(broken.rows).toHaveLength(1);
    });
    expect(await migrating).toMatchObject({ name: 'EngineError', code: 'unavailable' });
    await rival.end();
    expect((await migrate({ databaseUrl: database.url })).applied).not.toEqual([]);
  });

  it('eight concurrent processes do not disturb each other in schemas of their own', async () => {
    const schemas = Array.from({ length: 4 }, (_, index) => `schema_${index}`);
    await Promise.all(
      [...schemas, ...schemas].map((schema) => migrate({ databaseUrl: database.url, schema })),
    );
    const contents = await Promise.all(schemas.map((schema) => objects(schema)));
    for (const content of contents) expect(content).toEqual(contents[0]);
  });

  it('a failure half-way leaves nothing', async () => {
    await database.query('CREATE SCHEMA flowfabric');
    // It blocks a later migration, so that earlier ones have run when it fails.
    await database.query('CREATE VIEW flowfabric.ff_attempt AS SELECT 1 AS one');
    const before = await objects();
    await expect(migrate({ databaseUrl: database.url })).rejects.toMatchObject({
      code: 'database_error',
      sqlState: '42P07',
    });
    expect(await objects()).toEqual(before);
    await database.query('DROP VIEW flowfabric.ff_attempt');
    expect((await migrate({ databaseUrl: database.url })).applied).not.toEqual([]);
    await canConnect();
  });

  it('a failure while the schema is being created leaves no schema', async () => {
    await expect(
      migrate({ databaseUrl: database.url, schema: 'half', grantTo: 'nobody_by_this_name' }),
    ).rejects.toMatchObject({ name: 'EngineError', code: 'invalid_input' });
    expect(await objects('half')).toEqual([]);
    const found = await database.query(`SELECT 1 FROM pg_namespace WHERE nspname = 'half'`);
    expect(found.rows).toEqual([]);
  });

  it('connecting is refused with schema_missing and the remedy', async () => {
    await expect(connect({ databaseUrl: database.url })).rejects.toMatchObject({
      code: 'schema_missing',
      message: expect.stringMatching(/migrat/),
    });
  });

  it('nothing is read from a schema that happens to come first in the search path', async () => {
    await database.query('CREATE TABLE public.ff_migration (version integer, name text)');
    await database.query('CREATE FUNCTION public.ff_now_ms() RETURNS bigint LANGUAGE sql RETURN 0');
    await migrate({ databaseUrl: database.url });
    await canConnect();
    const found = await database.query('SELECT created_at_ms FROM ff_execution');
    expect(found.rows[0]!['created_at_ms']).toBeGreaterThan(0);
  });
});

describe('on a migrated database', () => {
  beforeEach(async () => {
    database = await plainDatabase();
  });
  afterEach(() => database.drop());

  it('data and ledger rows stay unchanged', async () => {
    await canConnect();
    const before = await database.query('SELECT * FROM ff_migration ORDER BY version');
    await migrate({ databaseUrl: database.url });
    expect((await database.query('SELECT * FROM ff_migration ORDER BY version')).rows).toEqual(before.rows);
    expect((await database.query('SELECT count(*) AS n FROM ff_execution')).rows).toEqual([{ n: 1 }]);
  });

  it('a migration that differs from its file is refused as schema_drift, and nothing is changed', async () => {
    await database.query(`UPDATE ff_migration SET checksum = 'other' WHERE version = 1`);
    await database.query('DROP FUNCTION ff_cancel');
    await database.query(`UPDATE ff_function_set SET checksum = 'other'`);
    await expect(migrate({ databaseUrl: database.url })).rejects.toMatchObject({
      code: 'schema_drift',
      message: expect.stringMatching(/0001_create_executions\.sql/),
    });
    expect(await objects()).not.toContain('ff_cancel');
  });

  it('a newer migration that breaks this version is refused by migrate and by connect', async () => {
    await pretendNewer(true);
    const refused = { code: 'schema_newer', message: expect.stringMatching(/9999_from_the_future\.sql/) };
    await expect(migrate({ databaseUrl: database.url })).rejects.toMatchObject(refused);
    await expect(connect({ databaseUrl: database.url })).rejects.toMatchObject(refused);
  });

  it('a newer migration that does not break this version is accepted by both', async () => {
    await pretendNewer(false);
    expect(await migrate({ databaseUrl: database.url })).toEqual({ applied: [] });
    await canConnect();
  });

  it('functions that differ are restored', async () => {
    await database.query('DROP FUNCTION ff_cancel');
    await database.query(`UPDATE ff_function_set SET checksum = 'other'`);
    expect(await migrate({ databaseUrl: database.url })).toEqual({ applied: ['functions'] });
    expect(await objects()).toContain('ff_cancel');
  });

  it('transitions that differ are restored, and the others are not written', async () => {
    const read = 'SELECT *, xmin::text AS written_by FROM ff_transition ORDER BY transition';
    const before = (await database.query(read)).rows;
    await database.query(`UPDATE ff_transition SET retry_step = 7 WHERE transition = 'lapse'`);
    await database.query(`DELETE FROM ff_transition WHERE transition = 'claim'`);
    await database.query(
      `INSERT INTO ff_transition SELECT (jsonb_populate_record(t, '{"transition": "vanish"}')).* FROM ff_transition t
       WHERE transition = 'wake'`,
    );
    await database.query(`UPDATE ff_function_set SET checksum = 'other'`);
    expect(await migrate({ databaseUrl: database.url })).toEqual({ applied: ['functions'] });
    const after = (await database.query(read)).rows;
    const values = (row: Record<string, unknown>) => ({ ...row, written_by: undefined });
    expect(after.map(values)).toEqual(before.map(values));
    const isWritten = (row: Record<string, unknown>, place: number) =>
      row['written_by'] !== before[place]!['written_by'];
    expect(after.filter(isWritten).map((row) => row['transition'])).toEqual(['claim', 'lapse']);
  });

  it('functions of a newer version are left alone', async () => {
    await database.query(`UPDATE ff_function_set SET version = version + 1, checksum = 'other'`);
    expect(await migrate({ databaseUrl: database.url })).toEqual({ applied: [] });
  });

  it('a ledger that lacks the last migration is refused by connect as schema_missing', async () => {
    const last = readMigrations().at(-1)!;
    await database.query('DELETE FROM ff_migration WHERE version = $1', [last.version]);
    await expect(connect({ databaseUrl: database.url })).rejects.toMatchObject({ code: 'schema_missing' });
  });

  it('an invalid schema name is refused', async () => {
    for (const schema of [
      '',
      'a b',
      'x"; DROP SCHEMA flowfabric; --',
      'Upper',
      '1st',
      'pg_own',
      's'.repeat(49),
    ]) {
      const refused = { code: 'invalid_input', field: 'schema' };
      await expect(migrate({ databaseUrl: database.url, schema })).rejects.toMatchObject(refused);
    }
  });
});
