/**
 * The check before a release finds each thing that is in the way, and nothing in a tree that is ready.
 */
import { expect, it } from 'vitest';
import { findFaults, type ReleaseState } from '../../scripts/release-check.mjs';

const CHANGELOG = [
  '# Changelog',
  '',
  '## [Unreleased]',
  '',
  '## [1.2.0] - 2026-01-31',
  '',
  '### Added',
  '',
  '- More.',
  '',
  '## [1.1.0] - 2025-12-01',
  '',
  '- Less.',
].join('\n');

const READY: ReleaseState = {
  status: '',
  tags: ['v1.1.0', ''],
  version: '1.2.0',
  changelog: CHANGELOG,
  lock: lockOf('1.2.0'),
  files: [
    'package.json',
    'README.md',
    'LICENSE',
    'CHANGELOG.md',
    'dist/index.js',
    'dist/index.d.ts',
    'dist/cli/main.js',
    'sql/migrations/0001_create_executions.sql',
    'sql/functions/settle.sql',
    'docs/tasks.md',
    'examples/hello.ts',
  ],
  failed: [],
};

function lockOf(version: string, resolved = 'embedded-binaries'): string {
  return JSON.stringify({ version, packages: { '': { version }, 'node_modules/a': { resolved } } });
}

const PLANTED: Record<string, { broken: Partial<ReleaseState>; found: RegExp }> = {
  'a file that is not committed': {
    broken: { status: ' M src/index.ts\n' },
    found: /not clean:\n M src\/index/,
  },
  'a version that was released': { broken: { tags: ['v1.2.0'] }, found: /v1\.2\.0 is released already/ },
  'entries that were not moved to the version': {
    broken: { changelog: CHANGELOG.replace('[Unreleased]\n', '[Unreleased]\n\n- New.\n') },
    found: /entries under \[Unreleased\]/,
  },
  'no place for what comes next': {
    broken: { changelog: CHANGELOG.replace('## [Unreleased]', '') },
    found: /no heading \[Unreleased\]/,
  },
  'a version without entries': {
    broken: { changelog: CHANGELOG.replace('### Added\n\n- More.\n', '') },
    found: /says nothing about 1\.2\.0/,
  },
  'a version without a date': {
    broken: { changelog: CHANGELOG.replace(' - 2026-01-31', '') },
    found: /1\.2\.0 in CHANGELOG\.md has no date/,
  },
  'a lock file of another version': {
    broken: { lock: lockOf('1.1.0') },
    found: /lock\.json is of version 1\.1\.0/,
  },
  'an address in the lock file': {
    broken: { lock: lockOf('1.2.0', 'https://example.org/a.tgz') },
    found: /names 1 addresses, such as https:\/\/example\.org\/a\.tgz/,
  },
  'a package without its migrations': {
    broken: { files: READY.files.filter((path) => !path.startsWith('sql/migrations/')) },
    found: /would lack sql\/migrations\//,
  },
  'a package with tests': {
    broken: { files: [...READY.files, 'dist/model/retry.test.js'] },
    found: /would hold dist\/model\/retry\.test\.js/,
  },
  'a package with sources': {
    broken: { files: [...READY.files, 'src/index.ts'] },
    found: /would hold src\/index\.ts/,
  },
  'a check that fails': { broken: { failed: ['npm run exports'] }, found: /^npm run exports fails\.$/ },
};

it('a tree that is ready has no faults', () => expect(findFaults(READY)).toEqual([]));

it.each(Object.entries(PLANTED))('finds %s, and only that', (_, { broken, found }) => {
  expect(findFaults({ ...READY, ...broken })).toEqual([expect.stringMatching(found)]);
});

it('finds a version that is missing from the changelog and the lock file', () => {
  const faults = findFaults({ ...READY, version: '1.3.0' });
  expect(faults).toEqual([
    expect.stringMatching(/no heading \[1\.3\.0\]/),
    expect.stringMatching(/lock\.json is of version 1\.2\.0/),
  ]);
});
