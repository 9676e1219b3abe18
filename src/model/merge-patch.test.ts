/**
 * JSON Merge Patch: the examples of its RFC, the string that stands for a null, what is not a patch, and what holds for
 * every document and every patch.
 */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Json } from '../contract/json.ts';
import { LIMITS } from '../contract/limits.ts';
import { SUMMARY_NULL } from '../contract/streams.ts';
import { applyPatch, patchBetween, patchFault, type JsonObject, type PatchFault } from './merge-patch.ts';

/** Appendix A of RFC 7396, in its order, where patch and document are objects. */
const EXAMPLES: [document: string, patch: string, result: string][] = [
  ['{"a":"b"}', '{"a":"c"}', '{"a":"c"}'],
  ['{"a":"b"}', '{"b":"c"}', '{"a":"b","b":"c"}'],
  ['{"a":"b"}', '{"a":null}', '{}'],
  ['{"a":"b","b":"c"}', '{"a":null}', '{"b":"c"}'],
  ['{"a":["b"]}', '{"a":"c"}', '{"a":"c"}'],
  ['{"a":"c"}', '{"a":["b"]}', '{"a":["b"]}'],
  ['{"a":{"b":"c"}}', '{"a":{"b":"d","c":null}}', '{"a":{"b":"d"}}'],
  ['{"a":[{"b":"c"}]}', '{"a":[1]}', '{"a":[1]}'],
  ['{"e":null}', '{"a":1}', '{"e":null,"a":1}'],
  ['{}', '{"a":{"bb":{"ccc":null}}}', '{"a":{"bb":{}}}'],
];

/** Examples whose patch is not an object: the document must stay one. */
const NO_PATCHES = ['["c","d"]', '["c"]', 'null', '"bar"'];

const parse = (text: string): JsonObject => JSON.parse(text) as JsonObject;
const nested = (levels: number, inner: Json, wrap: (value: Json) => Json): Json =>
  levels === 0 ? inner : nested(levels - 1, wrap(inner), wrap);

describe('the examples of the RFC', () => {
  it.each(EXAMPLES)('%s and %s make %s', (document, patch, result) => {
    expect(patchFault(parse(patch))).toBeUndefined();
    expect(applyPatch(parse(document), parse(patch))).toEqual(parse(result));
    // The same at any depth as at the root.
    expect(applyPatch({ x: parse(document) }, { x: parse(patch) })).toEqual({ x: parse(result) });
  });

  it('a list is replaced by the object that a patch creates from nothing', () => {
    expect(applyPatch({ x: [1, 2] }, { x: { a: 'b', c: null } })).toEqual({ x: { a: 'b' } });
  });

  it.each(NO_PATCHES)('%s is not a patch', (text) => {
    expect(patchFault(JSON.parse(text))).toBe('not_an_object');
  });
});

describe('an intended null', () => {
  it.each<[string, JsonObject, JsonObject]>([
    ['as a value', { a: SUMMARY_NULL }, { kept: 1, a: null }],
    ['replaces an existing value', { kept: SUMMARY_NULL }, { kept: null }],
    ['in a list', { a: [1, SUMMARY_NULL, [SUMMARY_NULL]] }, { kept: 1, a: [1, null, [null]] }],
    ['in an object in a list', { a: [{ b: SUMMARY_NULL, c: null }] }, { kept: 1, a: [{ b: null, c: null }] }],
    ['in an object', { a: { b: SUMMARY_NULL } }, { kept: 1, a: { b: null } }],
    [
      'only as the whole string',
      { a: `${SUMMARY_NULL}!`, [SUMMARY_NULL]: 2 },
      { kept: 1, a: `${SUMMARY_NULL}!`, [SUMMARY_NULL]: 2 },
    ],
  ])('%s', (_, patch, result) => {
    expect(applyPatch({ kept: 1 }, patch)).toEqual(result);
  });

  it('is removed by a plain null, and kept by other patches', () => {
    const document = applyPatch({}, { a: SUMMARY_NULL, b: SUMMARY_NULL });
    expect(applyPatch(document, { a: null, c: 1 })).toEqual({ b: null, c: 1 });
  });
});

describe('the fault of a patch', () => {
  const deepest = nested(LIMITS.patchDepth - 1, 1, (a) => ({ a })) as JsonObject;
  it.each<[string, unknown, PatchFault | undefined]>([
    ['undefined', undefined, 'not_an_object'],
    ['a number', 5, 'not_an_object'],
    ['an empty list', [], 'not_an_object'],
    ['as deep as allowed', { a: deepest }, undefined],
    ['one level deeper', { b: { a: deepest } }, 'too_deep'],
    ['lists one level too deep', { a: nested(LIMITS.patchDepth, 1, (a) => [a]) }, 'too_deep'],
    ['lists as deep as allowed', { a: nested(LIMITS.patchDepth - 1, 1, (a) => [a]) }, undefined],
    ['a dangerous key', JSON.parse('{"__proto__": 1}'), 'dangerous_key'],
    ['a dangerous key in a nested object', { a: { constructor: {} } }, 'dangerous_key'],
    ['a dangerous key in a list', { a: [{ prototype: 1 }] }, 'dangerous_key'],
    ['a dangerous string as a value', { a: '__proto__' }, undefined],
    ['an empty object', {}, undefined],
  ])('%s', (_, patch, fault) => {
    expect(patchFault(patch)).toBe(fault);
  });
});

const key = fc.constantFrom('', 'a', 'b', 'c', 'toString', 'hasOwnProperty', SUMMARY_NULL);
const scalar = fc.oneof(
  fc.constantFrom<Json>(null, true, SUMMARY_NULL, 'x', '', 0, 1.5),
  fc.integer(),
  fc.string(),
);
const { object } = fc.letrec<{ value: Json; object: JsonObject }>((tie) => ({
  value: fc.oneof({ depthSize: 'small' }, scalar, tie('object'), fc.array(tie('value'), { maxLength: 3 })),
  object: fc.dictionary(key, tie('value'), { maxKeys: 4, noNullPrototype: true }),
}));
/** A document made by patches: no string in it stands for a null. */
const document = object.map((made) => applyPatch({}, made));

/** Whether that string is left anywhere as a value. */
function saysNull(value: Json): boolean {
  if (typeof value !== 'object' || value === null) return value === SUMMARY_NULL;
  return Object.values(value).some(saysNull);
}

describe('for every document and patch', () => {
  it('applying a patch twice is the same as applying it once', () => {
    fc.assert(
      fc.property(document, object, (before, patch) => {
        const once = applyPatch(before, patch);
        expect(applyPatch(once, patch)).toEqual(once);
      }),
    );
  });

  it.each<[string, Json, Json, Json]>([
    ['null', { a: 1 }, null, null],
    ['a list', { a: 1 }, [1, null, { b: SUMMARY_NULL }], [1, null, { b: null }]],
    ['a string', { a: 1 }, 'x', 'x'],
    ['a number', [1], 5, 5],
  ])('%s replaces the document', (_, before, patch, after) => {
    expect(applyPatch(before, patch)).toEqual(after);
  });

  it.each<[string, Json]>([
    ['null', null],
    ['a list', [1]],
    ['a string', 'x'],
  ])('%s is not a document: the patch starts from an empty one', (_, before) => {
    expect(applyPatch(before, { a: { b: null, c: 1 } })).toEqual({ a: { c: 1 } });
  });

  it('no key reaches the prototype', () => {
    const patch = JSON.parse('{"__proto__": {"odd": 1}, "a": 1}') as Json;
    const after = applyPatch({}, patch);
    expect(JSON.stringify(after)).toBe('{"__proto__":{"odd":1},"a":1}');
    expect(Object.getPrototypeOf(after)).toBe(Object.prototype);
  });

  it('a patch that contains itself is refused', () => {
    const patch: Record<string, Json> = {};
    patch['self'] = patch;
    expect(() => applyPatch({}, patch)).toThrow(expect.objectContaining({ code: 'invalid_input' }));
  });

  it('neither is changed, and keys that the patch does not name stay', () => {
    fc.assert(
      fc.property(document, object, (before, patch) => {
        const copies = structuredClone([before, patch]);
        const after = applyPatch(before, patch);
        expect([before, patch]).toEqual(copies);
        for (const name of Object.keys(before))
          if (!Object.hasOwn(patch, name)) expect(after[name]).toEqual(before[name]);
        for (const name of Object.keys(patch)) expect(Object.hasOwn(after, name)).toBe(patch[name] !== null);
      }),
    );
  });

  it('no string that stands for a null is left', () => {
    fc.assert(fc.property(document, object, (before, patch) => !saysNull(applyPatch(before, patch))));
  });

  it('patches are folded in order: the later one wins', () => {
    fc.assert(
      fc.property(document, object, object, (before, one, other) => {
        const folded = applyPatch(applyPatch(before, one), other);
        for (const name of Object.keys(other))
          if (typeof other[name] !== 'object') expect(folded[name]).toEqual(applyPatch({}, other)[name]);
      }),
    );
  });

  it('the patch between two documents makes the one of the other, nulls and all', () => {
    fc.assert(
      fc.property(document, object, object, (before, one, other) => {
        const [from, to] = [applyPatch(before, one), applyPatch(before, other)];
        expect(applyPatch(from, patchBetween(from, to))).toEqual(to);
      }),
    );
    const [from, to] = [
      { a: { b: 1, c: 2 }, d: 1, e: { f: 1 } },
      { a: { b: 1, c: null }, d: { g: null }, h: [null] },
    ];
    expect(patchBetween(from, to)).toEqual({
      a: { c: SUMMARY_NULL },
      d: { g: SUMMARY_NULL },
      e: null,
      h: [null],
    });
    expect(applyPatch(from, patchBetween(from, to))).toEqual(to);
  });
});
