/**
 * Work and data in one commit, on both sides: an order and the task that delivers it are stored in the application's own transaction, and
 * a step of the task writes to the application's table in the transaction that records the step.
 */
import { randomUUID } from 'node:crypto';
import pg from 'pg';
import { connect, handle, migrate, startWorker, task } from 'flowfabric';
import { pgExecutor } from 'flowfabric/adapters';
import { startEmbedded } from 'flowfabric/embedded';

const server = process.env['DATABASE_URL'] === undefined ? await startEmbedded() : undefined;
const databaseUrl = server?.url ?? process.env['DATABASE_URL']!;
await migrate({ databaseUrl });
const connection = await connect({ databaseUrl });
const pool = new pg.Pool({ connectionString: databaseUrl });
await pool.query('CREATE TABLE IF NOT EXISTS example_orders (id text PRIMARY KEY, state text NOT NULL)');
await pool.query('TRUNCATE example_orders');

/** Tells the executions of this run of the program from those of an earlier one. */
const run = randomUUID();
const deliver = task<{ orderId: string }, string>('deliver');

/** What is rolled back was never submitted. */
async function placeOrder(orderId: string, isPaid: boolean): Promise<void> {
  const client = await pool.connect();
  try {
    await client.query('BEGIN');
    await client.query('INSERT INTO example_orders VALUES ($1, $2)', [orderId, 'placed']);
    const tags = { order: orderId, run };
    await connection.submit(deliver, { orderId }, { executor: pgExecutor(client), tags });
    await client.query(isPaid ? 'COMMIT' : 'ROLLBACK');
  } finally {
    client.release();
  }
}

await placeOrder('order-1', true);
await placeOrder('order-2', false);
const { executions } = await connection.executions.list({ filter: { tags: { run } } });
console.log(`submitted: ${executions.map(({ tags }) => tags['order']).join(', ')}`);

const worker = startWorker(connection, {
  handlers: [
    handle(deliver, async ({ orderId }, ctx) => {
      await ctx.tx('mark', async (tx) => {
        await tx.query('UPDATE example_orders SET state = $2 WHERE id = $1', [orderId, 'delivered']);
      });
      return orderId;
    }),
  ],
});
for (const { executionId } of executions)
  console.log(`delivered: ${await connection.execution(deliver, executionId).result()}`);
console.log((await pool.query('SELECT id, state FROM example_orders')).rows);

await worker.stop();
await connection.close();
await pool.end();
await server?.stop();
