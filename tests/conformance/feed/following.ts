/**
 * What tests of the event feed share: taking a number of events, reading a log to its last position, planting rows that
 * no operation writes, and a pool that counts its statements.
 */
import { randomUUID } from 'node:crypto';
import pg from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach } from 'vitest';
import type { FeedEvent } from '../../../src/contract/events.ts';
import type { EventSubscription } from '../../../src/contract/feed.ts';
import type { PoolLike } from '../../../src/engine/database/database.ts';
import type { FeedSource } from '../../../src/engine/feed/source.ts';
import type { TestDatabase } from '../../../src/testing/test-database.ts';
import { openEngine, type OpenedEngine } from '../../../src/engine/open.ts';
import { sequenceEvents, type StoredEventFilter } from '../../../src/engine/feed/events.sql.ts';
import { testDatabase } from '../../setup/database.ts';
import type { Bench } from '../open.ts';

/** A filter without conditions. */
export const ANY: StoredEventFilter = {
  families: null,
  types: null,
  namespace: null,
  tags: null,
  kind: null,
  lane: null,
  execution: null,
  flow: null,
  partitions: null,
};

const PAGE = 256;

/** The next events of a subscription that is expected to stay connected and open. */
export async function take<Event extends FeedEvent>(
  subscription: EventSubscription<Event>,
  count: number,
): Promise<Event[]> {
  const events: Event[] = [];
  while (events.length < count) {
    const { done, value } = await subscription.next();
    if (done === true || value.type === 'disconnected') {
      throw new Error(
        `after ${events.length} of ${count} events came ${done === true ? 'the end' : value.type}`,
      );
    }
    events.push(value);
  }
  return events;
}

/** Everything after a position, up to the last one. */
export async function walk(source: FeedSource, after: bigint): Promise<FeedEvent[]> {
  const events: FeedEvent[] = [];
  let place = after;
  await source.bounds();
  for (;;) {
    const page = await source.read(place, ANY, PAGE);
    events.push(...page.events);
    place = page.to;
    if (page.atEnd) return events;
  }
}

export const positionsOf = (events: readonly FeedEvent[]): bigint[] => events.map(({ position }) => position);

/** A number of consecutive positions. */
export function consecutive(first: bigint, count: number): bigint[] {
  return Array.from({ length: count }, (_, index) => first + BigInt(index));
}

/** One event per worker, without an execution, in one transaction. */
export async function plantWorkers(database: TestDatabase, count: number): Promise<string[]> {
  const names = Array.from({ length: count }, () => `w-${randomUUID()}`);
  await database.query(
    `SELECT ff_tell('worker', array_fill('lost'::text, ARRAY[cardinality($1::text[])]), $1,
       array_fill('{"worker_id": "w"}'::jsonb, ARRAY[cardinality($1::text[])]))`,
    [names],
  );
  return names;
}

/** A row that no operation writes; `route` is an index into the existing routes, ordered by kind and lane. */
export interface PlantedRow {
  family: string;
  event_type: string;
  namespace: string;
  tags?: Record<string, string>;
  detail?: object;
  worker_instance_id?: string;
  execution_id?: string;
  partition_key?: number;
  flow_id?: string;
  route?: number;
}

/** Writes these rows, consecutive ones of a family together, in one transaction. */
export async function plantRows(database: TestDatabase, rows: readonly PlantedRow[]): Promise<void> {
  await database.query(
    `SELECT ff_log_events(min(p.family), 1700000000000, count(*), array_agg(p.event_type ORDER BY o),
       array_agg(p.execution_id ORDER BY o), array_agg(p.partition_key ORDER BY o),
       array_agg(CASE WHEN p.execution_id IS NOT NULL THEN 0 END ORDER BY o),
       array_agg(CASE WHEN p.execution_id IS NOT NULL THEN 1::bigint END ORDER BY o),
       array_agg(p.worker_instance_id ORDER BY o), array_agg(p.namespace ORDER BY o),
       array_agg(coalesce(p.tags, '{}') ORDER BY o), array_agg(p.detail ORDER BY o), array_agg(r.route_id ORDER BY o),
       array_agg(p.flow_id ORDER BY o))
     FROM (SELECT *, o - row_number() OVER (PARTITION BY (family, execution_id IS NULL) ORDER BY o) AS island
           FROM ROWS FROM (jsonb_to_recordset($1) AS (family ff_event_family, event_type text, namespace text, tags jsonb,
             detail jsonb, worker_instance_id text, execution_id uuid, partition_key smallint, flow_id uuid, route integer))
           WITH ORDINALITY p(family, event_type, namespace, tags, detail, worker_instance_id, execution_id, partition_key,
             flow_id, route, o)) p
     LEFT JOIN (SELECT route_id, row_number() OVER (ORDER BY kind, lane) - 1 AS number FROM ff_route) r
       ON r.number = p.route
     GROUP BY p.family, p.execution_id IS NULL, p.island ORDER BY min(o)`,
    [JSON.stringify(rows)],
  );
}

/** One event of an execution: it is cancelled. */
export async function endOne(bench: Bench, kind: string): Promise<string> {
  const executionId = await bench.submit({ kind });
  await bench.engine.cancel(executionId, { reason: 'to have an event' });
  return executionId;
}

export interface CountingPool {
  pool: PoolLike;
  /** The number of statements so far that contain this string. */
  count(text: string): number;
  end(): Promise<void>;
}

export function countingPool(databaseUrl: string, max = 4): CountingPool {
  const pool = new pg.Pool({ connectionString: databaseUrl, max });
  pool.on('error', () => undefined);
  const texts: string[] = [];
  return {
    pool: {
      query(config) {
        texts.push(config.text);
        return pool.query(config as pg.QueryConfig);
      },
    },
    count: (text) => texts.filter((statement) => statement.includes(text)).length,
    end: () => pool.end(),
  };
}

/** One event of a worker, to be written on a connection of the caller's own. */
export const TELL_LATE = `SELECT ff_tell('worker', '{lost}', '{late}', ARRAY['{"worker_id": "w"}'::jsonb])`;

/** The worker instances that the events are about. */
export const namesOf = (events: readonly FeedEvent[]): string[] =>
  events.map((event) => ('workerInstanceId' in event ? String(event.workerInstanceId) : ''));

export interface Log extends Pick<OpenedEngine, 'engine' | 'context'> {
  readonly database: TestDatabase;
  /** Assigns positions, and returns the last one. */
  last(): Promise<bigint>;
  walk(after: bigint): Promise<FeedEvent[]>;
}

const FIRST_ROWS = `
  CREATE TABLE public.first_runs AS SELECT * FROM ff_event_run;
  CREATE TABLE public.first_sequencer AS SELECT * FROM ff_sequencer`;
const ANEW = `
  TRUNCATE ff_event_pack, ff_event_run, ff_sequencer, ff_consumer RESTART IDENTITY;
  INSERT INTO ff_event_run SELECT * FROM public.first_runs;
  INSERT INTO ff_sequencer SELECT * FROM public.first_sequencer`;

/** A log that is reset before every test of a file, and an engine on it. */
export function useLog(): Log {
  let database: TestDatabase;
  let opened: OpenedEngine;
  beforeAll(async () => {
    database = await testDatabase();
    await database.query(FIRST_ROWS);
  });
  beforeEach(async () => {
    await database.query(ANEW);
    await database.setClockOffset(0);
    opened = await openEngine({ databaseUrl: database.url, listen: 'off', poolSize: 2 });
  });
  afterEach(() => opened?.engine.close());
  afterAll(() => database?.drop());
  return {
    get database() {
      return database;
    },
    get engine() {
      return opened.engine;
    },
    get context() {
      return opened.context;
    },
    last: async () => (await sequenceEvents(opened.context.database, 'wait')).last,
    walk: (after) => walk(opened.context.feed, after),
  };
}

/** Simulates a failover: the same system on another timeline, which may lack the newest events of the old one. */
export async function promote(database: TestDatabase): Promise<void> {
  await database.query(`UPDATE ff_sequencer SET identity = split_part(identity, '/', 1) || '/000000FE'`);
}

/**
 * Simulates a dump and restore on a server with more, or fewer, transactions behind it: the stored transaction ids mean
 * nothing there.
 */
export async function restore(
  database: TestDatabase,
  shift: bigint,
  identity = 'other/00000001',
): Promise<void> {
  await database.query('UPDATE ff_event_pack SET xid = (xid::text::bigint + $1::bigint)::text::xid8', [
    String(shift),
  ]);
  await database.query(
    `UPDATE ff_event_run SET snap = format('%s:%s:', pg_snapshot_xmin(snap)::text::bigint + $1::bigint,
       pg_snapshot_xmax(snap)::text::bigint + $1::bigint)::pg_snapshot WHERE snap IS NOT NULL AND seq_from > 0`,
    [String(shift)],
  );
  await database.query('UPDATE ff_sequencer SET identity = $1', [identity]);
}
