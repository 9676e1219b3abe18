/**
 * The examples run as they stand, on the compiled package, by the name a user imports it under.
 */
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { emptyDatabase } from '../setup/database.ts';

const run = promisify(execFile);

test('the hello example retries once and greets', async () => {
  await using database = await emptyDatabase();
  const main = fileURLToPath(new URL('../../examples/hello/main.mjs', import.meta.url));
  const { stdout } = await run(process.execPath, [main], {
    env: { ...process.env, DATABASE_URL: database.url },
  });
  expect(stdout).toMatch(/^hello Ada$/m);
  expect(stdout.match(/composing, once/g)).toHaveLength(1);
  expect(stdout).toMatch(/attempt 0: failed \(the first try fails/);
  expect(stdout).toMatch(/attempt 1: success/);
});
