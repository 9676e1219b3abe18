/**
 * Work for the functions under test, through the store's own calls, on the server's own clock: rows by the hundred,
 * and one walk that makes every function run every statement it has.
 */
import { randomUUID } from 'node:crypto';
import type { Database } from '../../src/store/database.ts';
import {
  cancelExecutions,
  claimExecutions,
  completeExecutions,
  failExecutions,
  releaseExecutions,
  renewLeases,
  revokeLeases,
  submitExecutions,
  submitExecutionsInside,
  type ClaimRow,
  type ExecutionKey,
  type LeaseKey,
  type SubmitCall,
  type SubmitRow,
} from '../../src/store/executions.ts';
import { fireTimers, lapseLeases, listDueTimers, type LapsedLease } from '../../src/store/reconciling.ts';
import {
  type PauseRow,
  pauseExecutions,
  recordSteps,
  reportProgress,
  spawnExecutions,
} from '../../src/store/steps.ts';
import { walkOperated, walkUnknownOperated } from './operated.ts';
import type { Recorder } from './plan-recorder.ts';

export const PARTITION = 7;
const MAX_ROUTES = 10_000;
const LONG_LEASE_MS = 3_600_000;
/** A lease granted with this has lapsed when it begins: there is no clock to move here. */
export const NO_LEASE_MS = -1;
const MANY_RECLAIMS = 5;
/** Far beyond any timer's number. */
const NO_TIMER = 1_000_000_000;
export const RETRIES = { retry_policy: { max_retries: 5, backoff: { type: 'fixed', delay_ms: 0 } } };

const WAIT_LIMIT_MS = 20_000;

/** Asks again until the answer is yes. */
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
  /** How much later than the one before each is due. */
  delayStepMs?: number;
  /** Some of these ids may be known already. */
  uuids?: readonly string[];
  /** Each has a key made of this, which is free again at once. */
  keys?: string;
  policy?: object;
}

const PRIORITIES = [0, 1, 2];

/** A template for each kind and priority; the executions take turns at both. */
function submitCall(batch: Batch): SubmitCall {
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
    templateOrdinal: (index % kinds.length) * PRIORITIES.length + (index % PRIORITIES.length) + 1,
    // Spread, as due times are: an index over few distinct ones would hide a bad look-up.
    delayMs: batch.delayMs === undefined ? 0 : batch.delayMs + index * (batch.delayStepMs ?? 0),
    payload: '{"work": 1}',
    idempotency:
      batch.keys === undefined ? null : { key: `${batch.keys}-${index}`, bodyHash: '00', windowMs: -1 },
  }));
  const routes = kinds.map((kind) => ({ lane: 'default', kind, capabilities: ['cpu'] }));
  return { routes, templates, maxRoutes: MAX_ROUTES, rows };
}

/** Submits and answers the routes of the kinds and the ids, in their order. */
export async function submitBatch(
  database: Database,
  batch: Batch,
): Promise<{ routes: number[]; uuids: string[]; outcomes: string[] }> {
  const answers = await submitExecutions(database, submitCall(batch));
  return {
    routes: answers.slice(0, batch.kinds.length).map((answer) => answer.route_id),
    uuids: answers.map((answer) => answer.execution_id),
    outcomes: answers.map((answer) => answer.outcome),
  };
}

export async function claimBatch(
  database: Database,
  routes: readonly number[],
  limit: number,
  leaseMs: number = LONG_LEASE_MS,
): Promise<ClaimRow[]> {
  const answer = await claimExecutions(database, {
    entries: routes.map((routeId) => ({ routeId, rank: null, afterSeq: 0 })),
    limit,
    workerId: 'worker',
    workerInstanceId: 'worker-1',
    claimId: randomUUID(),
    leaseMs,
    quietRoutes: [],
  });
  return answer.rows;
}

export function leaseOf(row: ClaimRow): LeaseKey {
  return {
    uuid: row.execution_id,
    partition: row.partition_key,
    attemptIndex: row.attempt_index,
    leaseEpoch: row.lease_epoch,
  };
}

/** The operations on a batch, by their name; each answers a row per execution. */
export interface Calls {
  renew(leases: readonly LeaseKey[]): Promise<unknown[]>;
  complete(leases: readonly LeaseKey[]): Promise<unknown[]>;
  fail(leases: readonly LeaseKey[]): Promise<unknown[]>;
  retry(leases: readonly LeaseKey[]): Promise<unknown[]>;
  release(leases: readonly LeaseKey[]): Promise<unknown[]>;
  revoke(leases: readonly LeaseKey[]): Promise<unknown[]>;
  /** Revokes what may not be taken up again. */
  exhaust(leases: readonly LeaseKey[]): Promise<unknown[]>;
  cancel(keys: readonly ExecutionKey[]): Promise<unknown[]>;
  lapse(leases: readonly LeaseKey[]): Promise<unknown[]>;
  fire(timerIds: readonly number[]): Promise<unknown[]>;
  /** Records two steps of each. */
  record(leases: readonly LeaseKey[]): Promise<unknown[]>;
  report(leases: readonly LeaseKey[]): Promise<void>;
  nap(leases: readonly LeaseKey[]): Promise<unknown[]>;
  /** Pauses until one of these has ended. */
  awaitChildren(leases: readonly LeaseKey[], children: readonly string[]): Promise<unknown[]>;
}

export function callsOn(database: Database): Calls {
  const fail = (leases: readonly LeaseKey[], terminal: boolean) => {
    const failure = { message: 'no', category: 'x', retryAfterMs: null, terminal };
    return failExecutions(
      database,
      leases.map((lease) => ({ ...lease, ...failure })),
    );
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
    complete: (leases) =>
      completeExecutions(
        database,
        leases.map((lease) => ({ ...lease, result: '{"done": true}' })),
      ),
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
            value: '1',
          })),
        ),
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

/** Leases nobody holds on executions nobody has. */
function unknownLeases(count: number): LeaseKey[] {
  return Array.from({ length: count }, () => ({
    uuid: randomUUID(),
    partition: PARTITION,
    attemptIndex: 0,
    leaseEpoch: 1,
  }));
}

/** Everything asked of rows that are not there: the tables stay as they are while most statements are planned. */
async function walkUnknown(database: Database): Promise<void> {
  const leases = unknownLeases(200);
  const calls = callsOn(database);
  await claimBatch(database, [1, 2], 200);
  await calls.renew(leases);
  await calls.complete(leases);
  await calls.fail(leases);
  await calls.release(leases);
  await calls.record(leases);
  await calls.report(leases);
  await calls.awaitChildren(leases, [randomUUID()]);
  await spawnExecutions(database, leases[0]!, submitCall({ kinds: ['unknown'], count: 1 }));
  await calls.cancel(leases);
  await calls.revoke(leases);
  await walkUnknownOperated(database, leases);
  await calls.lapse(leases);
  await calls.fire(leases.map((_, index) => NO_TIMER + index));
}

/** Plans the one statement that is not reached without rows. It finds none, so the function raises. */
async function settleUnknown({ client }: Recorder): Promise<void> {
  await client.query('BEGIN');
  for (const name of ['enable_seqscan', 'enable_hashjoin', 'enable_mergejoin', 'jit']) {
    await client.query(`SET LOCAL ${name} = off`);
  }
  await client.query('SET LOCAL plan_cache_mode = force_generic_plan');
  const row = `ROW(1, gen_random_uuid(), 7, 1, 1, 'n', 0, 1, 0, 'running_attempt', gen_random_uuid(), 'w', 'w-1', 1, '{}', NULL)`;
  const settled = client.query(
    `SELECT ff_settle('complete', ARRAY[${row}::ff_locked], NULL, NULL, NULL, NULL, NULL)`,
  );
  const raised = await settled.then(
    () => 'nothing',
    (error: { code?: string }) => error.code,
  );
  await client.query('ROLLBACK');
  if (raised !== 'FF002') throw new Error(`settling an unknown execution answered ${raised}`);
}

/** Two callers meet at the same new route: the second waits, and then reads what the first has interned. */
async function meetAtRoute(walker: Recorder, rival: Recorder, kind: string): Promise<void> {
  await rival.client.query('BEGIN');
  await submitBatch(rival.database, { kinds: [kind], count: 1 });
  const pid = await rival.client.query<{ pid: number }>('SELECT pg_backend_pid() AS pid');
  const second = submitBatch(walker.database, { kinds: [kind], count: 1 });
  await until(async () => {
    const waiting = await rival.client.query(
      'SELECT 1 FROM pg_locks WHERE NOT granted AND $1 = ANY (pg_blocking_pids(pid)) LIMIT 1',
      [pid.rows[0]?.pid],
    );
    return waiting.rowCount === 1;
  });
  await rival.client.query('COMMIT');
  await second;
}

/** Steps, sleeps and children: parents that wait for a child, and are woken by its end. */
async function walkPaused(database: Database, calls: Calls, take: () => Promise<LeaseKey[]>): Promise<void> {
  const strangers = unknownLeases(1);
  const parents = await take();
  await calls.record([...parents, ...strangers]);
  await calls.record(parents);
  await calls.report(parents);
  const name = `child-${randomUUID().slice(0, 8)}`;
  const call = submitCall({ kinds: [name], count: 1 });
  const [child] = await spawnExecutions(database, parents[0]!, call);
  await calls.awaitChildren([...parents, ...strangers], [child!.execution_id]);
  await calls.complete((await claimBatch(database, [child!.route_id], 1)).map(leaseOf));
  const told = await listDueTimers(database, 1_000);
  await calls.fire(told.map((timer) => timer.timerId));
  await calls.nap(await take());
  const due = await listDueTimers(database, 1_000);
  await calls.fire(due.map((timer) => timer.timerId));
  await calls.awaitChildren(await take(), [child!.execution_id]);
}

/** The life of some executions, so that every function runs every statement it has. */
async function walkKnown(database: Database, kinds: readonly [string, string], each: number): Promise<void> {
  const { routes, uuids } = await submitBatch(database, { kinds, count: 15 * each });
  await submitBatch(database, { kinds, count: each, uuids: uuids.slice(0, 1) });
  const calls = callsOn(database);
  const take = async (leaseMs?: number) => (await claimBatch(database, routes, each, leaseMs)).map(leaseOf);
  const strangers = unknownLeases(1);
  const held = await take();
  await calls.renew([...held, ...strangers]);
  await calls.complete([...held, ...strangers]);
  await calls.fail([...(await take()), ...strangers]);
  await calls.retry([...(await take()), ...strangers]);
  await calls.release([...(await take()), ...strangers]);
  const due = await listDueTimers(database, each);
  await calls.fire(due.map((timer) => timer.timerId));
  await calls.lapse(await take(NO_LEASE_MS));
  await calls.revoke([...(await take()), ...strangers]);
  await calls.exhaust(await take());
  await walkPaused(database, calls, take);
  const started = await take();
  const taken = new Set(started.map(({ uuid }) => uuid));
  const others = uuids.filter((uuid) => !taken.has(uuid)).map((uuid) => ({ uuid, partition: PARTITION }));
  await calls.cancel([...started, ...strangers, ...others]);
  // The pointers of what was cancelled are stale now, and are swept.
  await take();
}

/** Rows a function is given in the walk; with a few the tables hardly grow, so plans are still made for empty ones. */
export async function walk(walker: Recorder, rival: Recorder, each: number): Promise<void> {
  const { database, client } = walker;
  const name = `walk-${randomUUID().slice(0, 8)}`;
  await walkUnknown(database);
  await settleUnknown(walker);
  await walkKnown(database, [`${name}-a`, `${name}-b`], each);
  await walkOperated(database, client, each);
  await meetAtRoute(walker, rival, `${name}-c`);
  const executor = (text: string, params: unknown[]) => client.query(text, params);
  await submitExecutionsInside(database, executor, submitCall({ kinds: [name], count: each }), 'on');
}
