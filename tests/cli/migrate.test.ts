/**
 * `flowfabric migrate`: what it applies, what --dry-run prints, and that a dry run changes nothing. What the migrations
 * contain is tested elsewhere.
 */
import { describe, expect, it } from 'vitest';
import { emptyDatabase, plainDatabase } from '../setup/database.ts';
import { runCommand } from './processes.ts';

const NOWHERE = 'postgres://nobody@127.0.0.1:1/nothing';

describe('flowfabric migrate', () => {
  it('creates the given schema, and has nothing to do the second time', async () => {
    await using database = await emptyDatabase();
    const args = ['migrate', '--schema', 'orders', '--url', database.url];
    const first = await runCommand({ args, databaseUrl: NOWHERE });
    expect(first.exitCode).toBe(0);
    expect(first.output).toContain('applied 0001_');
    const second = await runCommand({ args });
    expect(second).toEqual({ exitCode: 0, output: 'Schema orders is up to date.\n', errors: '' });
    const found = await database.query(`SELECT 1 FROM orders.ff_migration`);
    expect(found.rowCount).toBeGreaterThan(0);
  });

  it('prints what it applied as one object with --json', async () => {
    await using database = await emptyDatabase();
    const { output } = await runCommand({ args: ['migrate', '--json'], databaseUrl: database.url });
    const answer = JSON.parse(output) as { schema: string; applied: string[] };
    expect(answer.schema).toBe('flowfabric');
    expect(answer.applied.at(0)).toMatch(/^0001_/);
    expect(answer.applied.at(-1)).toBe('functions');
  });
});

describe('flowfabric migrate --dry-run', () => {
  it('prints what migrate then applies, and changes nothing', async () => {
    await using database = await emptyDatabase();
    const dry = await runCommand({ args: ['migrate', '--dry-run'], databaseUrl: database.url });
    expect(dry).toMatchObject({ exitCode: 0, errors: '' });
    const schemas = await database.query(`SELECT 1 FROM pg_namespace WHERE nspname = 'flowfabric'`);
    expect(schemas.rowCount).toBe(0);
    const wet = await runCommand({ args: ['migrate'], databaseUrl: database.url });
    const named = [...dry.output.matchAll(/^would apply (.*)$/gm)].map(([, name]) => name);
    const applied = [...wet.output.matchAll(/^applied (.*)$/gm)].map(([, name]) => name);
    expect(named).toEqual(['schema flowfabric', ...applied]);
  });

  it('prints the SQL as well with --show-sql', async () => {
    await using database = await emptyDatabase();
    const args = ['migrate', '--dry-run', '--show-sql', '--grant-to', 'app'];
    const { output } = await runCommand({ args, databaseUrl: database.url });
    expect(output).toMatch(/^-- would apply 0001_.*\n(--.*\n)+/m);
    expect(output).toContain('CREATE TABLE ff_execution');
    expect(output).toContain('CREATE OR REPLACE FUNCTION ff_claim(');
    expect(output).toContain('-- would grant the use of schema flowfabric to app');
  });

  it('prints nothing to apply for a schema that is up to date', async () => {
    await using database = await plainDatabase();
    const text = await runCommand({ args: ['migrate', '--dry-run'], databaseUrl: database.url });
    expect(text.output).toBe('Schema flowfabric is up to date.\n');
    const json = await runCommand({ args: ['migrate', '--dry-run', '--json'], databaseUrl: database.url });
    expect(JSON.parse(json.output)).toEqual({
      schema: 'flowfabric',
      dryRun: true,
      pending: [],
      grantTo: null,
    });
  });

  it('prints only the functions when only they changed', async () => {
    await using database = await plainDatabase();
    await database.query(`UPDATE ff_function_set SET checksum = 'of other functions'`);
    const { output } = await runCommand({ args: ['migrate', '--dry-run'], databaseUrl: database.url });
    expect(output).toBe('would apply functions\n');
  });

  it.each([
    [`UPDATE ff_migration SET checksum = 'of another text' WHERE version = 1`, 'schema_drift'],
    [`INSERT INTO ff_migration VALUES (9999, '9999_later', 'x', true, 0)`, 'schema_newer'],
  ])('refuses a schema it could not migrate: %s', async (damage, code) => {
    await using database = await plainDatabase();
    await database.query(damage);
    const { exitCode, output, errors } = await runCommand({
      args: ['migrate', '--dry-run'],
      databaseUrl: database.url,
    });
    expect({ exitCode, output }).toEqual({ exitCode: 1, output: '' });
    expect(errors).toContain(`[${code}]`);
  });
});
