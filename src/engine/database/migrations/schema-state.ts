/**
 * Checks, before anything else runs, that the schema exists and that this code can work with it.
 */
import { EngineError } from '../../../contract/errors.ts';
import { columns } from '../columns.ts';
import { run, type Database } from '../database.ts';
import { MIGRATION } from './migration-plan.ts';
import { FITNESS, refuseUnfit } from '../server-fitness.ts';
import { FUNCTION_SET_VERSION, readMigrations } from './migrate.ts';

const INSTALLED = columns<{ version: number; isolation: string }>({
  version: 'version',
  isolation: "current_setting('transaction_isolation')",
});

export async function checkSchema(database: Database): Promise<void> {
  const doing = `checking schema ${database.schema}`;
  const [fitness] = await run(database, {
    doing,
    columns: FITNESS,
    text: `SELECT ${FITNESS.list}`,
    params: [],
    repeatable: 'yes',
  });
  refuseUnfit(fitness!);
  const files = readMigrations();
  const rows = await run(database, {
    doing,
    columns: MIGRATION,
    text: `SELECT ${MIGRATION.list} FROM ${database.prefix}ff_migration ORDER BY version`,
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
  const installed = await run(database, {
    doing,
    columns: INSTALLED,
    text: `SELECT ${INSTALLED.list} FROM ${database.prefix}ff_function_set`,
    params: [],
    repeatable: 'yes',
  });
  if (installed[0] !== undefined && installed[0].isolation !== 'read committed') {
    throw new EngineError(
      'isolation_unsupported',
      `The engine needs READ COMMITTED, but this role or database defaults to ${installed[0].isolation}. Set default_transaction_isolation for the role.`,
    );
  }
  if ((installed[0]?.version ?? 0) < FUNCTION_SET_VERSION) {
    throw new EngineError(
      'schema_missing',
      `Schema ${database.schema} has the functions of an older version. Run migrate() first.`,
    );
  }
}
