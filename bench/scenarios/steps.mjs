/**
 * Durable runs of three and of ten steps in sequence, each stored before the next begins. Only contenders with steps
 * take part.
 */
import { drainOnce } from '../harness/draining.mjs';
import { keyOf, pairs } from './cases.mjs';

const COUNT = { quick: 500, full: 5_000 };
const STEPS = [3, 10];

/** @type {import('../harness/runner.mjs').Scenario} */
export const steps = {
  name: 'steps',
  title: 'Durable runs of several steps',
  metrics: [{ name: 'jobs/s', better: 'higher' }],
  cases: (bench) =>
    STEPS.flatMap((count) =>
      pairs(bench, 'steps', COUNT[bench.options.size]).map((pair) => ({
        ...pair,
        variant: { ...pair.variant, settings: { ...pair.variant.settings, steps: count } },
        key: keyOf(count, pair.contender.name, pair.label),
        group: `${count} steps, one worker process, analysed`,
        processes: 1,
      })),
    ),
  run: (one, bench) => drainOnce(bench, { ...one, statistics: 'analysed' }),
};
