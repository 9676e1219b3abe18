/**
 * Ours only: how soon and how fast suspended executions resume after a signal or a message, compared with how soon and how fast
 * fresh ones start after a submit, in the same way. Two scenarios, because each compares a different figure.
 */
import { withStore } from '../harness/draining.mjs';
import { withSeats } from '../harness/seats.mjs';
import { settleStore } from '../harness/stores.mjs';
import { jobs, pairs, thousands } from './cases.mjs';

const SEAT = new URL('signal/resuming.mjs', import.meta.url);
const PER_SECOND = 50;
const PACED = { quick: 150, full: 500 };
const COUNT = { quick: 1_000, full: 5_000 };
const WHATS = [
  { what: 'submit', label: 'submit → running, a fresh execution' },
  { what: 'signal', label: 'signal → running, after its wait' },
  { what: 'message', label: 'message → running, after its receive' },
];

function casesOf(bench, most, groupOf) {
  const { contender } = pairs(bench, 'batched').find((pair) => pair.contender.side === 'ours');
  const count = jobs(bench, most);
  return WHATS.map(({ what, label }) => ({
    contender,
    key: what,
    group: groupOf(count),
    label,
    what,
    count,
    ...(what === 'submit' ? {} : { relativeTo: { key: 'submit', label: `${what} ÷ submit` } }),
  }));
}

function measure(one, bench, name) {
  return withStore(bench, one, async (target) => {
    await settleStore(target, 'analysed');
    const { what, count } = one;
    const order = { target, what, count, perSecond: PER_SECOND };
    return bench.watched(() => withSeats(1, ([seat]) => seat.call(SEAT, name, order)));
  });
}

/** @type {import('../harness/runner.mjs').Scenario} */
export const signal = {
  name: 'signal',
  title: 'From a signal or a message to the handler that waited for it (ours only)',
  metrics: [
    { name: 'p50 ms', better: 'lower' },
    { name: 'p95 ms', better: 'lower' },
    { name: 'p50 ms from the call', better: 'lower' },
  ],
  cases: (bench) =>
    casesOf(
      bench,
      PACED[bench.options.size],
      () => `${PER_SECOND} a second from another connection, from its answer`,
    ),
  run: (one, bench) => measure(one, bench, 'resumeLatency'),
};

/** @type {import('../harness/runner.mjs').Scenario} */
export const signalRate = {
  name: 'signal-rate',
  title: 'Suspended executions that run again, a second (ours only)',
  metrics: [{ name: 'begun/s', better: 'higher' }],
  cases: (bench) =>
    casesOf(
      bench,
      COUNT[bench.options.size],
      (count) => `${thousands(count)} by 32 callers that await their answers`,
    ),
  run: (one, bench) => measure(one, bench, 'resumeRate'),
};
