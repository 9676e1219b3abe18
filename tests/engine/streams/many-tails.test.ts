/**
 * Ten thousand tails in one process: which connections they use while they are parked, and how often the database is
 * read for all of them when something is written elsewhere. What a single tail yields is in the conformance tests.
 */
import pg from 'pg';
import { expect, it, onTestFinished } from 'vitest';
import { openEngine, type Engine } from '../../../src/engine/open.ts';
import type { Claim } from '../../../src/protocol/index.ts';
import type { StreamItem } from '../../../src/index.ts';
import type { PoolLike } from '../../../src/engine/database/database.ts';
import { useBench } from '../../conformance/open.ts';
import { patiently } from '../../setup/patience.ts';

const TAILS = 10_000;
const STREAMS = 8;
const POOL = 3;
const ROUNDS = 3;
/** After this many rounds, a poll in every round is no longer chance. */
const MOST_ROUNDS = 20;
/** Slow when the machine is busy with other tests. */
const BUSY = { timeout: patiently(90_000) };
const SOON = { timeout: patiently(20_000), interval: 15 };
/** The connections of the engine that tails; the one that writes has others. */
const NAMES = { pool: 'tails pool', listener: 'tails listener' };
/** Once per stream; twice for a stream that a poll finds before its hint arrives. */
const MOST_READS = 2 * STREAMS;

const bench = useBench();

function urlAs(name: string): string {
  const url = new URL(bench.database.url);
  url.searchParams.set('application_name', name);
  return url.href;
}

interface Following {
  engine: Engine;
  pool: pg.Pool;
  /** Statements so far that read frames, or something about them. */
  reads(): number;
}

async function openFollowing(): Promise<Following> {
  const pool = new pg.Pool({ connectionString: urlAs(NAMES.pool), max: POOL });
  pool.on('error', () => undefined);
  let reads = 0;
  const counted: PoolLike = {
    query(config) {
      if (config.text.includes('ff_read_frames')) reads += 1;
      return pool.query(config as pg.QueryConfig);
    },
  };
  const { engine } = await openEngine({ pool: counted, listenUrl: urlAs(NAMES.listener) });
  onTestFinished(async () => {
    await engine.close();
    await pool.end();
  });
  return { engine, pool, reads: () => reads };
}

async function connectionsAs(name: string): Promise<{ isIdle: boolean }[]> {
  const found = await bench.database.query<{ isIdle: boolean }>(
    `SELECT state = 'idle' AND xact_start IS NULL AS "isIdle" FROM pg_stat_activity
     WHERE datname = current_database() AND application_name = $1`,
    [name],
  );
  return found.rows;
}

/** One connection listens, and no connection of the pool is in use: all of them can be taken. */
async function expectNothingHeld(pool: pg.Pool): Promise<void> {
  // From time to time one is used briefly to poll all streams.
  const held = async () => [...(await connectionsAs(NAMES.pool)), ...(await connectionsAs(NAMES.listener))];
  await expect.poll(async () => (await held()).filter(({ isIdle }) => !isIdle), SOON).toEqual([]);
  expect(await connectionsAs(NAMES.listener)).toHaveLength(1);
  expect((await connectionsAs(NAMES.pool)).length).toBeLessThanOrEqual(POOL);
  const taken = await Promise.all(Array.from({ length: POOL }, () => pool.connect()));
  for (const client of taken) client.release();
}

/** Frames by their payload, everything else by its type. */
async function follow(items: AsyncIterable<StreamItem>, told: string[]): Promise<void> {
  for await (const item of items) told.push(item.type === 'frame' ? String(item.frame.payload) : item.type);
}

async function write(claims: readonly Claim[], ...payloads: string[]): Promise<void> {
  const frames = payloads.map((payload) => ({ payload }));
  for (const outcome of await Promise.all(claims.map((claim) => bench.port.appendFrames(claim, frames))))
    expect(outcome).toMatchObject({ outcome: 'appended' });
}

it('10,000 parked tails use one listening connection, and share one read of a stream', BUSY, async () => {
  const claims = await Promise.all(Array.from({ length: STREAMS }, () => bench.running()));
  await bench.port.renew(claims, patiently(600_000));
  const { engine, pool, reads } = await openFollowing();
  const told = Array.from({ length: TAILS }, (): string[] => []);
  const tails = told.map((own, n) => follow(engine.streams.tail(claims[n % STREAMS]!.executionId), own));
  const following = Promise.all(tails);
  following.catch(() => undefined); // awaited at the end; until then a failed one shows as missing items
  await expect.poll(() => connectionsAs(NAMES.listener), SOON).toHaveLength(1);
  await expect.poll(reads, SOON).toBe(STREAMS);
  await expectNothingHeld(pool);
  // A stream without news is not read again.
  expect(reads()).toBe(STREAMS);

  const written: string[] = [];
  const readsOf: number[] = [];
  const isEnough = () => readsOf.length >= ROUNDS && Math.min(...readsOf) === STREAMS;
  for (let round = 0; round < MOST_ROUNDS && !isEnough(); round += 1) {
    const before = reads();
    const payloads = [`${round} first`, `${round} second`];
    written.push(...payloads);
    await write(claims, ...payloads);
    await expect.poll(() => told.filter((own) => own.length < written.length).length, SOON).toBe(0);
    await expectNothingHeld(pool);
    readsOf.push(reads() - before);
  }
  expect(Math.max(...readsOf)).toBeLessThanOrEqual(MOST_READS);
  // Some round has no poll in between.
  expect(Math.min(...readsOf)).toBe(STREAMS);

  const before = reads();
  await Promise.all(claims.map((claim) => bench.port.complete(claim)));
  await following;
  expect(reads() - before).toBeLessThanOrEqual(MOST_READS);
  const all = JSON.stringify([...written, 'closed']);
  expect(told.map((own) => JSON.stringify(own)).filter((own) => own !== all)).toEqual([]);
});
