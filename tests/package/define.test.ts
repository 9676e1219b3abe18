/**
 * The definitions of an application load in a browser: `flowfabric/define` is bundled by three bundlers without a warning, without a
 * Node module, and stays small. Needs a built `dist`.
 */
import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { build } from 'esbuild';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { patiently } from '../setup/patience.ts';
import type * as definitions from '../../src/define/index.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const ENTRY = join(ROOT, 'dist/define/index.js');
const MAX_BYTES = 14 * 1024;
const LIMIT = { timeout: patiently(60_000) };
const run = promisify(execFile);

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'flowfabric-define-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

/** Runs a bundler's program and returns all that it printed. */
async function bundler(program: string, args: readonly string[]): Promise<string> {
  const { stdout, stderr } = await run(process.execPath, [join(ROOT, 'node_modules', program), ...args], {
    cwd: folder,
    env: { ...process.env, NO_COLOR: '1' },
  });
  return `${stdout}\n${stderr}`;
}

/** Each leaves one file and returns what it had to say against it. */
const BUNDLERS: Record<string, (file: string) => Promise<string>> = {
  async esbuild(file) {
    const { warnings, errors } = await build({
      entryPoints: [ENTRY],
      outfile: file,
      bundle: true,
      minify: true,
      format: 'esm',
      platform: 'browser',
      logLevel: 'silent',
    });
    return [...warnings, ...errors].map(({ text }) => text).join('\n');
  },
  async rolldown(file) {
    const args = [ENTRY, '--file', file, '--format', 'esm', '--platform', 'browser', '--minify'];
    return complaints(await bundler('rolldown/bin/cli.mjs', args));
  },
  async vite(file) {
    const config = join(folder, 'vite.config.mjs');
    const names = `{ entry: ${JSON.stringify(ENTRY)}, formats: ['es'], fileName: () => 'vite.mjs' }`;
    await writeFile(config, `export default { build: { outDir: '.', emptyOutDir: false, lib: ${names} } };`);
    const said = await bundler('vite/bin/vite.js', ['build', folder, '--config', config]);
    expect(file).toBe(join(folder, 'vite.mjs'));
    return complaints(said);
  },
};

function complaints(said: string): string {
  const lines = said.split('\n').filter((line) => /warn|error|unresolved|external|deprecat/i.test(line));
  return lines.join('\n');
}

test.each(Object.keys(BUNDLERS))('%s bundles it for a browser, whole and small', LIMIT, async (name) => {
  const file = join(folder, `${name}.mjs`);
  expect(await BUNDLERS[name]!(file)).toBe('');
  const text = await readFile(file, 'utf8');
  expect(text).not.toMatch(/node:|\bimport\b|\brequire\(|\bprocess\.|\bBuffer\b/);
  if (name !== 'vite') expect(Buffer.byteLength(text)).toBeLessThanOrEqual(MAX_BYTES);
  const define = (await import(pathToFileURL(file).href)) as Pick<typeof definitions, 'flow' | 'task'>;
  const summarize = define.task<{ url: string }>('summarize');
  const shown = define.flow('show', (f) => f.add('one', summarize, { url: 'x' }));
  expect(await shown.layOut()).toMatchObject([{ name: 'one', kind: 'summarize', payload: { url: 'x' } }]);
});
