/**
 * What a subscription or consumer asks for, checked: which events, and from where. Nothing here asks the database; whether a
 * place can still be read from is for the feed to say.
 */
import { decodeCursor } from '../../contract/cursor.ts';
import {
  COMPLETION_EVENTS,
  EVENT_FAMILIES,
  FLOW_EVENTS,
  LEASE_EVENTS,
  OPERATOR_EVENTS,
  SIGNAL_EVENTS,
  TAG_EVENTS,
  WORKER_EVENTS,
  type EventFamily,
} from '../../contract/events.ts';
import type { EventsFilter } from '../../contract/feed.ts';
import { parseExecutionId, PARTITION_COUNT } from '../../contract/ids.ts';
import { LIMITS } from '../../contract/limits.ts';
import type { StoredEventFilter } from './events.sql.ts';
import { checkList, checkName, checkTags, checkText, checkWhole, refuse } from '../kit/checks.ts';
import { checkMembers } from '../kit/settings.ts';

const TYPES: Record<EventFamily, readonly string[]> = {
  lease: LEASE_EVENTS,
  completion: COMPLETION_EVENTS,
  signal: SIGNAL_EVENTS,
  operator: OPERATOR_EVENTS,
  flow: FLOW_EVENTS,
  tag: TAG_EVENTS,
  worker: WORKER_EVENTS,
};
/** A filter may name every type there is. */
const MAX_TYPES = Object.values(TYPES).flat().length;

const FILTER_MEMBERS: readonly (keyof EventsFilter)[] = [
  'namespace',
  'tags',
  'kind',
  'lane',
  'executionId',
  'flowId',
  'partitions',
  'types',
];

/** A filter of any events: it may name the families. */
export function checkEventsFilter(filter: EventsFilter = {}): StoredEventFilter {
  checkMembers(filter, 'filter', [...FILTER_MEMBERS, 'families']);
  return checkConditions(filter, optional(filter.families, checkFamilies));
}

/** A filter of the events of one family. */
export function checkFamilyFilter(filter: EventsFilter = {}, family: EventFamily): StoredEventFilter {
  checkMembers(filter, 'filter', FILTER_MEMBERS);
  return checkConditions(filter, [family]);
}

function checkConditions(filter: EventsFilter, families: EventFamily[] | null): StoredEventFilter {
  return {
    families,
    types: optional(filter.types, (types) => checkTypes(types, families ?? EVENT_FAMILIES)),
    namespace: optional(filter.namespace, (text) =>
      checkText(text, 'filter.namespace', LIMITS.namespaceBytes),
    ),
    tags: optional(filter.tags, checkTagFilter),
    kind: optional(filter.kind, (name) => checkName(name, 'filter.kind', LIMITS.kindBytes)),
    lane: optional(filter.lane, (name) => checkName(name, 'filter.lane', LIMITS.laneBytes)),
    execution: optional(filter.executionId, (id) => parseExecutionId(id, 'filter.executionId')),
    flow: optional(filter.flowId, (id) => parseExecutionId(id, 'filter.flowId')),
    partitions: optional(filter.partitions, checkPartitions),
  };
}

function optional<Value, Checked>(
  value: Value | undefined,
  check: (given: Value) => Checked,
): Checked | null {
  return value === undefined ? null : check(value);
}

function checkFamilies(families: readonly EventFamily[]): EventFamily[] {
  return checkWords(families, 'filter.families', EVENT_FAMILIES, EVENT_FAMILIES.length);
}

function checkTypes(types: readonly string[], families: readonly EventFamily[]): string[] {
  const known = [...new Set(families.flatMap((family) => TYPES[family]))];
  return checkWords(types, 'filter.types', known, MAX_TYPES);
}

/** A list of known words, without repeats. An empty one is refused: nothing would ever match it. */
function checkWords<Word extends string>(
  words: readonly Word[],
  field: string,
  known: readonly Word[],
  max: number,
): Word[] {
  const given = Array.from(checkFilled(words, field, max));
  given.forEach((word, index) => {
    if (!known.includes(word)) refuse(`${field}[${index}]`, `must be one of ${known.join(', ')}`);
  });
  return [...new Set(given)];
}

function checkPartitions(partitions: readonly number[]): number[] {
  const given = checkFilled(partitions, 'filter.partitions', PARTITION_COUNT);
  return Array.from(given, (partition, index) =>
    checkWhole(partition, `filter.partitions[${index}]`, 0, PARTITION_COUNT - 1),
  );
}

function checkFilled<Item>(list: readonly Item[], field: string, max: number): readonly Item[] {
  checkList(list, field, max);
  if (list.length === 0) refuse(field, 'must not be empty: nothing would match it');
  return list;
}

function checkTagFilter(tags: Record<string, string>): Record<string, string> {
  const count = Object.keys(checkTags(tags, 'filter.tags')).length;
  if (count === 0) refuse('filter.tags', 'must name at least one tag');
  if (count > LIMITS.filterTerms) {
    refuse('filter.tags', `has ${count} tags; the limit is ${LIMITS.filterTerms}`, 'too_many');
  }
  // Kept for as long as the subscription lives, while the caller may go on to change its own.
  return { ...tags };
}

/** Where to begin: at an end of the feed, or strictly after a position. */
export type Start = 'now' | 'beginning' | bigint;

export function checkStart(from: unknown, usual: 'now' | 'beginning'): Start {
  if (from === undefined) return usual;
  if (from === 'now' || from === 'beginning') return from;
  return decodeCursor(from, 'from') ?? 'now';
}

/** A function, or nothing. */
export function checkFunction<Given>(value: Given, field: string): Given {
  if (value !== undefined && typeof value !== 'function') refuse(field, 'must be a function');
  return value;
}
