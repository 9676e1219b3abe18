/**
 * The files that the checks examine, as strings, and the shape of what a check reports. Only this file reads the
 * working tree; a check gets its files as an argument, so that a planted file works like a real one.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { extname, join } from 'node:path';
import { lexSql, lexTypeScript, type Lexed } from './lex.ts';

export interface SourceFile {
  /** Relative to the repository, with forward slashes. */
  path: string;
  text: string;
}

export interface Finding {
  path: string;
  line: number;
  message: string;
}

export interface Check {
  /** The rule, as a sentence that is true of a tidy tree. */
  name: string;
  find: (files: readonly SourceFile[]) => Finding[];
}

const NOT_OURS = new Set(['node_modules', 'dist', '.git', '.flowfabric', 'coverage']);
const TEXT_EXTENSIONS = new Set([
  '.ts',
  '.mts',
  '.mjs',
  '.js',
  '.sql',
  '.md',
  '.json',
  '.yml',
  '.yaml',
  '.sh',
  '',
]);
const CODE_EXTENSIONS = new Set(['.ts', '.mts', '.mjs', '.js']);

/** Every file of the repository that people write or commit; a binary file is listed as empty. */
export function readTree(root: string): SourceFile[] {
  const found: SourceFile[] = [];
  const pending = [''];
  for (let folder = pending.pop(); folder !== undefined; folder = pending.pop()) {
    for (const entry of readdirSync(join(root, folder), { withFileTypes: true })) {
      const path = folder === '' ? entry.name : `${folder}/${entry.name}`;
      if (NOT_OURS.has(entry.name)) continue;
      if (entry.isDirectory()) pending.push(path);
      if (entry.isFile()) found.push({ path, text: textOf(join(root, path)) });
    }
  }
  return found.toSorted((a, b) => (a.path < b.path ? -1 : 1));
}

function textOf(place: string): string {
  return TEXT_EXTENSIONS.has(extname(place)) ? readFileSync(place, 'utf8') : '';
}

export function isCode(file: SourceFile): boolean {
  return CODE_EXTENSIONS.has(extname(file.path));
}

export function isSql(file: SourceFile): boolean {
  return file.path.endsWith('.sql');
}

export function isTest(file: SourceFile): boolean {
  return file.path.startsWith('tests/') || file.path.endsWith('.test.ts');
}

export function isUnder(file: SourceFile, ...folders: string[]): boolean {
  return folders.some((folder) => file.path.startsWith(`${folder}/`));
}

const lexedFiles = new WeakMap<SourceFile, Lexed>();

/** The file split into code, comments and literals; lexed once however many checks use it. */
export function lexed(file: SourceFile): Lexed {
  const known = lexedFiles.get(file);
  if (known !== undefined) return known;
  const fresh = isSql(file) ? lexSql(file.text) : lexTypeScript(file.text);
  lexedFiles.set(file, fresh);
  return fresh;
}

/** One finding for each place in `text` (the file, or a blanked copy of it) where the pattern matches. */
export function findPattern(file: SourceFile, text: string, pattern: RegExp, message: string): Finding[] {
  const findings: Finding[] = [];
  for (const match of text.matchAll(pattern)) {
    const line = text.slice(0, match.index).split('\n').length;
    findings.push({ path: file.path, line, message: `${message}: ${shown(match[0])}` });
  }
  return findings;
}

export function shown(text: string): string {
  return text.replaceAll(/\s+/g, ' ').trim().slice(0, 80);
}

export function report(findings: readonly Finding[]): string {
  return findings.map(({ path, line, message }) => `${path}:${line} ${message}`).join('\n');
}
