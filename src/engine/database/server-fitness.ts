/**
 * What the engine needs of a database before it works on it: settings under which the same statement would mean something else.
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

/** Payloads are Unicode, and NULL among the members of an array must not be read as a word. */
export function refuseUnfit({ encoding, arrayNulls }: Fitness): void {
  if (encoding !== 'UTF8')
    throw new EngineError(
      'database_unsupported',
      `The database has the encoding ${encoding}, which cannot hold every text: make another with CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0.`,
    );
  if (arrayNulls !== 'on')
    throw new EngineError(
      'database_unsupported',
      'array_nulls is off for this role or database, and the engine sends arrays with NULL: ALTER ROLE … SET array_nulls TO on.',
    );
}
