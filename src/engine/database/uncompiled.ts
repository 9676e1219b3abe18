/**
 * Reads whose cost grows with the amount of data. Postgres compiles statements that look expensive to machine code,
 * which takes seconds; these run inside a function with compilation turned off.
 */
import { run, type Database, type Statement } from './database.ts';
import { arrayText } from './plain-statement.ts';

export type Value = string | number | null | readonly string[];

/** Like `run`. Parameters are sent as strings, so the statement must cast each; rows come back as JSON. */
export async function readUncompiled<Row>(
  database: Database,
  { doing, text, params, repeatable }: Omit<Statement<Row>, 'params'> & { params: readonly Value[] },
): Promise<Row[]> {
  const rows = await run<{ row: Row }>(database, {
    doing,
    repeatable,
    text: `SELECT row FROM ${database.prefix}ff_read($1, $2::text[]) row`,
    params: [text.replaceAll(/\$(\d+)/g, '($$1)[$1]'), params.map(toText)],
  });
  return rows.map(({ row }) => row);
}

function toText(value: Value): string | null {
  if (value === null || typeof value === 'string') return value;
  if (typeof value === 'number') return String(value);
  return arrayText(value);
}
