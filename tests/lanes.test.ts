/**
 * No test is run twice and none is forgotten: every test file belongs to one lane, and vitest finds it in that lane and in no other.
 */
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import { laneOf, LANES, patternsOf, type Lane } from './setup/lanes.ts';
import { patiently } from './setup/patience.ts';
import { readTree } from './tidy/tree.ts';

const run = promisify(execFile);
const ROOT = fileURLToPath(new URL('..', import.meta.url));
const VITEST = fileURLToPath(new URL('../node_modules/vitest/vitest.mjs', import.meta.url));

const testFiles = readTree(ROOT)
  .map(({ path }) => path)
  .filter((path) => path.endsWith('.test.ts'))
  .toSorted();

/** Once for every project that would run it. */
async function foundIn(lane: Lane): Promise<string[]> {
  const { stdout } = await run(process.execPath, [VITEST, 'list', '--filesOnly', '--json'], {
    cwd: ROOT,
    env: { ...process.env, FLOWFABRIC_TEST_LANE: lane },
    timeout: patiently(60_000),
  });
  const found = JSON.parse(stdout.slice(stdout.indexOf('['), stdout.lastIndexOf(']') + 1)) as {
    file: string;
  }[];
  return found.map(({ file }) => file.slice(ROOT.length)).toSorted();
}

describe('every test file', () => {
  it('has a lane', () => {
    expect(testFiles).toContain('tests/lanes.test.ts');
    expect(testFiles.filter((path) => laneOf(path) === undefined)).toEqual([]);
  });

  it.each(['fast', 'rest'] as const)('of the lane %s is found in it, once', async (lane) => {
    expect(await foundIn(lane)).toEqual(testFiles.filter((path) => laneOf(path) === lane));
  });
});

describe('the table of lanes', () => {
  it('names nothing that is not there', () => {
    const isThere = (entry: string) =>
      testFiles.some((path) => path === entry || path.startsWith(`${entry}/`));
    expect(Object.keys(LANES).filter((entry) => !isThere(entry))).toEqual([]);
  });

  it('gives a file the lane of the longest entry it lies in, and none to a stranger', () => {
    expect(laneOf('tests/races/feed/waking.test.ts')).toBe('fast');
    expect(laneOf('tests/races/feed/feed.test.ts')).toBe('rest');
    expect(laneOf('tests/racesome/a.test.ts')).toBeUndefined();
  });

  it('leaves out of a lane what lies inside it and belongs to the other', () => {
    const { include, exclude } = patternsOf('fast', 'database');
    expect(include).toContain('tests/races/**/*.test.ts');
    expect(exclude).toContain('tests/races/feed/feed.test.ts');
    expect(exclude).not.toContain('tests/chaos/**/*.test.ts');
    expect(patternsOf(undefined, 'database').exclude).toEqual([]);
  });
});
