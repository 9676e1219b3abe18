/**
 * The part of the walk about families and generations: children that end and begin again with their parent, and
 * executions begun anew from a step, through the store's own calls.
 */
import { randomUUID } from 'node:crypto';
import type { Database } from '../../src/engine/database/database.ts';
import { listDueTimers } from '../../src/engine/executions/due.sql.ts';
import type { LeaseKey } from '../../src/engine/executions/executions.sql.ts';
import { spawnExecutions } from '../../src/engine/executions/submitting/submits.sql.ts';
import { listKeptChildren, settleChildren, settleFamily } from '../../src/engine/families/families.sql.ts';
import { replayExecutions, type ReplayCall } from '../../src/engine/operator/verbs.sql.ts';
import { recordOrders } from '../../src/engine/steps/end-order.sql.ts';
import { recordSteps } from '../../src/engine/steps/steps.sql.ts';
import type { Recorder } from './plan-recorder.ts';
import { callsOn, claimBatch, makeKnown, submitBatch, submitCall } from './workload.ts';

const REPLAY: ReplayCall = { fromStart: false, reason: 'why', actor: 'me', defaultMaxReplays: 10 };

/** Does the work of all families that are due, so that no later part meets their timers. */
async function settleFamilies(database: Database): Promise<void> {
  for (;;) {
    const due = (await listDueTimers(database, 1_000)).filter(({ isFamily }) => isFamily);
    if (due.length === 0) return;
    for (const { timerId } of due) while ((await settleFamily(database, timerId)).outcome === 'more');
  }
}

async function spawn(database: Database, parent: LeaseKey, count: number): Promise<string[]> {
  const kinds = [`related-${randomUUID().slice(0, 8)}`];
  const call = await makeKnown(database, submitCall({ kinds, count }));
  const marked = await spawnExecutions(database, parent, call);
  const isMarked = marked[0]?.outcome === 'marked';
  const children = isMarked ? await spawnExecutions(database, parent, call) : marked;
  return children.map(({ uuid }) => uuid);
}

async function replay(database: Database, parent: LeaseKey, call: Partial<ReplayCall> = {}): Promise<void> {
  const keys = [{ ...parent, leaseEpoch: null }];
  const [answer] = await replayExecutions(database, keys, { ...REPLAY, ...call });
  if (answer?.outcome !== 'replayed') throw new Error(`the walk was not replayed: ${answer?.outcome}`);
}

/** Parts of one child, with a child and then the parent held by a rival, and a replay in the end. */
async function walkParts(walker: Recorder, rival: Recorder, routes: number[], each: number): Promise<void> {
  const { database, client } = walker;
  const [parent] = await claimBatch(database, routes, 1);
  const children = await spawn(database, parent!, each + 2);
  await callsOn(database).complete([parent!]);
  const timer = (await listDueTimers(database, 1_000)).find(({ isFamily }) => isFamily);
  const part = (limit: number) =>
    client.query('SELECT * FROM ff_settle_family($1, $2, 5000, 0, 0)', [timer!.timerId, limit]);
  await rival.client.query('BEGIN');
  await rival.client.query('SELECT FROM ff_execution WHERE execution_id = $1 FOR UPDATE', [parent!.uuid]);
  await part(1);
  await settleChildren(database, parent!, children);
  await rival.client.query('ROLLBACK');
  await rival.client.query('BEGIN');
  await rival.client.query('SELECT FROM ff_execution WHERE execution_id = $1 FOR UPDATE', [children[0]]);
  await part(1);
  await part(1_000);
  await rival.client.query('ROLLBACK');
  await settleFamilies(database);
  await part(1);
  for (const after of [null, children[0]])
    await client.query('SELECT * FROM ff_descendants($1, $2, 1000)', [parent!.uuid, after]);
  await replay(database, parent!);
  await settleChildren(database, parent!, children.slice(0, 1));
  await settleFamilies(database);
}

/** Steps, an order of ends and a wait, of which the later half is done again. */
async function walkGenerations(
  database: Database,
  client: Recorder['client'],
  lease: LeaseKey,
): Promise<void> {
  for (const name of ['first', 'second']) {
    await spawn(database, lease, 1);
    const step = { kind: 'step' as const, name, key: '', sleepMs: null, durationMs: null, value: '1' };
    await recordSteps(database, [{ ...lease, ...step }]);
    await client.query(
      `INSERT INTO ff_waitpoint (waitpoint_id, token_id, execution_id, partition_key, name, created_at_ms, step_name, step_key)
       VALUES (gen_random_uuid(), gen_random_uuid(), $1, $2, $3, ff_now_ms(), $3, '')`,
      [lease.uuid, lease.partition, name],
    );
  }
  await recordOrders(database, [{ ...lease, place: 0, ends: ['["step","first"]', '["step","second"]'] }]);
  await callsOn(database).complete([lease]);
  await settleFamilies(database);
  const keys = [{ ...lease, leaseEpoch: null }];
  await replayExecutions(database, keys, { ...REPLAY, fromStep: { name: 'nobody' } });
  await replay(database, lease, { fromStep: { name: 'second' } });
  await listKeptChildren(database, lease);
  await settleFamilies(database);
}

export async function walkRelated(walker: Recorder, rival: Recorder, each: number): Promise<void> {
  const { database, client } = walker;
  await settleFamilies(database);
  const kind = `related-${randomUUID().slice(0, 8)}`;
  const { routes } = await submitBatch(database, { kinds: [kind], count: 2 });
  await walkParts(walker, rival, routes, each);
  const leases = await claimBatch(database, routes, 2);
  await walkGenerations(database, client, leases.at(-1)!);
  // Those that are left end with their parents, and nothing is due that later parts would meet.
  await callsOn(database).complete(await claimBatch(database, routes, 2));
  await callsOn(database).complete(leases);
  await settleFamilies(database);
}
