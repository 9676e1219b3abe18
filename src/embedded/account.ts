/**
 * Which operating-system account the server runs under, and what that account can reach. Postgres refuses to run as
 * root, so root drops to another account; everybody else, and Windows, runs the server under the current account. No
 * account is ever created and nothing is spawned here.
 */

import { readFileSync, type Stats } from 'node:fs';
import { chmod, lstat, mkdir, stat } from 'node:fs/promises';
import { dirname, parse } from 'node:path';

/** Account to switch to. Ids are unsigned, as in `stat`. */
export interface Account {
  readonly uid: number;
  readonly gid: number;
}

const NOBODY = 65_534;
const OTHERS_MAY_WRITE = 0o022;
const ENTER = 1;
const READ_AND_ENTER = 5;

// The server outlives its starter, under another account, with an environment that account can read: it must not
// contain the starter's secrets. LD_* and FAKETIME* stay so that clock tests reach the server.
const INHERITED = /^(PATH|TZ|SYSTEMROOT|TEMP|TMP|(LD|DYLD|FAKETIME)_.*|FAKETIME)$/i;

/** The account root drops to: `postgres` when there is one, else `nobody`. Undefined when not root. */
export function accountToDropTo(): Account | undefined {
  if (process.getuid?.() !== 0) return undefined;
  let passwd = '';
  try {
    passwd = readFileSync('/etc/passwd', 'utf8');
  } catch {
    // No account list: fall back to the numeric id of nobody.
  }
  return accountNamed(passwd, 'postgres') ?? accountNamed(passwd, 'nobody') ?? { uid: NOBODY, gid: NOBODY };
}

function accountNamed(passwd: string, name: string): Account | undefined {
  for (const line of passwd.split('\n')) {
    const [login, , uid, gid] = line.split(':');
    if (login !== name || uid === undefined || gid === undefined) continue;
    const account = { uid: Number(uid) >>> 0, gid: Number(gid) >>> 0 };
    if (account.uid !== 0) return account;
  }
  return undefined;
}

/** Spawn options shared by every Postgres program: the account, a neutral directory, a small environment. */
export function runAs(account: Account | undefined): {
  cwd: string;
  env: NodeJS.ProcessEnv;
  windowsHide: true;
  uid?: number;
  gid?: number;
} {
  const env: NodeJS.ProcessEnv = { LC_ALL: 'C' };
  for (const [name, value] of Object.entries(process.env)) if (INHERITED.test(name)) env[name] = value;
  const base = { cwd: parse(process.execPath).root, env, windowsHide: true } as const;
  // spawn takes signed 32-bit ids; macOS gives nobody the id -2.
  return account === undefined ? base : { ...base, uid: account.uid | 0, gid: account.gid | 0 };
}

/** True when the account can pass through every existing directory from the root down to `path`. */
export async function canReach(path: string, account: Account | undefined): Promise<boolean> {
  if (account === undefined) return true;
  for (let at = path; ; at = dirname(at)) {
    const found = await stat(at).catch(() => undefined);
    if (found !== undefined && !allows(found, account, ENTER)) return false;
    if (at === dirname(at)) return true;
  }
}

/** True when the account can reach the directory and list it. */
export async function canRead(directory: string, account: Account | undefined): Promise<boolean> {
  if (account === undefined) return true;
  const found = await stat(directory).catch(() => undefined);
  return (
    found !== undefined &&
    allows(found, account, READ_AND_ENTER) &&
    (await canReach(dirname(directory), account))
  );
}

// Supplementary groups do not count: they are dropped together with root.
function allows(found: Stats, account: Account, bits: number): boolean {
  let shift = found.gid === account.gid ? 3 : 0;
  if (found.uid === account.uid) shift = 6;
  return ((found.mode >> shift) & bits) === bits;
}

/**
 * Creates, or accepts, a directory under a shared place such as /var/tmp. False when another user owns it or may write
 * to it: its name can be guessed, so another user may have put a directory or a link there first.
 */
export async function claimPublicDirectory(path: string): Promise<boolean> {
  try {
    await mkdir(path, { mode: 0o755 });
    await chmod(path, 0o755);
  } catch {
    // It exists, or cannot be created; the check below decides.
  }
  const found = await lstat(path).catch(() => undefined);
  if (found === undefined || !found.isDirectory()) return false;
  if (process.getuid === undefined) return true;
  return found.uid === process.getuid() && (found.mode & OTHERS_MAY_WRITE) === 0;
}
