/**
 * Partitions can be spread over several servers only if every row says which one it belongs to. This is the list of all
 * tables, held against the catalogue: the partition is in the key, or covered by it, or there is a reason why not. A
 * new table fails here until it is listed.
 */
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { TestDatabase } from '../../../src/testing/test-database.ts';
import { plainDatabase } from '../../setup/database.ts';

/** The partition is a column of every unique key, after the execution. */
const IN_THE_KEY = [
  'ff_attempt_history',
  'ff_idempotency',
  'ff_pending_cancel_groups',
  'ff_published',
  'ff_setback',
  'ff_topic',
];

/** A uuid names one execution or flow in all partitions, so the key is complete without it: every unique index includes it. */
const COVERED = [
  'ff_cancel_backlog',
  'ff_child_wait',
  'ff_edge',
  'ff_edge_group',
  'ff_end_order',
  'ff_execution',
  'ff_family_place',
  'ff_flow',
  'ff_flow_job',
  'ff_flow_progress',
  'ff_frame',
  'ff_generation',
  'ff_key',
  'ff_mailbox',
  'ff_member',
  'ff_message',
  'ff_payload',
  'ff_progress',
  'ff_run',
  'ff_signal',
  'ff_step',
  'ff_stream_meta',
  'ff_stream_summary',
  'ff_suspension',
  'ff_tag',
  'ff_timer',
  'ff_topic_seen',
  'ff_topic_wait',
  'ff_waitpoint',
];

const OF_A_SERVER = 'a statement about all work on one server: each server has its own';
const REASONS: Record<string, string> = {
  ff_consumer: 'a place in the log of one server',
  ff_event_pack: 'the log of one server: its order is that of the commits there, over all partitions',
  ff_event_run: 'positions in the log of one server',
  ff_former_route: 'of routes, for the log of one server',
  ff_function_set: OF_A_SERVER,
  ff_grant: 'a claim call of one server, whose executions may be of any partition',
  ff_lane: OF_A_SERVER,
  ff_migration: OF_A_SERVER,
  ff_policy: 'numbers for the executions of one server',
  ff_ready:
    'a queue in the order of claims, without a key; each row has its partition and can be written anew',
  ff_reconciler: OF_A_SERVER,
  ff_route: 'numbers of the queue of one server',
  ff_sequencer: 'whoever stamps the log of one server locks it',
  ff_setting: OF_A_SERVER,
  ff_signing_key: 'the same keys on every server',
  ff_transition: 'the model, the same on every server',
  ff_worker: 'workers serve all partitions of a server',
};

/**
 * Of all unique indexes of a table the one that keeps the partition worst decides. Slots of the event log are tables of
 * their own in the catalogue, and left out.
 */
const PLACES = `
  SELECT c.relname AS name, a.attnotnull AS required, a.atttypid::regtype::text AS type,
         CASE WHEN bool_and(p.place < i.indnkeyatts) THEN 'key' WHEN bool_and(p.place IS NOT NULL) THEN 'covered' ELSE 'outside' END
           AS place
  FROM pg_class c
  LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'partition_key'
  LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisunique
  CROSS JOIN LATERAL (SELECT array_position(i.indkey::int2[], a.attnum) AS place) p
  WHERE c.relnamespace = $1::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
  GROUP BY 1, 2, 3 ORDER BY 1`;

interface Place {
  name: string;
  place: 'key' | 'covered' | 'outside';
  required: boolean | null;
  type: string | null;
}

let database: TestDatabase;
let tables: Place[];

beforeAll(async () => {
  database = await plainDatabase();
  tables = (await database.query<Place>(PLACES, [database.schema])).rows;
});
afterAll(() => database?.drop());

const named = (place: Place['place']): string[] =>
  tables.filter((table) => table.place === place).map(({ name }) => name);

it('every table has the partition in its key, or covered by it, or a reason why not', () => {
  expect(named('key')).toEqual(IN_THE_KEY);
  expect(named('covered')).toEqual(COVERED);
  expect(named('outside')).toEqual(Object.keys(REASONS));
});

it('a partition is required wherever a row belongs to one', () => {
  const listed = tables.filter(({ place, name }) => place !== 'outside' || name === 'ff_ready');
  expect(listed.filter(({ required, type }) => required !== true || type !== 'smallint')).toEqual([]);
});
