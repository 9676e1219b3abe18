/**
 * The examples as users have them: taken out of the packed package, compiled as strict programs in a project of their own, and run. They
 * use only syntax that Node can strip, so Node runs them as they are where it can. All share one database, as in a folder of a user's.
 */
import { cp, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { TestDatabase } from '../../src/testing/index.ts';
import { emptyDatabase } from '../setup/database.ts';
import { installPacked, type Consumer } from './consumer.ts';

const LIBRARIES = ['typescript', '@types/node', '@types/pg'];
const STRIPPABLE = { module: 'nodenext', outDir: 'out', rootDir: '.', erasableSyntaxOnly: true };

const PRINTED: Record<string, string[]> = {
  hello: ['composing, once', 'hello Ada'],
  approval: [
    'order is suspended and waits at manager (approval)',
    'ada, the first time: accepted, counted',
    'ada, the second time: accepted, not_counted',
    'grace: accepted, resumed',
    'a telescope, approved by ada and grace',
  ],
  entity: [
    'a deposit of 10: 10',
    'the same deposit, sent again: 10',
    'four more and the end: 20',
    'closed with 20',
    'runs before the last: 3 messages',
  ],
  streaming: [
    'the reader leaves in the middle of the second sentence',
    'the agent was killed, and another one takes over',
    'closed: lease_expired',
    'the reader is back and keeps: Streams outlive their writer. ',
    'closed: attempt_success',
    'Streams outlive their writer. They outlive their reader too. That is the point. ',
    '{ sentences: 3 }',
  ],
  race: [
    'The answer? 42, says quick',
    'the flow is completed',
    'stopped while they ran: slow, slower',
    'publish: completed',
    'quick: completed',
    'slow: cancelled (sibling_quorum_satisfied)',
    'slower: cancelled (sibling_quorum_satisfied)',
  ],
  transaction: ['submitted: order-1', 'delivered: order-1', "[ { id: 'order-1', state: 'delivered' } ]"],
  events: [
    'the handler failed, and is given the same events again',
    'in the ledger: success, success, success',
  ],
};

let consumer: Consumer;
let files: string[];
let database: TestDatabase;
beforeAll(async () => {
  database = await emptyDatabase();
  consumer = await installPacked(LIBRARIES);
  const shipped = join(consumer.folder, 'node_modules/flowfabric/examples');
  await cp(shipped, join(consumer.folder, 'examples'), { recursive: true });
  files = (await readdir(shipped)).filter((name) => name.endsWith('.ts'));
});
afterAll(async () => {
  await consumer?.remove();
  await database?.[Symbol.asyncDispose]();
});

test('every example is run below', () => {
  expect(files.toSorted()).toEqual(
    Object.keys(PRINTED)
      .map((name) => `${name}.ts`)
      .toSorted(),
  );
});

test('the examples compile as strict programs', async () => {
  const sources = files.map((name) => `examples/${name}`);
  expect(await consumer.compile(STRIPPABLE, sources)).toBe('');
});

const TWICE = Object.entries(PRINTED).flatMap(([name, lines]) => [
  { name, lines, time: 'first' },
  { name, lines, time: 'second' },
]);

test.each(TWICE)('the example $name prints what it promises, the $time time', async ({ name, lines }) => {
  const printed = await consumer.run(`out/examples/${name}.js`, { DATABASE_URL: database.url });
  expect(printed.split('\n')).toEqual([...lines, '']);
});
