/**
 * Whether a row of the event log matches a filter. Equivalent to the conditions of ff_read_events, for pages that
 * several readers share and that were read without a filter.
 */
import { wantedPartitions, type StoredEvent, type StoredEventFilter } from './events.sql.ts';

export function matches(filter: StoredEventFilter, row: StoredEvent): boolean {
  return (
    (filter.families === null || filter.families.includes(row.family)) &&
    (filter.types === null || filter.types.includes(row.type)) &&
    (filter.namespace === null || filter.namespace === row.namespace) &&
    (filter.kind === null || filter.kind === row.kind) &&
    (filter.lane === null || filter.lane === row.lane) &&
    (filter.execution === null || filter.execution.uuid === row.uuid) &&
    (filter.flow === null || filter.flow.uuid === row.flowUuid) &&
    (filter.tags === null || hasTags(row.tags, filter.tags)) &&
    isInPartitions(wantedPartitions(filter), row.partition)
  );
}

function hasTags(tags: Record<string, string>, wanted: Record<string, string>): boolean {
  return Object.keys(wanted).every((key) => Object.hasOwn(tags, key) && tags[key] === wanted[key]);
}

/** An event without an execution is in no partition. */
function isInPartitions(wanted: readonly number[] | null, partition: number | null): boolean {
  return wanted === null || (partition !== null && wanted.includes(partition));
}
