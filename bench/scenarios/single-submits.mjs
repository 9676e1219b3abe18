/**
 * Awaited single submits: 32 callers in one process, each waiting for its own job to be durable before the next.
 */
import { loadContender } from '../contenders/index.mjs';
import { withStore } from '../harness/draining.mjs';
import { withSeats } from '../harness/seats.mjs';
import { settleStore } from '../harness/stores.mjs';
import { keyOf } from './cases.mjs';

const CALLERS = 32;
const WARM_UP_MS = 500;
const FOR_MS = { quick: 1_500, full: 5_000 };

/** In a seat: counts the submits that returned within the time. */
export async function submitSingly({ contender, target, callers, warmUpMs, forMs }) {
  const producer = await (await loadContender(contender)).openProducer(target);
  let next = 0;
  let answered = 0;
  const begin = performance.now() + warmUpMs;
  const end = begin + forMs;
  const caller = async () => {
    while (performance.now() < end) {
      next += 1;
      await producer.submitOne(next);
      const now = performance.now();
      if (now >= begin && now < end) answered += 1;
    }
  };
  try {
    await Promise.all(Array.from({ length: callers }, caller));
    return answered;
  } finally {
    await producer.close();
  }
}

/** @type {import('../harness/runner.mjs').Scenario} */
export const singleSubmits = {
  name: 'single-submits',
  title: 'Submit one by one',
  metrics: [{ name: 'jobs/s', better: 'higher' }],
  cases: (bench) =>
    bench.contenders.map((contender) => ({
      key: keyOf(contender.name),
      group: `${CALLERS} awaited callers`,
      label: 'defaults',
      contender,
    })),
  run: (one, bench) =>
    withStore(bench, one, async (store) => {
      await settleStore(store, 'analysed');
      const forMs = FOR_MS[bench.options.size];
      const order = {
        contender: one.contender.name,
        target: store,
        callers: CALLERS,
        warmUpMs: WARM_UP_MS,
        forMs,
      };
      const answered = await bench.watched(() =>
        withSeats(1, ([seat]) => seat.call(import.meta.url, 'submitSingly', order)),
      );
      return { 'jobs/s': (answered / forMs) * 1_000 };
    }),
};
