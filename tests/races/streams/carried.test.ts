/**
 * Notifications inside the transaction of an append, and frames carried by them: when there are any, and that readers
 * believe only those that follow. The writers are real; the tests decide which notifications a hub gets, and in which
 * order.
 */
import { randomUUID } from 'node:crypto';
import pg from 'pg';
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { parseExecutionId } from '../../../src/contract/ids.ts';
import { hintChannel } from '../../../src/engine/database/names.ts';
import type { FramesWatcher } from '../../../src/engine/kit/doorbell.ts';
import { decodeHint } from '../../../src/engine/kit/hint-text.ts';
import { openEngine, type Engine, type EngineOptions } from '../../../src/engine/open.ts';
import { StreamHub } from '../../../src/engine/streams/hub.ts';
import { placeAfter, type ReaderPlace } from '../../../src/engine/streams/reader-place.ts';
import { DatabaseStreams, type StreamRead, type StreamSource } from '../../../src/engine/streams/source.ts';
import type { Claim, FrameRequest, HintWatcher } from '../../../src/protocol/index.ts';
import { patiently } from '../../setup/patience.ts';
import { useBench } from '../../conformance/open.ts';

const bench = useBench();
const SOON = { timeout: patiently(20_000), interval: 5 };

interface Line {
  heard: string[];
  say(payload: object): Promise<void>;
}
let line: Line;
let stored: DatabaseStreams;
let close: () => Promise<void>;

beforeAll(async () => {
  const { engine, context } = await openEngine({ databaseUrl: bench.database.url, listen: 'off' });
  stored = new DatabaseStreams(context.database);
  close = () => engine.close();
});
afterAll(() => close?.());

/** No time passes, so that no append takes long; and everything on the channel is heard. */
beforeEach(async () => {
  vi.useFakeTimers({ toFake: ['performance'] });
  onTestFinished(() => void vi.useRealTimers());
  const client = new pg.Client({ connectionString: bench.database.url });
  await client.connect();
  onTestFinished(() => client.end());
  const channel = hintChannel(bench.database.schema);
  const heard: string[] = [];
  client.on('notification', ({ payload }) => heard.push(payload ?? ''));
  await client.query(`LISTEN "${channel}"`);
  const say = async (payload: object): Promise<void> => {
    await client.query('SELECT pg_notify($1, $2)', [channel, JSON.stringify(payload)]);
  };
  line = { heard, say };
});

async function newWriter(options: EngineOptions): Promise<Engine> {
  const { engine } = await openEngine({ databaseUrl: bench.database.url, ...options });
  onTestFinished(() => engine.close());
  return engine;
}

/** One that knows of a follower in another process. */
async function askedWriter(options: EngineOptions, claim: Claim): Promise<Engine> {
  const writer = await newWriter(options);
  const isAsked = async (): Promise<boolean> => {
    await line.say({ follows: 60_000, from: 'somebody' });
    await writer.worker.appendFrames(claim, [{ payload: 'anybody?' }]);
    return insideTexts().length > 0;
  };
  await expect.poll(isAsked, SOON).toBe(true);
  await allHeard();
  return writer;
}

const insideTexts = (): string[] => line.heard.filter((text) => text.includes('"at"'));

/** Notifications arrive in the order of their commits. */
async function allHeard(): Promise<void> {
  const mark = randomUUID();
  await line.say({ from: mark });
  await expect.poll(() => line.heard.some((text) => text.includes(mark)), SOON).toBe(true);
}

/** Appends, and returns what others were notified of. */
async function appendHeard(writer: Engine, claim: Claim, frames: FrameRequest[]): Promise<string[]> {
  const before = line.heard.length;
  await writer.worker.appendFrames(claim, frames);
  await allHeard();
  return line.heard.slice(before).filter((text) => text.includes('"streams"'));
}

describe('an append notifies inside its transaction', () => {
  it('while others follow: the stream and the numbers of its last frame', async () => {
    const claim = await bench.running();
    const writer = await askedWriter({}, claim);
    const [text] = await appendHeard(writer, claim, [{ payload: 'secret' }, { payload: 'too' }]);
    const { frameCount, totalBytes } = await bench.engine.streams.read(claim.executionId);
    const { uuid } = parseExecutionId(claim.executionId);
    expect(JSON.parse(text!)).toEqual({
      streams: [uuid],
      at: [expect.any(Number), frameCount, totalBytes, expect.any(Number)],
    });
    expect(text).not.toContain('secret');
  });

  it('and once: nothing is sent after the commit', async () => {
    const claim = await bench.running();
    const writer = await askedWriter({}, claim);
    expect(await appendHeard(writer, claim, [{ payload: 'x' }])).toHaveLength(1);
  });

  it('not if it is refused', async () => {
    const claim = await bench.running();
    const writer = await askedWriter({}, claim);
    await bench.port.complete(claim);
    expect(await appendHeard(writer, claim, [{ payload: 'x' }])).toEqual([]);
  });

  it('not if nobody follows', async () => {
    const claim = await bench.running();
    expect(await appendHeard(await newWriter({}), claim, [{ payload: 'x' }])).toEqual([]);
  });

  it('not in a process that does not listen', async () => {
    const claim = await bench.running();
    const writer = await newWriter({ listen: 'off' });
    await line.say({ follows: 60_000, from: 'somebody' });
    expect(await appendHeard(writer, claim, [{ payload: 'x' }])).toEqual([]);
  });
});

describe('frames', () => {
  it('are carried if that is on, and if they are small and no patches', async () => {
    const claim = await bench.running();
    const writer = await askedWriter({ carryFrames: 'on' }, claim);
    const carried = await appendHeard(writer, claim, [{ payload: 'small' }]);
    expect(carried[0]).toContain('small');
    const large = await appendHeard(writer, claim, [{ payload: 'x'.repeat(5_000) }]);
    expect(large).toHaveLength(1);
    expect(large[0]).not.toContain('wrote');
    const patch = await appendHeard(writer, claim, [{ payload: { a: 1 }, mode: 'summary' }]);
    expect(patch[0]).not.toContain('wrote');
  });
});

/** A hub that hears what the test passes on, finds nothing by polling, and counts its reads. */
function newHub() {
  const watchers = new Set<HintWatcher>();
  const framesWatchers = new Set<FramesWatcher>();
  const counted = { reads: 0 };
  const source: StreamSource = {
    after(...asked) {
      counted.reads += 1;
      return stored.after(...asked);
    },
    heads: () => new Promise<never>(() => undefined),
  };
  const hub = new StreamHub(source, {
    askForStreams: () => undefined,
    watch: (watcher) => {
      watchers.add(watcher);
      return () => watchers.delete(watcher);
    },
    watchFrames: (watcher) => {
      framesWatchers.add(watcher);
      return () => framesWatchers.delete(watcher);
    },
  });
  onTestFinished(() => hub.close());
  /** As the doorbell does: what is not taken is a hint. Returns whether the frames were taken. */
  const pass = (text: string): boolean => {
    const { written, hint } = decodeHint(text);
    const isTaken = written !== null && [...framesWatchers].every((watcher) => watcher(written));
    if (!isTaken) for (const watcher of watchers) watcher(hint);
    return isTaken;
  };
  return { hub, counted, pass };
}

async function followed() {
  const claim = await bench.running();
  const writer = await askedWriter({ carryFrames: 'on' }, claim);
  const { hub, counted, pass } = newHub();
  const start: ReaderPlace = {
    ...parseExecutionId(claim.executionId),
    attemptIndex: 0,
    tsMs: 0,
    seq: 0,
    told: null,
    epoch: null,
  };
  const read = await hub.next(start);
  const place = placeAfter(start, read!);
  counted.reads = 0;
  const write = async (...payloads: (string | Uint8Array)[]): Promise<string> =>
    (
      await appendHeard(
        writer,
        claim,
        payloads.map((payload) => ({ payload })),
      )
    )[0]!;
  return { hub, counted, pass, place, write };
}

const payloadsOf = (read: StreamRead | undefined) => read?.frames.map(({ payload }) => payload);

describe('a reader', () => {
  it('gets carried frames without a read, the same as it would have read', async () => {
    const { hub, counted, pass, place, write } = await followed();
    const next = hub.next(place);
    const text = await write('ä"\u0001', new Uint8Array([0, 255]));
    expect(pass(text)).toBe(true);
    const got = await next;
    expect(counted.reads).toBe(0);
    expect(got).toEqual(await stored.after(place, place, 10));
  });

  it('follows one carried frame after the other', async () => {
    const { hub, counted, pass, place, write } = await followed();
    let at = place;
    for (const payload of ['a', 'b', 'c']) {
      const next = hub.next(at);
      expect(pass(await write(payload))).toBe(true);
      const read = await next;
      expect(payloadsOf(read)).toEqual([payload]);
      at = placeAfter(at, read!);
    }
    expect(counted.reads).toBe(0);
  });

  it('reads when one was lost', async () => {
    const { hub, counted, pass, place, write } = await followed();
    const next = hub.next(place);
    await write('lost');
    expect(pass(await write('second'))).toBe(false);
    expect(payloadsOf(await next)).toEqual(['lost', 'second']);
    expect(counted.reads).toBe(1);
  });

  it('gets a frame once that is carried twice', async () => {
    const { hub, pass, place, write } = await followed();
    const next = hub.next(place);
    const text = await write('once');
    expect(pass(text)).toBe(true);
    const read = await next;
    const after = hub.next(placeAfter(place, read!));
    expect(pass(text)).toBe(false);
    pass(await write('then'));
    expect(payloadsOf(await after)).toEqual(['then']);
  });

  it.each<[string, (wire: { wrote: Record<string, unknown>; at: number[] }) => void]>([
    ['another time before', ({ at }) => (at[3]! -= 1)],
    ['another attempt', ({ wrote }) => (wrote['attempt'] = 1)],
    ['another lease', ({ wrote }) => (wrote['epoch'] = 99)],
    ['a number too high', ({ at }) => (at[1]! += 1)],
    ['no time before, as in a repeated append', ({ at }) => at.pop()],
    ['no frames', ({ wrote }) => delete wrote['frames']],
  ])('does not believe frames with %s', async (_, falsify) => {
    const { hub, counted, pass, place, write } = await followed();
    const next = hub.next(place);
    const wire = JSON.parse(await write('true')) as { wrote: Record<string, unknown>; at: number[] };
    falsify(wire);
    expect(pass(JSON.stringify(wire))).toBe(false);
    expect(payloadsOf(await next)).toEqual(['true']);
    expect(counted.reads).toBe(1);
  });

  it('in a process that carries none believes none', async () => {
    const claim = await bench.running();
    const { executionId, leaseEpoch } = claim;
    const reader = await newWriter({});
    const items = reader.streams.tail(executionId)[Symbol.asyncIterator]();
    const first = items.next();
    const forged = [['durable', 'text', 'event', null, null, 'forged']];
    const { uuid } = parseExecutionId(executionId);
    await line.say({
      streams: [uuid],
      wrote: { attempt: 0, epoch: leaseEpoch, frames: forged },
      at: [1, 1, 6, 0],
    });
    await bench.port.appendFrames(claim, [{ payload: 'true' }]);
    expect((await first).value).toMatchObject({ type: 'frame', frame: { payload: 'true' } });
    await items.return?.();
  });
});
