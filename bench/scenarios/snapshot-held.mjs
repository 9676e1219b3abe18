/**
 * Sustained submit and drain while another session of the database holds a snapshot open, as a long report or a
 * forgotten transaction does: dead rows cannot be removed. Compare it with the same load without.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { loadContender } from '../contenders/index.mjs';
import { withStore } from '../harness/draining.mjs';
import { withSeats } from '../harness/seats.mjs';
import { settleStore, withClient } from '../harness/stores.mjs';
import { fast, keyOf, pairs } from './cases.mjs';

const FOR_MS = { quick: 6_000, full: 30_000 };
const ALL = 100_000;
const BATCH = 500;
/** The backlog is kept below this, so that the queue is never empty and never long. */
const BACKLOG_MAX = 4_000;
const FULL_WAIT_MS = 1;
/** The share at the end of the time that is reported separately: by then there are the most dead rows. */
const LAST_SHARE = 1 / 3;

/** In a seat: submits and works at once for a time; returns the rates over all of it and over its last part. */
export async function sustain({ contender, target, settings, forMs }) {
  const loaded = await loadContender(contender);
  let begun = 0;
  let submitted = 0;
  const worker = await loaded.startWorker(target, settings, () => {
    begun += 1;
  });
  const producer = await loaded.openProducer(target);
  const startedAt = performance.now();
  const elapsed = () => performance.now() - startedAt;
  const produce = async () => {
    while (elapsed() < forMs) {
      if (submitted - begun >= BACKLOG_MAX) {
        await delay(FULL_WAIT_MS);
        continue;
      }
      submitted += BATCH;
      await producer.submitMany(submitted - BATCH, BATCH);
    }
  };
  try {
    const lastFrom = delay(forMs * (1 - LAST_SHARE)).then(() => ({ begun, at: elapsed() }));
    const end = delay(forMs).then(() => ({ begun, at: elapsed() }));
    await Promise.all([produce(), end]);
    const [from, to] = [await lastFrom, await end];
    return {
      'jobs/s': (to.begun / to.at) * 1_000,
      'jobs/s, last third': ((to.begun - from.begun) / (to.at - from.at)) * 1_000,
    };
  } finally {
    await producer.close();
    await worker.stop();
  }
}

async function withSnapshot(store, state, work) {
  if (state === 'free') return work();
  return withClient(store.url, async (client) => {
    await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ');
    await client.query('SELECT count(*) FROM pg_class');
    return work();
  });
}

function casesOf(bench) {
  const list = fast(pairs(bench, 'batched'), ALL).filter(({ contender }) => contender.store === 'postgres');
  const firsts = list.filter(
    (pair, index) => list.findIndex((one) => one.contender === pair.contender) === index,
  );
  const chosen =
    bench.options.size === 'quick' ? firsts.filter(({ contender }) => contender.side === 'ours') : firsts;
  const seconds = FOR_MS[bench.options.size] / 1_000;
  const keyIn = (state, pair) => keyOf(state, pair.contender.name);
  return ['free', 'held'].flatMap((state) =>
    chosen.map((pair) => ({
      ...pair,
      key: keyIn(state, pair),
      group: `${seconds} s, ${state === 'free' ? 'no snapshot held' : 'a snapshot held all the time'}`,
      state,
      ...(state === 'free'
        ? {}
        : { relativeTo: { key: keyIn('free', pair), label: 'held ÷ free, last third' } }),
    })),
  );
}

/** @type {import('../harness/runner.mjs').Scenario} */
export const snapshotHeld = {
  name: 'snapshot-held',
  title: 'Submit and work while a snapshot is held',
  metrics: [
    { name: 'jobs/s, last third', better: 'higher' },
    { name: 'jobs/s', better: 'higher' },
  ],
  cases: casesOf,
  run: (one, bench) =>
    withStore(bench, one, async (store) => {
      await settleStore(store, 'analysed');
      const order = { contender: one.contender.name, target: store, settings: one.variant.settings };
      const forMs = FOR_MS[bench.options.size];
      const work = () => withSeats(1, ([seat]) => seat.call(import.meta.url, 'sustain', { ...order, forMs }));
      return bench.watched(() => withSnapshot(store, one.state, work));
    }),
};
