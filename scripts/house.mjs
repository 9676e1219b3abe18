#!/usr/bin/env node
/**
 * Counts the tree, so that two states of it can be compared: `npm run house`, or `node scripts/house.mjs --tree DIR` for another
 * checkout. A room is a folder of src with the files directly in it; tests do not count. Only what a program can tell is counted:
 *
 * - A row type is an interface or a type literal of two members or more, under src/engine, that has a snake_case member.
 * - A mapper is an object literal under src/engine that copies three fields or more of one object, each on its own
 *   (`name: row.field`), or a destructuring that renames two snake_case fields or more.
 * - An import against the direction is what the tree's own rule in tests/tidy/imports.ts reports.
 * - A prose line is a line of README or docs that is not in a code block, a table or a heading.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { parseSync } from 'oxc-parser';

const HERE = fileURLToPath(new URL('..', import.meta.url));
const PROSE_WIDTH = 120;
const LARGEST_SHOWN = 5;

const flag = process.argv.indexOf('--tree');
const tree = resolve(flag === -1 ? HERE : process.argv[flag + 1]);

function filesUnder(folder, ending) {
  if (!existsSync(join(tree, folder))) return [];
  return readdirSync(join(tree, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name.endsWith(ending))
    .map((entry) => join(entry.parentPath, entry.name).slice(tree.length + 1))
    .toSorted();
}

const read = (path) => readFileSync(join(tree, path), 'utf8');
const isTest = (path) => path.endsWith('.test.ts');
const parsed = new Map();
function parse(path) {
  if (!parsed.has(path)) parsed.set(path, parseSync(path, read(path)));
  return parsed.get(path);
}

function commentsOf(path, text) {
  if (path.endsWith('.ts')) return parse(path).comments.map(({ start, end }) => [start, end]);
  return [...text.matchAll(/--[^\n]*|\/\*[\s\S]*?\*\//g)].map((found) => [
    found.index,
    found.index + found[0].length,
  ]);
}

function countLines(path) {
  const text = read(path).replace(/\n$/, '');
  let bare = text;
  for (const [start, end] of commentsOf(path, text))
    bare = bare.slice(0, start) + bare.slice(start, end).replaceAll(/[^\n]/g, ' ') + bare.slice(end);
  const bareLines = bare.split('\n');
  const lines = text.split('\n');
  const blank = lines.filter((line) => line.trim() === '').length;
  const code = bareLines.filter((line) => line.trim() !== '').length;
  return { files: 1, lines: lines.length, code, comment: lines.length - blank - code, blank };
}

function sumOf(counts) {
  const sum = { files: 0, lines: 0, code: 0, comment: 0, blank: 0 };
  for (const count of counts) for (const key of Object.keys(sum)) sum[key] += count[key];
  return sum;
}

/** Every node with those above it. */
function* walk(node, above = []) {
  if (node === null || typeof node !== 'object') return;
  const isNode = typeof node.type === 'string';
  if (isNode) yield [node, above];
  const next = isNode ? [...above, node] : above;
  for (const value of Object.values(node)) yield* walk(value, next);
}

const isSnake = (name) => typeof name === 'string' && /^[a-z]+(?:_[a-z0-9]+)+$/.test(name);

function isRowType(node, above) {
  if (node.type !== 'TSInterfaceBody' && node.type !== 'TSTypeLiteral') return false;
  if (above.some(({ type }) => type === 'TSPropertySignature')) return false;
  const members = (node.body ?? node.members).filter(({ type }) => type === 'TSPropertySignature');
  return members.length > 1 && members.some(({ key }) => isSnake(key?.name));
}

function isMapper(node) {
  if (node.type === 'ObjectPattern')
    return (
      node.properties.filter(({ key, value }) => isSnake(key?.name) && value?.name !== key.name).length > 1
    );
  if (node.type !== 'ObjectExpression') return false;
  const copied = new Map();
  for (const { value } of node.properties) {
    const field = /^TS(?:NonNull|As)Expression$/.test(value?.type) ? value.expression : value;
    if (field?.type !== 'MemberExpression' || field.computed || field.object.type !== 'Identifier') continue;
    copied.set(field.object.name, (copied.get(field.object.name) ?? 0) + 1);
  }
  return Math.max(0, ...copied.values()) > 2;
}

/** Names that a module exports, followed through what it takes over from others. */
function exportsOf(path, seen = new Set()) {
  if (seen.has(path)) return new Set();
  seen.add(path);
  const names = new Set();
  const from = ({ source }) => join(dirname(path), source.value);
  for (const node of parse(path).program.body) {
    if (node.type === 'ExportAllDeclaration') for (const name of exportsOf(from(node), seen)) names.add(name);
    if (node.type !== 'ExportNamedDeclaration') continue;
    for (const { exported } of node.specifiers) names.add(exported.name);
    for (const { id } of node.declaration?.declarations ?? [node.declaration].filter(Boolean))
      names.add(id.name);
  }
  return names;
}

function publicNames() {
  const entries = Object.entries(JSON.parse(read('package.json')).exports).filter(([, entry]) => entry.types);
  return entries.map(([subpath, { types }]) => {
    const names = exportsOf(types.replace('./dist/', 'src/').replace(/\.d\.ts$/, '.ts'));
    return [subpath, names.size];
  });
}

/** The rule is TypeScript, which Node 20 cannot load: it is compiled to a folder that goes away again. */
async function importsAgainst() {
  const out = mkdtempSync(join(HERE, 'node_modules', '.house-'));
  try {
    const options = [
      '--ignoreConfig',
      '--noCheck',
      '--target',
      'es2023',
      '--module',
      'nodenext',
      '--types',
      '',
    ];
    const rule = join(tree, 'tests/tidy/imports.ts');
    const compiler = join(HERE, 'node_modules/typescript/bin/tsc');
    const args = [compiler, rule, '--outDir', out, '--rewriteRelativeImportExtensions', ...options];
    spawnSync(process.execPath, args, { cwd: HERE, encoding: 'utf8' });
    const load = (name) => import(pathToFileURL(join(out, `${name}.js`)).href);
    const [{ importDirection }, { readTree }] = [await load('imports'), await load('tree')];
    return importDirection.find(readTree(tree)).length;
  } finally {
    rmSync(out, { recursive: true, force: true });
  }
}

function proseLines(path) {
  const prose = read(path).replaceAll(/^(```|~~~)[\s\S]*?^\1/gm, (block) => block.replaceAll(/[^\n]/g, ''));
  return prose
    .split('\n')
    .map((line, index) => ({ at: `${path}:${index + 1}`, length: line.length, line }))
    .filter(({ line }) => !/^\s*(?:\||#)/.test(line));
}

function table(heads, rows) {
  const cells = [heads, ...rows.map((row) => row.map(String))];
  const widths = heads.map((_, column) => Math.max(...cells.map((row) => row[column].length)));
  const pad = (cell, column) => (column === 0 ? cell.padEnd(widths[0]) : cell.padStart(widths[column]));
  return cells.map((row) => row.map(pad).join('  ').trimEnd()).join('\n');
}

const HEADS = ['room', 'files', 'lines', 'code', 'comment', 'blank'];
const asRow = (name, count) => [name, count.files, count.lines, count.code, count.comment, count.blank];

const sources = filesUnder('src', '.ts').filter((path) => !isTest(path));
const roomNames = [...new Set(sources.map((path) => dirname(path)))];
const counted = roomNames.map((room) => [
  room,
  sumOf(sources.filter((path) => dirname(path) === room).map(countLines)),
]);
const others = [
  ['source', sources],
  ['unit tests beside the code', filesUnder('src', '.test.ts')],
  ['sql/functions', filesUnder('sql/functions', '.sql')],
  ['sql/migrations', filesUnder('sql/migrations', '.sql')],
  ['tests', filesUnder('tests', '.ts')],
].map(([name, paths]) => asRow(name, sumOf(paths.map(countLines))));
console.log(table(HEADS, [...counted.map(([room, count]) => asRow(room, count)), ...others]));

const largest = counted.toSorted(([, a], [, b]) => b.files - a.files).slice(0, LARGEST_SHOWN);
console.log(
  `\nlargest rooms, in files: ${largest.map(([room, { files }]) => `${room} ${files}`).join(', ')}`,
);

const nodes = sources
  .filter((path) => path.startsWith('src/engine/') || path.startsWith('src/store/'))
  .flatMap((path) => [...walk(parse(path).program)]);
console.log(`row types: ${nodes.filter(([node, above]) => isRowType(node, above)).length}`);
console.log(`mappers: ${nodes.filter(([node]) => isMapper(node)).length}`);
console.log(
  `public names: ${publicNames()
    .map(([subpath, size]) => `${subpath} ${size}`)
    .join(', ')}`,
);
console.log(`imports against the direction: ${await importsAgainst()}`);

const pages = [
  ...['README.md', 'ARCHITECTURE.md', 'CONTRIBUTING.md'].filter((path) => existsSync(join(tree, path))),
  ...filesUnder('docs', '.md'),
];
const prose = pages.flatMap(proseLines).toSorted((a, b) => b.length - a.length);
console.log(`longest prose line: ${prose[0].length} (${prose[0].at})`);
console.log(`prose lines over ${PROSE_WIDTH}: ${prose.filter(({ length }) => length > PROSE_WIDTH).length}`);
