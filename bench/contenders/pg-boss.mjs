/**
 * pg-boss: a queue that keeps finished jobs. Its fastest setup is a loop of fetch and complete over large batches,
 * where one call settles the whole batch with one shared output.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { PgBoss } from 'pg-boss';
import { numbers, sqlProbe } from './contract.mjs';

const QUEUE = 'bench';
const EMPTY_WAIT_MS = 20;

/** Supervision and schedules are switched off where only jobs run: they are not part of the comparison. */
async function open(target, options) {
  const boss = new PgBoss({ connectionString: target.url, supervise: false, schedule: false, ...options });
  boss.on('error', (error) => process.stderr.write(`pg-boss: ${error.message}\n`));
  await boss.start();
  return boss;
}

async function prepare(target) {
  const boss = await open(target, {});
  await boss.createQueue(QUEUE, { notify: true });
  await boss.stop({ graceful: false });
}

async function openProducer(target) {
  const boss = await open(target, {});
  return {
    submitMany: async (first, count) =>
      void (await boss.insert(
        QUEUE,
        numbers(first, count).map((n) => ({ data: { n } })),
      )),
    submitOne: async (n) => void (await boss.send(QUEUE, { n })),
    close: () => boss.stop({ graceful: false }),
  };
}

async function startLoops(target, settings, onRun) {
  const boss = await open(target, { max: Math.max(10, settings.loops) });
  const stopping = new AbortController();
  const loop = async () => {
    while (!stopping.signal.aborted) {
      const jobs = await boss.fetch(QUEUE, { batchSize: settings.batchSize });
      if (jobs.length === 0) {
        await delay(EMPTY_WAIT_MS);
        continue;
      }
      for (const job of jobs) onRun(job.data.n);
      await boss.complete(
        QUEUE,
        jobs.map((job) => job.id),
        { ok: true },
      );
    }
  };
  const loops = Promise.all(Array.from({ length: settings.loops }, loop));
  return {
    async stop() {
      stopping.abort();
      await loops;
      await boss.stop({ graceful: false });
    },
  };
}

async function startWork(target, settings, onRun) {
  const boss = await open(target, settings.boss);
  await boss.work(QUEUE, settings.work, async (jobs) => {
    for (const job of jobs) onRun(job.data.n);
    return { ok: true };
  });
  return { stop: () => boss.stop({ graceful: false }) };
}

/** @type {import('./contract.mjs').Contender} */
export const contender = {
  name: 'pg-boss',
  side: 'peer',
  store: 'postgres',
  packageName: 'pg-boss',
  keeps: 'the job row with one output shared by its batch; no attempts, no events; a batch ends as one',
  variants: [
    { name: 'fetch/complete, 2 × batch 1000', mode: 'batched', settings: { loops: 2, batchSize: 1_000 } },
    {
      name: 'fetch/complete, 20 × batch 1',
      mode: 'unbatched',
      settings: { loops: 20, batchSize: 1 },
      jobsMax: 5_000,
    },
    {
      name: 'work, notify, 4 × batch 50',
      mode: 'latency',
      settings: { boss: { useListenNotify: true }, work: { batchSize: 50, localConcurrency: 4 } },
    },
    { name: 'defaults', mode: 'default', settings: { boss: { supervise: true, schedule: true }, work: {} } },
  ],
  bulk: {},
  prepare,
  openProducer,
  startWorker: (target, settings, onRun) =>
    settings.loops === undefined ? startWork(target, settings, onRun) : startLoops(target, settings, onRun),
  openProbe: (target) =>
    sqlProbe(target, {
      unsettled: `SELECT count(*) FROM pgboss.job WHERE name = '${QUEUE}' AND state <> 'completed'`,
      finished: `SELECT count(*) FROM pgboss.job WHERE name = '${QUEUE}' AND state = 'completed' AND output IS NOT NULL`,
    }),
};
