/**
 * The smallest whole program: a database, a worker with one handler that fails the first time, one execution, its
 * result. Run it with `node examples/hello/main.mjs`; set DATABASE_URL to use a Postgres of yours.
 */
import { connect, migrate, startWorker, TaskFailed } from 'flowfabric';
import { startEmbedded } from 'flowfabric/embedded';

const server = process.env.DATABASE_URL === undefined ? await startEmbedded() : undefined;
const databaseUrl = server?.url ?? process.env.DATABASE_URL;
await migrate({ databaseUrl });
const engine = await connect({ databaseUrl });

const worker = startWorker(engine, {
  onError: console.error,
  handlers: {
    greet: async ({ payload, attemptIndex }) => {
      if (payload.name === '') throw new TaskFailed('nobody to greet', { retry: 'never' });
      if (attemptIndex === 0) throw new Error('the first try fails, to show a retry');
      return `hello ${payload.name}`;
    },
  },
});

const { executionId } = await engine.submit({
  kind: 'greet',
  payload: { name: 'Ada' },
  policy: { retry: { maxRetries: 3, backoff: { type: 'fixed', delayMs: 50 } } },
});
console.log(`submitted ${executionId}`);

/** Asks until the execution has ended. */
async function ended() {
  for (;;) {
    const result = await engine.result(executionId);
    if (result.outcome !== 'pending') return result;
    await new Promise((resolve) => {
      setTimeout(resolve, 20);
    });
  }
}

console.log(await ended());
const { attempts } = await engine.describe(executionId);
for (const { attemptIndex, outcome, failureMessage } of attempts) {
  console.log(`attempt ${attemptIndex}: ${outcome}${failureMessage === null ? '' : ` (${failureMessage})`}`);
}

await worker.stop();
await engine.close();
await server?.stop();
