/**
 * Files that are too long, contain functions that are too long, have a meaningless name or no header comment, and their
 * neighbours at exactly the limit.
 */
import { plant, type Plant } from './plant.ts';
import {
  FILE_LINES_MAX,
  FUNCTION_LINES_MAX,
  SQL_FUNCTION_LINES_MAX,
  fileHeader,
  fileLength,
  fileNames,
  functionLength,
  sqlFunctionLength,
} from './sizes.ts';

/** A function one line longer than allowed: its head, lines that try to confuse the scanner, its end. */
function long(head: string, end = '}'): string {
  return `${head}\n${body(FUNCTION_LINES_MAX - 1)}\n${end}`;
}

function short(head: string, end = '}'): string {
  return `${head}\n${body(FUNCTION_LINES_MAX - 2)}\n${end}`;
}

const CONFUSING = [
  "const a = '} // not a comment';",
  'const b = `${c({ d: `}` })} { ${"`"}`;',
  'const e = /[/}"]\\/{/.test(f) ? 1 / 2 / 3 : g;',
  '// } {',
  '/* { ` */ if (h) { i(); } else { j(); }',
  'const k = "\\"{";',
];

function body(lines: number): string {
  return Array.from({ length: lines }, (_, index) => CONFUSING[index % CONFUSING.length]).join('\n');
}

/** Ways to start a function. */
const HEADS = {
  declaration: 'export async function load(a: string): Promise<void> {',
  generator: 'function* pages() {',
  generic: 'function pick<T extends { id: string }>(a: T): Array<Map<string, T[]>> {',
  typeLiteral: 'function shape(a: number): { id: string; rows: string[] } | undefined {',
  predicate: 'function isX(value: unknown): value is X {',
  arrow: 'const arrow = (a: number) => {',
  typedArrow: "const arrow = async (a: () => void): Promise<Record<string, 'a' | 'b'>> => {",
  bareArrow: 'items.map(item => {',
  test: "it('does much', async () => {",
};

const LONG_HEADS = Object.fromEntries(
  Object.entries(HEADS).map(([name, head]) => [`src/model/${name}.ts`, `\n${long(head)}`]),
);
const SHORT_HEADS = Object.fromEntries(
  Object.entries(HEADS).map(([name, head]) => [`src/model/short-${name}.ts`, short(head)]),
);

const functionPlant = plant(
  functionLength,
  {
    ...LONG_HEADS,
    ...SHORT_HEADS,
    'src/engine/database/method.ts': `class Pool extends Base {\n  ${long('async close(): Promise<void> {')}\n}`,
    'src/engine/database/private.ts': `class Pool {\n  ${long('static async #close<T>(a: T) {')}\n}`,
    'src/engine/database/accessor.ts': `const o = {\n  ${long('get size() {')}\n};`,
    'src/engine/database/spread.ts': `const x = 1;\nexport function spread(\n  a: string,\n): string {\n${body(FUNCTION_LINES_MAX - 3)}\n}`,
    'tests/nested.test.ts': `describe('a', () => {\n${long("it('b', () => {", '});')}\n});`,
    'tests/grouped.test.ts': `describe.each([1, 2])('a %s', (n) => {\n${short("it('b', () => {", '});')}\n});`,
    'src/model/fine.ts': [
      long('class Wide {'),
      long('interface Shape {'),
      long('const table = {', '};'),
      long('if (ready) {'),
      long('for (const a of list) {'),
      long('switch (kind()) {'),
      long('switch (kind) { case kind(): {', '} }'),
    ].join('\n'),
  },
  [
    ...Object.keys(LONG_HEADS).map((path) => `${path}:2`),
    'src/engine/database/method.ts:2',
    'src/engine/database/private.ts:2',
    'src/engine/database/accessor.ts:2',
    'src/engine/database/spread.ts:2',
    'tests/nested.test.ts:2',
  ],
);

function sqlFunction(name: string, lines: number): string {
  const statements = Array.from({ length: lines - 2 }, () => '  perform 1;').join('\n');
  return `create or replace function ${name}() returns void language plpgsql as $body$\nbegin\n${statements}\nend\n$body$;\n`;
}

const header = (lines: number): string => `/**\n${' * x\n'.repeat(lines - 2)} */\n`;

export const planted: readonly Plant[] = [
  functionPlant,
  plant(
    fileLength,
    {
      'src/model/a.ts': 'x;\n'.repeat(FILE_LINES_MAX + 1),
      'sql/functions/b.sql': 'x;\n'.repeat(FILE_LINES_MAX + 1),
      'src/model/fine.ts': 'x;\n'.repeat(FILE_LINES_MAX),
      'sql/schema.sql': 'x;\n'.repeat(FILE_LINES_MAX + 1),
    },
    [`src/model/a.ts:${FILE_LINES_MAX + 1}`, `sql/functions/b.sql:${FILE_LINES_MAX + 1}`],
  ),
  plant(
    sqlFunctionLength,
    {
      'sql/functions/a.sql':
        sqlFunction('ff_fine', SQL_FUNCTION_LINES_MAX) + sqlFunction('ff_long', SQL_FUNCTION_LINES_MAX + 1),
    },
    [`sql/functions/a.sql:${SQL_FUNCTION_LINES_MAX + 3}`],
  ),
  plant(
    fileNames,
    {
      'src/engine/database/utils.ts': '',
      'src/engine/types.ts': '',
      'tests/helpers/clock.ts': '',
      'src/worker/lease-manager.ts': '',
      'src/model/misc.test.ts': '',
      'src/contract/event-types.ts': '',
      'src/contract/commonality.ts': '',
      'docs/internal.md': '',
    },
    [
      'src/engine/database/utils.ts:1',
      'src/engine/types.ts:1',
      'tests/helpers/clock.ts:1',
      'src/worker/lease-manager.ts:1',
      'src/model/misc.test.ts:1',
    ],
  ),
  plant(
    fileHeader,
    {
      'src/engine/database/a.ts': "import pg from 'pg';\n/** late */",
      'src/engine/database/b.ts': '/** Short. */\n',
      'src/engine/database/c.ts': header(15),
      'src/engine/database/fine.ts': header(14),
      'src/cli/main.ts': `#!/usr/bin/env node\n${header(3)}`,
      'src/cli/lines.ts': '// a\n// b\n// c\nx;',
      'tests/any.ts': 'x;',
    },
    ['src/engine/database/a.ts:1', 'src/engine/database/b.ts:1', 'src/engine/database/c.ts:1'],
  ),
];
