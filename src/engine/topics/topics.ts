/**
 * Publishing, and waiting for what is published. A publish commits in the home of its topic and is then told to whoever
 * waits (telling.ts); a wait is registered in the partition of its execution, and then the home is read once more. So of
 * a wait and a publish that happen at the same time, one sees the other, and no transaction is about two partitions.
 */
import { randomUUID } from 'node:crypto';
import { parseExecutionId, partitionOfTopic } from '../../contract/ids.ts';
import { LIMITS } from '../../contract/limits.ts';
import type { LeaseRef } from '../../contract/protocol.ts';
import { duration, msOf } from '../../contract/shape/duration.ts';
import { bytesOver, string } from '../../contract/shape/kinds.ts';
import { refuse, shape } from '../../contract/shape/shape.ts';
import type { SuspendOutcome, SuspendRequest, WaitCondition } from '../../contract/signals.ts';
import type { PublishOptions, PublishResult, ReceivedTopic, TopicCondition } from '../../contract/topics.ts';
import { encodeJson } from '../../model/json.ts';
import { announce } from '../kit/announce.ts';
import type { EngineContext } from '../kit/context.ts';
import { namespaceName } from '../kit/kinds.ts';
import { publishTopic, readHomes, readNext, tellTopic, type TopicKey } from './topics.sql.ts';

const DEFAULT_KEEP_MS = 7 * 86_400_000;

const topicName = string(LIMITS.topicBytes);
const publishOptions = shape<PublishOptions>({
  namespace: namespaceName.optional(),
  keep: duration(LIMITS.delayMs).optional(),
});

export async function publish(
  context: EngineContext,
  topic: string,
  data: unknown,
  options: PublishOptions = {},
): Promise<PublishResult> {
  topicName.check(topic, 'topic');
  const { namespace, keep } = publishOptions.check(options, 'options');
  const payload = encodeJson(data, 'data') ?? 'null';
  if (bytesOver(payload, LIMITS.publishedBytes) !== undefined)
    refuse('data', `has more than ${LIMITS.publishedBytes} bytes as JSON`, 'payload_too_large');
  const { publishedAtMs } = await publishTopic(context.database, keyOf({ topic, namespace }), {
    id: randomUUID(),
    keepMs: msOf(keep ?? DEFAULT_KEEP_MS),
    payload,
  });
  announce(context, [{ outcome: 'published' }]);
  return { outcome: 'published', publishedAtMs };
}

function keyOf({
  topic,
  namespace = 'default',
}: {
  topic: string;
  namespace?: string | undefined;
}): TopicKey {
  return { topic, namespace, partition: partitionOfTopic(namespace, topic) };
}

/** What the home of a topic had when it was read. */
export interface Offer {
  last: number;
  offer: ReceivedTopic | null;
}

type Suspend = (
  context: EngineContext,
  lease: LeaseRef,
  request: SuspendRequest,
  offers?: ReadonlyMap<WaitCondition, Offer>,
) => Promise<SuspendOutcome>;

/** Suspends; waits for topics are offered what their homes have, and what is published meanwhile is not missed. */
export async function suspendOnTopics(
  context: EngineContext,
  lease: LeaseRef,
  request: SuspendRequest,
  suspend: Suspend,
): Promise<SuspendOutcome> {
  const conditions = topicsOf(request);
  if (conditions.length === 0) return suspend(context, lease, request);
  const offers = await readOffers(context, conditions);
  const outcome = await suspend(context, lease, request, offers);
  if (outcome.outcome === 'suspended' || outcome.outcome === 'open')
    await tellMissed(context, lease.executionId, offers);
  return outcome;
}

/** Whatever is not well-formed is refused with the request. */
function topicsOf(request: SuspendRequest): TopicCondition[] {
  if (!Array.isArray(request?.waits)) return [];
  return request.waits.slice(0, LIMITS.waits).flatMap((wait) => {
    const condition: WaitCondition | undefined = wait?.condition;
    if (condition?.kind !== 'topic') return [];
    return isTopic(condition.topic) && isNamespace(condition.namespace ?? 'default') ? [condition] : [];
  });
}

const isTopic = (value: unknown): boolean => topicName.faultOf(value) === undefined;
const isNamespace = (value: unknown): boolean => namespaceName.faultOf(value) === undefined;

async function readOffers(
  { database }: EngineContext,
  conditions: readonly TopicCondition[],
): Promise<Map<TopicCondition, Offer>> {
  const homes = await readHomes(database, conditions.map(keyOf));
  const byPlace = new Map(homes.map(({ place, last, offer }) => [place, { last, offer }]));
  return new Map(
    conditions.map((condition, index) => [condition, byPlace.get(index + 1) ?? { last: 0, offer: null }]),
  );
}

/** What was published between reading the homes and registering the waits: whoever published did not see them. */
async function tellMissed(
  context: EngineContext,
  executionId: string,
  offers: ReadonlyMap<TopicCondition, Offer>,
): Promise<void> {
  for (const [condition, { last }] of offers) {
    const next = await readNext(context.database, keyOf(condition), last);
    if (next === undefined) continue;
    announce(context, await tellTopic(context.database, [parseExecutionId(executionId).uuid], next));
  }
}
