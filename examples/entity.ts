/**
 * An entity: an account that handles one command after another. It holds no worker while nothing comes, answers requests,
 * and lives on as run after run.
 */
import { connect, handle, migrate, startWorker, task } from 'flowfabric';
import { startEmbedded } from 'flowfabric/embedded';

const server = process.env['DATABASE_URL'] === undefined ? await startEmbedded() : undefined;
const databaseUrl = server?.url ?? process.env['DATABASE_URL']!;
await migrate({ databaseUrl });
const connection = await connect({ databaseUrl });

interface Command {
  add?: number;
  close?: true;
}
/** So few only to show it: `inbox.shouldContinue` is true after 500. */
const MESSAGES_OF_A_RUN = 3;

const account = task<{ balance: number }, string>('account');

const worker = startWorker(connection, {
  handlers: [
    handle(account, async (input, ctx) => {
      let { balance } = input;
      let handled = 0;
      const inbox = ctx.inbox<Command>('commands');
      for await (const { payload, reply } of inbox) {
        balance += payload.add ?? 0;
        await reply({ balance });
        if (payload.close) return `closed with ${balance}`;
        handled += 1;
        if (handled === MESSAGES_OF_A_RUN || inbox.shouldContinue) return ctx.continueAs({ balance });
      }
      throw new Error('An inbox without idle never ends.');
    }),
  ],
});

const run = await connection.submit(account, { balance: 0 });
const { executionId } = run;
const ask = (command: Command, id?: string) =>
  connection.request<{ balance: number }>(executionId, 'commands', command, id === undefined ? {} : { id });

const first = await ask({ add: 10 }, 'deposit-1');
console.log(`a deposit of 10: ${first.balance}`);
const again = await ask({ add: 10 }, 'deposit-1');
console.log(`the same deposit, sent again: ${again.balance}`);
await Promise.all([1, 2, 3, 4].map((add) => connection.send(executionId, 'commands', { add })));
const last = await ask({ close: true });
console.log(`four more and the end: ${last.balance}`);
console.log(await run.result());
const described = await connection.executions.describe(executionId, { include: ['runs'] });
console.log(
  `runs before the last: ${described?.runs.items.map((ended) => ended.messages).join(' and ')} messages`,
);

await worker.stop();
await connection.close();
await server?.stop();
