/**
 * A folder like a user's project: the packed package installed in it, its declared dependencies, the compiler, and
 * nothing else. Dependencies are linked from this repository, so that no network is needed; anything the package does
 * not declare is missing, and importing it fails.
 */
import { execFile } from 'node:child_process';
import { cp, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const run = promisify(execFile);
const ROOT = fileURLToPath(new URL('../..', import.meta.url));

export interface Consumer {
  readonly folder: string;
  /** Names of the packed files. */
  readonly files: readonly string[];
  write(name: string, text: string): Promise<void>;
  /** What the compiler reports; empty when it succeeds. */
  compile(settings: object, files: readonly string[]): Promise<string>;
  /** What a compiled program prints. */
  run(file: string, env: Record<string, string>): Promise<string>;
  remove(): Promise<void>;
}

/**
 * Packs the existing build: `dist` is not built again, because other tests are using it. `libraries` are the user's
 * own.
 */
export async function installPacked(libraries: readonly string[]): Promise<Consumer> {
  const folder = await mkdtemp(join(tmpdir(), 'flowfabric-consumer-'));
  try {
    const files = await unpackInto(folder);
    const manifest = JSON.parse(await readFile(join(folder, 'node_modules/flowfabric/package.json'), 'utf8'));
    const needed = [...Object.keys(manifest.dependencies), ...libraries];
    await Promise.all(needed.map((name) => link(folder, name)));
    await writeFile(join(folder, 'package.json'), JSON.stringify({ private: true, type: 'module' }));
    return consumerIn(folder, files);
  } catch (error) {
    await rm(folder, { recursive: true, force: true });
    throw error;
  }
}

async function unpackInto(folder: string): Promise<string[]> {
  const { stdout } = await run(
    'npm',
    ['pack', '--ignore-scripts', '--json', '--loglevel', 'error', '--pack-destination', folder],
    { cwd: ROOT },
  );
  const [packed] = JSON.parse(stdout) as { filename: string; files: { path: string }[] }[];
  const home = join(folder, 'node_modules', 'flowfabric');
  await mkdir(home, { recursive: true });
  await run('tar', ['-xzf', join(folder, packed!.filename), '-C', home, '--strip-components', '1']);
  return packed!.files.map(({ path }) => path);
}

async function link(folder: string, name: string): Promise<void> {
  const place = join(folder, 'node_modules', name);
  await mkdir(dirname(place), { recursive: true });
  await symlink(join(ROOT, 'node_modules', name), place);
}

function consumerIn(folder: string, files: readonly string[]): Consumer {
  return {
    folder,
    files,
    write: (name, text) => writeFile(join(folder, name), text),
    async compile(settings, sources) {
      const config = { compilerOptions: { ...STRICT, ...settings }, files: sources };
      await writeFile(join(folder, 'tsconfig.json'), JSON.stringify(config));
      const compiler = join(ROOT, 'node_modules', 'typescript', 'bin', 'tsc');
      return run(process.execPath, [compiler, '-p', folder], { cwd: folder }).then(
        ({ stdout }) => stdout,
        (error: { stdout?: string }) => error.stdout ?? String(error),
      );
    },
    async run(file, env) {
      const { stdout } = await run(process.execPath, [file], {
        cwd: folder,
        env: { ...process.env, ...env },
      });
      return stdout;
    },
    remove: () => rm(folder, { recursive: true, force: true }),
  };
}

/** The package's own declarations are checked too. */
const STRICT = {
  target: 'es2023',
  lib: ['es2023', 'esnext.disposable'],
  types: ['node'],
  strict: true,
  exactOptionalPropertyTypes: true,
  noUncheckedIndexedAccess: true,
  verbatimModuleSyntax: true,
  skipLibCheck: false,
};

/** A program kept beside the tests as a text file, because it can only be compiled where the package is installed. */
export async function copyProgram(consumer: Consumer, name: string): Promise<void> {
  const from = fileURLToPath(new URL(`programs/${name}.txt`, import.meta.url));
  await cp(from, join(consumer.folder, name));
}
