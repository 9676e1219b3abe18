/**
 * Ours only: the same drain beside a million finished executions that are kept, and beside none. The finished ones are
 * written in bulk as the engine would have left them; the database is then copied for every round.
 */
import { drainOnce, withStore } from '../harness/draining.mjs';
import { withClient } from '../harness/stores.mjs';
import { keyOf, pairs, thousands, jobs } from './cases.mjs';

const COUNT = { quick: 5_000, full: 20_000 };
const KEPT = { quick: 50_000, full: 1_000_000 };

const STATE = `'terminal', 'unowned', 'not_applicable', 'none', 'success', 'attempt_terminal'`;
const WORKER = `'bench', 'bench-1'`;

/** One entry per table; `k` is the list of finished executions. */
const KEPT_ROWS = [
  {
    table: 'ff_execution',
    columns: `execution_id, partition_key, created_at_ms, changed_at_ms, started_at_ms, lease_epoch, route_id, priority,
      lifecycle_phase, ownership_state, eligibility_state, blocking_reason, terminal_outcome, attempt_state, namespace, payload, policy`,
    values: `SELECT id, part, at, at + 2, at + 1, 1, route, 0, ${STATE}, 'default', jsonb_build_object('n', n), '{}' FROM k`,
  },
  {
    table: 'ff_attempt_history',
    columns: `execution_id, partition_key, attempt_index, lease_epoch, worker_id, worker_instance_id,
      started_at_ms, ended_at_ms, outcome, terminal_outcome, namespace, result`,
    values: `SELECT id, part, 0, 1, ${WORKER}, at + 1, at + 2, 'success', 'success', 'default',
      jsonb_build_object('ok', true, 'n', n) FROM k`,
  },
  {
    // As if a hundred had been claimed and completed at a time.
    table: 'ff_event_pack',
    columns: `family, event_type, occurred_at_ms, n, execution_ids, partition_keys, attempt_index, lease_epoch,
      worker_instance_id, namespace, tags, route_id, slot`,
    values: `SELECT e.family::ff_event_family, e.type, max(at) + e.later, count(*), array_agg(id), array_agg(part), 0, 1,
        'bench-1', 'default', '{}', min(route), 0
      FROM k CROSS JOIN (VALUES ('lease', 'acquired', 1), ('completion', 'success', 2)) e(family, type, later)
      GROUP BY n / 100, e.family, e.type, e.later ORDER BY n / 100, e.later`,
  },
];

/** Fills a migrated database; ids are version 7, so that they are placed in the indexes as real ones are. */
async function fill(store, count) {
  await withClient(store.url, async (client) => {
    await client.query('SET search_path TO flowfabric');
    await client.query('SET synchronous_commit TO off');
    const { rows } = await client.query(
      `SELECT route_id AS route FROM ff_intern_routes('[{"lane": "default", "kind": "bench", "capabilities": []}]', 100)`,
    );
    await client.query(
      `CREATE TEMP TABLE k AS
       SELECT n, $2::integer AS route, (n % 256)::smallint AS part, at, gen_random_uuid() AS lease,
              (overlay(lpad(to_hex(at), 12, '0') placing '-' from 9 for 0) || '-7'
               || substr(md5(n::text), 1, 3) || '-8' || substr(md5(n::text), 4, 3) || '-'
               || substr(md5(n::text), 7, 12))::uuid AS id
       FROM (SELECT n, ff_now_ms() - 86400000 + n * 60 AS at FROM generate_series(1, $1::bigint) n) s`,
      [count, rows[0].route],
    );
    for (const { table, columns, values } of KEPT_ROWS) {
      await client.query(`INSERT INTO ${table} (${columns}) ${values}`);
    }
    await client.query('DROP TABLE k');
    await client.query('VACUUM ANALYZE');
  });
}

/** The filled database, created on first use; it stays until the run ends. */
function filled(bench, contender, count) {
  const key = keyOf('retained', count);
  if (!bench.made.has(key)) bench.made.set(key, makeFilled(bench, contender, count));
  return bench.made.get(key);
}

async function makeFilled(bench, contender, count) {
  // A copy outlives the store it was made from, and has no connections.
  return withStore(bench, { contender }, async (store) => {
    await fill(store, count);
    return (await bench.stores.create(contender, store.name)).name;
  });
}

function casesOf(bench) {
  const kept = jobs(bench, KEPT[bench.options.size]);
  const pair = pairs(bench, 'batched', COUNT[bench.options.size]).find(
    ({ contender }) => contender.side === 'ours',
  );
  const group = `backlog of ${thousands(pair.count)}, one worker process, analysed`;
  const label = `beside ${thousands(kept)} finished ÷ beside none`;
  return [
    { ...pair, key: 'empty', group, label: 'no finished executions', kept: 0 },
    {
      ...pair,
      key: 'retained',
      group,
      label: `${thousands(kept)} finished executions kept`,
      kept,
      relativeTo: { key: 'empty', label },
    },
  ];
}

/** @type {import('../harness/runner.mjs').Scenario} */
export const retained = {
  name: 'retained',
  title: 'Work off a backlog beside finished executions (ours only)',
  metrics: [{ name: 'jobs/s', better: 'higher' }],
  cases: casesOf,
  async run(one, bench) {
    const plan = { ...one, processes: 1, statistics: 'analysed' };
    if (one.kept === 0) return drainOnce(bench, plan);
    return drainOnce(bench, { ...plan, template: await filled(bench, one.contender, one.kept) });
  },
};
