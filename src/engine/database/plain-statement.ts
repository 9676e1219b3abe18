/**
 * Rewrites a statement so that every library sends it and returns its rows alike: each parameter is a string, and each
 * row is one JSON string. Libraries differ in how they represent arrays, big numbers, bytes and JSON, and can be
 * configured to parse values or rename columns; none of that affects a string. Knows no library.
 */
import { EngineError } from '../../contract/errors.ts';

export interface PlainStatement {
  text: string;
  params: (string | null)[];
}

/** On a caller's connection the engine only runs SELECTs, so each can be wrapped in another. */
export function plainStatement(text: string, params: readonly unknown[]): PlainStatement {
  const typed = text.replaceAll(/\$\d+/g, '$&::text');
  return {
    text: `SELECT to_json(ff_row)::text AS ff_row FROM (${typed}) AS ff_row`,
    params: params.map(paramText),
  };
}

/** Restores a row from what the library returned: an object or an array with one string in it. */
export function readPlainRow<Row>(row: unknown): Row {
  const text: unknown = Object.values(Object(row) as object)[0];
  if (typeof text === 'string') return JSON.parse(text) as Row;
  throw new EngineError(
    'invalid_input',
    'executor must return each row as an object or an array with its one string.',
    {
      field: 'executor',
    },
  );
}

function paramText(param: unknown): string | null {
  if (param === null || param === undefined) return null;
  return Array.isArray(param) ? arrayText(param) : String(param);
}

/**
 * Quoted, because `null`, the empty string, commas and braces have a meaning in an array literal. Most arrays are ids or
 * numbers of a whole batch: those are joined as they are, without a string for each element.
 */
export function arrayText(elements: readonly unknown[]): string {
  if (elements.every(isWhole)) return `{${elements.join(',')}}`;
  if (elements.every(isUnescaped)) return `{"${elements.join('","')}"}`;
  return `{${elements.map(elementText).join(',')}}`;
}

function isWhole(element: unknown): boolean {
  return Number.isSafeInteger(element);
}

function isUnescaped(element: unknown): boolean {
  return typeof element === 'string' && !element.includes('"') && !element.includes('\\');
}

/** A parameter as the driver should send it. The driver would escape every element of an array on its own. */
export function sentParam(param: unknown): unknown {
  return Array.isArray(param) && param.every(isPlain) ? arrayText(param) : param;
}

function isPlain(element: unknown): boolean {
  return element === null || typeof element === 'string' || typeof element === 'number';
}

function elementText(element: unknown): string {
  if (element === null || element === undefined) return 'NULL';
  return `"${String(element).replaceAll(/["\\]/g, String.raw`\$&`)}"`;
}
