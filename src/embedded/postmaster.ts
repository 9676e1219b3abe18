/**
 * The server process: finds the one that runs on a data directory, starts it, stops it. The caller holds the start
 * lock; who may use or stop a server is decided in start.ts.
 */

import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { readFile, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import { runAs } from './account.ts';
import { programPath, type Binaries } from './binaries.ts';
import { keepPort, rememberedPort, type Home } from './home.ts';
import { findProcess } from './liveness.ts';
import { lastLines, openLog } from './log.ts';
import { cannotStart, unavailable } from './unavailable.ts';

export interface Postmaster {
  readonly pid: number;
  readonly port: number;
  /** The server's last status in its pid file: starting, ready, stopping; empty before it wrote one. */
  readonly status: string;
}

export type StopMode = 'fast' | 'immediate';

const HOST = '127.0.0.1';
const POLL_MS = 10;
const START_LIMIT_MS = 60_000; // recovery after a crash happens within it
const STALE_LOCK_LIMIT_MS = 15_000;
const STALE_LOCK_POLL_MS = 50;
const PORT_TRIES = 10;
const FAST_STOP_LIMIT_MS = 30_000;
const IMMEDIATE_STOP_LIMIT_MS = 15_000;

const PORT_TAKEN = /could not bind|could not create any TCP\/IP sockets/;
// A killed server leaves a lock file, and sometimes dying sessions, for a second or two.
const DEAD_SERVER_LINGERS = /lock file ".*" already exists|pre-existing shared memory block|is still in use/;

/** The server that runs on this data directory, in any state; undefined when none does. */
async function findPostmaster(home: Home): Promise<Postmaster | undefined> {
  const path = join(home.pgdata, 'postmaster.pid');
  const lines = (await readFile(path, 'utf8').catch(() => '')).split('\n').map((line) => line.trim());
  const pid = Number(lines[0]);
  if (!Number.isInteger(pid) || pid <= 0) return undefined;
  const found = await findProcess(pid);
  if (found === undefined) return undefined;
  if (found.program !== '' && !found.program.startsWith('postgres')) {
    // The machine or container restarted and the pid now belongs to another program. Postgres checks only the pid and
    // would refuse to start while that program runs.
    await rm(path, { force: true });
    return undefined;
  }
  return { pid, port: Number(lines[3] ?? 0), status: lines[7] ?? '' };
}

/** Waits until a running server is ready. Undefined when it stopped meanwhile. */
export async function untilReady(home: Home): Promise<Postmaster | undefined> {
  const deadline = Date.now() + START_LIMIT_MS;
  for (;;) {
    const postmaster = await findPostmaster(home);
    if (postmaster === undefined || postmaster.status === 'ready') return postmaster;
    if (Date.now() > deadline) {
      throw cannotStart(
        `Process ${postmaster.pid} holds the data directory ${home.pgdata} and was not ready within ` +
          `${START_LIMIT_MS / 1000} s (${postmaster.status || 'no status'}). See ${home.log}, or stop that process.`,
      );
    }
    await delay(POLL_MS);
  }
}

/** Starts a server and waits until it is ready. */
export async function launch(
  home: Home,
  binaries: Binaries,
  settings: readonly string[],
): Promise<Postmaster> {
  const staleDeadline = Date.now() + STALE_LOCK_LIMIT_MS;
  let port = (await freePort(await rememberedPort(home))) ?? (await freePort(0));
  for (let tries = 1; ;) {
    const args = ['-D', home.pgdata, '-p', String(port), ...settings];
    const result = await startOnce(home, binaries, args);
    if (typeof result !== 'string') {
      await keepPort(home, result.port);
      return result;
    }
    if (DEAD_SERVER_LINGERS.test(result) && Date.now() < staleDeadline) {
      await delay(STALE_LOCK_POLL_MS);
    } else if (PORT_TAKEN.test(result) && tries < PORT_TRIES) {
      tries += 1;
      port = await freePort(0);
    } else {
      throw unavailable(
        `Postgres in ${home.directory} did not start. Its last lines were:\n${result}\n` +
          `The whole log is ${home.log}`,
      );
    }
  }
}

/** One start: the ready server, or the last lines of its log when it failed. */
async function startOnce(home: Home, binaries: Binaries, args: string[]): Promise<Postmaster | string> {
  const log = await openLog(home);
  let child: ChildProcess;
  try {
    child = spawn(
      programPath(binaries.binDir, 'postgres'),
      [...args, '-c', `listen_addresses=${HOST}`, '-c', 'unix_socket_directories='],
      { ...runAs(home.account), detached: true, stdio: ['ignore', log.file.fd, log.file.fd] },
    );
    await new Promise<void>((resolve, reject) => {
      child.once('spawn', resolve);
      child.once('error', reject);
    });
  } finally {
    await log.file.close();
  }
  child.unref();
  const deadline = Date.now() + START_LIMIT_MS;
  while (child.exitCode === null && child.signalCode === null) {
    const postmaster = await findPostmaster(home);
    if (postmaster?.pid === child.pid && postmaster?.status === 'ready') return postmaster;
    if (Date.now() > deadline) {
      child.kill('SIGQUIT');
      throw unavailable(
        `Postgres in ${home.directory} was not ready within ${START_LIMIT_MS / 1000} s. ` +
          `Its last lines were:\n${await lastLines(home, log.offset)}\nThe whole log is ${home.log}`,
      );
    }
    await delay(POLL_MS);
  }
  return lastLines(home, log.offset);
}

/** A free port: the wanted one, or any for 0. Undefined when the wanted one is taken. */
async function freePort(wanted: number | undefined): Promise<number | undefined> {
  if (wanted === undefined) return undefined;
  const server = createServer();
  return new Promise((resolve) => {
    server.once('error', () => resolve(undefined));
    server.listen({ host: HOST, port: wanted, exclusive: true }, () => {
      const address = server.address();
      const port = typeof address === 'object' ? address?.port : undefined;
      server.close(() => resolve(port));
    });
  });
}

/** Stops the server that runs on this data directory, if any, and waits until it is gone. */
export async function shutDown(home: Home, binDir: string, mode: StopMode): Promise<void> {
  const postmaster = await findPostmaster(home);
  if (postmaster === undefined) return;
  const { pid } = postmaster;
  await askToStop(home, binDir, { pid, mode });
  const limit = mode === 'fast' ? FAST_STOP_LIMIT_MS : IMMEDIATE_STOP_LIMIT_MS;
  if (await isGone(pid, limit)) return;
  await askToStop(home, binDir, { pid, mode: 'immediate' });
  if (await isGone(pid, IMMEDIATE_STOP_LIMIT_MS)) return;
  throw cannotStart(`The embedded Postgres, process ${pid}, did not stop. See ${home.log}.`);
}

async function askToStop(home: Home, binDir: string, target: { pid: number; mode: StopMode }): Promise<void> {
  if (process.platform === 'win32') {
    // Windows has no signals: pg_ctl uses the pipe on which Postgres listens for them.
    const args = ['stop', '-W', '-D', home.pgdata, '-m', target.mode];
    await promisify(execFile)(programPath(binDir, 'pg_ctl'), args, runAs(home.account)).catch(() => {});
    return;
  }
  try {
    process.kill(target.pid, target.mode === 'fast' ? 'SIGINT' : 'SIGQUIT');
  } catch {
    // Already gone, or not ours to stop; the wait that follows decides.
  }
}

async function isGone(pid: number, limitMs: number): Promise<boolean> {
  const deadline = Date.now() + limitMs;
  while ((await findProcess(pid)) !== undefined) {
    if (Date.now() > deadline) return false;
    await delay(POLL_MS);
  }
  return true;
}
