/**
 * The directory of one embedded instance: where it is, who owns it and what it contains. Postgres' own files are in
 * `pgdata`; the password, the log, the lock and the list of users are beside it, so that removing the one directory
 * removes everything. Nothing is started here.
 */

import { createHash } from 'node:crypto';
import { chmod, mkdir, readFile, readdir, rename, stat, writeFile } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { isEngineError } from '../contract/errors.ts';
import { accountToDropTo, canReach, claimPublicDirectory, type Account } from './account.ts';
import { cannotStart, reasonOf, systemCode } from './unavailable.ts';

export interface Home {
  readonly directory: string;
  readonly pgdata: string;
  readonly log: string;
  readonly lock: string;
  readonly users: string;
  readonly watcher: string;
  /** Account of the server; undefined when it is this process's account. */
  readonly account: Account | undefined;
}

const PUBLIC_BASE = '/var/tmp';
const ENTER_ONLY = 0o711;

/** Finds the location of the instance and creates its directory. */
export async function openHome(dataDir: string | undefined): Promise<Home> {
  const wanted = resolve(dataDir ?? join('.flowfabric', 'postgres'));
  const wantedAccount = await serverAccount(wanted);
  try {
    if (await canReach(dirname(wanted), wantedAccount)) {
      const home = await makeHome(wanted, wantedAccount);
      if (dataDir === undefined) await hideFromGit(dirname(wanted));
      return home;
    }
  } catch (error) {
    if (isEngineError(error)) throw error;
    throw cannotStart(
      `The data directory ${wanted} cannot be used: ${reasonOf(error)}. ` +
        'Choose another with the option dataDir, or set DATABASE_URL to a running Postgres.',
      error,
    );
  }
  if (dataDir !== undefined) throw unreachable(wanted, wantedAccount);
  const fallback = await publicDirectory(process.cwd());
  return makeHome(fallback, await serverAccount(fallback));
}

/** Major version that initialised the instance; undefined if it is not initialised yet. */
export async function initialisedMajor(home: Home): Promise<number | undefined> {
  try {
    return Number.parseInt(await readFile(join(home.pgdata, 'PG_VERSION'), 'utf8'), 10);
  } catch (error) {
    const exists = (await stat(home.pgdata).catch(() => undefined)) !== undefined;
    if (!exists && systemCode(error) === 'ENOENT') return undefined;
    throw cannotStart(
      `${home.pgdata} is not a readable Postgres data directory: ${reasonOf(error)}. ` +
        'If nothing in it is needed, delete it; or choose another with the option dataDir.',
      error,
    );
  }
}

export async function readPassword(home: Home): Promise<string> {
  try {
    return await readFile(join(home.directory, 'password'), 'utf8');
  } catch (error) {
    throw cannotStart(
      `The password of the embedded Postgres in ${home.directory} cannot be read: ${reasonOf(error)}. ` +
        'Run as the user who created it, or choose another directory with the option dataDir.',
      error,
    );
  }
}

export async function keepPassword(home: Home, password: string): Promise<void> {
  await replaceFile(join(home.directory, 'password'), password);
}

/** The port of the last start, so that a restarted server keeps its address. */
export async function rememberedPort(home: Home): Promise<number | undefined> {
  const text = await readFile(join(home.directory, 'port'), 'utf8').catch(() => '');
  const port = Number.parseInt(text, 10);
  return port > 0 && port < 65_536 ? port : undefined;
}

export async function keepPort(home: Home, port: number): Promise<void> {
  await replaceFile(join(home.directory, 'port'), `${port}\n`);
}

async function replaceFile(path: string, text: string): Promise<void> {
  const next = `${path}.${process.pid}`;
  await writeFile(next, text, { mode: 0o600 });
  await rename(next, path);
}

// Root runs an instance under the account that owns its files, whoever created it.
async function serverAccount(directory: string): Promise<Account | undefined> {
  const account = accountToDropTo();
  if (account === undefined) return undefined;
  const owner = await stat(join(directory, 'pgdata')).catch(() => undefined);
  return owner === undefined || owner.uid === 0 ? account : { uid: owner.uid, gid: owner.gid };
}

async function makeHome(directory: string, account: Account | undefined): Promise<Home> {
  await makeDirectories(dirname(directory), account);
  await mkdir(directory, { mode: 0o700 }).catch(async (error: unknown) => {
    if (systemCode(error) !== 'EEXIST') throw error;
  });
  // The server's account must be able to enter a directory that root owns; only an empty one, or one created here
  // before, is opened up.
  if (!(await canReach(directory, account))) {
    const names = await readdir(directory);
    if (names.length > 0 && !names.includes('lock')) throw unreachable(directory, account);
    await chmod(directory, ENTER_ONLY);
    if (!(await canReach(directory, account))) throw unreachable(directory, account);
  }
  return {
    directory,
    account,
    pgdata: join(directory, 'pgdata'),
    log: join(directory, 'server.log'),
    lock: join(directory, 'lock'),
    users: join(directory, 'users'),
    watcher: join(directory, 'watcher'),
  };
}

async function makeDirectories(directory: string, account: Account | undefined): Promise<void> {
  const first = await mkdir(directory, { recursive: true });
  if (account === undefined || first === undefined) return;
  // A strict umask of root must not lock the server's account out of directories created for it.
  for (let at = directory; at.length >= first.length; at = dirname(at)) await chmod(at, 0o755);
}

/** The default directory is in a project, and contains a password. An existing file, even an empty one, is kept. */
async function hideFromGit(directory: string): Promise<void> {
  await writeFile(join(directory, '.gitignore'), '*\n', { flag: 'wx' }).catch(() => undefined);
}

async function publicDirectory(cwd: string): Promise<string> {
  const name = `flowfabric-${createHash('sha256').update(cwd).digest('hex').slice(0, 16)}`;
  const path = join(PUBLIC_BASE, name);
  if (await claimPublicDirectory(path)) return join(path, 'postgres');
  throw cannotStart(
    `${path} belongs to another user or can be written by others. ` +
      'Remove it, choose another directory with the option dataDir, or set DATABASE_URL to a running Postgres.',
  );
}

function unreachable(directory: string, account: Account | undefined): Error {
  return cannotStart(
    `Postgres does not run as root, and user ${account?.uid} that would run it cannot enter ${directory}. ` +
      'Choose a dataDir below directories that everybody may enter, such as /var/tmp, run as a user other ' +
      'than root, or set DATABASE_URL to a running Postgres.',
  );
}
