/**
 * Chooses the Postgres binaries: the packaged ones, the system's, or a given directory. Each candidate is run once for
 * its version, under the server's account, because that is the only sure test that it runs at all. Making packaged
 * binaries usable is done in packaged.ts.
 */

import { execFile } from 'node:child_process';
import { readdir, realpath, stat } from 'node:fs/promises';
import { delimiter, dirname, join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { accountToDropTo, runAs, type Account } from './account.ts';
import { packagedBinDir } from './packaged.ts';
import { cannotStart, reasonOf, unavailable } from './unavailable.ts';

export interface Binaries {
  readonly binDir: string;
  readonly major: number;
}

interface Need {
  which: string;
  account: Account | undefined;
  /** Major version the data directory needs; undefined when it is new. */
  major: number | undefined;
  directory: string;
}

const run = promisify(execFile);
const PROBE_LIMIT_MS = 10_000;
const OLDEST_MAJOR = 15;
const EXE = process.platform === 'win32' ? '.exe' : '';

// Each is a directory whose children may be versions, and the path from such a child to its programs.
const SYSTEM_PLACES: readonly { parent: string; child: RegExp; bin: string }[] = [
  { parent: '/usr/lib/postgresql', child: /^\d+$/, bin: 'bin' },
  { parent: '/usr', child: /^pgsql-\d+$/, bin: 'bin' },
  { parent: '/usr/libexec', child: /^postgresql\d*$/, bin: '.' },
  { parent: '/opt/homebrew/opt', child: /^postgresql(@\d+)?$/, bin: 'bin' },
  { parent: '/usr/local/opt', child: /^postgresql(@\d+)?$/, bin: 'bin' },
  { parent: '/home/linuxbrew/.linuxbrew/opt', child: /^postgresql(@\d+)?$/, bin: 'bin' },
  { parent: '/Applications/Postgres.app/Contents/Versions', child: /^\d+$/, bin: 'bin' },
  { parent: 'C:\\Program Files\\PostgreSQL', child: /^\d+$/, bin: 'bin' },
];

/** Path of a Postgres program. */
export function programPath(binDir: string, name: 'postgres' | 'initdb' | 'pg_ctl'): string {
  return join(binDir, name + EXE);
}

/** Which kinds of binaries could start a server here. */
export async function availableBinaries(): Promise<('packaged' | 'system')[]> {
  const account = accountToDropTo();
  const found: ('packaged' | 'system')[] = [];
  for (const which of ['packaged', 'system'] as const) {
    for await (const candidate of candidates(which, account)) {
      if (typeof candidate === 'string') continue;
      found.push(which);
      break;
    }
  }
  return found;
}

/** The first binaries, in order of preference, that run here and match the data directory. */
export async function chooseBinaries(need: Need): Promise<Binaries> {
  const refusals: string[] = [];
  let unfit: Binaries | undefined;
  for await (const candidate of candidates(need.which, need.account)) {
    if (typeof candidate === 'string') refusals.push(candidate);
    else if (need.major === undefined || candidate.major === need.major) return candidate;
    else unfit ??= candidate;
  }
  if (unfit === undefined)
    throw unavailable(`No Postgres could be started on this machine: ${refusals.join('; ')}`);
  throw cannotStart(
    `The data directory ${need.directory} was initialised by Postgres ${need.major}, but the binaries in ` +
      `${unfit.binDir} are Postgres ${unfit.major}. Name Postgres ${need.major} binaries with the option ` +
      'binaries, choose another directory with the option dataDir, or delete the directory to start empty.',
  );
}

/** Yields binaries that run, and for those that do not, the reason. */
async function* candidates(which: string, account: Account | undefined): AsyncGenerator<Binaries | string> {
  if (which === 'auto' || which === 'packaged') {
    yield await packagedBinDir(account).then((binDir) => probe(binDir, account), reasonOf);
  }
  if (which === 'auto' || which === 'system') {
    const directories = await systemBinDirs();
    for (const binDir of directories) yield await probe(binDir, account);
    if (directories.length === 0) yield 'no Postgres is installed on this system';
  }
  if (!['auto', 'packaged', 'system'].includes(which)) yield await probe(resolve(which), account);
}

async function probe(binDir: string, account: Account | undefined): Promise<Binaries | string> {
  try {
    const options = { ...runAs(account), timeout: PROBE_LIMIT_MS };
    const { stdout } = await run(programPath(binDir, 'postgres'), ['--version'], options);
    const major = Number(/PostgreSQL\)? (\d+)/.exec(stdout)?.[1]);
    if (major >= OLDEST_MAJOR) return { binDir, major };
    return `the binaries in ${binDir} are older than Postgres ${OLDEST_MAJOR}`;
  } catch (error) {
    return `the binaries in ${binDir} do not run (${reasonOf(error)})`;
  }
}

async function systemBinDirs(): Promise<string[]> {
  const found: string[] = [];
  for (const directory of (process.env.PATH ?? '').split(delimiter)) {
    if (directory !== '') await addBinDir(found, directory);
  }
  for (const { parent, child, bin } of SYSTEM_PLACES) {
    const names = (await readdir(parent).catch(() => [])).filter((name) => child.test(name));
    for (const name of names.toSorted(newestFirst)) await addBinDir(found, join(parent, name, bin));
  }
  return found;
}

// A link on the PATH counts as the directory it points to, where the other programs are.
async function addBinDir(found: string[], directory: string): Promise<void> {
  const real = await realpath(programPath(resolve(directory), 'postgres')).catch(() => undefined);
  for (const binDir of real === undefined ? [] : [dirname(real), resolve(directory)]) {
    if (found.includes(binDir)) return;
    const initdb = await stat(programPath(binDir, 'initdb')).catch(() => undefined);
    if (initdb === undefined) continue;
    found.push(binDir);
    return;
  }
}

function newestFirst(a: string, b: string): number {
  return (
    Number(/\d+$/.exec(b)?.[0] ?? Number.MAX_SAFE_INTEGER) -
    Number(/\d+$/.exec(a)?.[0] ?? Number.MAX_SAFE_INTEGER)
  );
}
