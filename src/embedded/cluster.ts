/**
 * Creates the data directory with initdb. It works in a separate directory that is renamed to `pgdata` as the last
 * step: an existing `pgdata` is complete, and the remains of an interrupted initdb are recognised by their name and
 * removed. Starting the server is done in postmaster.ts.
 */

import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { chown, mkdir, readdir, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { runAs } from './account.ts';
import { programPath, type Binaries } from './binaries.ts';
import { keepPassword, type Home } from './home.ts';
import { lastLines, openLog } from './log.ts';
import { unavailable } from './unavailable.ts';

const INITDB_LIMIT_MS = 120_000;
const PASSWORD_BYTES = 32;
const UNFINISHED = 'initdb-';

/** Name of the database superuser. */
export const SUPERUSER = 'postgres';

/** Creates a new, empty cluster. The caller holds the lock and knows that none exists. */
export async function initialise(home: Home, binaries: Binaries): Promise<void> {
  await clearUnfinished(home);
  const work = join(home.directory, UNFINISHED + randomBytes(6).toString('hex'));
  const password = randomBytes(PASSWORD_BYTES).toString('base64url');
  const pwfile = join(work, 'password');
  const fresh = join(work, 'pgdata');
  try {
    await mkdir(work, { mode: 0o700 });
    await mkdir(fresh, { mode: 0o700 });
    await writeFile(pwfile, password, { mode: 0o600, flag: 'wx' });
    for (const path of [pwfile, fresh, work]) {
      if (home.account !== undefined) await chown(path, home.account.uid, home.account.gid);
    }
    await runInitdb(home, binaries, ['-D', fresh, `--pwfile=${pwfile}`]);
    await keepPassword(home, password);
    await rename(fresh, home.pgdata);
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

async function clearUnfinished(home: Home): Promise<void> {
  for (const name of await readdir(home.directory)) {
    // An initdb whose starter was killed may still be writing; what it adds later is removed the next time.
    if (!name.startsWith(UNFINISHED)) continue;
    await rm(join(home.directory, name), { recursive: true, force: true, maxRetries: 3 }).catch(() => {});
  }
}

async function runInitdb(home: Home, binaries: Binaries, target: string[]): Promise<void> {
  const args = ['-E', 'UTF8', '--locale=C', '-U', SUPERUSER, '--auth=scram-sha-256', ...target];
  const log = await openLog(home);
  let outcome: string;
  try {
    outcome = await new Promise<string>((resolve, reject) => {
      const child = spawn(programPath(binaries.binDir, 'initdb'), args, {
        ...runAs(home.account),
        stdio: ['ignore', log.file.fd, log.file.fd],
        timeout: INITDB_LIMIT_MS,
      });
      child.once('error', reject);
      child.once('exit', (code, signal) => resolve(signal ?? `exit code ${code}`));
    });
  } finally {
    await log.file.close();
  }
  if (outcome === 'exit code 0') return;
  throw unavailable(
    `initdb in ${home.directory} failed (${outcome}). Its last lines were:\n` +
      `${await lastLines(home, log.offset)}\nThe whole log is ${home.log}`,
  );
}
