/**
 * Topics: what a wait receives, in which order, for how long something is kept, and what is repaired when a process dies
 * on the way. Lock waits are in tests/races/topics/.
 */
import { describe, expect, it, vi } from 'vitest';
import type { ExecutionId, Json } from '../../../src/index.ts';
import type { Claim, SuspendOutcome } from '../../../src/protocol/index.ts';
import { partitionOfTopic } from '../../../src/contract/ids.ts';
import { newKind, useBench, WAIT } from '../open.ts';

const bench = useBench();
const DAY_MS = 86_400_000;
let topics = 0;

const newTopic = (): string => `shipment.packed:${(topics += 1)}`;

const uuidOf = (id: ExecutionId): string => id.slice(id.lastIndexOf(':') + 1);

interface Waiting {
  key?: string;
  namespace?: string;
  timeoutMs?: number;
  mode?: 'suspend' | 'poll';
}

function suspend(claim: Claim, topic: string, waiting: Waiting = {}): Promise<SuspendOutcome> {
  const { key = '', namespace = 'default', timeoutMs, mode = 'suspend' } = waiting;
  return bench.port.suspend(claim, {
    waits: [
      {
        name: `topic:${topic}`,
        key,
        condition: { kind: 'topic', topic, namespace },
        ...(timeoutMs === undefined ? {} : { timeoutMs, onTimeout: 'resume' as const }),
      },
    ],
    mode,
  });
}

/** An execution that waits for the topic, suspended. */
async function waiter(topic: string, waiting: Waiting = {}): Promise<{ id: ExecutionId; kind: string }> {
  const kind = newKind();
  const claim = await bench.running({ kind });
  expect(await suspend(claim, topic, waiting)).toMatchObject({ outcome: 'suspended' });
  return { id: claim.executionId, kind };
}

/** What the wait has received: data, `timed_out`, or undefined while it waits. */
async function received(id: ExecutionId, key = ''): Promise<Json | undefined> {
  const steps = await bench.port.readSteps(id);
  const end = steps.find((step) => step.kind === 'wait' && step.key === key)?.end;
  if (end === undefined || end === null) return undefined;
  return end.outcome === 'timed_out' ? 'timed_out' : (end.topic?.data as Json);
}

const stateOf = async (id: ExecutionId): Promise<string> => (await bench.snapshot(id)).state;

async function untilReceived(id: ExecutionId, data: Json, key = ''): Promise<void> {
  await vi.waitFor(async () => expect(await received(id, key)).toEqual(data), WAIT);
}

/** Resumes it and waits again. */
async function waitAgain(kind: string, topic: string, waiting: Waiting): Promise<SuspendOutcome> {
  return suspend(await bench.claimOne(kind), topic, waiting);
}

describe('a publish', () => {
  it('resumes everybody who waits, of whatever partition, with what was published', async () => {
    const topic = newTopic();
    const waiters = [];
    for (let count = 0; count < 5; count += 1) waiters.push(await waiter(topic));
    const other = await waiter(newTopic());
    expect(new Set(waiters.map(({ id }) => id.slice(0, id.indexOf('}')))).size).toBeGreaterThan(1);
    const { outcome, publishedAtMs } = await bench.engine.publish(topic, { parcel: 7 });
    expect([outcome, publishedAtMs]).toEqual(['published', expect.any(Number)]);
    for (const { id } of waiters) {
      await untilReceived(id, { parcel: 7 });
      expect(await stateOf(id)).toBe('waiting');
    }
    expect(await received(other.id)).toBeUndefined();
    expect(await stateOf(other.id)).toBe('suspended');
  });

  it('is stored in the home of its topic, which namespace and name decide', async () => {
    const topic = newTopic();
    await bench.engine.publish(topic, 1, { namespace: 'shop' });
    const { rows } = await bench.database.query('SELECT partition_key FROM ff_topic WHERE topic = $1', [
      topic,
    ]);
    expect(rows).toEqual([{ partition_key: partitionOfTopic('shop', topic) }]);
  });

  it('is of its namespace', async () => {
    const topic = newTopic();
    const mine = await waiter(topic, { namespace: 'mine' });
    await bench.engine.publish(topic, 'yours', { namespace: 'yours' });
    await bench.engine.publish(topic, 'default');
    await bench.engine.publish(topic, 'mine', { namespace: 'mine' });
    await untilReceived(mine.id, 'mine');
  });

  it('is recorded for one that still runs, which finds it with its next poll', async () => {
    const topic = newTopic();
    const claim = await bench.running();
    expect(await suspend(claim, topic, { mode: 'poll' })).toEqual({ outcome: 'open' });
    await bench.engine.publish(topic, 'now');
    await untilReceived(claim.executionId, 'now');
    expect(await stateOf(claim.executionId)).toBe('active');
    expect(await suspend(claim, topic, { mode: 'poll' })).toMatchObject({
      outcome: 'already_satisfied',
      ended: [{ end: { topic: { data: 'now' } } }],
    });
  });

  it('may be nothing', async () => {
    const topic = newTopic();
    const { id } = await waiter(topic);
    await bench.engine.publish(topic, undefined);
    await untilReceived(id, null);
  });

  it('takes no longer for those who have ended: their waits are gone', async () => {
    const topic = newTopic();
    const { id } = await waiter(topic);
    await bench.engine.cancel(id, { reason: 'test' });
    const { rows } = await bench.database.query('SELECT FROM ff_topic_wait WHERE topic = $1', [topic]);
    expect(rows).toHaveLength(0);
    await bench.engine.publish(topic, 1);
    expect(await stateOf(id)).toBe('cancelled');
  });
});

describe('a wait', () => {
  it('that begins later receives the latest that is kept', async () => {
    const topic = newTopic();
    await bench.engine.publish(topic, 'old');
    await bench.engine.publish(topic, 'latest');
    const claim = await bench.running();
    expect(await suspend(claim, topic)).toMatchObject({
      outcome: 'already_satisfied',
      ended: [{ end: { topic: { data: 'latest' } } }],
    });
  });

  it('that begins when that is over receives the next one', async () => {
    const topic = newTopic();
    await bench.engine.publish(topic, 'old', { keep: '1d' });
    await bench.engine.publish(newTopic(), 'unkept', { keep: 0 });
    await bench.database.moveClock(DAY_MS);
    const { id } = await waiter(topic);
    await bench.engine.publish(topic, 'next', { keep: 0 });
    await untilReceived(id, 'next');
    const late = await waiter(topic);
    expect(await received(late.id)).toBeUndefined();
  });

  it('receives the first after it began, also when more follow before it is told', async () => {
    const topic = newTopic();
    const { id } = await waiter(topic);
    const holding = await bench.database.connect();
    try {
      await holding.query('BEGIN');
      await holding.query('SELECT FROM ff_execution WHERE execution_id = $1 FOR UPDATE', [uuidOf(id)]);
      for (const data of ['a', 'b', 'c']) await bench.engine.publish(topic, data);
      await holding.query('COMMIT');
    } finally {
      await holding.end();
    }
    await bench.reconcile();
    await untilReceived(id, 'a');
  });

  it('that is the second of a run receives only newer ones', async () => {
    const topic = newTopic();
    const { id, kind } = await waiter(topic);
    await bench.engine.publish(topic, 'first');
    await untilReceived(id, 'first');
    expect(await waitAgain(kind, topic, { key: '2' })).toMatchObject({ outcome: 'suspended' });
    expect(await received(id, '2')).toBeUndefined();
    await bench.engine.publish(topic, 'second');
    await untilReceived(id, 'second', '2');
    await bench.engine.publish(topic, 'third');
    expect(await waitAgain(kind, topic, { key: '3' })).toMatchObject({
      outcome: 'already_satisfied',
      ended: [{ end: { topic: { data: 'third' } } }],
    });
  });

  it('may be one of two for the same topic: both receive it', async () => {
    const topic = newTopic();
    const claim = await bench.running();
    const wait = (key: string) => ({
      name: `topic:${topic}`,
      key,
      condition: { kind: 'topic' as const, topic },
    });
    await bench.port.suspend(claim, { waits: [wait(''), wait('2')] });
    await bench.engine.publish(topic, 'both');
    await untilReceived(claim.executionId, 'both');
    expect(await received(claim.executionId, '2')).toBe('both');
  });

  it('times out, and later publishes are not for it', async () => {
    const topic = newTopic();
    const { id, kind } = await waiter(topic, { timeoutMs: 1_000 });
    await bench.database.moveClock(1_000);
    await bench.reconcile();
    expect(await received(id)).toBe('timed_out');
    await bench.engine.publish(topic, 'late');
    expect(await received(id)).toBe('timed_out');
    expect(await waitAgain(kind, topic, { key: '2' })).toMatchObject({ outcome: 'already_satisfied' });
  });

  it('is explained by its topic', async () => {
    const topic = newTopic();
    const { id } = await waiter(topic);
    const explanation = await bench.engine.executions.explain(id);
    expect(explanation).toMatchObject({
      holding: {
        detail: expect.stringMatching(
          `^Suspended for .*, waiting for a topic: ${topic}; see flowfabric publish\\.$`,
        ),
      },
    });
  });

  it('starts over with a replay from the start', async () => {
    const topic = newTopic();
    const { id, kind } = await waiter(topic);
    await bench.engine.publish(topic, 'kept');
    await untilReceived(id, 'kept');
    await bench.port.complete(await bench.claimOne(kind));
    await bench.engine.executions.replay(id, { reason: 'again', from: 'start' });
    expect(await waitAgain(kind, topic, {})).toMatchObject({
      outcome: 'already_satisfied',
      ended: [{ end: { topic: { data: 'kept' } } }],
    });
  });
});

describe('when a process dies', () => {
  /** Takes the telling away from the process that publishes. */
  const untold = (topic: string): Promise<unknown> =>
    bench.database.query(
      `WITH home AS (INSERT INTO ff_topic (last_seq, partition_key, namespace, topic) VALUES (0, $2, 'default', $1)
         ON CONFLICT DO NOTHING),
       made AS (INSERT INTO ff_published (publish_id, published_at_ms, keep_until_ms, partition_key, namespace, topic, payload)
         VALUES (gen_random_uuid(), ff_now_ms(), ff_now_ms() + 1000000, $2, 'default', $1, '"left"') RETURNING seq)
       SELECT seq FROM made`,
      [topic, partitionOfTopic('default', topic)],
    );

  it('after its publish, others tell whoever waits', async () => {
    const topic = newTopic();
    const { id } = await waiter(topic);
    await untold(topic);
    expect(await received(id)).toBeUndefined();
    await bench.reconcile();
    await untilReceived(id, 'left');
  });

  it('after it has registered a wait, others tell it what it has missed', async () => {
    const topic = newTopic();
    const { id } = await waiter(topic);
    await bench.engine.publish(topic, 'missed');
    await untilReceived(id, 'missed');
    // As if the wait had been registered while that was published, and nobody had looked afterwards.
    await bench.database.query(
      `WITH s AS (UPDATE ff_step SET value = '{"outcome": "pending"}' WHERE execution_id = $1)
       INSERT INTO ff_topic_wait (execution_id, after_seq, partition_key, namespace, topic, step_name, step_key)
       SELECT execution_id, 0, partition_key, 'default', $2, 'topic:' || $2, '' FROM ff_execution WHERE execution_id = $1`,
      [uuidOf(id), topic],
    );
    expect(await received(id)).toBeUndefined();
    await bench.reconcile();
    await untilReceived(id, 'missed');
  });
});

describe('upkeep', () => {
  it('forgets what was kept long enough, and its topic, but never its numbers', async () => {
    const topic = newTopic();
    await bench.engine.publish(topic, 'old', { keep: '1d' });
    await vi.waitFor(async () => {
      const { rows } = await bench.database.query('SELECT FROM ff_published WHERE NOT is_told');
      expect(rows).toHaveLength(0);
    }, WAIT);
    await bench.database.moveClock(DAY_MS);
    await bench.reconcile();
    const { rows } = await bench.database.query(
      `SELECT (SELECT count(*)::int FROM ff_topic WHERE topic = $1) AS topics,
              (SELECT count(*)::int FROM ff_published WHERE topic = $1) AS published`,
      [topic],
    );
    expect(rows).toEqual([{ topics: 0, published: 0 }]);
    const claim = await bench.running();
    expect(await suspend(claim, topic)).toMatchObject({ outcome: 'suspended' });
    await bench.engine.publish(topic, 'new');
    await untilReceived(claim.executionId, 'new');
  });

  it('keeps of a topic only the latest', async () => {
    const topic = newTopic();
    for (const data of [1, 2, 3]) await bench.engine.publish(topic, data);
    await vi.waitFor(async () => {
      const { rows } = await bench.database.query<{ payload: Json }>(
        'SELECT payload FROM ff_published WHERE topic = $1',
        [topic],
      );
      expect(rows).toEqual([{ payload: 3 }]);
    }, WAIT);
  });
});

describe('what is refused', () => {
  it.each([
    ['an empty topic', ['', 1], 'topic'],
    ['a topic that is too long', ['x'.repeat(121), 1], 'topic'],
    ['data that is too large', ['t', 'x'.repeat(65_537)], 'data'],
    ['data that is no JSON', ['t', { a: Number.NaN }], 'data.a'],
    ['an unknown option', ['t', 1, { keeps: 1 }], 'options.keeps'],
    ['a bad duration', ['t', 1, { keep: 'soon' }], 'options.keep'],
  ] as const)('%s', async (_, args, field) => {
    await expect(
      (bench.engine.publish as (...given: unknown[]) => Promise<unknown>)(...args),
    ).rejects.toMatchObject({ field });
  });

  it('a wait for a topic without a name', async () => {
    const claim = await bench.running();
    await expect(suspend(claim, '')).rejects.toMatchObject({ field: 'request.waits[0].condition.topic' });
  });
});
