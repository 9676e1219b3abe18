/**
 * Which folder of src may import which, and which folders must stay free of Node, packages, clocks and chance.
 * The table below is the architecture; a new folder gets a row before it gets a file.
 */
import { builtinModules } from 'node:module';
import { posix } from 'node:path';
import {
  findPattern,
  isCode,
  isTest,
  isUnder,
  lexed,
  type Check,
  type Finding,
  type SourceFile,
} from './tree.ts';

const ANYTHING = 'anything';

const MAY_IMPORT: Record<string, readonly string[] | typeof ANYTHING> = {
  contract: [],
  model: ['contract'],
  store: ['model', 'contract'],
  engine: ['subscriptions', 'store', 'model', 'contract'],
  reconcilers: ['engine', 'store', 'model', 'contract'],
  subscriptions: ['store', 'model', 'contract'],
  worker: ['model', 'contract'],
  client: ['engine', 'reconcilers', 'contract'],
  adapters: ['contract'],
  embedded: ['contract'],
  cli: ['client', 'engine', 'worker', 'embedded', 'contract', 'reconcilers', 'store'],
  testing: ANYTHING,
};

/** Folders that must load in a browser, or give the same answer everywhere: nothing but our own code. */
const PURE_FOLDERS = new Set(['contract', 'model']);
const TEST_PACKAGES = new Set(['vitest', 'fast-check']);
const BUILTINS = new Set(builtinModules);

interface Import {
  specifier: string;
  line: number;
}

function importsOf(file: SourceFile): Import[] {
  const { code, literals } = lexed(file);
  return literals
    .filter(({ start }) =>
      /\b(?:from|import|import\s*\(|require\s*\()\s*$/.test(code.slice(0, start).slice(-200)),
    )
    .map(({ text, line }) => ({ specifier: text, line }));
}

/** The folder of src a path lies in: '' for a file directly in src, undefined outside src. */
function folderOf(path: string): string | undefined {
  const parts = path.split('/');
  if (parts[0] !== 'src') return undefined;
  return parts.length > 2 ? parts[1] : '';
}

function judge(file: SourceFile, { specifier, line }: Import): Finding | undefined {
  const refuse = (message: string): Finding => ({ path: file.path, line, message });
  const from = folderOf(file.path);
  if (from === undefined || !specifier.startsWith('.')) return undefined;
  const to = folderOf(posix.join(posix.dirname(file.path), specifier));
  if (to === undefined) return refuse(`imports ${specifier}, which is outside src`);
  if (to === from || file.path === 'src/index.ts') return undefined;
  const allowed = MAY_IMPORT[from];
  if (allowed === undefined) return refuse(`folder ${from || 'src'} has no row in the import table`);
  if (allowed === ANYTHING || allowed.includes(to)) return undefined;
  return refuse(`${from} must not import ${to === '' ? 'the root of src' : to} (${specifier})`);
}

export const importDirection: Check = {
  name: 'imports follow the direction of the architecture',
  find: (files) =>
    files
      .filter((file) => isCode(file) && isUnder(file, 'src'))
      .flatMap((file) => importsOf(file).flatMap((found) => judge(file, found) ?? [])),
};

function isForeign(file: SourceFile, specifier: string): boolean {
  if (specifier.startsWith('.')) return false;
  const isBuiltin = specifier.startsWith('node:') || BUILTINS.has(specifier);
  return isBuiltin || !(isTest(file) && TEST_PACKAGES.has(specifier));
}

export const pureImports: Check = {
  name: 'contract and model import no Node module and no package',
  find: (files) =>
    files
      .filter((file) => isCode(file) && PURE_FOLDERS.has(folderOf(file.path) ?? ''))
      .flatMap((file) =>
        importsOf(file)
          .filter(({ specifier }) => isForeign(file, specifier))
          .map(({ specifier, line }) => ({ path: file.path, line, message: `imports ${specifier}` })),
      ),
};

const CLOCK_OR_CHANCE =
  /\bDate\.now\b|\bnew\s+Date\b|\bMath\.random\b|\bperformance\.now\b|\bset(?:Timeout|Interval|Immediate)\b|\brandomUUID\b|\bgetRandomValues\b/g;

export const pureModel: Check = {
  name: 'model reads no clock, draws no random number and waits for nothing',
  find: (files) =>
    files
      .filter((file) => isCode(file) && isUnder(file, 'src/model'))
      .flatMap((file) => findPattern(file, lexed(file).code, CLOCK_OR_CHANCE, 'not pure')),
};

/** `new Date()` reads the clock; `new Date(value)` only converts. */
const HOST_CLOCK = /\bDate\.now\b|\bnew\s+Date\s*\(\s*\)|\bnew\s+Date\b(?!\s*\()/g;

export const databaseClock: Check = {
  name: 'time comes from the database in store, engine, reconcilers and subscriptions',
  find: (files) =>
    files
      .filter(
        (file) =>
          isCode(file) && isUnder(file, 'src/store', 'src/engine', 'src/reconcilers', 'src/subscriptions'),
      )
      .flatMap((file) => findPattern(file, lexed(file).code, HOST_CLOCK, 'host clock')),
};
