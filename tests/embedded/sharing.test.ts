/** Several processes on one data directory, and what they leave behind when they are killed. */

import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { once } from 'node:events';
import { afterAll, expect, test } from 'vitest';
import { startEmbedded } from '../../src/embedded/index.ts';
import {
  isAlive,
  killHard,
  makeDirectory,
  query,
  spawnUser,
  startUser,
  temporaryDirectory,
  until,
} from './processes.ts';
import { patiently } from '../setup/patience.ts';

const LIMIT_MS = patiently(60_000);
const posix = process.platform !== 'win32';

// One initdb serves all tests that only need an instance; each leaves it stopped.
const shared = await makeDirectory();
const sharedDir = join(shared.directory, 'pg');
afterAll(shared.remove);

test(
  'processes that start at the same time share one server, and the last one stops it',
  { timeout: LIMIT_MS },
  async () => {
    const dataDir = join(await temporaryDirectory(), 'pg');
    const users = await Promise.all([1, 2, 3].map(() => startUser({ dataDir })));
    const [first, second, third] = users;
    const pid = Number(first!.said.pid);
    expect(new Set(users.map((user) => user.said.pid))).toEqual(new Set([pid]));
    await Promise.all([first!.finish(), second!.finish()]);
    expect(await isAlive(pid)).toBe(true);
    await query(String(third!.said.url), 'select 1');
    await third!.finish();
    expect(await isAlive(pid)).toBe(false);
    await expect(query(String(third!.said.url), 'select 1')).rejects.toMatchObject({ code: 'ECONNREFUSED' });
  },
);

test(
  'a server stops by itself after its only user was killed, and the next user starts it again',
  { timeout: LIMIT_MS },
  async () => {
    const dataDir = sharedDir;
    const starter = await startUser({ dataDir });
    const pid = Number(starter.said.pid);
    await killHard(starter.child);
    await until(async () => !(await isAlive(pid)));
    const log = await readFile(join(dataDir, 'server.log'), 'utf8');
    expect(log.trimEnd()).toMatch(/database system is shut down$/);
    const server = await startEmbedded({ dataDir });
    await server.stop();
  },
);

test(
  'a server keeps running for its other users when one is killed, even the one that started it',
  { timeout: LIMIT_MS },
  async () => {
    const dataDir = sharedDir;
    const starter = await startUser({ dataDir });
    const other = await startUser({ dataDir });
    const pid = Number(starter.said.pid);
    expect(other.said.pid).toBe(pid);
    await killHard(starter.child);
    // The watcher has polled and removed the dead user.
    await until(async () => (await readdir(join(dataDir, 'users'))).length === 1);
    expect(await query(String(other.said.url), 'select 7 as n')).toEqual([{ n: 7 }]);
    await killHard(other.child);
    await until(async () => !(await isAlive(pid)));
  },
);

test(
  'a process that joins a server whose users were killed keeps it as long as it needs it',
  { timeout: LIMIT_MS },
  async () => {
    const dataDir = sharedDir;
    const starter = await startUser({ dataDir });
    await killHard(starter.child);
    await using server = await startEmbedded({ dataDir });
    await until(async () => (await readdir(join(dataDir, 'users'))).length === 1);
    expect(await query(server.url, 'select 7 as n')).toEqual([{ n: 7 }]);
    await server.stop();
    expect(await isAlive(server.pid)).toBe(false);
  },
);

test('a killed watcher is replaced by the next process to join', { timeout: LIMIT_MS }, async () => {
  const dataDir = sharedDir;
  const starter = await startUser({ dataDir });
  const watchers = async (): Promise<number[]> =>
    (await readdir(join(dataDir, 'watcher'))).map((name) => Number.parseInt(name, 10));
  const running = async (): Promise<number[]> => {
    const found = await Promise.all(
      (await watchers()).map(async (pid) => ((await isAlive(pid)) ? [pid] : [])),
    );
    return found.flat();
  };
  // Watchers of stopped servers end by themselves.
  await until(async () => (await running()).length === 1);
  const [first] = await running();
  process.kill(first!, 'SIGKILL');
  await until(async () => !(await isAlive(first!)));
  const other = await startUser({ dataDir });
  expect(other.said.pid).toBe(starter.said.pid);
  expect(await running()).toHaveLength(1);
  await Promise.all([killHard(starter.child), killHard(other.child)]);
  await until(async () => !(await isAlive(Number(starter.said.pid))));
  await until(async () => (await running()).length === 0);
});

test('a killed server restarts with its committed data', { timeout: LIMIT_MS }, async () => {
  const dataDir = sharedDir;
  const starter = await startUser({ dataDir });
  await query(String(starter.said.url), 'create table kept as select 7 as n');
  await killHard(starter.child);
  process.kill(Number(starter.said.pid), 'SIGKILL');
  const next = await startEmbedded({ dataDir });
  expect(next.pid).not.toBe(starter.said.pid);
  expect(await query(next.url, 'select n from kept')).toEqual([{ n: 7 }]);
  await next.stop();
  expect(await isAlive(next.pid)).toBe(false);
});

test.runIf(posix)('an initdb killed halfway is run again', { timeout: LIMIT_MS }, async () => {
  const dataDir = join(await temporaryDirectory(), 'pg');
  const starter = spawnUser({ dataDir }, { detached: true });
  const ended = once(starter, 'exit');
  const names = (): Promise<string[]> => readdir(dataDir).catch(() => []);
  const unfinished = async (): Promise<string | undefined> =>
    (await names()).find((name) => name.startsWith('initdb-'));
  await until(async () => {
    const name = await unfinished();
    return name !== undefined && (await readdir(join(dataDir, name, 'pgdata')).catch(() => [])).length > 3;
  });
  process.kill(-starter.pid!, 'SIGKILL'); // the starter and its initdb
  await ended;
  expect(await unfinished()).toBeDefined();
  expect(await names()).not.toContain('pgdata');

  const server = await startEmbedded({ dataDir });
  expect(await query(server.url, 'select 7 as n')).toEqual([{ n: 7 }]);
  expect(await unfinished()).toBeUndefined();
  await server.stop();
});

test('locks and pid files of dead processes do not block a start', { timeout: LIMIT_MS }, async () => {
  const dataDir = sharedDir;
  const first = await startEmbedded({ dataDir });
  const pidFile = join(dataDir, 'pgdata', 'postmaster.pid');
  const lines = (await readFile(pidFile, 'utf8')).split('\n');
  await first.stop();

  // A lock and a user whose pid now belongs to a process with another start time, or to none.
  for (const folder of ['lock', 'users']) {
    await writeFile(join(dataDir, folder, `${process.pid}-1-aaaaaaaaaaaa`), '');
    await writeFile(join(dataDir, folder, '4194999-1-aaaaaaaaaaaa'), '');
  }
  // A postmaster.pid that survived a restart of the machine; its pid is now another program's.
  await writeFile(pidFile, [String(process.pid), ...lines.slice(1)].join('\n'));

  const next = await startEmbedded({ dataDir });
  await next.stop();
  expect(await isAlive(next.pid)).toBe(false);
  expect(await readdir(join(dataDir, 'users'))).toEqual([]);
});
