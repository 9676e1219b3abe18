/**
 * The event log by position: giving positions out, and reading what follows one. Positions are bigint from here on; a number
 * would lose the last digits of a large one.
 */
import type { CompletionEvent, ExecutionEventBase } from '../../contract/events.ts';
import type { ParsedExecutionId } from '../../contract/ids.ts';
import { columns, withColumns, type RowOf } from '../database/columns.ts';
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

/** Positions travel as texts. */
const ENDS = columns<Record<'last' | 'floor', string> & Pick<FeedEnds, 'stamped'>>({
  last: 'last_position::text',
  floor: 'floor_position::text',
  stamped: 'stamped',
});

/** `skip`: when another process is at it, that one is left to do it. `wait`: everything committed before the call is included. */
export async function sequenceEvents(database: Database, rival: 'skip' | 'wait'): Promise<FeedEnds> {
  const rows = await run(database, {
    doing: 'giving out positions to events',
    columns: ENDS,
    text: `SELECT ${ENDS.list}
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

type OrNull<Members> = { [Name in keyof Members]: Members[Name] | null };

/** An event before it is decoded; what it does not have is null. */
const EVENT = columns<
  Pick<ExecutionEventBase, 'occurredAtMs' | 'namespace'> &
    OrNull<
      Pick<CompletionEvent, 'attemptIndex' | 'leaseEpoch' | 'kind' | 'lane' | 'leaseId' | 'workerInstanceId'>
    > &
    OrNull<ParsedExecutionId & { flowUuid: string; detail: Record<string, unknown> }> &
    Record<'position' | 'family' | 'type', string> & { tags: Record<string, string> }
>({
  position: 'event_id::text',
  family: 'family',
  type: 'event_type',
  occurredAtMs: 'occurred_at_ms',
  uuid: 'execution_id',
  partition: 'partition_key',
  flowUuid: 'flow_id',
  attemptIndex: 'attempt_index',
  leaseEpoch: 'lease_epoch',
  leaseId: 'lease_id',
  workerInstanceId: 'worker_instance_id',
  namespace: 'namespace',
  kind: 'kind',
  lane: 'lane',
  tags: 'tags',
  detail: 'detail',
});
export type StoredEvent = RowOf<typeof EVENT>;

export interface EventPage {
  rows: StoredEvent[];
  /** Everything up to here was looked at. */
  to: bigint;
  floor: bigint;
  /** Events that were looked at, and how many should have been there. */
  found: number;
  expected: number;
}

/** The last row is not an event: it says how far was looked. */
const PAGE = withColumns(
  EVENT,
  columns<Pick<EventPage, 'found' | 'expected'> & { floor: string }>({
    found: 'found',
    expected: 'expected',
    floor: 'floor_position::text',
  }),
);

/** What follows a position: no more than `limit` events that match, of the next `examined` ones. */
export async function readEvents(
  database: Database,
  after: bigint,
  { examined, limit }: { examined: number; limit: number },
  filter: StoredEventFilter,
): Promise<EventPage> {
  const rows = await run(database, {
    doing: 'reading events',
    columns: PAGE,
    text: `SELECT ${PAGE.list}
           FROM ${database.prefix}ff_read_events(
             $1, $2, $3, $4::text[], $5::text[], $6, $7::text::jsonb, $8, $9, $10::uuid, $11::uuid, $12::smallint[])`,
    params: [String(after), examined, limit, ...filterParams(filter)],
    repeatable: 'yes',
  });
  const { position, floor, found, expected } = rows.pop()!;
  return { rows, to: BigInt(position), floor: BigInt(floor), found, expected };
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
