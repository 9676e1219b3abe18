/**
 * Brings a schema up to date: numbered SQL files, applied once, in order, recorded with their checksum; then the
 * function set, which is replaced as a whole when its text changed. Everything happens in one transaction behind an
 * advisory lock, so any number of processes may start at once.
 *
 * Files name no schema: they run with search_path set to it, and functions keep that search_path.
 */
import { createHash } from 'node:crypto';
import pg from 'pg';
import { EngineError } from '../../../contract/errors.ts';
import { choice, parsed, string } from '../../../contract/shape/kinds.ts';
import { shape } from '../../../contract/shape/shape.ts';
import { CONNECT_LIMIT_MS } from '../database.ts';
import { quoteIdentifier, validDatabaseUrl, validSchemaName } from '../names.ts';
import { toEngineError } from '../errors.ts';
import { FITNESS, refuseUnfit, type Fitness } from '../server-fitness.ts';
import { sqlFiles } from './sql-files.ts';
import { VALUE_PARSERS } from '../value-parsers.ts';

export const DEFAULT_SCHEMA = 'flowfabric';

/** Postgres truncates longer names, and would grant the privileges to another role. */
const MAX_ROLE_BYTES = 63;

/** Raised whenever a released function set changes, so that older code never reinstalls older functions. */
export const FUNCTION_SET_VERSION = 1;

/** Which schema is migrated. */
export interface MigrateOptions {
  databaseUrl: string;
  schema?: string;
  /** Another role that will run the engine: it is granted the privileges it needs, and nothing else. */
  grantTo?: string;
  /** `movable` installs the test clock. Only for schemas created for tests. */
  clock?: 'database' | 'movable';
}

/** What a migration did. */
export interface MigrateReport {
  /** Names of what was applied, in order; empty when the schema was up to date. */
  applied: string[];
}

/** The tables a running engine writes. The others (migrations, transitions) are only read. */
const WORKING_TABLES = [
  'ff_attempt_history',
  'ff_setback',
  'ff_setting',
  'ff_cancel_backlog',
  'ff_edge',
  'ff_edge_group',
  'ff_flow',
  'ff_flow_job',
  'ff_flow_progress',
  'ff_former_route',
  'ff_member',
  'ff_pending_cancel_groups',
  'ff_frame',
  'ff_mailbox',
  'ff_message',
  'ff_run',
  'ff_signal',
  'ff_signing_key',
  'ff_stream_meta',
  'ff_stream_summary',
  'ff_suspension',
  'ff_waitpoint',
  'ff_policy',
  'ff_child_wait',
  'ff_consumer',
  'ff_end_order',
  'ff_event_run',
  'ff_execution',
  'ff_family_place',
  'ff_generation',
  'ff_idempotency',
  'ff_key',
  'ff_published',
  'ff_topic',
  'ff_topic_seen',
  'ff_topic_wait',
  'ff_lane',
  'ff_grant',
  'ff_payload',
  'ff_progress',
  'ff_ready',
  'ff_reconciler',
  'ff_route',
  'ff_sequencer',
  'ff_step',
  'ff_tag',
  'ff_timer',
  'ff_worker',
];

/** The parts of the event log. The oldest is truncated as a whole. */
const EVENT_SLOTS = Array.from({ length: 8 }, (_, slot) => `ff_event_${slot}`);

interface MigrationFile {
  version: number;
  name: string;
  text: string;
  checksum: string;
  breaking: boolean;
}

interface AppliedMigration {
  version: number;
  name: string;
  checksum: string;
  breaking: boolean;
}

const migrateOptions = shape<MigrateOptions>({
  databaseUrl: parsed,
  schema: parsed.optional(),
  grantTo: string(MAX_ROLE_BYTES).optional(),
  clock: choice(['database', 'movable']).optional(),
});

/** Migrates, and returns what was applied. Safe to call on every start and from many processes concurrently. */
export async function migrate(options: MigrateOptions): Promise<MigrateReport> {
  migrateOptions.check(options, 'options', '');
  const schema = validSchemaName(options.schema ?? DEFAULT_SCHEMA);
  const client = new pg.Client({
    connectionString: validDatabaseUrl(options.databaseUrl),
    connectionTimeoutMillis: CONNECT_LIMIT_MS,
    types: VALUE_PARSERS as unknown as pg.CustomTypesConfig,
  });
  // A broken connection is reported by the statement under way. Without a listener the error would crash the process.
  client.on('error', () => undefined);
  try {
    await client.connect();
    refuseUnfit((await client.query<Fitness>(`SELECT ${FITNESS.list}`)).rows[0]!);
    await client.query('BEGIN ISOLATION LEVEL READ COMMITTED');
    const applied = await migrateLocked(client, schema, options);
    await client.query('COMMIT');
    return { applied };
  } catch (error) {
    throw toEngineError(error, `migrating schema ${schema}`);
  } finally {
    // Closing the connection rolls back an open transaction: nothing of a failed migration stays.
    await client.end().catch(() => undefined);
  }
}

async function migrateLocked(client: pg.Client, schema: string, options: MigrateOptions): Promise<string[]> {
  await client.query('SELECT pg_advisory_xact_lock(hashtextextended($1, 0))', [`flowfabric:${schema}`]);
  await openSchema(client, schema);
  const files = readMigrations();
  const known = await readLedger(client);
  refuseForeign(files, known);
  const applied: string[] = [];
  for (const file of files.slice(known.filter((row) => row.version <= files.length).length)) {
    await client.query(file.text);
    await client.query(
      'INSERT INTO ff_migration (version, name, checksum, breaking, applied_at_ms) VALUES ($1, $2, $3, $4, ff_now_ms())',
      [file.version, file.name, file.checksum, file.breaking],
    );
    applied.push(file.name);
  }
  if (await installFunctions(client)) applied.push('functions');
  if (options.clock === 'movable') await installMovableClock(client, known.length === 0);
  if (options.grantTo !== undefined) await grantUse(client, schema, options.grantTo);
  return applied;
}

async function openSchema(client: pg.Client, schema: string): Promise<void> {
  const quoted = quoteIdentifier(schema);
  const found = await client.query('SELECT 1 FROM pg_namespace WHERE nspname = $1', [schema]);
  // Checked first: CREATE SCHEMA IF NOT EXISTS needs a privilege on the database even when the schema exists.
  if (found.rowCount === 0) await client.query(`CREATE SCHEMA ${quoted}`);
  await requireRights(client, schema);
  await client.query(`SET LOCAL search_path TO ${quoted}, pg_temp`);
  await client.query('SET LOCAL client_min_messages TO warning');
  await client.query('SET LOCAL jit TO off');
  await client.query(
    `CREATE TABLE IF NOT EXISTS ff_migration (
       version integer PRIMARY KEY, name text NOT NULL, checksum text NOT NULL, breaking boolean NOT NULL,
       applied_at_ms bigint NOT NULL)`,
  );
  await client.query(
    `CREATE TABLE IF NOT EXISTS ff_function_set (
       only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row), version integer NOT NULL, checksum text NOT NULL)`,
  );
}

/** Checked, because Postgres reports a schema without USAGE as if it did not exist. */
async function requireRights(client: pg.Client, schema: string): Promise<void> {
  const rights = await client.query<{ enough: boolean }>(
    `SELECT has_schema_privilege($1, 'USAGE') AND has_schema_privilege($1, 'CREATE') AS enough`,
    [schema],
  );
  if (rights.rows[0]?.enough) return;
  throw new EngineError(
    'permission_denied',
    `The database role may not create objects in schema ${schema}. Migrate as its owner, with grantTo set to this role.`,
  );
}

async function readLedger(client: pg.Client): Promise<AppliedMigration[]> {
  const ledger = await client.query<AppliedMigration>(
    'SELECT version, name, checksum, breaking FROM ff_migration ORDER BY version',
  );
  return ledger.rows;
}

function refuseForeign(files: MigrationFile[], known: AppliedMigration[]): void {
  for (const row of known) {
    const file = files[row.version - 1];
    if (file === undefined && row.breaking) {
      throw new EngineError(
        'schema_newer',
        `The database has migration ${row.name}, which this version of flowfabric does not know and cannot work with. ` +
          'Upgrade the package, or use another schema.',
      );
    }
    if (file !== undefined && file.checksum !== row.checksum) {
      throw new EngineError(
        'schema_drift',
        `Migration ${row.name} was applied with different content than ${file.name} has now. ` +
          'Released migrations never change: restore the file, or use a fresh schema.',
      );
    }
  }
}

async function installFunctions(client: pg.Client): Promise<boolean> {
  const { texts, checksum } = readFunctionSet();
  const found = await client.query<{ version: number; checksum: string }>(
    'SELECT version, checksum FROM ff_function_set',
  );
  const installed = found.rows[0];
  if (installed !== undefined && installed.version > FUNCTION_SET_VERSION) return false;
  if (installed !== undefined && installed.checksum === checksum) return false;
  for (const text of texts) await client.query(text);
  await client.query(
    `INSERT INTO ff_function_set (version, checksum) VALUES ($1, $2)
     ON CONFLICT (only_row) DO UPDATE SET version = EXCLUDED.version, checksum = EXCLUDED.checksum`,
    [FUNCTION_SET_VERSION, checksum],
  );
  return true;
}

/** The SQL of all functions, and the checksum that is stored for it. */
export function readFunctionSet(): { texts: string[]; checksum: string } {
  const texts = sqlFiles('functions').map(({ text }) => text);
  return { texts, checksum: sha256(texts.join('\n')) };
}

/** Only into a schema that this call created or that already has it: real work must not run on a movable clock. */
async function installMovableClock(client: pg.Client, isNew: boolean): Promise<void> {
  const found = await client.query<{ clock: string | null }>(`SELECT to_regclass('ff_clock') AS clock`);
  if (!isNew && found.rows[0]?.clock === null) {
    throw new EngineError(
      'invalid_input',
      'clock cannot be movable in a schema that was created without it.',
      {
        field: 'clock',
      },
    );
  }
  await client.query(testingSql('clock.sql'));
}

async function grantUse(client: pg.Client, schema: string, role: string): Promise<void> {
  const found = await client.query('SELECT 1 FROM pg_roles WHERE rolname = $1', [role]);
  if (found.rowCount === 0) {
    throw new EngineError(
      'invalid_input',
      `There is no role ${role} to grant to: create it with CREATE ROLE first.`,
      {
        field: 'grantTo',
      },
    );
  }
  const to = quoteIdentifier(role);
  const inSchema = `IN SCHEMA ${quoteIdentifier(schema)} TO ${to}`;
  await client.query(`GRANT USAGE ON SCHEMA ${quoteIdentifier(schema)} TO ${to}`);
  await client.query(`GRANT SELECT ON ALL TABLES ${inSchema}`);
  await client.query(`GRANT INSERT, UPDATE, DELETE ON ${WORKING_TABLES.join(', ')} TO ${to}`);
  // The log is append-only, and its writer does not choose the transaction id; old slots are truncated.
  await client.query(`GRANT INSERT (${await writtenColumns(client)}) ON ff_event_pack TO ${to}`);
  await client.query(`GRANT TRUNCATE ON ff_event_pack, ${EVENT_SLOTS.join(', ')} TO ${to}`);
  await client.query(`GRANT USAGE ON ALL SEQUENCES ${inSchema}`);
  await client.query(`GRANT EXECUTE ON ALL FUNCTIONS ${inSchema}`);
}

/** All columns of the event log except those the database fills in. */
async function writtenColumns(client: pg.Client): Promise<string> {
  const found = await client.query<{ names: string }>(
    `SELECT string_agg(quote_ident(attname), ', ') AS names FROM pg_attribute
     WHERE attrelid = 'ff_event_pack'::regclass AND attnum > 0 AND NOT attisdropped AND attname NOT IN ('ev_id', 'xid')`,
  );
  return found.rows[0]!.names;
}

/** The migration files by number. Numbers start at 1 without gaps, so that a version is also a count. */
export function readMigrations(): MigrationFile[] {
  return sqlFiles('migrations').map(({ name, text }, index) => {
    const version = Number(name.slice(0, 4));
    if (version !== index + 1) {
      throw new EngineError('schema_drift', `Migration files must be numbered without gaps; found ${name}.`);
    }
    return { version, name, text, checksum: sha256(text), breaking: /^-- Breaking: yes$/m.test(text) };
  });
}

/** SQL that is only installed in schemas created for tests. */
export function testingSql(name: 'assertions.sql' | 'clock.sql'): string {
  return sqlFiles('testing').find((file) => file.name === name)!.text;
}

function sha256(text: string): string {
  return createHash('sha256').update(text.replaceAll('\r\n', '\n')).digest('hex');
}
