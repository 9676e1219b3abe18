/**
 * Work for the functions under test, through the store's own calls and on the server's clock: rows by the hundred.
 */
import { randomUUID } from 'node:crypto';
import type { Database } from '../../src/engine/database/database.ts';
import {
  claimExecutions,
  completeAndClaim,
  type ClaimCall,
  type ClaimPage,
} from '../../src/engine/executions/claiming/claims.sql.ts';
import {
  completeExecutions,
  releaseExecutions,
  renewLeases,
  type ExecutionKey,
  type LeaseKey,
} from '../../src/engine/executions/executions.sql.ts';
import {
  submitExecutions,
  type SubmitCall,
  type SubmitRow,
} from '../../src/engine/executions/submitting/submits.sql.ts';
import { failExecutions } from '../../src/engine/executions/failing.sql.ts';
import { fireTimers, lapseLeases, type LapsedLease } from '../../src/engine/executions/due.sql.ts';
import { cancelExecutions, revokeLeases } from '../../src/engine/executions/taking.sql.ts';
import { recordOrders } from '../../src/engine/steps/end-order.sql.ts';
import { internPolicies, internRoutes } from '../../src/engine/executions/claiming/routes.sql.ts';
import {
  type PauseRow,
  pauseExecutions,
  recordSteps,
  reportProgress,
} from '../../src/engine/steps/steps.sql.ts';
import { patiently } from '../setup/patience.ts';

export const PARTITION = 7;
const LONG_LEASE_MS = 3_600_000;
/** A lease granted with this has expired when it begins: there is no clock to move here. */
export const NO_LEASE_MS = -1;
const MANY_RECLAIMS = 5;
export const RETRIES = { retry_policy: { max_retries: 5, backoff: { type: 'fixed', delay_ms: 0 } } };

const WAIT_LIMIT_MS = patiently(20_000);

/** Asks again until it holds. */
export async function until(isSo: () => Promise<boolean>): Promise<void> {
  const deadline = performance.now() + WAIT_LIMIT_MS;
  while (!(await isSo())) {
    if (performance.now() > deadline) throw new Error(`it was not so within ${WAIT_LIMIT_MS} ms`);
  }
}

export interface Batch {
  kinds: readonly string[];
  count: number;
  delayMs?: number;
  /** How much later each is due than the one before. */
  delayStepMs?: number;
  /** Some of these ids may exist already. */
  uuids?: readonly string[];
  /** Each has a key made from this, which expires at once. */
  keys?: string;
  /** The beginning of the keys that name them, and what to do where they name others. */
  ownKeys?: string;
  ifExists?: 'attach' | 'refuse' | 'replace';
  policy?: object;
  /** Default: a small one, for every other a large one. */
  payload?: string;
}

/** Kept beside the row of its execution. */
export const LARGE_PAYLOAD = JSON.stringify({ work: 'x'.repeat(400) });

const PRIORITIES = [0, 1, 2];

/** One template for each kind and priority; the executions alternate between them. */
export function submitCall(batch: Batch): SubmitCall {
  const { kinds } = batch;
  const templates = kinds.flatMap((_, kind) =>
    PRIORITIES.map((priority) => ({
      routeOrdinal: kind + 1,
      namespace: 'default',
      priority,
      policy: JSON.stringify(batch.policy ?? RETRIES),
      tags: '{"team": "plans"}',
    })),
  );
  const rows = Array.from({ length: batch.count }, (_, index): SubmitRow => ({
    uuid: batch.uuids?.[index] ?? randomUUID(),
    partition: PARTITION,
    // Spread, as due times are: an index over few distinct ones would hide a bad lookup.
    delayMs: batch.delayMs === undefined ? 0 : batch.delayMs + index * (batch.delayStepMs ?? 0),
    payload: batch.payload ?? (index % 2 === 0 ? '{"work": 1}' : LARGE_PAYLOAD),
    idempotency:
      batch.keys === undefined ? null : { key: `${batch.keys}-${index}`, bodyHash: '00', windowMs: -1 },
    own:
      batch.ownKeys === undefined
        ? null
        : { key: `${batch.ownKeys}-${index}`, ifExists: batch.ifExists ?? 'attach' },
  }));
  const routes = kinds.map((kind) => ({ lane: 'default', kind, capabilities: ['cpu'] }));
  const templateOrdinals = rows.map(
    (_, index) => (index % kinds.length) * PRIORITIES.length + (index % PRIORITIES.length) + 1,
  );
  return { routes, templates, rows, templateOrdinals };
}

/** The call, with its routes and policies interned. */
export async function makeKnown(database: Database, call: SubmitCall): Promise<SubmitCall> {
  await internRoutes(database, call.routes);
  await internPolicies(
    database,
    call.templates.map((template) => template.policy),
  );
  return call;
}

/** Submits, and returns the routes of the kinds and the ids, in order. */
export async function submitBatch(
  database: Database,
  batch: Batch,
): Promise<{ routes: number[]; uuids: string[]; outcomes: string[] }> {
  const answers = await submitExecutions(database, await makeKnown(database, submitCall(batch)));
  return {
    routes: answers.slice(0, batch.kinds.length).map((answer) => answer.routeId!),
    // Those that were replaced come after them.
    uuids: answers.slice(0, batch.count).map((answer) => answer.uuid),
    outcomes: answers.map((answer) => answer.outcome),
  };
}

export async function claimBatch(
  database: Database,
  routes: readonly number[],
  limit: number,
  leaseMs: number = LONG_LEASE_MS,
): Promise<LeaseKey[]> {
  return leasesOf(await claimExecutions(database, claimCall(routes, limit, leaseMs)));
}

function claimCall(routes: readonly number[], limit: number, leaseMs: number): ClaimCall {
  return {
    entries: routes.map((routeId) => ({ routeId, rank: null, afterSeq: 0 })),
    limit,
    workerId: 'worker',
    workerInstanceId: 'worker-1',
    claimId: randomUUID(),
    leaseMs,
  };
}

/** Completes and claims as many, in one statement. */
export async function exchange(
  database: Database,
  leases: readonly LeaseKey[],
  routes: readonly number[],
): Promise<LeaseKey[]> {
  const rows = leases.map((lease) => ({ ...lease, result: null }));
  const { claimed } = await completeAndClaim(database, rows, claimCall(routes, leases.length, LONG_LEASE_MS));
  return leasesOf(claimed);
}

function leasesOf({ pages }: { pages: readonly ClaimPage[] }): LeaseKey[] {
  return pages.flatMap((page) =>
    page.uuid.map((uuid, index) => ({
      uuid,
      partition: page.partition[index]!,
      attemptIndex: page.attemptIndex[index]!,
      leaseEpoch: page.leaseEpoch[index]!,
    })),
  );
}

/** The operations on a batch, by name; each returns a row per execution. */
export interface Calls {
  renew(leases: readonly LeaseKey[]): Promise<unknown[]>;
  complete(leases: readonly LeaseKey[]): Promise<unknown[]>;
  fail(leases: readonly LeaseKey[]): Promise<unknown[]>;
  retry(leases: readonly LeaseKey[]): Promise<unknown[]>;
  release(leases: readonly LeaseKey[]): Promise<unknown[]>;
  revoke(leases: readonly LeaseKey[]): Promise<unknown[]>;
  /** Revokes leases of executions that may not be reclaimed again. */
  exhaust(leases: readonly LeaseKey[]): Promise<unknown[]>;
  cancel(keys: readonly ExecutionKey[]): Promise<unknown[]>;
  lapse(leases: readonly LeaseKey[]): Promise<unknown[]>;
  fire(timerIds: readonly number[]): Promise<unknown[]>;
  /** Records two steps for each. */
  record(leases: readonly LeaseKey[]): Promise<unknown[]>;
  order(leases: readonly LeaseKey[]): Promise<unknown[]>;
  report(leases: readonly LeaseKey[]): Promise<void>;
  nap(leases: readonly LeaseKey[]): Promise<unknown[]>;
  /** Pauses until one of these has ended. */
  awaitChildren(leases: readonly LeaseKey[], children: readonly string[]): Promise<unknown[]>;
}

async function complete(database: Database, leases: readonly LeaseKey[]): Promise<unknown[]> {
  const rows = leases.map((lease) => ({ ...lease, result: '{"done": true}' }));
  const { others } = await completeExecutions(database, rows);
  const refused = new Set(others?.map((other) => other.uuid));
  return [...leases.filter((lease) => !refused.has(lease.uuid)), ...(others ?? [])];
}

export function callsOn(database: Database): Calls {
  const fail = async (leases: readonly LeaseKey[], terminal: boolean) => {
    const failure = { message: 'no', category: 'x', retryAfterMs: null, detail: null, terminal };
    const rows = leases.map((lease) => ({ ...lease, ...failure }));
    const { answers, others } = await failExecutions(database, rows);
    return [...(answers ?? []), ...(others ?? [])];
  };
  const revoke = (leases: readonly LeaseKey[], maxReclaims: number) => {
    const keys = leases.map((lease) => ({ ...lease, leaseId: null }));
    return revokeLeases(database, keys, 'why', 'me', maxReclaims);
  };
  const pause = (leases: readonly LeaseKey[], what: Pick<PauseRow, 'delayMs' | 'children' | 'needed'>) =>
    pauseExecutions(
      database,
      leases.map((lease) => ({ ...lease, ...what })),
    );
  return {
    renew: (leases) => renewLeases(database, leases, LONG_LEASE_MS),
    complete: (leases) => complete(database, leases),
    fail: (leases) => fail(leases, true),
    retry: (leases) => fail(leases, false),
    release: (leases) => releaseExecutions(database, leases),
    revoke: (leases) => revoke(leases, MANY_RECLAIMS),
    exhaust: (leases) => revoke(leases, 0),
    cancel: (keys) =>
      cancelExecutions(
        database,
        keys.map((key) => ({ ...key, leaseEpoch: null })),
        'why',
        'me',
      ),
    lapse: (leases) =>
      lapseLeases(
        database,
        leases.map((lease): LapsedLease => ({ ...lease, hadSetback: false })),
      ),
    fire: (timerIds) => fireTimers(database, timerIds),
    record: (leases) =>
      recordSteps(
        database,
        leases.flatMap((lease) =>
          ['a', 'b'].map((key) => ({
            ...lease,
            kind: 'step' as const,
            name: 's',
            key,
            sleepMs: null,
            durationMs: null,
            value: '1',
          })),
        ),
      ),
    order: (leases) =>
      recordOrders(
        database,
        leases.map((lease) => ({ ...lease, place: 0, ends: ['a', 'b'] })),
      ),
    report: (leases) =>
      reportProgress(
        database,
        leases.map((lease) => ({ ...lease, percent: 1, message: 'on it' })),
      ),
    nap: (leases) => pause(leases, { delayMs: 0, children: null, needed: null }),
    awaitChildren: (leases, children) => pause(leases, { delayMs: null, children, needed: 1 }),
  };
}

/** Leases that do not exist, on executions that do not exist. */
export function unknownLeases(count: number): LeaseKey[] {
  return Array.from({ length: count }, () => ({
    uuid: randomUUID(),
    partition: PARTITION,
    attemptIndex: 0,
    leaseEpoch: 1,
  }));
}
