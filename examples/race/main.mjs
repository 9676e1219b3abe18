/**
 * Hedged calls: three models are asked the same, the first answer is taken, and the others are stopped while they run. One join does it, and it
 * survives any crash. Run it with `node examples/race/main.mjs`; set DATABASE_URL to use a Postgres of yours.
 */
import { connect, handle, migrate, startWorker, task } from 'flowfabric';
import { startEmbedded } from 'flowfabric/embedded';

const server = process.env.DATABASE_URL === undefined ? await startEmbedded() : undefined;
const databaseUrl = server?.url ?? process.env.DATABASE_URL;
await migrate({ databaseUrl });
const connection = await connect({ databaseUrl });

const MODELS = ['slow', 'quick', 'slower'];
const begun = new Set();
const stopped = [];
let allBegun;
const everybody = new Promise((resolve) => {
  allBegun = resolve;
});
let bothStopped;
const losers = new Promise((resolve) => {
  bothStopped = resolve;
});

/** In earnest: fetch(…, { signal }). The slow ones would go on for ever. */
async function ask(model, question, signal) {
  begun.add(model);
  if (begun.size === MODELS.length) allBegun();
  if (model === 'quick') return everybody.then(() => `${question} 42, says ${model}`);
  return new Promise((_, reject) => {
    signal.addEventListener('abort', () => {
      stopped.push(model);
      if (stopped.length === 2) bothStopped();
      reject(signal.reason);
    });
  });
}

const worker = startWorker(connection, {
  onError: console.error,
  handlers: [
    handle(task('ask'), ({ model, question }, ctx) => ask(model, question, ctx.signal)),
    handle(task('publish'), ({ answers }) => answers.join('; ')),
  ],
});

const { flowId, members } = await connection.flows.submit({
  name: 'race',
  members: [
    ...MODELS.map((model) => ({ name: model, kind: 'ask', payload: { model, question: 'The answer?' } })),
    {
      name: 'publish',
      kind: 'publish',
      after: MODELS.map((from) => ({ from, as: 'answers', list: true })),
      join: { kind: 'any' },
    },
  ],
});

console.log(`the flow is ${await connection.flows.wait(flowId)}`);
const end = await connection.executions.result(members.publish);
console.log(end.result);
await losers;
console.log(`stopped while they ran: ${stopped.toSorted().join(', ')}`);
for (const { name, state, message } of (await connection.flows.describe(flowId)).members)
  console.log(`${name}: ${state}${message === null ? '' : ` (${message})`}`);

await worker.stop();
await connection.close();
await server?.stop();
