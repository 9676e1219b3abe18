/**
 * Edge cases of tails: cursors of attempts that do not exist, leases that change while nothing is written, readers that
 * leave while they wait, and resuming after every item.
 */
import { Readable } from 'node:stream';
import { describe, expect, it } from 'vitest';
import type { Claim, FrameRequest } from '../../../src/protocol/index.ts';
import type { StreamItem } from '../../../src/index.ts';
import { newKind, useBench } from '../open.ts';

const bench = useBench();

const text = (payload: string, more: Partial<FrameRequest> = {}): FrameRequest => ({ payload, ...more });

async function write(claim: Claim, ...frames: FrameRequest[]): Promise<void> {
  expect(await bench.port.appendFrames(claim, frames)).toMatchObject({ outcome: 'appended' });
}

const iteratorOf = <Item>(items: AsyncIterable<Item>): AsyncIterator<Item> => items[Symbol.asyncIterator]();

async function readAll(items: AsyncIterable<StreamItem>): Promise<StreamItem[]> {
  const told: StreamItem[] = [];
  for await (const item of items) told.push(item);
  return told;
}

async function pauseFor(claim: Claim, name: string): Promise<void> {
  const condition = { kind: 'count', n: 1, by: 'signals', waitpoints: [name] } as const;
  await bench.port.suspend(claim, { waits: [{ name, condition, reason: 'approval' }] });
}

describe('an attempt that does not exist', () => {
  it.each(['5/0-0', '5/1-1'])('is refused as a cursor to resume after: %s', async (after) => {
    const claim = await bench.running();
    const refused = { code: 'invalid_cursor', field: 'request.after' };
    const tail = () => iteratorOf(bench.engine.streams.tail(claim.executionId, { after })).next();
    await expect(tail()).rejects.toMatchObject(refused);
    await bench.port.complete(claim);
    await expect(tail()).rejects.toMatchObject(refused);
  });

  it('is waited for no longer than its limit', async () => {
    const claim = await bench.running();
    const page = await bench.engine.streams.tailOnce(claim.executionId, { attemptIndex: 5, block: 50 });
    expect(page).toMatchObject({ attemptIndex: 5, frames: [], isComplete: true, closed: null });
  });
});

describe('a blocking call', () => {
  it('reports the stream as closed only with the last frames', async () => {
    const claim = await bench.running();
    await write(claim, text('a'), text('live', { mode: 'best_effort' }), text('b'));
    await bench.port.complete(claim);
    const once = (more: object) =>
      bench.engine.streams.tailOnce(claim.executionId, { attemptIndex: 0, block: 5_000, ...more });
    expect(await once({ limit: 1 })).toMatchObject({ isComplete: false, closed: null });
    const seen = await once({ visibility: 'exclude_best_effort' });
    expect(seen.frames.map(({ payload }) => payload)).toEqual(['a', 'b']);
    expect(seen).toMatchObject({ isComplete: true, closed: { reason: 'attempt_success' } });
  });

  it('returns as many frames as it asked for, even more than readers share', async () => {
    const claim = await bench.running();
    await write(claim, ...Array.from({ length: 700 }, (_, n) => text(`${n}`)));
    const page = await bench.engine.streams.tailOnce(claim.executionId, { attemptIndex: 0, block: 5_000 });
    expect(page.frames).toHaveLength(700);
    expect(page).toMatchObject({ isComplete: true, closed: null });
  });
});

describe('a page that is exactly full', () => {
  it('reports whether there is more', async () => {
    const claim = await bench.running();
    await write(claim, text('a'), text('b'), text('c'));
    for (const direction of ['forward', 'backward'] as const) {
      const page = (limit: number) => bench.engine.streams.read(claim.executionId, { limit, direction });
      expect(await page(2)).toMatchObject({ frames: [{}, { payload: 'b' }], isComplete: false });
      expect(await page(3)).toMatchObject({ frames: [{}, {}, {}], isComplete: true });
    }
  });
});

describe('a new lease of an attempt', () => {
  it('is reported before it writes, once, and so is each pause', async () => {
    const kind = newKind();
    let claim = await bench.running({ kind });
    const items = iteratorOf(bench.engine.streams.tail(claim.executionId));
    const next = async () => (await items.next()).value as StreamItem;
    await write(claim, text('a', { step: { name: 'draft' } }), text('b'));
    await bench.port.recordStep(claim, { name: 'draft', value: 1 });
    expect([(await next()).type, (await next()).type]).toEqual(['frame', 'frame']);
    for (const door of ['first', 'second']) {
      await pauseFor(claim, door);
      expect(await next()).toMatchObject({ type: 'paused', reason: 'waiting_for_approval' });
      await bench.engine.waitpoints.approve(claim.executionId, door, { by: 'ann' });
      claim = await bench.claimOne(kind);
      expect(await next()).toMatchObject({
        type: 'resumed',
        leaseEpoch: claim.leaseEpoch,
        finishedSteps: [{ name: 'draft' }],
      });
    }
    await write(claim, text('c'));
    expect(await next()).toMatchObject({ type: 'frame', frame: { payload: 'c' } });
    await bench.port.complete(claim);
    expect(await next()).toMatchObject({ type: 'closed' });
    expect(await items.next()).toEqual({ done: true, value: undefined });
  });
});

describe('a waiting reader', () => {
  const readers: [string, (id: string) => AsyncIterable<unknown>, number][] = [
    ['tail', (id) => bench.engine.streams.tail(id), 1],
    ['watchSummary', (id) => bench.engine.streams.watchSummary(id), 1],
  ];

  it.each(readers)('can be left: %s', async (_, open, there) => {
    const claim = await bench.running();
    await write(claim, text('a'));
    const items = iteratorOf(open(claim.executionId));
    for (let n = 0; n < there; n += 1) expect((await items.next()).done).toBe(false);
    const waiting = items.next();
    const over = { done: true, value: undefined };
    expect(await items.return!()).toEqual(over);
    expect(await waiting).toEqual(over);
    expect(await items.next()).toEqual(over);
  });

  it.each(readers)('is closed with the Readable made from it: %s', async (_, open) => {
    const claim = await bench.running();
    await write(claim, text('a'));
    const stream = Readable.from(open(claim.executionId));
    await new Promise((resolve) => stream.once('data', resolve));
    const closed = new Promise<void>((resolve) => stream.once('close', resolve));
    stream.destroy();
    await closed;
  });

  it.each([
    ['tail', () => bench.engine.streams.tail('no id')],
    ['watchSummary', () => bench.engine.streams.watchSummary('no id')],
    ['watchSummary', () => bench.engine.streams.watchSummary('{fp:0}:x', { signal: 'stop' as never })],
  ])('throws on an invalid call: %s', (_, call) => {
    expect(call).toThrow(/\.$/);
  });
});

describe('resuming after an item', () => {
  it('repeats no frame, no gap and no attempt, after each of them', async () => {
    const kind = newKind();
    const claim = await bench.running({ kind, policy: { retry: { maxRetries: 1 } } });
    await write(claim, text('kept'));
    const live = Array.from({ length: 20 }, (_, n) => text(`${n}`, { mode: 'best_effort' as const }));
    await bench.port.appendFrames(claim, live, { bestEffort: { ttlMs: 1, floor: 4, ceiling: 4 } });
    await write(claim, text('kept too'));
    await bench.port.fail(claim, { message: 'no', retryAfterMs: 0 });
    while ((await bench.port.fireTimers()) > 0);
    const again = await bench.claimOne(kind);
    await write(again, text('second'));
    await bench.port.complete(again);
    const all = await readAll(bench.engine.streams.tail(claim.executionId));
    expect(all.map(({ type }) => type).filter((type) => type !== 'frame')).toEqual([
      'gap',
      'closed',
      'superseded',
      'closed',
    ]);
    expect(all.find(({ type }) => type === 'superseded')).toMatchObject({ cursor: '1/0-0', attemptIndex: 0 });
    for (const [place, { cursor, type }] of all.entries()) {
      const rest = await readAll(bench.engine.streams.tail(claim.executionId, { after: cursor }));
      // That the stream is closed may be repeated.
      expect(rest).toEqual(all.slice(type === 'closed' ? place : place + 1));
    }
  });
});
