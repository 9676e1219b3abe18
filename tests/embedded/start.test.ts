/** Starting, stopping and restarting, within one process. */

import { readFile, readdir, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, expect, onTestFinished, test } from 'vitest';
import { availableBinaries, startEmbedded } from '../../src/embedded/index.ts';
import { isAlive, makeDirectory, query, startUser, temporaryDirectory } from './processes.ts';
import { patiently } from '../setup/patience.ts';

const LIMIT_MS = patiently(60_000);
const posix = process.platform !== 'win32';

// One initdb serves all tests that only need an instance; each leaves it stopped.
const shared = await makeDirectory();
const sharedDir = join(shared.directory, 'pg');
afterAll(shared.remove);

test(
  'a first start returns an empty server, and a later one finds the data at the same address',
  { timeout: LIMIT_MS },
  async () => {
    const dataDir = join(await temporaryDirectory(), 'made', 'on', 'demand');
    const first = await startEmbedded({ dataDir });
    expect(first.dataDir).toBe(dataDir);
    expect(await query(first.url, 'show server_encoding')).toEqual([{ server_encoding: 'UTF8' }]);
    expect(await query(first.url, 'show server_version')).toEqual([
      { server_version: expect.stringContaining(first.version) },
    ]);
    await query(first.url, 'create table kept as select 7 as n');
    await first.stop();
    expect(await isAlive(first.pid)).toBe(false);

    const later = await startEmbedded({ dataDir, settings: { work_mem: '5MB' } });
    expect(later.pid).not.toBe(first.pid);
    expect(later.url).toBe(first.url);
    expect(await query(later.url, 'select n from kept')).toEqual([{ n: 7 }]);
    expect(await query(later.url, 'show work_mem')).toEqual([{ work_mem: '5MB' }]);
    await later.stop();
    await later.stop();
  },
);

test(
  'only the stored password opens the server, only on loopback, and no secret is readable by others',
  { timeout: LIMIT_MS },
  async () => {
    const dataDir = join(await temporaryDirectory(), 'pg');
    await using server = await startEmbedded({ dataDir });
    const wrong = new URL(server.url);
    wrong.password = 'wrong';
    await expect(query(wrong.href, 'select 1')).rejects.toMatchObject({ code: '28P01' });
    wrong.password = '';
    await expect(query(wrong.href, 'select 1')).rejects.toThrow();
    expect(await query(server.url, 'show listen_addresses')).toEqual([{ listen_addresses: '127.0.0.1' }]);
    expect(await query(server.url, 'show unix_socket_directories')).toEqual([
      { unix_socket_directories: '' },
    ]);

    expect((await readdir(dataDir)).toSorted()).toEqual(
      ['lock', 'password', 'pgdata', 'port', 'server.log', 'users', 'watcher'].toSorted(),
    );
    expect(await readFile(join(dataDir, 'password'), 'utf8')).toBe(new URL(server.url).password);
    if (!posix) return;
    expect((await stat(join(dataDir, 'password'))).mode & 0o777).toBe(0o600);
    expect((await stat(join(dataDir, 'server.log'))).mode & 0o777).toBe(0o600);
    expect((await stat(join(dataDir, 'pgdata'))).mode & 0o777).toBe(0o700);
  },
);

test(
  'stopping in immediate mode is a crash that keeps committed data, even while others use the server',
  { timeout: LIMIT_MS },
  async () => {
    const dataDir = sharedDir;
    const one = await startEmbedded({ dataDir });
    const two = await startEmbedded({ dataDir });
    expect(two.pid).toBe(one.pid);
    await query(one.url, 'create table kept as select 7 as n');
    await one.stop('immediate');
    expect(await isAlive(one.pid)).toBe(false);

    const three = await startEmbedded({ dataDir });
    expect(await query(three.url, 'select n from kept')).toEqual([{ n: 7 }]);
    expect(await readFile(join(dataDir, 'server.log'), 'utf8')).toContain('automatic recovery in progress');
    await three.stop();
    expect(await isAlive(three.pid)).toBe(false);
    await two.stop();
  },
);

test(
  'a server that refuses to start is reported with the last lines of its log',
  { timeout: LIMIT_MS },
  async () => {
    const dataDir = sharedDir;
    await expect(startEmbedded({ dataDir, settings: { shared_buffers: 'plenty' } })).rejects.toMatchObject({
      code: 'embedded_unavailable',
      message: expect.stringMatching(/invalid value for parameter "shared_buffers"[^]*DATABASE_URL/),
    });
    const server = await startEmbedded({ dataDir });
    await server.stop();
  },
);

test('a wrong password is reported, and no server is left running', { timeout: LIMIT_MS }, async () => {
  const dataDir = sharedDir;
  const server = await startEmbedded({ dataDir });
  await server.stop();
  const password = await readFile(join(dataDir, 'password'), 'utf8');
  await writeFile(join(dataDir, 'password'), 'wrong');
  onTestFinished(() => writeFile(join(dataDir, 'password'), password));
  await expect(startEmbedded({ dataDir })).rejects.toMatchObject({
    code: 'embedded_unavailable',
    message: expect.stringContaining('refuses the password'),
  });
  await expect(stat(join(dataDir, 'pgdata', 'postmaster.pid'))).rejects.toMatchObject({ code: 'ENOENT' });
});

test(
  'the default directory is below the working directory, and git ignores it',
  { timeout: LIMIT_MS },
  async () => {
    const project = await temporaryDirectory();
    const user = await startUser({}, { cwd: project });
    await user.finish();
    expect(user.said).toMatchObject({ dataDir: join(project, '.flowfabric', 'postgres') });
    expect(await readFile(join(project, '.flowfabric', '.gitignore'), 'utf8')).toBe('*\n');
  },
);

test('settings that the launcher depends on, or that are not valid names, are refused', async () => {
  for (const name of ['port', 'Listen_Addresses', 'a b', '-x']) {
    await expect(startEmbedded({ settings: { [name]: '1' } })).rejects.toMatchObject({
      code: 'invalid_input',
      field: `settings.${name}`,
    });
  }
});

test('some binaries are available where these tests run', async () => {
  expect(await availableBinaries()).not.toEqual([]);
});

test.each([
  ['an unknown option', { dataDirectory: 'x' }, 'dataDirectory'],
  ['an empty directory', { dataDir: '' }, 'dataDir'],
  ['a blank directory', { dataDir: ' ' }, 'dataDir'],
  ['a directory that is no text', { dataDir: 5 }, 'dataDir'],
  ['empty binaries', { binaries: '' }, 'binaries'],
  ['settings that are none', { settings: 'fsync=off' }, 'settings'],
  ['a setting that is no text', { settings: { fsync: false } }, 'settings.fsync'],
  ['nothing', null, 'options'],
])('%s is refused, and nothing is started', async (_, options, field) => {
  await expect(startEmbedded(options as never)).rejects.toMatchObject({ code: 'invalid_input', field });
});
