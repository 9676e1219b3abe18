/**
 * What a process does for a contender when a scenario needs nothing special: install, submit, work. These run inside a
 * seat; all their arguments and results cross a process boundary.
 */
import { loadContender } from '../contenders/index.mjs';

const NEWS_EVERY_MS = 5;

/** Loads the module before the clock starts. */
export async function load({ contender }) {
  await loadContender(contender);
}

export async function prepare({ contender, target, settings }) {
  await (await loadContender(contender)).prepare(target, settings);
}

/**
 * Submits `count` jobs and returns how long it took. The first ones are not timed: they open connections and warm up
 * the code.
 */
export async function submitAll({ contender, target, count, warmUp, batch, callers }) {
  const producer = await (await loadContender(contender)).openProducer(target);
  try {
    await submitRange(producer, { first: 0, end: warmUp, batch, callers });
    const startedAt = performance.now();
    await submitRange(producer, { first: warmUp, end: warmUp + count, batch, callers });
    return { ms: performance.now() - startedAt };
  } finally {
    await producer.close();
  }
}

async function submitRange(producer, { first, end, batch, callers }) {
  let next = first;
  const caller = async () => {
    while (next < end) {
      const from = next;
      next = Math.min(next + batch, end);
      await producer.submitMany(from, next - from);
    }
  };
  await Promise.all(Array.from({ length: callers }, caller));
}

/** Starts a worker and from then on reports how many jobs it has begun. Returns when the worker is started. */
export async function startWorking({ contender, target, settings }, seat) {
  const loaded = await loadContender(contender);
  let runs = 0;
  let said = 0;
  seat.kept.news = setInterval(() => {
    if (runs === said) return;
    said = runs;
    seat.say({ runs });
  }, NEWS_EVERY_MS);
  seat.kept.worker = await loaded.startWorker(target, settings, () => {
    runs += 1;
  });
}

export async function stopWorking(_, seat) {
  clearInterval(seat.kept.news);
  await seat.kept.worker.stop();
}

/** Memory of this process, in bytes. */
export function memory() {
  return { rss: process.memoryUsage().rss };
}
