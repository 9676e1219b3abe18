/**
 * The Postgres binaries from an npm package: finds the package, creates the library links that its install script would
 * create (package managers increasingly refuse to run it), and copies the files to a cache when they cannot be used in
 * place. Which binaries to prefer is decided in binaries.ts.
 */

import { randomBytes } from 'node:crypto';
import { constants } from 'node:fs';
import {
  chmod,
  copyFile,
  mkdir,
  readFile,
  readdir,
  rename,
  rm,
  stat,
  symlink,
  writeFile,
} from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join, relative, resolve } from 'node:path';
import { canReach, canRead, claimPublicDirectory, type Account } from './account.ts';
import { withLock } from './markers.ts';
import { platformPackage, systemCode } from './unavailable.ts';

const READ_ONLY_CODES = new Set(['EACCES', 'EPERM', 'EROFS']);

/**
 * Directory of the packaged binaries, ready to run under the account. Throws a plain Error with the reason
 * when there is none.
 */
export async function packagedBinDir(account: Account | undefined): Promise<string> {
  const name = platformPackage();
  if (name === undefined)
    throw new Error(`no packaged Postgres exists for ${process.platform}-${process.arch}`);
  const root = packageRoot(name);
  if (root === undefined) throw new Error(`the package ${name} is not installed`);
  const native = join(root, 'native');
  if ((await isReadable(native, account)) && (await linkInPlace(root))) return join(native, 'bin');
  return join(await cachedCopy(root, name, account), 'native', 'bin');
}

// Resolved from here and from the user's project: a strict node_modules layout shows each only its own packages.
function packageRoot(name: string): string | undefined {
  for (const from of [import.meta.url, join(process.cwd(), 'package.json')]) {
    try {
      return resolve(dirname(createRequire(from).resolve(name)), '..');
    } catch {
      // Not visible from here; try the next place.
    }
  }
  return undefined;
}

async function isReadable(native: string, account: Account | undefined): Promise<boolean> {
  for (const part of ['bin', 'lib', 'share']) {
    if (!(await canRead(join(native, part), account))) return false;
  }
  return true;
}

async function linkInPlace(root: string): Promise<boolean> {
  try {
    await makeLinks(root);
    return true;
  } catch (error) {
    if (READ_ONLY_CODES.has(systemCode(error) ?? '')) return false;
    throw error;
  }
}

/** Creates the library links the package lists. Safe to repeat and to run in several processes at once. */
async function makeLinks(root: string): Promise<void> {
  for (const { source, target } of await listedLinks(root)) {
    const link = resolve(root, target);
    if ((await stat(link).catch(() => undefined)) !== undefined) continue;
    // Moved into place by rename, so that a wrong or incomplete link is replaced and nobody sees a gap.
    const next = `${link}.${randomBytes(6).toString('hex')}`;
    await symlink(relative(dirname(link), resolve(root, source)), next);
    await rename(next, link);
  }
}

async function listedLinks(root: string): Promise<{ source: string; target: string }[]> {
  const text = await readFile(join(root, 'native', 'pg-symlinks.json'), 'utf8').catch((error: unknown) => {
    if (systemCode(error) === 'ENOENT') return '[]'; // not every platform needs links
    throw error;
  });
  const listed: unknown = JSON.parse(text);
  if (!Array.isArray(listed)) throw new TypeError(`${root}/native/pg-symlinks.json is not a list`);
  return listed.map((entry: { source?: unknown; target?: unknown }) => {
    if (!isInside(root, entry.source) || !isInside(root, entry.target))
      throw new Error(`${root}/native/pg-symlinks.json names a file outside the package`);
    return { source: entry.source, target: entry.target };
  });
}

function isInside(root: string, path: unknown): path is string {
  return typeof path === 'string' && !relative(root, resolve(root, path)).startsWith('..');
}

async function cachedCopy(root: string, name: string, account: Account | undefined): Promise<string> {
  const manifest = JSON.parse(await readFile(join(root, 'package.json'), 'utf8')) as { version: string };
  const key = `${name.replaceAll(/\W+/g, '-').replace(/^-/, '')}-${manifest.version}`;
  const bases = process.platform === 'win32' ? [tmpdir()] : [...new Set([tmpdir(), '/var/tmp'])];
  for (const base of bases) {
    const cache = join(base, `flowfabric-binaries-${process.getuid?.() ?? 'user'}`);
    if (!(await claimPublicDirectory(cache)) || !(await canReach(cache, account))) continue;
    const place = join(cache, key);
    if (!(await isComplete(place))) await withLock(join(cache, 'lock'), () => fillCache(root, place));
    return place;
  }
  throw new Error(
    `the package ${name} cannot be used where it is, and no cache below ${bases.join(' or ')} is usable`,
  );
}

// Temporary directories are cleaned file by file, so a copy that was complete once may have gaps.
async function isComplete(place: string): Promise<boolean> {
  const expected = await readFile(join(place, 'files'), 'utf8').catch(() => undefined);
  return expected !== undefined && Number(expected) === (await countFiles(place));
}

async function countFiles(place: string): Promise<number> {
  return (await readdir(join(place, 'native'), { recursive: true }).catch(() => [])).length;
}

async function fillCache(root: string, place: string): Promise<void> {
  if (await isComplete(place)) return; // another process was faster
  const next = `${place}.new`; // remains of a killed process are removed first
  await rm(next, { recursive: true, force: true });
  await makePublic(next);
  await copyTree(join(root, 'native'), join(next, 'native'));
  await makeLinks(next);
  await writeFile(join(next, 'files'), String(await countFiles(next)));
  await rm(place, { recursive: true, force: true });
  await rename(next, place);
}

// Modes are set, not copied: the original may be private, and the umask may be strict.
async function copyTree(from: string, to: string): Promise<void> {
  await makePublic(to);
  for (const entry of await readdir(from, { withFileTypes: true })) {
    const source = join(from, entry.name);
    const target = join(to, entry.name);
    if (entry.isDirectory()) await copyTree(source, target);
    if (!entry.isFile()) continue; // links are recreated from the package's list
    await copyFile(source, target, constants.COPYFILE_FICLONE);
    await chmod(target, ((await stat(source)).mode & 0o100) === 0 ? 0o644 : 0o755);
  }
}

async function makePublic(directory: string): Promise<void> {
  await mkdir(directory, { mode: 0o755 });
  await chmod(directory, 0o755);
}
