/**
 * DBOS: durable workflows on Postgres. A workflow without steps, taken from a queue, is its counterpart to one
 * execution. It has no bulk call; many enqueues inside one transaction come closest.
 */
import { DBOS, DBOSClient } from '@dbos-inc/dbos-sdk';
import pg from 'pg';
import { sqlProbe } from './contract.mjs';

const APPLICATION = 'bench';
const VERSION = '1';
const QUEUE = 'bench';
const WORKFLOW = 'bench';
const POOL_SIZE = 20;
const BULK_CALLERS = 4;
const ENQUEUE = { queueName: QUEUE, workflowName: WORKFLOW, appVersion: VERSION };
const silent = { info() {}, debug() {}, warn() {}, error() {} };

function configure(target) {
  DBOS.setConfig({
    name: APPLICATION,
    systemDatabaseUrl: target.url,
    systemDatabasePoolSize: POOL_SIZE,
    applicationVersion: VERSION,
    enableOTLP: false,
    logger: silent,
  });
}

async function openProducer(target) {
  const pool = new pg.Pool({ connectionString: target.url, max: BULK_CALLERS });
  const client = await DBOSClient.create({
    systemDatabaseUrl: target.url,
    systemDatabasePoolSize: POOL_SIZE,
    applicationName: APPLICATION,
    logger: silent,
  });
  const submitMany = async (first, count) => {
    const connection = await pool.connect();
    try {
      await connection.query('BEGIN');
      for (let n = first; n < first + count; n += 1)
        await client.enqueueInTransaction(connection, ENQUEUE, n);
      await connection.query('COMMIT');
    } finally {
      connection.release();
    }
  };
  return {
    submitMany,
    submitOne: async (n) => void (await client.enqueue(ENQUEUE, n)),
    async close() {
      await client.destroy();
      await pool.end();
    },
  };
}

async function startWorker(target, settings, onRun) {
  configure(target);
  const run = async (n) => {
    for (let step = 0; step < (settings.steps ?? 0); step += 1)
      await DBOS.runStep(async () => n + step, { name: `step-${step}` });
    onRun(n);
    return { ok: true, n };
  };
  DBOS.registerWorkflow(run, { name: WORKFLOW });
  await DBOS.launch();
  return { stop: () => DBOS.shutdown() };
}

/** @type {import('./contract.mjs').Contender} */
export const contender = {
  name: 'dbos',
  side: 'peer',
  store: 'postgres',
  packageName: '@dbos-inc/dbos-sdk',
  keeps: 'input, output and status per workflow, and a checkpoint per step',
  variants: [
    {
      name: 'queue, workerConcurrency 500, poll 50 ms',
      mode: 'batched',
      settings: { queue: { workerConcurrency: 500, minPollingIntervalMs: 50 } },
      jobsMax: 10_000,
    },
    {
      name: 'queue, poll 20 ms',
      mode: 'latency',
      settings: { queue: { workerConcurrency: 500, minPollingIntervalMs: 20 } },
    },
    {
      name: 'queue, workerConcurrency 500, poll 50 ms',
      mode: 'steps',
      settings: { queue: { workerConcurrency: 500, minPollingIntervalMs: 50 } },
      jobsMax: 2_000,
    },
    { name: 'defaults', mode: 'default', settings: { queue: {} } },
  ],
  bulk: { batch: 500, callers: BULK_CALLERS },
  // A queue that is changed later keeps its old poll interval for a while, so it is created with the worker's settings.
  async prepare(target, settings) {
    configure(target);
    await DBOS.launch();
    await DBOS.registerQueue(QUEUE, { ...settings?.queue, onConflict: 'always_update' });
    await DBOS.shutdown({ deregister: true });
  },
  openProducer,
  startWorker,
  openProbe: (target) =>
    sqlProbe(target, {
      unsettled: `SELECT count(*) FROM dbos.workflow_status WHERE status <> 'SUCCESS'`,
      finished: `SELECT count(*) FROM dbos.workflow_status WHERE status = 'SUCCESS'`,
    }),
};
