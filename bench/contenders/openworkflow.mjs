/**
 * openworkflow: durable workflows on Postgres. A workflow without steps is its counterpart to one execution. It has no
 * bulk call: many are submitted as that many concurrent calls.
 */
import { OpenWorkflow } from 'openworkflow';
import { BackendPostgres } from 'openworkflow/postgres';
import postgres from 'postgres';
import { numbers, sqlProbe } from './contract.mjs';

const WORKFLOW = { name: 'bench' };
const POOL_SIZE = 20;

function openPool(target) {
  // A custom pool must translate column names as the package's own does.
  const transform = { column: { from: postgres.toCamel } };
  const pool = postgres(target.url, { max: POOL_SIZE, transform, onnotice: () => undefined });
  return BackendPostgres.fromPool(pool);
}

async function openProducer(target) {
  const backend = openPool(target);
  const client = new OpenWorkflow({ backend });
  const submitOne = async (n) => void (await client.runWorkflow(WORKFLOW, { n }));
  return {
    submitOne,
    submitMany: async (first, count) => void (await Promise.all(numbers(first, count).map(submitOne))),
    close: () => backend.stop(),
  };
}

async function startWorker(target, settings, onRun) {
  const backend = openPool(target);
  const client = new OpenWorkflow({ backend });
  client.implementWorkflow(WORKFLOW, async ({ input, step }) => {
    for (let index = 0; index < (settings.steps ?? 0); index += 1)
      await step.run({ name: `step-${index}` }, async () => input.n + index);
    onRun(input.n);
    return { ok: true, n: input.n };
  });
  const worker = client.newWorker(settings.worker);
  await worker.start();
  return {
    async stop() {
      await worker.stop();
      await backend.stop();
    },
  };
}

/** @type {import('./contract.mjs').Contender} */
export const contender = {
  name: 'openworkflow',
  side: 'peer',
  store: 'postgres',
  packageName: 'openworkflow',
  keeps: 'input, output and status per workflow, and a checkpoint per step',
  variants: [
    {
      name: 'concurrency 50, pool 20',
      mode: 'batched',
      settings: { worker: { concurrency: 50 } },
      jobsMax: 3_000,
    },
    { name: 'concurrency 50', mode: 'latency', settings: { worker: { concurrency: 50 } } },
    {
      name: 'concurrency 50, pool 20',
      mode: 'steps',
      settings: { worker: { concurrency: 50 } },
      jobsMax: 1_000,
    },
    { name: 'defaults', mode: 'default', settings: {} },
  ],
  bulk: { batch: 100, callers: 1 },
  async prepare(target) {
    const backend = await BackendPostgres.connect(target.url, { runMigrations: true });
    await backend.stop();
  },
  openProducer,
  startWorker,
  openProbe: (target) =>
    sqlProbe(target, {
      unsettled: `SELECT count(*) FROM openworkflow.workflow_runs WHERE status <> 'completed'`,
      finished: `SELECT count(*) FROM openworkflow.workflow_runs WHERE status = 'completed'`,
    }),
};
