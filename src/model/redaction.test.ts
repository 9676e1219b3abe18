/**
 * What is shown of a value: whatever a pointer covers is gone, and nothing else.
 */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Json } from '../contract/json.ts';
import { REDACTED } from '../contract/redaction.ts';
import { redactionKind, shownValue } from './redaction.ts';

describe('a redaction', () => {
  it.each<[string, Json, readonly string[], Json]>([
    [
      'a member',
      { card: { number: '42', name: 'a' } },
      ['/card/number'],
      { card: { number: REDACTED, name: 'a' } },
    ],
    ['a subtree', { card: { number: '42' }, ok: 1 }, ['/card'], { card: REDACTED, ok: 1 }],
    ['an entry of a list', [[1, 2], 3], ['/0/1'], [[1, REDACTED], 3]],
    [
      'every entry of a list',
      { cards: [{ n: 1 }, { n: 2, m: 3 }, 4] },
      ['/cards/*/n'],
      { cards: [{ n: REDACTED }, { n: REDACTED, m: 3 }, 4] },
    ],
    [
      'every member',
      { a: { x: 1 }, b: { x: 2, y: 3 } },
      ['/*/x'],
      { a: { x: REDACTED }, b: { x: REDACTED, y: 3 } },
    ],
    ['several places', { a: 1, b: 2, c: 3 }, ['/a', '/c'], { a: REDACTED, b: 2, c: REDACTED }],
    [
      'names with a slash or a tilde',
      { 'a/b': 1, 'c~d': 2, '~1': 3 },
      ['/a~1b', '/c~0d', '/~01'],
      { 'a/b': REDACTED, 'c~d': REDACTED, '~1': REDACTED },
    ],
    ['an empty name', { '': { '': 1 } }, ['//'], { '': { '': REDACTED } }],
    ['null', { a: null }, ['/a'], { a: REDACTED }],
    ['nothing where there is nothing', { a: 1 }, ['/b', '/a/b', '/0'], { a: 1 }],
    ['nothing of a value that is no object', 'text', ['/a'], 'text'],
  ])('hides %s', (_, value, pointers, shown) => {
    const before = structuredClone(value);
    expect(shownValue(value, pointers)).toEqual(shown);
    expect(value).toEqual(before);
  });

  it('of true hides whatever it is', () => {
    for (const value of [null, 0, 'x', [], { a: 1 }]) expect(shownValue(value, true)).toBe(REDACTED);
  });

  it('hides a name like __proto__ without making one', () => {
    const value = JSON.parse('{"__proto__": {"secret": 1}}') as Json;
    expect(JSON.stringify(shownValue(value, ['/__proto__/secret']))).toBe(
      `{"__proto__":{"secret":"${REDACTED}"}}`,
    );
  });

  it('never leaves the hidden text anywhere, whatever surrounds it', () => {
    const secret = 'the-secret';
    fc.assert(
      fc.property(fc.jsonValue(), fc.array(fc.string(), { minLength: 1, maxLength: 5 }), (rest, path) => {
        let value: unknown = secret;
        for (const name of path.toReversed()) value = { more: rest, [name]: value };
        const text = path.map((name) => `/${name.replaceAll('~', '~0').replaceAll('/', '~1')}`).join('');
        expect(JSON.stringify(shownValue(value as Json, [text]))).not.toContain(secret);
      }),
    );
  });
});

describe('the setting', () => {
  it.each([true, ['/a'], ['/a/*/b', '/c~0d'], ['//']])('may be %j', (value) => {
    expect(redactionKind.faultOf(value)).toBeUndefined();
  });

  it.each([
    false,
    null,
    'card',
    {},
    () => 'x',
    [],
    [''],
    ['card'],
    ['/a~2'],
    ['/a', 5],
    [`/${'x'.repeat(300)}`],
    ['/a'.repeat(20)],
    Array.from({ length: 65 }, () => '/a'),
  ])('may not be %j', (value) => {
    expect(redactionKind.faultOf(value)).toBeDefined();
  });
});
