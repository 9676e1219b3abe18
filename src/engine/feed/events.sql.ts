/**
 * The event log by position: assigning positions, and reading what follows one. Positions are bigint in TypeScript; a
 * number would lose the last digits of a large one.
 */
import type { CompletionEvent, ExecutionEventBase } from '../../contract/events.ts';
import type { ParsedExecutionId } from '../../contract/ids.ts';
import { columns, withColumns } from '../database/columns.ts';
import { run, type Database } from '../database/database.ts';
import { hintChannel } from '../database/names.ts';

/** What there is after positions were assigned. */
interface Sequenced {
  /** The last assigned position. */
  last: bigint;
  /** The first position that is kept. */
  floor: bigint;
  /** How many positions this call assigned; null on a standby, which assigns none. */
  stamped: number | null;
}

/** Positions are passed as strings. */
const BOUNDS = columns<Record<'last' | 'floor', string> & Pick<Sequenced, 'stamped'>>({
  last: 'last_position::text',
  floor: 'floor_position::text',
  stamped: 'stamped',
});

/**
 * Assigns positions. `skip`: leaves it to another process that is doing it now. `wait`: includes everything committed
 * before the call. On a standby it only reads which positions have arrived there.
 */
export async function sequenceEvents(database: Database, rival: 'skip' | 'wait'): Promise<Sequenced> {
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

/** An event before it is decoded; what it does not have is null. */
export type StoredEvent = Pick<ExecutionEventBase, 'occurredAtMs' | 'namespace'> &
  OrNull<Pick<CompletionEvent, 'attemptIndex' | 'leaseEpoch' | 'kind' | 'lane' | 'workerInstanceId'>> &
  OrNull<ParsedExecutionId & { flowUuid: string; detail: Record<string, unknown> }> &
  Record<'family' | 'type', string> & { position: bigint; tags: Record<string, string> };

/** What differs between the events of a row, under the names of the log; what they share is null. */
interface Members extends OrNull<
  Record<'event_type' | 'namespace' | 'execution_id', string[]> &
    Record<'flow_id' | 'worker_instance_id', (string | null)[]> &
    Record<'partition_key' | 'attempt_index' | 'lease_epoch', number[]>
> {
  route: Record<'kind' | 'lane', string | null>[] | null;
  tags: Record<string, string>[] | null;
  detail: (Record<string, unknown> | null)[] | null;
}

/** Some events in a row of the log: `n` of them from `position` on. What differs between them is in `members`. */
type StoredPack = Omit<StoredEvent, 'position'> & {
  position: string;
  n: number;
  members: Members | null;
};

const PACK = columns<StoredPack>({
  position: 'event_id::text',
  n: 'n',
  family: 'family',
  type: 'event_type',
  occurredAtMs: 'occurred_at_ms',
  uuid: 'execution_id',
  partition: 'partition_key',
  flowUuid: 'flow_id',
  attemptIndex: 'attempt_index',
  leaseEpoch: 'lease_epoch',
  workerInstanceId: 'worker_instance_id',
  namespace: 'namespace',
  kind: 'kind',
  lane: 'lane',
  tags: 'tags',
  detail: 'detail',
  members: 'members',
});

export interface EventPage {
  rows: StoredEvent[];
  /** Everything up to here was examined. */
  to: bigint;
  floor: bigint;
  /** Events that were examined, and how many there should have been. */
  found: number;
  expected: number;
}

/** The last row holds no event: it states how far the read went. */
const PAGE = withColumns(
  PACK,
  columns<Pick<EventPage, 'found' | 'expected'> & { floor: string }>({
    found: 'found',
    expected: 'expected',
    floor: 'floor_position::text',
  }),
);

/**
 * Reads what follows a position: the matching events among the next `examined` ones, until there are `limit`. A row of
 * the log is read whole, so that it is not read twice: there may be up to 255 more of either.
 */
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
             $1, $2, $3, true, $4::text[], $5::text[], $6, $7::text::jsonb, $8, $9, $10::uuid, $11::uuid, $12::smallint[])`,
    params: [String(after), examined, limit, ...filterParams(filter)],
    repeatable: 'yes',
  });
  const { position, floor, found, expected } = rows.pop()!;
  return { rows: unpack(rows, after), to: BigInt(position), floor: BigInt(floor), found, expected };
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

/** The events in rows of the log that are after a position; the first row may begin before it. */
function unpack(packs: readonly StoredPack[], after: bigint): StoredEvent[] {
  const events: StoredEvent[] = [];
  for (const pack of packs) {
    const first = BigInt(pack.position);
    for (let index = first > after ? 0 : Number(after - first) + 1; index < pack.n; index += 1) {
      events.push(eventOf(pack, pack.members ?? NONE, index, first + BigInt(index)));
    }
  }
  return events;
}

const NONE: Members = {
  event_type: null,
  execution_id: null,
  partition_key: null,
  flow_id: null,
  attempt_index: null,
  lease_epoch: null,
  worker_instance_id: null,
  namespace: null,
  route: null,
  tags: null,
  detail: null,
};

function eventOf(shared: StoredPack, own: Members, index: number, position: bigint): StoredEvent {
  const route = own.route === null ? shared : own.route[index]!;
  return {
    position,
    family: shared.family,
    type: own.event_type === null ? shared.type : own.event_type[index]!,
    occurredAtMs: shared.occurredAtMs,
    uuid: own.execution_id === null ? shared.uuid : own.execution_id[index]!,
    partition: own.partition_key === null ? shared.partition : own.partition_key[index]!,
    flowUuid: own.flow_id === null ? shared.flowUuid : own.flow_id[index]!,
    attemptIndex: own.attempt_index === null ? shared.attemptIndex : own.attempt_index[index]!,
    leaseEpoch: own.lease_epoch === null ? shared.leaseEpoch : own.lease_epoch[index]!,
    workerInstanceId:
      own.worker_instance_id === null ? shared.workerInstanceId : own.worker_instance_id[index]!,
    namespace: own.namespace === null ? shared.namespace : own.namespace[index]!,
    kind: route.kind,
    lane: route.lane,
    tags: own.tags === null ? shared.tags : own.tags[index]!,
    detail: own.detail === null ? shared.detail : own.detail[index]!,
  };
}
