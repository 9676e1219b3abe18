/**
 * Shows whether memory stays flat over many executions: one worker process, this one, runs short executions of two
 * steps each on its own embedded server, and prints its memory after every tenth part. Exits with 1 when it is much
 * higher at the end than after the second part. Run it with `node --expose-gc bench/soak/memory.mjs [executions]`.
 */
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { startEmbedded } from '../../dist/embedded/index.js';
import { connect, handle, migrate, startWorker, task } from '../../dist/index.js';

const EXECUTIONS = Number(process.argv[2] ?? 200_000);
const PARTS = 10;
/** Submitted at once, so that later payloads do not count as held memory. */
const BATCH = 1_000;
const MOST_WAITING = 4 * BATCH;
const ALLOWED_GROWTH = 1.3;
const LOOK_MS = 20;
const MEGABYTE = 1_048_576;
// Run by root, the server drops to another account, which must be able to enter its directory.
const EVERYBODY_MAY_ENTER = 0o755;
const SETTINGS = { fsync: 'off', full_page_writes: 'off', max_wal_size: '4GB' };

if (globalThis.gc === undefined) {
  console.error('Run it with --expose-gc: what is not collected yet is not held.');
  process.exit(2);
}

const short = task('soak');

async function work(n, ctx) {
  const doubled = await ctx.step('double', () => n * 2);
  return ctx.step('add', () => ({ sum: doubled + 1 }));
}

/** Twice, because what a finalizer releases is collected by the next round. */
function measure() {
  globalThis.gc();
  globalThis.gc();
  const { heapUsed, rss } = process.memoryUsage();
  return { heapUsed, rss };
}

function print(done, { heapUsed, rss }, startedAt) {
  const inMegabytes = (bytes) => `${(bytes / MEGABYTE).toFixed(1)} MB`.padStart(10);
  const seconds = ((performance.now() - startedAt) / 1_000).toFixed(0);
  console.log(
    `${String(done).padStart(8)} executions  heap ${inMegabytes(heapUsed)}  rss ${inMegabytes(rss)}  ${seconds} s`,
  );
}

async function submitSome(connection, first, size) {
  const items = Array.from({ length: size }, (_, index) => ({ input: first + index }));
  await connection.submitMany(short, items);
  return size;
}

/** Submits up to `target` executions, never far ahead of the worker. */
async function runUntil(target, connection, worker, submitted) {
  let count = submitted;
  while (worker.stats.completed < target) {
    if (count < target && count - worker.stats.completed < MOST_WAITING) {
      count += await submitSome(connection, count, Math.min(BATCH, target - count));
    } else {
      await delay(LOOK_MS);
    }
  }
  return count;
}

async function soak(url) {
  await migrate({ databaseUrl: url });
  const connection = await connect({ databaseUrl: url });
  const worker = startWorker(connection, { concurrency: 100, handlers: [handle(short, work)] });
  const measures = [];
  const startedAt = performance.now();
  let submitted = 0;
  for (let part = 1; part <= PARTS; part += 1) {
    const target = Math.round((EXECUTIONS * part) / PARTS);
    submitted = await runUntil(target, connection, worker, submitted);
    measures.push(measure());
    print(target, measures.at(-1), startedAt);
  }
  await worker.stop();
  await connection.close();
  return { measures, stats: worker.stats };
}

/** The first part is left out: it fills caches and compiles code. */
function growthOf(measures, what) {
  return measures.at(-1)[what] / measures[1][what];
}

const parent = await mkdtemp(join(tmpdir(), 'flowfabric-soak-'));
await chmod(parent, EVERYBODY_MAY_ENTER);
const server = await startEmbedded({ dataDir: join(parent, 'postgres'), settings: SETTINGS });
try {
  const { measures, stats } = await soak(server.url);
  const growths = ['heapUsed', 'rss'].map((what) => [what, growthOf(measures, what)]);
  for (const [what, growth] of growths) {
    console.log(`${what}: the last is ${growth.toFixed(2)} times the second; allowed is ${ALLOWED_GROWTH}`);
  }
  console.log(JSON.stringify(stats));
  const unsound = stats.completed !== EXECUTIONS || stats.lost > 0 || stats.failed > 0;
  if (unsound || growths.some(([, growth]) => growth > ALLOWED_GROWTH)) process.exitCode = 1;
} finally {
  await server.stop('immediate');
  await rm(parent, { recursive: true, force: true, maxRetries: 3 });
}
