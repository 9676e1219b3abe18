/**
 * The contents of `sql/`. In the repository they are read from their files. In the package this module contains them
 * (`scripts/sql-module.mjs` writes it at build time), because a program bundled into one file has no files beside it.
 */
import { readdirSync, readFileSync } from 'node:fs';

export interface SqlFile {
  name: string;
  text: string;
}

const ROOT = new URL('../../../../sql/', import.meta.url);

/** The files of a folder and its subfolders, sorted by name: `executions/claim.sql`. */
export function sqlFiles(folder: 'migrations' | 'functions' | 'testing'): readonly SqlFile[] {
  const directory = new URL(`${folder}/`, ROOT);
  return readdirSync(directory, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.sql'))
    .map((name) => name.replaceAll('\\', '/'))
    .toSorted()
    .map((name) => ({ name, text: readFileSync(new URL(name, directory), 'utf8') }));
}
