/**
 * Finds functions and their lengths by matching braces in lexed source. TypeScript functions, methods and arrow
 * functions with a block body count from their first line to their closing brace; SQL functions count the lines between
 * their dollar quotes. The limits are defined by the checks.
 */
import { lexTypeScript, lineAt } from './lex.ts';

export interface FoundFunction {
  name: string;
  line: number;
  lines: number;
  /** The callback of a `describe`, which groups tests and runs none of them. */
  groupsTests: boolean;
}

const CONTROL_WORDS = new Set(['if', 'for', 'while', 'switch', 'catch', 'with', 'await', 'return']);
/** A word that can precede a brace, or a name and a brace, without starting a function body. */
const NOT_A_TYPE = new Set(
  (
    'return else try finally do extends implements class interface enum namespace default in of throw case ' +
    'export import from satisfies as const let type static yield await new declare module'
  ).split(' '),
);
const MODIFIERS = new Set(
  'function async static public private protected override get set export default readonly abstract'.split(
    ' ',
  ),
);
const CLOSERS: Record<string, string> = { ')': '(', ']': '[', '}': '{' };

/** Every function with a block body in a TypeScript source, in the order of their bodies. */
export function findFunctions(text: string): FoundFunction[] {
  const { code } = lexTypeScript(text);
  const pairs = matchBrackets(code);
  const found: FoundFunction[] = [];
  for (const [open, close] of pairs) {
    if (code[open] !== '{') continue;
    const head = functionHead(code, pairs, open);
    if (head === undefined) continue;
    const line = lineAt(code, head.start);
    const lines = lineAt(code, close) - line + 1;
    found.push({ name: head.name, line, lines, groupsTests: isDescribe(code, pairs, head.start) });
  }
  return found;
}

/** Maps each bracket to its partner, in both directions; an opener comes before its closer. */
function matchBrackets(code: string): Map<number, number> {
  const pairs = new Map<number, number>();
  const open: number[] = [];
  for (let at = 0; at < code.length; at += 1) {
    const char = code.charAt(at);
    if (char === '(' || char === '[' || char === '{') open.push(at);
    const opener = CLOSERS[char];
    const partner = opener === undefined ? undefined : open.at(-1);
    if (partner === undefined || code[partner] !== opener) continue;
    open.pop();
    pairs.set(partner, at);
    pairs.set(at, partner);
  }
  return new Map([...pairs].toSorted(([a], [b]) => a - b));
}

interface Head {
  start: number;
  name: string;
}

function functionHead(code: string, pairs: Map<number, number>, brace: number): Head | undefined {
  const before = lastSolid(code, brace);
  if (code.slice(before - 1, before + 1) === '=>') return arrowHead(code, pairs, before - 1);
  if (code[before] === ')') return namedHead(code, pairs, before);
  const parameters = parametersBeforeType(code, pairs, brace);
  return parameters === undefined ? undefined : namedHead(code, pairs, parameters);
}

function arrowHead(code: string, pairs: Map<number, number>, arrow: number): Head {
  const before = lastSolid(code, arrow);
  const typed = parametersBeforeType(code, pairs, arrow);
  const closer = typed ?? (code[before] === ')' ? before : undefined);
  const parameters = closer === undefined ? undefined : pairs.get(closer);
  const start = parameters ?? wordStart(code, before);
  const name = /([\w$#]+)\s*(?::[^=]*)?[=:]\s*(?:async\s*)?(?:<[^()]*>\s*)?$/.exec(code.slice(0, start))?.[1];
  return { start: withModifiers(code, start), name: name ?? 'arrow function' };
}

/** A function or method whose parameter list closes at `closer`; undefined for `if (…) {` and the like. */
function namedHead(code: string, pairs: Map<number, number>, closer: number): Head | undefined {
  const parameters = pairs.get(closer);
  if (parameters === undefined) return undefined;
  let before = lastSolid(code, parameters);
  if (code[before] === '>') before = lastSolid(code, genericStart(code, before));
  if (code[before] === ']') before = pairs.get(before) ?? before;
  const start = /[\w$#]/.test(code.charAt(before)) ? wordStart(code, before) : before;
  const name = code.slice(start, before + 1);
  if (CONTROL_WORDS.has(name)) return undefined;
  return { start: withModifiers(code, start), name: name === 'function' ? 'anonymous function' : name };
}

/** Walks back over a return type from `end`; returns the `)` of the parameter list if there is one. */
function parametersBeforeType(code: string, pairs: Map<number, number>, end: number): number | undefined {
  let at = lastSolid(code, end);
  let seen = false;
  while (at >= 0) {
    const char = code.charAt(at);
    if (char === ':' && seen) {
      const closer = lastSolid(code, at);
      return code[closer] === ')' ? closer : undefined;
    }
    if (/[\w$]/.test(char)) {
      const start = wordStart(code, at);
      if (NOT_A_TYPE.has(code.slice(start, at + 1))) return undefined;
      at = start;
    } else if (char in CLOSERS) {
      const opener = pairs.get(at);
      if (opener === undefined) return undefined;
      at = opener;
    } else if (char === '>' && code[at - 1] !== '=') {
      at = genericStart(code, at);
    } else if (!'.|&?"`'.includes(char)) {
      return undefined;
    }
    seen = true;
    at = lastSolid(code, at);
  }
  return undefined;
}

function genericStart(code: string, closer: number): number {
  let depth = 0;
  for (let at = closer; at >= 0; at -= 1) {
    if (code[at] === '>' && code[at - 1] !== '=') depth += 1;
    if (code[at] === '<') depth -= 1;
    if (depth === 0) return at;
  }
  return closer;
}

function withModifiers(code: string, from: number): number {
  let start = from;
  for (;;) {
    let before = lastSolid(code, start);
    if (code[before] === '*') before = lastSolid(code, before);
    if (before < 0 || !/\w/.test(code.charAt(before))) return start;
    const word = wordStart(code, before);
    if (!MODIFIERS.has(code.slice(word, before + 1))) return start;
    start = word;
  }
}

function isDescribe(code: string, pairs: Map<number, number>, start: number): boolean {
  const head = code.slice(0, start);
  const call = /\(\s*"[^"\n]*",\s*$|\(\s*`[^`]*`,\s*$/.exec(head);
  if (call === null) return false;
  let before = lastSolid(code, call.index);
  if (code[before] === ')') before = lastSolid(code, pairs.get(before) ?? before);
  return /(?:^|[^\w$.])describe(?:\.\w+)*$/.test(code.slice(0, before + 1));
}

function lastSolid(code: string, before: number): number {
  let at = before - 1;
  while (at >= 0 && /\s/.test(code.charAt(at))) at -= 1;
  return at;
}

function wordStart(code: string, end: number): number {
  let at = end;
  while (at > 0 && /[\w$#]/.test(code.charAt(at - 1))) at -= 1;
  return at;
}

const SQL_BODY = /\$(\w*)\$([\s\S]*?)\$\1\$/g;
const SQL_NAME = /\b(?:function|procedure)\s+([\w."]+)/gi;

/** Every dollar-quoted body in an SQL source, with the function it belongs to. */
export function findSqlFunctions(text: string): FoundFunction[] {
  const found: FoundFunction[] = [];
  for (const match of text.matchAll(SQL_BODY)) {
    const name = [...text.slice(0, match.index).matchAll(SQL_NAME)].at(-1)?.[1] ?? 'block';
    const lines = (match[2] ?? '').trim().split('\n').length;
    found.push({ name, line: lineAt(text, match.index), lines, groupsTests: false });
  }
  return found;
}
