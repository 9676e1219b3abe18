/**
 * The same drain with every job claimed and settled by its own statements: what remains when batching does not help.
 * Contenders without such a setting are left out.
 */
import { drainOnce } from '../harness/draining.mjs';
import { keyOf, pairs } from './cases.mjs';

const COUNT = { quick: 1_000, full: 10_000 };

/** @type {import('../harness/runner.mjs').Scenario} */
export const unbatched = {
  name: 'unbatched',
  title: 'Work off a backlog one job per statement',
  metrics: [{ name: 'jobs/s', better: 'higher' }],
  cases: (bench) =>
    pairs(bench, 'unbatched', COUNT[bench.options.size]).map((pair) => ({
      ...pair,
      key: keyOf(pair.contender.name, pair.label),
      group: 'one worker process, analysed',
      processes: 1,
    })),
  run: (one, bench) => drainOnce(bench, { ...one, statistics: 'analysed' }),
};
