/**
 * Makes a statement of the engine's that every library sends and answers alike: each parameter is a text, and the
 * answer is one JSON text per row. Libraries differ in how they spell arrays, big numbers, bytes and JSON, and their users
 * may have them parse values or rename columns; nothing of that can touch a text. Knows no library.
 */
import { EngineError } from '../../contract/errors.ts';

export interface PlainStatement {
  text: string;
  params: (string | null)[];
}

/** The engine sends its callers' connections SELECTs only, so each can be the inside of another. */
export function plainStatement(text: string, params: readonly unknown[]): PlainStatement {
  const typed = text.replaceAll(/\$\d+/g, '$&::text');
  return {
    text: `SELECT to_json(ff_row)::text AS ff_row FROM (${typed}) AS ff_row`,
    params: params.map(paramText),
  };
}

/** A row as it was before it became a text: an object or a list with that one text in it. */
export function readPlainRow<Row>(row: unknown): Row {
  const text: unknown = Object.values(Object(row) as object)[0];
  if (typeof text === 'string') return JSON.parse(text) as Row;
  throw new EngineError(
    'invalid_input',
    'executor must answer rows with the one text that each of them has.',
    {
      field: 'executor',
    },
  );
}

function paramText(param: unknown): string | null {
  if (param === null || param === undefined) return null;
  return Array.isArray(param) ? arrayText(param) : String(param);
}

/** Quoted, because `null`, the empty text, commas and braces mean something in an array otherwise. */
export function arrayText(elements: readonly unknown[]): string {
  return `{${elements.map(elementText).join(',')}}`;
}

function elementText(element: unknown): string {
  if (element === null || element === undefined) return 'NULL';
  return `"${String(element).replaceAll(/["\\]/g, String.raw`\$&`)}"`;
}
