/**
 * Shows whether an entity can live for ever: one execution receives many messages and continues as a new run after each
 * hundred, in a worker process of its own, which is killed at message 99 of a run and started again. Prints, after every
 * tenth part, the rate, the memory of the worker and the rows that are left of the execution. Exits with 1 when a message
 * was lost, doubled or out of order, or when memory, rows or the time for a message grow. Run it with
 * `npm run soak:messages -- [messages] [--json]`.
 */
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import pg from 'pg';
import { connect, migrate, task } from '../../dist/index.js';
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startEmbedded } from '../../dist/embedded/index.js';

const WORKER = fileURLToPath(new URL('messages/worker.mjs', import.meta.url));
const MESSAGES = Number(process.argv.slice(2).find((word) => /^\d+$/.test(word)) ?? 100_000);
const IS_JSON = process.argv.includes('--json');
const PARTS = 10;
const RUN_LENGTH = 100;
/** In the middle of the soak: message 99 of a run. */
const KILLED_AT = Math.floor(MESSAGES / 2 / RUN_LENGTH) * RUN_LENGTH + RUN_LENGTH - 1;
const MOST_WAITING = 2_000;
const SENDERS = 50;
const LOOK_MS = 20;
/** Of the last part over the second: the first fills caches. Rates of a shared machine vary. */
const ALLOWED_GROWTH = { memory: 1.5, time: 1.6 };
const MEGABYTE = 1_048_576;
// Run by root, the server drops to another account, which must be able to enter its directory.
const EVERYBODY_MAY_ENTER = 0o755;
/** What is measured is the work, not the disk. */
const SETTINGS = { fsync: 'off', full_page_writes: 'off', max_wal_size: '4GB' };
/** Tables whose rows of the execution must stay few; ids of messages are kept for an hour, and are not among them. */
const BOUNDED = { ff_step: 2 * RUN_LENGTH, ff_run: 20, ff_attempt_history: 30, ff_end_order: 2 * RUN_LENGTH };

const entity = task('entity', { retry: { maxRetries: 5, backoff: { type: 'fixed', delay: 10 } } });

/** Progress as the worker reports it. */
class Entity {
  handled = 0;
  memory = 0;
  kills = 0;
  #child;

  constructor(url) {
    this.url = url;
  }

  start(dieAt) {
    const options = JSON.stringify({ url: this.url, runLength: RUN_LENGTH, dieAt });
    this.#child = spawn(process.execPath, ['--expose-gc', WORKER, options], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    createInterface({ input: this.#child.stdout }).on('line', (line) => {
      const { handled, memory } = JSON.parse(line);
      this.handled = handled;
      this.memory = memory;
    });
    this.#child.on('exit', (_, signal) => {
      if (signal !== 'SIGKILL') return;
      this.kills += 1;
      this.start();
    });
  }

  stop() {
    this.#child.stdin.end();
  }
}

async function rowsOf(pool, id) {
  const uuid = id.slice(id.lastIndexOf(':') + 1);
  const counts = {};
  for (const table of Object.keys(BOUNDED)) {
    const { rows } = await pool.query(
      `SELECT count(*)::integer AS n FROM flowfabric.${table} WHERE execution_id = $1`,
      [uuid],
    );
    counts[table] = rows[0].n;
  }
  return counts;
}

function numbersFrom(first, length) {
  return Array.from({ length }, (_, index) => first + index);
}

/** Sends up to `target` messages in order, never far ahead of the handler. */
async function sendUntil(target, connection, id, sent, worker) {
  let next = sent;
  while (next < target) {
    if (next - worker.handled >= MOST_WAITING) {
      await delay(LOOK_MS);
      continue;
    }
    const batch = numbersFrom(next + 1, Math.min(SENDERS, target - next));
    // Calls of one process to one execution keep their order.
    const answers = await Promise.all(batch.map((n) => connection.send(id, 'numbers', n)));
    if (answers.some(({ outcome }) => outcome !== 'sent')) throw new Error('A message was refused.');
    next += batch.length;
  }
  while (worker.handled < target) await delay(LOOK_MS);
  return next;
}

async function soak(url) {
  await migrate({ databaseUrl: url });
  const connection = await connect({ databaseUrl: url });
  const pool = new pg.Pool({ connectionString: url, max: 1 });
  const worker = new Entity(url);
  const run = await connection.submit(entity, { next: 1, faults: 0 });
  worker.start(KILLED_AT);
  const parts = [];
  let sent = 0;
  for (let part = 1; part <= PARTS; part += 1) {
    const target = Math.round((MESSAGES * part) / PARTS);
    const startedAt = performance.now();
    const before = sent;
    sent = await sendUntil(target, connection, run.executionId, sent, worker);
    const usPerMessage = Math.round(((performance.now() - startedAt) * 1_000) / (sent - before));
    const rows = await rowsOf(pool, run.executionId);
    const megabytes = Math.round((worker.memory / MEGABYTE) * 10) / 10;
    parts.push({ handled: target, usPerMessage, megabytes, rows });
    console.error(
      `${target} messages  ${usPerMessage} µs each  heap ${megabytes} MB  ${JSON.stringify(rows)}`,
    );
  }
  await connection.send(run.executionId, 'numbers', 'stop');
  const result = await run.result();
  const { runs } = await connection.executions.describe(run.executionId, { include: ['runs'] });
  worker.stop();
  await pool.end();
  await connection.close();
  return { parts, result, kills: worker.kills, lastRun: Number(runs.items.at(-1).run) };
}

function faultsOf({ parts, result, kills, lastRun }) {
  const faults = [];
  const [second, last] = [parts[1], parts.at(-1)];
  if (result.next !== MESSAGES + 1 || result.faults > 0)
    faults.push(`the entity ended with ${JSON.stringify(result)}`);
  if (kills !== 1) faults.push(`the worker was killed ${kills} times`);
  if (lastRun !== MESSAGES / RUN_LENGTH) faults.push(`there were ${lastRun} runs`);
  if (last.megabytes > ALLOWED_GROWTH.memory * second.megabytes) faults.push('memory grows');
  if (last.usPerMessage > ALLOWED_GROWTH.time * second.usPerMessage)
    faults.push('the time for a message grows');
  for (const { handled, rows } of parts)
    for (const [table, most] of Object.entries(BOUNDED))
      if (rows[table] > most) faults.push(`after ${handled} messages ${table} has ${rows[table]} rows`);
  return faults;
}

const parent = await mkdtemp(join(tmpdir(), 'flowfabric-soak-'));
await chmod(parent, EVERYBODY_MAY_ENTER);
const server = await startEmbedded({ dataDir: join(parent, 'postgres'), settings: SETTINGS });
try {
  const measured = await soak(server.url);
  const faults = faultsOf(measured);
  for (const fault of faults) console.error(fault);
  if (faults.length > 0) process.exitCode = 1;
  const { parts, kills, lastRun } = measured;
  const figures = {
    messages: MESSAGES,
    run_length: RUN_LENGTH,
    runs: lastRun,
    killed_at_message: KILLED_AT,
    kills,
  };
  if (IS_JSON) console.log(JSON.stringify({ ...figures, faults: faults.length, parts }));
} finally {
  await server.stop('immediate');
  await rm(parent, { recursive: true, force: true, maxRetries: 3 });
}
