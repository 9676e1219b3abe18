/**
 * Shapes: what they take, what they refuse, and in which words; and that a declaration which does not fit its interface does not
 * compile.
 */
import { uuidString } from '../ids.ts';
import { describe, expect, it } from 'vitest';
import { isEngineError } from '../errors.ts';
import {
  abortSignal,
  anyString,
  asciiName,
  choice,
  flag,
  func,
  list,
  number,
  parsed,
  refusedAs,
  string,
  stringOr,
  whole,
} from './kinds.ts';
import { fault, faultAt, openShape, shape, variants, type Kind } from './shape.ts';

interface Order {
  name: string;
  count?: number;
  mode?: 'fast' | 'slow';
  lines?: readonly { text: string }[];
}

const order = shape<Order>({
  name: asciiName(8),
  count: whole(0, 9).optional(),
  mode: choice(['fast', 'slow']).optional(),
  lines: list(shape<{ text: string }>({ text: string(4) }), 2).optional(),
});

function refusal(check: () => unknown): { code: string; field: string | undefined; message: string } {
  try {
    check();
  } catch (error) {
    if (!isEngineError(error)) throw error;
    const { code, field, message } = error;
    return { code, field, message };
  }
  throw new Error('It was taken.');
}

function sentence(kind: Kind<unknown, never> | object, value: unknown): string {
  return refusal(() => (kind as Kind<unknown>).check(value, 'it')).message;
}

describe('a shape', () => {
  it('answers what it was given, and not a copy', () => {
    const given: Order = { name: 'n', count: 3, mode: 'slow', lines: [{ text: 'a' }] };
    expect(order.check(given, 'order')).toBe(given);
    expect(order.check({ name: 'n', count: undefined }, 'order')).toEqual({ name: 'n' });
  });

  it.each<[string, unknown, string, string]>([
    ['nothing', undefined, 'order', 'order must be an object.'],
    ['null', null, 'order', 'order must be an object.'],
    ['a list', [], 'order', 'order must be an object.'],
    [
      'an unknown key',
      { name: 'n', kount: 3 },
      'order.kount',
      'order.kount is not a known setting (known: name, count, mode, lines).',
    ],
    [
      'a key of every object',
      JSON.parse('{"name": "n", "__proto__": 1}'),
      'order.__proto__',
      'order.__proto__ is not a known setting (known: name, count, mode, lines).',
    ],
    ['a missing key', {}, 'order.name', 'order.name must be a string of 1 to 8 printable ASCII characters.'],
    [
      'null for an optional key',
      { name: 'n', count: null },
      'order.count',
      'order.count must be a whole number from 0 to 9.',
    ],
    [
      'an item deep inside',
      { name: 'n', lines: [{ text: 'a' }, { text: '' }] },
      'order.lines[1].text',
      'order.lines[1].text must be a string of 1 to 4 bytes without NUL.',
    ],
  ])('refuses %s', (_, value, field, message) => {
    expect(refusal(() => order.check(value, 'order'))).toEqual({ code: 'invalid_input', field, message });
  });

  it('may leave its own name out of the names of its fields, but not out of that of an unknown key', () => {
    expect(refusal(() => order.check({ name: '' }, 'request', '')).field).toBe('name');
    expect(refusal(() => order.check({ name: 'n', odd: 1 }, 'request', '')).field).toBe('request.odd');
    expect(refusal(() => order.check(5, 'request', '')).field).toBe('request');
  });

  it('can look at the keys alone', () => {
    order.checkKeys({ name: 5 }, 'order');
    expect(refusal(() => order.checkKeys({ odd: 5 }, 'order')).field).toBe('order.odd');
  });

  it('reads what is inherited, as whatever uses it does', () => {
    class Inherited {
      get name(): string {
        return 'n';
      }
    }
    order.check(new Inherited(), 'order');
    expect(refusal(() => order.check(Object.create({ name: '' }), 'order')).field).toBe('order.name');
  });

  it('lets pass what a getter throws', () => {
    const thrown = new Error('thrown by a getter');
    const given = Object.defineProperty({}, 'name', {
      enumerable: true,
      get() {
        throw thrown;
      },
    });
    expect(() => order.check(given, 'order')).toThrow(thrown);
  });

  it('may be open: more keys than are read', () => {
    openShape<{ name: string }>({ name: asciiName(8) }).check({ name: 'n', more: 1 }, 'order');
  });

  it('may have rules about several keys, which are asked last', () => {
    const ruled = order.and(({ mode, count }) =>
      mode === 'fast' && count === undefined
        ? faultAt('.count', fault('must be given', 'invalid_policy'))
        : undefined,
    );
    ruled.check({ name: 'n', mode: 'fast', count: 1 }, 'order');
    expect(refusal(() => ruled.check({ name: 'n', mode: 'fast' }, 'order'))).toEqual({
      code: 'invalid_policy',
      field: 'order.count',
      message: 'order.count must be given.',
    });
    expect(refusal(() => ruled.check({ name: 'n', mode: 'fast', odd: 1 }, 'order')).field).toBe('order.odd');
  });

  it('may be refused with another code', () => {
    const policy = refusedAs('invalid_policy', order);
    expect(refusal(() => policy.check({ odd: 1 }, 'policy')).code).toBe('invalid_policy');
  });
});

describe('variants', () => {
  type Wait = { kind: 'time'; ms: number } | { kind: 'name'; name: string };
  const wait = variants<Wait, 'kind'>('kind', {
    time: shape<Extract<Wait, { kind: 'time' }>>({ kind: choice(['time']), ms: whole(0, 9) }),
    name: shape<Extract<Wait, { kind: 'name' }>>({ kind: choice(['name']), name: asciiName(8) }),
  });

  it('are told apart by one key', () => {
    wait.check({ kind: 'time', ms: 3 }, 'wait');
    wait.check({ kind: 'name', name: 'n' }, 'wait');
    expect(refusal(() => wait.check({ kind: 'time', name: 'n' }, 'wait')).field).toBe('wait.name');
  });

  it.each([undefined, null, 5, {}, { kind: 'toString' }, { kind: 5 }])('refuse %j by that key', (value) => {
    expect(refusal(() => wait.check(value, 'wait'))).toEqual({
      code: 'invalid_input',
      field: 'wait.kind',
      message: 'wait.kind must be one of time, name.',
    });
  });
});

describe('kinds', () => {
  it.each<[string, object, readonly unknown[], readonly unknown[], string]>([
    [
      'string',
      string(4),
      ['a', 'abcd', 'üü', '😀'],
      ['', 'abcde', 'üüü', 'a\u0000', 5, null, undefined],
      'it must be a string of 1 to 4 bytes without NUL.',
    ],
    [
      'string that may be empty',
      string(4, 0),
      [''],
      [null],
      'it must be a string of 0 to 4 bytes without NUL.',
    ],
    [
      'half a pair',
      string(9),
      ['😀'],
      ['a\uD83D', '\uDE00'],
      'it contains half of a surrogate pair, which is not valid text.',
    ],
    [
      'asciiName',
      asciiName(4),
      ['a', ' ~', 'abcd'],
      ['', 'abcde', 'ü', 'a\n', 5],
      'it must be a string of 1 to 4 printable ASCII characters.',
    ],
    [
      'whole',
      whole(-1, 3),
      [-1, -0, 3],
      [-2, 4, 1.5, Number.NaN, Infinity, '1', 1n, null, undefined],
      'it must be a whole number from -1 to 3.',
    ],
    [
      'number',
      number(0, 1),
      [0, 0.5, 1],
      [-0.1, 1.1, Number.NaN, '0', null],
      'it must be a number from 0 to 1.',
    ],
    ['flag', flag, [true, false], [0, 'true', null], 'it must be true or false.'],
    ['anyString', anyString, ['', '\u0000'], [5, null, Object('a')], 'it must be a string.'],
    ['func', func, [() => 1], [{}, null], 'it must be a function.'],
    ['choice', choice(['a', 'b']), ['a', 'b'], ['c', '', 5, null, 'toString'], 'it must be one of a, b.'],
    [
      'uuid',
      uuidString,
      ['018f0000-0000-7000-8000-000000000001'],
      ['018F0000-0000-7000-8000-000000000001', '', 5, { toString: () => 'x' }],
      'it must be a UUID.',
    ],
    [
      'abortSignal',
      abortSignal,
      [new AbortController().signal],
      [new AbortController(), {}, null, 'x'],
      'it must be an AbortSignal.',
    ],
    ['list', list(flag, 2), [[], [true]], [{}, 'ab', null, { length: 1 }], 'it must be a list.'],
    ['list that is not empty', list(flag, 2, 1), [[true]], [[]], 'it must not be empty.'],
    [
      'string or list',
      stringOr(asciiName(2), list(flag, 2)),
      ['a', [true]],
      ['abc'],
      'it must be a string of 1 to 2 printable ASCII characters.',
    ],
  ])('%s', (_, kind, good, bad, message) => {
    for (const value of good) expect((kind as Kind<unknown>).check(value, 'it')).toBe(value);
    for (const value of bad) expect(sentence(kind, value)).toBe(message);
  });

  it('lists name what is wrong by its place, holes too', () => {
    const holed: boolean[] = [];
    holed[1] = true;
    expect(refusal(() => list(flag, 3).check(holed, 'it'))).toMatchObject({
      field: 'it[0]',
      message: 'it[0] is missing.',
    });
    expect(refusal(() => list(flag, 3).check([true, 5], 'it')).field).toBe('it[1]');
    expect(refusal(() => list(parsed, 1).check([1, 2], 'it'))).toEqual({
      code: 'too_many',
      field: 'it',
      message: 'it has 2 entries; the limit is 1.',
    });
  });
});

describe('a declaration', () => {
  it('has every key of its interface and no other, each of its own kind', () => {
    // @ts-expect-error -- a key is missing
    shape<{ a: string; b?: number }>({ a: anyString });
    // @ts-expect-error -- a key too many
    shape<{ a: string }>({ a: anyString, b: flag });
    // @ts-expect-error -- of another kind
    shape<{ a: string }>({ a: flag });
    // @ts-expect-error -- must be optional
    shape<{ a?: string }>({ a: anyString });
    // @ts-expect-error -- must not be optional
    shape<{ a: string }>({ a: anyString.optional() });
    // @ts-expect-error -- fewer words than there are
    shape<{ a: 'on' | 'off' }>({ a: choice(['on']) });
    // @ts-expect-error -- more words than there are
    shape<{ a: 'on' }>({ a: choice(['on', 'off']) });
    shape<{ a: string; b?: () => void; c: string[] }>({
      a: parsed,
      b: func.optional(),
      c: list(anyString, 9),
    });
  });
});
