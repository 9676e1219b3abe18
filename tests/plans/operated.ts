/**
 * The part of the walk about operators: keys, limits, lanes, replays, tags and retention, through the store's own
 * calls.
 */
import { randomUUID } from 'node:crypto';
import type { Database } from '../../src/engine/database/database.ts';
import type { ExecutionKey, ExpectedKey } from '../../src/engine/executions/executions.sql.ts';
import { cancelExecutions } from '../../src/engine/executions/taking.sql.ts';
import { findOpen } from '../../src/engine/operator/settled.sql.ts';
import { changePriorities, replayExecutions, setTags } from '../../src/engine/operator/verbs.sql.ts';
import { listDueTimers, sweepGrants } from '../../src/engine/executions/due.sql.ts';
import { forgetExecutions, forgetKeys } from '../../src/engine/upkeep/retention.sql.ts';
import { readKey } from '../../src/engine/executions/keys.sql.ts';
import { sweepQueue, sweepTimers } from '../../src/engine/upkeep/sweeping.sql.ts';
import type { Recorder } from './plan-recorder.ts';
import { callsOn, claimBatch, PARTITION, RETRIES, submitBatch } from './workload.ts';

interface OperatorCalls {
  /** Only unclaimed ones. */
  cancelAsListed(keys: readonly ExecutionKey[]): Promise<unknown[]>;
  replay(keys: readonly ExecutionKey[], from: 'failed_step' | 'start'): Promise<unknown[]>;
  prioritise(keys: readonly ExecutionKey[], priority: number): Promise<unknown[]>;
  label(keys: readonly ExecutionKey[], value: string): Promise<unknown[]>;
  forget(keys: readonly ExecutionKey[]): Promise<unknown[]>;
}

export function operatorCallsOn(database: Database): OperatorCalls {
  return {
    cancelAsListed: (keys) =>
      cancelExecutions(
        database,
        keys.map((key) => ({ ...key, leaseEpoch: 0 })),
        'why',
        'me',
      ),
    replay: (keys, from) =>
      replayExecutions(database, keys.map(whatever), {
        fromStart: from === 'start',
        reason: 'why',
        actor: 'me',
        defaultMaxReplays: 10,
      }),
    prioritise: (keys, priority) => changePriorities(database, keys.map(whatever), priority, 'me'),
    label: (keys, value) => {
      const call = { set: JSON.stringify({ label: value }), removed: ['team'], maxTags: 64, actor: 'me' };
      return Promise.all(keys.slice(0, 1).map((key) => setTags(database, key, call)));
    },
    forget: (keys) =>
      forgetExecutions(
        database,
        keys.map((key) => ({ ...key, hadSetback: false })),
        -1,
        0,
      ),
  };
}

/** Whatever its current epoch. */
function whatever(key: ExecutionKey): ExpectedKey {
  return { ...key, leaseEpoch: null };
}

/** Every call for rows that do not exist. */
export async function walkUnknownOperated(database: Database, keys: readonly ExecutionKey[]): Promise<void> {
  const calls = operatorCallsOn(database);
  await calls.replay(keys, 'failed_step');
  await calls.prioritise(keys, 3);
  await calls.label(keys, 'none');
  await calls.forget(keys);
}

/** Submits by key: to free ones, to those of open executions, and to those of ended ones, which are then forgotten. */
async function walkKeyed(database: Database, kind: string, each: number): Promise<void> {
  const calls = { ...callsOn(database), ...operatorCallsOn(database) };
  const ownKeys = `own-${randomUUID().slice(0, 8)}`;
  const batch = { kinds: [kind], count: each, ownKeys };
  const first = await submitBatch(database, batch);
  await submitBatch(database, { ...batch, keys: `${ownKeys}-a` });
  await submitBatch(database, { ...batch, keys: `${ownKeys}-r`, ifExists: 'refuse' });
  const last = await submitBatch(database, { ...batch, ifExists: 'replace' });
  const [gone, held] = [first, last].map(({ uuids }) =>
    uuids.map((uuid) => ({ uuid, partition: PARTITION })),
  );
  await calls.replay(gone!, 'failed_step');
  await calls.cancel(held!);
  await calls.replay(held!, 'failed_step');
  await calls.cancel(held!);
  await readKey(database, { namespace: 'default', key: `${ownKeys}-0`, partition: PARTITION });
  await submitBatch(database, batch);
  await calls.forget([...gone!, ...held!]);
}

/** What operators do: keys, limits, lanes, replays, tags and retention. */
export async function walkOperated(
  database: Database,
  client: Recorder['client'],
  each: number,
): Promise<void> {
  const calls = { ...callsOn(database), ...operatorCallsOn(database) };
  const kind = `operated-${randomUUID().slice(0, 8)}`;
  const keys = `key-${randomUUID().slice(0, 8)}`;
  const { routes, uuids } = await submitBatch(database, { kinds: [kind], count: each, keys });
  const own = uuids.map((uuid) => ({ uuid, partition: PARTITION }));
  await calls.prioritise(own, 5);
  await calls.prioritise(own, 6);
  await calls.prioritise(own, 5);
  // Room for all: then both pointers of an execution are found.
  const held = await claimBatch(database, routes, each * 3);
  await client.query('UPDATE ff_grant SET look_at_ms = 0');
  await sweepGrants(database, { lookAtMs: 0, claimNo: 0 }, 1_000);
  await calls.complete(held);
  await submitBatch(database, { kinds: [kind], count: each, keys });
  await calls.replay(own, 'failed_step');
  await calls.complete(await claimBatch(database, routes, each));
  await calls.replay(own, 'start');
  await calls.label(own, 'one');
  await findOpen(database, { tag: ['label', 'one'], tags: { label: 'one' }, namespace: null }, each);
  await client.query(`UPDATE ff_lane SET paused = true WHERE lane = 'default'`);
  await claimBatch(database, routes, 1);
  await client.query(`UPDATE ff_lane SET paused = false WHERE lane = 'default'`);
  await sweepQueue(database, { routeId: 0, rank: -2_147_483_648, seq: 0 }, 1_000);
  await sweepTimers(database, 0, 1_000);
  await forgetKeys(database, 1_000, 0);
  await walkKeyed(database, kind, each);
  await calls.cancelAsListed(own);
  await calls.cancel(own);
  await calls.forget(own);
  // Limits that have passed when they are set: there is no clock to move here.
  const late = { timeout_policy: { execution_deadline_ms: -1 } };
  await submitBatch(database, { kinds: [kind], count: each, policy: late });
  const slow = { ...RETRIES, timeout_policy: { attempt_timeout_ms: -1 } };
  const limited = await submitBatch(database, { kinds: [`${kind}-slow`], count: each, policy: slow });
  await claimBatch(database, limited.routes, each);
  const due = await listDueTimers(database, 1_000);
  await calls.fire(due.map((timer) => timer.timerId));
}
