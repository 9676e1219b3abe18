/**
 * Calls the SQL functions that change executions: arrays in, an answer for each execution out. Nothing is decided here.
 */
import { onlyRow, run, type Database, type Statement } from '../database/database.ts';
import { columns, columnsOf, textInSchema, withColumns, type RowOf } from '../database/columns.ts';
import type { Answered } from './answered.sql.ts';

export interface ExecutionKey {
  partition: number;
  uuid: string;
}

export interface LeaseKey extends ExecutionKey {
  attemptIndex: number;
  leaseEpoch: number;
}

/**
 * Sends values as one JSON string, each in its own array (empty for none): escaping them as an array literal is far
 * more expensive than joining them. A null is joined as nothing.
 */
export function jsonValues(values: readonly (string | null)[]): string {
  return values.length === 0 ? '[]' : `[[${values.join('],[')}]]`;
}

export const JSON_VALUES = (param: string): string =>
  `ARRAY(SELECT e -> 0 FROM jsonb_array_elements(${param}::text::jsonb) WITH ORDINALITY a(e, n) ORDER BY n)`;

/** What lease-bound functions return. The timer they set is for a retry, a pause, or a parent to notify. */
const LEASED = withColumns(
  columnsOf<Answered>()(
    'uuid',
    'outcome',
    'repeated',
    'lifecyclePhase',
    'terminalOutcome',
    'leaseEpoch',
    'attemptIndex',
    'routeId',
  ),
  columns<Pick<Answered, 'dueInMs'>>({ dueInMs: 'retry_in_ms' }),
);
export type LeaseAnswer = RowOf<typeof LEASED>;

/** A call of a lease-bound function. */
export function leaseCall(
  database: Database,
  call: string,
): Required<Pick<Statement<LeaseAnswer>, 'columns' | 'text'>> {
  return { columns: LEASED, text: `SELECT ${LEASED.list} FROM ${database.prefix}${call}` };
}

export const LEASE_ARRAYS = '$1::uuid[], $2::smallint[], $3::integer[], $4::bigint[]';

export function leaseArrays(leases: readonly LeaseKey[]): unknown[] {
  return [
    leases.map((lease) => lease.uuid),
    leases.map((lease) => lease.partition),
    leases.map((lease) => lease.attemptIndex),
    leases.map((lease) => lease.leaseEpoch),
  ];
}

export function renewLeases(
  database: Database,
  leases: readonly LeaseKey[],
  leaseMs: number,
): Promise<LeaseAnswer[]> {
  return run(database, {
    doing: 'renewing leases',
    ...leaseCall(database, `ff_renew(${LEASE_ARRAYS}, $5)`),
    params: [...leaseArrays(leases), leaseMs],
    repeatable: 'yes',
  });
}

export interface CompleteRow extends LeaseKey {
  result: string | null;
  /** Known of those that this engine granted. */
  isMember?: boolean;
}

/** What an outcome did to members of a flow, or caused to be done. */
export type FlowEffect = Pick<Answered<'unblocked' | 'skipped' | 'more'>, 'uuid' | 'outcome' | 'routeId'>;

/** `told`: whether a parent is to be notified at once. What is not in `others` was completed by this call. */
export const COMPLETED = columnsOf<{
  told: boolean | null;
  others: LeaseAnswer[] | null;
  effects: FlowEffect[] | null;
}>()('told', 'others', 'effects');

export type CompletedAnswer = RowOf<typeof COMPLETED>;

/** The arguments of a completion, and their parameters. */
export const COMPLETE_ARGUMENTS = `${LEASE_ARRAYS}, ${JSON_VALUES('$5')}`;

export function completeParams(rows: readonly CompleteRow[]): unknown[] {
  return [...leaseArrays(rows), jsonValues(rows.map((row) => row.result))];
}

const COMPLETE = textInSchema(
  (prefix) => `SELECT ${COMPLETED.list} FROM ${prefix}ff_complete(${COMPLETE_ARGUMENTS})`,
);

export async function completeExecutions(
  database: Database,
  rows: readonly CompleteRow[],
): Promise<CompletedAnswer> {
  const answer = await run(database, {
    doing: 'completing executions',
    columns: COMPLETED,
    text: COMPLETE(database),
    params: completeParams(rows),
    repeatable: 'yes',
  });
  return onlyRow('completing executions', answer);
}

/** What became of a lease that was given back just now. */
export type ReleasedAnswer = Pick<Answered<'released'>, 'uuid' | 'outcome' | 'repeated' | 'routeId'>;

const RELEASED = columnsOf<{ answers: ReleasedAnswer[] | null; others: LeaseAnswer[] | null }>()(
  'answers',
  'others',
);

export async function releaseExecutions(
  database: Database,
  leases: readonly LeaseKey[],
): Promise<(ReleasedAnswer | LeaseAnswer)[]> {
  const rows = await run(database, {
    doing: 'releasing executions',
    columns: RELEASED,
    text: `SELECT ${RELEASED.list} FROM ${database.prefix}ff_release(${LEASE_ARRAYS})`,
    params: leaseArrays(leases),
    repeatable: 'yes',
  });
  const { answers, others } = onlyRow('releasing executions', rows);
  return [...(answers ?? []), ...(others ?? [])];
}

/** An execution, and the epoch it must still have for the verb to act on it. */
export interface ExpectedKey extends ExecutionKey {
  leaseEpoch: number | null;
}

/** The first three parameters of an operator's verb. */
export function expectedArrays(keys: readonly ExpectedKey[]): unknown[] {
  return [
    keys.map((key) => key.uuid),
    keys.map((key) => key.partition),
    keys.some((key) => key.leaseEpoch !== null) ? keys.map((key) => key.leaseEpoch) : null,
  ];
}

export function uuidsOf(keys: readonly ExecutionKey[]): string[] {
  return keys.map((key) => key.uuid);
}
