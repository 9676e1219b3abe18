/**
 * The event log by position: giving positions out, and reading what follows one. Positions are bigint from here on; a number
 * would lose the last digits of a large one.
 */
import { run, type Database } from '../database/database.ts';
import { hintChannel } from '../database/names.ts';

/** Where the feed is. */
export interface FeedEnds {
  /** The last position that was given out. */
  last: bigint;
  /** The first position that is kept. */
  floor: bigint;
  /** How many were given out by this call. */
  stamped: number;
}

/** `skip`: when another process is at it, that one is left to do it. `wait`: everything committed before the call is included. */
export async function sequenceEvents(database: Database, rival: 'skip' | 'wait'): Promise<FeedEnds> {
  const rows = await run<{ last: string; floor: string; stamped: number }>(database, {
    doing: 'giving out positions to events',
    text: `SELECT last_position::text AS last, floor_position::text AS floor, stamped
           FROM ${database.prefix}ff_sequence($1, $2)`,
    params: [rival === 'wait', hintChannel(database.schema)],
    repeatable: 'yes',
  });
  const { last, floor, stamped } = rows[0]!;
  return { last: BigInt(last), floor: BigInt(floor), stamped };
}

/** Null means that the filter does not ask. */
export interface StoredEventFilter {
  families: readonly string[] | null;
  types: readonly string[] | null;
  namespace: string | null;
  tags: Record<string, string> | null;
  kind: string | null;
  lane: string | null;
  execution: { uuid: string; partition: number } | null;
  flow: { uuid: string; partition: number } | null;
  partitions: readonly number[] | null;
}

export interface EventRow {
  event_id: string;
  family: string;
  event_type: string;
  occurred_at_ms: number;
  execution_id: string | null;
  partition_key: number | null;
  flow_id: string | null;
  attempt_index: number | null;
  lease_epoch: number | null;
  lease_id: string | null;
  worker_instance_id: string | null;
  namespace: string;
  kind: string | null;
  lane: string | null;
  tags: Record<string, string>;
  detail: Record<string, unknown> | null;
}

export interface EventPage {
  rows: EventRow[];
  /** Everything up to here was looked at. */
  to: bigint;
  floor: bigint;
  /** Events that were looked at, and how many should have been there. */
  found: number;
  expected: number;
}

interface LastRow {
  event_id: string;
  expected: number;
  found: number;
  floor: string;
}

/** What follows a position: no more than `limit` events that match, of the next `examined` ones. */
export async function readEvents(
  database: Database,
  after: bigint,
  { examined, limit }: { examined: number; limit: number },
  filter: StoredEventFilter,
): Promise<EventPage> {
  const rows = await run<EventRow | LastRow>(database, {
    doing: 'reading events',
    text: `SELECT event_id::text, family, event_type, occurred_at_ms, execution_id, partition_key, flow_id, attempt_index,
             lease_epoch, lease_id, worker_instance_id, namespace, kind, lane, tags, detail, expected, found,
             floor_position::text AS floor
           FROM ${database.prefix}ff_read_events(
             $1, $2, $3, $4::text[], $5::text[], $6, $7::text::jsonb, $8, $9, $10::uuid, $11::uuid, $12::smallint[])`,
    params: [String(after), examined, limit, ...filterParams(filter)],
    repeatable: 'yes',
  });
  const last = rows.pop() as LastRow;
  return {
    rows: rows as EventRow[],
    to: BigInt(last.event_id),
    floor: BigInt(last.floor),
    found: last.found,
    expected: last.expected,
  };
}

function filterParams(filter: StoredEventFilter): unknown[] {
  return [
    filter.families,
    filter.types,
    filter.namespace,
    filter.tags === null ? null : JSON.stringify(filter.tags),
    filter.kind,
    filter.lane,
    filter.execution?.uuid ?? null,
    filter.flow?.uuid ?? null,
    wantedPartitions(filter),
  ];
}

/** An id names its partition, and with another one it names nothing. */
export function wantedPartitions({
  partitions,
  execution,
  flow,
}: StoredEventFilter): readonly number[] | null {
  const named = [execution, flow].filter((id) => id !== null).map((id) => id.partition);
  if (named.length === 0) return partitions;
  const wanted = named.every((partition) => partition === named[0]) ? named.slice(0, 1) : [];
  return partitions === null ? wanted : wanted.filter((partition) => partitions.includes(partition));
}
