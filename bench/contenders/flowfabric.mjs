/**
 * Ours, through the public interface only. Batching cannot be switched off in a worker, so `unbatched` is loops on the
 * worker's interface: each has its own connection, completes one execution and claims the next, which are one call to
 * the database, and awaits both.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { connect, handle, migrate, startWorker, task } from '../../dist/index.js';
import { workerPort } from '../../dist/protocol/index.js';
import { numbers, sqlProbe } from './contract.mjs';

const KIND = 'bench';
const LEASE_MS = 30_000;
const EMPTY_WAIT_MS = 20;

function producerOn(engine, close) {
  const request = (n) => ({ kind: KIND, payload: { n } });
  return {
    submitMany: async (first, count) =>
      void (await engine.executions.submit(numbers(first, count).map(request))),
    submitOne: async (n) => void (await engine.executions.submit(request(n))),
    close,
  };
}

async function openProducer(target) {
  const engine = await connect({ databaseUrl: target.url, listen: 'off', reconcile: 'off' });
  return producerOn(engine, () => engine.close());
}

async function startPool(target, settings, onRun) {
  const engine = await connect({ databaseUrl: target.url });
  const work = async ({ n }, ctx) => {
    for (let step = 0; step < (settings.steps ?? 0); step += 1)
      await ctx.step('step', String(step), () => n + step);
    onRun(n);
    return { ok: true, n };
  };
  const worker = startWorker(engine, { ...settings.worker, handlers: [handle(task(KIND), work)] });
  return {
    ...(settings.producer === 'own connection'
      ? {}
      : { producer: producerOn(engine, async () => undefined) }),
    async stop() {
      await worker.stop();
      await engine.close();
    },
  };
}

async function startLoops(target, settings, onRun) {
  const options = { databaseUrl: target.url, poolSize: 1, listen: 'off', reconcile: 'off' };
  const engines = await Promise.all(Array.from({ length: settings.loops }, () => connect(options)));
  const stopping = new AbortController();
  const loop = async (engine, index) => {
    const request = { workerId: 'bench', workerInstanceId: `bench-${process.pid}-${index}` };
    const port = workerPort(engine);
    let completing;
    while (!stopping.signal.aborted) {
      const { claims } = await port.claim({ ...request, kinds: [KIND], limit: 1, leaseMs: LEASE_MS });
      const answer = await completing;
      if (answer !== undefined && answer.outcome !== 'completed')
        throw new Error(`A completion was answered ${answer.outcome}.`);
      const [claim] = claims;
      completing = undefined;
      if (claim === undefined) {
        await delay(EMPTY_WAIT_MS);
        continue;
      }
      onRun(claim.payload.n);
      completing = port.complete(claim, { ok: true, n: claim.payload.n });
    }
    await completing;
  };
  const loops = Promise.all(engines.map(loop));
  return {
    async stop() {
      stopping.abort();
      await loops;
      await Promise.all(engines.map((engine) => engine.close()));
    },
  };
}

/** @type {import('./contract.mjs').Contender} */
export const contender = {
  name: 'flowfabric',
  side: 'ours',
  store: 'postgres',
  packageName: 'flowfabric',
  keeps:
    'payload, result, attempt and two events per execution, and a row per step; each is settled under a lease of its own',
  variants: [
    { name: 'concurrency 2000', mode: 'batched', settings: { worker: { concurrency: 2_000 } } },
    { name: 'concurrency 500', mode: 'batched', settings: { worker: { concurrency: 500 } } },
    {
      name: '24 loops, complete 1 and claim 1 in one call',
      mode: 'unbatched',
      settings: { loops: 24 },
      jobsMax: 10_000,
    },
    { name: 'submit on the worker’s engine', mode: 'latency', settings: { worker: { concurrency: 500 } } },
    {
      name: 'submit on another connection',
      mode: 'latency',
      settings: { worker: { concurrency: 500 }, producer: 'own connection' },
    },
    { name: 'concurrency 500', mode: 'steps', settings: { worker: { concurrency: 500 } } },
    { name: 'defaults', mode: 'default', settings: { worker: {} } },
  ],
  bulk: {},
  prepare: async (target) => void (await migrate({ databaseUrl: target.url })),
  openProducer,
  startWorker: (target, settings, onRun) =>
    settings.loops === undefined ? startPool(target, settings, onRun) : startLoops(target, settings, onRun),
  openProbe: (target) =>
    sqlProbe(target, {
      unsettled: `SELECT CASE WHEN EXISTS (SELECT 1 FROM flowfabric.ff_ready) THEN 1
          ELSE (SELECT count(*) FROM flowfabric.ff_execution WHERE claim_no IS NOT NULL) END`,
      finished: `SELECT count(*) FROM flowfabric.ff_attempt_history WHERE terminal_outcome = 'success' AND result IS NOT NULL`,
    }),
};
