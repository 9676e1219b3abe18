/**
 * DBOS: a workflow that starts the members. Chains and joins of all start them in their own process and await them
 * there, which is faster than its queue; a chain can also be steps of one workflow. In a first-of join both processes
 * take them from the queue, and the workflow waits with `waitFirst`, then cancels the rest. Workflows are submitted
 * over a client's connection. Runs in a seat.
 */
import { DBOS, DBOSClient } from '@dbos-inc/dbos-sdk';
import { fired } from './desk.mjs';

const APPLICATION = 'bench';
const VERSION = '1';
const QUEUE = 'bench';
const WORKFLOW = 'bench';
const POOL_SIZE = 20;
const POLLING = { pollingIntervalMs: 20 };
const ENQUEUE = { queueName: QUEUE, workflowName: WORKFLOW, appVersion: VERSION };
const silent = { info() {}, debug() {}, warn() {}, error() {} };

function range(size) {
  return Array.from({ length: size }, (_, i) => i);
}

async function race(desk, n, i) {
  desk.tell(n, 'begun');
  if (i === 0) {
    await desk.seen(n, 'go');
    return desk.tell(n, 'over');
  }
  await fired(DBOS.stepStatus.cancelSignal);
  desk.tell(n, 'stopped');
}

/** The workflows by shape; each returns its input. */
function workflowsOf({ kind, size }, settings, desk) {
  const member = DBOS.registerWorkflow(
    async (n, role) => {
      if (role === 'end') desk.tell(n, 'end');
      if (role === 'root') desk.tell(n, 'over');
      return { ok: true, n };
    },
    { name: 'member' },
  );
  const racer = DBOS.registerWorkflow((n, i) => DBOS.runStep(() => race(desk, n, i), { name: 'race' }), {
    name: 'racer',
  });
  const roleOf = (i) => (i === size - 1 ? 'end' : 'link');
  const shapes = {
    chain: async (n) => {
      for (const i of range(size)) await member(n, roleOf(i));
    },
    steps: async (n) => {
      const step = async (i) => (roleOf(i) === 'end' ? desk.tell(n, 'end') : undefined);
      for (const i of range(size)) await DBOS.runStep(() => step(i), { name: `step-${i}` });
    },
    all: async (n) => {
      await member(n, 'root');
      const handles = await Promise.all(range(size).map(() => DBOS.startWorkflow(member)(n, 'branch')));
      await Promise.all(handles.map((handle) => handle.getResult(POLLING)));
      await member(n, 'end');
    },
    any: async (n) => {
      const handles = [];
      for (const i of range(size)) handles.push(await DBOS.startWorkflow(racer, { queueName: QUEUE })(n, i));
      const winner = await DBOS.waitFirst(handles, POLLING);
      await DBOS.runStep(async () => desk.tell(n, 'end'), { name: 'join' });
      await DBOS.cancelWorkflows(
        handles.map((one) => one.workflowID).filter((id) => id !== winner.workflowID),
      );
    },
  };
  return settings.way === 'steps' ? shapes.steps : shapes[kind];
}

/** How many workflows one flow leaves behind. */
function perFlow({ kind, size }, settings) {
  if (settings.way === 'steps') return 1;
  return size + (kind === 'all' ? 3 : 1);
}

/** @returns {Promise<import('./desk.mjs').Flows>} */
export async function openFlows({ target, settings, shape }, desk) {
  DBOS.setConfig({
    name: APPLICATION,
    systemDatabaseUrl: target.url,
    systemDatabasePoolSize: POOL_SIZE,
    applicationVersion: VERSION,
    enableOTLP: false,
    logger: silent,
  });
  DBOS.registerWorkflow(workflowsOf(shape, settings, desk), { name: WORKFLOW });
  await DBOS.launch();
  const client = await DBOSClient.create({
    systemDatabaseUrl: target.url,
    systemDatabasePoolSize: POOL_SIZE,
    applicationName: APPLICATION,
    logger: silent,
  });
  return {
    perFlow: perFlow(shape, settings),
    submit: async (n) => void (await client.enqueue(ENQUEUE, n)),
    async stop() {
      await client.destroy();
      await DBOS.shutdown();
    },
  };
}
