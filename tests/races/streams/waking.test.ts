/**
 * The moments in which news of a stream can slip between a read and a wait, and readers that must not be confused with
 * each other. The hub reads from a real database; the tests decide which notifications it gets, and whether it may
 * poll.
 */
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { openEngine, type Engine } from '../../../src/engine/open.ts';
import type { Claim, Hint } from '../../../src/protocol/index.ts';
import { parseExecutionId } from '../../../src/contract/ids.ts';
import type { PoolLike } from '../../../src/engine/database/database.ts';
import type { ReaderPlace } from '../../../src/engine/streams/reader-place.ts';
import { StreamHub, type HubBells } from '../../../src/engine/streams/hub.ts';
import { DatabaseStreams, type StreamRead, type StreamSource } from '../../../src/engine/streams/source.ts';
import { misplaced, useBench } from '../../conformance/open.ts';

const bench = useBench();
const NEVER = new Promise<never>(() => undefined);
let stored: DatabaseStreams;
let close: () => Promise<void>;

beforeAll(async () => {
  const { engine, context } = await openEngine({ databaseUrl: bench.database.url, listen: 'off' });
  stored = new DatabaseStreams(context.database);
  close = () => engine.close();
});
afterAll(() => close?.());

/** Bells that ring on command. */
class Bells implements HubBells {
  readonly #watchers = new Set<(hint: Hint) => boolean>();
  askForStreams = (): void => undefined;
  watchFrames = () => (): void => undefined;
  watch = (watcher: (hint: Hint) => boolean): (() => void) => {
    this.#watchers.add(watcher);
    return () => this.#watchers.delete(watcher);
  };
  ring(streams: Hint['streams']): void {
    const hint: Hint = { routes: [], count: 0, dueInMs: null, workers: [], ended: [], streams };
    for (const watcher of this.#watchers) watcher(hint);
  }
}

interface Watched extends StreamSource {
  reads: number;
  /** What happens after the next read has seen the rows, and before its result is known. */
  meanwhile: () => Promise<void>;
}

/** `blind`: it never finds anything by polling. */
function watched(sight: 'blind' | 'sees'): Watched {
  const source: Watched = {
    reads: 0,
    meanwhile: async () => undefined,
    async after(key, place, limit) {
      const read = await stored.after(key, place, limit);
      source.reads += 1;
      const work = source.meanwhile;
      source.meanwhile = async () => undefined;
      await work();
      return read;
    },
    heads: (keys) => (sight === 'blind' ? NEVER : stored.heads(keys)),
  };
  return source;
}

function hubOn(source: StreamSource): { hub: StreamHub; bells: Bells } {
  const bells = new Bells();
  const hub = new StreamHub(source, bells);
  onTestFinished(() => hub.close());
  return { hub, bells };
}

const placeOf = ({ executionId }: Pick<Claim, 'executionId'>, tsMs = 0, seq = 0): ReaderPlace => ({
  ...parseExecutionId(executionId),
  attemptIndex: 0,
  tsMs,
  seq,
  told: null,
  epoch: null,
});

async function write(claim: Claim, payload: string): Promise<string> {
  const outcome = await bench.port.appendFrames(claim, [{ payload }]);
  if (outcome.outcome !== 'appended') throw new Error(outcome.outcome);
  return outcome.lastId;
}

const payloadsOf = (read: StreamRead | undefined) => read?.frames.map(({ payload }) => payload);

/** Reads, and waits for a notification when there is nothing: one that comes in between is lost. */
async function naiveNext(source: StreamSource, bells: Bells, place: ReaderPlace): Promise<StreamRead> {
  const read = await source.after(place, place, 100);
  if (read!.frames.length > 0) return read!;
  await new Promise<void>((told) => {
    bells.watch(() => {
      told();
      return false;
    });
  });
  return (await source.after(place, place, 100))!;
}

describe('a frame that is written and announced between the read and the wait of a reader', () => {
  it('is read all the same', async () => {
    const claim = await bench.running();
    const source = watched('blind');
    const { hub, bells } = hubOn(source);
    source.meanwhile = async () => {
      await write(claim, 'x');
      bells.ring([parseExecutionId(claim.executionId).uuid]);
    };
    expect(payloadsOf(await hub.next(placeOf(claim)))).toEqual(['x']);
    expect(source.reads).toBe(2);
  });

  it('is missed by a reader that reads first and then waits', async () => {
    const claim = await bench.running();
    const source = watched('blind');
    const bells = new Bells();
    const { uuid } = parseExecutionId(claim.executionId);
    source.meanwhile = async () => {
      await write(claim, 'x');
      bells.ring([uuid]);
    };
    let isTold = false;
    const missing = naiveNext(source, bells, placeOf(claim)).then((read) => {
      isTold = true;
      return read;
    });
    await expect.poll(() => source.reads).toBe(1);
    await bench.engine.executions.describe(claim.executionId);
    expect(isTold).toBe(false);
    // Only the next one wakes it.
    await write(claim, 'y');
    bells.ring([uuid]);
    expect(payloadsOf(await missing)).toEqual(['x', 'y']);
  });

  it('is found by polling when nobody is notified', async () => {
    const claim = await bench.running();
    const source = watched('sees');
    const { hub, bells } = hubOn(source);
    source.meanwhile = () => write(claim, 'x').then(() => undefined);
    const next = hub.next(placeOf(claim));
    await expect.poll(() => source.reads).toBe(1);
    bells.ring('all');
    expect(payloadsOf(await next)).toEqual(['x']);
  });
});

describe('readers', () => {
  it('at one position are served by one read', async () => {
    const claim = await bench.running();
    const source = watched('blind');
    const { hub, bells } = hubOn(source);
    const waiting = Array.from({ length: 1_000 }, () => hub.next(placeOf(claim)));
    await expect.poll(() => source.reads).toBe(1);
    await write(claim, 'x');
    bells.ring([parseExecutionId(claim.executionId).uuid]);
    for (const read of await Promise.all(waiting)) expect(payloadsOf(read)).toEqual(['x']);
    expect(source.reads).toBe(2);
  });

  it('at different times before the first frame are not confused with each other', async () => {
    const claim = await bench.running();
    const first = await write(claim, 'early');
    await bench.database.moveClock(1_000);
    await write(claim, 'late');
    const { hub } = hubOn(watched('blind'));
    const after = Number(first.split('-')[0]) + 1;
    const [late, all] = await Promise.all([hub.next(placeOf(claim, after)), hub.next(placeOf(claim))]);
    expect([payloadsOf(late), payloadsOf(all)]).toEqual([['late'], ['early', 'late']]);
  });

  it('of an execution in another partition are not confused with its own', async () => {
    const claim = await bench.running();
    await write(claim, 'x');
    const { hub } = hubOn(watched('blind'));
    const wrong = placeOf({ executionId: misplaced(claim.executionId) });
    const [nobody, own] = await Promise.all([hub.next(wrong), hub.next(placeOf(claim))]);
    expect([nobody, payloadsOf(own)]).toEqual([undefined, ['x']]);
  });
});

describe('numbers that are used again because a crash lost live frames', () => {
  it('are new to a reader that has read them before', async () => {
    const claim = await bench.running();
    await write(claim, 'durable');
    const outcome = await bench.port.appendFrames(
      claim,
      ['1', '2', '3'].map((payload) => ({ payload, mode: 'best_effort' as const })),
    );
    const [tsMs, seq] = (outcome as { lastId: string }).lastId.split('-').map(Number) as [number, number];
    const { uuid } = parseExecutionId(claim.executionId);
    await bench.database.query(`DELETE FROM ff_frame WHERE execution_id = $1 AND mode = 'best_effort'`, [
      uuid,
    ]);
    await bench.database.query(
      'UPDATE ff_stream_meta SET last_seq = 1, live_count = 0 WHERE execution_id = $1',
      [uuid],
    );
    const source = watched('sees');
    const { hub, bells } = hubOn(source);
    const next = hub.next(placeOf(claim, tsMs, seq));
    await expect.poll(() => source.reads).toBe(1);
    await bench.database.moveClock(1_000);
    await write(claim, 'after the crash');
    bells.ring('all');
    expect(payloadsOf(await next)).toEqual(['after the crash']);
  });
});

describe('a call that waits', () => {
  /** An engine that counts how often it reads frames. */
  async function counting(): Promise<{ engine: Engine; reads: () => number }> {
    const pool = new pg.Pool({ connectionString: bench.database.url, max: 2 });
    pool.on('error', () => undefined);
    let reads = 0;
    const counted: PoolLike = {
      query(config) {
        if (config.text.includes('ff_read_frames')) reads += 1;
        return pool.query(config as pg.QueryConfig);
      },
    };
    const { engine } = await openEngine({ pool: counted, listen: 'off' });
    onTestFinished(async () => {
      await engine.close();
      await pool.end();
    });
    return { engine, reads: () => reads };
  }

  it('for frames after a time in the future does not poll again and again', async () => {
    const claim = await bench.running();
    await write(claim, 'x');
    const { engine, reads } = await counting();
    const after = '9000000000000-0';
    const page = await engine.streams.tailOnce(claim.executionId, { attemptIndex: 0, after, block: 100 });
    expect(page).toMatchObject({ frames: [], frameCount: 1, closed: null });
    // The second one when its time was over before the first returned.
    expect(reads()).toBeLessThanOrEqual(2);
  });

  it('reads no more often, however many wait', async () => {
    const claim = await bench.running();
    const { engine, reads } = await counting();
    const wait = (after: string) =>
      Array.from({ length: 300 }, () =>
        engine.streams.tailOnce(claim.executionId, { attemptIndex: 0, after, block: 20_000 }),
      );
    let after = '0-0';
    for (let frame = 1; frame <= 3; frame += 1) {
      const calls = wait(after);
      await expect.poll(reads).toBeGreaterThanOrEqual(frame);
      const outcome = await engine.worker.appendFrames(claim, [{ payload: `${frame}` }]);
      after = (outcome as { lastId: string }).lastId;
      for (const page of await Promise.all(calls)) expect(page.frames.map(({ id }) => id)).toEqual([after]);
    }
    // The first position is read on entry, and each frame once; twice when a poll comes before its hint.
    expect(reads()).toBeLessThanOrEqual(2 * 4);
  });

  it('for an attempt that will never begin does not wait', async () => {
    const id = await bench.submit();
    await bench.engine.cancel(id, { reason: 'why' });
    const { engine, reads } = await counting();
    const page = await engine.streams.tailOnce(id, { attemptIndex: 0, block: 20_000 });
    expect(page).toMatchObject({ frames: [], frameCount: 0 });
    expect(reads()).toBe(1);
  });
});
