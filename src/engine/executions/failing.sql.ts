/**
 * Calls the SQL function that fails attempts.
 */
import { columns, inSchema, type RowOf } from '../database/columns.ts';
import { onlyRow, run, type Database } from '../database/database.ts';
import type { Answered } from './answered.sql.ts';
import {
  jsonValues,
  JSON_VALUES,
  LEASE_ARRAYS,
  leaseArrays,
  type FlowEffect,
  type LeaseAnswer,
  type LeaseKey,
} from './executions.sql.ts';

export interface FailRow extends LeaseKey {
  message: string;
  category: string;
  retryAfterMs: number | null;
  terminal: boolean;
  /** As JSON. */
  detail: string | null;
}

/** What became of an attempt that failed just now. */
export type FailedAnswer = Pick<
  Answered<'failed' | 'retry_scheduled'>,
  'uuid' | 'outcome' | 'repeated' | 'dueInMs'
>;

/** `maxRetries`: of the policies, in the order of the rows; null for an execution that does not exist. */
const FAILED = columns<{
  answers: FailedAnswer[] | null;
  others: LeaseAnswer[] | null;
  effects: FlowEffect[] | null;
  maxRetries: (number | null)[];
}>({
  answers: 'f.answers',
  others: 'f.others',
  effects: 'f.effects',
  maxRetries: 's.ff_max_retries($1::uuid[])',
});

export async function failExecutions(
  database: Database,
  rows: readonly FailRow[],
): Promise<RowOf<typeof FAILED>> {
  const answer = await run(database, {
    doing: 'failing executions',
    columns: FAILED,
    text: inSchema(
      database,
      `SELECT ${FAILED.list} FROM s.ff_fail(${LEASE_ARRAYS}, $5::text[], $6::text[], $7::bigint[], $8::boolean[],
         ${JSON_VALUES('$9')}) f`,
    ),
    params: [
      ...leaseArrays(rows),
      rows.map((row) => row.message),
      rows.map((row) => row.category),
      rows.map((row) => row.retryAfterMs),
      rows.map((row) => row.terminal),
      jsonValues(rows.map((row) => row.detail)),
    ],
    repeatable: 'yes',
  });
  return onlyRow('failing executions', answer);
}
