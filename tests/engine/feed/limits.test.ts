/**
 * The limits of the event feed: positions that are no longer kept, one consumer and one subscription too many, and a
 * closed feed.
 */
import { afterEach, describe, expect, it, vi } from 'vitest';
import type { Events } from '../../../src/contract/connection.ts';
import { STOP_DEADLINE_MS } from '../../../src/engine/feed/consumer.ts';
import { openFeed, type Feed } from '../../../src/engine/feed/feed.ts';
import { openEngine } from '../../../src/engine/open.ts';
import { decodeCursor, encodeCursor, LIMITS } from '../../../src/index.ts';
import type { FeedSource } from '../../../src/engine/feed/source.ts';
import { useBench, WAIT } from '../../conformance/open.ts';
import { expectRefused } from '../refused.ts';

const bench = useBench();
const handler = async (): Promise<void> => {};

describe('a cursor to start from', () => {
  it('that is no longer kept is refused with the oldest one that is', async () => {
    for (const lane of ['a', 'b', 'c']) await bench.engine.lanes.pause(lane, { by: 'ann' });
    const { cursor } = await opened(bench.engine.events.subscribe());
    const last = decodeCursor(cursor)!;
    await bench.database.query('UPDATE ff_sequencer SET floor_position = $1', [String(last)]);
    const from = encodeCursor(last - 2n);
    const refused = bench.engine.events.subscribe({ from });
    const oldest = encodeCursor(last - 1n);
    await expect(refused).rejects.toMatchObject({ code: 'cursor_expired', field: 'from', oldest });
    await expect(bench.engine.events.consume('late', handler, { from })).rejects.toMatchObject({ oldest });
    expect((await opened(bench.engine.events.subscribe({ from: oldest }))).cursor).toBe(oldest);
    expect((await opened(bench.engine.events.subscribe({ from: 'beginning' }))).cursor).toBe(oldest);
    expect((await opened(bench.engine.events.subscribe({ from: 'now' }))).cursor).toBe(cursor);
    expect((await opened(bench.engine.events.subscribe({ from: '' }))).cursor).toBe(cursor);
    expect((await opened(bench.engine.events.subscribe({ from: new Uint8Array() }))).cursor).toBe(cursor);
  });
});

/** A subscription that was accepted, and closed again. */
async function opened(subscription: ReturnType<Events['subscribe']>) {
  const accepted = await subscription;
  await accepted.close();
  return accepted;
}

describe('a consumer whose handler never returns', () => {
  it('does not delay the closing of the feed beyond the deadline', async () => {
    const { engine, context } = await openEngine({ databaseUrl: bench.database.url });
    const feed = openFeed(context);
    let release = (): void => {};
    const held = new Promise<void>((resolve) => {
      release = resolve;
    });
    await engine.lanes.pause('held');
    const endless = vi.fn(() => held);
    const consumer = await feed.consume('held', endless);
    await vi.waitFor(() => expect(endless).toHaveBeenCalledOnce(), WAIT);
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    const closing = feed.close(STOP_DEADLINE_MS);
    await vi.advanceTimersByTimeAsync(STOP_DEADLINE_MS);
    await closing;
    vi.useRealTimers();
    release();
    await consumer.done;
    await engine.consumers.forget('held');
    await engine.close();
  });
});

describe('one consumer too many', () => {
  it('is refused, while known ones keep working, and a forgotten one makes room', async () => {
    await bench.database.query(
      `INSERT INTO ff_consumer (name, position, moved_at_ms, held_until_ms)
       SELECT 'c' || n, 0, 0, 0 FROM generate_series(1, $1::integer) n`,
      [LIMITS.consumers],
    );
    await expectRefused(bench.database, () => bench.engine.events.consume('new', handler), {
      code: 'too_many',
      field: 'name',
      says: /1000 consumers/,
    });
    await (await bench.engine.events.consume('c7', handler, { from: 'now' })).stop();
    expect(await bench.engine.consumers.list()).toHaveLength(LIMITS.consumers);
    expect(await bench.engine.consumers.forget('c7')).toBe(true);
    expect(await bench.engine.consumers.forget('c7')).toBe(false);
    await (await bench.engine.events.consume('new', handler, { from: 'now' })).stop();
  });
});

describe('one subscription too many', () => {
  let feed: Feed | undefined;
  afterEach(() => feed?.close(0));

  const source: FeedSource = {
    bounds: async () => ({ floor: 1n, last: 0n, isStandby: false }),
    read: async (after) => ({ events: [], to: after, atEnd: true }),
    outage: (reason) => ({ number: 1, reason }),
    wait: (_, signal) =>
      new Promise((_resolve, reject) =>
        signal.addEventListener('abort', () => reject(signal.reason as Error)),
      ),
  };

  it('is refused, even when all are requested concurrently, and each closed one makes room', async () => {
    feed = openFeed({ feed: source } as never);
    const { subscribe } = feed;
    const aborting = new AbortController();
    const asked = Array.from({ length: LIMITS.subscriptions - 1 }, () => subscribe());
    const last = subscribe({ signal: aborting.signal });
    await expect(subscribe()).rejects.toMatchObject({ code: 'too_many' });
    const [first, second] = await Promise.all(asked);
    await last;
    await first!.close();
    await first!.close();
    await expect(subscribe({ from: encodeCursor(9n) })).rejects.toMatchObject({
      code: 'cursor_ahead',
    });
    await subscribe({ signal: AbortSignal.abort() });
    await subscribe();
    await expect(subscribe()).rejects.toMatchObject({ code: 'too_many' });
    await second!.return!();
    await subscribe();
    aborting.abort();
    await subscribe();
    await expect(subscribe()).rejects.toMatchObject({ code: 'too_many' });
  });

  it('is not opened on a closed feed, and open ones are closed with it', async () => {
    const open = openFeed({ feed: source } as never);
    feed = open;
    const subscription = await open.subscribeCompletions();
    const parked = subscription.next();
    const late = open.subscribeLeaseHistory();
    await Promise.all([open.close(0), expect(late).rejects.toMatchObject({ code: 'closed' })]);
    expect(await parked).toEqual({ done: true, value: undefined });
    await expect(open.subscribe()).rejects.toMatchObject({ code: 'closed' });
    await expect(open.consume('c', handler)).rejects.toMatchObject({ code: 'closed' });
  });
});
