/**
 * Stops a server without users, however its last user ended. A small separate process polls the users' markers, and when
 * none of them lives it stops the server under the start lock, so that nobody can be joining at the same time. Its code
 * is a string run by `node -e`, because a file beside this one would not survive a bundler.
 */

import { spawn } from 'node:child_process';
import { basename } from 'node:path';
import { runAs } from './account.ts';
import { programPath } from './binaries.ts';
import { addMarker, liveMarkers } from './markers.ts';
import type { Home } from './home.ts';
import { findProcess } from './liveness.ts';
import type { Postmaster } from './postmaster.ts';

const POLL_MS = 500;
/** Consecutive polls that must find no user: a program that restarts finds its server still running. */
const EMPTY_POLLS = 3;
const STOP_LIMIT_MS = 30_000;

/** Other programs that may run this code (a single executable, an editor) do not accept code as an argument. */
const TAKES_TEXT = /^(node|bun)/i;

/** Starts a watcher for the server unless one is running. The caller holds the start lock. */
export async function ensureWatcher(
  home: Home,
  postmaster: Postmaster,
  { binDir, isNew }: { binDir: string; isNew: boolean },
): Promise<void> {
  if (!TAKES_TEXT.test(basename(process.execPath))) return;
  // The watcher of a server stopped a moment ago may still live; it ends with its own server.
  if (!isNew && (await liveMarkers(home.watcher)).length > 0) return;
  const task = JSON.stringify({
    users: home.users,
    lock: home.lock,
    pid: postmaster.pid,
    started: (await findProcess(postmaster.pid))?.started ?? '',
    pgCtl: [programPath(binDir, 'pg_ctl'), 'stop', '-W', '-D', home.pgdata, '-m', 'fast'],
    pollMs: POLL_MS,
    emptyPolls: EMPTY_POLLS,
    stopLimitMs: STOP_LIMIT_MS,
  });
  // Under this process's account, which may signal the server and read the markers.
  const child = spawn(process.execPath, ['-e', WATCHER, task], {
    ...runAs(undefined),
    detached: true,
    stdio: 'ignore',
  });
  // Without a watcher the server runs until it is stopped explicitly: no reason not to start.
  child.on('error', () => {});
  child.unref();
  if (child.pid !== undefined) await addMarker(home.watcher, child.pid);
}

/** Marker names and the check for reused pids are the same as in markers.ts and liveness.ts. */
const WATCHER = String.raw`
const fs = process.getBuiltinModule('node:fs');
const { join } = process.getBuiltinModule('node:path');
const { spawnSync } = process.getBuiltinModule('node:child_process');
const task = JSON.parse(process.argv[1]);
let empty = 0;

const statOf = (pid) => {
  if (process.platform !== 'linux') return undefined;
  try {
    const text = fs.readFileSync('/proc/' + pid + '/stat', 'utf8');
    return text.slice(text.lastIndexOf(')') + 2).split(' ');
  } catch {
    return undefined;
  }
};
const lives = (pid, started) => {
  try {
    process.kill(pid, 0);
  } catch (error) {
    if (error.code !== 'EPERM') return false;
  }
  const stat = statOf(pid);
  if (stat === undefined) return true;
  return stat[0] !== 'Z' && stat[0] !== 'X' && (started === '' || stat[19] === started);
};
const liveIn = (directory) => {
  let names = [];
  try {
    names = fs.readdirSync(directory);
  } catch {}
  return names.filter((name) => {
    const parts = /^(\d+)-(\w*)-\w+$/.exec(name);
    if (parts !== null && lives(Number(parts[1]), parts[2])) return true;
    fs.rmSync(join(directory, name), { force: true });
    return false;
  });
};
const serverLives = () => lives(task.pid, task.started);
const ask = (signal) => {
  try {
    if (process.platform === 'win32') spawnSync(task.pgCtl[0], task.pgCtl.slice(1), { windowsHide: true });
    else process.kill(task.pid, signal);
  } catch {}
};
const waitUntilGone = (deadline) => {
  if (!serverLives()) return process.exit(0);
  const late = Date.now() > deadline;
  if (late) ask('SIGQUIT');
  setTimeout(waitUntilGone, 50, late ? Date.now() + task.stopLimitMs : deadline);
};
const stop = () => {
  const self = process.pid + '-' + (statOf(process.pid)?.[19] ?? '') + '-' + 'watcher';
  const claim = join(task.lock, self);
  try {
    fs.writeFileSync(claim, '', { flag: 'wx', mode: 0o600 });
  } catch (error) {
    // Without its directory nobody can join the server.
    if (error.code !== 'ENOENT') return false;
  }
  if (liveIn(task.lock).some((name) => name !== self) || liveIn(task.users).length > 0) {
    fs.rmSync(claim, { force: true });
    return false;
  }
  process.on('exit', () => fs.rmSync(claim, { force: true }));
  ask('SIGINT');
  waitUntilGone(Date.now() + task.stopLimitMs);
  return true;
};
const look = () => {
  if (!serverLives()) return process.exit(0);
  empty = liveIn(task.users).length === 0 ? empty + 1 : 0;
  if (empty >= task.emptyPolls && stop()) return;
  setTimeout(look, task.pollMs);
};
look();
`;
