/**
 * How fast a subscriber reads an existing log. The log is written through the engine while a subscriber follows it, so
 * that positions are assigned as in use; the database is then copied for every sample.
 */
import { withStore } from '../../harness/draining.mjs';
import { withSeats } from '../../harness/seats.mjs';
import { settleStore } from '../../harness/stores.mjs';
import { keyOf } from '../cases.mjs';

const READERS = new URL('readers.mjs', import.meta.url);
const LEASES = new URL('leases.mjs', import.meta.url);
const PER_COMMIT = 100;
const FILTERS = { all: {}, selective: { tags: { found: 'rarely' } } };

/** The first event of each lease is its grant, the others are renewals. */
function write(store, { leases, rounds }) {
  return withSeats(2, async ([writer, subscriber]) => {
    await subscriber.call(READERS, 'followAll', { target: store, readers: 1 });
    await writer.call(LEASES, 'hold', { target: store, count: leases });
    await writer.call(LEASES, 'renewRounds', { rounds: rounds - 1, batch: PER_COMMIT });
    await subscriber.call(READERS, 'receivedByAll', { count: leases * rounds });
  });
}

/** The written log, created on first use; it stays until the run ends. */
function written(bench, one) {
  const key = keyOf('feed', one.leases, one.rounds);
  if (!bench.made.has(key)) bench.made.set(key, makeWritten(bench, one));
  return bench.made.get(key);
}

function makeWritten(bench, one) {
  // A copy outlives the store it was made from, and has no connections.
  return withStore(bench, { contender: one.contender }, async (store) => {
    await write(store, one);
    return (await bench.stores.create(one.contender, store.name)).name;
  });
}

export async function catchUpRate(one, bench) {
  const template = await written(bench, one);
  return withStore(bench, { contender: one.contender, template }, async (store) => {
    await settleStore(store, 'analysed');
    const count = one.filter === 'all' ? one.events : one.rounds;
    const read = await withSeats(1, async ([seat]) => {
      await seat.call(READERS, 'openConnection', { target: store });
      return bench.watched(() => seat.call(READERS, 'catchUp', { filter: FILTERS[one.filter], count }));
    });
    check(one, read, count);
    return { 'events/s passed': (read.passed / read.ms) * 1_000 };
  });
}

/** The last event passed is the last that matched: in the last round of the log, or something was missed. */
function check(one, { received, gaps, passed }, count) {
  if (received !== count) throw new Error(`${received} events were received, not ${count}.`);
  if (one.filter === 'all' && gaps > 0) throw new Error(`${gaps} positions did not follow the one before.`);
  const isLast = passed > one.events - one.leases && passed <= one.events;
  if (!isLast) throw new Error(`The last event had position ${passed}, and there are ${one.events}.`);
}
