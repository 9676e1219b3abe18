/**
 * Malformed cursors, filters and options of the event feed, and positions that never existed: refused with a code, the
 * field and a sentence, before anything is written.
 */
import { describe, it } from 'vitest';
import { encodeCursor, EVENT_FAMILIES, LIMITS, type ErrorCode } from '../../../src/index.ts';
import { useBench } from '../../conformance/open.ts';
import { expectRefused, UNSTORABLE, type Values } from '../refused.ts';

const bench = useBench();

interface Trial {
  title: string;
  call: (value: unknown) => unknown;
  code?: ErrorCode;
  field: string;
  says?: RegExp;
  values: Values;
}

type Subscribe = 'subscribe' | 'subscribeLeaseHistory' | 'subscribeCompletions';
const SUBSCRIBES: readonly Subscribe[] = ['subscribe', 'subscribeLeaseHistory', 'subscribeCompletions'];

const handler = async (): Promise<void> => {};
const consuming = (member: string) => (value: unknown) =>
  bench.engine.events.consume('c', handler, { [member]: value });
const filtering = (member: string, others: object = {}) => {
  return (value: unknown) => bench.engine.events.subscribe({ filter: { ...others, [member]: value } });
};
const tagging = (key: string) => (value: unknown) => filtering('tags')({ [key]: value });

const TEXTS: Values = { empty: '', 'a number': 5, null: null, ...UNSTORABLE };
const NO_OBJECTS: Values = { null: null, text: 'x', 'a list': [] };
const NO_FUNCTIONS: Values = { null: null, text: 'x', 'an object': {} };
const bytes = (...list: number[]): string => Buffer.from(list).toString('base64url');
const EIGHT = [0, 0, 0, 0, 0, 0, 0, 1];

const CURSORS: Values = {
  short: bytes(2, ...EIGHT.slice(1)),
  long: bytes(2, ...EIGHT, 0),
  'short, as bytes': Uint8Array.from([2, 1]),
  'of another kind': bytes(1, ...EIGHT),
  'of another kind, as bytes': Uint8Array.from([1, ...EIGHT]),
  negative: bytes(2, ...EIGHT.map(() => 255)),
  'not base64url': '!',
  'padded base64': `${encodeCursor(1n)}==`,
  'an unknown word': 'end',
  'a known word in capitals': 'NOW',
  'a position': 5n,
  'a number': 5,
  null: null,
};

const WHO: [string, (options: unknown) => unknown][] = [
  ...SUBSCRIBES.map((verb): [string, (options: unknown) => unknown] => [
    verb,
    (options) => bench.engine.events[verb](options as never),
  ]),
  ['consume', (options) => bench.engine.events.consume('c', handler, options as never)],
];

/** The same for every call that starts at a position. */
const EVERYWHERE: Trial[] = WHO.flatMap(([verb, call]): Trial[] => [
  { title: `${verb}: options`, call, field: 'options', values: NO_OBJECTS },
  {
    title: `${verb}: an unknown option`,
    call: (since) => call({ since }),
    field: 'options.since',
    values: { any: 1 },
  },
  {
    title: `${verb}: from`,
    call: (from) => call({ from }),
    code: 'invalid_cursor',
    field: 'from',
    values: CURSORS,
  },
  { title: `${verb}: filter`, call: (filter) => call({ filter }), field: 'filter', values: NO_OBJECTS },
  {
    title: `${verb}: an unknown condition`,
    call: (filter) => call({ filter }),
    field: 'filter.flow',
    says: /known: namespace, tags/,
    values: { any: { flow: 'x' } },
  },
  {
    title: `${verb}: signal`,
    call: (signal) => call({ signal }),
    field: 'signal',
    values: { null: null, text: 'x', 'a controller': new AbortController() },
  },
]);

const LISTS: Trial[] = [
  {
    title: 'families',
    call: filtering('families'),
    field: 'filter.families',
    values: { none: [], text: 'lease', null: null },
  },
  {
    title: 'too many families',
    call: filtering('families'),
    code: 'too_many',
    field: 'filter.families',
    values: { together: Array.from({ length: EVENT_FAMILIES.length + 1 }, () => 'lease') },
  },
  {
    title: 'one of the families',
    call: (value) => filtering('families')(['lease', value]),
    field: 'filter.families[1]',
    says: /must be one of lease, completion, signal, operator, flow, tag, worker, execution/,
    values: { unknown: 'leases', 'of every object': 'toString', 'a number': 1, null: null },
  },
  {
    title: 'a hole among the families',
    call: filtering('families'),
    field: 'filter.families[0]',
    values: { alone: Array(1) },
  },
  ...(['subscribeLeaseHistory', 'subscribeCompletions'] as const).map((verb): Trial => ({
    title: `${verb}: families, which it sets itself`,
    call: (families) => bench.engine.events[verb]({ filter: { families } as never }),
    field: 'filter.families',
    values: { 'its own': ['lease'], another: ['worker'], undefined },
  })),
  {
    title: 'types',
    call: filtering('types'),
    field: 'filter.types',
    values: { none: [], text: 'success', null: null },
  },
  {
    title: 'too many types',
    call: filtering('types'),
    code: 'too_many',
    field: 'filter.types',
    values: { together: Array.from({ length: 100 }, () => 'success') },
  },
  {
    title: 'one of the types',
    call: (value) => filtering('types')(['success', value]),
    field: 'filter.types[1]',
    says: /must be one of acquired, .*success, .*priority_changed, .*tags_changed, registered/,
    values: {
      unknown: 'done',
      'a family': 'lease',
      'a property of Object.prototype': 'toString',
      'a number': 1,
      null: null,
    },
  },
  {
    title: 'a type of another family',
    call: filtering('types', { families: ['tag', 'worker'] }),
    field: 'filter.types[0]',
    says: /must be one of tags_changed, registered, stopped, lost\./,
    values: { success: ['success'] },
  },
  {
    title: 'a type of completions among leases',
    call: (types) => bench.engine.events.subscribeLeaseHistory({ filter: { types } as never }),
    field: 'filter.types[0]',
    says: /must be one of acquired, renewed, expired, reclaimed, revoked, released\./,
    values: { success: ['success'] },
  },
  {
    title: 'a type of completions among flows',
    call: filtering('types', { families: ['flow'] }),
    field: 'filter.types[0]',
    says: /must be one of submitted, cancel_requested, completed, failed, cancelled, reopened\./,
    values: { success: ['success'] },
  },
  {
    title: 'partitions',
    call: filtering('partitions'),
    field: 'filter.partitions',
    values: { none: [], 'a number': 5, null: null },
  },
  {
    title: 'too many partitions',
    call: filtering('partitions'),
    code: 'too_many',
    field: 'filter.partitions',
    values: { together: Array.from({ length: 257 }, () => 0) },
  },
  {
    title: 'one of the partitions',
    call: (value) => filtering('partitions')([0, value]),
    field: 'filter.partitions[1]',
    values: { negative: -1, 'too high': 256, 'a fraction': 1.5, text: '1', NaN: Number.NaN, null: null },
  },
  {
    title: 'a hole among the partitions',
    call: filtering('partitions'),
    field: 'filter.partitions[0]',
    values: { alone: Array(1) },
  },
];

const CONDITIONS: Trial[] = [
  {
    title: 'namespace',
    call: filtering('namespace'),
    field: 'filter.namespace',
    values: { ...TEXTS, 'too long': 'n'.repeat(LIMITS.namespaceBytes + 1) },
  },
  {
    title: 'lane',
    call: filtering('lane'),
    field: 'filter.lane',
    values: { ...TEXTS, 'not ASCII': 'ü', 'too long': 'l'.repeat(LIMITS.laneBytes + 1) },
  },
  {
    title: 'kind',
    call: filtering('kind'),
    field: 'filter.kind',
    values: { ...TEXTS, 'not ASCII': 'ü', 'too long': 'k'.repeat(LIMITS.kindBytes + 1) },
  },
  ...(['executionId', 'flowId'] as const).map((member): Trial => ({
    title: member,
    call: filtering(member),
    code: 'invalid_id',
    field: `filter.${member}`,
    values: { null: null, text: 'x', 'a bare uuid': '018f0000-0000-7000-8000-000000000001' },
  })),
  { title: 'tags', call: filtering('tags'), field: 'filter.tags', values: { ...NO_OBJECTS, none: {} } },
  {
    title: 'too many tags',
    call: filtering('tags'),
    code: 'too_many',
    field: 'filter.tags',
    values: {
      together: Object.fromEntries(Array.from({ length: LIMITS.filterTerms + 1 }, (_, n) => [`t${n}`, ''])),
    },
  },
  {
    title: 'the value of a tag',
    call: tagging('team'),
    field: 'filter.tags.team',
    values: { 'a number': 1, null: null, 'too long': 'v'.repeat(LIMITS.tagValueBytes + 1), ...UNSTORABLE },
  },
  {
    title: 'the key of a tag',
    call: (value) => tagging(value as string)('x'),
    field: 'filter.tags (a key)',
    values: { empty: '', 'too long': 'k'.repeat(LIMITS.tagKeyBytes + 1), ...UNSTORABLE },
  },
];

const NAMES: Values = { ...TEXTS, 'not ASCII': 'ü', 'too long': 'c'.repeat(LIMITS.consumerNameBytes + 1) };
const CONSUMERS: Trial[] = [
  {
    title: 'consume: name',
    call: (name) => bench.engine.events.consume(name as never, handler),
    field: 'name',
    values: NAMES,
  },
  {
    title: 'consumers.forget: name',
    call: (name) => bench.engine.consumers.forget(name as never),
    field: 'name',
    values: NAMES,
  },
  {
    title: 'consume: handler',
    call: (value) => bench.engine.events.consume('c', value as never),
    field: 'handler',
    values: { ...NO_FUNCTIONS, missing: undefined },
  },
  { title: 'consume: transact', call: consuming('transact'), field: 'transact', values: NO_FUNCTIONS },
  { title: 'consume: onError', call: consuming('onError'), field: 'onError', values: NO_FUNCTIONS },
  {
    title: 'consume: batch',
    call: consuming('batch'),
    field: 'batch',
    values: { none: 0, 'too many': LIMITS.consumerBatch + 1, 'a fraction': 1.5, text: '5', null: null },
  },
];

/** Well-formed, but nothing was ever there. */
const AHEAD: Trial[] = WHO.map(([verb, call]) => ({
  title: `${verb}: a position beyond the last event`,
  call: (from) => call({ from }),
  code: 'cursor_ahead' as const,
  field: 'from',
  values: {
    'by far': encodeCursor(1_000_000n),
    'as bytes': Buffer.from(encodeCursor(1_000_000n), 'base64url'),
    'beyond the safe integers': encodeCursor(2n ** 53n + 1n),
    'the highest possible': encodeCursor(2n ** 63n - 1n),
  },
}));

for (const trial of [...EVERYWHERE, ...LISTS, ...CONDITIONS, ...CONSUMERS, ...AHEAD]) {
  const { title, call, code = 'invalid_input', field, says, values } = trial;
  describe(title, () => {
    it.each(Object.keys(values))('%s', (name) =>
      expectRefused(bench.database, () => call(values[name]), {
        code,
        field,
        ...(says === undefined ? {} : { says }),
      }),
    );
  });
}

describe('a position beyond the last event', () => {
  it.each([2n ** 53n + 1n, 2n ** 63n - 1n])('is reported to the last digit: %d', (position) =>
    expectRefused(bench.database, () => bench.engine.events.subscribe({ from: encodeCursor(position) }), {
      code: 'cursor_ahead',
      field: 'from',
      says: new RegExp(`position ${position} `),
    }),
  );
});
