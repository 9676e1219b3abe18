/**
 * The event log by position: assigning positions, and reading what follows one. Positions are bigint in TypeScript; a
 * number would lose the last digits of a large one.
 */
import type { CompletionEvent, ExecutionEventBase } from '../../contract/events.ts';
import type { ParsedExecutionId } from '../../contract/ids.ts';
import { columns, withColumns, type RowOf } from '../database/columns.ts';
import { run, type Database } from '../database/database.ts';
import { hintChannel } from '../database/names.ts';

/** The bounds of the feed. */
export interface FeedBounds {
  /** The last assigned position. */
  last: bigint;
  /** The first position that is kept. */
  floor: bigint;
  /** How many positions this call assigned. */
  stamped: number;
}

/** Positions are passed as strings. */
const BOUNDS = columns<Record<'last' | 'floor', string> & Pick<FeedBounds, 'stamped'>>({
  last: 'last_position::text',
  floor: 'floor_position::text',
  stamped: 'stamped',
});

/**
 * Assigns positions. `skip`: leaves it to another process that is doing it now. `wait`: includes everything committed
 * before the call.
 */
export async function sequenceEvents(database: Database, rival: 'skip' | 'wait'): Promise<FeedBounds> {
  const rows = await run(database, {
    doing: 'assigning positions to events',
    columns: BOUNDS,
    text: `SELECT ${BOUNDS.list}
           FROM ${database.prefix}ff_sequence($1, $2)`,
    params: [rival === 'wait', hintChannel(database.schema)],
    repeatable: 'yes',
  });
  const { last, floor, stamped } = rows[0]!;
  return { last: BigInt(last), floor: BigInt(floor), stamped };
}

/** A filter for statements. Null means no condition. */
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

type OrNull<Fields> = { [Name in keyof Fields]: Fields[Name] | null };

/** An event before it is decoded; columns it does not use are null. */
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
  /** Everything up to here was examined. */
  to: bigint;
  floor: bigint;
  /** Events that were examined, and how many there should have been. */
  found: number;
  expected: number;
}

/** The last row is not an event: it states how far the read went. */
const PAGE = withColumns(
  EVENT,
  columns<Pick<EventPage, 'found' | 'expected'> & { floor: string }>({
    found: 'found',
    expected: 'expected',
    floor: 'floor_position::text',
  }),
);

/** Reads what follows a position: at most `limit` matching events among the next `examined` ones. */
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

/** An id contains its partition; combined with another partition it matches nothing. */
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
