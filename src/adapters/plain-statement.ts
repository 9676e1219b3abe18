/**
 * Makes a statement of the engine's that every library sends and answers alike: each parameter is a text, and the
 * answer is one JSON text per row. Libraries differ in how they spell arrays, big numbers and JSON, and their users
 * may have them rename columns; nothing of that can touch a text. Knows no library.
 */
import type { SqlExecutor } from '../contract/engine.ts';

export interface PlainStatement {
  text: string;
  params: (string | null)[];
}

/** Sends a plain statement and answers its rows, each an object or an array with the one text in it. */
export type PlainQuery = (statement: PlainStatement) => Promise<readonly unknown[]>;

export function plainExecutor(query: PlainQuery): SqlExecutor {
  return async (text, params) => {
    const rows = await query(plainStatement(text, params));
    return { rows: rows.map((row) => JSON.parse(textOf(row)) as unknown) };
  };
}

/** The engine sends its callers' connections SELECTs only, so each can be the inside of another. */
function plainStatement(text: string, params: readonly unknown[]): PlainStatement {
  const typed = text.replaceAll(/\$\d+/g, '$&::text');
  return {
    text: `SELECT to_json(ff_row)::text AS ff_row FROM (${typed}) AS ff_row`,
    params: params.map(paramText),
  };
}

function paramText(param: unknown): string | null {
  if (param === null || param === undefined) return null;
  return Array.isArray(param) ? `{${param.map(elementText).join(',')}}` : String(param);
}

/** Quoted, because `null`, the empty text, commas and braces mean something in an array otherwise. */
function elementText(element: unknown): string {
  if (element === null || element === undefined) return 'NULL';
  return `"${String(element).replaceAll(/["\\]/g, String.raw`\$&`)}"`;
}

function textOf(row: unknown): string {
  return Object.values(row as Record<string, string>)[0]!;
}
