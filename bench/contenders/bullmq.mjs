/**
 * BullMQ on Redis. Redis flushes its log once a second here, its usual setting: up to a second of acknowledged work
 * is lost in a crash, where the Postgres contenders lose none. Read its figures with that in mind.
 */
import { Queue, Worker } from 'bullmq';
import { numbers } from './contract.mjs';

const QUEUE = 'bench';

function connectionOf(target) {
  const { hostname, port } = new URL(target.url);
  return { host: hostname, port: Number(port), maxRetriesPerRequest: null };
}

async function openProducer(target) {
  const queue = new Queue(QUEUE, { connection: connectionOf(target) });
  await queue.waitUntilReady();
  return {
    submitMany: async (first, count) =>
      void (await queue.addBulk(numbers(first, count).map((n) => ({ name: QUEUE, data: { n } })))),
    submitOne: async (n) => void (await queue.add(QUEUE, { n })),
    close: () => queue.close(),
  };
}

async function startWorker(target, settings, onRun) {
  const run = async (job) => {
    onRun(job.data.n);
    return { ok: true, n: job.data.n };
  };
  const worker = new Worker(QUEUE, run, { connection: connectionOf(target), ...settings.worker });
  worker.on('error', (error) => process.stderr.write(`bullmq: ${error.message}\n`));
  await worker.waitUntilReady();
  return { stop: () => worker.close() };
}

async function openProbe(target) {
  const queue = new Queue(QUEUE, { connection: connectionOf(target) });
  await queue.waitUntilReady();
  return {
    unsettled: () => queue.getJobCountByTypes('waiting', 'active', 'delayed', 'prioritized', 'failed'),
    finished: () => queue.getJobCountByTypes('completed'),
    close: () => queue.close(),
  };
}

/** @type {import('./contract.mjs').Contender} */
export const contender = {
  name: 'bullmq',
  side: 'peer',
  store: 'redis',
  packageName: 'bullmq',
  keeps: 'the job with its result, in memory and in a log flushed once a second',
  variants: [
    {
      name: 'concurrency 200, appendfsync everysec',
      mode: 'batched',
      settings: { worker: { concurrency: 200 } },
    },
    { name: 'concurrency 200', mode: 'latency', settings: { worker: { concurrency: 200 } } },
    { name: 'defaults', mode: 'default', settings: {} },
  ],
  bulk: {},
  prepare: async () => undefined,
  openProducer,
  startWorker,
  openProbe,
};
