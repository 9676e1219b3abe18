/**
 * How the tests run. Two projects, so that a test that needs no Postgres does not start one; the other talks to a real server,
 * which its global setup starts once for the whole run. Which files are in which lane is decided in tests/setup/lanes.ts.
 */
import { defineConfig } from 'vitest/config';
import { laneAsked, patternsOf } from './tests/setup/lanes.ts';
import { patiently } from './tests/setup/patience.ts';

const lane = laneAsked();

export default defineConfig({
  test: {
    pool: 'forks',
    maxWorkers: 3,
    fileParallelism: true,
    // Files of one process share what they import: importing takes a tenth of the time otherwise. None keeps state in a module but its own.
    isolate: false,
    testTimeout: patiently(60_000),
    hookTimeout: patiently(120_000),
    expect: { poll: { timeout: patiently(10_000) } },
    reporters: ['default', './scripts/count-reporter.mjs'],
    projects: [
      { extends: true, test: { name: 'unit', ...patternsOf(lane, 'unit') } },
      {
        extends: true,
        test: { name: 'database', ...patternsOf(lane, 'database'), globalSetup: ['tests/setup/global.ts'] },
      },
    ],
  },
});
