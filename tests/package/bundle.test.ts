/**
 * A server that was bundled into one file runs on its own: without a package, SQL files or `node_modules`. Needs a
 * built `dist`.
 */
import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { sqlFiles } from '../../src/engine/database/migrations/sql-files.ts';
import { emptyDatabase } from '../setup/database.ts';
import { patiently } from '../setup/patience.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const BUNDLER = join(ROOT, 'node_modules/rolldown/bin/cli.mjs');
const BUILT_SQL = new URL('../../dist/engine/database/migrations/sql-files.js', import.meta.url);
const LIMIT_MS = patiently(25_000);
const run = promisify(execFile);

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'flowfabric-bundle-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

test('a bundled server migrates, submits, works and exits', async () => {
  await using database = await emptyDatabase();
  const file = join(folder, 'alone', 'server.mjs');
  await mkdir(dirname(file));
  const program = join(ROOT, 'tests/package/programs/bundled.mjs');
  const options = ['--file', file, '--format', 'esm', '--platform', 'node', '--external', 'pg-native'];
  await run(process.execPath, [BUNDLER, program, ...options, '--external', '@opentelemetry/api'], {
    cwd: ROOT,
  });
  expect(await readdir(dirname(file))).toEqual(['server.mjs']);
  const env = { PATH: process.env['PATH'], DATABASE_URL: database.url };
  const { stdout } = await run(process.execPath, [file], { cwd: dirname(file), env, timeout: LIMIT_MS });
  expect(JSON.parse(stdout)).toEqual({ result: { doubled: 42 }, again: [] });
});

test('the built package contains the same SQL as the files', async () => {
  const built = (await import(BUILT_SQL.href)) as { sqlFiles: typeof sqlFiles };
  for (const name of ['migrations', 'functions', 'testing'] as const)
    expect(built.sqlFiles(name)).toEqual(sqlFiles(name));
});
