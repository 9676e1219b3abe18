/**
 * What the planner's statistics are worth: the same drain on tables that were vacuumed and analysed after the submit,
 * and on tables never analysed, as after an installation or in a sudden first burst.
 */
import { drainOnce } from '../harness/draining.mjs';
import { fast, keyOf, pairs, thousands } from './cases.mjs';

const COUNT = { quick: 5_000, full: 100_000 };

function casesOf(bench) {
  const count = COUNT[bench.options.size];
  const list = fast(pairs(bench, 'batched', count), COUNT.full).filter(
    ({ contender }) => contender.store === 'postgres',
  );
  // One variant each: the first, which its authors recommend.
  const firsts = list.filter(
    (pair, index) => list.findIndex((one) => one.contender === pair.contender) === index,
  );
  const keyIn = (state, pair) => keyOf(state, pair.contender.name, pair.label);
  return ['analysed', 'never-analysed'].flatMap((state) =>
    firsts.map((pair) => ({
      ...pair,
      key: keyIn(state, pair),
      group: `backlog of ${thousands(count)}, one worker process, ${state}`,
      state,
      ...(state === 'analysed'
        ? {}
        : { relativeTo: { key: keyIn('analysed', pair), label: 'never-analysed ÷ analysed' } }),
    })),
  );
}

/** @type {import('../harness/runner.mjs').Scenario} */
export const statistics = {
  name: 'statistics',
  title: 'Work off a backlog with and without statistics',
  metrics: [{ name: 'jobs/s', better: 'higher' }],
  cases: casesOf,
  run: (one, bench) => drainOnce(bench, { ...one, processes: 1, statistics: one.state }),
};
