/**
 * Names that go into SQL text instead of parameters: checked, then quoted.
 * Everything else travels as a parameter.
 */
import { EngineError } from '../contract/errors.ts';

/** Postgres truncates longer identifiers silently; the notification channel needs room for its suffix. */
const MAX_SCHEMA_BYTES = 48;

export function quoteIdentifier(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}

/** A schema name that needs no thought anywhere: lower case letters, digits and underscores. */
export function validSchemaName(name: string): string {
  if (!/^[a-z_][a-z0-9_]*$/.test(name) || name.length > MAX_SCHEMA_BYTES || name.startsWith('pg_')) {
    throw new EngineError(
      'invalid_input',
      `schema must be lower-case letters, digits and underscores, at most ${MAX_SCHEMA_BYTES}, not beginning with a digit or pg_.`,
      { field: 'schema' },
    );
  }
  return name;
}

/** The channel hints are sent on; one per schema, because channels are shared by a whole database. */
export function hintChannel(schema: string): string {
  return `${schema}_hints`;
}

/** Refuses what the driver would take for "use the defaults": a variable that was not set must not name a database. */
export function validDatabaseUrl(url: unknown, field = 'databaseUrl'): string {
  if (typeof url === 'string' && /^(postgres|postgresql|socket):/.test(url)) return url;
  throw new EngineError(
    'invalid_input',
    `${field} must be a postgres:// URL; is the variable it comes from set?`,
    {
      field,
    },
  );
}
