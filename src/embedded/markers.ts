/**
 * Markers of processes on a data directory: empty files whose name identifies the process. A marker counts only while its
 * process lives, so a killed process never blocks others. Because every marker has its own name, removing a dead one can
 * never remove a live one. The start lock and the list of users are both built from markers.
 */

import { randomBytes } from 'node:crypto';
import { mkdir, readdir, rm, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { findProcess } from './liveness.ts';
import { cannotStart } from './unavailable.ts';

const LOCK_LIMIT_MS = 180_000; // longer than the longest work done under the lock, a slow initdb
const LOCK_POLL_MS = 5;
const LOCK_JITTER_MS = 15;

/** Adds a marker, of this process or another one, to the directory and returns its path. */
export async function addMarker(directory: string, pid = process.pid): Promise<string> {
  const found = await findProcess(pid);
  const path = join(directory, `${pid}-${found?.started ?? ''}-${randomBytes(6).toString('hex')}`);
  await mkdir(directory, { recursive: true, mode: 0o700 });
  await writeFile(path, '', { flag: 'wx', mode: 0o600 });
  return path;
}

export async function removeMarker(path: string): Promise<void> {
  await rm(path, { force: true });
}

/** Removes all markers of this process. */
export async function removeOwnMarkers(directory: string): Promise<void> {
  for (const path of await liveMarkers(directory)) {
    if (basename(path).startsWith(`${process.pid}-`)) await removeMarker(path);
  }
}

/** Paths of the markers whose process lives. Markers of dead processes are removed on the way. */
export async function liveMarkers(directory: string): Promise<string[]> {
  const names = await readdir(directory).catch(() => []);
  const live: string[] = [];
  for (const name of names) {
    const path = join(directory, name);
    if (await isLive(name)) live.push(path);
    else await removeMarker(path);
  }
  return live;
}

async function isLive(name: string): Promise<boolean> {
  const parts = /^(\d+)-(\w*)-\w+$/.exec(name);
  if (parts === null) return false;
  const found = await findProcess(Number(parts[1]));
  if (found === undefined) return false;
  return found.started === '' || parts[2] === '' || found.started === parts[2];
}

/** Runs the work under the lock, which excludes other processes and other callers in this one. */
export async function withLock<T>(directory: string, work: () => Promise<T>): Promise<T> {
  const marker = await acquire(directory);
  try {
    return await work();
  } finally {
    await removeMarker(marker);
  }
}

// Everybody adds a marker first and checks second: of two concurrent markers at least one sees the other and backs off. Both
// may; the random delay then separates them.
async function acquire(directory: string): Promise<string> {
  const deadline = Date.now() + LOCK_LIMIT_MS;
  for (;;) {
    let others = await liveMarkers(directory);
    if (others.length === 0) {
      const marker = await addMarker(directory);
      others = (await liveMarkers(directory)).filter((path) => path !== marker);
      if (others.length === 0) return marker;
      await removeMarker(marker);
    }
    if (Date.now() > deadline) {
      throw cannotStart(
        `Another process kept the embedded Postgres locked for ${LOCK_LIMIT_MS / 1000} s. ` +
          `Stop that process; its id is at the start of the file name ${others[0]}.`,
      );
    }
    await delay(LOCK_POLL_MS + Math.random() * LOCK_JITTER_MS);
  }
}
