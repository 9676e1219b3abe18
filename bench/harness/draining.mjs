/**
 * The measurement most scenarios consist of: submit everything, bring the store into a known state, then start the
 * workers and stop the clock when the end of every job is durable.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { sum } from './figures.mjs';
import { openSeat, withSeats } from './seats.mjs';
import { neverAnalyse, settleStore } from './stores.mjs';

export const ROLES = new URL('roles.mjs', import.meta.url);
const PROBE_EVERY_MS = 5;
const DRAIN_LIMIT_MS = 120_000;
const BATCH = 1_000;

/** Runs a function with a separate store, prepared for a case or copied from a prepared one. */
export async function withStore(bench, { contender, variant, template }, run) {
  const store = await bench.stores.create(contender, template);
  try {
    if (template === undefined) {
      const order = { contender: contender.name, target: store, settings: variant?.settings };
      await withSeats(1, ([seat]) => seat.call(ROLES, 'prepare', order));
    }
    return await run(store);
  } finally {
    await bench.stores.drop(store);
  }
}

/** Submits jobs in the contender's own best way; returns the milliseconds. */
export async function submit(contender, store, { count, warmUp = 0, batch = BATCH, callers = 2 }) {
  const plan = {
    count,
    warmUp,
    batch: contender.bulk.batch ?? batch,
    callers: contender.bulk.callers ?? callers,
  };
  const { ms } = await withSeats(1, ([seat]) =>
    seat.call(ROLES, 'submitAll', { contender: contender.name, target: store, ...plan }),
  );
  return ms;
}

/**
 * One drain: returns jobs per second.
 * @param {object} drain
 * @param {import('../contenders/contract.mjs').Contender} drain.contender
 * @param {import('../contenders/contract.mjs').Variant} drain.variant
 * @param {number} drain.count
 * @param {number} drain.processes
 * @param {'analysed' | 'never-analysed'} drain.statistics
 * @param {(store: object, drain: () => Promise<number>) => Promise<number>} [drain.beside] Starts what runs beside the
 *   drain, runs it, and returns its milliseconds.
 */
export async function drainOnce(bench, plan) {
  const { contender, variant, count, processes, statistics, template, beside = alone } = plan;
  const run = async (store) => {
    if (statistics === 'never-analysed') await neverAnalyse(store);
    const probe = await contender.openProbe(store);
    try {
      const before = await probe.finished();
      await submit(contender, store, { count });
      await settleStore(store, statistics);
      const drain = () => timedDrain({ contender, variant, count, processes, store, probe });
      const ms = await bench.watched(() => beside(store, drain));
      await checkFinished(probe, before, count);
      return { 'jobs/s': (count / ms) * 1_000 };
    } finally {
      await probe.close();
    }
  };
  return withStore(bench, { contender, variant, template }, run);
}

function alone(_, drain) {
  return drain();
}

async function checkFinished(probe, before, count) {
  const finished = await probe.finished();
  if (finished === null || finished - before === count) return;
  throw new Error(`${count} jobs were submitted and ${finished - before} are kept as finished.`);
}

async function timedDrain({ contender, variant, count, processes, store, probe }) {
  const seats = Array.from({ length: processes }, openSeat);
  try {
    const runs = seats.map(() => 0);
    const total = () => sum(runs);
    const allRun = new Promise((resolve) => {
      seats.forEach((seat, index) =>
        seat.onNews((news) => {
          runs[index] = news.runs;
          if (total() >= count) resolve();
        }),
      );
    });
    const order = { contender: contender.name, target: store, settings: variant.settings };
    await Promise.all(seats.map((seat) => seat.call(ROLES, 'load', order)));
    const startedAt = performance.now();
    const started = Promise.all(seats.map((seat) => seat.call(ROLES, 'startWorking', order)));
    const finished = Promise.all([started, allRun]);
    await inTime(finished, () => `${total()} of ${count} jobs had run`);
    while ((await probe.unsettled()) > 0) {
      if (performance.now() - startedAt > DRAIN_LIMIT_MS) throw new Error('The last jobs are never settled.');
      await delay(PROBE_EVERY_MS);
    }
    const ms = performance.now() - startedAt;
    await Promise.all(seats.map((seat) => seat.call(ROLES, 'stopWorking', {})));
    return ms;
  } finally {
    await Promise.all(seats.map((seat) => seat.close()));
  }
}

async function inTime(work, progress) {
  let timer;
  const limit = new Promise((_, reject) => {
    timer = setTimeout(
      () => reject(new Error(`Not drained in ${DRAIN_LIMIT_MS} ms: ${progress()}.`)),
      DRAIN_LIMIT_MS,
    );
  });
  try {
    await Promise.race([work, limit]);
  } finally {
    clearTimeout(timer);
  }
}
