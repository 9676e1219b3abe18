/**
 * Measures FlowFabric beside other engines on one machine and writes the results: tables on the screen, raw samples as
 * JSON, and a picture. How each measurement is made is in scenarios/, how each engine is driven in contenders/.
 */
import { mkdir, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { loadContender } from './contenders/index.mjs';
import { machineShape, measuredCommit, versionsOf } from './harness/machine.mjs';
import { readOptions, USAGE } from './harness/options.mjs';
import { pictureOf } from './harness/picture.mjs';
import { runScenario } from './harness/runner.mjs';
import { openPostgres, openRedis, redisVersion } from './harness/server.mjs';
import { Stores } from './harness/stores.mjs';
import { tablesOf } from './harness/table.mjs';
import { SCENARIOS } from './scenarios/index.mjs';

const RESULTS = fileURLToPath(new URL('results/', import.meta.url));

function log(line) {
  process.stdout.write(`${line}\n`);
}

function chosenScenarios(only) {
  if (only === null) return SCENARIOS;
  return only.map((name) => {
    const found = SCENARIOS.find((scenario) => scenario.name === name);
    if (found !== undefined) return found;
    throw new Error(
      `There is no scenario ${name}; there are ${SCENARIOS.map((one) => one.name).join(', ')}.`,
    );
  });
}

/** Contenders that cannot run here are left out; the reason is printed and recorded. */
async function chosenContenders(names) {
  const present = [];
  const absent = {};
  for (const name of names) {
    const contender = await loadContender(name).catch((error) => {
      absent[name] = `its package does not load: ${error.message.split('\n')[0]}`;
    });
    if (contender === undefined) continue;
    if (contender.store === 'redis' && redisVersion() === undefined)
      absent[name] = 'no redis-server is installed';
    else present.push(contender);
  }
  return { present, absent };
}

/** Undoes what the run created, last first, even when it is interrupted: a server left behind would run forever. */
const cleanUps = [];
let cleaning;

/** The first caller starts it; the others wait for the same promise. */
function cleanUp() {
  cleaning ??= undoAll();
  return cleaning;
}

async function undoAll() {
  for (const undo of cleanUps.splice(0).toReversed()) {
    await undo().catch((error) => log(`clean-up: ${error.message}`));
  }
}

for (const signal of ['SIGINT', 'SIGTERM']) {
  process.once(signal, () => void cleanUp().finally(() => process.exit(1)));
}

async function measure(options) {
  const { present, absent } = await chosenContenders(options.contenders);
  for (const [name, reason] of Object.entries(absent)) log(`left out: ${name}, ${reason}`);
  const scenarios = chosenScenarios(options.only);
  try {
    const postgres = await openPostgres(options);
    cleanUps.push(postgres.stop);
    const redis = present.some((one) => one.store === 'redis') ? await openRedis() : null;
    if (redis !== null) cleanUps.push(redis.stop);
    const stores = new Stores({ serverUrl: postgres.url, redisUrl: redis?.url ?? null });
    cleanUps.push(() => stores.dropAll());
    // What a scenario creates once for all its rounds, such as a filled database to copy.
    const made = new Map();
    const bench = { options, stores, contenders: present, log, made };
    Object.assign(bench, { serverPid: postgres.pid, binDir: postgres.binDir });
    const run = {
      ...factsOf({ options, postgres, redis, present, absent }),
      scenarios: [],
    };
    for (const scenario of scenarios) {
      log(`${scenario.name}: ${scenario.title}`);
      const results = await runScenario(scenario, bench);
      const { name, title, metrics } = scenario;
      run.scenarios.push({ scenario: { name, title, metrics }, results });
    }
    return run;
  } finally {
    await cleanUp();
  }
}

function factsOf({ options, postgres, redis, present, absent }) {
  return {
    date: new Date().toISOString(),
    measured: measuredCommit(),
    machine: machineShape(),
    options: {
      size: options.size,
      rounds: options.rounds,
      jobsMax: Number.isFinite(options.jobsMax) ? options.jobsMax : null,
      server: options.url === null ? `started by the bench, ${options.binaries}` : 'given by address',
    },
    postgres: { version: postgres.version, settings: postgres.settings },
    redis: redis === null ? null : { version: redis.version, settings: redis.settings },
    versions: versionsOf(present),
    keeps: Object.fromEntries(present.map((contender) => [contender.name, contender.keeps])),
    absent,
  };
}

async function write(run, options) {
  const stem = `${RESULTS}${run.date.slice(0, 16).replace('T', '-').replace(':', '')}`;
  const json = options.json ?? `${stem}.json`;
  const svg = json.replace(/(\.json)?$/, '.svg');
  await mkdir(dirname(json), { recursive: true });
  await writeFile(json, `${JSON.stringify(run, null, 1)}\n`);
  await writeFile(svg, pictureOf(run));
  log(`\nwritten: ${json}\n         ${svg}`);
}

async function main() {
  const options = readOptions(process.argv.slice(2));
  if (options.action === 'help') return log(USAGE);
  if (options.action === 'list')
    return SCENARIOS.forEach(({ name, title }) => log(`${name.padEnd(16)} ${title}`));
  const run = await measure(options);
  for (const part of run.scenarios) for (const line of tablesOf(part)) log(line);
  log('\n† at least one sample with more than 12 % of the machine used by others.');
  await write(run, options);
  const failures = run.scenarios.flatMap((part) => part.results).filter((result) => result.errors.length > 0);
  if (failures.length > 0) process.exitCode = 1;
}

main().then(
  () => process.exit(),
  (error) => {
    process.stderr.write(`${error.stack ?? error}\n`);
    process.exit(1);
  },
);
