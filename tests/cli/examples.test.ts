/**
 * The examples run as they stand, on the compiled package, by the name a user imports it under.
 */
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { emptyDatabase } from '../setup/database.ts';

const run = promisify(execFile);

async function example(name: string): Promise<string> {
  await using database = await emptyDatabase();
  const main = fileURLToPath(new URL(`../../examples/${name}/main.mjs`, import.meta.url));
  const { stdout } = await run(process.execPath, [main], {
    env: { ...process.env, DATABASE_URL: database.url },
  });
  return stdout;
}

test('the hello example retries once and greets', async () => {
  const stdout = await example('hello');
  expect(stdout).toMatch(/^hello Ada$/m);
  expect(stdout.match(/composing, once/g)).toHaveLength(1);
  expect(stdout).toMatch(/attempt 0: failed \(the first try fails/);
  expect(stdout).toMatch(/attempt 1: success/);
});

test('the approval example waits for two people, and the same one twice is not two', async () => {
  const stdout = await example('approval');
  expect(stdout.trimEnd().split('\n')).toEqual([
    'order is suspended and waits at manager (approval)',
    'ada, the first time: accepted, counted',
    'ada, the second time: accepted, not_counted',
    'grace: accepted, resumed',
    'a telescope, approved by ada and grace',
  ]);
});

test('the streaming example has every word once, though its agent is killed and its reader was away', async () => {
  const stdout = await example('streaming');
  expect(stdout.trimEnd().split('\n')).toEqual([
    'the reader leaves in the middle of the second sentence',
    'the agent was killed, and another one takes over',
    'closed: lease_expired',
    'the reader is back and keeps: Streams outlive their writer. ',
    'closed: attempt_success',
    'Streams outlive their writer. They outlive their reader too. That is the point. ',
    '{ sentences: 3 }',
  ]);
});

test('the race example takes the first answer and stops the others while they run', async () => {
  const stdout = await example('race');
  expect(stdout.trimEnd().split('\n')).toEqual([
    'the flow is completed',
    'The answer? 42, says quick',
    'stopped while they ran: slow, slower',
    'publish: completed',
    'quick: completed',
    'slow: cancelled (sibling_quorum_satisfied)',
    'slower: cancelled (sibling_quorum_satisfied)',
  ]);
});
