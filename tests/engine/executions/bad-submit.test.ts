/**
 * Malformed submits: refused with a code, the field and a sentence, before anything is written.
 */
import { describe, expect, it } from 'vitest';
import { LIMITS, type ErrorCode, type SubmitRequest } from '../../../src/index.ts';
import { newKind, useBench } from '../../conformance/open.ts';
import { expectRefused, rowCounts, UNSTORABLE, type Values } from '../refused.ts';

const bench = useBench();
const UUID = '018f0000-0000-7000-8000-000000000001';

function nested(levels: number): unknown {
  let value: unknown = 1;
  for (let level = 0; level < levels; level += 1) value = level % 2 === 0 ? [value] : { in: value };
  return value;
}

function cyclic(): unknown {
  const value: { self?: unknown } = {};
  value.self = { list: [value] };
  return value;
}

/** Skipped by every loop over the list, and null in its JSON. */
function withHole(): unknown {
  const list = [1];
  list.length = 2;
  return list;
}

const FLAWED_DURATIONS: Values = {
  NaN: Number.NaN,
  Infinity: Number.POSITIVE_INFINITY,
  'a negative number': -1,
  'a number as a string': '5',
  'a BigInt': 5n,
};
const FLAWED_NUMBERS: Values = { ...FLAWED_DURATIONS, 'a fraction': 1.5 };

/** Every value of a field that must be refused. */
function refuses(member: keyof SubmitRequest, code: ErrorCode, values: Values, says?: RegExp): void {
  describe(`a submit is refused when its ${member} is`, () => {
    for (const [name, value] of Object.entries(values)) {
      it(name, async () => {
        const request = { kind: newKind(), [member]: value } as SubmitRequest;
        await expectRefused(bench.database, () => bench.engine.executions.submit(request), {
          code,
          field: expect.stringMatching(new RegExp(`^request\\.${member}`)) as unknown as string,
          ...(says === undefined ? {} : { says }),
        });
      });
    }
  });
}

refuses('executionId', 'invalid_id', {
  'not an id': 'abc',
  empty: '',
  'a bare uuid': UUID,
  'in no partition': `{fp:}:${UUID}`,
  'in a partition beyond the last': `{fp:256}:${UUID}`,
  'in a negative partition': `{fp:-1}:${UUID}`,
  'in a partition with a leading zero': `{fp:01}:${UUID}`,
  'in a partition with a blank': `{fp: 1}:${UUID}`,
  'without its separator': `{fp:1}${UUID}`,
  'in upper case': `{fp:1}:${UUID.replace('018f', '018F')}`,
  'followed by a blank': `{fp:1}:${UUID} `,
  'without its dashes': `{fp:1}:${UUID.replaceAll('-', '')}`,
  'a number': 5,
  'an object': {},
});

refuses('payload', 'invalid_input', {
  NaN: Number.NaN,
  Infinity: Number.POSITIVE_INFINITY,
  'minus Infinity deep inside': { a: [{ b: Number.NEGATIVE_INFINITY }] },
  'undefined in a list': [1, undefined],
  'a list with a hole': withHole(),
  'a function': () => 1,
  'a function in a property': { f: () => 1 },
  'a symbol': Symbol('s'),
  'a BigInt': 5n,
  'a BigInt in a list': [5n],
  cyclic: cyclic(),
  'nested too deep': nested(LIMITS.jsonDepth + 1),
  'a Map, which JSON would drop': new Map([['a', 1]]),
  'a Set, which JSON would drop': { tags: new Set(['a']) },
  ...Object.fromEntries(
    Object.entries(UNSTORABLE).flatMap(([name, text]) => [
      [`text with ${name}`, text],
      [`a list of text with ${name}`, [text]],
      [`an object with a key with ${name}`, { [text as string]: 1 }],
      [`an object with a deep key with ${name}`, { a: [{ [text as string]: 1 }] }],
    ]),
  ),
});

refuses('priority', 'invalid_input', { ...FLAWED_NUMBERS, 'beyond the largest': LIMITS.priority + 1 });
refuses('delay', 'invalid_input', {
  ...FLAWED_DURATIONS,
  'beyond ten years': LIMITS.delayMs + 1,
  'beyond the safe integers': 2 ** 60,
});

const BAD_NAMES: Values = {
  empty: '',
  'not ASCII': 'ünï',
  'with a tab': 'a\tb',
  'a number': 5,
  ...UNSTORABLE,
};
refuses('kind', 'invalid_input', {
  missing: undefined,
  ...BAD_NAMES,
  'too long': 'k'.repeat(LIMITS.kindBytes + 1),
});
refuses('lane', 'invalid_input', { ...BAD_NAMES, 'too long': 'l'.repeat(LIMITS.laneBytes + 1) });
refuses('namespace', 'invalid_input', {
  empty: '',
  'a number': 5,
  'too long': 'ü'.repeat(LIMITS.namespaceBytes / 2 + 1),
  ...UNSTORABLE,
});

refuses('tags', 'invalid_input', {
  text: 'x',
  'a list': ['x'],
  'without a name': { '': 'x' },
  'with a long name': { ['k'.repeat(LIMITS.tagKeyBytes + 1)]: 'x' },
  'with a long value': { a: 'v'.repeat(LIMITS.tagValueBytes + 1) },
  'a number': { a: 5 },
  nothing: { a: null },
  ...Object.fromEntries(
    Object.entries(UNSTORABLE).flatMap(([name, text]) => [
      [`named with ${name}`, { [text as string]: 'x' }],
      [`valued with ${name}`, { a: text }],
    ]),
  ),
});
refuses('tags', 'too_many', {
  'more than the limit': Object.fromEntries(Array.from({ length: LIMITS.tags + 1 }, (_, i) => [`t${i}`, ''])),
});

refuses('capabilities', 'invalid_capabilities', {
  text: 'gpu',
  'a number': [5],
  empty: [''],
  'with a blank': ['a b'],
  'with a comma': ['a,b'],
  'with a tab': ['a\tb'],
  'with a line feed': ['a\n'],
  'with a control character': ['a\u007F'],
  'more than the limit': Array.from({ length: 257 }, (_, index) => `c${index}`),
  'too long together': Array.from({ length: 100 }, (_, index) => `${index}`.padStart(41, 'c')),
  ...Object.fromEntries(Object.entries(UNSTORABLE).map(([name, text]) => [`with ${name}`, [text]])),
});

const backoff = (value: unknown) => ({ retry: { maxRetries: 1, backoff: value } });
const exponential = (more: object) => backoff({ type: 'exponential', ...more });
refuses('policy', 'invalid_policy', {
  text: 'none',
  'a number': 3,
  'a list': [],
  null: null,
  'an unknown key': { retries: 3 },
  'retry: text': { retry: 'often' },
  'retry: null': { retry: null },
  'retry: a list': { retry: [] },
  'retry: an unknown key': { retry: { max_retries: 3 } },
  'retry: without maxRetries': { retry: {} },
  ...Object.fromEntries(
    Object.entries(FLAWED_NUMBERS).flatMap(([name, value]) => [
      [`maxRetries: ${name}`, { retry: { maxRetries: value } }],
      [`maxReclaims: ${name}`, { maxReclaims: value }],
    ]),
  ),
  ...Object.fromEntries(
    Object.entries(FLAWED_DURATIONS).flatMap(([name, value]) => [
      [`fixed delay: ${name}`, backoff({ type: 'fixed', delay: value })],
      [`initialDelay: ${name}`, exponential({ initialDelay: value })],
      [`maxDelay: ${name}`, exponential({ maxDelay: value })],
      [`deadline: ${name}`, { deadline: value }],
      [`attemptTimeout: ${name}`, { attemptTimeout: value }],
      [`dedupWindow: ${name}`, { dedupWindow: value }],
      [`retention: ${name}`, { retention: value }],
    ]),
  ),
  'maxRetries: too many': { retry: { maxRetries: LIMITS.maxRetries + 1 } },
  'maxReclaims: too many': { maxReclaims: LIMITS.maxReclaims + 1 },
  'backoff: null': backoff(null),
  'backoff: text': backoff('fixed'),
  'backoff: an unknown type': backoff({ type: 'linear' }),
  'backoff: fixed without a delay': backoff({ type: 'fixed' }),
  'backoff: fixed with a key of exponential': backoff({ type: 'fixed', delay: 1, multiplier: 2 }),
  'backoff: exponential with a key of fixed': exponential({ delay: 1 }),
  'backoff: the largest delay below the first': exponential({ initialDelay: 10, maxDelay: 9 }),
  'backoff: a delay beyond ten years': exponential({ maxDelay: LIMITS.delayMs + 1 }),
  'multiplier: below one': exponential({ multiplier: 0.99 }),
  'multiplier: too large': exponential({ multiplier: LIMITS.multiplier + 1 }),
  'multiplier: NaN': exponential({ multiplier: Number.NaN }),
  'multiplier: text': exponential({ multiplier: '2' }),
  'jitter: text': exponential({ jitter: 'yes' }),
  'retryableCategories: text': { retry: { maxRetries: 1, retryableCategories: 'timeout' } },
  ...Object.fromEntries(
    Object.entries({ empty: '', 'a number': 5, 'too long': 'c'.repeat(129), ...UNSTORABLE }).map(
      ([name, value]) => [
        `a category: ${name}`,
        { retry: { maxRetries: 1, retryableCategories: ['timeout', value] } },
      ],
    ),
  ),
  'retryableCategories: too many': {
    retry: { maxRetries: 1, retryableCategories: Array.from({ length: 65 }, (_, index) => `c${index}`) },
  },
});

describe('a payload', () => {
  it('over the limit is refused, and the limit is named', async () => {
    const payload = 'x'.repeat(LIMITS.payloadBytes - 1);
    await expectRefused(bench.database, () => bench.engine.executions.submit({ kind: 'k', payload }), {
      code: 'payload_too_large',
      field: 'request.payload',
      says: /1048577 bytes.*limit is 1048576/,
    });
  });

  it('is measured in bytes, not characters', async () => {
    const payload = '€'.repeat(LIMITS.payloadBytes / 3 + 1);
    await expectRefused(bench.database, () => bench.engine.executions.submit({ kind: 'k', payload }), {
      code: 'payload_too_large',
      field: 'request.payload',
    });
  });

  it('at the limit, of size or depth, is accepted', async () => {
    const large = 'x'.repeat(LIMITS.payloadBytes - 2);
    expect((await bench.running({ payload: large })).payload).toBe(large);
    const deep = nested(LIMITS.jsonDepth);
    expect((await bench.running({ payload: deep })).payload).toEqual(deep);
  });

  it('names the exact path of the fault', async () => {
    const payload = { list: [1, { inner: [true, Number.NaN] }] };
    await expectRefused(
      bench.database,
      () => bench.engine.executions.submit([{ kind: 'k' }, { kind: 'k', payload }]),
      {
        code: 'invalid_input',
        field: 'requests[1].payload.list[1].inner[1]',
        says: /NaN/,
      },
    );
  });
});

describe('a call', () => {
  it('with one bad request writes none of them', async () => {
    const kind = newKind();
    const requests = Array.from({ length: 20 }, (_, index) => ({ kind, priority: index === 13 ? -1 : 1 }));
    await expectRefused(bench.database, () => bench.engine.executions.submit(requests), {
      code: 'invalid_input',
      field: 'requests[13].priority',
    });
  });

  it('of more than ten thousand is refused', async () => {
    const requests = Array.from({ length: LIMITS.submitBatch + 1 }, () => ({ kind: 'k' }));
    await expectRefused(bench.database, () => bench.engine.executions.submit(requests), {
      code: 'too_many',
      field: 'requests',
      says: /10001.*10000/,
    });
  });

  for (const [name, character] of Object.entries({ 'one byte': 'x', 'three bytes': '€' })) {
    it(`whose payloads are too large together is refused, with characters of ${name}`, async () => {
      const payload = character.repeat((LIMITS.payloadBytes - 4) / Buffer.byteLength(character));
      const requests = Array.from({ length: 65 }, () => ({ kind: 'k', payload }));
      await expectRefused(bench.database, () => bench.engine.executions.submit(requests), {
        code: 'payload_too_large',
        field: 'requests',
        says: /limit is 67108864/,
      });
    });
  }

  for (const [name, request] of Object.entries({
    nothing: undefined,
    null: null,
    text: 'x',
    'a number': 5,
  })) {
    it(`with ${name} for a request is refused`, async () => {
      const code = 'invalid_input' as const;
      await expectRefused(bench.database, () => bench.engine.executions.submit(request as never), {
        code,
        field: 'request',
      });
      const many = () => bench.engine.executions.submit([request as never]);
      await expectRefused(bench.database, many, { code, field: 'requests[0]' });
    });
  }
});

it('values exactly at the limits are accepted', async () => {
  const before = await rowCounts(bench.database);
  await bench.engine.executions.submit({
    kind: 'k'.repeat(LIMITS.kindBytes),
    lane: '~'.repeat(LIMITS.laneBytes),
    namespace: 'ü'.repeat(LIMITS.namespaceBytes / 2),
    priority: LIMITS.priority,
    delay: LIMITS.delayMs,
    capabilities: Array.from({ length: 256 }, (_, index) => `${index}`),
    tags: Object.fromEntries(
      Array.from({ length: LIMITS.tags }, (_, i) => [
        `${i}`.padEnd(LIMITS.tagKeyBytes),
        'v'.repeat(LIMITS.tagValueBytes),
      ]),
    ),
    policy: {
      maxReclaims: LIMITS.maxReclaims,
      retry: {
        maxRetries: LIMITS.maxRetries,
        backoff: {
          type: 'exponential',
          initialDelay: LIMITS.delayMs,
          maxDelay: LIMITS.delayMs,
          multiplier: LIMITS.multiplier,
        },
        retryableCategories: Array.from({ length: 64 }, (_, index) => `${index}`.padEnd(128, 'c')),
      },
    },
  });
  const after = await rowCounts(bench.database);
  expect(after['ff_execution']! - before['ff_execution']!).toBe(1);
});
