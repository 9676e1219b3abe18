/**
 * What TypeScript may import from schema-dump.mjs.
 */

/** One open connection, as a `pg` client gives it. */
export interface Queryable {
  query: (text: string, values?: unknown[]) => Promise<{ rows: Record<string, unknown>[] }>;
}

export function dumpSchema(client: Queryable, schemaName: string): Promise<string>;
