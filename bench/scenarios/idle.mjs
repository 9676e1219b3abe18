/**
 * What an idle worker costs: transactions per second in its database (each of an idle worker's statements is its own
 * transaction) and the memory of its process. Every contender is started as its manual says.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { ROLES, withStore } from '../harness/draining.mjs';
import { withSeats } from '../harness/seats.mjs';
import { withClient } from '../harness/stores.mjs';
import { keyOf, pairs } from './cases.mjs';

const FOR_MS = { quick: 6_000, full: 20_000 };
/** Start-up is over by then, and the server has counted it. */
const SETTLE_MS = { quick: 3_000, full: 12_000 };
const MIB = 1024 ** 2;

/** Queried from another database, so that the query itself is not counted. */
function transactions(bench, store) {
  return withClient(bench.stores.serverUrl, async (client) => {
    const { rows } = await client.query(
      'SELECT xact_commit + xact_rollback AS count FROM pg_stat_database WHERE datname = $1',
      [store.name],
    );
    return Number(rows[0].count);
  });
}

async function idleFor(one, bench, store) {
  const { size } = bench.options;
  const order = { contender: one.contender.name, target: store, settings: one.variant.settings };
  return withSeats(1, async ([seat]) => {
    await seat.call(ROLES, 'startWorking', order);
    await delay(SETTLE_MS[size]);
    const before = await transactions(bench, store);
    await bench.watched(() => delay(FOR_MS[size]));
    const after = await transactions(bench, store);
    const { rss } = await seat.call(ROLES, 'memory', {});
    await seat.call(ROLES, 'stopWorking', {});
    return { 'transactions/s': ((after - before) / FOR_MS[size]) * 1_000, 'MiB RSS': rss / MIB };
  });
}

/** @type {import('../harness/runner.mjs').Scenario} */
export const idle = {
  name: 'idle',
  title: 'A worker with nothing to do',
  metrics: [
    { name: 'transactions/s', better: 'lower' },
    { name: 'MiB RSS', better: 'lower' },
  ],
  cases: (bench) =>
    pairs(bench, 'default')
      .filter(({ contender }) => contender.store === 'postgres')
      .map((pair) => ({
        ...pair,
        key: keyOf(pair.contender.name),
        group: `one idle worker process, ${FOR_MS[bench.options.size] / 1_000} s`,
      })),
  run: (one, bench) => withStore(bench, one, (store) => idleFor(one, bench, store)),
};
