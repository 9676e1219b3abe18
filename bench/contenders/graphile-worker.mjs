/**
 * graphile-worker: a queue that deletes finished jobs and keeps no result. Its fastest documented setup is a local
 * queue that prefetches, with batched completions.
 */
import { Logger, makeWorkerUtils, run, runMigrations } from 'graphile-worker';
import { numbers, sqlProbe } from './contract.mjs';

const TASK = 'bench';
const logger = new Logger(() => () => undefined);

async function openProducer(target) {
  const utils = await makeWorkerUtils({ connectionString: target.url, logger });
  return {
    submitMany: async (first, count) =>
      void (await utils.addJobs(numbers(first, count).map((n) => ({ identifier: TASK, payload: { n } })))),
    submitOne: async (n) => void (await utils.addJob(TASK, { n })),
    close: async () => void (await utils.release()),
  };
}

async function startWorker(target, settings, onRun) {
  const runner = await run({
    preset: { worker: { connectionString: target.url, ...settings.worker } },
    logger,
    noHandleSignals: true,
    taskList: {
      [TASK]: async (payload) => {
        onRun(payload.n);
        return undefined;
      },
    },
  });
  return { stop: () => runner.stop() };
}

function batched(size) {
  return {
    name: `24 jobs, localQueue ${size}, completeJobBatchDelay 0`,
    mode: 'batched',
    settings: { worker: { concurrentJobs: 24, localQueue: { size }, completeJobBatchDelay: 0 } },
  };
}

/** @type {import('./contract.mjs').Contender} */
export const contender = {
  name: 'graphile-worker',
  side: 'peer',
  store: 'postgres',
  packageName: 'graphile-worker',
  keeps: 'nothing: a finished job is deleted and its result dropped',
  variants: [
    batched(500),
    batched(2_000),
    {
      name: '24 jobs, no batching',
      mode: 'unbatched',
      settings: { worker: { concurrentJobs: 24 } },
      jobsMax: 10_000,
    },
    { name: '24 jobs, no local queue', mode: 'latency', settings: { worker: { concurrentJobs: 24 } } },
    { name: 'defaults', mode: 'default', settings: { worker: {} } },
  ],
  bulk: {},
  prepare: (target) => runMigrations({ connectionString: target.url, logger }),
  openProducer,
  startWorker,
  openProbe: (target) =>
    sqlProbe(target, { unsettled: 'SELECT count(*) FROM graphile_worker._private_jobs', finished: null }),
};
