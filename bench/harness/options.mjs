/**
 * The command line, parsed once. Every option of a run is here, and the choices are written into the results.
 */
import { parseArgs } from 'node:util';
import { CONTENDER_NAMES } from '../contenders/index.mjs';

export const USAGE = `node bench/run.mjs [options]
  --quick               one round and small sizes, about three minutes in all
  --only NAMES          only these scenarios, separated by commas
  --contenders NAMES    only these contenders, separated by commas (ours is always in)
  --rounds N            rounds per scenario (3, or 1 with --quick)
  --jobs N              no scenario uses more jobs than this: for a smoke run
  --binaries WHICH      Postgres to start: system (default), packaged, auto, or a directory with its programs
  --url URL             use this running server instead (a role that may create databases)
  --json FILE           write the results here, the picture beside it (default: bench/results/<date>)
  --list                name the scenarios and end`;

/**
 * @typedef {object} Options
 * @property {'quick' | 'full'} size
 * @property {string[] | null} only
 * @property {string[]} contenders
 * @property {number} rounds
 * @property {number} jobsMax
 * @property {string} binaries
 * @property {string | null} url
 * @property {string | null} json
 * @property {'run' | 'list' | 'help'} action
 */

const NAMES = {
  quick: { type: 'boolean', default: false },
  only: { type: 'string' },
  contenders: { type: 'string' },
  rounds: { type: 'string' },
  jobs: { type: 'string' },
  binaries: { type: 'string', default: 'system' },
  url: { type: 'string' },
  json: { type: 'string' },
  list: { type: 'boolean', default: false },
  help: { type: 'boolean', default: false },
};

const FULL_ROUNDS = 3;

/** @returns {Options} */
export function readOptions(argv) {
  const { values } = parseArgs({ args: argv, options: NAMES, strict: true });
  const asked = values.contenders === undefined ? CONTENDER_NAMES : names(values.contenders);
  for (const name of asked) {
    if (!CONTENDER_NAMES.includes(name)) throw new Error(`There is no contender ${name}.`);
  }
  return {
    size: values.quick ? 'quick' : 'full',
    only: values.only === undefined ? null : names(values.only),
    contenders: CONTENDER_NAMES.filter((name) => name === CONTENDER_NAMES[0] || asked.includes(name)),
    rounds: whole(values.rounds ?? (values.quick ? '1' : String(FULL_ROUNDS)), '--rounds'),
    jobsMax: values.jobs === undefined ? Number.POSITIVE_INFINITY : whole(values.jobs, '--jobs'),
    binaries: values.binaries,
    url: values.url ?? null,
    json: values.json ?? null,
    action: actionOf(values),
  };
}

function actionOf(values) {
  if (values.help) return 'help';
  return values.list ? 'list' : 'run';
}

function names(text) {
  return text.split(',').map((name) => name.trim());
}

function whole(text, name) {
  const value = Number(text);
  if (Number.isInteger(value) && value >= 1) return value;
  throw new Error(`${name} must be a whole number from 1, not ${text}.`);
}
