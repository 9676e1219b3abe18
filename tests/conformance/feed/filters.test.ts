/**
 * What a filter lets through. The same log is read with many filters: once with the filter in the statement, and once
 * over shared rows that were read without it. Both must match a third, plain reading of the filter.
 */
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { EngineContext } from '../../../src/engine/kit/context.ts';
import type { EventsFilter } from '../../../src/index.ts';
import { formatExecutionId } from '../../../src/contract/ids.ts';
import { storedFilter } from '../../../src/engine/feed/filter.ts';
import { openEngine } from '../../../src/engine/open.ts';
import { readEvents, type StoredEvent, type StoredEventFilter } from '../../../src/engine/feed/events.sql.ts';
import { matches } from '../../../src/engine/feed/matching.ts';
import { ANY, plantRows, take, type PlantedRow } from './following.ts';
import { useBench } from '../open.ts';

const bench = useBench();
const EVENTS = 240;
const KINDS = ['k-a', 'k-b', 'k-c'];
const LANES = ['l-a', 'l-b'];
const NAMESPACES = ['n-a', 'n-b', 'n-c'];
const TAGS: Record<string, string>[] = [
  {},
  { team: 'a' },
  { team: 'b' },
  { team: 'a', size: 'big' },
  { size: 'a' },
  { toString: 'x' },
];
const TYPES = {
  lease: ['acquired', 'renewed', 'expired', 'reclaimed', 'revoked', 'released'],
  completion: ['success', 'failed', 'cancelled', 'expired', 'skipped'],
  operator: ['priority_changed', 'replayed', 'lane_paused', 'lane_resumed'],
  tag: ['tags_changed'],
  worker: ['registered', 'stopped', 'lost'],
} as const;
const FAMILIES = Object.keys(TYPES) as (keyof typeof TYPES)[];
const PARTITIONS = [0, 7, 255];
const uuid = (number: number): string => `018f0000-0000-7000-8000-${String(number).padStart(12, '0')}`;

let context: EngineContext;
let close: () => Promise<void>;
let rows: StoredEvent[];

/** The row as it was planted, without its route. */
function factsOf(row: StoredEvent): Partial<PlantedRow> {
  const { family, type, namespace, tags, detail, workerInstanceId, uuid: id, partition, flowUuid } = row;
  const facts = {
    family,
    event_type: type,
    namespace,
    tags,
    detail,
    worker_instance_id: workerInstanceId,
    execution_id: id,
    partition_key: partition,
    flow_id: flowUuid,
  };
  return Object.fromEntries(Object.entries(facts).filter(([, value]) => value !== null));
}

/** Varied by remainders of coprime numbers, so that all combinations occur. */
function planted(index: number): PlantedRow {
  const family = FAMILIES[index % FAMILIES.length]!;
  const type = TYPES[family][Math.floor(index / FAMILIES.length) % TYPES[family].length]!;
  const isLane = type.startsWith('lane_');
  if (isLane) return { family, event_type: type, namespace: '', detail: { lane: LANES[index % 2] } };
  if (family === 'worker') {
    return {
      family,
      event_type: type,
      namespace: '',
      worker_instance_id: `w-${index}`,
      detail: { worker_id: 'w' },
    };
  }
  return {
    family,
    event_type: type,
    execution_id: uuid(index % 17),
    partition_key: PARTITIONS[(index % 17) % 3]!,
    route: index % 6,
    namespace: NAMESPACES[index % 3]!,
    tags: TAGS[index % TAGS.length]!,
    ...(index % 4 === 0 ? { flow_id: uuid(1_000 + ((index % 17) % 3)) } : {}),
  };
}

beforeAll(async () => {
  const opened = await openEngine({ databaseUrl: bench.database.url, listen: 'off', poolSize: 2 });
  context = opened.context;
  close = () => opened.engine.close();
  await bench.engine.executions.submit(LANES.flatMap((lane) => KINDS.map((kind) => ({ kind, lane }))));
  const mixed = Array.from({ length: EVENTS }, (_, index) => planted(index));
  const grouped = mixed.splice(EVENTS / 2).toSorted((one, other) => one.family.localeCompare(other.family));
  const logged = [...mixed, ...grouped];
  await plantRows(bench.database, logged);
  await context.feed.bounds();
  rows = (await readEvents(context.database, 0n, { examined: 1_000, limit: 1_000 }, ANY)).rows;
  expect(rows.map(factsOf)).toEqual(logged.map((row) => ({ tags: {}, ...row, route: undefined })));
  const { rows: packs } = await bench.database.query('SELECT n FROM ff_event_pack');
  expect(new Set(packs.map(({ n }) => n > 1))).toEqual(new Set([true, false]));
});
afterAll(() => close?.());

/** The filter as the user who wrote it means it. */
function isWanted(filter: EventsFilter, row: StoredEvent): boolean {
  const id = row.uuid === null ? null : formatExecutionId(row.partition!, row.uuid);
  const flow = row.flowUuid === null ? null : formatExecutionId(row.partition!, row.flowUuid);
  const tags = new Map(Object.entries(row.tags));
  return [
    filter.families === undefined || filter.families.some((family) => family === row.family),
    filter.types === undefined || filter.types.some((type) => type === row.type),
    filter.namespace === undefined || filter.namespace === row.namespace,
    filter.kind === undefined || filter.kind === row.kind,
    filter.lane === undefined || filter.lane === row.lane,
    filter.executionId === undefined || filter.executionId === id,
    filter.flowId === undefined || filter.flowId === flow,
    filter.partitions === undefined || filter.partitions.some((partition) => partition === row.partition),
    Object.entries(filter.tags ?? {}).every(([key, value]) => tags.get(key) === value),
  ].every(Boolean);
}

const idsOf = (found: readonly StoredEvent[]): bigint[] => found.map((row) => row.position);

async function expectSame(filter: EventsFilter): Promise<number> {
  const stored: StoredEventFilter = storedFilter(filter, filter.families ?? null);
  const expected = idsOf(rows.filter((row) => isWanted(filter, row)));
  const page = await readEvents(context.database, 0n, { examined: 1_000, limit: 1_000 }, stored);
  expect(idsOf(page.rows)).toEqual(expected);
  expect(page).toMatchObject({ to: BigInt(EVENTS), found: EVENTS, expected: EVENTS });
  expect(idsOf(rows.filter((row) => matches(stored, row)))).toEqual(expected);
  return expected.length;
}

describe('a filter', () => {
  const id = (number: number): string => formatExecutionId(PARTITIONS[number % 3]!, uuid(number));
  const flow = (number: number): string => formatExecutionId(PARTITIONS[number]!, uuid(1_000 + number));
  const elsewhere = (number: number): string => formatExecutionId(8, uuid(number));

  it.each<[string, EventsFilter]>([
    ['without conditions', {}],
    ['by one family', { families: ['lease'] }],
    ['by some families', { families: ['completion', 'worker', 'tag'] }],
    ['by a type that two families have', { types: ['expired'] }],
    ['by a type of one of them', { families: ['completion'], types: ['expired'] }],
    ['by a namespace', { namespace: 'n-a' }],
    ['by a tag', { tags: { team: 'a' } }],
    ['by two tags', { tags: { team: 'a', size: 'big' } }],
    ['by a tag named like a property of Object.prototype', { tags: { toString: 'x' } }],
    ['by a kind', { kind: 'k-b' }],
    ['by a lane', { lane: 'l-a' }],
    ['by kind and lane', { kind: 'k-c', lane: 'l-b' }],
    ['by an execution', { executionId: id(5) }],
    ['by an execution and its partition among others', { executionId: id(4), partitions: [7, 0] }],
    ['by a flow', { flowId: flow(1) }],
    ['by a flow and a family', { flowId: flow(0), families: ['lease', 'completion'] }],
    ['by one partition', { partitions: [7] }],
    ['by some partitions', { partitions: [0, 255] }],
    ['by all partitions', { partitions: Array.from({ length: 256 }, (_, number) => number) }],
  ])('%s finds what matches, in the database and over shared rows', async (_, filter) => {
    expect(await expectSame(filter)).toBeGreaterThan(0);
  });

  it.each<[string, EventsFilter]>([
    ['a value under another key', { tags: { team: 'big' } }],
    ['a key of Object.prototype', { tags: { constructor: 'x' } }],
    ['a kind that is not used', { kind: 'k-z' }],
    ['a kind in a lane it is not in', { kind: 'k-a', lane: 'default' }],
    ['an execution with the wrong partition', { executionId: elsewhere(5) }],
    ['an execution that is not in the partitions', { executionId: id(4), partitions: [0, 255] }],
    ['a flow with the wrong partition', { flowId: elsewhere(1_001) }],
    ['an execution and a flow of two partitions', { executionId: id(4), flowId: flow(0) }],
    ['an empty partition', { partitions: [8] }],
    ['a type that does not occur in its namespace', { namespace: 'n-a', types: ['registered'] }],
  ])('for %s finds nothing, in the database and over shared rows', async (_, filter) => {
    expect(await expectSame(filter)).toBe(0);
  });

  it('of any kind finds the same in the database and over shared rows', async () => {
    const some = <Value>(values: readonly Value[]) =>
      fc.uniqueArray(fc.constantFrom(...values), { minLength: 1, maxLength: 3 });
    const filters = fc.record(
      {
        families: some(FAMILIES),
        types: some(Object.values(TYPES).flat() as string[]),
        namespace: fc.constantFrom(...NAMESPACES),
        kind: fc.constantFrom(...KINDS),
        lane: fc.constantFrom(...LANES),
        executionId: fc.integer({ min: 0, max: 17 }).map(id),
        flowId: fc.integer({ min: 0, max: 2 }).map(flow),
        partitions: some([...PARTITIONS, 8]),
        tags: fc.constantFrom(...TAGS.slice(1)),
      },
      { requiredKeys: [] },
    );
    const legal = filters.filter(({ families, types }) => {
      const known: string[] = (families ?? FAMILIES).flatMap((family) => [...TYPES[family]]);
      return types === undefined || types.every((type) => known.includes(type));
    });
    await fc.assert(
      fc.asyncProperty(legal, async (filter) => void (await expectSame(filter))),
      { numRuns: 150 },
    );
  });
});

describe('a page', () => {
  it('examines a fixed number of events and the rest of their row, and returns how far it got, whether they match or not', async () => {
    const filter = storedFilter({ namespace: 'n-b' }, null);
    const { rows: packs } = await bench.database.query<{ end: number }>(
      'SELECT sum(n) OVER (ORDER BY ev_id)::int AS end FROM ff_event_pack ORDER BY ev_id',
    );
    const ends = packs.map(({ end }) => end);
    const found: bigint[] = [];
    let after = 0n;
    for (;;) {
      const page = await readEvents(context.database, after, { examined: 7, limit: EVENTS }, filter);
      expect(page.found).toBe(page.expected);
      if (page.to === after) break;
      const beyond = Math.min(Number(after) + 7, EVENTS);
      expect(Number(page.to)).toBe(ends.find((end) => end >= beyond));
      found.push(...idsOf(page.rows));
      after = page.to;
    }
    expect(found).toEqual(idsOf(rows.filter(({ namespace }) => namespace === 'n-b')));
  });

  it('after page is what a subscription with the filter yields', async () => {
    const stored = storedFilter({ types: ['lost'] }, ['worker']);
    const expected = rows.filter((row) => matches(stored, row)).length;
    const subscription = await bench.engine.events.subscribe({
      from: 'beginning',
      filter: { families: ['worker'], types: ['lost'] },
    });
    const told = await take(subscription, expected);
    expect(told.map(({ position }) => position)).toEqual(idsOf(rows.filter((row) => matches(stored, row))));
    await subscription.close();
  });
});
