/**
 * The texts of `sql/`. Here they are read from their files; in the package this module has them in itself (`scripts/sql-module.mjs` writes
 * it when the package is built), because a program that is bundled into one file has no files beside it.
 */
import { readdirSync, readFileSync } from 'node:fs';

export interface SqlFile {
  name: string;
  text: string;
}

const ROOT = new URL('../../../sql/', import.meta.url);

/** The files of a folder and of the folders in it, by their names: `executions/claim.sql`. */
export function sqlFiles(folder: 'migrations' | 'functions' | 'testing'): readonly SqlFile[] {
  const directory = new URL(`${folder}/`, ROOT);
  return readdirSync(directory, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.sql'))
    .map((name) => name.replaceAll('\\', '/'))
    .toSorted()
    .map((name) => ({ name, text: readFileSync(new URL(name, directory), 'utf8') }));
}
