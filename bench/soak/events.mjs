/**
 * Shows whether the event feed loses anything: writers that commit late, abort and prepare, rival sequencers that are
 * killed, a server that crashes, and readers that are interrupted and resume from their cursor; in the end everything
 * is compared with the tables. Exits with 1 when something is wrong, also when the planted naive reader lost nothing.
 * Run it with `npm run soak:events -- [--seconds N] [--json]`.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { migrate } from '../../dist/index.js';
import { startChild } from './events/child.mjs';
import { startNaiveReader } from './events/naive-reader.mjs';
import { sequenceAll, startSequencers } from './events/sequencers.mjs';
import { openServer } from './events/server.mjs';
import { Session } from './events/session.mjs';
import { PREPARE } from './events/transaction.mjs';
import { countRuns, readTruth } from './events/truth.mjs';
import { complaintsAbout, judge, sum } from './events/verdict.mjs';

const USAGE = `npm run soak:events -- [options]
  --seconds N       how long the writers write (60)
  --writers N       writers of short transactions (24)
  --readers N       readers of the feed (8)
  --binaries WHICH  Postgres to start: auto (default), system, packaged, or a directory with its programs
  --json            end with the figures as one line of JSON`;
/** A second crash, after the late writer, if there is time for it. */
const SECOND_CRASH_FROM_SECONDS = 30;
const FIRST_CRASH_AT = 0.2;
const LATE_FOR = 1 / 3;
const MAX_FAULTS_SHOWN = 10;
const INTERRUPTED = 130;

function readOptions() {
  const count = (value, name) => {
    const number = Number(value);
    if (!Number.isInteger(number) || number < 1)
      throw new Error(`--${name} takes a whole number of at least 1.`);
    return number;
  };
  const { values } = parseArgs({
    options: {
      seconds: { type: 'string', default: '60' },
      writers: { type: 'string', default: '24' },
      readers: { type: 'string', default: '8' },
      binaries: { type: 'string', default: 'auto' },
      json: { type: 'boolean', default: false },
      help: { type: 'boolean', default: false },
    },
  });
  const { binaries, json, help } = values;
  const [seconds, writers, readers] = ['seconds', 'writers', 'readers'].map((name) =>
    count(values[name], name),
  );
  return { seconds, writers, readers, binaries, json, help };
}

function say(text) {
  console.log(text);
}

/** Everything that happens while the writers write. Returns how often the server crashed. */
async function disturb({ server, writers, seconds }) {
  const overAt = Date.now() + 1_000 * seconds;
  let crashes = 0;
  const crash = async () => {
    await server.crash();
    crashes += 1;
    say(`the server crashed and is back`);
  };
  await delay(FIRST_CRASH_AT * 1_000 * seconds);
  await crash();
  const late = writers.heard('late-done');
  writers.tell({ type: 'late', url: server.url, holdMs: LATE_FOR * 1_000 * seconds });
  await late;
  say('the late writer has committed');
  if (seconds >= SECOND_CRASH_FROM_SECONDS) await crash();
  await delay(Math.max(0, overAt - Date.now()));
  return crashes;
}

async function soak(server, writers, readers, options) {
  const { url, port } = server;
  const { seconds } = options;
  const session = new Session(url, 'soak');
  await migrate({ databaseUrl: url });
  await session.query(PREPARE);
  const faults = [];
  const sequencers = startSequencers(url, {
    seconds,
    fault: (error) => faults.push(String(error?.stack ?? error)),
  });
  const naive = startNaiveReader(url);
  readers.tell({ type: 'start', url, port, count: options.readers });
  writers.tell({ type: 'start', url, writers: options.writers });
  const crashes = await disturb({ server, writers, seconds });
  const told = writers.heard('ledger');
  writers.tell({ type: 'stop' });
  const { ledger } = await told;
  await sequencers.stop();
  const last = await sequenceAll(session);
  say(`everything is written, up to position ${last}; the readers read to the end`);
  const done = readers.heard('reports');
  readers.tell({ type: 'drain', last });
  const { reports } = await done;
  const naiveSeen = await naive.stop();
  const truth = await readTruth(session);
  const runs = await countRuns(session);
  await session.close();
  faults.push(...ledger.faults, ...reports.flatMap((report) => report.faults));
  const figures = { ...judge({ truth, reports, ledger, naiveSeen }), faults: faults.length };
  return { result: { ...figures, ...circumstances({ ledger, reports, runs, sequencers, crashes }) }, faults };
}

function circumstances({ ledger, reports, runs, sequencers, crashes }) {
  const total = (name) => sum(reports, ({ counts }) => counts[name]);
  const events = Math.max(1, reports[0].last);
  const { kills, killedInCall, calls, slots } = sequencers.counts;
  return {
    readers: reports.length,
    crashes,
    sequencer_kills: kills,
    sequencer_kills_in_call: killedInCall,
    sequencer_calls: calls,
    transactions: ledger.committed.size,
    aborted: ledger.aborted.size,
    unknown: ledger.unknown.size,
    longest_writer_s: Number((ledger.longestMs / 1_000).toFixed(1)),
    subscriptions: total('subscriptions'),
    disconnected_items: total('disconnected'),
    interruptions: ['break', 'dawdle', 'abort', 'close', 'cut'].map((name) => total(name)).join('/'),
    slots,
    runs: runs.runs,
    stamps: runs.stamps,
    longest_run: runs.longest,
    runs_per_event: Number((runs.runs / events).toFixed(4)),
    runs_per_stamp: Number((runs.runs / Math.max(1, runs.stamps)).toFixed(2)),
    events_per_stamp: Number((events / Math.max(1, runs.stamps)).toFixed(1)),
  };
}

function print({ result, faults }, { json }) {
  for (const [name, value] of Object.entries(result)) say(`${name.padEnd(24)} ${value}`);
  for (const fault of faults.slice(0, MAX_FAULTS_SHOWN)) say(`fault: ${fault}`);
  const complaints = complaintsAbout(result);
  say(complaints.length === 0 ? 'sound' : `unsound: ${complaints.join('; ')}`);
  if (json) say(JSON.stringify(result));
  return complaints.length === 0 ? 0 : 1;
}

async function main() {
  const options = readOptions();
  if (options.help) return say(USAGE);
  const opened = [];
  let isOver = false;
  const clean = async () => {
    for (const close of opened.splice(0).toReversed()) await close();
  };
  const interrupt = () => {
    isOver = true;
    void clean().finally(() => process.exit(INTERRUPTED));
  };
  process.once('SIGINT', interrupt);
  process.once('SIGTERM', interrupt);
  try {
    const opening = openServer(options.binaries);
    opened.push(async () => (await opening.catch(() => undefined))?.stop());
    const server = await opening;
    say(
      `Postgres ${server.version}, ${options.writers} writers, ${options.readers} readers, ${options.seconds} s`,
    );
    const [writers, readers] = ['./writers.mjs', './readers.mjs'].map((file) => startChild(file));
    opened.push(
      () => writers.kill(),
      () => readers.kill(),
    );
    process.exitCode = print(await soak(server, writers, readers, options), options);
  } catch (error) {
    // Errors during the teardown do not matter.
    if (!isOver) throw error;
  } finally {
    await clean();
  }
  return undefined;
}

await main();
