/**
 * Calls the SQL functions of a running handler: record a step, pause, spawn, report progress; and reads steps.
 */
import { run, type Database } from '../database/database.ts';
import { runNamed } from '../database/inside.ts';
import type { SqlExecutor } from '../../contract/transactions.ts';
import type { LifecyclePhase, TerminalOutcome } from '../../contract/states.ts';
import {
  jsonValues,
  JSON_VALUES,
  LEASE_ARRAYS,
  leaseArrays,
  type ExecutionKey,
  type LeaseAnswer,
  type LeaseKey,
} from '../executions/executions.sql.ts';

type StepKind = 'step' | 'sleep' | 'wait';

export interface StepRow extends LeaseKey {
  kind: 'step' | 'sleep';
  name: string;
  key: string;
  sleepMs: number | null;
  /** JSON text. */
  value: string | null;
}

export interface StepAnswer {
  ordinal: number;
  execution_id: string;
  outcome: string;
  repeated: boolean;
  lifecycle_phase: LifecyclePhase;
  terminal_outcome: TerminalOutcome;
  lease_epoch: number;
  kind: StepKind;
  value: unknown;
  due_in_ms: number | null;
}

export function recordSteps(database: Database, rows: readonly StepRow[]): Promise<StepAnswer[]> {
  return run<StepAnswer>(database, recordStatement(database, rows, null));
}

/** In the caller's transaction. */
export function recordStepsInside(
  database: Database,
  executor: SqlExecutor,
  rows: readonly StepRow[],
): Promise<StepAnswer[]> {
  return runNamed<StepAnswer>(executor, (transaction) => recordStatement(database, rows, transaction));
}

function recordStatement(database: Database, rows: readonly StepRow[], transaction: string | null) {
  return {
    doing: 'recording steps',
    text: `SELECT * FROM ${database.prefix}ff_record_steps(${LEASE_ARRAYS}, $5::text[]::${database.prefix}ff_step_kind[], $6::text[],
      $7::text[], $8::bigint[], ${JSON_VALUES('$9')}, p_transaction => $10::text)`,
    params: [
      ...leaseArrays(rows),
      rows.map((row) => row.kind),
      rows.map((row) => row.name),
      rows.map((row) => row.key),
      rows.map((row) => row.sleepMs),
      jsonValues(rows.map((row) => row.value)),
      transaction,
    ],
    repeatable: 'yes' as const,
  };
}

export interface StoredStep {
  kind: StepKind;
  name: string;
  key: string;
  value: unknown;
  due_in_ms: number | null;
}

export function readSteps(database: Database, key: ExecutionKey, limit: number): Promise<StoredStep[]> {
  return run<StoredStep>(database, {
    doing: 'reading steps',
    text: `SELECT kind::text, name, key, value,
             CASE kind WHEN 'sleep' THEN greatest((value #>> '{}')::bigint - ${database.prefix}ff_now_ms(), 0) END AS due_in_ms
           FROM ${database.prefix}ff_step WHERE execution_id = $1 AND retired_by = 0 AND partition_key = $2 LIMIT $3`,
    params: [key.uuid, key.partition, limit],
    repeatable: 'yes',
  });
}

export interface PauseRow extends LeaseKey {
  delayMs: number | null;
  children: readonly string[] | null;
  needed: number | null;
}

export function pauseExecutions(database: Database, rows: readonly PauseRow[]): Promise<LeaseAnswer[]> {
  return run<LeaseAnswer>(database, {
    doing: 'pausing executions',
    text: `SELECT * FROM ${database.prefix}ff_pause(${LEASE_ARRAYS}, $5::bigint[], ${JSON_VALUES('$6')}, $7::integer[])`,
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
