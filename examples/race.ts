/**
 * A flow: three models are asked the same question, the first answer is published, and the others are stopped while they run. The join
 * that decides this is in the database, so it survives any crash.
 */
import { join, connect, flow, handle, migrate, startWorker, task, type FlowBuilder } from 'flowfabric';
import { startEmbedded } from 'flowfabric/embedded';

const server = process.env['DATABASE_URL'] === undefined ? await startEmbedded() : undefined;
const databaseUrl = server?.url ?? process.env['DATABASE_URL']!;
await migrate({ databaseUrl });
const connection = await connect({ databaseUrl });

const MODELS = ['slow', 'quick', 'slower'];
const ask = task<{ model: string; question: string }, string>('ask');

const race = flow('race', (f: FlowBuilder<{ question: string }>) => {
  const answers = MODELS.map((model) => f.add(model, ask, ({ question }) => ({ model, question })));
  return f.handle('publish', { after: { answers }, join: join.any() }, (input) => input.answers.join('; '));
});

/** In production: fetch(…, { signal }). The slow ones would never answer. */
const running = new Set<string>();
const stopped: string[] = [];
const stop = new AbortController();

async function askModel(model: string, question: string, signal: AbortSignal): Promise<string> {
  running.add(model);
  if (running.size === MODELS.length) stop.abort();
  if (model === 'quick') {
    await aborted(stop.signal);
    return `${question} 42, says ${model}`;
  }
  await aborted(signal);
  stopped.push(model);
  throw signal.reason;
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });
}

const worker = startWorker(connection, {
  handlers: [
    handle(ask, ({ model, question }, ctx) => askModel(model, question, ctx.signal)),
    ...race.handlers,
  ],
});

const run = await connection.submitFlow(race, { question: 'The answer?' });
console.log(await run.result());
console.log(`the flow is ${await run.wait()}`);
await worker.stop();
console.log(`stopped while they ran: ${stopped.toSorted().join(', ')}`);
for (const member of (await run.describe())?.members ?? [])
  console.log(`${member.name}: ${member.state}${member.message === null ? '' : ` (${member.message})`}`);

await connection.close();
await server?.stop();
