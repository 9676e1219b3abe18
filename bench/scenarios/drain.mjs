/**
 * How fast a backlog is drained, with the fastest known settings of each contender: real handlers, results kept where
 * the contender keeps them, one worker process and two. The clock runs from the order to start until the end of every
 * job is durable, start-up included.
 */
import { drainOnce } from '../harness/draining.mjs';
import { fast, keyOf, pairs, thousands } from './cases.mjs';

const SHAPES = {
  quick: [{ count: 5_000, processes: 1, who: 'all' }],
  full: [
    { count: 20_000, processes: 1, who: 'all' },
    { count: 20_000, processes: 2, who: 'all' },
    { count: 100_000, processes: 1, who: 'fast' },
    { count: 100_000, processes: 2, who: 'fast' },
  ],
};

function casesOf(bench) {
  return SHAPES[bench.options.size].flatMap(({ count, processes, who }) => {
    const all = pairs(bench, 'batched', count);
    return (who === 'all' ? all : fast(all, count)).map((pair) => ({
      ...pair,
      key: keyOf(count, processes, pair.contender.name, pair.label),
      group: `backlog of ${thousands(count)}, ${processes === 1 ? 'one worker process' : 'two worker processes'}, analysed`,
      processes,
    }));
  });
}

/** @type {import('../harness/runner.mjs').Scenario} */
export const drain = {
  name: 'drain',
  title: 'Work off a backlog',
  metrics: [{ name: 'jobs/s', better: 'higher' }],
  cases: casesOf,
  run: (one, bench) => drainOnce(bench, { ...one, statistics: 'analysed' }),
};
