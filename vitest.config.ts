/**
 * Where the tests are and how they run. Tests beside the code are pure; the ones under tests/ talk to a real
 * Postgres, which the global setup starts once for the whole run.
 */
import { existsSync } from 'node:fs';
import { defineConfig } from 'vitest/config';

const GLOBAL_SETUP = 'tests/setup/global.ts';

export default defineConfig({
  test: {
    include: ['src/**/*.test.ts', 'tests/**/*.test.ts'],
    globalSetup: existsSync(new URL(GLOBAL_SETUP, import.meta.url)) ? [GLOBAL_SETUP] : [],
    pool: 'forks',
    maxWorkers: 3,
    fileParallelism: true,
    // Files of one process share what they import: importing takes a tenth of the time otherwise. None keeps state in a module but its own.
    isolate: false,
    testTimeout: 30_000,
    hookTimeout: 60_000,
    reporters: ['default', './scripts/count-reporter.mjs'],
  },
});
