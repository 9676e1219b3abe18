/**
 * A small server, to be bundled into one file: it migrates, submits, works and exits.
 */
import { connect, handle, migrate, startWorker, task } from '../../../dist/index.js';

const databaseUrl = process.env.DATABASE_URL;
await migrate({ databaseUrl });
const engine = await connect({ databaseUrl });
const double = task('double');
const worker = startWorker(engine, {
  log: 'silent',
  handlers: [handle(double, ({ n }) => ({ doubled: 2 * n }))],
});
const run = await engine.submit(double, { n: 21 });
const result = await run.result();
await worker.stop();
await engine.close();
const { applied: again } = await migrate({ databaseUrl });
process.stdout.write(JSON.stringify({ result, again }));
