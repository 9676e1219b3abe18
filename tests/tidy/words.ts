/**
 * What comments, tests, documents and the lock file must not say: history, leftovers, places on one machine,
 * skipped tests, sleeps and links to nowhere.
 */
import { posix } from 'node:path';
import { blank } from './lex.ts';
import {
  findPattern,
  isCode,
  isSql,
  isTest,
  lexed,
  shown,
  type Check,
  type Finding,
  type SourceFile,
} from './tree.ts';

function inComments(file: SourceFile, pattern: RegExp, message: string): Finding[] {
  return lexed(file).comments.flatMap(({ text, line }) =>
    text
      .split('\n')
      .map((words, index) => ({ words, line: line + index }))
      .filter(({ words }) => pattern.test(words))
      .map((found) => ({ path: file.path, line: found.line, message: `${message}: ${shown(found.words)}` })),
  );
}

/** Tickets and plan steps. A public standard (RFC with four digits or more) is a reason, not history. */
const TICKET = new RegExp(
  [
    String.raw`(?:^|[\s(])#\d+\b`,
    String.raw`\b(?!(?:UTF|SHA|ISO|RFC|AES|UUID|HTTP|ES|CRC|IEEE|MD|UTC|GMT)-)[A-Z][A-Z]+-\d+\b`,
    String.raw`\b(?:[Ii]ssue|[Tt]icket|[Bb]ug|PR|[Pp]ull request)\s*#\s*\d+\b`,
    String.raw`\b(?:[Pp]hase|[Ss]tage|[Ww]ave|[Mm]ilestone|[Ss]print)[\s-]+\d+\b`,
    String.raw`\bRFC[\s-]?\d{1,3}\b`,
    String.raw`\/(?:issues|pull|merge_requests)\/\d+`,
    String.raw`^(?!.*\bRFC[\s-]?\d{4}).*§`,
  ].join('|'),
);

export const noTickets: Check = {
  name: 'a comment gives the present reason and names no ticket, phase or section of a plan',
  find: (files) =>
    files
      .filter((file) => isCode(file) || isSql(file))
      .flatMap((file) => inComments(file, TICKET, 'ticket-like comment')),
};

const LEFTOVER = /\b(?:TODO|FIXME|XXX|HACK)\b/;

export const noLeftovers: Check = {
  name: 'no comment promises later work',
  find: (files) =>
    files
      .filter((file) => isCode(file) || isSql(file))
      .flatMap((file) => inComments(file, LEFTOVER, 'leftover')),
};

/** Homebrew on Linux has one fixed home on every machine. */
const MACHINE_PLACE =
  /(?:file:\/\/|(?<![\w.:/-]))\/(?:(?:home|Users|root)\/(?!linuxbrew\b)[\w.-]+|work\/(?:main|shared)\b)|\b[A-Z]:\\Users\\|\bregistry\.[\w-]+\.\w+/g;

export const noMachinePaths: Check = {
  name: 'nothing names a path or a package registry of one machine',
  find: (files) => files.flatMap((file) => findPattern(file, file.text, MACHINE_PLACE, 'machine path')),
};

const SKIPPED =
  /\b(?:it|test|describe|suite)(?:\s*\.\s*\w+)*\s*\.\s*(?:skip|only|todo)\b|\b(?:xit|fit|xdescribe|fdescribe)\s*\(/g;

export const noSkippedTests: Check = {
  name: 'no test is skipped, singled out or left to be written',
  find: (files) =>
    files
      .filter((file) => isCode(file) && isTest(file))
      .flatMap((file) => findPattern(file, lexed(file).code, SKIPPED, 'skipped test')),
};

const SLEEP =
  /\bawait\s+(?!ctx\.)(?:[\w$]+\.)*(?:sleep|delay)\s*\(|\bsetTimeout\s*\(\s*(?:resolve|res|done|r|ok)\b|\bsetTimeout\s*\(\s*\(\s*\)\s*=>\s*(?:resolve|res|done|r|ok)\s*\(|=>\s*\{?\s*setTimeout\s*\(\s*[\w$]+\s*,/g;

export const noSleep: Check = {
  name: 'a test awaits a signal or moves the clock, and never sleeps',
  find: (files) =>
    files
      .filter((file) => isCode(file) && isTest(file))
      .flatMap((file) => {
        const timers = lexed(file)
          .literals.filter(({ text }) => /^(?:node:)?timers\/promises$/.test(text))
          .map(({ text, line }) => ({ path: file.path, line, message: `sleep: ${text}` }));
        return timers.concat(findPattern(file, lexed(file).code, SLEEP, 'sleep'));
      }),
};

/** A second or more, of a test, a hook, or a poll. What the product is told to wait for has names of its own. */
const WALL = /\btimeout:\s*\d[\d_]{3,}|(?<=\n)[ \t]*\}, \d[\d_]{3,}\);/g;

export const patientLimits: Check = {
  name: 'a time limit of a test goes through patiently',
  find: (files) =>
    files
      .filter((file) => isCode(file) && isTest(file))
      .flatMap((file) => findPattern(file, lexed(file).code, WALL, 'limit')),
};

export const lockFile: Check = {
  name: 'the lock file names no registry',
  find: (files) =>
    files
      .filter(({ path }) => posix.basename(path) === 'package-lock.json')
      .flatMap((file) => findPattern(file, file.text, /"resolved":\s*"http[^"]*/g, 'resolved address')),
};

const CODE_IN_MARKDOWN = /^(```|~~~)[\s\S]*?^\1|`[^`\n]*`/gm;
const LINK = /\]\(\s*<?([^)\s>]+)>?(?:\s+"[^"]*")?\s*\)|^[ \t]*\[[^\]]+\]:\s*<?(\S+?)>?\s*$/gm;

interface DocumentLink {
  /** A path or an address; empty for a link within the page. */
  target: string;
  /** The heading it leads to; empty for the top. */
  anchor: string;
  line: number;
}

export function linksOf(file: SourceFile): DocumentLink[] {
  const prose = file.text.replaceAll(CODE_IN_MARKDOWN, blank);
  return [...prose.matchAll(LINK)].map((match) => {
    const [target = '', anchor = ''] = (match[1] ?? match[2] ?? '').split('#');
    return { target, anchor, line: prose.slice(0, match.index).split('\n').length };
  });
}

/** The paths of the files and of every folder above them. */
function placesOf(files: readonly SourceFile[]): Set<string> {
  const places = new Set<string>(['.']);
  for (const { path } of files) {
    for (let place = path; place !== '.'; place = posix.dirname(place)) places.add(place);
  }
  return places;
}

export const docLinks: Check = {
  name: 'every link of a document to a file of the repository leads somewhere',
  find: (files) => {
    const places = placesOf(files);
    const isBroken = (file: SourceFile, target: string): boolean => {
      if (target === '' || /^[a-z][a-z+.-]*:/i.test(target)) return false;
      const base = target.startsWith('/') ? '.' : posix.dirname(file.path);
      const place = posix.join(base, decodeURI(target)).replace(/\/$/, '');
      return !places.has(place);
    };
    return files
      .filter(({ path }) => path.endsWith('.md'))
      .flatMap((file) =>
        linksOf(file)
          .filter(({ target }) => isBroken(file, target))
          .map(({ target, line }) => ({ path: file.path, line, message: `no such file: ${target}` })),
      );
  },
};
