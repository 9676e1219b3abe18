/**
 * The smallest whole program: a database, a task, a worker whose first attempt fails, one execution, its result.
 * Run it with `node examples/hello/main.mjs`; set DATABASE_URL to use a Postgres of yours.
 */
import { connect, handle, migrate, startWorker, task, TaskFailed } from 'flowfabric';
import { startEmbedded } from 'flowfabric/embedded';

const server = process.env.DATABASE_URL === undefined ? await startEmbedded() : undefined;
const databaseUrl = server?.url ?? process.env.DATABASE_URL;
await migrate({ databaseUrl });
const connection = await connect({ databaseUrl });

const greet = task('greet', { retry: { maxRetries: 3, backoff: { type: 'fixed', delayMs: 50 } } });

const worker = startWorker(connection, {
  onError: console.error,
  handlers: [
    handle(greet, async ({ name }, ctx) => {
      if (name === '') throw new TaskFailed('nobody to greet', { retry: 'never' });
      const greeting = await ctx.step('compose', () => {
        console.log('composing, once');
        return `hello ${name}`;
      });
      if (ctx.attemptIndex === 0) throw new Error('the first try fails, to show a retry');
      return greeting;
    }),
  ],
});

const run = await connection.submit(greet, { name: 'Ada' });
console.log(`submitted ${run.executionId}`);
console.log(await run.result());
const { attempts } = await connection.executions.describe(run.executionId);
for (const { attemptIndex, outcome, failureMessage } of attempts) {
  console.log(`attempt ${attemptIndex}: ${outcome}${failureMessage === null ? '' : ` (${failureMessage})`}`);
}

await worker.stop();
await connection.close();
await server?.stop();
