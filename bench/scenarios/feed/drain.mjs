/**
 * A drain while subscribers in another process follow all events. The sample counts only if every subscriber received
 * every event in the log, without a gap. Subscribers that fall behind do part of their reading after the drain, where
 * it costs the drain nothing: therefore the delay of the latest event is reported beside the rate.
 */
import { drainOnce } from '../../harness/draining.mjs';
import { sum } from '../../harness/figures.mjs';
import { withSeats } from '../../harness/seats.mjs';
import { withClient } from '../../harness/stores.mjs';

const READERS = new URL('readers.mjs', import.meta.url);

/** Events in the log by family and type. */
function writtenEvents(store) {
  return withClient(store.url, async (client) => {
    const { rows } = await client.query(
      `SELECT family || '/' || event_type AS name, count(*)::integer AS count FROM flowfabric.ff_event GROUP BY 1`,
    );
    return Object.fromEntries(rows.map((row) => [row.name, row.count]));
  });
}

/** Each execution was acquired and completed once; a worker came and went. Renewals may add to that. */
function checkWritten(written, jobs) {
  for (const name of ['lease/acquired', 'completion/success']) {
    if (written[name] !== jobs) throw new Error(`${jobs} jobs wrote ${written[name] ?? 0} events ${name}.`);
  }
}

function checkReceived({ counts, gaps }, written) {
  if (gaps > 0) throw new Error(`${gaps} positions did not follow the one before.`);
  const names = new Set([...Object.keys(written), ...Object.keys(counts)]);
  for (const name of names) {
    if (counts[name] === written[name]) continue;
    throw new Error(`Of ${written[name] ?? 0} events ${name} ${counts[name] ?? 0} were received.`);
  }
}

function followed(one, store, drain) {
  return withSeats(1, async ([seat]) => {
    await seat.call(READERS, 'followAll', { target: store, readers: one.readers });
    const ms = await drain();
    const written = await writtenEvents(store);
    checkWritten(written, one.count);
    const received = await seat.call(READERS, 'receivedByAll', { count: sum(Object.values(written)) });
    for (const tally of received) checkReceived(tally, written);
    return { ms, behindMs: Math.max(...received.map((tally) => tally.behindMs)) };
  });
}

/** Returns jobs per second and, with subscribers, the largest delay between an event and its delivery. */
export async function drainFollowed(one, bench) {
  const plan = { ...one, processes: 1, statistics: 'analysed' };
  if (one.readers === 0) return drainOnce(bench, plan);
  let latest;
  const beside = async (store, drain) => {
    const { ms, behindMs } = await followed(one, store, drain);
    latest = behindMs;
    return ms;
  };
  const values = await drainOnce(bench, { ...plan, beside });
  return { ...values, 'latest event, ms': latest };
}
