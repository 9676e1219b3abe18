/**
 * Malformed lists and bulk verbs: refused with a code, the field and a sentence, before anything is written.
 */
import { describe, expect, it } from 'vitest';
import type { BulkRequest, ExecutionFilter } from '../../../src/contract/operations.ts';
import { LIMITS, type ErrorCode } from '../../../src/index.ts';
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

const NUMBERS: Values = {
  'a fraction': 1.5,
  NaN: Number.NaN,
  Infinity,
  text: '5',
  'a BigInt': 5n,
  null: null,
};
const TEXTS: Values = { empty: '', 'a number': 5, null: null, ...UNSTORABLE };
const NO_OBJECTS: Values = { null: null, text: 'x', 'a list': [] };

const listing = (member: string) => (value: unknown) => bench.engine.executions.list({ [member]: value });
const filtering = (member: string, others: ExecutionFilter = {}) => {
  return (value: unknown) =>
    bench.engine.executions.list({ filter: { ...others, [member]: value } as never });
};
const tagging = (key: string) => (value: unknown) => filtering('tags')({ [key]: value });
const FAILED = { states: ['failed'] } as const;
const bulking = (member: string) => (value: unknown) => first({ ...CANCEL, [member]: value } as never);
const CANCEL = { verb: 'cancel', reason: 'why', filter: { kind: 'k' } } as const;

/** A bulk starts when its first chunk is requested. */
function first(request: BulkRequest): Promise<unknown> {
  return bench.engine.executions.bulk(request)[Symbol.asyncIterator]().next();
}

const many = (count: number): string[] => Array.from({ length: count }, (_, index) => `t${index}`);

const LISTS: Trial[] = [
  {
    title: 'list: request',
    call: (value) => bench.engine.executions.list(value as never),
    field: 'request',
    values: NO_OBJECTS,
  },
  {
    title: 'list: an unknown key',
    call: listing('order'),
    field: 'request.order',
    values: { any: 1 },
  },
  {
    title: 'list: limit',
    call: listing('limit'),
    field: 'limit',
    values: { ...NUMBERS, none: 0, 'too many': LIMITS.listPage + 1 },
  },
  { title: 'list: filter', call: listing('filter'), field: 'filter', values: NO_OBJECTS },
  {
    title: 'list: an unknown condition',
    call: filtering('flow'),
    field: 'filter.flow',
    says: /known: states, namespace/,
    values: { any: 'x' },
  },
  {
    title: 'list: states',
    call: filtering('states'),
    field: 'filter.states',
    values: { none: [], text: 'failed' },
  },
  {
    title: 'list: too many states',
    call: filtering('states'),
    code: 'too_many',
    field: 'filter.states',
    values: { together: Array.from({ length: LIMITS.filterTerms + 1 }, () => 'failed') },
  },
  {
    title: 'list: one of the states',
    call: (value) => filtering('states')(['failed', value]),
    field: 'filter.states[1]',
    values: {
      unknown: 'done',
      'of another kind': 'terminal',
      'a property of Object.prototype': 'toString',
      'a number': 1,
      null: null,
    },
  },
  {
    title: 'list: a state that does not occur yet',
    call: (value) => filtering('states')([value]),
    field: 'filter.states[0]',
    says: /a state that is not used yet/,
    values: { rate_limited: 'rate_limited' },
  },
  {
    title: 'list: namespace',
    call: filtering('namespace'),
    field: 'filter.namespace',
    values: { ...TEXTS, 'too long': 'n'.repeat(LIMITS.namespaceBytes + 1) },
  },
  {
    title: 'list: lane',
    call: filtering('lane'),
    field: 'filter.lane',
    values: { ...TEXTS, 'not ASCII': 'ü', 'too long': 'l'.repeat(LIMITS.laneBytes + 1) },
  },
  {
    title: 'list: kind',
    call: filtering('kind'),
    field: 'filter.kind',
    values: { ...TEXTS, 'not ASCII': 'ü', 'too long': 'k'.repeat(LIMITS.kindBytes + 1) },
  },
  {
    title: 'list: parentId',
    call: filtering('parentId'),
    code: 'invalid_id',
    field: 'filter.parentId',
    values: { null: null, text: 'x', 'a bare uuid': '018f0000-0000-7000-8000-000000000001' },
  },
];

const TAGS: Trial[] = [
  { title: 'list: tags', call: filtering('tags'), field: 'filter.tags', values: { ...NO_OBJECTS, none: {} } },
  {
    title: 'list: too many tags',
    call: filtering('tags'),
    code: 'too_many',
    field: 'filter.tags',
    values: { together: Object.fromEntries(many(LIMITS.filterTerms + 1).map((key) => [key, ''])) },
  },
  {
    title: 'list: the value of a tag',
    call: tagging('team'),
    field: 'filter.tags.team',
    values: { 'a number': 1, null: null, 'too long': 'v'.repeat(LIMITS.tagValueBytes + 1), ...UNSTORABLE },
  },
  {
    title: 'list: the key of a tag',
    call: (value) => tagging(value as string)('x'),
    field: 'filter.tags (a key)',
    values: { empty: '', 'too long': 'k'.repeat(LIMITS.tagKeyBytes + 1), ...UNSTORABLE },
  },
  {
    title: 'list: a tag of tracing',
    call: tagging('traceparent'),
    field: 'filter.tags.traceparent',
    says: /cannot be found by it/,
    values: { any: 'x' },
  },
];

const TIMES: Trial[] = (['createdFromMs', 'createdBeforeMs', 'endedFromMs', 'endedBeforeMs'] as const).map(
  (member) => ({
    title: `list: ${member}`,
    call: filtering(member, FAILED),
    field: `filter.${member}`,
    values: { ...NUMBERS, negative: -1, 'beyond what a number can count': 2 ** 53 },
  }),
);

const SPANS: Trial[] = [
  {
    title: 'list: a time of submission that ends before it starts',
    call: (value) => filtering('createdBeforeMs', { createdFromMs: 5 })(value),
    field: 'filter.createdBeforeMs',
    values: { earlier: 4, same: 5 },
  },
  {
    title: 'list: a finishing time that ends before it starts',
    call: (value) => filtering('endedBeforeMs', { ...FAILED, endedFromMs: 5 })(value),
    field: 'filter.endedBeforeMs',
    values: { earlier: 4, same: 5 },
  },
  ...(['endedFromMs', 'endedBeforeMs', 'failure'] as const).map((member): Trial => {
    const value = member === 'failure' ? { category: 'c' } : 5;
    return {
      title: `list: ${member} with states that are not terminal`,
      call: (states) => bench.engine.executions.list({ filter: { ...(states as object), [member]: value } }),
      field: `filter.${member}`,
      says: /requires terminal states only/,
      values: { 'no states': {}, 'one that is no end': { states: ['failed', 'waiting'] } },
    };
  }),
  {
    title: 'list: failure',
    call: filtering('failure', FAILED),
    field: 'filter.failure',
    values: { ...NO_OBJECTS, 'neither category nor part': {} },
  },
  {
    title: 'list: an unknown key of failure',
    call: filtering('failure', FAILED),
    field: 'filter.failure.message',
    values: { any: { message: 'x' } },
  },
  {
    title: 'list: category',
    call: (category) => filtering('failure', FAILED)({ category }),
    field: 'filter.failure.category',
    values: { ...TEXTS, 'too long': 'c'.repeat(LIMITS.categoryBytes + 1) },
  },
  {
    title: 'list: part of the message',
    call: (contains) => filtering('failure', FAILED)({ contains }),
    field: 'filter.failure.contains',
    values: { ...TEXTS, 'too long': 'm'.repeat(LIMITS.failureMessageBytes + 1) },
  },
];

const SOME_ID = '{fp:1}:018f0000-0000-7000-8000-000000000001';

const ATTEMPTS: Trial[] = [
  {
    title: 'listAttempts: executionId',
    call: (value) => bench.engine.executions.listAttempts(value as never),
    code: 'invalid_id',
    field: 'executionId',
    values: { missing: undefined, null: null, text: 'x' },
  },
  ...(['limit', 'before'] as const).map((member): Trial => ({
    title: `listAttempts: ${member}`,
    call: (value) => bench.engine.executions.listAttempts(SOME_ID, { [member]: value }),
    field: member,
    values: { ...NUMBERS, negative: -1, 'too many': 2 ** 32 },
  })),
];

const BULKS: Trial[] = [
  {
    title: 'bulk: request',
    call: (value) => first(value as never),
    field: 'verb',
    values: { missing: undefined, null: null },
  },
  {
    title: 'bulk: verb',
    call: bulking('verb'),
    field: 'verb',
    values: { unknown: 'delete', 'of every object': 'toString', null: null },
  },
  {
    title: 'bulk: an unknown key',
    call: bulking('limit'),
    field: 'request.limit',
    values: { any: 1 },
  },
  {
    title: 'bulk: a key of another verb',
    call: bulking('priority'),
    field: 'request.priority',
    values: { any: 1 },
  },
  {
    title: 'bulk: filter',
    call: bulking('filter'),
    field: 'filter',
    values: { ...NO_OBJECTS, missing: undefined, empty: {}, 'empty after all': { kind: undefined } },
  },
  {
    title: 'bulk: an unknown condition',
    call: bulking('filter'),
    field: 'filter.flow',
    values: { any: { flow: 'x' } },
  },
  {
    title: 'bulk: chunk',
    call: bulking('chunk'),
    field: 'chunk',
    values: { ...NUMBERS, none: 0, 'too many': LIMITS.bulkChunk + 1 },
  },
  {
    title: 'bulk: dryRun',
    call: bulking('dryRun'),
    field: 'dryRun',
    values: { 'a boolean': true, null: null },
  },
  {
    title: 'bulk: reason, also in a dry run',
    call: (reason) => first({ ...CANCEL, dryRun: 'on', reason } as never),
    field: 'reason',
    values: { ...TEXTS, missing: undefined },
  },
  {
    title: 'bulk: priority, also in a dry run',
    call: (priority) =>
      first({ verb: 'change_priority', filter: CANCEL.filter, dryRun: 'on', priority } as never),
    field: 'priority',
    values: { ...NUMBERS, negative: -1, 'too high': LIMITS.priority + 1, missing: undefined },
  },
];

const ALL = [...LISTS, ...TAGS, ...TIMES, ...SPANS, ...ATTEMPTS, ...BULKS];

for (const { title, call, code = 'invalid_input', field, says, values } of ALL) {
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

describe('a filter over terminal states', () => {
  it('must name a namespace where there are too many', async () => {
    await bench.database.query(
      `INSERT INTO ff_attempt_history (execution_id, lease_epoch, ended_at_ms, attempt_index, terminal_outcome, partition_key,
         namespace)
       SELECT gen_random_uuid(), 1, 1, 0, 'skipped', 0, 'n' || n FROM generate_series(1, 1001) n`,
    );
    await expectRefused(
      bench.database,
      () => bench.engine.executions.list({ filter: { states: ['skipped'] } }),
      {
        code: 'invalid_input',
        field: 'filter.namespace',
        says: /more than 1000 namespaces/,
      },
    );
    const named = await bench.engine.executions.list({ filter: { states: ['skipped'], namespace: 'n7' } });
    expect(named).toEqual({ executions: [], cursor: null });
  });
});
