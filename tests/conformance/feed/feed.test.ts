/**
 * Subscriptions as users see them: where they start, how they end, what they cost, and that neither a broken connection
 * nor an unknown row makes them skip an event. The events themselves are in events.test.ts.
 */
import { randomUUID } from 'node:crypto';
import { getEventListeners } from 'node:events';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import type { Connection } from '../../../src/connect/connection.ts';
import { decodeCursor, encodeCursor, LIMITS, type FeedEvent, type TagEvent } from '../../../src/index.ts';
import { openEngine } from '../../../src/engine/open.ts';
import { startFaultProxy } from '../../../src/testing/fault-proxy.ts';
import {
  consecutive,
  countingPool,
  endOne,
  plantRows,
  plantWorkers,
  positionsOf,
  take,
} from './following.ts';
import { newKind, useBench, WAIT } from '../open.ts';
import { patiently } from '../../setup/patience.ts';

const bench = useBench();
const READ = 'ff_read_events';
const LOOK = 'ff_sequence';
/** Whatever waits for nothing settles at once; anything slower has waited for a timeout. */
const SOON = { timeout: patiently(5_000), interval: 10 };
const OVER = { done: true, value: undefined };

const bytesOf = (cursor: string): Uint8Array => Uint8Array.from(Buffer.from(cursor, 'base64url'));
const idOf = (event: FeedEvent): string => ('executionId' in event ? event.executionId : '');

async function endSome(kind: string, count: number): Promise<string[]> {
  const ids: string[] = [];
  for (let round = 0; round < count; round += 1) ids.push(await endOne(bench, kind));
  return ids;
}

describe('a subscription starts', () => {
  it('from now, with what is committed after the call', async () => {
    const kind = newKind();
    await endSome(kind, 2);
    for (const from of [undefined, 'now', '', new Uint8Array()]) {
      const subscription = await bench.engine.events.subscribe(from === undefined ? {} : { from });
      const id = await endOne(bench, kind);
      expect((await take(subscription, 1)).map(idOf)).toEqual([id]);
      await subscription.close();
    }
  });

  it('from the beginning, with the oldest event', async () => {
    const kind = newKind();
    const ids = await endSome(kind, 3);
    const subscription = await bench.engine.events.subscribe({ from: 'beginning', filter: { kind } });
    expect((await take(subscription, 3)).map(idOf)).toEqual(ids);
    await subscription.close();
    const all = await bench.engine.events.subscribe({ from: 'beginning' });
    expect((await take(all, 1))[0]!.position).toBe(1n);
    await all.close();
  });

  it('from a cursor, as a string or bytes, strictly after it', async () => {
    const kind = newKind();
    const start = await bench.engine.events.subscribeCompletions({ filter: { kind } });
    const ids = await endSome(kind, 3);
    const [first] = await take(start, 3);
    await start.close();
    for (const from of [first!.cursor, bytesOf(first!.cursor)]) {
      const later = await bench.engine.events.subscribeCompletions({ from, filter: { kind } });
      expect((await take(later, 2)).map(idOf)).toEqual(ids.slice(1));
      await later.close();
    }
  });

  it('not beyond the last event', async () => {
    const now = await bench.engine.events.subscribe();
    await now.close();
    const from = encodeCursor(decodeCursor(now.cursor)! + 1n);
    await expect(bench.engine.events.subscribe({ from })).rejects.toMatchObject({
      code: 'cursor_ahead',
      field: 'from',
    });
  });
});

describe('the cursor of a subscription', () => {
  it('passes events the filter drops, so that a returning reader does not read them again', async () => {
    const kind = newKind();
    const subscription = await bench.engine.events.subscribe({ filter: { kind } });
    const before = decodeCursor(subscription.cursor)!;
    await plantWorkers(bench.database, 5);
    const parked = subscription.next();
    await vi.waitFor(() => expect(decodeCursor(subscription.cursor)).toBe(before + 5n), WAIT);
    const id = await endOne(bench, kind);
    expect(await parked).toMatchObject({ value: { executionId: id, position: before + 6n } });
    expect(decodeCursor(subscription.cursor)).toBe(before + 6n);
    await subscription.close();
    expect(decodeCursor(subscription.cursor)).toBe(before + 6n);
  });

  it('is after the event that was handed over, not after the buffered ones', async () => {
    const subscription = await bench.engine.events.subscribe();
    await plantWorkers(bench.database, 3);
    const [first] = await take(subscription, 1);
    expect(subscription.cursor).toBe(first!.cursor);
    await subscription.close();
    const later = await bench.engine.events.subscribe({ from: subscription.cursor });
    expect(positionsOf(await take(later, 2))).toEqual(consecutive(first!.position + 1n, 2));
    await later.close();
  });
});

describe('a subscription ends', () => {
  /** An engine without a listening connection whose statements are counted. */
  async function counted(url = bench.database.url) {
    const counting = countingPool(url);
    const { engine } = await openEngine({ pool: counting.pool });
    onTestFinished(async () => {
      await engine.close();
      await counting.end();
    });
    return { engine, ...counting };
  }

  it('when its reader leaves the loop: nothing listens, polls or reads for it any more', async () => {
    const { engine, count } = await counted();
    const { signal } = new AbortController();
    const subscription = await engine.events.subscribe({ signal });
    await plantWorkers(bench.database, 1);
    for await (const event of subscription) {
      if (event.type === 'lost') break;
    }
    expect(getEventListeners(signal, 'abort')).toEqual([]);
    expect(await subscription.next()).toEqual(OVER);
    const [looks, reads] = [count(LOOK), count(READ)];
    // Another subscription of the same feed receives events, one after the other.
    const other = await bench.engine.events.subscribe();
    for (let round = 0; round < 10; round += 1) {
      await engine.lanes.pause(newKind());
      await take(other, 1);
    }
    await other.close();
    // One poll may have been scheduled before, and the next page already read.
    expect(count(LOOK) - looks).toBeLessThanOrEqual(1);
    expect(count(READ) - reads).toBeLessThanOrEqual(1);
  });

  it.each(['close', 'return', 'signal', 'dispose'] as const)(
    'by %s, while its reader is parked',
    async (how) => {
      const aborting = new AbortController();
      const { signal } = aborting;
      const subscription = await bench.engine.events.subscribe({ signal });
      const parked = [subscription.next(), subscription.next()];
      if (how === 'close') await subscription.close();
      if (how === 'return') expect(await subscription.return!()).toEqual(OVER);
      if (how === 'signal') aborting.abort();
      if (how === 'dispose') await subscription[Symbol.asyncDispose]();
      expect(await Promise.all(parked)).toEqual([OVER, OVER]);
      expect(await subscription.next()).toEqual(OVER);
      expect(getEventListeners(signal, 'abort')).toEqual([]);
    },
  );

  it('before it starts, when its AbortSignal is already aborted', async () => {
    const subscription = await bench.engine.events.subscribe({
      from: 'beginning',
      signal: AbortSignal.abort(),
    });
    expect(await subscription.next()).toEqual(OVER);
  });

  it.each(['waits', 'is about to read'] as const)('with its engine, while its reader %s', async (how) => {
    const engine = await bench.another({ listen: 'off' });
    const subscription = await engine.events.subscribe({ filter: { kind: newKind() } });
    const { cursor } = subscription;
    const ended = settled(subscription.next());
    if (how === 'waits') {
      await plantWorkers(bench.database, 1);
      await vi.waitFor(() => expect(subscription.cursor).not.toBe(cursor), WAIT);
    }
    await engine.close();
    await vi.waitFor(() => expect(ended.value).toEqual(OVER), SOON);
    await expect(engine.events.subscribe()).rejects.toMatchObject({ code: 'closed' });
  });

  it.each(['close', 'signal'] as const)('by %s, even while the database does not respond', async (how) => {
    const proxy = await startFaultProxy({ targetPort: Number(new URL(bench.database.url).port) });
    const { engine, count } = await counted(proxy.url(bench.database.url));
    onTestFinished(() => proxy.close());
    onTestFinished(() => proxy.resume());
    const aborting = new AbortController();
    const subscription = await engine.events.subscribe({ signal: aborting.signal });
    proxy.stall();
    const ended = settled(subscription.next());
    await vi.waitFor(() => expect(count(READ)).toBe(1), WAIT);
    if (how === 'close') void subscription.close();
    else aborting.abort();
    await vi.waitFor(() => expect(ended.value).toEqual(OVER), SOON);
  });

  /** The value of a promise, once it has one. */
  function settled<Value>(promise: Promise<Value>): { value?: Value } {
    const answer: { value?: Value } = {};
    void promise.then((value) => (answer.value = value));
    return answer;
  }
});

describe('reading', () => {
  it('twice concurrently returns two events, in order', async () => {
    const subscription = await bench.engine.events.subscribe();
    const both = [subscription.next(), subscription.next()];
    await plantWorkers(bench.database, 2);
    const [first, second] = await Promise.all(both);
    const position = (first!.value as FeedEvent).position;
    expect(second).toMatchObject({ value: { position: position + 1n } });
    await subscription.close();
  });

  it('yields the event unchanged, whatever another reader does to its copy', async () => {
    const both = await Promise.all([bench.engine.events.subscribe(), bench.engine.events.subscribe()]);
    const parked = both.map((subscription) => take(subscription, 1));
    const id = await bench.submit({ tags: { team: 'a' } });
    await bench.engine.executions.setTags(id, { set: { size: 'big' }, remove: ['team'] });
    const [[mine], [other]] = (await Promise.all(parked)) as [TagEvent[], TagEvent[]];
    const before = structuredClone(other);
    for (const part of [mine!, mine!.tags, mine!.set, mine!.removed]) {
      for (const key of [...Object.keys(part), 'new']) Reflect.set(part, key, 'changed');
    }
    expect(other).toEqual(before);
    await Promise.all(both.map((subscription) => subscription.close()));
  });

  it('slowly buffers two pages and leaves the rest in the database', async () => {
    const counting = countingPool(bench.database.url);
    const { engine } = await openEngine({ pool: counting.pool });
    const { cursor: from } = await bench.engine.events.subscribe();
    await plantWorkers(bench.database, 5 * LIMITS.eventPage);
    const subscription = await engine.events.subscribe({ from });
    expect(counting.count(READ)).toBe(0);
    const [first] = await take(subscription, 1);
    await take(subscription, LIMITS.eventPage - 1);
    expect(counting.count(READ)).toBe(2);
    const rest = await take(subscription, 4 * LIMITS.eventPage);
    expect(rest.at(-1)!.position).toBe(first!.position + BigInt(5 * LIMITS.eventPage - 1));
    await subscription.close();
    await engine.close();
    await counting.end();
  });

  it('from far behind yields every event once, in order', async () => {
    const from = (await bench.engine.events.subscribe()).cursor;
    for (let round = 0; round < 4; round += 1) await plantWorkers(bench.database, 500);
    const subscription = await bench.engine.events.subscribe({ from });
    const events = await take(subscription, 2_000);
    expect(positionsOf(events)).toEqual(consecutive(decodeCursor(from)! + 1n, 2_000));
    await subscription.close();
  });

  it('by a thousand readers in one process costs one statement for all', async () => {
    const counting = countingPool(bench.database.url, 8);
    const { engine } = await openEngine({ pool: counting.pool });
    const open = Array.from({ length: 1_000 }, () => engine.events.subscribe());
    const subscriptions = await Promise.all(open);
    const parked = subscriptions.map((subscription) => take(subscription, 3));
    const names = await plantWorkers(bench.database, 3);
    for (const events of await Promise.all(parked)) {
      expect(events.map((event) => ('workerInstanceId' in event ? event.workerInstanceId : ''))).toEqual(
        names,
      );
    }
    expect(counting.count(READ)).toBeLessThanOrEqual(10);
    await engine.close();
    await counting.end();
  });

  it.each([
    ['without a listening connection', { listen: 'off' as const }],
    ['through a single connection', { poolSize: 1 }],
  ])('works %s', async (_, options) => {
    const engine = await bench.another(options);
    const several = await Promise.all([1, 2, 3].map(() => engine.events.subscribe()));
    const parked = several.map((subscription) => take(subscription, 2));
    const kind = newKind();
    const ids = [await endOne(bench, kind), await endOne(bench, kind)];
    for (const events of await Promise.all(parked)) expect(events.map(idOf)).toEqual(ids);
    await engine.close();
  });
});

describe('a connection that breaks', () => {
  it('is reported once, with the cursor, and no event is lost or repeated', async () => {
    const proxy = await startFaultProxy({ targetPort: Number(new URL(bench.database.url).port) });
    const engine: Connection = await bench.another({
      databaseUrl: proxy.url(bench.database.url),
      listen: 'on',
    });
    const subscription = await engine.events.subscribe();
    const { cursor } = subscription;
    const parked = subscription.next();
    let item: unknown;
    void parked.then((answer) => (item = answer.value));
    await vi.waitFor(
      () => {
        proxy.cutAll();
        expect(item).toBeDefined();
      },
      { timeout: patiently(20_000), interval: 100 },
    );
    const reason = expect.stringMatching(/^[A-Z].*\.$/) as unknown;
    expect(item).toEqual({ type: 'disconnected', reason, cursor, position: decodeCursor(cursor) });
    await plantWorkers(bench.database, 3);
    expect(positionsOf(await takeThrough(subscription, 3))).toEqual(
      consecutive(decodeCursor(cursor)! + 1n, 3),
    );
    await engine.close();
    await proxy.close();
  });

  /** A listener that reconnects late may be lost once more. */
  async function takeThrough(
    subscription: Awaited<ReturnType<Connection['events']['subscribe']>>,
    count: number,
  ) {
    const events: FeedEvent[] = [];
    for await (const item of subscription) {
      if (item.type !== 'disconnected') events.push(item);
      if (events.length === count) break;
    }
    return events;
  }
});

describe('a row of an unknown type', () => {
  /** A later version may have written it; this one cannot decode it. */
  const plantUnknown = (): Promise<void> =>
    plantRows(bench.database, [
      {
        family: 'signal',
        event_type: 'delivered',
        namespace: 'n',
        execution_id: randomUUID(),
        partition_key: 1,
        route: 0,
      },
    ]);

  it('ends the subscription with its position, after the events before it, and again at the second try', async () => {
    const start = await bench.engine.events.subscribe();
    const from = start.cursor;
    await start.close();
    await plantWorkers(bench.database, 2);
    await plantUnknown();
    await plantWorkers(bench.database, 1);
    const position = decodeCursor(from)! + 3n;
    const refused = { code: 'undecodable_event', message: expect.stringContaining(`position ${position} `) };
    for (let round = 0; round < 2; round += 1) {
      const subscription = await bench.engine.events.subscribe({ from });
      expect(positionsOf(await take(subscription, 2))).toEqual(consecutive(position - 2n, 2));
      await expect(subscription.next()).rejects.toMatchObject(refused);
      expect(decodeCursor(subscription.cursor)).toBe(position - 1n);
      expect(await subscription.next()).toEqual(OVER);
    }
    const beyond = await bench.engine.events.subscribe({ from: encodeCursor(position) });
    expect(positionsOf(await take(beyond, 1))).toEqual([position + 1n]);
    await beyond.close();
  });

  it('does not affect readers whose filter excludes it', async () => {
    const filter = { families: ['worker'] as const };
    const subscription = await bench.engine.events.subscribe({ filter });
    await plantUnknown();
    const names = await plantWorkers(bench.database, 1);
    expect(await take(subscription, 1)).toMatchObject([{ workerInstanceId: names[0] }]);
    await subscription.close();
  });

  it('is never passed by a consumer', async () => {
    const { cursor: from } = await bench.engine.events.subscribe();
    await plantUnknown();
    const handed = vi.fn(async () => undefined);
    const consumer = await bench.engine.events.consume('wary', handed, { from });
    await expect(consumer.done).rejects.toMatchObject({ code: 'undecodable_event' });
    expect(handed).not.toHaveBeenCalled();
    const [snapshot] = await bench.engine.consumers.list();
    expect(snapshot).toMatchObject({ name: 'wary', cursor: from, lag: 1n });
  });
});
