/**
 * Names that go into SQL text instead of parameters: checked, then quoted.
 * Everything else travels as a parameter.
 */
import pg from 'pg';
import { refuse } from '../../contract/shape/shape.ts';

/** Postgres truncates longer identifiers silently; the notification channel needs room for its suffix. */
const MAX_SCHEMA_BYTES = 48;

export function quoteIdentifier(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}

/** Schemas of Postgres' own. */
const RESERVED_SCHEMAS = /^(pg_|information_schema$)/;

/** Schema names are limited to lower-case letters, digits and underscores, which are safe everywhere. */
export function validSchemaName(name: string): string {
  const isPlain = typeof name === 'string' && /^[a-z_][a-z0-9_]*$/.test(name);
  if (!isPlain || name.length > MAX_SCHEMA_BYTES || RESERVED_SCHEMAS.test(name)) {
    refuse(
      'schema',
      `must consist of at most ${MAX_SCHEMA_BYTES} lower-case letters, digits and underscores, must not begin with a digit or pg_, and must not be information_schema`,
    );
  }
  return name;
}

/** The channel for hints; one per schema, because channels belong to the whole database. */
export function hintChannel(schema: string): string {
  return `${schema}_hints`;
}

/**
 * Refuses what the driver would misread: an unset variable as "use the defaults", several hosts as one name, an invalid
 * port.
 */
export function validDatabaseUrl(url: unknown, field = 'databaseUrl'): string {
  if (typeof url !== 'string' || !/^(postgres|postgresql|socket):/.test(url))
    refuse(field, 'must be a postgres:// URL (is the variable it comes from set?)');
  const [, authority = '', query = ''] = /^[a-z]+:\/\/([^/?#]*)[^?#]*\??([^#]*)/.exec(url) ?? [];
  const parameters = new URLSearchParams(query);
  const hosts = authority.slice(authority.lastIndexOf('@') + 1);
  if (`${hosts}${parameters.get('host') ?? ''}`.includes(','))
    refuse(
      field,
      'has several hosts, and the engine connects to one: give a name or address that follows the primary, or that of a pooler',
    );
  const port = parameters.get('port') ?? /:([^:\]]*)$/.exec(hosts)?.[1] ?? '';
  if (port !== '' && !isPort(port)) refuse(field, 'must have a port from 1 to 65535');
  try {
    // Reads the URL as the driver does, including the files it names; does not connect.
    void new pg.Client({ connectionString: url });
  } catch (error) {
    const { code, syscall } = error as NodeJS.ErrnoException;
    if (syscall === undefined)
      refuse(field, 'is not a URL; encode characters such as / ? # @ % in the user name and the password');
    refuse(
      field,
      `names a file (sslrootcert, sslcert or sslkey) that cannot be read (${code}); check its path and permissions`,
    );
  }
  return url;
}

function isPort(text: string): boolean {
  return /^\d{1,5}$/.test(text) && Number(text) > 0 && Number(text) < 65_536;
}
