/**
 * Calls the SQL functions of topics, and reads who waits for what. Only statements, no decisions. Those about a topic are
 * of its home partition, those about waits of the partitions of their executions: none is about both but
 * `listMissed`, which only reads.
 */
import type { ReceivedTopic } from '../../contract/topics.ts';
import { columns, columnsOf, inSchema, withColumns, type RowOf } from '../database/columns.ts';
import { onlyRow, run, type Database } from '../database/database.ts';
import type { Answered } from '../executions/answered.sql.ts';

/** A topic and its home. */
export interface TopicKey {
  namespace: string;
  topic: string;
  partition: number;
}

const PUBLISHED = columns<Pick<ReceivedTopic, 'seq' | 'publishedAtMs'>>({
  seq: 'seq',
  publishedAtMs: 'published_at_ms',
});

export async function publishTopic(
  database: Database,
  { namespace, topic, partition }: TopicKey,
  publish: { id: string; keepMs: number; payload: string },
): Promise<RowOf<typeof PUBLISHED>> {
  const rows = await run(database, {
    doing: 'publishing',
    columns: PUBLISHED,
    text: `SELECT ${PUBLISHED.list} FROM ${database.prefix}ff_publish($1, $2, $3::smallint, $4::uuid, $5::bigint, $6::text::jsonb)`,
    params: [namespace, topic, partition, publish.id, publish.keepMs, publish.payload],
    repeatable: 'yes',
    waits: 'once',
  });
  return onlyRow('publishing', rows);
}

const HOME = columns<{ place: number; last: number; offer: ReceivedTopic | null }>({
  place: 'u.place::integer',
  last: 't.last_seq',
  offer: `CASE WHEN p.keep_until_ms > s.ff_now_ms() THEN jsonb_build_object('seq', p.seq, 'publishedAtMs', p.published_at_ms,
    'data', p.payload) END`,
});

/** What the homes of topics have, by their places from 1; those without anything are missing. */
export function readHomes(database: Database, topics: readonly TopicKey[]): Promise<RowOf<typeof HOME>[]> {
  return run(database, {
    doing: 'reading topics',
    columns: HOME,
    text: inSchema(
      database,
      `SELECT ${HOME.list}
       FROM unnest($1::text[], $2::text[], $3::smallint[]) WITH ORDINALITY u(n, t, part, place)
       JOIN s.ff_topic t ON t.namespace = u.n AND t.topic = u.t AND t.partition_key = u.part
       LEFT JOIN s.ff_published p
         ON p.namespace = u.n AND p.topic = u.t AND p.partition_key = u.part AND p.seq = t.last_seq`,
    ),
    params: arraysOf(topics),
    repeatable: 'yes',
  });
}

function arraysOf(topics: readonly TopicKey[]): unknown[] {
  return [
    topics.map(({ namespace }) => namespace),
    topics.map(({ topic }) => topic),
    topics.map(({ partition }) => partition),
  ];
}

/** What was published, with its home. `payload` is JSON. */
const WHOLE = columns<TopicKey & Pick<ReceivedTopic, 'seq' | 'publishedAtMs'> & { payload: string }>({
  namespace: 'p.namespace',
  topic: 'p.topic',
  partition: 'p.partition_key',
  seq: 'p.seq',
  publishedAtMs: 'p.published_at_ms',
  payload: 'p.payload::text',
});
export type Published = RowOf<typeof WHOLE>;

/** The first that was published after a number. */
export async function readNext(
  database: Database,
  { namespace, topic, partition }: TopicKey,
  after: number,
): Promise<Published | undefined> {
  const rows = await run(database, {
    doing: 'reading a topic',
    columns: WHOLE,
    text: inSchema(
      database,
      `SELECT ${WHOLE.list} FROM s.ff_published p
       WHERE p.namespace = $1 AND p.topic = $2 AND p.partition_key = $3 AND p.seq > $4 ORDER BY p.seq LIMIT 1`,
    ),
    params: [namespace, topic, partition, after],
    repeatable: 'yes',
  });
  return rows[0];
}

/** What was published and not everybody may have been told, oldest first. */
export function listUntold(database: Database, limit: number): Promise<Published[]> {
  return run(database, {
    doing: 'finding what was published',
    columns: WHOLE,
    text: inSchema(
      database,
      `SELECT ${WHOLE.list} FROM s.ff_published p WHERE NOT p.is_told ORDER BY p.seq LIMIT $1`,
    ),
    params: [limit],
    repeatable: 'yes',
  });
}

const WAITING = columns<{ uuid: string; waitNo: number }>({ uuid: 'execution_id', waitNo: 'wait_no' });

/** Waits for it, in the order they began, from after one on: whoever has their executions locked does not matter. */
export function listWaiting(
  database: Database,
  { namespace, topic, seq }: Published,
  after: number,
  limit: number,
): Promise<RowOf<typeof WAITING>[]> {
  return run(database, {
    doing: 'finding who waits for a topic',
    columns: WAITING,
    text: inSchema(
      database,
      `SELECT ${WAITING.list} FROM s.ff_topic_wait
       WHERE namespace = $1 AND topic = $2 AND wait_no > $4 AND after_seq < $3 ORDER BY wait_no LIMIT $5`,
    ),
    params: [namespace, topic, seq, after, limit],
    repeatable: 'yes',
  });
}

const TOLD = columnsOf<Answered<'resumed' | 'recorded' | 'discarded' | 'held'>>()(
  'uuid',
  'outcome',
  'routeId',
);
export type Told = RowOf<typeof TOLD>;

export function tellTopic(
  database: Database,
  uuids: readonly string[],
  { namespace, topic, seq, publishedAtMs, payload }: Published,
): Promise<Told[]> {
  return run(database, {
    doing: 'notifying executions of a topic',
    columns: TOLD,
    text: `SELECT ${TOLD.list} FROM ${database.prefix}ff_tell_topic($1::uuid[], $2, $3, $4::bigint, $5::bigint, $6::text::jsonb)`,
    params: [uuids, namespace, topic, seq, publishedAtMs, payload],
    repeatable: 'yes',
  });
}

export async function finishTelling(
  database: Database,
  { namespace, topic, partition, seq }: Published,
): Promise<void> {
  await run(database, {
    doing: 'finishing to notify executions of a topic',
    text: `SELECT FROM ${database.prefix}ff_finish_telling($1, $2, $3::smallint, $4::bigint)`,
    params: [namespace, topic, partition, seq],
    repeatable: 'yes',
    waits: 'once',
  });
}

const COUNT = columns<{ count: number }>({ count: 'ff_forget_topics' });

export async function forgetTopics(database: Database, limit: number): Promise<number> {
  const rows = await run(database, {
    doing: 'forgetting old topics',
    columns: COUNT,
    text: `SELECT ${COUNT.list} FROM ${database.prefix}ff_forget_topics($1)`,
    params: [limit],
    repeatable: 'yes',
  });
  return onlyRow('forgetting old topics', rows).count;
}

const EXAMINED = columns<{ uuid: string; examined: number }>({
  uuid: 'w.execution_id',
  examined: 'w.examined::integer',
});
const MISSED = withColumns(
  EXAMINED,
  columns<{ published: Published | null }>({
    published: `CASE WHEN p.seq IS NOT NULL THEN jsonb_build_object('namespace', p.namespace, 'topic', p.topic, 'partition',
    p.partition_key, 'seq', p.seq, 'publishedAtMs', p.published_at_ms, 'payload', p.payload::text) END`,
  }),
);
export type Missed = RowOf<typeof MISSED>;

/**
 * Of the next waits, by execution: those for something that was published after they began and that everybody else has
 * been told of; and the last one that was examined. A wait is missed when its process died after it had registered it.
 */
export function listMissed(database: Database, after: string, limit: number): Promise<Missed[]> {
  return run(database, {
    doing: 'finding missed topics',
    columns: MISSED,
    text: inSchema(
      database,
      `SELECT ${MISSED.list}
       FROM (SELECT *, row_number() OVER (ORDER BY execution_id DESC) AS place, count(*) OVER () AS examined
             FROM (SELECT * FROM s.ff_topic_wait WHERE execution_id > $1::uuid ORDER BY execution_id LIMIT $2) x) w
       LEFT JOIN LATERAL (
         SELECT * FROM s.ff_published q
         WHERE q.namespace = w.namespace AND q.topic = w.topic AND q.seq > w.after_seq ORDER BY q.seq LIMIT 1) p ON p.is_told
       WHERE p.seq IS NOT NULL OR w.place = 1
       ORDER BY w.execution_id`,
    ),
    params: [after, limit],
    repeatable: 'yes',
  });
}
