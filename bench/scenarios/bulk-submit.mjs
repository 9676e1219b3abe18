/**
 * How fast work can be submitted in bulk: batches of 1,000 from one process, with one batch in flight and with four.
 * Contenders without a bulk call use the closest they have, whatever the number of callers.
 */
import { submit, withStore } from '../harness/draining.mjs';
import { settleStore } from '../harness/stores.mjs';
import { jobs, keyOf } from './cases.mjs';

const COUNT = { quick: 5_000, full: 20_000 };
/** For contenders that take one job per call. */
const SLOW_COUNT = { quick: 1_000, full: 5_000 };
const BATCH = 1_000;
const CALLERS = [1, 4];
const WARM_UP_SHARE = 0.2;

function casesOf(bench) {
  const { size } = bench.options;
  return bench.contenders.flatMap((contender) => {
    const hasBulkCall = contender.bulk.batch === undefined;
    const count = jobs(bench, (hasBulkCall ? COUNT : SLOW_COUNT)[size]);
    return CALLERS.map((callers) => ({
      key: keyOf(contender.name, callers),
      group: `batches of ${BATCH}, ${callers} under way`,
      label: hasBulkCall
        ? 'bulk call'
        : `no bulk call: batches of ${contender.bulk.batch}, ${contender.bulk.callers} under way`,
      contender,
      callers,
      count,
    }));
  });
}

/** @type {import('../harness/runner.mjs').Scenario} */
export const bulkSubmit = {
  name: 'bulk-submit',
  title: 'Submit in bulk',
  metrics: [{ name: 'jobs/s', better: 'higher' }],
  cases: casesOf,
  run: (one, bench) =>
    withStore(bench, one, async (store) => {
      await settleStore(store, 'analysed');
      const warmUp = Math.round(one.count * WARM_UP_SHARE);
      const plan = { count: one.count, warmUp, batch: BATCH, callers: one.callers };
      const ms = await bench.watched(() => submit(one.contender, store, plan));
      return { 'jobs/s': (one.count / ms) * 1_000 };
    }),
};
