/**
 * Checks, before anything else runs, that the schema is there and is one this code can work with.
 */
import { EngineError } from '../contract/errors.ts';
import { run, type Database } from './database.ts';
import { readMigrations } from './migrate.ts';

export async function checkSchema(database: Database): Promise<void> {
  const files = await readMigrations();
  const rows = await run<{ version: number; name: string; breaking: boolean }>(database, {
    doing: `checking schema ${database.schema}`,
    text: `SELECT version, name, breaking FROM ${database.prefix}ff_migration ORDER BY version`,
    params: [],
    repeatable: 'yes',
  });
  const newer = rows.find((row) => row.version > files.length && row.breaking);
  if (newer !== undefined) {
    throw new EngineError(
      'schema_newer',
      `Schema ${database.schema} has migration ${newer.name}, which this version of flowfabric cannot work with. Upgrade the package.`,
    );
  }
  if (rows.length < files.length) {
    throw new EngineError(
      'schema_missing',
      `Schema ${database.schema} is at migration ${rows.length} of ${files.length}. Run migrate() first.`,
    );
  }
}
