/**
 * The smallest whole program: a database, a task with a durable step, a worker whose first attempt fails, one execution, and its result.
 * The step runs once, though the handler runs twice.
 */
import { connect, handle, migrate, startWorker, task, TaskFailed } from 'flowfabric';
import { startEmbedded } from 'flowfabric/embedded';

const server = process.env['DATABASE_URL'] === undefined ? await startEmbedded() : undefined;
const databaseUrl = server?.url ?? process.env['DATABASE_URL']!;
await migrate({ databaseUrl });
const connection = await connect({ databaseUrl });

const greet = task<{ name: string }, string>('greet', {
  retry: { maxRetries: 3, backoff: { type: 'fixed', delay: 50 } },
});

const worker = startWorker(connection, {
  handlers: [
    handle(greet, async ({ name }, ctx) => {
      if (name === '') throw new TaskFailed('nobody to greet', { retry: 'never' });
      const greeting = await ctx.step('compose', () => {
        console.log('composing, once');
        return `hello ${name}`;
      });
      if (ctx.attemptIndex === 0) throw new Error('the first attempt fails, to show a retry');
      return greeting;
    }),
  ],
});

const run = await connection.submit(greet, { name: 'Ada' });
console.log(await run.result());

await worker.stop();
await connection.close();
await server?.stop();
