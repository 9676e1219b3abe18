/**
 * Ours only: the row writes of our claim and completion made by pgbench, 500 per transaction, without any of our code:
 * no worker, no batches of different sizes, no JSON, no second round trip. An upper bound for the drain.
 */
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { submit, withStore } from '../harness/draining.mjs';
import { settleStore, withClient } from '../harness/stores.mjs';
import { jobs, keyOf, thousands } from './cases.mjs';

const COUNT = { quick: 10_000, full: 100_000 };
const PER_TRANSACTION = 500;
const CLIENTS = [1, 2];

/** Claims past what this client claimed before, as our workers do, and completes each with a small result. */
const SCRIPT = `
WITH c AS MATERIALIZED (
  SELECT p FROM flowfabric.ff_claim(ARRAY[:route::integer], ARRAY[0], ARRAY[:after::bigint], ${PER_TRANSACTION}, 'pgbench',
    'pgbench', gen_random_uuid(), 30000), unnest(pages) p),
a AS MATERIALIZED (
  SELECT coalesce(max(q.seq), 0) AS after, array_agg(q.id) AS ids, array_agg(q.part) AS parts,
         array_agg(q.attempt) AS attempts, array_agg(q.epoch) AS epochs, array_agg('{"ok": true}'::jsonb) AS results
  FROM c CROSS JOIN LATERAL (
    SELECT i.value::uuid AS id, (c.p -> 'partition' ->> (i.ordinality - 1)::int)::smallint AS part,
           (c.p -> 'attemptIndex' ->> (i.ordinality - 1)::int)::int AS attempt,
           (c.p -> 'leaseEpoch' ->> (i.ordinality - 1)::int)::bigint AS epoch,
           (c.p -> 'seq' ->> (i.ordinality - 1)::int)::bigint AS seq
    FROM json_array_elements_text(c.p -> 'uuid') WITH ORDINALITY i) q)
SELECT a.after AS after, cardinality(a.ids) AS done
FROM a CROSS JOIN LATERAL flowfabric.ff_complete(a.ids, a.parts, a.attempts, a.epochs, a.results) d
WHERE d.others IS NULL \\gset
`;

/** Beside the server's programs, or on the PATH; undefined when there is none. */
function findPgbench(binDir) {
  const beside = binDir === null ? undefined : join(binDir, 'pgbench');
  if (beside !== undefined && existsSync(beside)) return beside;
  return spawnSync('pgbench', ['--version']).status === 0 ? 'pgbench' : undefined;
}

async function runPgbench(program, store, { clients, transactions, route }) {
  const directory = await mkdtemp(join(tmpdir(), 'flowfabric-pgbench-'));
  try {
    const file = join(directory, 'drain.sql');
    await writeFile(file, SCRIPT);
    const args = ['-n', '-M', 'prepared', '-f', file, '-c', clients, '-j', clients, '-t', transactions];
    const variables = ['-D', `route=${route}`, '-D', 'after=0'];
    const child = spawn(program, [...args.map(String), ...variables, store.url], { stdio: 'pipe' });
    let output = '';
    const keep = (text) => {
      output += text;
    };
    child.stdout.on('data', keep);
    child.stderr.on('data', keep);
    const [code] = await once(child, 'close');
    const tps = /^tps = ([\d.]+)/m.exec(output)?.[1];
    if (code !== 0 || tps === undefined) throw new Error(`pgbench ended with ${code}: ${output.slice(-500)}`);
    return Number(tps);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

async function measure(one, bench, store) {
  await submit(one.contender, store, { count: one.count });
  await settleStore(store, 'analysed');
  const route = await withClient(store.url, async (client) => {
    const { rows } = await client.query('SELECT route_id FROM flowfabric.ff_route');
    return rows[0].route_id;
  });
  const transactions = one.count / PER_TRANSACTION / one.clients;
  const plan = { clients: one.clients, transactions, route };
  const tps = await bench.watched(() => runPgbench(findPgbench(bench.binDir), store, plan));
  const probe = await one.contender.openProbe(store);
  const left = await probe.unsettled();
  await probe.close();
  if (left > 0) throw new Error(`${left} of ${one.count} jobs were left.`);
  return { 'jobs/s': tps * PER_TRANSACTION };
}

function casesOf(bench) {
  const contender = bench.contenders.find((one) => one.side === 'ours');
  if (findPgbench(bench.binDir) === undefined) {
    bench.log('  left out: no pgbench is installed');
    return [];
  }
  const step = PER_TRANSACTION * Math.max(...CLIENTS);
  const count = Math.max(step, Math.floor(jobs(bench, COUNT[bench.options.size]) / step) * step);
  return CLIENTS.map((clients) => ({
    key: keyOf(clients),
    group: `backlog of ${thousands(count)}, ${PER_TRANSACTION} per transaction`,
    label: `pgbench -c ${clients}`,
    contender,
    clients,
    count,
  }));
}

/** @type {import('../harness/runner.mjs').Scenario} */
export const pgbenchCeiling = {
  name: 'pgbench-ceiling',
  title: 'Upper bound: our row writes by pgbench',
  metrics: [{ name: 'jobs/s', better: 'higher' }],
  cases: casesOf,
  run: (one, bench) => withStore(bench, one, (store) => measure(one, bench, store)),
};
