/**
 * How long a file and a function may be, what a file is called and how it starts. There is no list of exempt files: the
 * generated schema is the one exception, because nobody reads it from top to bottom.
 */
import { posix } from 'node:path';
import { findFunctions, findSqlFunctions, type FoundFunction } from './functions.ts';
import { isCode, isSql, isUnder, type Check, type Finding, type SourceFile } from './tree.ts';

export const FILE_LINES_MAX = 400;
export const FUNCTION_LINES_MAX = 70;
export const SQL_FUNCTION_LINES_MAX = 130;
const HEADER_LINES_MIN = 3;
/** Twelve lines of text between the two lines that open and close the comment. */
const HEADER_LINES_MAX = 14;

const CODE_FOLDERS = ['src', 'sql', 'tests', 'scripts', 'bench', 'examples'];
const GENERATED = 'sql/schema.sql';

function isOurSource(file: SourceFile): boolean {
  return (isCode(file) || isSql(file)) && isUnder(file, ...CODE_FOLDERS) && file.path !== GENERATED;
}

export const fileLength: Check = {
  name: `a file has at most ${FILE_LINES_MAX} lines`,
  find: (files) =>
    files
      .filter(isOurSource)
      .map((file) => ({ path: file.path, line: file.text.trimEnd().split('\n').length }))
      .filter(({ line }) => line > FILE_LINES_MAX)
      .map(({ path, line }) => ({ path, line, message: `the file has ${line} lines` })),
};

function tooLong(file: SourceFile, functions: FoundFunction[], limit: number): Finding[] {
  return functions
    .filter(({ lines, groupsTests }) => lines > limit && !groupsTests)
    .map(({ name, line, lines }) => ({ path: file.path, line, message: `${name} has ${lines} lines` }));
}

export const functionLength: Check = {
  name: `a function has at most ${FUNCTION_LINES_MAX} lines`,
  find: (files) =>
    files
      .filter((file) => isOurSource(file) && isCode(file))
      .flatMap((file) => tooLong(file, findFunctions(file.text), FUNCTION_LINES_MAX)),
};

export const sqlFunctionLength: Check = {
  name: `the body of an SQL function has at most ${SQL_FUNCTION_LINES_MAX} lines`,
  find: (files) =>
    files
      .filter((file) => isOurSource(file) && isSql(file))
      .flatMap((file) => tooLong(file, findSqlFunctions(file.text), SQL_FUNCTION_LINES_MAX)),
};

const BANNED_WORDS = new Set(['util', 'utils', 'helper', 'helpers', 'common', 'misc', 'manager']);
const BANNED_NAMES = new Set([...BANNED_WORDS, 'types', 'internal']);

function bannedPart(path: string): string | undefined {
  const names = path.split('/').map((part) => part.split('.')[0] ?? '');
  return names.find(
    (name) => BANNED_NAMES.has(name) || name.split('-').some((word) => BANNED_WORDS.has(word)),
  );
}

export const fileNames: Check = {
  name: 'no file or folder is named after nothing (utils, helpers, common, misc, manager, types, internal)',
  find: (files) =>
    files
      .filter((file) => isUnder(file, ...CODE_FOLDERS))
      .flatMap(({ path }) => {
        const part = bannedPart(path);
        return part === undefined ? [] : [{ path, line: 1, message: `${posix.basename(path)}: ${part}` }];
      }),
};

function headerLines(text: string): number {
  const body = text.replace(/^#![^\n]*\n/, '');
  const header = /^\/\*[\s\S]*?\*\//.exec(body)?.[0] ?? /^(?:\/\/[^\n]*\n)+/.exec(body)?.[0].trimEnd();
  return header === undefined ? 0 : header.split('\n').length;
}

export const fileHeader: Check = {
  name: `a file in src opens with a comment of ${HEADER_LINES_MIN} to ${HEADER_LINES_MAX} lines`,
  find: (files) =>
    files
      .filter((file) => isCode(file) && isUnder(file, 'src'))
      .map((file) => ({ path: file.path, line: 1, lines: headerLines(file.text) }))
      .filter(({ lines }) => lines < HEADER_LINES_MIN || lines > HEADER_LINES_MAX)
      .map(({ path, line, lines }) => ({
        path,
        line,
        message: lines === 0 ? 'no header comment' : `the header has ${lines} line(s)`,
      })),
};
