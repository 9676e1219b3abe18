/**
 * The engine's SQL functions as calls a race can make on any connection, with their results in one form. A function can
 * be replaced by name, so that the same race runs on a variant of it. No race and no expectation belongs here.
 */
import { randomUUID } from 'node:crypto';
import { completedBy, failedBy, releasedBy } from '../setup/ended-rows.ts';
import { messageCallsOf, type MessageCalls } from './messages/calls.ts';
import { signalCallsOf, type SignalCalls } from './signals/calls.ts';
import { streamCallsOf, type StreamCalls } from './streams/calls.ts';

/** Every execution of a race is in this partition. */
const PARTITION = 7;
export const LEASE_MS = 30_000;
/** Survives one move of the clock by a lease time. */
export const LONG_LEASE_MS = 3 * LEASE_MS;
export const SHORT_LEASE_MS = LEASE_MS / 3;
/** The default length of a pause; longer than any move of the clock. */
const BY_TIME: PauseFor = { delayMs: 3_600_000 };
/** How often a lease may be revoked before the execution fails. */
const MAX_RECLAIMS = 1_000;

const FUNCTIONS = {
  submit: 'ff_submit',
  claim: 'ff_claim',
  complete: 'ff_complete',
  fail: 'ff_fail',
  release: 'ff_release',
  renew: 'ff_renew',
  cancel: 'ff_cancel',
  revoke: 'ff_revoke_leases',
  lapse: 'ff_lapse_leases',
  sweep: 'ff_sweep_grants',
  fire: 'ff_fire_timers',
  pause: 'ff_pause',
  record: 'ff_record_steps',
  spawn: 'ff_spawn',
  settleFamily: 'ff_settle_family',
  progress: 'ff_report_progress',
  replay: 'ff_replay',
  prioritise: 'ff_change_priority',
  forget: 'ff_forget',
  suspend: 'ff_suspend',
  create: 'ff_create_waitpoints',
  deliver: 'ff_deliver_signal',
  currentKey: 'ff_current_key',
  rotateKey: 'ff_rotate_key',
  revokeKey: 'ff_revoke_key',
  append: 'ff_append_frames',
  recordForParent: 'ff_record_for_parent',
  revokeTokens: 'ff_revoke_tokens',
  send: 'ff_send_messages',
  continueAs: 'ff_continue',
} as const;

export type FunctionNames = Partial<Record<keyof typeof FUNCTIONS, string>>;

export interface Lease {
  id: string;
  attempt: number;
  epoch: number;
}

export interface Route {
  lane: string;
  kind: string;
}

export interface Call {
  sql: string;
  params: unknown[];
}

/** One row a function returned. */
export interface Answer {
  /** Null where the function does not name one, as for a discarded timer. */
  id: string | null;
  /** The function's own outcome; `claimed` for a granted lease, and for an accepted signal its effect. */
  word: string;
  /** The same lease got this result before. */
  repeated: boolean;
  reclaimed: boolean;
  /** The worker a lease was taken from. */
  takenFrom: string | null;
  attempt: number;
  epoch: number;
  /** The value of a recorded step. */
  value: unknown;
}

/** What a call runs on: a pool, a client or the session of a race. */
export type Ask = (text: string, params?: unknown[]) => Promise<{ rows: Record<string, unknown>[] }>;

export interface Submission {
  ids: string[];
  routes: Route[];
  /** Indexes into the routes, from 1; default the first for all. */
  ordinals?: number[];
  delayMs?: number;
  policy?: object;
}

/** What each of the leases pauses for. With children and no delay, for the children alone. */
export interface PauseFor {
  delayMs?: number;
  children?: string[];
  needed?: number;
}

export interface Calls extends SignalCalls, StreamCalls, MessageCalls {
  submit(submission: Submission): Call;
  claim(routeId: number, limit: number, worker: string): Call;
  complete(leases: Lease[]): Call;
  /** Ends the execution, regardless of its policy. */
  fail(leases: Lease[]): Call;
  /** Fails the attempt; the policy decides what follows. */
  retry(leases: Lease[]): Call;
  release(leases: Lease[]): Call;
  renew(leases: Lease[], leaseMs?: number): Call;
  cancel(leases: Pick<Lease, 'id'>[]): Call;
  revoke(leases: Pick<Lease, 'id'>[]): Call;
  lapse(leases: Lease[]): Call;
  /** Looks into all claims whose time has come; names no execution. */
  sweep(): Call;
  fire(ids: string[]): Call;
  /** Fires these timers and no others of their executions. */
  fireTimers(timerIds: string[]): Call;
  pause(leases: Lease[], request?: PauseFor): Call;
  record(leases: Lease[], name: string, value?: unknown): Call;
  spawn(parent: Lease, submission: Submission): Call;
  /** One part of the work on each of these families that has some. */
  settleFamilies(parents: string[], limit?: number): Call;
  replay(ids: string[], from: 'failed_step' | 'start'): Call;
  prioritise(ids: string[], priority: number): Call;
  /** Deletes what has ended, however recently. */
  forget(ids: string[]): Call;
  /** Returns nothing. */
  progress(leases: Lease[], percent: number): Call;
}

/** The routes of a call, interned by it: races for routes are separate. */
export const INTERNED = (routes: string): string =>
  `CASE WHEN (SELECT count(*) FROM ff_intern_routes(${routes}::jsonb, 10000)) >= 0 THEN ${routes}::jsonb END`;

const SUBMIT = `${INTERNED('$1')}, $2, $3, $4, $5, $6, $7, NULL`;

/** Builds a call of a function from the SQL of its arguments. */
export type Caller = (name: keyof typeof FUNCTIONS, args: string, params: unknown[]) => Call;

function operatorCallsOf(call: Caller): Pick<Calls, 'replay' | 'prioritise' | 'forget'> {
  return {
    replay: (ids, from) =>
      call('replay', `$1, $2, NULL, $3, 'why', 'somebody', 10`, [...idArrays(toIds(ids)), from === 'start']),
    prioritise: (ids, priority) =>
      call('prioritise', `$1, $2, NULL, $3, 'somebody'`, [...idArrays(toIds(ids)), priority]),
    forget: (ids) => call('forget', '$1, $2, 0, 0', idArrays(toIds(ids))),
  };
}

function callsOfParts(call: Caller): SignalCalls & StreamCalls & MessageCalls {
  return {
    ...signalCallsOf(call, PARTITION),
    ...streamCallsOf(call, PARTITION),
    ...messageCallsOf(call, PARTITION),
  };
}

/** The engine's functions that end executions return one value for all; naive ones return rows. */
function rowsOf(called: string, call: string): string {
  if (called === FUNCTIONS.complete) return completedBy(call);
  if (called === FUNCTIONS.fail) return failedBy(call);
  if (called === FUNCTIONS.release) return releasedBy(call);
  return `SELECT * FROM ${call}`;
}

/** The calls, with the engine's functions or with the given ones in their place. */
export function callsOf(names: FunctionNames): Calls {
  const functions = { ...FUNCTIONS, ...names };
  const call: Caller = (name, args, params) => ({
    sql: rowsOf(functions[name], `${functions[name]}(${args})`),
    params,
  });
  const failing = (leases: Lease[], terminal: string): Call =>
    call(
      'fail',
      `$1, $2, $3, $4, $5, $5, array_fill(NULL::bigint, ARRAY[$6::int]), array_fill(${terminal}, ARRAY[$6::int])`,
      [...leaseArrays(leases), leases.map(() => 'broken'), leases.length],
    );
  return {
    submit: (submission) => call('submit', SUBMIT, submitParams(submission)),
    claim: (routeId, limit, worker) => claimCall(functions.claim, [routeId, limit, worker]),
    complete: (leases) =>
      call('complete', '$1, $2, $3, $4, $5', [...leaseArrays(leases), leases.map(() => '{"done": true}')]),
    fail: (leases) => failing(leases, 'true'),
    retry: (leases) => failing(leases, 'false'),
    release: (leases) => call('release', '$1, $2, $3, $4', leaseArrays(leases)),
    renew: (leases, leaseMs = LEASE_MS) =>
      call('renew', '$1, $2, $3, $4, $5', [...leaseArrays(leases), leaseMs]),
    cancel: (leases) => call('cancel', `$1, $2, 'why', 'somebody'`, idArrays(leases)),
    revoke: (leases) =>
      call('revoke', `$1, $2, array_fill(NULL::uuid, ARRAY[$3::int]), 'why', 'somebody', ${MAX_RECLAIMS}`, [
        ...idArrays(leases),
        leases.length,
      ]),
    lapse: (leases) => call('lapse', '$1, $2, $3', [...idArrays(leases), leases.map((lease) => lease.epoch)]),
    sweep: () => sweepCall(functions.sweep),
    fire: (ids) => call('fire', 'ARRAY(SELECT timer_id FROM ff_timer WHERE execution_id = ANY ($1))', [ids]),
    fireTimers: (timerIds) => call('fire', '$1::bigint[]', [timerIds]),
    pause: (leases, request = BY_TIME) =>
      call('pause', '$1, $2, $3, $4, $5::bigint[], $6::text[]::jsonb[], $7::int[]', [
        ...leaseArrays(leases),
        leases.map(() => request.delayMs ?? null),
        leases.map(() => (request.children === undefined ? null : JSON.stringify(request.children))),
        leases.map(() => request.needed ?? request.children?.length ?? null),
      ]),
    record: (leases, name, value = 1) =>
      call(
        'record',
        `$1, $2, $3, $4, array_fill('step'::ff_step_kind, ARRAY[$5::int]), array_fill($6::text, ARRAY[$5::int]),
         array_fill(''::text, ARRAY[$5::int]), array_fill(NULL::bigint, ARRAY[$5::int]),
         array_fill($7::jsonb, ARRAY[$5::int])`,
        [...leaseArrays(leases), leases.length, name, JSON.stringify(value)],
      ),
    spawn: (parent, submission) =>
      call('spawn', `$1, $2, $3, $4, ${INTERNED('$5')}, $6, $7, $8, $9, $10, $11`, [
        parent.id,
        PARTITION,
        parent.attempt,
        parent.epoch,
        ...submitParams(submission),
      ]),
    settleFamilies: (parents, limit = 256) => ({
      sql: `SELECT f.* FROM (SELECT timer_id FROM ff_timer WHERE kind = 'family' AND execution_id = ANY ($1) ORDER BY 1) t
            CROSS JOIN LATERAL ${functions.settleFamily}(t.timer_id, $2, 5000, 0, 0) f`,
      params: [parents, limit],
    }),
    ...operatorCallsOf(call),
    ...callsOfParts(call),
    progress: (leases, percent) => progressCall(functions.progress, leases, percent),
  };
}

function progressCall(name: string, leases: Lease[], percent: number): Call {
  return {
    sql: `SELECT NULL::uuid AS execution_id
          FROM ${name}($1, $2, $3, $4, array_fill($6::real, ARRAY[$5::int]), array_fill(NULL::text, ARRAY[$5::int]))`,
    params: [...leaseArrays(leases), leases.length, percent],
  };
}

/** A claim returns pages of parallel arrays; a naive one returns rows. */
export function claimedBy(claim: string): string {
  return `SELECT i.id::uuid AS execution_id, (p -> 'attemptIndex' ->> (i.n - 1)::int)::int AS attempt_index,
      (p -> 'leaseEpoch' ->> (i.n - 1)::int)::int AS lease_epoch, (p -> 'reclaimed' ->> (i.n - 1)::int)::boolean AS reclaimed
    FROM ${claim}, unnest(pages) p, json_array_elements_text(p -> 'uuid') WITH ORDINALITY i(id, n)`;
}

function claimCall(name: string, asked: [routeId: number, limit: number, worker: string]): Call {
  const claim = `${name}(ARRAY[$1::int], '{NULL}', '{0}', $2, 'w', $3, $4, $5)`;
  const sql = name === FUNCTIONS.claim ? claimedBy(claim) : `SELECT * FROM ${claim}`;
  return { sql, params: [...asked, randomUUID(), LEASE_MS] };
}

function sweepCall(name: string): Call {
  return {
    sql: `SELECT NULL::uuid AS execution_id, 'swept' AS outcome FROM ${name}(0, 0, 10000)`,
    params: [],
  };
}

/** Runs a call and reads its result. */
export async function ask(through: Ask, { sql, params }: Call): Promise<Answer[]> {
  const { rows } = await through(sql, params);
  // A discarded timer has an outcome and names no execution.
  return rows.filter((row) => row.execution_id !== null || row.outcome !== undefined).map(toAnswer);
}

/** A result as text: one outcome per row, in id order. */
export function wordsOf(answers: Answer[]): string {
  const words = answers
    .toSorted((one, other) => ((one.id ?? '') < (other.id ?? '') ? -1 : 1))
    .map(({ word, repeated }) => (repeated ? `${word} again` : word));
  return words.join(', ') || 'nothing';
}

function toAnswer(row: Record<string, unknown>): Answer {
  return {
    id: row.execution_id as string | null,
    word:
      row.outcome === 'accepted' ? String(row.effect) : ((row.outcome as string | undefined) ?? 'claimed'),
    repeated: row.repeated === true,
    reclaimed: row.reclaimed === true,
    takenFrom: (row.worker_instance_id as string | null | undefined) ?? null,
    attempt: row.attempt_index as number,
    epoch: row.lease_epoch as number,
    value: row.value,
  };
}

/** One template per route, so that an execution's ordinal selects both. */
function submitParams({ ids, routes, ordinals, delayMs = 0, policy = {} }: Submission): unknown[] {
  const common = { namespace: 'default', priority: 100, policy, tags: {} };
  return [
    JSON.stringify(routes.map((route) => ({ ...route, capabilities: [] }))),
    JSON.stringify(routes.map((_, index) => ({ route: index + 1, ...common }))),
    ids,
    ids.map(() => PARTITION),
    ordinals ?? ids.map(() => 1),
    ids.map(() => delayMs),
    ids.map(() => '{"work": 1}'),
  ];
}

function toIds(ids: string[]): Pick<Lease, 'id'>[] {
  return ids.map((id) => ({ id }));
}

function idArrays(leases: Pick<Lease, 'id'>[]): unknown[] {
  return [leases.map(({ id }) => id), leases.map(() => PARTITION)];
}

function leaseArrays(leases: Lease[]): unknown[] {
  return [...idArrays(leases), leases.map(({ attempt }) => attempt), leases.map(({ epoch }) => epoch)];
}
