/**
 * How soon an event reaches a subscriber in another process: renewals at a steady pace, each call stamped when it is
 * sent and when it returns, each event when the subscriber gets it. The response comes after the commit, so an event
 * may arrive before it, and the difference may be negative.
 */
import { withStore } from '../../harness/draining.mjs';
import { percentile } from '../../harness/figures.mjs';
import { withSeats } from '../../harness/seats.mjs';
import { settleStore } from '../../harness/stores.mjs';

const READERS = new URL('readers.mjs', import.meta.url);
const LEASES = new URL('leases.mjs', import.meta.url);
/** Everything before is cold: connections, plans, code. */
const WARM_UP_MS = 1_000;

/** The n-th event of an execution belongs to its n-th renewal. Returns the differences of the calls that count. */
function differences(log, arrivals, warmUpCalls) {
  const renewals = new Map();
  log.forEach(({ ids, sentAt, answeredAt }, index) => {
    const times = { sentAt, answeredAt, counts: index >= warmUpCalls };
    for (const id of ids) renewals.set(id, [...(renewals.get(id) ?? []), times]);
  });
  const found = { fromAnswer: [], fromCall: [] };
  arrivals.ids.forEach((id, index) => {
    const times = renewals.get(id)?.shift();
    if (times === undefined) throw new Error('An event arrived that nobody wrote.');
    if (!times.counts) return;
    found.fromAnswer.push(arrivals.at[index] - times.answeredAt);
    found.fromCall.push(arrivals.at[index] - times.sentAt);
  });
  const left = [...renewals.values()].flat().length;
  if (left > 0) throw new Error(`${left} events never arrived.`);
  return found;
}

async function measure(one, store) {
  const { perSecond, batch, leases, forMs } = one;
  const everyMs = (batch / perSecond) * 1_000;
  const warmUpCalls = Math.ceil(WARM_UP_MS / everyMs);
  const calls = warmUpCalls + Math.ceil(forMs / everyMs);
  return withSeats(2, async ([writer, subscriber]) => {
    await writer.call(LEASES, 'hold', { target: store, count: leases });
    await settleStore(store, 'analysed');
    await subscriber.call(READERS, 'followTimes', { target: store });
    const { log, ms } = await writer.call(LEASES, 'renewPaced', { batch, everyMs, calls });
    const written = log.flatMap((call) => call.ids).length;
    const arrivals = await subscriber.call(READERS, 'timesOf', { count: written });
    if (arrivals.gaps > 0) throw new Error(`${arrivals.gaps} positions did not follow the one before.`);
    return { ...differences(log, arrivals, warmUpCalls), perSecond: (written / ms) * 1_000 };
  });
}

export function deliveryLatency(one, bench) {
  return withStore(bench, one, async (store) => {
    const found = await bench.watched(() => measure(one, store));
    const at = (values, percent) =>
      percentile(
        values.toSorted((a, b) => a - b),
        percent,
      );
    return {
      'p50 ms': at(found.fromAnswer, 50),
      'p99 ms': at(found.fromAnswer, 99),
      'p50 ms from the call': at(found.fromCall, 50),
      'events/s': found.perSecond,
    };
  });
}
