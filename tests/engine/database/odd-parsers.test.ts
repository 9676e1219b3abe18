/**
 * An application may replace the value parsers of its driver, for the whole process or for its pool. What the engine
 * reads and returns stays the same. Each case runs in a process of its own, because parsers are replaced for all of it.
 */
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { TestDatabase } from '../../../src/testing/test-database.ts';
import { emptyDatabase } from '../../setup/database.ts';
import { patiently } from '../../setup/patience.ts';

const FIXTURE = fileURLToPath(new URL('../fixtures/odd-parsers-process.mjs', import.meta.url));
const LIMIT_MS = patiently(20_000);
const run = promisify(execFile);

let database: TestDatabase;

beforeAll(async () => {
  database = await emptyDatabase();
});
afterAll(() => database.drop());

it.each([
  [
    'url',
    "the engine's own connections and transactions of the application",
    [{ booked: [1, 2] }, { own: true }],
  ],
  ['pool', "the application's pool", ['none', 'none']],
])('a whole life is the same under other parsers, on %s: %s', async (through, _, [booked, own]) => {
  const options = JSON.stringify({ url: database.url, schema: `odd_${through}`, through });
  const { stdout } = await run(process.execPath, [FIXTURE, options], { timeout: LIMIT_MS });
  expect(JSON.parse(stdout)).toMatchObject({
    holding: 'suspended',
    waitpoints: ['approval'],
    events: expect.arrayContaining(['completion.success', 'lease.acquired', 'signal.delivered']),
    result: {
      input: { n: 1, list: [true, 'a'] },
      stepped: [1, null, { deep: ['x'] }],
      booked,
      own,
      told: [{ yes: [1] }],
    },
    frames: [[0, 255, 92, 120], { json: [1.5, true, null] }, { total: 3 }],
    summary: { total: 3 },
    listed: [['completed', {}, 0]],
    described: [50, expect.any(Number), 1],
    lanes: [['default', 0]],
    workers: [[['odd'], null, expect.any(Number)]],
  });
});
