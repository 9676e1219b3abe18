/**
 * What a migration of a schema would do: the files that are not applied yet, and what prevents it. Only reads; nothing
 * is locked or created.
 */
import { EngineError } from '../../../contract/errors.ts';
import { columnsOf, type RowOf } from '../columns.ts';
import { parsed } from '../../../contract/shape/kinds.ts';
import { shape } from '../../../contract/shape/shape.ts';
import { openDatabase, run, type Database } from '../database.ts';
import {
  DEFAULT_SCHEMA,
  FUNCTION_SET_VERSION,
  readFunctionSet,
  readMigrations,
  type MigrateOptions,
} from './migrate.ts';
import { quoteIdentifier } from '../names.ts';

/** One thing a migration would run, under the name in its report. */
export interface PlannedChange {
  name: string;
  sql: string;
}

export interface SchemaStanding {
  schema: string;
  /** `closed`: it exists, and this role may not read it. */
  access: 'open' | 'missing' | 'closed';
  /** How many of the `known` migrations of this version are applied. */
  applied: number;
  known: number;
  pending: PlannedChange[];
  /** `older` functions cannot be used; `different` ones have the right version and different content. */
  functions: 'current' | 'different' | 'older' | 'newer';
  /** Applied migrations that this version does not know, and those of them it cannot work with. */
  newer: string[];
  breaking: string[];
  /** Migrations applied with different content than they have now. */
  drifted: string[];
}

/** As it was applied. */
interface Migration {
  version: number;
  name: string;
  checksum: string;
  breaking: boolean;
}

export const MIGRATION = columnsOf<Migration>()('version', 'name', 'checksum', 'breaking');
const FUNCTION_SET = columnsOf<Migration>()('version', 'checksum');

interface Ledger {
  migrations: Migration[];
  functions: RowOf<typeof FUNCTION_SET> | undefined;
}

export interface MigrationPlan {
  /** In the order they would be applied; empty when the schema is up to date. */
  pending: PlannedChange[];
}

const planOptions = shape<Pick<MigrateOptions, 'databaseUrl' | 'schema'>>({
  databaseUrl: parsed,
  schema: parsed.optional(),
});

/**
 * What `migrate` would apply with these options. Throws what `migrate` would throw for a schema it cannot bring up to
 * date.
 */
export async function planMigration(
  options: Pick<MigrateOptions, 'databaseUrl' | 'schema'>,
): Promise<MigrationPlan> {
  const { databaseUrl, schema = DEFAULT_SCHEMA } = planOptions.check(options, 'options', '');
  const database = openDatabase({ databaseUrl, schema, poolSize: 1 });
  try {
    const standing = await readStanding(database);
    refuseUnfit(standing);
    return { pending: standing.pending };
  } finally {
    await database.close();
  }
}

function refuseUnfit({ schema, access, breaking, drifted }: SchemaStanding): void {
  if (access === 'closed') {
    throw new EngineError('permission_denied', `The database role may not read schema ${schema}.`);
  }
  if (breaking.length > 0) {
    throw new EngineError(
      'schema_newer',
      `Schema ${schema} has migration ${breaking[0]}, which this version of flowfabric cannot work with.`,
    );
  }
  if (drifted.length > 0) {
    throw new EngineError(
      'schema_drift',
      `Migration ${drifted[0]} was applied to schema ${schema} with different content than it has now.`,
    );
  }
}

/** Compares the schema with the files of this version. */
export async function readStanding(database: Database): Promise<SchemaStanding> {
  const { schema } = database;
  const access = await readAccess(database);
  const ledger: Ledger =
    access === 'open' ? await readLedger(database) : { migrations: [], functions: undefined };
  const files = readMigrations();
  const own = ledger.migrations.filter(({ version }) => version <= files.length);
  const foreign = ledger.migrations.filter(({ version }) => version > files.length);
  const set = readFunctionSet();
  const functions = compareFunctions(ledger.functions, set.checksum);
  const create = { name: `schema ${schema}`, sql: `CREATE SCHEMA ${quoteIdentifier(schema)};\n` };
  return {
    schema,
    access,
    applied: own.length,
    known: files.length,
    pending: [
      ...(access === 'missing' ? [create] : []),
      ...files.slice(own.length).map(({ name, text }) => ({ name, sql: text })),
      ...(['older', 'different'].includes(functions)
        ? [{ name: 'functions', sql: set.texts.join('\n') }]
        : []),
    ],
    functions,
    newer: foreign.map(({ name }) => name),
    breaking: foreign.filter(({ breaking }) => breaking).map(({ name }) => name),
    drifted: own
      .filter(({ version, checksum }) => files[version - 1]?.checksum !== checksum)
      .map(({ name }) => name),
  };
}

function compareFunctions(installed: Ledger['functions'], checksum: string): SchemaStanding['functions'] {
  if (installed === undefined || installed.version < FUNCTION_SET_VERSION) return 'older';
  if (installed.version > FUNCTION_SET_VERSION) return 'newer';
  return installed.checksum === checksum ? 'current' : 'different';
}

async function readAccess(database: Database): Promise<SchemaStanding['access']> {
  const rows = await run<{ open: boolean }>(database, {
    doing: `checking access to schema ${database.schema}`,
    text: `SELECT has_schema_privilege(oid, 'USAGE') AND coalesce((
             SELECT has_table_privilege(t.oid, 'SELECT') FROM pg_class t
             WHERE t.relnamespace = n.oid AND t.relname = 'ff_migration'), true) AS open
           FROM pg_namespace n WHERE nspname = $1`,
    params: [database.schema],
    repeatable: 'yes',
  });
  if (rows[0] === undefined) return 'missing';
  return rows[0].open ? 'open' : 'closed';
}

/** Empty for a schema that exists but was never migrated. */
async function readLedger(database: Database): Promise<Ledger> {
  const doing = `reading the migrations of schema ${database.schema}`;
  try {
    const migrations = await run(database, {
      doing,
      columns: MIGRATION,
      text: `SELECT ${MIGRATION.list} FROM ${database.prefix}ff_migration ORDER BY version`,
      params: [],
      repeatable: 'yes',
    });
    const functions = await run(database, {
      doing,
      columns: FUNCTION_SET,
      text: `SELECT ${FUNCTION_SET.list} FROM ${database.prefix}ff_function_set`,
      params: [],
      repeatable: 'yes',
    });
    return { migrations, functions: functions[0] };
  } catch (error) {
    if (error instanceof EngineError && error.code === 'schema_missing')
      return { migrations: [], functions: undefined };
    throw error;
  }
}
