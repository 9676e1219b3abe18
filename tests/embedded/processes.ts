/**
 * What the embedded tests share: temporary directories, queries, and child processes that use the embedded Postgres.
 * Children run the compiled package, because not every supported version of Node runs TypeScript.
 */

import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import pg from 'pg';
import { expect, onTestFinished, vi } from 'vitest';
import { findProcess } from '../../src/embedded/liveness.ts';
import { patiently } from '../setup/patience.ts';

export const DIST = new URL('../../dist/', import.meta.url);
const FIXTURE = fileURLToPath(new URL('./fixtures/using-process.mjs', import.meta.url));
const POLL_LIMIT_MS = patiently(20_000);

export interface UsingProcess {
  readonly child: ChildProcess;
  /** What startEmbedded returned to the process, or the error it threw. */
  readonly said: Record<string, string | number>;
  /** Makes the process call stop() and exit. */
  finish(): Promise<void>;
}

/** A directory that is removed after the test. Everybody may enter it, as root's server account must. */
export async function temporaryDirectory(): Promise<string> {
  const { directory, remove } = await makeDirectory();
  onTestFinished(remove);
  return directory;
}

/** The same for the tests of a whole file, which must remove it. */
export async function makeDirectory(): Promise<{ directory: string; remove: () => Promise<void> }> {
  const directory = await mkdtemp(join(tmpdir(), 'flowfabric-embedded-'));
  await chmod(directory, 0o755);
  const remove = async (): Promise<void> => {
    await stopServer(join(directory, 'pg'));
    await rm(directory, { recursive: true, force: true, maxRetries: 3 });
  };
  return { directory, remove };
}

// A test that fails halfway must not leave its server running.
async function stopServer(dataDir: string): Promise<void> {
  const text = await readFile(join(dataDir, 'pgdata', 'postmaster.pid'), 'utf8').catch(() => '');
  const pid = Number.parseInt(text, 10);
  if (pid > 0 && pid !== process.pid && (await isAlive(pid))) process.kill(pid, 'SIGQUIT');
}

/** Starts a process without waiting for its output. */
export function spawnUser(
  options: object,
  extra: { cwd?: string; uid?: number; env?: NodeJS.ProcessEnv; dist?: URL; detached?: boolean } = {},
): ChildProcess {
  const { dist = DIST, uid, ...rest } = extra;
  const module = new URL('embedded/index.js', dist).href;
  const account = uid === undefined ? {} : { uid, gid: uid };
  return spawn(process.execPath, [FIXTURE, module, JSON.stringify(options)], {
    stdio: ['pipe', 'pipe', 'inherit'],
    ...rest,
    ...account,
  });
}

/** Starts a process and waits until it has the server or has failed. */
export async function startUser(...args: Parameters<typeof spawnUser>): Promise<UsingProcess> {
  const child = spawnUser(...args);
  const ended = once(child, 'exit');
  const lines = createInterface({ input: child.stdout! });
  const [line] = (await once(lines, 'line')) as [string];
  const finish = async (): Promise<void> => {
    child.stdin!.end();
    await ended;
  };
  onTestFinished(finish);
  return { child, said: JSON.parse(line) as UsingProcess['said'], finish };
}

/** Kills a process with SIGKILL and waits until it is gone. */
export async function killHard(child: ChildProcess): Promise<void> {
  const ended = once(child, 'exit');
  child.kill('SIGKILL');
  await ended;
}

/** True while the process runs; a zombie does not count. */
export async function isAlive(pid: number): Promise<boolean> {
  return (await findProcess(pid)) !== undefined;
}

export async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  await vi.waitFor(async () => expect(await condition()).toBe(true), { timeout: POLL_LIMIT_MS, interval: 5 });
}

/** Runs one query on its own connection and returns the rows. */
export async function query(url: string, text: string): Promise<unknown[]> {
  const client = new pg.Client({ connectionString: url });
  client.on('error', () => {});
  await client.connect();
  try {
    return (await client.query(text)).rows;
  } finally {
    await client.end();
  }
}
