/**
 * What documents refer to must exist: the headings their links lead to, and the files of the repository they name.
 * That a link leads to a file at all is checked in words.ts.
 */
import { posix } from 'node:path';
import type { Check, SourceFile } from './tree.ts';
import { linksOf } from './words.ts';

const FENCED = /^(```|~~~)[\s\S]*?^\1/gm;
const HEADING = /^#{1,6} +(.+?) *$/gm;

function isDocument({ path }: SourceFile): boolean {
  return path.endsWith('.md');
}

/** The anchor a heading gets on GitHub, without the number that tells equal ones apart. */
function anchorOf(heading: string): string {
  return heading
    .toLowerCase()
    .replaceAll(/\[([^\]]*)\]\([^)]*\)/g, '$1')
    .replaceAll(/[^\p{L}\p{N}\s_-]/gu, '')
    .replaceAll(/\s/g, '-');
}

function anchorsOf(file: SourceFile): Set<string> {
  const prose = file.text.replaceAll(FENCED, '');
  return new Set([...prose.matchAll(HEADING)].map(([, heading = '']) => anchorOf(heading)));
}

export const docAnchors: Check = {
  name: 'every link of a document to a heading leads to one',
  find: (files) => {
    const anchors = new Map(files.filter(isDocument).map((file) => [file.path, anchorsOf(file)]));
    return files.filter(isDocument).flatMap((file) =>
      linksOf(file)
        .filter(({ target, anchor }) => {
          if (anchor === '' || /^[a-z][a-z+.-]*:/i.test(target)) return false;
          const base = target.startsWith('/') ? '.' : posix.dirname(file.path);
          const known = anchors.get(target === '' ? file.path : posix.join(base, target));
          return known !== undefined && !known.has(anchor);
        })
        .map(({ target, anchor, line }) => ({
          path: file.path,
          line,
          message: `no such heading: ${target}#${anchor}`,
        })),
    );
  },
};

/** A path in backticks that begins with a folder of the repository and ends with a file's extension or a slash. */
const NAMED_PATH = /`((?:src|sql|tests|scripts|bench|examples)\/[\w./-]*(?:\.[a-z]+|\/))`/g;

export const docPaths: Check = {
  name: 'every file or folder that a document names exists',
  find: (files) => {
    const paths = files.map(({ path }) => path);
    const exists = (named: string): boolean =>
      named.endsWith('/') ? paths.some((path) => path.startsWith(named)) : paths.includes(named);
    return files
      .filter(isDocument)
      .flatMap((file) =>
        file.text
          .split('\n')
          .flatMap((text, index) =>
            [...text.matchAll(NAMED_PATH)]
              .filter(([, named = '']) => !exists(named))
              .map(([, named]) => ({ path: file.path, line: index + 1, message: `no such file: ${named}` })),
          ),
      );
  },
};
