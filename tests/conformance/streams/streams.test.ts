/**
 * The output of attempts: frames are read back unchanged, in order, once; by late readers and waiting ones; and every
 * reader learns when a stream is closed.
 */
import { describe, expect, it } from 'vitest';
import { applyPatch, type StreamItem } from '../../../src/index.ts';
import type { Claim, FrameRequest } from '../../../src/protocol/index.ts';
import { newKind, useBench } from '../open.ts';

const bench = useBench();

const text = (payload: string, more: Partial<FrameRequest> = {}): FrameRequest => ({ payload, ...more });

async function write(claim: Claim, ...payloads: string[]): Promise<string> {
  const outcome = await bench.port.appendFrames(
    claim,
    payloads.map((payload) => text(payload)),
  );
  if (outcome.outcome !== 'appended') throw new Error(outcome.outcome);
  return outcome.lastId;
}

function latch(): { promise: Promise<void>; resolve: () => void } {
  let resolve!: () => void;
  const promise = new Promise<void>((release) => {
    resolve = release;
  });
  return { promise, resolve };
}

/** A short form of what a tail yields. */
function spoken(item: StreamItem): string {
  switch (item.type) {
    case 'frame':
      return String(item.frame.payload);
    case 'gap':
      return `gap ${item.missed}`;
    case 'restarted':
      return `restarted ${item.stream} from ${item.from}`;
    case 'resumed':
      return `resumed ${item.finishedSteps.map(({ name }) => name).join(' ')}`.trim();
    case 'paused':
    case 'closed':
      return `${item.type} ${item.reason}`;
    case 'superseded':
      return `superseded by ${item.by}`;
    case 'forgotten':
      return 'forgotten';
  }
}

async function readAll(items: AsyncIterable<StreamItem>): Promise<string[]> {
  const told: string[] = [];
  for await (const item of items) told.push(spoken(item));
  return told;
}

describe('frames', () => {
  it('are read back as the same bytes', async () => {
    const claim = await bench.running();
    const bytes = Uint8Array.from([0, 255, 128, 10]);
    await bench.port.appendFrames(claim, [
      text('grüße \u0000 👋', { frameType: 'stdout', correlationId: 'c' }),
      { payload: { a: [1, null, 'x'] } },
      { payload: bytes },
      { payload: Buffer.from('{"b" : 1.0}'), encoding: 'json', step: { name: 'draft', key: '1' } },
    ]);
    const { frames, closed, frameCount, totalBytes } = await bench.engine.streams.read(claim.executionId);
    expect(frames.map(({ encoding, payload }) => [encoding, payload])).toEqual([
      ['text', 'grüße \u0000 👋'],
      ['json', { a: [1, null, 'x'] }],
      ['binary', Buffer.from(bytes)],
      ['json', { b: 1 }],
    ]);
    expect(frames[0]).toMatchObject({
      frameType: 'stdout',
      correlationId: 'c',
      step: null,
      leaseEpoch: claim.leaseEpoch,
    });
    expect(Buffer.from(frames[3]!.bytes).toString()).toBe('{"b" : 1.0}');
    expect(frames[3]).toMatchObject({
      frameType: 'event',
      step: { name: 'draft', key: '1' },
      mode: 'durable',
    });
    expect({ closed, frameCount, totalBytes }).toEqual({
      closed: null,
      frameCount: 4,
      totalBytes: frames.reduce((sum, frame) => sum + frame.bytes.length, 0),
    });
  });

  it('have ids that grow, even when the clock goes back', async () => {
    const claim = await bench.running();
    const first = await write(claim, 'a', 'b');
    await bench.database.moveClock(-60_000);
    const second = await write(claim, 'c');
    await bench.database.moveClock(60_000);
    const [ms, seq] = first.split('-').map(Number) as [number, number];
    expect(seq).toBe(2);
    expect(second).toBe(`${ms}-3`);
    const { frames } = await bench.engine.streams.read(claim.executionId, { from: first });
    expect(frames.map(({ payload }) => payload)).toEqual(['b', 'c']);
  });

  it('keep the order of their calls, however many are in flight', async () => {
    const claim = await bench.running();
    const calls = Array.from({ length: 50 }, (_, n) => bench.port.appendFrames(claim, [text(`${n}`)]));
    const outcomes = await Promise.all(calls);
    expect(outcomes.every(({ outcome }) => outcome === 'appended')).toBe(true);
    const { frames } = await bench.engine.streams.read(claim.executionId);
    expect(frames.map(({ payload }) => payload)).toEqual(calls.map((_, n) => `${n}`));
    expect(outcomes.map((outcome) => 'lastId' in outcome && outcome.lastId)).toEqual(
      frames.map(({ id }) => id),
    );
  });

  it('are refused to a worker that lost its lease, or after the attempt has finished', async () => {
    const claim = await bench.running();
    await bench.engine.executions.revokeLease(claim.executionId, { reason: 'why' });
    expect(await bench.port.appendFrames(claim, [text('late')])).toEqual({ outcome: 'lease_revoked' });
    const other = await bench.running();
    await bench.port.complete(other);
    expect(await bench.port.appendFrames(other, [text('late')])).toMatchObject({ outcome: 'not_active' });
    expect((await bench.engine.streams.read(other.executionId)).frames).toEqual([]);
  });

  it('are read by range, in both directions, and by visibility', async () => {
    const claim = await bench.running();
    await write(claim, 'a', 'b');
    await bench.database.moveClock(1_000);
    await bench.port.appendFrames(claim, [text('live', { mode: 'best_effort' }), text('c')]);
    const read = async (request: object) =>
      (await bench.engine.streams.read(claim.executionId, request)).frames
        .map(({ payload }) => payload)
        .join('');
    const [ms] = (await bench.engine.streams.read(claim.executionId)).frames[0]!.id.split('-');
    expect(await read({})).toBe('ablivec');
    expect(await read({ to: ms })).toBe('ab');
    expect(await read({ from: `${ms}-2`, limit: 2 })).toBe('blive');
    expect(await read({ direction: 'backward', limit: 2 })).toBe('clive');
    expect(await read({ visibility: 'exclude_best_effort' })).toBe('abc');
    expect(await read({ from: 'end' })).toBe('');
  });
});

describe('a tail', () => {
  it('yields what is stored, waits for more, and finishes with the attempt', async () => {
    const claim = await bench.running();
    await write(claim, 'a');
    const told: string[] = [];
    const heard = latch();
    const tailing = (async () => {
      for await (const item of bench.engine.streams.tail(claim.executionId)) {
        told.push(spoken(item));
        if (told.length === 1) heard.resolve();
      }
    })();
    await heard.promise;
    await write(claim, 'b', 'c');
    await bench.port.complete(claim);
    await tailing;
    expect(told).toEqual(['a', 'b', 'c', 'closed attempt_success']);
  });

  it('resumes after a cursor without missing or repeating a frame', async () => {
    const claim = await bench.running();
    await write(claim, 'a', 'b', 'c');
    await bench.port.complete(claim);
    for await (const item of bench.engine.streams.tail(claim.executionId)) {
      if (spoken(item) !== 'b') continue;
      expect(await readAll(bench.engine.streams.tail(claim.executionId, { after: item.cursor }))).toEqual([
        'c',
        'closed attempt_success',
      ]);
      break;
    }
  });

  it('follows all attempts of an execution, or only one', async () => {
    const kind = newKind();
    const claim = await bench.running({ kind, policy: { retry: { maxRetries: 1 } } });
    await write(claim, 'first');
    await bench.port.fail(claim, { message: 'no', retryAfterMs: 0 });
    while ((await bench.port.fireTimers()) > 0);
    const again = await bench.claimOne(kind);
    await write(again, 'second');
    await bench.port.complete(again);
    expect(await readAll(bench.engine.streams.tail(claim.executionId))).toEqual([
      'first',
      'closed attempt_failure',
      'superseded by 1',
      'second',
      'closed attempt_success',
    ]);
    expect(await readAll(bench.engine.streams.tail(claim.executionId, { attemptIndex: 0 }))).toEqual([
      'first',
      'closed attempt_failure',
    ]);
  });

  it('reports a pause, and frames that are written again unless their step is finished', async () => {
    const kind = newKind();
    const claim = await bench.running({ kind });
    await bench.port.appendFrames(claim, [
      text('in draft', { step: { name: 'draft' } }),
      text('in review', { step: { name: 'review' } }),
    ]);
    await bench.port.recordStep(claim, { name: 'draft', value: 1 });
    const told: string[] = [];
    const paused = latch();
    const tailing = (async () => {
      for await (const item of bench.engine.streams.tail(claim.executionId)) {
        told.push(spoken(item));
        if (item.type === 'paused') paused.resolve();
      }
    })();
    const condition = { kind: 'count', n: 1, by: 'signals', waitpoints: ['door'] } as const;
    await bench.port.suspend(claim, { waits: [{ name: 'door', condition, reason: 'approval' }] });
    await paused.promise;
    await bench.engine.waitpoints.approve(claim.executionId, 'door', { by: 'ann' });
    const resumed = await bench.claimOne(kind);
    await write(resumed, 'in review again');
    await bench.port.complete(resumed);
    await tailing;
    expect(told).toEqual([
      'in draft',
      'in review',
      'paused waiting_for_approval',
      'resumed draft',
      'in review again',
      'closed attempt_success',
    ]);
  });

  it('reports how many live frames it has missed', async () => {
    const claim = await bench.running();
    const live = { bestEffort: { ttlMs: 1, floor: 4, ceiling: 4 } };
    await write(claim, 'kept');
    const frames = Array.from({ length: 20 }, (_, n) => text(`${n}`, { mode: 'best_effort' as const }));
    await bench.port.appendFrames(claim, frames, live);
    await write(claim, 'kept too');
    await bench.port.complete(claim);
    expect(await readAll(bench.engine.streams.tail(claim.executionId))).toEqual([
      'kept',
      'gap 16',
      '16',
      '17',
      '18',
      '19',
      'kept too',
      'closed attempt_success',
    ]);
    const unseen = bench.engine.streams.tail(claim.executionId, { visibility: 'exclude_best_effort' });
    expect(await readAll(unseen)).toEqual(['kept', 'kept too', 'closed attempt_success']);
  });

  it('by a blocking call returns when there is a frame, when the stream is closed, and when its time is up', async () => {
    const claim = await bench.running();
    const once = (more: object) =>
      bench.engine.streams.tailOnce(claim.executionId, { attemptIndex: 0, block: 10_000, ...more });
    expect((await once({ block: 0 })).frames).toEqual([]);
    const waiting = once({});
    const first = await write(claim, 'a');
    expect((await waiting).frames.map(({ id }) => id)).toEqual([first]);
    const closing = once({ after: first });
    await bench.port.complete(claim);
    expect(await closing).toMatchObject({ frames: [], closed: { reason: 'attempt_success' } });
  });

  it('of an execution that does not exist is refused', async () => {
    const id = `{fp:0}:${crypto.randomUUID()}`;
    await expect(readAll(bench.engine.streams.tail(id))).rejects.toMatchObject({ code: 'not_found' });
  });

  it('is ended by an abort, without an error', async () => {
    const claim = await bench.running();
    await write(claim, 'a');
    const { signal, abort } = stopper();
    const seen: string[] = [];
    for await (const { type } of bench.engine.streams.tail(claim.executionId, { signal })) {
      seen.push(type);
      abort(new Error('enough'));
    }
    expect(seen).toEqual(['frame']);
    for await (const item of bench.engine.streams.tail(claim.executionId, { signal })) seen.push(item.type);
    for await (const item of bench.engine.streams.watchSummary(claim.executionId, { signal }))
      seen.push(item.type);
    expect(seen).toEqual(['frame']);
  });

  it('is ended by an abort while it waits, and so is the watch of a summary', async () => {
    const claim = await bench.running();
    const { signal, abort } = stopper();
    const tailing = readAll(bench.engine.streams.tail(claim.executionId, { signal }));
    const watching = bench.engine.streams.watchSummary(claim.executionId, { signal });
    const watched = watching[Symbol.asyncIterator]();
    expect(await watched.next()).toMatchObject({ value: { type: 'document' } });
    const next = watched.next();
    abort();
    expect(await tailing).toEqual([]);
    expect(await next).toEqual({ done: true, value: undefined });
  });
});

function stopper(): { signal: AbortSignal; abort: (reason?: Error) => void } {
  const stop = new AbortController();
  return { signal: stop.signal, abort: (reason) => stop.abort(reason) };
}

describe('a summary', () => {
  it('is what the patches make, one version each, and can be watched from any moment on', async () => {
    const claim = await bench.running();
    expect(await bench.engine.streams.readSummary(claim.executionId)).toBeNull();
    const patch = (payload: object): FrameRequest => ({ payload, mode: 'summary' });
    await bench.port.appendFrames(claim, [
      patch({ a: { b: 1 }, gone: 1 }),
      patch({ gone: null, list: ['__ff_null__'] }),
    ]);
    const items: unknown[] = [];
    const started = latch();
    const watching = (async () => {
      for await (const item of bench.engine.streams.watchSummary(claim.executionId)) {
        items.push(item);
        started.resolve();
      }
    })();
    await started.promise;
    const outcome = await bench.port.appendFrames(claim, [patch({ a: { c: '__ff_null__' } })]);
    expect(outcome).toMatchObject({ outcome: 'appended', summaryVersion: 3 });
    await bench.port.complete(claim);
    await watching;
    expect(items).toEqual([
      { type: 'document', attemptIndex: 0, version: 2, document: { a: { b: 1 }, list: [null] } },
      { type: 'patch', attemptIndex: 0, version: 3, patch: { a: { c: '__ff_null__' } } },
      { type: 'closed', attemptIndex: 0, reason: 'attempt_success' },
    ]);
    const document = { a: { b: 1, c: null }, list: [null] };
    expect(applyPatch({ a: { b: 1 }, list: [null] }, { a: { c: '__ff_null__' } })).toEqual(document);
    expect(await bench.engine.streams.readSummary(claim.executionId)).toMatchObject({ version: 3, document });
  });
});
