/**
 * The real engine beside the plain writers: executions are submitted, claimed and completed through it, so that the run
 * includes the events of its own functions.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { connect, handle, isEngineError, startWorker, task } from '../../../dist/index.js';

const work = task('soak');
const CONCURRENCY = 10;
const BATCH = 5;
const EVERY_MS = 40;
const LEASE_MS = 2_000;
const PASSING = ['unavailable', 'contention', 'closed'];

/** Works until told to stop. */
export async function runEngine(url, ledger, stop) {
  const connection = await connect({ databaseUrl: url, poolSize: 4 });
  const worker = startWorker(connection, {
    concurrency: CONCURRENCY,
    lease: LEASE_MS,
    handlers: [handle(work, (n) => n * 2)],
  });
  while (!stop.aborted) {
    try {
      await connection.submitMany(
        work,
        Array.from({ length: BATCH }, (_, input) => ({ input })),
      );
    } catch (error) {
      if (!isEngineError(error) || !PASSING.includes(error.code)) ledger.fault(error);
    }
    await delay(EVERY_MS);
  }
  await worker.stop();
  await connection.close();
}
