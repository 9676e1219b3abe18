/**
 * Waiting for people: an order needs two of them to agree. While it waits no worker is held. One answers by a link, as from a
 * mail, the other is an operator. Run it with `node examples/approval/main.mjs`; set DATABASE_URL to use a Postgres of yours.
 */
import { atLeast, connect, handle, migrate, startWorker, task } from 'flowfabric';
import { startEmbedded } from 'flowfabric/embedded';

const server = process.env.DATABASE_URL === undefined ? await startEmbedded() : undefined;
const databaseUrl = server?.url ?? process.env.DATABASE_URL;
await migrate({ databaseUrl });
// In earnest a secret of yours, the same in every process: openssl rand -hex 32
const connection = await connect({ databaseUrl, signingSecret: 'an example, and not much of a secret' });

const order = task('order');
const worker = startWorker(connection, {
  onError: console.error,
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
for await (const event of following) if (event.type === 'suspended') break;
const [waited] = (await connection.waitpoints.list()).waitpoints;
console.log(`${waited.kind} is suspended and waits at ${waited.name} (${waited.reason})`);

const { link } = await connection.waitpoints.issueToken(run.executionId, 'manager', {
  source: { type: 'user', identity: 'ada' },
  signal: { name: 'approved' },
  linkTo: 'https://example.org/answer',
});
for (const time of ['first', 'second']) {
  const { outcome, effect } = await connection.signal({ token: link });
  console.log(`ada, the ${time} time: ${outcome}, ${effect}`);
}
const { outcome, effect } = await connection.waitpoints.approve(run.executionId, 'manager', { by: 'grace' });
console.log(`grace: ${outcome}, ${effect}`);
console.log(await run.result());

await worker.stop();
await connection.close();
await server?.stop();
