/**
 * Calls the SQL functions of suspension and signals, and reads waitpoints and signing keys. Nothing here decides anything.
 */
import type { LifecyclePhase, TerminalOutcome } from '../../contract/states.ts';
import type { SignalCondition, SignalEffect, WaitReason } from '../../contract/signals.ts';
import { run, type Database } from '../database/database.ts';
import type { ExecutionKey, LeaseKey } from '../executions/executions.sql.ts';
import { runForPerson } from '../database/held.ts';
import { readUncompiled } from '../database/uncompiled.ts';

interface Refusable {
  outcome: string;
  lifecycle_phase: LifecyclePhase;
  terminal_outcome: TerminalOutcome;
  lease_epoch: number;
}

/** As the functions read it. `schema` is JSON. */
export interface WaitpointRow {
  id: string;
  name: string;
  expires_in_ms: number | null;
  kid?: string;
  step_name?: string;
  step_key?: string;
  schema?: unknown;
}

export interface WaitRow {
  name: string;
  key: string;
  condition: SignalCondition;
  timeout_ms: number | null;
  on_timeout: string;
  resume_delay_ms: number;
  reason: WaitReason;
}

export interface SuspendCall {
  lease: LeaseKey;
  transition: string;
  /** `look`: only begin the waits. */
  mode: 'suspend' | 'look';
  waits: readonly WaitRow[];
  waitpoints: readonly WaitpointRow[];
  maxWaitpoints: number;
  delayMs: number | null;
  children: readonly string[] | null;
  needed: number | null;
}

export interface SuspendAnswer extends Refusable {
  ended: unknown;
  due_in_ms: number | null;
}

const LEASE = '$1::uuid, $2::smallint, $3::integer, $4::bigint';

function leaseParams({ uuid, partition, attemptIndex, leaseEpoch }: LeaseKey): unknown[] {
  return [uuid, partition, attemptIndex, leaseEpoch];
}

export async function suspendExecution(database: Database, call: SuspendCall): Promise<SuspendAnswer> {
  const rows = await run<SuspendAnswer>(database, {
    doing: 'suspending an execution',
    text: `SELECT * FROM ${database.prefix}ff_suspend(${LEASE}, $5::text, $6::boolean, $7::jsonb, $8::jsonb, $9::integer,
      $10::bigint, $11::jsonb, $12::integer)`,
    params: [
      ...leaseParams(call.lease),
      call.transition,
      call.mode === 'look',
      JSON.stringify(call.waits),
      JSON.stringify(call.waitpoints),
      call.maxWaitpoints,
      call.delayMs,
      call.children === null ? null : JSON.stringify(call.children),
      call.needed,
    ],
    repeatable: 'yes',
  });
  return rows[0]!;
}

export interface WaitpointAnswer extends Refusable {
  waitpoint_id: string;
  token_id: string;
  created_at_ms: number;
  kid: string | null;
  secret_print: string | null;
  token_expires_at_ms: number | null;
}

export async function createWaitpoint(
  database: Database,
  lease: LeaseKey,
  waitpoint: WaitpointRow,
  maxWaitpoints: number,
): Promise<WaitpointAnswer> {
  const rows = await run<WaitpointAnswer>(database, {
    doing: 'creating a waitpoint',
    text: `SELECT * FROM ${database.prefix}ff_create_waitpoints(${LEASE}, $5::jsonb, $6::integer)`,
    params: [...leaseParams(lease), JSON.stringify([waitpoint]), maxWaitpoints],
    repeatable: 'yes',
  });
  return rows[0]!;
}

export interface SignalCall extends ExecutionKey {
  /** Its uuid, or for an operator its name. */
  waitpoint: { uuid: string; kid: string; print: string; tokenExpiresAtMs: number } | { name: string };
  signalId: string;
  name: string;
  sourceType: string;
  sourceIdentity: string;
  /** JSON text. */
  payload: string;
  idempotencyKey: string;
  maxSignals: number;
  maxBytes: number;
}

export interface SignalAnswer {
  outcome: 'accepted' | 'duplicate' | 'closed' | 'expired' | 'too_many' | 'unknown' | 'unchecked';
  signal_id: string;
  effect: SignalEffect;
  schema: unknown;
  route_id: number | null;
  due_in_ms: number | null;
}

/** Repeatable, because its idempotency key is. */
export async function deliverSignal(
  database: Database,
  call: SignalCall,
  payloadIs: 'checked' | 'unchecked',
): Promise<SignalAnswer> {
  const { waitpoint } = call;
  const [uuid, name, kid, print, expires] =
    'uuid' in waitpoint
      ? [waitpoint.uuid, null, waitpoint.kid, waitpoint.print, waitpoint.tokenExpiresAtMs]
      : [null, waitpoint.name, null, null, null];
  const rows = await runForPerson<SignalAnswer>(
    database,
    {
      doing: 'delivering a signal',
      text: `SELECT * FROM ${database.prefix}ff_deliver_signal($1::uuid, $2::smallint, $3::uuid, $4::text, $5::text, $6::text,
      $7::bigint, $8::uuid, $9::text, $10::text, $11::text, $12::jsonb, $13::text, $14::boolean, $15::integer, $16::bigint)`,
      params: [
        call.uuid,
        call.partition,
        uuid,
        name,
        kid,
        print,
        expires,
        call.signalId,
        call.name,
        call.sourceType,
        call.sourceIdentity,
        call.payload,
        call.idempotencyKey,
        payloadIs === 'checked',
        call.maxSignals,
        call.maxBytes,
      ],
      repeatable: 'yes',
    },
    [call.uuid],
  );
  return rows[0]!;
}

export interface FoundWaitpoint {
  token_id: string;
  expires_at_ms: number | null;
  schema: unknown;
  /** By the database's clock. */
  now_ms: number;
}

/** An open waitpoint of an execution that has not ended. */
export async function findWaitpoint(
  database: Database,
  key: ExecutionKey,
  name: string,
): Promise<FoundWaitpoint | undefined> {
  const rows = await run<FoundWaitpoint>(database, {
    doing: 'looking for a waitpoint',
    text: `SELECT w.token_id, w.expires_at_ms, w.schema, ${database.prefix}ff_now_ms() AS now_ms
           FROM ${database.prefix}ff_waitpoint w
           JOIN ${database.prefix}ff_execution e ON e.execution_id = w.execution_id AND e.partition_key = w.partition_key
           WHERE w.execution_id = $1 AND w.partition_key = $2 AND w.retired_by = 0 AND w.name = $3 AND w.closed_at_ms IS NULL
             AND (w.expires_at_ms IS NULL OR w.expires_at_ms > ${database.prefix}ff_now_ms())
             AND e.lifecycle_phase <> 'terminal'`,
    params: [key.uuid, key.partition, name],
    repeatable: 'yes',
  });
  return rows[0];
}

export interface OpenWaitpoint {
  execution_id: string;
  partition_key: number;
  kind: string;
  lane: string;
  namespace: string;
  waitpoint_id: string;
  token_id: string;
  name: string;
  step_name: string | null;
  step_key: string | null;
  created_at_ms: number;
  expires_at_ms: number | null;
  signal_count: number;
  kid: string | null;
  secret_print: string | null;
  token_expires_at_ms: number | null;
  reason: WaitReason | null;
  suspended_at_ms: number | null;
  /** Of the leaves that count here; null among them takes any name. */
  matches: (string | null)[] | null;
  timeout_at_ms: number | null;
}

const OPEN_WAITPOINT = `e.execution_id, e.partition_key, r.kind, r.lane, e.namespace, w.waitpoint_id, w.token_id, w.name, w.step_name,
  w.step_key, w.created_at_ms, w.expires_at_ms, w.signal_count, w.kid, k.secret_print, w.token_expires_at_ms, x.wait ->> 'reason' AS reason,
  CASE WHEN x.wait IS NOT NULL THEN s.suspended_at_ms END AS suspended_at_ms, (
    SELECT array_agg(DISTINCT l ->> 'match') FROM jsonb_path_query(x.wait -> 'condition', 'strict $.** ? (@.kind == "count")') l
    WHERE l -> 'waitpoints' ? w.name) AS matches,
  (x.wait ->> 'timeout_at_ms')::bigint AS timeout_at_ms`;

/** The rest of the statement, from the execution e and the suspension s on. */
const ITS_WAITPOINTS = (prefix: string): string => `
  JOIN ${prefix}ff_route r ON r.route_id = e.route_id
  CROSS JOIN LATERAL (
    SELECT * FROM ${prefix}ff_waitpoint w
    WHERE w.execution_id = e.execution_id AND w.retired_by = 0 AND w.closed_at_ms IS NULL
      AND (w.expires_at_ms IS NULL OR w.expires_at_ms > ${prefix}ff_now_ms()) OFFSET 0) w
  LEFT JOIN LATERAL (
    SELECT j AS wait FROM jsonb_array_elements(s.waits) j
    WHERE j ->> 'name' = w.step_name AND j ->> 'key' = w.step_key LIMIT 1) x ON true
  LEFT JOIN ${prefix}ff_signing_key k ON k.kid = w.kid`;

export function listWaitpointsOf(database: Database, key: ExecutionKey): Promise<OpenWaitpoint[]> {
  const { prefix } = database;
  return readUncompiled<OpenWaitpoint>(database, {
    doing: 'listing waitpoints',
    text: `SELECT ${OPEN_WAITPOINT}
           FROM ${prefix}ff_execution e
           LEFT JOIN ${prefix}ff_suspension s ON s.execution_id = e.execution_id ${ITS_WAITPOINTS(prefix)}
           WHERE e.execution_id = $1::uuid AND e.partition_key = $2::smallint AND e.lifecycle_phase <> 'terminal'
           ORDER BY w.created_at_ms, w.name`,
    params: [key.uuid, key.partition],
    repeatable: 'yes',
  });
}

export interface WaitpointPlace {
  suspendedAtMs: number;
  uuid: string;
  name: string;
}

/** Of the executions that are suspended, from a place on, the longest wait first. */
export function listWaitedFor(
  database: Database,
  after: WaitpointPlace | null,
  limit: number,
): Promise<OpenWaitpoint[]> {
  const { prefix } = database;
  return readUncompiled<OpenWaitpoint>(database, {
    doing: 'listing what is waited for',
    text: `SELECT ${OPEN_WAITPOINT}
           FROM ${prefix}ff_suspension s
           JOIN ${prefix}ff_execution e ON e.execution_id = s.execution_id AND e.partition_key = s.partition_key
           ${ITS_WAITPOINTS(prefix)}
           WHERE s.suspended_at_ms >= (SELECT $1::bigint) AND x.wait IS NOT NULL
             AND (s.suspended_at_ms, s.execution_id, w.name) > ((SELECT $1::bigint), (SELECT $2::uuid), (SELECT $3::text))
           ORDER BY s.suspended_at_ms, s.execution_id, w.name LIMIT $4::bigint`,
    params: [
      after?.suspendedAtMs ?? -1,
      after?.uuid ?? '00000000-0000-0000-0000-000000000000',
      after?.name ?? '',
      limit,
    ],
    repeatable: 'yes',
  });
}

export interface StoredKey {
  kid: string;
  secret_print: string;
  created_at_ms: number;
  verify_until_ms: number | null;
  revoked_at_ms: number | null;
  now_ms: number;
}

export function listKeys(database: Database): Promise<StoredKey[]> {
  return run<StoredKey>(database, {
    doing: 'listing signing keys',
    text: `SELECT kid, secret_print, created_at_ms, verify_until_ms, revoked_at_ms, ${database.prefix}ff_now_ms() AS now_ms
           FROM ${database.prefix}ff_signing_key ORDER BY created_at_ms DESC, kid LIMIT 1000`,
    params: [],
    repeatable: 'yes',
  });
}

/** The key that signs; the one offered becomes it when there is none. */
export async function currentKey(
  database: Database,
  offered: { kid: string; print: string },
  tokenMs: number,
): Promise<{ kid: string; secret_print: string }> {
  const rows = await run<{ kid: string; secret_print: string }>(database, {
    doing: 'finding the signing key',
    text: `SELECT * FROM ${database.prefix}ff_current_key($1::text, $2::text, $3::bigint)`,
    params: [offered.kid, offered.print, tokenMs],
    repeatable: 'yes',
  });
  return rows[0]!;
}

/** Not repeatable: a second rotation would end the grace of nothing, but make one key too many. */
export async function rotateKey(
  database: Database,
  made: { kid: string; print: string },
  graceMs: number | null,
  forgetMs: number,
): Promise<string | null> {
  const rows = await run<{ previous: string | null }>(database, {
    doing: 'rotating the signing key',
    text: `SELECT ${database.prefix}ff_rotate_key($1::text, $2::text, $3::bigint, $4::bigint) AS previous`,
    params: [made.kid, made.print, graceMs, forgetMs],
    repeatable: 'no',
  });
  return rows[0]!.previous;
}

export async function revokeKey(database: Database, kid: string): Promise<string> {
  const rows = await run<{ outcome: string }>(database, {
    doing: 'revoking a signing key',
    text: `SELECT ${database.prefix}ff_revoke_key($1::text) AS outcome`,
    params: [kid],
    repeatable: 'yes',
  });
  return rows[0]!.outcome;
}

/** Whether tokens of a key are good now. */
export async function keyVerifies(database: Database, kid: string, print: string): Promise<boolean> {
  const rows = await run<{ verifies: boolean }>(database, {
    doing: 'looking at a signing key',
    text: `SELECT ${database.prefix}ff_key_verifies($1::text, $2::text) AS verifies`,
    params: [kid, print],
    repeatable: 'yes',
  });
  return rows[0]!.verifies;
}

/** False when there is no such waitpoint. */
export async function revokeTokens(
  database: Database,
  key: ExecutionKey,
  name: string,
  tokenId: string,
): Promise<boolean> {
  const rows = await runForPerson<{ found: boolean }>(
    database,
    {
      doing: 'revoking tokens',
      text: `SELECT ${database.prefix}ff_revoke_tokens($1::uuid, $2::smallint, $3::text, $4::uuid) AS found`,
      params: [key.uuid, key.partition, name, tokenId],
      repeatable: 'yes',
    },
    [key.uuid],
  );
  return rows[0]!.found;
}
