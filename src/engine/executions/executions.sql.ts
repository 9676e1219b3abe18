/**
 * Calls the SQL functions that move executions: arrays in, one row per execution out. Nothing here decides
 * anything; arrays go down and rows come up.
 */
import { hintChannel } from '../database/names.ts';
import { run, type Database } from '../database/database.ts';
import { runNamed } from '../database/inside.ts';
import type { SqlExecutor } from '../../contract/transactions.ts';
import { LIMITS } from '../../contract/limits.ts';
import type { LifecyclePhase, TerminalOutcome } from '../../contract/states.ts';
import { readUncompiled } from '../database/uncompiled.ts';

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

/** What executions of one call have in common. `policy` and `tags` are JSON texts. */
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
  /** Of one that was interned for this call: its number, and until when it is good. */
  route_id?: number;
  usable_until_ms?: number;
}

/** `unknown_route`: nothing was written, because a route must be interned first. `held`: its key or id is used by another transaction. */
export interface SubmitAnswer {
  execution_id: string;
  outcome: 'submitted' | 'duplicate' | 'unknown_route' | 'held';
  route_id: number;
  due_in_ms: number | null;
  /** Who holds the idempotency key, when it is not this one. */
  existing_id: string | null;
}

export interface SubmitCall {
  routes: SubmitRoute[];
  templates: SubmitTemplate[];
  rows: SubmitRow[];
}

/** All or none. A key or an id that another transaction holds is waited for, for `patienceMs`, and once. */
export function submitExecutions(
  database: Database,
  call: SubmitCall,
  patienceMs: number = LIMITS.heldWaitMs,
): Promise<SubmitAnswer[]> {
  const statement = submitStatement(database, call, { patienceMs });
  return run<SubmitAnswer>(database, { ...statement, repeatable: 'yes', waits: 'once' });
}

/** Each for itself: those whose key or id another transaction holds are answered as `held`. */
export function submitEach(
  database: Database,
  call: SubmitCall,
  patienceMs: number,
): Promise<SubmitAnswer[]> {
  return run<SubmitAnswer>(database, {
    doing: 'submitting executions',
    text: `SELECT * FROM ${database.prefix}ff_submit_each(${SUBMIT_ARGUMENTS}, p_keys => $8::text[], p_hashes => $9::text[],
      p_windows => $10::bigint[], p_patience_ms => $11::integer)`,
    params: [...submitParams(call), ...keyParams(call.rows), patienceMs],
    repeatable: 'yes',
  });
}

/** Inside the caller's transaction; `hint` rings from within it, because nobody else will know of the commit. */
export function submitExecutionsInside(
  database: Database,
  executor: SqlExecutor,
  call: SubmitCall,
  hint: 'on' | 'off',
): Promise<SubmitAnswer[]> {
  const channel = hint === 'on' ? hintChannel(database.schema) : null;
  return runNamed<SubmitAnswer>(executor, (transaction) =>
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
    text: `SELECT * FROM ${database.prefix}ff_submit(${SUBMIT_ARGUMENTS}, p_channel => $8::text, p_keys => $9::text[],
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

/** What is submitted, as the first seven parameters of a statement. */
export function submitParams(call: SubmitCall): unknown[] {
  const { rows } = call;
  return [
    JSON.stringify(call.routes),
    `[${call.templates.map(templateJson).join(',')}]`,
    rows.map((row) => row.uuid),
    rows.map((row) => row.partition),
    rows.map((row) => row.templateOrdinal),
    rows.map((row) => row.delayMs),
    jsonValues(rows.map((row) => row.payload)),
  ];
}

/**
 * Values travel as one JSON text, each in a list of its own (an empty one for none): escaping them as an array literal
 * costs the process far more than joining them.
 */
export function jsonValues(values: readonly (string | null)[]): string {
  return `[${values.map((value) => (value === null ? '[]' : `[${value}]`)).join(',')}]`;
}

export const JSON_VALUES = (param: string): string =>
  `ARRAY(SELECT e -> 0 FROM jsonb_array_elements(${param}::text::jsonb) WITH ORDINALITY a(e, n) ORDER BY n)`;

/** The arguments of a submit, for `submitParams`. */
export const SUBMIT_ARGUMENTS = `p_routes => $1::text::jsonb, p_templates => $2::text::jsonb, p_ids => $3::uuid[],
  p_partitions => $4::smallint[], p_template_ordinals => $5::integer[], p_delays => $6::bigint[], p_payloads => ${JSON_VALUES('$7')}`;

/** Put together as text, because policy and tags are JSON already. */
function templateJson(template: SubmitTemplate): string {
  const { routeOrdinal, namespace, priority, policy, tags } = template;
  return `{"route":${routeOrdinal},"namespace":${JSON.stringify(namespace)},"priority":${priority},"policy":${policy},"tags":${tags}}`;
}

export interface ClaimCall {
  entries: { routeId: number; rank: number | null; afterSeq: number }[];
  limit: number;
  workerId: string;
  workerInstanceId: string;
  /** Names this call, so that its leases can be found when the answer was lost. */
  claimId: string;
  leaseMs: number;
  quietRoutes: readonly number[];
}

export interface ClaimRow {
  execution_id: string;
  partition_key: number;
  route_id: number;
  priority: number;
  seq: number;
  namespace: string;
  attempt_index: number;
  lease_epoch: number;
  lease_id: string;
  retry_count: number;
  reclaimed: boolean;
  resumed: boolean;
  created_at_ms: number;
  payload: unknown;
  tags: Record<string, string>;
  generation: number;
  attempt_limit_ms: number | null;
  flow_id: string | null;
}

export interface ClaimAnswer {
  rows: ClaimRow[];
  nextDueInMs: number | null;
  routeHigh: number;
  /** Ready, but held by somebody who will ring for nobody. */
  passedBy: number;
}

export async function claimExecutions(database: Database, call: ClaimCall): Promise<ClaimAnswer> {
  type Footer = { next_due_in_ms: number | null; route_high: number | null; passed_by: number };
  const answer = await run<ClaimRow & Footer>(database, {
    doing: 'claiming executions',
    text: `SELECT * FROM ${database.prefix}ff_claim($1::integer[], $2::integer[], $3::bigint[], $4, $5, $6, $7::uuid, $8,
      $9::integer[])`,
    params: [
      call.entries.map((entry) => entry.routeId),
      call.entries.map((entry) => entry.rank),
      call.entries.map((entry) => entry.afterSeq),
      call.limit,
      call.workerId,
      call.workerInstanceId,
      call.claimId,
      call.leaseMs,
      call.quietRoutes,
    ],
    // A claim whose answer was lost holds leases; sending it again would take more instead of finding those.
    repeatable: 'no',
  });
  const footer = answer.at(-1);
  return {
    rows: answer.slice(0, -1),
    nextDueInMs: footer?.next_due_in_ms ?? null,
    routeHigh: footer?.route_high ?? 0,
    passedBy: footer?.passed_by ?? 0,
  };
}

/**
 * What the claim calls of these names were given and still hold, without the leases already known. A whole scan: asked
 * only when answers were lost.
 */
export function readClaims(
  database: Database,
  claimIds: readonly string[],
  knownLeaseIds: readonly string[],
  limit: number,
): Promise<(ClaimRow & { claim_id: string })[]> {
  return readUncompiled<ClaimRow & { claim_id: string }>(database, {
    doing: 'looking for leases of an unanswered claim',
    text: `SELECT l.execution_id, l.partition_key, l.route_id, e.priority, 0 AS seq, l.namespace, l.attempt_index, l.lease_epoch,
             l.lease_id, e.retry_count, l.reclaimed, l.resumed, e.created_at_ms,
             CASE WHEN e.flow_id IS NULL THEN b.payload ELSE ${database.prefix}ff_input(e.execution_id, b.payload) END AS payload, l.tags, e.generation,
             e.attempt_limit_ms, e.flow_id, l.claim_id
           FROM ${database.prefix}ff_lease l
           JOIN ${database.prefix}ff_execution e ON e.execution_id = l.execution_id AND e.partition_key = l.partition_key
           JOIN ${database.prefix}ff_body b ON b.execution_id = l.execution_id AND b.partition_key = l.partition_key
           WHERE l.claim_id = ANY ($1::uuid[]) AND l.lease_id <> ALL ($2::uuid[]) LIMIT $3::bigint`,
    params: [claimIds, knownLeaseIds, limit],
    repeatable: 'yes',
  });
}

export interface LeaseAnswer {
  execution_id: string;
  outcome: string;
  repeated: boolean;
  lifecycle_phase: LifecyclePhase;
  terminal_outcome: TerminalOutcome;
  lease_epoch: number;
  attempt_index: number;
  route_id: number;
  retry_in_ms: number | null;
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
  return run<LeaseAnswer>(database, {
    doing: 'renewing leases',
    text: `SELECT * FROM ${database.prefix}ff_renew(${LEASE_ARRAYS}, $5)`,
    params: [...leaseArrays(leases), leaseMs],
    repeatable: 'yes',
  });
}

export interface CompleteRow extends LeaseKey {
  result: string | null;
}

export function completeExecutions(database: Database, rows: readonly CompleteRow[]): Promise<LeaseAnswer[]> {
  return run<LeaseAnswer>(database, {
    doing: 'completing executions',
    text: `SELECT * FROM ${database.prefix}ff_complete(${LEASE_ARRAYS}, ${JSON_VALUES('$5')})`,
    params: [...leaseArrays(rows), jsonValues(rows.map((row) => row.result))],
    repeatable: 'yes',
  });
}

export interface FailRow extends LeaseKey {
  message: string;
  category: string;
  retryAfterMs: number | null;
  terminal: boolean;
}

export function failExecutions(database: Database, rows: readonly FailRow[]): Promise<LeaseAnswer[]> {
  return run<LeaseAnswer>(database, {
    doing: 'failing executions',
    text: `SELECT * FROM ${database.prefix}ff_fail(${LEASE_ARRAYS}, $5::text[], $6::text[], $7::bigint[], $8::boolean[])`,
    params: [
      ...leaseArrays(rows),
      rows.map((row) => row.message),
      rows.map((row) => row.category),
      rows.map((row) => row.retryAfterMs),
      rows.map((row) => row.terminal),
    ],
    repeatable: 'yes',
  });
}

export function releaseExecutions(database: Database, leases: readonly LeaseKey[]): Promise<LeaseAnswer[]> {
  return run<LeaseAnswer>(database, {
    doing: 'releasing executions',
    text: `SELECT * FROM ${database.prefix}ff_release(${LEASE_ARRAYS})`,
    params: leaseArrays(leases),
    repeatable: 'yes',
  });
}

/** An execution, and the epoch it must still have for the verb to touch it. */
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

/** The rows of the children, or one row that names the parent and says why it was refused. */
export type SpawnAnswer = SubmitAnswer & {
  outcome: string;
  lifecycle_phase: LifecyclePhase;
  terminal_outcome: TerminalOutcome;
  lease_epoch: number;
};

export function spawnExecutions(
  database: Database,
  parent: LeaseKey,
  call: SubmitCall,
): Promise<SpawnAnswer[]> {
  const submit = submitParams(call);
  return run<SpawnAnswer>(database, {
    doing: 'spawning executions',
    text: `SELECT * FROM ${database.prefix}ff_spawn(${SUBMIT_ARGUMENTS},
      p_parent => $${submit.length + 1}::uuid, p_partition => $${submit.length + 2}::smallint,
      p_attempt => $${submit.length + 3}::integer, p_epoch => $${submit.length + 4}::bigint)`,
    params: [...submit, parent.uuid, parent.partition, parent.attemptIndex, parent.leaseEpoch],
    repeatable: 'yes',
  });
}
