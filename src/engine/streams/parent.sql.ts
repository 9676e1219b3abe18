/**
 * Calls the SQL function by which a child changes the document of its parent, and reads whether that has ended. Only
 * statements, no decisions.
 */
import type { Json } from '../../contract/json.ts';
import { columnsOf, inSchema, type RowOf } from '../database/columns.ts';
import { run, type Database } from '../database/database.ts';
import type { Answered } from '../executions/answered.sql.ts';
import type { LeaseKey } from '../executions/executions.sql.ts';

export interface ParentStepRow extends LeaseKey {
  name: string;
  key: string;
  durationMs: number | null;
  /** As JSON. */
  value: string | null;
  changes: string;
}

const RECORDED = columnsOf<Answered & { value: Json; parentId: string | null }>()(
  'outcome',
  'repeated',
  'lifecyclePhase',
  'terminalOutcome',
  'leaseEpoch',
  'value',
  'parentId',
);
export type ParentStepAnswer = RowOf<typeof RECORDED>;

export async function recordForParent(
  database: Database,
  row: ParentStepRow,
  maxDocumentBytes: number,
): Promise<ParentStepAnswer> {
  const rows = await run(database, {
    doing: 'recording steps',
    columns: RECORDED,
    text: `SELECT ${RECORDED.list} FROM ${database.prefix}ff_record_for_parent($1::uuid, $2::smallint, $3::integer, $4::bigint, $5::text, $6::text,
      $7::jsonb, $8::integer, $9::jsonb, $10::integer)`,
    params: [
      row.uuid,
      row.partition,
      row.attemptIndex,
      row.leaseEpoch,
      row.name,
      row.key,
      row.value,
      row.durationMs,
      row.changes,
      maxDocumentBytes,
    ],
    repeatable: 'yes',
  });
  return rows[0]!;
}

/** Undefined when the execution does not exist; null when it has no parent. */
export async function readParentEnded(
  database: Database,
  { uuid, partition }: LeaseKey,
): Promise<boolean | null | undefined> {
  const rows = await run<{ ended: boolean | null }>(database, {
    doing: 'reading the parent of an execution',
    text: inSchema(
      database,
      `SELECT p.lifecycle_phase = 'terminal' AS ended FROM s.ff_execution e
       LEFT JOIN s.ff_execution p ON p.execution_id = e.parent_id AND p.partition_key = e.partition_key
       WHERE e.execution_id = $1 AND e.partition_key = $2`,
    ),
    params: [uuid, partition],
    repeatable: 'yes',
  });
  return rows[0]?.ended;
}
