/**
 * The part of the walk about topics: publishing, waiting, being told, timing out, and forgetting.
 */
import { randomUUID } from 'node:crypto';
import type { Database } from '../../src/engine/database/database.ts';
import { listDueTimers } from '../../src/engine/executions/due.sql.ts';
import type { LeaseKey } from '../../src/engine/executions/executions.sql.ts';
import { replayExecutions } from '../../src/engine/operator/verbs.sql.ts';
import { suspendExecution, type TopicOffer } from '../../src/engine/signals/signals.sql.ts';
import {
  finishTelling,
  forgetTopics,
  listMissed,
  listUntold,
  listWaiting,
  publishTopic,
  readHomes,
  readNext,
  tellTopic,
  type TopicKey,
} from '../../src/engine/topics/topics.sql.ts';
import { callsOn, claimBatch, PARTITION, submitBatch } from './workload.ts';

const FIRST = '00000000-0000-0000-0000-000000000000';

interface Terms {
  key?: string;
  timeoutMs?: number;
}

function suspend(database: Database, lease: LeaseKey, topic: TopicKey, home: TopicOffer, terms: Terms = {}) {
  const { namespace, topic: name } = topic;
  return suspendExecution(database, {
    lease,
    transition: 'suspend',
    mode: 'suspend',
    waits: [
      {
        name: `topic:${name}`,
        key: terms.key ?? '',
        condition: { kind: 'topic', namespace, topic: name, ...home },
        timeout_ms: terms.timeoutMs ?? null,
        on_timeout: 'resume',
        resume_delay_ms: 0,
        reason: 'signal',
      },
    ],
    waitpoints: [],
    maxWaitpoints: 1,
    children: null,
    needed: null,
    delayMs: null,
  });
}

export async function walkPublished(database: Database, each: number): Promise<void> {
  const kind = `published-${randomUUID().slice(0, 8)}`;
  const topic: TopicKey = { namespace: 'default', topic: kind, partition: PARTITION };
  const publish = () => publishTopic(database, topic, { id: randomUUID(), keepMs: -1, payload: '{}' });
  const { routes } = await submitBatch(database, { kinds: [kind], count: 4 * each });
  const nothing: TopicOffer = { last: 0, offer: null };
  const waiting = await claimBatch(database, routes, each);
  for (const lease of waiting) await suspend(database, lease, topic, nothing);
  const late = await claimBatch(database, routes, 1);
  await suspend(database, late[0]!, topic, nothing, { timeoutMs: -1 });
  const timers = await listDueTimers(database, 1_000);
  const calls = callsOn(database);
  await calls.fire(timers.map(({ timerId }) => timerId));
  const cancelled = await claimBatch(database, routes, each);
  for (const lease of cancelled) await suspend(database, lease, topic, nothing);
  await calls.cancel(cancelled);
  const { seq } = await publish();
  await publish();
  await readHomes(database, [topic]);
  const next = (await readNext(database, topic, seq - 1))!;
  const told = await listWaiting(database, next, 0, 1_000);
  await tellTopic(
    database,
    told.map(({ uuid }) => uuid),
    next,
  );
  for (const published of await listUntold(database, 1_000)) await finishTelling(database, published);
  const again = await claimBatch(database, routes, 1);
  const home = (await readHomes(database, [topic]))[0]!;
  const offer = { seq: home.last, publishedAtMs: 1, data: null };
  await suspend(database, again[0]!, topic, { last: home.last, offer }, { key: '2' });
  await listMissed(database, FIRST, 1_000);
  await calls.complete(again);
  const replay = { fromStart: true, reason: 'why', actor: 'me', defaultMaxReplays: 10 };
  const keys = again.map(({ uuid, partition }) => ({ uuid, partition, leaseEpoch: null }));
  await replayExecutions(database, keys, replay);
  await forgetTopics(database, 1_000);
}
