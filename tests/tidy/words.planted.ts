/**
 * Comments, tests, documents and lock files that break the rules about words, and ones that only come close. Words that
 * a check searches for in the whole tree are assembled from two halves, so that this file does not report itself.
 */
import { plant, type Plant } from './plant.ts';
import {
  docLinks,
  lockFile,
  noLeftovers,
  noMachinePaths,
  noSkippedTests,
  noSleep,
  noTickets,
  patientLimits,
} from './words.ts';

const HOME = ['/ho', 'me'].join('');
const WORK = ['/wo', 'rk'].join('');
const REGISTRY = ['regis', 'try'].join('');

export const planted: readonly Plant[] = [
  plant(
    noTickets,
    {
      'src/engine/database/a.ts': '// see #123\n/*\n * as decided in ABC-42\n */\nx; // Phase 2',
      'sql/functions/b.sql':
        "-- RFC-024 says so\n-- https://example.org/a/b/issues/7\n-- design §4\nselect '#1';",
      'src/engine/database/fine.ts': [
        '// UTF-8, SHA-256 and ISO-8601',
        '// merge patch, RFC 7396 §2',
        '// two-phase; top-10; issue 2 statements; {fp:3}',
        "const text = 'see #123';",
      ].join('\n'),
    },
    [
      'src/engine/database/a.ts:1',
      'src/engine/database/a.ts:3',
      'src/engine/database/a.ts:5',
      'sql/functions/b.sql:1',
      'sql/functions/b.sql:2',
      'sql/functions/b.sql:3',
    ],
  ),
  plant(
    noLeftovers,
    {
      'src/engine/database/a.ts': '// TODO: later\n/** FIXME */',
      'sql/functions/b.sql': 'select 1; -- XXX',
      'src/engine/database/fine.ts': "const word = 'TODO'; // a todo list",
    },
    ['src/engine/database/a.ts:1', 'src/engine/database/a.ts:2', 'sql/functions/b.sql:1'],
  ),
  plant(
    noMachinePaths,
    {
      'src/engine/database/a.ts': `const a = '${HOME}/someone/x';`,
      'docs/b.md': `Run it in\n\`${WORK}/main\`.`,
      'package-lock.json': `{ "a": "https://${REGISTRY}.example.org/a" }`,
      'docs/fine.md': `https://example.org${HOME}/page and ./src${HOME}/x and /usr/lib/postgresql/15/bin and ${HOME}/linuxbrew/x`,
    },
    ['src/engine/database/a.ts:1', 'docs/b.md:2', 'package-lock.json:1'],
  ),
  plant(
    noSkippedTests,
    {
      'tests/a.test.ts': "it.skip('a', f);\ndescribe.only('b', f);\ntest.concurrent.todo('c');\nxit('d', f);",
      'src/model/b.test.ts': "it\n  .only('a', f);",
      'tests/fine.test.ts':
        "it.skipIf(x)('a', f);\nlist.skip(1); // it.only\nconst s = 'it.only(';\nprofit(1);",
    },
    [
      'tests/a.test.ts:1',
      'tests/a.test.ts:2',
      'tests/a.test.ts:3',
      'tests/a.test.ts:4',
      'src/model/b.test.ts:1',
    ],
  ),
  plant(
    noSleep,
    {
      'tests/a.test.ts': 'await sleep(10);\nawait clock.delay(1);',
      'tests/b.test.ts': 'await new Promise((resolve) => setTimeout(resolve, 10));',
      'tests/c.test.ts':
        'await new Promise((go) => { setTimeout(go, 10); });\nsetTimeout(() => resolve(1), 5);',
      'tests/d.test.ts': "import { setTimeout as wait } from 'node:timers/promises';",
      'tests/fine.test.ts': [
        "const limit = setTimeout(() => reject(new Error('late')), 1000);",
        'await expect.poll(() => state()).toBe(1);',
        "const s = 'await sleep(1)';",
        "await ctx.sleep('nap', '1h');",
      ].join('\n'),
      'src/testing/fine.ts': 'await sleep(10);',
    },
    [
      'tests/a.test.ts:1',
      'tests/a.test.ts:2',
      'tests/b.test.ts:1',
      'tests/c.test.ts:1',
      'tests/c.test.ts:2',
      'tests/d.test.ts:1',
    ],
  ),
  plant(
    patientLimits,
    {
      'tests/a.test.ts':
        "test('a', { timeout: 60_000 }, async () => {\n});\nbeforeAll(async () => {\n}, 5000);",
      'tests/fine.test.ts': [
        'const LIMIT = { timeout: patiently(60_000) };',
        "task('a', { timeout: '90s', attemptTimeout: 60_000 });",
        "task('a', { timeout: 500 });",
      ].join('\n'),
      'src/testing/fine.ts': 'wait({ timeout: 60_000 });',
    },
    ['tests/a.test.ts:1', 'tests/a.test.ts:4'],
  ),
  plant(
    lockFile,
    {
      'package-lock.json':
        '{\n  "resolved": "https://example.org/a.tgz",\n  "resolved": "embedded-binaries"\n}',
      'docs/fine.json': '{ "resolved": "https://example.org/a.tgz" }',
    },
    ['package-lock.json:2'],
  ),
  plant(
    docLinks,
    {
      'README.md': [
        '[a](docs/a.md) [b](docs/missing.md) [c](https://example.org/x) [d](#top)',
        '![e](docs/none.png "title")',
        '`[f](nowhere.md)`',
        '```md',
        '[g](nowhere.md)',
        '```',
        '[h]: ./docs/gone.md',
        '[i](docs) [j](docs/) [k](docs/a.md#part) [l](/docs/a.md)',
      ].join('\n'),
      'docs/a.md': '[up](../README.md)\n\n[down](../README.md/x)',
    },
    ['README.md:1', 'README.md:2', 'README.md:7', 'docs/a.md:3'],
  ),
];
