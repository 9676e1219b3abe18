#!/usr/bin/env node
/**
 * Says whether this tree may be released, and if not, everything that is in the way. What is judged is read first and handed to a
 * function without IO, so that every fault can be planted in a test. What a person decides is in RELEASING.md.
 */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';

/** What a user must find in the package, and what must never be in it. */
const NEEDED = [
  'package.json',
  'README.md',
  'LICENSE',
  'CHANGELOG.md',
  'dist/index.js',
  'dist/index.d.ts',
  'dist/cli/main.js',
];
const NEEDED_FOLDERS = ['sql/migrations/', 'sql/functions/', 'docs/', 'examples/'];
const FORBIDDEN = /\.test\.|^(?:src|tests|bench|scripts|\.ci|\.github|node_modules)\/|\.tgz$|(?:^|\/)\.env/;
const RELEASED = /^\d+\.\d+\.\d+(?:-[\w.]+)?$/;

/** The text below a heading of the changelog, or undefined when there is no such heading. */
function sectionOf(changelog, name) {
  const lines = changelog.split('\n');
  const start = lines.findIndex((line) => line.startsWith(`## [${name}]`));
  if (start === -1) return undefined;
  const length = lines.slice(start + 1).findIndex((line) => line.startsWith('## '));
  return lines
    .slice(start + 1, length === -1 ? undefined : start + 1 + length)
    .filter((line) => !/^\[.*\]: /.test(line))
    .join('\n')
    .trim();
}

function changelogFaults({ changelog, version }) {
  const faults = [];
  const unreleased = sectionOf(changelog, 'Unreleased');
  if (unreleased === undefined) faults.push('CHANGELOG.md has no heading [Unreleased] for what comes next.');
  else if (unreleased !== '')
    faults.push(`CHANGELOG.md has entries under [Unreleased]: move them to [${version}].`);
  const released = sectionOf(changelog, version);
  if (released === undefined) faults.push(`CHANGELOG.md has no heading [${version}].`);
  else if (released === '') faults.push(`CHANGELOG.md says nothing about ${version}.`);
  const heading = changelog.split('\n').find((line) => line.startsWith(`## [${version}]`));
  if (heading !== undefined && !/\] - \d{4}-\d\d-\d\d$/.test(heading))
    faults.push(`The heading of ${version} in CHANGELOG.md has no date.`);
  return faults;
}

function lockFaults({ lock, version }) {
  const parsed = JSON.parse(lock);
  const faults = [];
  if (parsed.version !== version || parsed.packages?.['']?.version !== version)
    faults.push(`package-lock.json is of version ${parsed.version}: run npm install.`);
  const addresses = [...lock.matchAll(/"resolved":\s*"(https?:[^"]*)"/g)];
  if (addresses.length > 0)
    faults.push(`package-lock.json names ${addresses.length} addresses, such as ${addresses[0][1]}.`);
  return faults;
}

function packageFaults({ files }) {
  const missing = NEEDED.filter((path) => !files.includes(path));
  const empty = NEEDED_FOLDERS.filter((folder) => !files.some((path) => path.startsWith(folder)));
  return [
    ...[...missing, ...empty].map((path) => `The package would lack ${path}.`),
    ...files.filter((path) => FORBIDDEN.test(path)).map((path) => `The package would hold ${path}.`),
  ];
}

/** Every reason not to release, as sentences; none when it may be released. */
export function findFaults(state) {
  const { status, tags, version, failed } = state;
  const faults = [];
  if (status.trim() !== '') faults.push(`The working tree is not clean:\n${status.trimEnd()}`);
  if (!RELEASED.test(version)) faults.push(`${version} is not a version.`);
  if (tags.includes(`v${version}`)) faults.push(`v${version} is released already: choose the next version.`);
  faults.push(...changelogFaults(state), ...lockFaults(state), ...packageFaults(state));
  faults.push(...failed.map((name) => `${name} fails.`));
  return faults;
}

const run = (program, ...args) =>
  execFileSync(program, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] });

/** True when a command of package.json fails; its output is shown. */
function fails(script) {
  try {
    execFileSync('npm', ['run', '-s', script], { stdio: 'inherit' });
    return false;
  } catch {
    return true;
  }
}

function readState() {
  const failed = ['build', 'exports'].filter(fails).map((script) => `npm run ${script}`);
  const [packed] = JSON.parse(
    run('npm', 'pack', '--dry-run', '--json', '--ignore-scripts', '--loglevel', 'error'),
  );
  return {
    status: run('git', 'status', '--porcelain'),
    tags: run('git', 'tag', '--list').split('\n'),
    version: JSON.parse(readFileSync('package.json', 'utf8')).version,
    changelog: readFileSync('CHANGELOG.md', 'utf8'),
    lock: readFileSync('package-lock.json', 'utf8'),
    files: packed.files.map(({ path }) => path),
    failed,
  };
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  const state = readState();
  const faults = findFaults(state);
  for (const fault of faults) console.error(`- ${fault}`);
  console.log(
    faults.length === 0 ? `${state.version} may be released.` : `${faults.length} reasons not to release.`,
  );
  process.exitCode = faults.length === 0 ? 0 : 1;
}
