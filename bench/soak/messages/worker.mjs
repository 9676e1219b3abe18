/**
 * The worker of the soak of messages, in its own process: an entity that counts the messages it receives and continues as
 * a new run after some of them. It reports after each run, and can kill itself, as by `kill -9`, at a message.
 */
import { connect, handle, startWorker, task } from '../../../dist/index.js';

const options = JSON.parse(process.argv[2]);

function report(handled) {
  globalThis.gc();
  process.stdout.write(`${JSON.stringify({ handled, memory: process.memoryUsage().heapUsed })}\n`);
}

async function count({ next: first, faults: before }, ctx) {
  let next = first;
  let faults = before;
  for await (const { payload } of ctx.inbox('numbers')) {
    if (payload === 'stop') return { next, faults };
    if (payload !== next) faults += 1;
    if (payload === options.dieAt) process.kill(process.pid, 'SIGKILL');
    next = payload + 1;
    if (next - first < options.runLength) continue;
    report(payload);
    return ctx.continueAs({ next, faults });
  }
}

const connection = await connect({ databaseUrl: options.url });
const worker = startWorker(connection, {
  log: 'silent',
  lease: 3_000,
  handlers: [handle(task('entity'), count)],
});

for await (const _ of process.stdin) continue;
await worker.stop();
await connection.close();
