/**
 * The functions of suspension, signals and signing keys as calls a race can make. Split from calls.ts. No race and no
 * expectation belongs here.
 */
import { randomUUID } from 'node:crypto';
import type { SignalCondition } from '../../../src/contract/signals.ts';
import type { Call, Caller, Lease } from '../calls.ts';

const MAX_WAITPOINTS = 1_000;
const MAX_SIGNALS = 10_000;
const MAX_SIGNAL_BYTES = 1_000_000;
const WAITPOINT_LIFE_MS = 604_800_000;
/** The wait of every race that does not name one. */
const WAIT_NAME = 'told';
/** The waitpoint of every race that does not name one. */
export const WAITPOINT = 'here';
const FORGET_KEYS_MS = 2_592_000_000;

const ONE_SIGNAL: SignalCondition = { kind: 'count', n: 1, by: 'signals', waitpoints: [WAITPOINT] };

export interface WaitFor {
  name?: string;
  condition?: SignalCondition;
  waitpoints?: string[];
  timeoutMs?: number;
  onTimeout?: 'fail' | 'cancel' | 'expire' | 'resume' | 'escalate';
  resumeDelayMs?: number;
}

/** One wait, unless several are given, and what else the execution waits for. */
export interface SuspendFor extends WaitFor {
  waits?: WaitFor[];
  wakeMs?: number;
  children?: string[];
  needed?: number;
  mode?: 'suspend' | 'poll';
}

export interface SignalTo {
  /** By its name, as an operator; or by its id with the key of a token. */
  waitpoint?: string;
  token?: { waitpointId: string; kid: string };
  name?: string;
  /** The sender. */
  source?: string;
  /** Default: a unique one. */
  key?: string;
}

export interface SignalCalls {
  suspend(lease: Lease, request?: SuspendFor): Call;
  /** Opens waitpoints with the given ids. */
  create(lease: Lease, waitpoints: { name: string; id?: string }[], expiresInMs?: number): Call;
  deliver(id: string, signal?: SignalTo): Call;
  /** Revokes the tokens of the waitpoint. */
  revokeTokens(id: string): Call;
  /** Returns the key that signs, as its outcome. */
  currentKey(offered: string): Call;
  /** Returns the key that was replaced; it is valid as long as its tokens. */
  rotateKey(kid: string): Call;
  revokeKey(kid: string): Call;
}

function waitRow(wait: WaitFor) {
  return {
    name: wait.name ?? WAIT_NAME,
    key: '',
    condition: wait.condition ?? ONE_SIGNAL,
    timeout_ms: wait.timeoutMs ?? null,
    on_timeout: wait.onTimeout ?? 'expire',
    resume_delay_ms: wait.resumeDelayMs ?? 0,
  };
}

function waitpointRows(wait: WaitFor) {
  return (wait.waitpoints ?? [WAITPOINT]).map((name) => ({
    id: randomUUID(),
    name,
    expires_in_ms: wait.timeoutMs ?? null,
    step_name: wait.name ?? WAIT_NAME,
    step_key: '',
  }));
}

function suspendParams({ id, attempt, epoch }: Lease, request: SuspendFor): unknown[] {
  const waits = request.waits ?? [request];
  const children = request.children === undefined ? null : JSON.stringify(request.children);
  return [
    id,
    attempt,
    epoch,
    request.mode === 'poll',
    JSON.stringify(waits.map(waitRow)),
    JSON.stringify(waits.flatMap(waitpointRows)),
    request.wakeMs ?? null,
    children,
    request.needed ?? request.children?.length ?? null,
  ];
}

function deliverParams(id: string, { waitpoint, token, name, source, key }: SignalTo): unknown[] {
  return [
    id,
    token?.waitpointId ?? null,
    token === undefined ? (waitpoint ?? WAITPOINT) : null,
    token?.kid ?? null,
    randomUUID(),
    name ?? 'go',
    source ?? 'somebody',
    key ?? randomUUID(),
  ];
}

/** `partition` is that of every execution of a race. */
export function signalCallsOf(call: Caller, partition: number): SignalCalls {
  const of = (made: Call, columns = 'f.*'): Call => ({
    sql: made.sql.replace('SELECT * FROM ', `SELECT $1::uuid AS execution_id, ${columns} FROM `) + ' f',
    params: made.params,
  });
  const named = (made: Call): Call => ({
    sql:
      made.sql.replace(
        'SELECT * FROM ',
        `SELECT NULL::uuid AS execution_id, coalesce(f, 'none') AS outcome FROM `,
      ) + ' f',
    params: made.params,
  });
  return {
    suspend: (lease, request = {}) =>
      of(
        call(
          'suspend',
          `$1, ${partition}::smallint, $2, $3, 'suspend', $4, $5::jsonb, $6::jsonb, ${MAX_WAITPOINTS}, $7::bigint, $8::jsonb, $9::int`,
          suspendParams(lease, request),
        ),
        `f.*, f.outcome = 'already_suspended' AS repeated`,
      ),
    create: ({ id, attempt, epoch }, waitpoints, expiresInMs = WAITPOINT_LIFE_MS) =>
      of(
        call('create', `$1, ${partition}::smallint, $2, $3, $4::jsonb, ${MAX_WAITPOINTS}`, [
          id,
          attempt,
          epoch,
          JSON.stringify(
            waitpoints.map(({ name, id: own = randomUUID() }) => ({
              id: own,
              name,
              expires_in_ms: expiresInMs,
            })),
          ),
        ]),
      ),
    deliver: (id, signal = {}) =>
      of(
        call(
          'deliver',
          `$1, ${partition}::smallint, $2::uuid, $3::text, $4::text, 'print', NULL, $5, $6, 'user', $7, '{}', $8, true,
           ${MAX_SIGNALS}, ${MAX_SIGNAL_BYTES}`,
          deliverParams(id, signal),
        ),
        // The reaper uses the same outcome.
        `f.effect, CASE f.outcome WHEN 'expired' THEN 'too_late' ELSE f.outcome END AS outcome`,
      ),
    revokeTokens: (id) =>
      of(
        call('revokeTokens', `$1, ${partition}::smallint, $2, $3`, [id, WAITPOINT, randomUUID()]),
        `CASE WHEN f THEN 'ended' ELSE 'unknown' END AS outcome`,
      ),
    currentKey: (offered) => ({
      ...call('currentKey', `$1, 'print', ${WAITPOINT_LIFE_MS}`, [offered]),
      sql: call('currentKey', `$1, 'print', ${WAITPOINT_LIFE_MS}`, []).sql.replace(
        '*',
        'NULL::uuid AS execution_id, kid AS outcome',
      ),
    }),
    rotateKey: (kid) => named(call('rotateKey', `$1, 'print', NULL, ${FORGET_KEYS_MS}`, [kid])),
    revokeKey: (kid) => named(call('revokeKey', '$1', [kid])),
  };
}
