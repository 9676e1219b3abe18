/**
 * Calls the SQL functions that change executions: arrays in, one row per execution out. Nothing is decided here.
 */
import { hintChannel } from '../database/names.ts';
import { onlyRow, run, type Database, type Statement } from '../database/database.ts';
import { runNamed } from '../database/inside.ts';
import type { SubmitResult } from '../../contract/executions.ts';
import type { SqlExecutor } from '../../contract/transactions.ts';
import { LIMITS } from '../../contract/limits.ts';
import { columns, columnsOf, withColumns, type RowOf } from '../database/columns.ts';
import type { Answered, Refused } from './answered.sql.ts';

export interface ExecutionKey {
  partition: number;
  uuid: string;
}

export interface LeaseKey extends ExecutionKey {
  attemptIndex: number;
  leaseEpoch: number;
}

export interface SubmitRow extends ExecutionKey {
  /** Position of its template in `templates`, from 1. */
  templateOrdinal: number;
  delayMs: number;
  payload: string | null;
  idempotency: { key: string; bodyHash: string; windowMs: number } | null;
}

/** What executions of one call have in common. `policy` and `tags` are JSON strings. */
export interface SubmitTemplate {
  /** Position of its route in `routes`, from 1. */
  routeOrdinal: number;
  namespace: string;
  priority: number;
  policy: string;
  tags: string;
}

export interface SubmitRoute {
  lane: string;
  kind: string;
  capabilities: string[];
  /** Set when the route was interned for this call. */
  interned?: InternedRoute;
}

/** The number of a route, and until when it may be used. */
export interface InternedRoute {
  routeId: number;
  usableUntilMs: number;
}

/**
 * `unknown_route`: nothing was written, because a route must be interned first. `held`: another transaction is using
 * its key or id. `existingId` is the execution that already has the idempotency key, if it is another one.
 */
const SUBMITTED = columnsOf<
  Answered<SubmitResult['outcome'] | 'unknown_route' | 'held'> & { existingId: string | null }
>()('uuid', 'outcome', 'routeId', 'dueInMs', 'existingId');
export type SubmitAnswer = RowOf<typeof SUBMITTED>;

export interface SubmitCall {
  routes: SubmitRoute[];
  templates: SubmitTemplate[];
  rows: SubmitRow[];
}

/** All or none. Waits up to `patienceMs`, once, for a key or an id that another transaction is using. */
export function submitExecutions(
  database: Database,
  call: SubmitCall,
  patienceMs: number = LIMITS.heldWaitMs,
): Promise<SubmitAnswer[]> {
  const statement = submitStatement(database, call, { patienceMs });
  return run(database, { ...statement, repeatable: 'yes', waits: 'once' });
}

/** Each on its own: those whose key or id another transaction is using come back as `held`. */
export function submitEach(
  database: Database,
  call: SubmitCall,
  patienceMs: number,
): Promise<SubmitAnswer[]> {
  return run(database, {
    doing: 'submitting executions',
    columns: SUBMITTED,
    text: `SELECT ${SUBMITTED.list} FROM ${database.prefix}ff_submit_each(${SUBMIT_ARGUMENTS}, p_keys => $8::text[], p_hashes => $9::text[],
      p_windows => $10::bigint[], p_patience_ms => $11::integer)`,
    params: [...submitParams(call), ...keyParams(call.rows), patienceMs],
    repeatable: 'yes',
  });
}

/**
 * Inside the caller's transaction; with `hint`, the statement itself sends the hint, since only the caller sees the
 * commit.
 */
export function submitExecutionsInside(
  database: Database,
  executor: SqlExecutor,
  call: SubmitCall,
  hint: 'on' | 'off',
): Promise<SubmitAnswer[]> {
  const channel = hint === 'on' ? hintChannel(database.schema) : null;
  return runNamed(executor, (transaction) =>
    submitStatement(database, call, { patienceMs: LIMITS.heldWaitMs, channel, transaction }),
  );
}

interface SubmitTerms {
  patienceMs: number;
  channel?: string | null;
  /** The caller's. */
  transaction?: string;
}

function submitStatement(database: Database, call: SubmitCall, terms: SubmitTerms) {
  const { patienceMs, channel = null, transaction = null } = terms;
  return {
    doing: 'submitting executions',
    columns: SUBMITTED,
    text: `SELECT ${SUBMITTED.list} FROM ${database.prefix}ff_submit(${SUBMIT_ARGUMENTS}, p_channel => $8::text, p_keys => $9::text[],
      p_hashes => $10::text[], p_windows => $11::bigint[], p_patience_ms => $12::integer, p_transaction => $13::text)`,
    params: [...submitParams(call), channel, ...keyParams(call.rows), patienceMs, transaction],
    repeatable: 'no' as const,
  };
}

function keyParams(rows: readonly SubmitRow[]): unknown[] {
  if (rows.every((row) => row.idempotency === null)) return [null, null, null];
  return [
    rows.map((row) => row.idempotency?.key ?? null),
    rows.map((row) => row.idempotency?.bodyHash ?? null),
    rows.map((row) => row.idempotency?.windowMs ?? null),
  ];
}

/** The first seven parameters of a statement that submits. */
export function submitParams(call: SubmitCall): unknown[] {
  const { rows } = call;
  return [
    routesJson(call.routes),
    `[${call.templates.map(templateJson).join(',')}]`,
    rows.map((row) => row.uuid),
    rows.map((row) => row.partition),
    rows.map((row) => row.templateOrdinal),
    rows.map((row) => row.delayMs),
    jsonValues(rows.map((row) => row.payload)),
  ];
}

/**
 * Sends values as one JSON string, each in its own array (empty for none): escaping them as an array literal is far
 * more expensive than joining them.
 */
export function jsonValues(values: readonly (string | null)[]): string {
  return `[${values.map((value) => (value === null ? '[]' : `[${value}]`)).join(',')}]`;
}

export const JSON_VALUES = (param: string): string =>
  `ARRAY(SELECT e -> 0 FROM jsonb_array_elements(${param}::text::jsonb) WITH ORDINALITY a(e, n) ORDER BY n)`;

/** The arguments of a submit, for `submitParams`. */
export const SUBMIT_ARGUMENTS = `p_routes => $1::text::jsonb, p_templates => $2::text::jsonb, p_ids => $3::uuid[],
  p_partitions => $4::smallint[], p_template_ordinals => $5::integer[], p_delays => $6::bigint[], p_payloads => ${JSON_VALUES('$7')}`;

/** Routes in the form the functions read. */
export function routesJson(routes: readonly SubmitRoute[]): string {
  const rows = routes.map(({ interned, ...route }) =>
    interned === undefined
      ? route
      : { ...route, route_id: interned.routeId, usable_until_ms: interned.usableUntilMs },
  );
  return JSON.stringify(rows);
}

/** Joined as strings, because policy and tags are JSON already. */
function templateJson(template: SubmitTemplate): string {
  const { routeOrdinal, namespace, priority, policy, tags } = template;
  return `{"route":${routeOrdinal},"namespace":${JSON.stringify(namespace)},"priority":${JSON.stringify(priority)},"policy":${policy},"tags":${tags}}`;
}

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

export async function completeExecutions(
  database: Database,
  rows: readonly CompleteRow[],
): Promise<CompletedAnswer> {
  const answer = await run(database, {
    doing: 'completing executions',
    columns: COMPLETED,
    text: `SELECT ${COMPLETED.list} FROM ${database.prefix}ff_complete(${COMPLETE_ARGUMENTS})`,
    params: completeParams(rows),
    repeatable: 'yes',
  });
  return onlyRow('completing executions', answer);
}

export interface FailRow extends LeaseKey {
  message: string;
  category: string;
  retryAfterMs: number | null;
  terminal: boolean;
}

/** What became of an attempt that failed just now. */
export type FailedAnswer = Pick<
  Answered<'failed' | 'retry_scheduled'>,
  'uuid' | 'outcome' | 'repeated' | 'dueInMs'
>;

const FAILED = columnsOf<{
  answers: FailedAnswer[] | null;
  others: LeaseAnswer[] | null;
  effects: FlowEffect[] | null;
}>()('answers', 'others', 'effects');

export async function failExecutions(
  database: Database,
  rows: readonly FailRow[],
): Promise<RowOf<typeof FAILED>> {
  const answer = await run(database, {
    doing: 'failing executions',
    columns: FAILED,
    text: `SELECT ${FAILED.list} FROM ${database.prefix}ff_fail(${LEASE_ARRAYS}, $5::text[], $6::text[], $7::bigint[], $8::boolean[])`,
    params: [
      ...leaseArrays(rows),
      rows.map((row) => row.message),
      rows.map((row) => row.category),
      rows.map((row) => row.retryAfterMs),
      rows.map((row) => row.terminal),
    ],
    repeatable: 'yes',
  });
  return onlyRow('failing executions', answer);
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

/** One row per child, or a single row for the parent with the reason of the refusal. */
const SPAWNED = withColumns(
  columnsOf<Answered>()('uuid', 'routeId', 'dueInMs'),
  columnsOf<Refused>()('outcome', 'lifecyclePhase', 'terminalOutcome', 'leaseEpoch'),
);
export type SpawnAnswer = RowOf<typeof SPAWNED>;

export function spawnExecutions(
  database: Database,
  parent: LeaseKey,
  call: SubmitCall,
): Promise<SpawnAnswer[]> {
  const submit = submitParams(call);
  return run(database, {
    doing: 'spawning executions',
    columns: SPAWNED,
    text: `SELECT ${SPAWNED.list} FROM ${database.prefix}ff_spawn(${SUBMIT_ARGUMENTS},
      p_parent => $${submit.length + 1}::uuid, p_partition => $${submit.length + 2}::smallint,
      p_attempt => $${submit.length + 3}::integer, p_epoch => $${submit.length + 4}::bigint)`,
    params: [...submit, parent.uuid, parent.partition, parent.attemptIndex, parent.leaseEpoch],
    repeatable: 'yes',
  });
}
