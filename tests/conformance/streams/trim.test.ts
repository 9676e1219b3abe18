/**
 * Best-effort frames are kept while they are recent: how many follows from their rate, within bounds, and the rest is
 * deleted from time to time in batches. Nothing else is ever trimmed, and the cost of an append does not grow with the
 * stream.
 */
import { describe, expect, it } from 'vitest';
import { parseExecutionId } from '../../../src/contract/ids.ts';
import type { FrameMode } from '../../../src/index.ts';
import type { Claim, BestEffortOptions } from '../../../src/protocol/index.ts';
import { buffersOf, mostRowsOf, openRecorder } from '../../plans/plan-recorder.ts';
import { useBench } from '../open.ts';

const bench = useBench();
const LEASE_MS = 30_000;

interface Meta {
  ema_rate_hz: number;
  ema_pending: number;
  live_count: number;
  maxlen_applied_last: number;
  last_seq: number;
}

async function metaOf({ executionId }: Claim): Promise<Meta> {
  const found = await bench.database.query<Meta>('SELECT * FROM ff_stream_meta WHERE execution_id = $1', [
    parseExecutionId(executionId).uuid,
  ]);
  return found.rows[0]!;
}

/** The clock stands still until a test moves it, so that several appends can share an instant. */
async function stopClock(): Promise<(ms: number) => Promise<void>> {
  const { rows } = await bench.database.query<{ def: string }>(
    `SELECT pg_get_functiondef('ff_now_ms'::regproc) AS def`,
  );
  const set = (ms: number) =>
    bench.database.query(
      `CREATE OR REPLACE FUNCTION ff_now_ms() RETURNS bigint LANGUAGE sql STABLE AS 'SELECT ${ms}::bigint'`,
    );
  restore = async () => void (await bench.database.query(rows[0]!.def));
  return async (ms) => void (await set(ms));
}
let restore = async (): Promise<void> => undefined;

async function withStoppedClock(work: (at: (ms: number) => Promise<void>) => Promise<void>): Promise<void> {
  const { rows } = await bench.database.query<{ now: number }>('SELECT ff_now_ms() AS now');
  const set = await stopClock();
  try {
    await work((ms) => set(rows[0]!.now + ms));
  } finally {
    await restore();
  }
}

const some = (count: number, mode: FrameMode = 'best_effort') =>
  Array.from({ length: count }, (_, n) => ({ payload: `${n}`, mode }));

async function live(claim: Claim, count: number, bestEffort: BestEffortOptions = {}): Promise<Meta> {
  const outcome = await bench.port.appendFrames(claim, some(count), { bestEffort });
  expect(outcome).toMatchObject({ outcome: 'appended' });
  return metaOf(claim);
}

async function keptOf({ executionId }: Claim): Promise<string[]> {
  const { frames } = await bench.engine.streams.read(executionId, { limit: 10_000 });
  return frames.map(({ mode }) => mode);
}

/** The formula of the specification. */
const kept = (hz: number, ttlMs: number, floor: number, ceiling: number): number =>
  Math.min(Math.max(2 * Math.ceil((hz * ttlMs) / 1_000), floor), ceiling);

describe('the rate of frames', () => {
  it('is a moving average of the rates since the last append, and determines how many are kept', () =>
    withStoppedClock(async (at) => {
      const terms = { ttlMs: 3_000, floor: 2, ceiling: 1_000, alpha: 0.5 };
      const claim = await bench.running();
      await at(0);
      expect(await live(claim, 1, terms)).toMatchObject({ ema_rate_hz: 0, maxlen_applied_last: 2 });
      for (const [ms, frames] of [
        [100, 1],
        [200, 1],
        [300, 5],
        [1_300, 1],
        [1_333, 2],
      ] as const) {
        const before = await metaOf(claim);
        await at(ms);
        const { ema_rate_hz, maxlen_applied_last } = await live(claim, frames, terms);
        const sinceMs = { 100: 100, 200: 100, 300: 100, 1300: 1_000, 1333: 33 }[ms];
        const ema = 0.5 * ((1_000 * frames) / sinceMs) + 0.5 * before.ema_rate_hz;
        expect(ema_rate_hz).toBeCloseTo(ema, 9);
        expect(maxlen_applied_last).toBe(kept(ema, 3_000, 2, 1_000));
      }
    }));

  it('includes a burst within one instant: it counts with the next append', () =>
    withStoppedClock(async (at) => {
      const terms = { ttlMs: 1_000, floor: 1, ceiling: 100_000, alpha: 1 };
      const claim = await bench.running();
      await at(0);
      await live(claim, 1, terms);
      await at(10);
      expect(await live(claim, 10, terms)).toMatchObject({ ema_rate_hz: 1_000 });
      for (let n = 0; n < 3; n += 1) await live(claim, 10, terms);
      expect(await metaOf(claim)).toMatchObject({ ema_rate_hz: 1_000, ema_pending: 30 });
      await at(20);
      // Four times ten in ten milliseconds.
      expect(await live(claim, 10, terms)).toMatchObject({
        ema_rate_hz: 4_000,
        ema_pending: 0,
        maxlen_applied_last: 8_000,
      });
    }));

  it('stays sane when the clock goes back', () =>
    withStoppedClock(async (at) => {
      const claim = await bench.running();
      await at(1_000);
      await live(claim, 1);
      await at(0);
      expect(await live(claim, 5)).toMatchObject({ ema_rate_hz: 0, ema_pending: 5 });
      await at(2_000);
      const { ema_rate_hz } = await live(claim, 5);
      expect(ema_rate_hz).toBeCloseTo(0.2 * 10, 9);
    }));

  it('is not affected by frames of other modes', () =>
    withStoppedClock(async (at) => {
      const claim = await bench.running();
      await at(0);
      await live(claim, 1);
      await at(5);
      await bench.port.appendFrames(claim, some(100, 'durable'));
      expect(await metaOf(claim)).toMatchObject({ ema_rate_hz: 0, ema_pending: 0, live_count: 1 });
    }));
});

describe('the number of kept frames', () => {
  it.each([
    ['is never below the floor', { ttlMs: 1_000, floor: 10, ceiling: 1_000, alpha: 1 }, 600_000, 10],
    ['is never above the ceiling', { ttlMs: 3_600_000, floor: 10, ceiling: 20, alpha: 1 }, 1, 20],
    ['may be fixed by floor and ceiling', { ttlMs: 5_000, floor: 7, ceiling: 7 }, 1, 7],
  ])('%s', (_, terms, laterMs, expected) =>
    withStoppedClock(async (at) => {
      const claim = await bench.running();
      await bench.port.renew([claim], 2 * laterMs + LEASE_MS);
      await at(0);
      await live(claim, 1, terms);
      await at(laterMs);
      // The frames of the current append are kept as far as there is room.
      await live(claim, 500, terms);
      await at(2 * laterMs);
      expect(await live(claim, expected, terms)).toMatchObject({
        maxlen_applied_last: expected,
        live_count: expected,
        last_seq: 501 + expected,
      });
      expect(await keptOf(claim)).toHaveLength(expected);
    }),
  );
});

describe('trimming', () => {
  const TERMS = { ttlMs: 1, floor: 8, ceiling: 8 };

  it('deletes only best-effort frames, the oldest first, and reports exactly what is left', async () => {
    const claim = await bench.running();
    await bench.port.appendFrames(
      claim,
      [
        { payload: 'kept' },
        { payload: { a: 1 }, mode: 'summary' },
        ...some(30),
        { payload: 'kept too' },
        ...some(30),
      ],
      { bestEffort: TERMS },
    );
    expect(await keptOf(claim)).toEqual(['durable', 'summary', 'durable', ...Array(8).fill('best_effort')]);
    expect(await metaOf(claim)).toMatchObject({ live_count: 8, last_seq: 63 });
    const page = await bench.engine.streams.read(claim.executionId, { direction: 'backward', limit: 1 });
    expect(page).toMatchObject({ frameCount: 63, frames: [{ payload: '29' }] });
    expect((await bench.engine.streams.readSummary(claim.executionId))!.document).toEqual({ a: 1 });
  });

  it('happens from time to time: between the kept number and a quarter more are stored', async () => {
    const claim = await bench.running();
    const seen: number[] = [];
    for (let n = 0; n < 20; n += 1) {
      const { live_count } = await live(claim, 1, TERMS);
      seen.push(live_count);
      expect((await keptOf(claim)).length).toBe(live_count);
    }
    // Every third append beyond the limit.
    expect(seen).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 8, 9, 10, 8, 9, 10, 8, 9, 10, 8]);
  });
});

interface Costs {
  buffers: number;
  rows: number;
}

/** The most that one append touches in a stream with this many frames. */
async function costsBeside(frames: number): Promise<Record<'durable' | 'best_effort', Costs>> {
  const claim = await bench.running();
  await live(claim, 64);
  const { partition, uuid } = parseExecutionId(claim.executionId);
  await bench.database.query(
    `INSERT INTO ff_frame (execution_id, ts_ms, seq, lease_epoch, attempt_index, partition_key, mode, encoding, frame_type, payload)
     SELECT $1, 1, n, 1, 0, $2, 'durable', 'text', 'event', 'x' FROM generate_series(1, $3::integer) n`,
    [uuid, partition, frames],
  );
  const recorder = await openRecorder(bench.database, 'counted');
  const append = (mode: FrameMode) =>
    recorder.client.query(
      `SELECT * FROM ff_append_frames($1, $2, $3, $4, gen_random_uuid(), ARRAY[$5], '{text}', '{event}', '{NULL}', '{NULL}', '{NULL}', '{NULL}',
         ARRAY['x'::bytea], 1, 64, 64, 0.2, 1000000)`,
      [uuid, partition, claim.attemptIndex, claim.leaseEpoch, mode],
    );
  const costs = { durable: { buffers: 0, rows: 0 }, best_effort: { buffers: 0, rows: 0 } };
  for (const mode of ['durable', 'best_effort'] as const) {
    // The first call of a connection also reads the catalogue for its plans. One of the others trims.
    for (let n = 0; n < 20; n += 1) await append(mode);
    for (let n = 0; n < 20; n += 1) {
      const plans = await recorder.record(() => append(mode));
      costs[mode].buffers = Math.max(costs[mode].buffers, buffersOf(plans));
      costs[mode].rows = Math.max(costs[mode].rows, mostRowsOf(plans).rows);
    }
  }
  await recorder.client.end();
  return costs;
}

describe('an append to a stream of 100,000 frames', () => {
  it('touches no more than one to a stream of 100', async () => {
    const few = await costsBeside(100);
    const many = await costsBeside(100_000);
    expect(many.durable.rows).toBe(few.durable.rows);
    expect(many.durable.rows).toBeLessThanOrEqual(2);
    // Trimming reads the kept frames, and a quarter more.
    expect(many.best_effort.rows).toBe(few.best_effort.rows);
    expect(many.best_effort.rows).toBeLessThanOrEqual(2 * 80);
    // The index of 100,000 is two levels deeper.
    expect(many.durable.buffers).toBeLessThanOrEqual(few.durable.buffers + 10);
    expect(many.best_effort.buffers).toBeLessThanOrEqual(few.best_effort.buffers + 60);
  });
});
