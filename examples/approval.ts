/**
 * Waiting for people: an order needs two of them to agree. No worker is held while it waits. One person answers through a link, as from
 * an e-mail; the other is an operator.
 */
import { atLeast, connect, handle, migrate, startWorker, task, type DeliverOutcome } from 'flowfabric';
import { startEmbedded } from 'flowfabric/embedded';

const server = process.env['DATABASE_URL'] === undefined ? await startEmbedded() : undefined;
const databaseUrl = server?.url ?? process.env['DATABASE_URL']!;
await migrate({ databaseUrl });
// In production this is a secret of yours, the same in every process: openssl rand -hex 32
const connection = await connect({ databaseUrl, signingSecret: 'an example, and not much of a secret' });

function wordsFor(delivered: DeliverOutcome): string {
  return 'effect' in delivered ? `${delivered.outcome}, ${delivered.effect}` : delivered.outcome;
}

const order = task<{ item: string }, string>('order');

const worker = startWorker(connection, {
  handlers: [
    handle(order, async ({ item }, ctx) => {
      const { signals } = await ctx.waitFor('manager', {
        by: atLeast(2).distinctSources().named('approved'),
        timeout: '2d',
        onTimeout: 'expire',
        reason: 'approval',
      });
      const people = new Set(signals.map((signal) => signal.source.identity));
      return ctx.step('buy', () => `${item}, approved by ${[...people].join(' and ')}`);
    }),
  ],
});

const following = await connection.events.subscribe({ filter: { families: ['signal'] } });
const run = await connection.submit(order, { item: 'a telescope' });
const { executionId } = run;
for await (const event of following)
  if (event.type === 'suspended' && event.executionId === executionId) break;
const [waiting] = (await connection.waitpoints.list({ executionId })).waitpoints;
console.log(`${waiting?.kind} is suspended and waits at ${waiting?.name} (${waiting?.reason})`);

const { link } = await connection.waitpoints.issueToken(executionId, 'manager', {
  source: { type: 'user', identity: 'ada' },
  signal: { name: 'approved' },
  linkTo: 'https://example.org/answer',
});
for (const time of ['first', 'second']) {
  const delivered = await connection.signal({ token: link! });
  console.log(`ada, the ${time} time: ${wordsFor(delivered)}`);
}
const approved = await connection.waitpoints.approve(executionId, 'manager', { by: 'grace' });
console.log(`grace: ${wordsFor(approved)}`);
console.log(await run.result());

await worker.stop();
await connection.close();
await server?.stop();
