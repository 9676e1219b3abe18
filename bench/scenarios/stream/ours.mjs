/**
 * Writes and follows streams through the public interface. Everything here runs in a seat. Writers listen, as workers
 * do: that is how they learn of followers.
 */
import { connect, handle, startWorker, task } from '../../../dist/index.js';
import { workerPort } from '../../../dist/protocol/index.js';
import { Arrivals, FRAME_BYTES, numbered, paced, timedCallers, timedCalls } from './timing.mjs';

const KIND = 'bench';
const LEASE_MS = 3_600_000;
const CLAIM_MAX = 1_000;
const FILL = 1_000;
const WARM_UP = 200;
const TEXT = 'x'.repeat(FRAME_BYTES);

function frames(count, mode) {
  return Array.from({ length: count }, () => ({ payload: TEXT, mode }));
}

async function appended(answer) {
  const { outcome } = await answer;
  if (outcome !== 'appended') throw new Error(`An append was answered ${outcome}.`);
}

/** Keeps as many best-effort frames as there are at the start. */
function optionsFor({ mode, present }) {
  if (mode !== 'best_effort' || present === 0) return {};
  return { bestEffort: { ttlMs: 1, floor: present, ceiling: present } };
}

/**
 * Opens a connection, claims executions, and writes the frames that must exist before the clock starts. The last one is
 * for warming up.
 */
export async function hold({ target, streams, present = 0, mode = 'durable', poolSize = 10 }, seat) {
  const engine = await connect({ databaseUrl: target.url, reconcile: 'off', poolSize });
  const count = streams + 1;
  await engine.executions.submit(Array.from({ length: count }, () => ({ kind: KIND })));
  const held = [];
  while (held.length < count) {
    const request = { workerId: 'bench', workerInstanceId: `bench-${process.pid}`, kinds: [KIND] };
    const limit = Math.min(CLAIM_MAX, count - held.length);
    const { claims } = await workerPort(engine).claim({ ...request, limit, leaseMs: LEASE_MS });
    if (claims.length === 0) throw new Error(`${held.length} of ${count} executions could be claimed.`);
    held.push(...claims);
  }
  const options = optionsFor({ mode, present });
  for (const lease of held) {
    for (let left = present; left > 0; left -= FILL)
      await appended(workerPort(engine).appendFrames(lease, frames(Math.min(left, FILL), mode), options));
  }
  Object.assign(seat.kept, { engine, held });
  return held.slice(0, streams).map((lease) => lease.executionId);
}

/** Appends to the held streams in turn. */
export async function append({ calls, perCall, mode, present = 0 }, seat) {
  const { engine, held } = seat.kept;
  const options = optionsFor({ mode, present });
  const batch = frames(perCall, mode);
  const warmUp = held.at(-1);
  const streams = held.slice(0, -1);
  for (let n = 0; n < WARM_UP; n += 1)
    await appended(workerPort(engine).appendFrames(warmUp, batch, options));
  const figures = await timedCalls({ calls, perCall }, (n) =>
    appended(workerPort(engine).appendFrames(streams[n % streams.length], batch, options)),
  );
  await engine.close();
  return figures;
}

/**
 * Appends to all held streams at the same time: a caller for each, which awaits every frame. Followers count only what
 * is sent after the warm-up.
 */
export async function appendTogether({ calls }, seat) {
  const { engine, held } = seat.kept;
  const streams = held.slice(0, -1);
  const callers = streams.length;
  const calling = (frame) => (place) => appended(workerPort(engine).appendFrames(streams[place], [frame]));
  await timedCallers({ calls: WARM_UP * callers, callers }, calling({ payload: TEXT }));
  const figures = await timedCallers({ calls, callers }, calling({ payload: numbered(0, 0) }));
  await engine.close();
  return figures;
}

/** Handlers that each write one chunk after the other and await each write: the worker batches them. */
export async function writeInHandlers({ target, count, handlers }) {
  const engine = await connect({ databaseUrl: target.url });
  const writing = task('writing');
  const worker = startWorker(engine, {
    concurrency: handlers,
    handlers: [
      handle(writing, async (_, ctx) => {
        for (let n = 0; n < WARM_UP; n += 1) await ctx.stream.write(TEXT);
        await ctx.stream.flush();
        const startedAt = performance.now();
        for (let n = 0; n < count; n += 1) await ctx.stream.write(TEXT);
        await ctx.stream.flush();
        return { startedAt, endedAt: performance.now() };
      }),
    ],
  });
  try {
    const runs = await Promise.all(Array.from({ length: handlers }, () => engine.submit(writing, null)));
    const times = await Promise.all(runs.map((run) => run.result()));
    for (const { executionId } of runs) {
      const { frameCount } = await engine.streams.read(executionId, { limit: 1 });
      if (frameCount !== WARM_UP + count) throw new Error(`${frameCount} frames are there.`);
    }
    const ms =
      Math.max(...times.map(({ endedAt }) => endedAt)) - Math.min(...times.map(({ startedAt }) => startedAt));
    return { 'frames/s': ((count * handlers) / ms) * 1_000 };
  } finally {
    await worker.stop();
    await engine.close();
  }
}

/** Writes to the held streams in turn. */
export async function writePaced({ count, perSecond }, seat) {
  const { engine, held } = seat.kept;
  const streams = held.slice(0, -1);
  await paced({ count, perSecond }, (n, payload) =>
    appended(workerPort(engine).appendFrames(streams[n % streams.length], [{ payload }])),
  );
  await engine.close();
}

/** Follows each of the executions this many times. Returns when every tail has read the existing frame. */
export async function follow({ target, ids, tailsEach, skipped }, seat) {
  const engine = await connect({ databaseUrl: target.url, reconcile: 'off' });
  const arrivals = new Arrivals(skipped);
  const stop = new AbortController();
  const tail = async (id, onReady) => {
    for await (const item of engine.streams.tail(id, { signal: stop.signal }))
      if (item.type !== 'frame') continue;
      else if (item.frame.payload === TEXT) onReady();
      else arrivals.take(item.frame.payload);
  };
  const tails = [];
  const ready = ids.flatMap((id) =>
    Array.from({ length: tailsEach }, () => new Promise((resolve) => tails.push(tail(id, resolve)))),
  );
  Object.assign(seat.kept, { engine, arrivals, stop, ended: Promise.allSettled(tails) });
  await Promise.all(ready);
}

export async function received({ expected }, seat) {
  const { engine, arrivals, stop, ended } = seat.kept;
  const figures = await arrivals.figures(expected);
  stop.abort();
  await ended;
  await engine.close();
  return figures;
}
