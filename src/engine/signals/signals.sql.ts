/**
 * Calls the SQL functions of suspension and signals, and reads waitpoints. Only statements, no decisions.
 */
import type {
  DeliverOutcome,
  MessageCondition,
  PendingWaitpoint,
  SignalCondition,
  Waitpoint,
  WaitReason,
} from '../../contract/signals.ts';
import type { ReceivedTopic, TopicCondition } from '../../contract/topics.ts';
import { columns, columnsOf, idText, inSchema, withColumns, type RowOf } from '../database/columns.ts';
import { run, type Database } from '../database/database.ts';
import type { Answered, Refused } from '../executions/answered.sql.ts';
import type { ExecutionKey, LeaseKey } from '../executions/executions.sql.ts';
import { runForPerson } from '../database/held.ts';
import { readUncompiled } from '../database/uncompiled.ts';
import type { TokenContent } from './tokens.ts';

/** A waitpoint as the SQL functions expect it. `schema` is JSON. */
export interface WaitpointRow {
  id: string;
  name: string;
  expires_in_ms: number | null;
  kid?: string;
  step_name?: string;
  step_key?: string;
  schema?: unknown;
}

/** A condition as ff_end_if_met expects it. */
export type ConditionRow = SignalCondition | (MessageCondition & { limit: number }) | TopicRow;

/** What the home of the topic had just before: the number of the last, and that itself while it is kept. */
export interface TopicOffer {
  last: number;
  offer: ReceivedTopic | null;
}

type TopicRow = Required<TopicCondition> & TopicOffer;

export interface WaitRow {
  name: string;
  key: string;
  condition: ConditionRow;
  timeout_ms: number | null;
  on_timeout: string;
  resume_delay_ms: number;
  reason: WaitReason;
}

export interface SuspendCall {
  lease: LeaseKey;
  transition: string;
  /** `poll`: only start the waits. */
  mode: 'suspend' | 'poll';
  waits: readonly WaitRow[];
  waitpoints: readonly WaitpointRow[];
  maxWaitpoints: number;
  delayMs: number | null;
  children: readonly string[] | null;
  needed: number | null;
}

const SUSPENDED = columnsOf<Answered & { ended: unknown }>()(
  'outcome',
  'lifecyclePhase',
  'terminalOutcome',
  'leaseEpoch',
  'ended',
  'dueInMs',
);
export type SuspendAnswer = RowOf<typeof SUSPENDED>;

const LEASE = '$1::uuid, $2::smallint, $3::integer, $4::bigint';

function leaseParams({ uuid, partition, attemptIndex, leaseEpoch }: LeaseKey): unknown[] {
  return [uuid, partition, attemptIndex, leaseEpoch];
}

export async function suspendExecution(database: Database, call: SuspendCall): Promise<SuspendAnswer> {
  const rows = await run(database, {
    doing: 'suspending an execution',
    columns: SUSPENDED,
    text: `SELECT ${SUSPENDED.list} FROM ${database.prefix}ff_suspend(${LEASE}, $5::text, $6::boolean, $7::jsonb, $8::jsonb, $9::integer,
      $10::bigint, $11::jsonb, $12::integer)`,
    params: [
      ...leaseParams(call.lease),
      call.transition,
      call.mode === 'poll',
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

/** What is stored of the token issued with a waitpoint, enough to make it again; null without a token or its key. */
export type StoredToken = Pick<TokenContent, 'waitpointUuid'> & {
  [Part in 'kid' | 'expiresAtMs']: TokenContent[Part] | null;
} & { print: string | null };

const CREATED = columns<Refused & StoredToken & Pick<Waitpoint, 'waitpointId' | 'createdAtMs'>>({
  outcome: 'outcome',
  lifecyclePhase: 'lifecycle_phase',
  terminalOutcome: 'terminal_outcome',
  leaseEpoch: 'lease_epoch',
  waitpointId: 'waitpoint_id',
  createdAtMs: 'created_at_ms',
  waitpointUuid: 'token_id',
  kid: 'kid',
  print: 'secret_print',
  expiresAtMs: 'token_expires_at_ms',
});
export type WaitpointAnswer = RowOf<typeof CREATED>;

export async function createWaitpoint(
  database: Database,
  lease: LeaseKey,
  waitpoint: WaitpointRow,
  maxWaitpoints: number,
): Promise<WaitpointAnswer> {
  const rows = await run(database, {
    doing: 'creating a waitpoint',
    columns: CREATED,
    text: `SELECT ${CREATED.list} FROM ${database.prefix}ff_create_waitpoints(${LEASE}, $5::jsonb, $6::integer)`,
    params: [...leaseParams(lease), JSON.stringify([waitpoint]), maxWaitpoints],
    repeatable: 'yes',
  });
  return rows[0]!;
}

export interface SignalCall extends ExecutionKey {
  /** By uuid from a token, or by name for an operator. */
  waitpoint: { uuid: string; kid: string; print: string; tokenExpiresAtMs: number } | { name: string };
  signalId: string;
  name: string;
  sourceType: string;
  sourceIdentity: string;
  /** JSON text. */
  payload: string;
  idempotencyKey: string;
  payloadIs: 'checked' | 'unchecked';
  maxSignals: number;
  maxBytes: number;
}

type Accepted = Extract<DeliverOutcome, { outcome: 'accepted' }>;

/** `unchecked`: nothing was done yet; the payload must be checked against the returned schema first. */
const DELIVERED = columnsOf<
  Answered<DeliverOutcome['outcome'] | 'unknown' | 'unchecked' | 'held'> &
    Omit<Accepted, 'outcome'> & { schema: unknown }
>()('outcome', 'signalId', 'effect', 'schema', 'routeId', 'dueInMs');
export type SignalAnswer = RowOf<typeof DELIVERED>;

/** What is sent of a signal, in the order of the functions' parameters. */
function signalParams(call: SignalCall): unknown[] {
  const { waitpoint } = call;
  const [uuid, name, kid, print, expires] =
    'uuid' in waitpoint
      ? [waitpoint.uuid, null, waitpoint.kid, waitpoint.print, waitpoint.tokenExpiresAtMs]
      : [null, waitpoint.name, null, null, null];
  return [
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
    call.payloadIs === 'checked',
    call.maxSignals,
    call.maxBytes,
  ];
}

const SIGNAL_TYPES = `uuid smallint uuid text text text bigint uuid text text text jsonb text boolean integer bigint`;
const parametersOf = (suffix: '' | '[]'): string =>
  SIGNAL_TYPES.split(' ')
    .map((type, place) => `$${place + 1}::${type}${suffix}`)
    .join(', ');
const ONE_SIGNAL = parametersOf('');
const MANY_SIGNALS = parametersOf('[]');

/** Repeatable, because of its idempotency key. */
export async function deliverSignal(database: Database, call: SignalCall): Promise<SignalAnswer> {
  const rows = await runForPerson(
    database,
    {
      doing: 'delivering a signal',
      columns: DELIVERED,
      text: `SELECT ${DELIVERED.list} FROM ${database.prefix}ff_deliver_signal(${ONE_SIGNAL})`,
      params: signalParams(call),
      repeatable: 'yes',
    },
    [call.uuid],
  );
  return rows[0]!;
}

const DELIVERED_TOGETHER = withColumns(DELIVERED, columnsOf<{ place: number }>()('place'));

/** Delivers signals in order. Undefined for one that needs a statement of its own: nothing was done. */
export async function deliverSignals(
  database: Database,
  calls: readonly SignalCall[],
): Promise<(SignalAnswer | undefined)[]> {
  const all = calls.map(signalParams);
  const rows = await run(database, {
    doing: 'delivering signals',
    columns: DELIVERED_TOGETHER,
    text: `SELECT ${DELIVERED_TOGETHER.list} FROM ${database.prefix}ff_deliver_signals(${MANY_SIGNALS})`,
    params: all[0]!.map((_, column) => all.map((params) => params[column])),
    repeatable: 'yes',
    waits: 'once',
  });
  const byPlace = new Map(rows.map(({ place, ...answer }) => [place, answer]));
  return calls.map((_, index) => {
    const answer = byPlace.get(index + 1);
    return answer?.outcome === 'held' ? undefined : answer;
  });
}

/** `nowMs` is by the database's clock. */
const FOUND = columns<
  Pick<StoredToken, 'waitpointUuid' | 'expiresAtMs'> & { schema: unknown; nowMs: number }
>({
  waitpointUuid: 'w.token_id',
  expiresAtMs: 'w.expires_at_ms',
  schema: 'w.schema',
  nowMs: 's.ff_now_ms()',
});

/** Finds an open waitpoint of an unfinished execution. */
export async function findWaitpoint(
  database: Database,
  key: ExecutionKey,
  name: string,
): Promise<RowOf<typeof FOUND> | undefined> {
  const rows = await run(database, {
    doing: 'finding a waitpoint',
    columns: FOUND,
    text: inSchema(
      database,
      `SELECT ${FOUND.list}
       FROM s.ff_waitpoint w
       JOIN s.ff_execution e ON e.execution_id = w.execution_id AND e.partition_key = w.partition_key
       WHERE w.execution_id = $1 AND w.partition_key = $2 AND w.retired_by = 0 AND w.name = $3 AND w.closed_at_ms IS NULL
         AND (w.expires_at_ms IS NULL OR w.expires_at_ms > s.ff_now_ms())
         AND e.lifecycle_phase <> 'terminal'`,
    ),
    params: [key.uuid, key.partition, name],
    repeatable: 'yes',
  });
  return rows[0];
}

const PENDING = columns<Omit<PendingWaitpoint, 'tokenFingerprint'>>({
  executionId: idText('e.partition_key', 'e.execution_id'),
  kind: 'r.kind',
  lane: 'r.lane',
  namespace: 'e.namespace',
  waitpointId: 'w.waitpoint_id',
  name: 'w.name',
  state: "CASE WHEN x.wait IS NULL THEN 'pending' ELSE 'waiting' END",
  wait: "CASE WHEN w.step_name IS NOT NULL THEN jsonb_build_object('name', w.step_name, 'key', w.step_key) END",
  reason: "x.wait ->> 'reason'",
  createdAtMs: 'w.created_at_ms',
  waitingSinceMs: 'CASE WHEN x.wait IS NOT NULL THEN s.suspended_at_ms END',
  timeoutAtMs: "(x.wait ->> 'timeout_at_ms')::bigint",
  expiresAtMs: 'w.expires_at_ms',
  // The names that leaves of the condition ask for at this waitpoint; empty when one takes any name.
  matches: `(
    SELECT CASE WHEN bool_or(l ->> 'match' IS NULL) THEN '{}' ELSE coalesce(array_agg(DISTINCT l ->> 'match'), '{}') END
    FROM jsonb_path_query(x.wait -> 'condition', 'strict $.** ? (@.kind == "count")') l
    WHERE l -> 'waitpoints' ? w.name)`,
  signalCount: 'w.signal_count',
  tokenKid: 'w.kid',
});

const OPEN = withColumns(
  PENDING,
  columns<ExecutionKey & { token: StoredToken }>({
    uuid: 'e.execution_id',
    partition: 'e.partition_key',
    token: `jsonb_build_object('waitpointUuid', w.token_id, 'kid', w.kid, 'print', k.secret_print,
      'expiresAtMs', w.token_expires_at_ms)`,
  }),
);
export type OpenWaitpoint = RowOf<typeof OPEN>;

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
  return readUncompiled(database, {
    doing: 'listing waitpoints',
    columns: OPEN,
    text: `SELECT ${OPEN.list}
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

/** Lists waitpoints of suspended executions, longest wait first. */
export function listWaitedFor(
  database: Database,
  after: WaitpointPlace | null,
  limit: number,
): Promise<OpenWaitpoint[]> {
  const { prefix } = database;
  return readUncompiled(database, {
    doing: 'listing waitpoints',
    columns: OPEN,
    text: `SELECT ${OPEN.list}
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

/** Returns false when there is no such waitpoint. */
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
