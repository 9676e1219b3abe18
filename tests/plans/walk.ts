/**
 * One walk that makes every function run each of its statements.
 */
import { randomUUID } from 'node:crypto';
import type { SqlExecutor } from '../../src/contract/transactions.ts';
import type { Database } from '../../src/engine/database/database.ts';
import type { LeaseKey } from '../../src/engine/executions/executions.sql.ts';
import {
  spawnExecutions,
  submitExecutionsInside,
} from '../../src/engine/executions/submitting/submits.sql.ts';
import { readHolders } from '../../src/engine/database/held.ts';
import { listDueTimers } from '../../src/engine/executions/due.sql.ts';
import { recordStepsInside } from '../../src/engine/steps/steps.sql.ts';
import { walkFollowed } from './followed.ts';
import { walkJoined } from './joined.ts';
import { walkOperated, walkUnknownOperated } from './operated.ts';
import { walkPublished } from './published.ts';
import type { Recorder } from './plan-recorder.ts';
import { walkAskedEvents } from './asked-events.ts';
import { walkAlone } from './alone.ts';
import { walkMailed } from './mailed.ts';
import { walkRelated } from './related.ts';
import { walkRouted } from './routed.ts';
import { walkTold } from './told.ts';
import {
  callsOn,
  claimBatch,
  exchange,
  makeKnown,
  NO_LEASE_MS,
  PARTITION,
  submitBatch,
  submitCall,
  unknownLeases,
  until,
  type Calls,
} from './workload.ts';
import { walkWritten } from './written.ts';

/** Far beyond any timer id. */
const NO_TIMER = 1_000_000_000;

/** Every call for rows that do not exist: the tables stay unchanged while most statements are planned. */
async function walkUnknown(database: Database): Promise<void> {
  const leases = unknownLeases(200);
  const calls = callsOn(database);
  await claimBatch(database, [1, 2], 200);
  await exchange(database, leases, [1, 2]);
  await calls.renew(leases);
  await calls.complete(leases);
  await calls.fail(leases);
  await calls.release(leases);
  await calls.record(leases);
  await calls.order(leases);
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
  const row = `ROW(1, gen_random_uuid(), 7, 1, 1, 'n', 0, 1, 0, 'running_attempt', 1, 'w', 'w-1', 1, '{}', NULL, NULL, false, NULL, 0)`;
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

/** Two sessions intern the same new route: the second waits, and then reads what the first has interned. */
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

/** Steps, sleeps and children: parents wait for a child and are woken by its end. */
async function walkPaused(database: Database, calls: Calls, take: () => Promise<LeaseKey[]>): Promise<void> {
  const strangers = unknownLeases(1);
  const parents = await take();
  await calls.record([...parents, ...strangers]);
  await calls.record(parents);
  await calls.order([...parents, ...strangers]);
  await calls.report(parents);
  const name = `child-${randomUUID().slice(0, 8)}`;
  const call = await makeKnown(database, submitCall({ kinds: [name], count: 1 }));
  // The first marks the parent.
  await spawnExecutions(database, parents[0]!, call);
  const [child] = await spawnExecutions(database, parents[0]!, call);
  await calls.awaitChildren([...parents, ...strangers], [child!.uuid]);
  await calls.complete(await claimBatch(database, [child!.routeId], 1));
  const told = await listDueTimers(database, 1_000);
  await calls.fire(told.map((timer) => timer.timerId));
  await calls.nap(await take());
  const due = await listDueTimers(database, 1_000);
  await calls.fire(due.map((timer) => timer.timerId));
  await calls.awaitChildren(await take(), [child!.uuid]);
}

/** The life of some executions, so that every function runs each of its statements. */
async function walkKnown(database: Database, kinds: readonly [string, string], each: number): Promise<void> {
  const { routes, uuids } = await submitBatch(database, { kinds, count: 17 * each });
  await submitBatch(database, { kinds, count: each, uuids: uuids.slice(0, 1) });
  const calls = callsOn(database);
  const take = async (leaseMs?: number) => await claimBatch(database, routes, each, leaseMs);
  const strangers = unknownLeases(1);
  const held = await take();
  await calls.renew([...held, ...strangers]);
  await calls.complete([...held, ...strangers]);
  await calls.complete(await exchange(database, await take(), routes));
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
  // The pointers of the cancelled executions are stale now, and are swept.
  await take();
}

/** Rows per function call in the walk; with a few the tables hardly grow, so plans are still made for empty ones. */
export async function walk(walker: Recorder, rival: Recorder, each: number): Promise<void> {
  const { database, client } = walker;
  const name = `walk-${randomUUID().slice(0, 8)}`;
  await walkUnknown(database);
  await settleUnknown(walker);
  await walkKnown(database, [`${name}-a`, `${name}-b`], each);
  await walkRelated(walker, rival, each);
  await walkOperated(database, client, each);
  await walkAskedEvents(database, each);
  await walkTold(database, client);
  await walkMailed(database, client);
  await walkPublished(database, each);
  await walkWritten(database);
  await walkJoined(database, client);
  await walkFollowed(database, client, rival);
  await walkRouted(database, client);
  await walkAlone(database);
  await meetAtRoute(walker, rival, `${name}-c`);
  const call = await makeKnown(database, submitCall({ kinds: [name], count: each }));
  await client.query('BEGIN');
  await submitExecutionsInside(database, executorOn(walker), call, 'on');
  await client.query('COMMIT');
  await walkHeld(walker, rival, `${name}-d`);
}

function executorOn({ client }: Recorder): SqlExecutor {
  return (text, params) => client.query(text, params);
}

/** A lease that a rival has locked, and then both. */
async function walkHeld(walker: Recorder, rival: Recorder, kind: string): Promise<void> {
  const { database, client } = walker;
  const { routes } = await submitBatch(database, { kinds: [kind], count: 1 });
  const lease = (await claimBatch(database, routes, 1))[0]!;
  await rival.client.query('BEGIN');
  await rival.client.query('SELECT FROM ff_execution WHERE execution_id = $1 FOR KEY SHARE', [lease.uuid]);
  await readHolders(database, [lease.uuid]);
  await client.query('BEGIN');
  const step = {
    ...lease,
    kind: 'step',
    name: 'a',
    key: '',
    sleepMs: null,
    durationMs: null,
    value: null,
  } as const;
  await recordStepsInside(database, executorOn(walker), [step]);
  await readHolders(database, [lease.uuid]);
  await client.query('COMMIT');
  await rival.client.query('ROLLBACK');
}
