/**
 * Which statements the functions consist of, read from their installed source, to know whether each was seen; and the
 * leading column of each index.
 */
import type { TestDatabase } from '../../src/testing/test-database.ts';
import type { RecordedPlan } from './plan-recorder.ts';
import type { LeadingColumns } from './plan-rules.ts';

export interface FunctionStatement {
  within: string;
  fromLine: number;
  toLine: number;
}

/** Every statement of every function that reads a table, by its lines. */
export async function statementsOf(test: TestDatabase): Promise<FunctionStatement[]> {
  const functions = await test.query<{ name: string; body: string }>(
    `SELECT p.proname AS name, p.prosrc AS body FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
     WHERE p.pronamespace = $1::regnamespace AND l.lanname = 'plpgsql' ORDER BY 1`,
    [test.schema],
  );
  return functions.rows.flatMap(({ name, body }) => statementsIn(name, body));
}

function statementsIn(within: string, body: string): FunctionStatement[] {
  const statements: FunctionStatement[] = [];
  let line = 1;
  for (const part of body.replaceAll(/--[^\n]*/g, '').split(';')) {
    const toLine = line + part.split('\n').length - 1;
    const fromLine = line + (/^\s*/.exec(part)?.[0].split('\n').length ?? 1) - 1;
    if (/\b(?:FROM|INSERT INTO|UPDATE)\s/.test(part)) statements.push({ within, fromLine, toLine });
    line = toLine;
  }
  return statements;
}

/** The statements that none of the plans belongs to. */
export function unseen(statements: readonly FunctionStatement[], plans: readonly RecordedPlan[]): string[] {
  const isSeen = ({ within, fromLine, toLine }: FunctionStatement): boolean =>
    plans.some((plan) => plan.within === within && plan.line >= fromLine && plan.line <= toLine);
  return statements
    .filter((statement) => !isSeen(statement))
    .map(({ within, fromLine, toLine }) => `${within} lines ${fromLine} to ${toLine}`);
}

export async function leadingColumns(test: TestDatabase): Promise<LeadingColumns> {
  const columns = await test.query<{ index: string; column: string }>(
    `SELECT c.relname AS index, trim('()' FROM pg_get_indexdef(i.indexrelid, 1, true)) AS column
     FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE c.relnamespace = $1::regnamespace`,
    [test.schema],
  );
  return new Map(columns.rows.map((row) => [row.index, row.column]));
}
