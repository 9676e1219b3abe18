/**
 * The settings the engine requires of a database, because its statements would mean something else without them.
 */
import { EngineError } from '../../contract/errors.ts';
import { columns } from './columns.ts';

export interface Fitness {
  encoding: string;
  arrayNulls: string;
}

export const FITNESS = columns<Fitness>({
  encoding: "current_setting('server_encoding')",
  arrayNulls: "current_setting('array_nulls')",
});

/** Payloads are Unicode, and NULL in an array must not be read as a string. */
export function refuseUnfit({ encoding, arrayNulls }: Fitness): void {
  if (encoding !== 'UTF8')
    throw new EngineError(
      'database_unsupported',
      `The database has the encoding ${encoding}, which cannot store every string: create another with CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0.`,
    );
  if (arrayNulls !== 'on')
    throw new EngineError(
      'database_unsupported',
      'array_nulls is off for this role or database, but the engine sends arrays with NULL: run ALTER ROLE … SET array_nulls TO on.',
    );
}
