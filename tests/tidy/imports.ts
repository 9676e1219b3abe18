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

/**
 * The folders of the engine, from the bottom up: a capability imports executions and what is below them, and no other
 * capability.
 */
const UNDER = ['engine/kit', 'engine/database', 'model', 'contract'];
const CAPABILITY = ['engine/executions', ...UNDER];
const CAPABILITIES = [
  'steps',
  'families',
  'signals',
  'messages',
  'streams',
  'flows',
  'topics',
  'feed',
  'operator',
].map((name) => `engine/${name}`);

const MAY_IMPORT: Record<string, readonly string[] | typeof ANYTHING> = {
  contract: [],
  define: ['model', 'contract'],
  model: ['contract'],
  telemetry: ['contract'],
  'engine/database': ['model', 'contract'],
  'engine/kit': ['engine/database', 'model', 'contract'],
  'engine/executions': UNDER,
  'engine/steps': CAPABILITY,
  'engine/families': CAPABILITY,
  'engine/signals': CAPABILITY,
  'engine/messages': CAPABILITY,
  'engine/streams': CAPABILITY,
  'engine/flows': CAPABILITY,
  'engine/topics': CAPABILITY,
  'engine/feed': UNDER,
  'engine/operator': [...CAPABILITY, 'model/gates'],
  'engine/upkeep': [...CAPABILITY, ...CAPABILITIES],
  engine: [...CAPABILITY, ...CAPABILITIES, 'telemetry'],
  worker: ['telemetry', 'define', 'model', 'contract'],
  connect: ['engine', 'engine/kit', 'engine/upkeep', 'worker', 'define', 'contract'],
  protocol: ['connect', 'worker', 'contract'],
  adapters: ['contract'],
  embedded: ['contract'],
  cli: [
    'connect',
    'worker',
    'embedded',
    'define',
    'contract',
    'engine/database',
    'engine/operator',
    'engine/streams',
  ],
  testing: ANYTHING,
};

/** The parts passed to every operation come from all capabilities: imported as types, and only here. */
const KNOWS_TYPES_OF_ALL = 'engine/kit';

/** Folders that must load in a browser, or give the same answer everywhere: nothing but our own code. */
const PURE_FOLDERS = new Set(['contract', 'define', 'model']);
const TEST_PACKAGES = new Set(['vitest', 'fast-check']);
const BUILTINS = new Set(builtinModules);

interface Import {
  specifier: string;
  line: number;
  typeOnly: boolean;
}

function importsOf(file: SourceFile): Import[] {
  const { code, literals } = lexed(file);
  return literals
    .filter(({ start }) =>
      /\b(?:from|import|import\s*\(|require\s*\()\s*$/.test(code.slice(0, start).slice(-200)),
    )
    .map(({ text, line, start }) => ({ specifier: text, line, typeOnly: isTypeOnly(code.slice(0, start)) }));
}

function isTypeOnly(before: string): boolean {
  return (
    /\bimport\s+type\b[^;]*$/.test(before.slice(-2_000)) && !/\bimport\s+\{[^;]*$/.test(before.slice(-2_000))
  );
}

/** The innermost folder with a row that contains the path: '' for a file directly in src, undefined outside src. */
function folderOf(path: string): string | undefined {
  const parts = path.split('/');
  if (parts[0] !== 'src') return undefined;
  const inner = parts.slice(1, 3).join('/');
  if (parts.length > 3 && inner in MAY_IMPORT) return inner;
  return parts.length > 2 ? parts[1] : '';
}

function judge(file: SourceFile, { specifier, line, typeOnly }: Import): Finding | undefined {
  const refuse = (message: string): Finding => ({ path: file.path, line, message });
  const from = folderOf(file.path);
  if (from === undefined || !specifier.startsWith('.')) return undefined;
  const to = folderOf(posix.join(posix.dirname(file.path), specifier));
  if (to === undefined) return refuse(`imports ${specifier}, which is outside src`);
  if (to === from || file.path === 'src/index.ts') return undefined;
  const allowed = MAY_IMPORT[from];
  if (allowed === undefined) return refuse(`folder ${from || 'src'} has no row in the import table`);
  if (allowed === ANYTHING || allowed.includes(to)) return undefined;
  if (from === KNOWS_TYPES_OF_ALL && typeOnly && to.startsWith('engine/')) return undefined;
  return refuse(`${from} must not import ${to === '' ? 'the root of src' : to} (${specifier})`);
}

export const importDirection: Check = {
  name: 'imports follow the direction of the architecture',
  find: (files) =>
    files
      .filter((file) => isCode(file) && isUnder(file, 'src'))
      .flatMap((file) => importsOf(file).flatMap((found) => judge(file, found) ?? [])),
};

/** What a file of statements may use: more would let it decide something. */
const STATEMENTS_USE = ['contract', 'engine/database'];

function judgeStatements(file: SourceFile, { specifier, line, typeOnly }: Import): Finding | undefined {
  const target = posix.join(posix.dirname(file.path), specifier);
  if (typeOnly || specifier.endsWith('.sql.ts')) return undefined;
  if (specifier.startsWith('.') && STATEMENTS_USE.includes(folderOf(target) ?? '')) return undefined;
  return { path: file.path, line, message: `imports more than types of ${specifier}` };
}

export const plainStatements: Check = {
  name: 'files of statements use the database and the contract, take only types from elsewhere, and throw nothing',
  find: (files) =>
    files.flatMap((file) =>
      isUnder(file, 'src') && file.path.endsWith('.sql.ts')
        ? [
            ...importsOf(file).flatMap((found) => judgeStatements(file, found) ?? []),
            ...findPattern(file, lexed(file).code, /\bthrow\b/g, 'decides'),
          ]
        : [],
    ),
};

function isForeign(file: SourceFile, specifier: string): boolean {
  if (specifier.startsWith('.')) return false;
  const isBuiltin = specifier.startsWith('node:') || BUILTINS.has(specifier);
  return isBuiltin || !(isTest(file) && TEST_PACKAGES.has(specifier));
}

export const pureImports: Check = {
  name: 'contract, define and model import no Node module and no package',
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
  name: 'time comes from the database in the engine',
  find: (files) =>
    files
      .filter((file) => isCode(file) && isUnder(file, 'src/engine'))
      .flatMap((file) => findPattern(file, lexed(file).code, HOST_CLOCK, 'host clock')),
};
