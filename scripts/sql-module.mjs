/**
 * Replaces, in the built package, the module that reads the files of `sql/` by one that contains them: the same
 * exports, and no files needed at run time. The build runs it last.
 */
import { readdir, readFile, writeFile } from 'node:fs/promises';

const SQL = new URL('../sql/', import.meta.url);
const TARGET = new URL('../dist/engine/database/migrations/sql-files.js', import.meta.url);
const FOLDERS = ['migrations', 'functions', 'testing'];

async function filesOf(folder) {
  const names = (await readdir(new URL(`${folder}/`, SQL), { recursive: true }))
    .filter((name) => name.endsWith('.sql'))
    .map((name) => name.replaceAll('\\', '/'))
    .toSorted();
  const read = (name) => readFile(new URL(`${folder}/${name}`, SQL), 'utf8');
  return Promise.all(names.map(async (name) => ({ name, text: await read(name) })));
}

const entries = await Promise.all(FOLDERS.map(async (folder) => [folder, await filesOf(folder)]));
await writeFile(
  TARGET,
  `const FILES = ${JSON.stringify(Object.fromEntries(entries), undefined, 1)};

export function sqlFiles(folder) {
  return FILES[folder];
}
`,
);
