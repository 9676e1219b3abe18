/**
 * Ours only: looking inside an execution with ten and with a thousand steps, everything included.
 */
import { withStore } from '../harness/draining.mjs';
import { withSeats } from '../harness/seats.mjs';
import { settleStore } from '../harness/stores.mjs';
import { pairs, thousands } from './cases.mjs';

const SEAT = new URL('describe/reading.mjs', import.meta.url);
const READS = { quick: 50, full: 500 };
const STEPS = [10, 1_000];

function casesOf(bench) {
  const { contender } = pairs(bench, 'batched').find((pair) => pair.contender.side === 'ours');
  const reads = READS[bench.options.size];
  return STEPS.map((steps) => ({
    contender,
    key: String(steps),
    group: `${reads} times, one after the other, everything included`,
    label: `${thousands(steps)} steps`,
    steps,
    reads,
  }));
}

/** @type {import('../harness/runner.mjs').Scenario} */
export const describe = {
  name: 'describe',
  title: 'Looking inside an execution (ours only)',
  metrics: [
    { name: 'p50 ms', better: 'lower' },
    { name: 'p95 ms', better: 'lower' },
  ],
  cases: casesOf,
  run: (one, bench) =>
    withStore(bench, one, async (target) => {
      await settleStore(target, 'analysed');
      const { steps, reads } = one;
      return withSeats(1, ([seat]) => seat.call(SEAT, 'readInside', { target, steps, reads }));
    }),
};
