/**
 * What executions redact.
 */
import type { Redaction } from '../../contract/redaction.ts';
import { columns, inSchema } from '../database/columns.ts';
import { run, type Database } from '../database/database.ts';
import type { ExecutionKey } from './executions.sql.ts';

/** Of the execution `e`: null when it redacts nothing. The policy is looked up only for those that do. */
export const REDACTION = columns<{ redaction: Redaction | null }>({
  redaction: `CASE WHEN e.traits & 8 <> 0 THEN s.ff_policy_of(e.policy, e.policy_id) -> 'redact' END`,
});

/** Undefined when there is no such execution. */
export async function readRedaction(
  database: Database,
  key: ExecutionKey,
): Promise<{ redaction: Redaction | null } | undefined> {
  const rows = await run(database, {
    doing: 'reading what an execution redacts',
    columns: REDACTION,
    text: inSchema(
      database,
      `SELECT ${REDACTION.list} FROM s.ff_execution e WHERE e.execution_id = $1 AND e.partition_key = $2`,
    ),
    params: [key.uuid, key.partition],
    repeatable: 'yes',
  });
  return rows[0];
}
