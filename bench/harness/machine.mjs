/**
 * What a result must record about its origin: versions, the shape of the machine, the commit. No host names, no user
 * names, no paths.
 */
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { cpus, platform, release, totalmem } from 'node:os';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const GIB = 1024 ** 3;

export function machineShape() {
  const processors = cpus();
  return {
    processors: processors.length,
    model: processors[0]?.model.trim() ?? 'unknown',
    memoryGiB: Math.round(totalmem() / GIB),
    system: `${platform()} ${release()}`,
    node: process.version,
  };
}

/** Versions of the contenders, by name. */
export function versionsOf(contenders) {
  return Object.fromEntries(contenders.map((contender) => [contender.name, versionOf(contender)]));
}

function versionOf({ side, packageName }) {
  const file =
    side === 'ours'
      ? new URL('../../package.json', import.meta.url)
      : new URL(`../node_modules/${packageName}/package.json`, import.meta.url);
  return JSON.parse(readFileSync(file, 'utf8')).version;
}

/** The commit that was measured; `changed` when the working tree differs from it. */
export function measuredCommit() {
  const git = (...args) => spawnSync('git', args, { cwd: ROOT, encoding: 'utf8' });
  const head = git('rev-parse', 'HEAD');
  if (head.status !== 0) return null;
  const changed = git('status', '--porcelain', '--', 'src', 'sql').stdout.trim() !== '';
  return { commit: head.stdout.trim(), workingTree: changed ? 'changed' : 'clean' };
}
