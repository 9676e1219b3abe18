/**
 * Checks the options of subscriptions and consumers: which events, and from where. Does not use the database; the feed
 * decides whether a position can still be read from.
 */
import { decodeCursor } from '../../contract/cursor.ts';
import {
  COMPLETION_EVENTS,
  EVENT_FAMILIES,
  EXECUTION_EVENTS,
  FLOW_EVENTS,
  LEASE_EVENTS,
  OPERATOR_EVENTS,
  SIGNAL_EVENTS,
  TAG_EVENTS,
  WORKER_EVENTS,
  type EventFamily,
} from '../../contract/events.ts';
import type { EventFilter, EventsFilter } from '../../contract/feed.ts';
import { parseExecutionId, PARTITION_COUNT } from '../../contract/ids.ts';
import { choice, list, parsed, whole } from '../../contract/shape/kinds.ts';
import { LIMITS } from '../../contract/limits.ts';
import { faultAt, shape, type Kind } from '../../contract/shape/shape.ts';
import type { StoredEventFilter } from './events.sql.ts';
import { kindName, laneName, namespaceName, tagsOf } from '../kit/kinds.ts';

const TYPES: Record<EventFamily, readonly string[]> = {
  lease: LEASE_EVENTS,
  completion: COMPLETION_EVENTS,
  signal: SIGNAL_EVENTS,
  operator: OPERATOR_EVENTS,
  flow: FLOW_EVENTS,
  tag: TAG_EVENTS,
  worker: WORKER_EVENTS,
  execution: EXECUTION_EVENTS,
};
/** A filter may name every type. */
const MAX_TYPES = Object.values(TYPES).flat().length;

/** An empty list, or no tags, would match nothing. */
const filterFields = {
  namespace: namespaceName.optional(),
  tags: tagsOf(LIMITS.filterTerms, 1).optional(),
  kind: kindName.optional(),
  lane: laneName.optional(),
  executionId: parsed.optional(),
  flowId: parsed.optional(),
  partitions: list(whole(0, PARTITION_COUNT - 1), PARTITION_COUNT, 1).optional(),
};

function typesOf(families: readonly EventFamily[]): Kind<readonly string[]> {
  return list<string>(choice([...new Set(families.flatMap((family) => TYPES[family]))]), MAX_TYPES, 1);
}

/** A filter over all families; it may name some. */
export const eventsFilter = shape<EventsFilter>({
  ...filterFields,
  types: parsed.optional(),
  families: list(choice(EVENT_FAMILIES), EVENT_FAMILIES.length, 1).optional(),
}).and(({ types, families = EVENT_FAMILIES }) => {
  const found = types === undefined ? undefined : typesOf(families).faultOf(types);
  return found === undefined ? undefined : faultAt('.types', found);
});

/** A filter over one family. */
export function familyFilter(family: EventFamily): Kind<EventFilter> {
  return shape<EventFilter>({ ...filterFields, types: typesOf([family]).optional() });
}

/** Converts a checked filter for statements. A copy, because the caller may modify its own during the subscription. */
export function storedFilter(
  filter: EventFilter,
  families: readonly EventFamily[] | null,
): StoredEventFilter {
  const { executionId, flowId, types, tags, partitions } = filter;
  return {
    families: families === null ? null : [...new Set(families)],
    types: types === undefined ? null : [...new Set(types)],
    namespace: filter.namespace ?? null,
    tags: tags === undefined ? null : { ...tags },
    kind: filter.kind ?? null,
    lane: filter.lane ?? null,
    execution: executionId === undefined ? null : parseExecutionId(executionId, 'filter.executionId'),
    flow: flowId === undefined ? null : parseExecutionId(flowId, 'filter.flowId'),
    partitions: partitions === undefined ? null : [...partitions],
  };
}

/** Where to start: at either bound of the feed, or strictly after a position. */
export type Start = 'now' | 'beginning' | bigint;

export function startOf(from: unknown, usual: 'now' | 'beginning'): Start {
  if (from === undefined) return usual;
  if (from === 'now' || from === 'beginning') return from;
  return decodeCursor(from, 'from') ?? 'now';
}
