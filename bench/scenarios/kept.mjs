/**
 * What a finished job leaves behind: bytes on disk for each, indexes included, after a drain and a VACUUM. Engines that
 * delete what has finished are left out.
 */
import { drainOnce } from '../harness/draining.mjs';
import { withClient } from '../harness/stores.mjs';
import { keyOf, pairs } from './cases.mjs';

const COUNT = { quick: 2_000, full: 20_000 };
const SIZE = `SELECT sum(pg_total_relation_size(c.oid))::float8 AS bytes FROM pg_class c
  JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE c.relkind IN ('r', 'p') AND n.nspname NOT LIKE 'pg\\_%' AND n.nspname <> 'information_schema'`;

function casesOf(bench) {
  const list = pairs(bench, 'batched', COUNT[bench.options.size]).filter(
    ({ contender }) => contender.store === 'postgres' && contender.name !== 'graphile-worker',
  );
  const firsts = list.filter(
    (pair, index) => list.findIndex((one) => one.contender === pair.contender) === index,
  );
  return firsts.map((pair) => ({
    ...pair,
    key: keyOf(pair.contender.name, pair.label),
    group: 'payload and result of 10 to 20 bytes',
  }));
}

async function measure(one, bench) {
  let bytes;
  await drainOnce(bench, {
    ...one,
    processes: 1,
    statistics: 'analysed',
    beside: async (store, drain) => {
      const ms = await drain();
      bytes = await withClient(store.url, async (client) => {
        await client.query('VACUUM');
        return (await client.query(SIZE)).rows[0].bytes;
      });
      return ms;
    },
  });
  return { 'bytes a job': bytes / one.count };
}

/** @type {import('../harness/runner.mjs').Scenario} */
export const kept = {
  name: 'kept',
  title: 'What a finished job leaves behind',
  metrics: [{ name: 'bytes a job', better: 'lower' }],
  cases: casesOf,
  run: measure,
};
