/**
 * The checker itself: it finds nothing wrong with a sound history and every fault of a bad one. Bad histories are views
 * over the true log, which no test here writes to.
 */
import { expect, test } from 'vitest';
import { newKind, SOON, useCrew, uuidOf } from '../worker/crew.ts';
import { faultsOf } from './checker.ts';

const crew = useCrew();

const LATER = 1_000_000_000;
const OTHER_LEASE = '00000000-0000-4000-8000-000000000000';
const TRUE_LOG = 'SELECT * FROM flowfabric.ff_event';

/** The log followed by another copy of some events with these columns changed. */
function withCopy(changes: object, where: string): string {
  const changed = JSON.stringify({ ev_id: LATER, ...changes });
  return `${TRUE_LOG} UNION ALL
    SELECT (jsonb_populate_record(e, '${changed}')).* FROM flowfabric.ff_event e WHERE ${where}`;
}

const histories: [string, string, string[]][] = [
  ['a sound history', TRUE_LOG, []],
  [
    'a second completion',
    withCopy({}, `family = 'completion'`),
    [
      'does not have exactly one completion event',
      'has a lease that did not end exactly once',
      'changed after it had ended',
    ],
  ],
  [
    'a grant that never ended, with an epoch used before',
    withCopy({ lease_id: OTHER_LEASE }, `event_type = 'acquired'`),
    [
      'was granted a lease whose epoch is not higher than the one before',
      'has a lease that did not end exactly once',
      'was granted a lease while it had another one',
      'changed after it had ended',
    ],
  ],
  [
    'a takeover without a previous owner',
    withCopy({ lease_id: OTHER_LEASE, lease_epoch: 9, event_type: 'reclaimed' }, `event_type = 'acquired'`),
    [
      'has a lease that did not end exactly once',
      'was granted a lease while it had another one',
      'changed after it had ended',
      'was reclaimed without naming both owners, or not after a lost lease',
    ],
  ],
  [
    'a lost completion',
    `${TRUE_LOG} WHERE family <> 'completion'`,
    [
      'does not have exactly one completion event',
      'does not have exactly one row that it ended in and that matches its state and its event',
      'has a lease that did not end exactly once',
    ],
  ],
];

test.each(histories)('%s', async (_, history, faults) => {
  const engine = await crew.connect();
  const kind = newKind();
  const worker = crew.work(engine, { handlers: { [kind]: () => undefined } });
  const { executionId } = await engine.executions.submit({ kind });
  await expect.poll(() => worker.stats.completed, SOON).toBe(1);
  await crew.database.query(`
    DROP SCHEMA IF EXISTS planted CASCADE;
    CREATE SCHEMA planted;
    CREATE VIEW planted.ff_event AS ${history}`);
  expect(await faultsOf(crew.database.url, kind, 'planted,flowfabric')).toEqual(
    faults.map((fault) => `${uuidOf(executionId)} ${fault}`),
  );
});

test('work that has not ended', async () => {
  const engine = await crew.connect();
  const kind = newKind();
  await engine.executions.submit({ kind });
  expect(await faultsOf(crew.database.url, kind)).toContainEqual(expect.stringContaining('has not ended'));
});
