/**
 * Redis streams, if Redis is installed: XADD and XREAD BLOCK. Its log is flushed once a second. Everything here runs in
 * a seat.
 */
import { Redis } from 'ioredis';
import { Arrivals, FRAME_BYTES, paced, timedCalls } from './timing.mjs';

const WARM_UP = 200;
const STREAM = 'stream';
const BLOCK_MS = 1_000;
const TEXT = 'x'.repeat(FRAME_BYTES);

async function addMany(redis, count) {
  const pipeline = redis.pipeline();
  for (let n = 0; n < count; n += 1) pipeline.xadd(STREAM, '*', 'payload', TEXT);
  const failed = (await pipeline.exec()).find(([error]) => error !== null);
  if (failed !== undefined) throw failed[0];
}

export async function append({ target, calls, perCall }) {
  const redis = new Redis(target.url);
  const call = () => (perCall === 1 ? redis.xadd(STREAM, '*', 'payload', TEXT) : addMany(redis, perCall));
  try {
    for (let n = 0; n < WARM_UP; n += 1) await call();
    return await timedCalls({ calls, perCall }, call);
  } finally {
    redis.disconnect();
  }
}

export async function writePaced({ target, count, perSecond }) {
  const redis = new Redis(target.url);
  await paced({ count, perSecond }, (_, payload) => redis.xadd(STREAM, '*', 'payload', payload));
  redis.disconnect();
}

export async function follow({ target, skipped }, seat) {
  const redis = new Redis(target.url);
  const arrivals = new Arrivals(skipped);
  const stop = new AbortController();
  const read = async () => {
    for (let last = '0-0'; !stop.signal.aborted;) {
      const [[, entries]] = (await redis.xread('BLOCK', BLOCK_MS, 'STREAMS', STREAM, last)) ?? [[STREAM, []]];
      for (const [id, [, payload]] of entries) {
        arrivals.take(payload);
        last = id;
      }
    }
  };
  Object.assign(seat.kept, { redis, arrivals, stop, ended: read() });
}

export async function received({ expected }, seat) {
  const { redis, arrivals, stop, ended } = seat.kept;
  const figures = await arrivals.figures(expected);
  stop.abort();
  await ended;
  redis.disconnect();
  return figures;
}
