/**
 * Calls the SQL functions that submit executions. Nothing is decided here.
 */
import { hintChannel } from '../../database/names.ts';
import { onlyRow, run, type Database } from '../../database/database.ts';
import { runNamed } from '../../database/inside.ts';
import type { IfExists, SubmitResult } from '../../../contract/executions.ts';
import type { SqlExecutor } from '../../../contract/transactions.ts';
import { LIMITS } from '../../../contract/limits.ts';
import { columns, columnsOf, withColumns, type RowOf } from '../../database/columns.ts';
import type { Answered, Refused } from '../answered.sql.ts';
import { jsonValues, JSON_VALUES, type ExecutionKey, type LeaseKey } from '../executions.sql.ts';

export interface SubmitRow extends ExecutionKey {
  delayMs: number;
  payload: string | null;
  idempotency: { key: string; bodyHash: string; windowMs: number } | null;
  /** The key that is to name it. */
  own: { key: string; ifExists: IfExists } | null;
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
  capabilities: readonly string[];
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
 * its key or id. `existingId` is the execution that already has the key or idempotency key, or that was replaced, and
 * `workerInstanceId` the worker that ran the replaced one.
 */
const SUBMITTED = columnsOf<
  Omit<Answered<SubmitResult['outcome'] | 'unknown_route' | 'held'>, 'routeId'> & {
    routeId: number | null;
    existingId: string | null;
  }
>()('uuid', 'outcome', 'routeId', 'dueInMs', 'existingId', 'workerInstanceId');
export type SubmitAnswer = RowOf<typeof SUBMITTED>;

export interface SubmitCall {
  routes: SubmitRoute[];
  templates: SubmitTemplate[];
  rows: readonly SubmitRow[];
  /** For each row the position of its template in `templates`, from 1. */
  templateOrdinals: number[];
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

const ROUTED = columns<{ routeId: number | null }>({ routeId: 'ff_submit_one' });

/** A call of one execution, without a key and under a new id: a fraction of what the arrays of a batch cost. */
export async function submitOne(database: Database, call: SubmitCall): Promise<SubmitAnswer[]> {
  const [{ lane, kind, capabilities }, template, row] = [call.routes[0]!, call.templates[0]!, call.rows[0]!];
  const { namespace, priority, policy, tags } = template;
  const { uuid, partition, delayMs, payload } = row;
  const answer = await run(database, {
    doing: 'submitting an execution',
    columns: ROUTED,
    text: `SELECT ${ROUTED.list} FROM ${database.prefix}ff_submit_one($1, $2, $3::text[], $4, $5, $6::text::jsonb,
      $7::text::jsonb, $8::uuid, $9::smallint, $10, $11::text::jsonb)`,
    params: [lane, kind, capabilities, namespace, priority, policy, tags, uuid, partition, delayMs, payload],
    repeatable: 'yes',
    waits: 'once',
  });
  const { routeId } = onlyRow('submitting an execution', answer);
  const outcome = routeId === null ? 'unknown_route' : 'submitted';
  const dueInMs = delayMs > 0 ? delayMs : null;
  return [{ uuid, outcome, routeId, dueInMs, existingId: null, workerInstanceId: null }];
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
      p_windows => $10::bigint[], p_own_keys => $11::text[], p_if_exists => $12::text[], p_patience_ms => $13::integer)`,
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
      p_hashes => $10::text[], p_windows => $11::bigint[], p_own_keys => $12::text[], p_if_exists => $13::text[],
      p_patience_ms => $14::integer, p_transaction => $15::text)`,
    params: [...submitParams(call), channel, ...keyParams(call.rows), patienceMs, transaction],
    repeatable: 'no' as const,
  };
}

/** Idempotency keys, and then keys: five parameters. */
function keyParams(rows: readonly SubmitRow[]): unknown[] {
  return [...idempotencyParams(rows), ...ownKeyParams(rows)];
}

function idempotencyParams(rows: readonly SubmitRow[]): unknown[] {
  if (rows.every((row) => row.idempotency === null)) return [null, null, null];
  return [
    rows.map((row) => row.idempotency?.key ?? null),
    rows.map((row) => row.idempotency?.bodyHash ?? null),
    rows.map((row) => row.idempotency?.windowMs ?? null),
  ];
}

function ownKeyParams(rows: readonly SubmitRow[]): unknown[] {
  if (rows.every((row) => row.own === null)) return [null, null];
  return [rows.map((row) => row.own?.key ?? null), rows.map((row) => row.own?.ifExists ?? null)];
}

/** The first seven parameters of a statement that submits. */
export function submitParams(call: SubmitCall): unknown[] {
  const { rows } = call;
  return [
    routesJson(call.routes),
    `[${call.templates.map(templateJson).join(',')}]`,
    rows.map((row) => row.uuid),
    rows.map((row) => row.partition),
    call.templateOrdinals,
    rows.map((row) => row.delayMs),
    jsonValues(rows.map((row) => row.payload)),
  ];
}

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

/** One row per child, or a single row for the parent with the reason of the refusal, or `marked`. */
const SPAWNED = withColumns(
  columnsOf<Answered>()('uuid', 'routeId', 'dueInMs'),
  columnsOf<Refused & { endedWithParent: boolean }>()(
    'outcome',
    'lifecyclePhase',
    'terminalOutcome',
    'leaseEpoch',
    'endedWithParent',
  ),
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
