/**
 * A consumer of the event feed: every payment that ends is written to a ledger exactly once. The consumer's position moves in the
 * transaction of its handler, so a handler that fails is given the same events again, and leaves nothing behind.
 */
import { randomUUID } from 'node:crypto';
import { connect, handle, migrate, startWorker, task } from 'flowfabric';
import { startEmbedded } from 'flowfabric/embedded';
import pg from 'pg';

const server = process.env['DATABASE_URL'] === undefined ? await startEmbedded() : undefined;
const databaseUrl = server?.url ?? process.env['DATABASE_URL']!;
await migrate({ databaseUrl });
const connection = await connect({ databaseUrl });
const pool = new pg.Pool({ connectionString: databaseUrl });
await pool.query(
  'CREATE TABLE IF NOT EXISTS example_ledger (position bigint PRIMARY KEY, kind text, type text)',
);
await pool.query('TRUNCATE example_ledger');

/** Tells the events of this run of the program from those of an earlier one; a real consumer has a fixed name. */
const tags = { run: randomUUID() };
const pay = task<{ cents: number }, number>('pay');
const worker = startWorker(connection, {
  handlers: [handle(pay, ({ cents }) => cents)],
});
for (const cents of [100, 250, 400]) await connection.submit(pay, { cents }, { tags });

let seen = 0;
let failures = 0;
const consumer = await connection.events.consume(
  `ledger-${tags.run}`,
  async (events, tx) => {
    for (const event of events)
      await tx.query('INSERT INTO example_ledger VALUES ($1, $2, $3)', [event.position, 'pay', event.type]);
    if (failures === 0) throw new Error('the first try fails, to show that it leaves nothing behind');
    seen += events.length;
    if (seen === 3) setImmediate(() => void consumer.stop());
  },
  {
    filter: { families: ['completion'], kind: 'pay', tags },
    onError: (_, count) => {
      failures = count;
      console.log('the handler failed, and is given the same events again');
    },
  },
);
await consumer.done;
const { rows } = await pool.query<{ type: string }>('SELECT type FROM example_ledger ORDER BY position');
console.log(`in the ledger: ${rows.map(({ type }) => type).join(', ')}`);

await connection.consumers.forget(consumer.name);
await worker.stop();
await connection.close();
await pool.end();
await server?.stop();
