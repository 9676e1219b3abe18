/**
 * Calls the SQL functions for a running handler: record a step, pause, report progress; and reads steps.
 */
import { run, type Database } from '../database/database.ts';
import { runNamed } from '../database/inside.ts';
import type { ListedStep, StepRecord } from '../../contract/steps.ts';
import type { SqlExecutor } from '../../contract/transactions.ts';
import { columns, columnsOf, inSchema, type RowOf } from '../database/columns.ts';
import type { Answered } from '../executions/answered.sql.ts';
import {
  jsonValues,
  JSON_VALUES,
  LEASE_ARRAYS,
  leaseArrays,
  leaseCall,
  type ExecutionKey,
  type LeaseAnswer,
  type LeaseKey,
} from '../executions/executions.sql.ts';

export interface StepRow extends LeaseKey {
  kind: 'step' | 'sleep';
  name: string;
  key: string;
  sleepMs: number | null;
  durationMs: number | null;
  /** As JSON. */
  value: string | null;
}

/** A step with its stored value; that of a wait is its outcome. */
export type StoredStep = Omit<StepRecord, 'value' | 'end'> & { value: unknown };

/** `ordinal` is the position of the step among those that were sent. */
const RECORDED = columnsOf<Answered & StoredStep & { ordinal: number }>()(
  'ordinal',
  'outcome',
  'repeated',
  'lifecyclePhase',
  'terminalOutcome',
  'leaseEpoch',
  'kind',
  'value',
  'dueInMs',
);
export type StepAnswer = RowOf<typeof RECORDED>;

export function recordSteps(database: Database, rows: readonly StepRow[]): Promise<StepAnswer[]> {
  return run(database, recordStatement(database, rows, null));
}

/** Inside the caller's transaction. */
export function recordStepsInside(
  database: Database,
  executor: SqlExecutor,
  rows: readonly StepRow[],
): Promise<StepAnswer[]> {
  return runNamed(executor, (transaction) => recordStatement(database, rows, transaction));
}

function recordStatement(database: Database, rows: readonly StepRow[], transaction: string | null) {
  return {
    doing: 'recording steps',
    columns: RECORDED,
    text: `SELECT ${RECORDED.list} FROM ${database.prefix}ff_record_steps(${LEASE_ARRAYS}, $5::text[]::${database.prefix}ff_step_kind[], $6::text[],
      $7::text[], $8::bigint[], ${JSON_VALUES('$9')}, $10::integer[], $11::text)`,
    params: [
      ...leaseArrays(rows),
      rows.map((row) => row.kind),
      rows.map((row) => row.name),
      rows.map((row) => row.key),
      rows.map((row) => row.sleepMs),
      jsonValues(rows.map((row) => row.value)),
      rows.map((row) => row.durationMs),
      transaction,
    ],
    repeatable: 'yes' as const,
  };
}

const STEP = columns<StoredStep>({
  kind: 'kind::text',
  name: 'name',
  key: 'key',
  value: 'value',
  dueInMs: "CASE kind WHEN 'sleep' THEN greatest((value #>> '{}')::bigint - s.ff_now_ms(), 0) END",
});

export function readSteps(database: Database, key: ExecutionKey, limit: number): Promise<StoredStep[]> {
  return run(database, {
    doing: 'reading steps',
    columns: STEP,
    text: inSchema(
      database,
      `SELECT ${STEP.list} FROM s.ff_step WHERE execution_id = $1 AND retired_by = 0 AND partition_key = $2 LIMIT $3`,
    ),
    params: [key.uuid, key.partition, limit],
    repeatable: 'yes',
  });
}

/** A stored step as it is shown. Without a value when that is too large. */
export type ShownStep = Omit<ListedStep, 'end' | 'value'> & StoredStep;

const SHOWN = columns<ShownStep>({
  kind: 't.kind::text',
  name: 't.name',
  key: 't.key',
  value: 'CASE WHEN $4::integer IS NULL OR x.bytes <= $4::integer THEN t.value END',
  dueInMs: "CASE t.kind WHEN 'sleep' THEN greatest((t.value #>> '{}')::bigint - s.ff_now_ms(), 0) END",
  attemptIndex: 't.attempt_index',
  recordedAtMs: 't.recorded_at_ms',
  durationMs: 't.duration_ms',
  valueBytes: 'coalesce(x.bytes, 0)',
  valueStart: 'CASE WHEN x.bytes > $4::integer THEN left(t.value::text, $4::integer) END',
});

/** Within a millisecond, in the order they are stored. */
export function listSteps(
  database: Database,
  key: ExecutionKey,
  { limit, valueBytes }: { limit: number; valueBytes: number | null },
): Promise<ShownStep[]> {
  return run(database, {
    doing: 'listing steps',
    columns: SHOWN,
    text: inSchema(
      database,
      `SELECT ${SHOWN.list} FROM (
         SELECT *, ctid AS place FROM s.ff_step WHERE execution_id = $1 AND retired_by = 0 AND partition_key = $2
         ORDER BY recorded_at_ms DESC, ctid DESC LIMIT $3) t
       CROSS JOIN LATERAL (SELECT octet_length(t.value::text) AS bytes OFFSET 0) x
       ORDER BY t.recorded_at_ms, t.place`,
    ),
    params: [key.uuid, key.partition, limit, valueBytes],
    repeatable: 'yes',
  });
}

export interface PauseRow extends LeaseKey {
  delayMs: number | null;
  children: readonly string[] | null;
  needed: number | null;
}

export function pauseExecutions(database: Database, rows: readonly PauseRow[]): Promise<LeaseAnswer[]> {
  return run(database, {
    doing: 'pausing executions',
    ...leaseCall(database, `ff_pause(${LEASE_ARRAYS}, $5::bigint[], ${JSON_VALUES('$6')}, $7::integer[])`),
    params: [
      ...leaseArrays(rows),
      rows.map((row) => row.delayMs),
      jsonValues(rows.map((row) => (row.children === null ? null : JSON.stringify(row.children)))),
      rows.map((row) => row.needed),
    ],
    repeatable: 'yes',
  });
}

export interface ProgressRow extends LeaseKey {
  percent: number | null;
  message: string | null;
}

export async function reportProgress(database: Database, rows: readonly ProgressRow[]): Promise<void> {
  await run(database, {
    doing: 'reporting progress',
    text: `SELECT ${database.prefix}ff_report_progress(${LEASE_ARRAYS}, $5::real[], $6::text[])`,
    params: [...leaseArrays(rows), rows.map((row) => row.percent), rows.map((row) => row.message)],
    repeatable: 'yes',
  });
}
