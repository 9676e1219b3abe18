/**
 * Statements that read and whose cost grows with what there is. Compiling such a statement to machine code, as Postgres does with what
 * looks expensive, takes seconds; they run inside a function that never compiles.
 */
import { run, type Database, type Statement } from './database.ts';
import { arrayText } from './plain-statement.ts';

export type Value = string | number | null | readonly string[];

/** As `run`. Every parameter has a cast beside it, because it travels as text; rows travel as JSON. */
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
