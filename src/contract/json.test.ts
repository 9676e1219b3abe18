/**
 * What the compiler says about values that are stored as JSON. The assertions are checked by `npm run types`; at run
 * time JSON itself is asked for the same.
 */
import { describe, expect, expectTypeOf, test } from 'vitest';
import type { Json, Jsonified, NotJson, Storable } from './json.ts';

interface Order {
  id: number;
  placedAt: Date;
  note?: string;
  discount: number | undefined;
  total(): number;
  lines: { sku: string; due: Date | null }[];
  [Symbol.iterator]?: never;
}

interface Tree {
  at: Date;
  children: Tree[];
}

class Money {
  readonly #cents: number;
  constructor(cents: number) {
    this.#cents = cents;
  }
  toJSON(): { cents: number } {
    return { cents: this.#cents };
  }
}

// oxlint-disable-next-line no-explicit-any -- what becomes of it is tested
type Any = any;
type Make<Value> = () => Storable<Value> | Promise<Storable<Value>>;
declare function store<Value>(make: Make<Value>): Jsonified<Value>;

describe('Jsonified', () => {
  test('leaves what JSON can represent as it is', () => {
    expectTypeOf<Jsonified<string>>().toEqualTypeOf<string>();
    expectTypeOf<Jsonified<'a' | 1 | null>>().toEqualTypeOf<'a' | 1 | null>();
    expectTypeOf<Jsonified<{ a: number[]; b: { c: boolean } }>>().toEqualTypeOf<{
      a: number[];
      b: { c: boolean };
    }>();
    expectTypeOf<Jsonified<Json>>().toEqualTypeOf<Json>();
    expectTypeOf<Jsonified<never>>().toEqualTypeOf<never>();
    expectTypeOf<Jsonified<readonly ['a', 1]>>().toEqualTypeOf<readonly ['a', 1]>();
  });

  test('passes any and unknown through', () => {
    expectTypeOf<Jsonified<Any>>().toBeAny();
    expectTypeOf<Jsonified<unknown>>().toBeUnknown();
    expectTypeOf<Jsonified<{ a: unknown; b: Any }>>().toEqualTypeOf<{ a: unknown; b: Any }>();
    expectTypeOf<Jsonified<unknown[]>>().toEqualTypeOf<unknown[]>();
  });

  test('says what JSON makes of the rest', () => {
    expectTypeOf<Jsonified<Date>>().toEqualTypeOf<string>();
    expectTypeOf<Jsonified<Money>>().toEqualTypeOf<{ cents: number }>();
    expectTypeOf<Jsonified<undefined>>().toEqualTypeOf<null>();
    expectTypeOf<Jsonified<void>>().toEqualTypeOf<null>();
    expectTypeOf<Jsonified<Date | undefined>>().toEqualTypeOf<string | null>();
    expectTypeOf<Jsonified<(number | undefined)[]>>().toEqualTypeOf<(number | null)[]>();
    expectTypeOf<Jsonified<[Date, () => void]>>().toEqualTypeOf<[string, null]>();
    expectTypeOf<Jsonified<Record<string, Date>>>().toEqualTypeOf<Record<string, string>>();
    expectTypeOf<Jsonified<Order>>().toEqualTypeOf<{
      id: number;
      placedAt: string;
      note?: string;
      discount?: number;
      lines: { sku: string; due: string | null }[];
    }>();
    expectTypeOf<Jsonified<Tree>['children'][number]['children'][number]['at']>().toEqualTypeOf<string>();
    expectTypeOf<Jsonified<{ data: string | Uint8Array }>>().toEqualTypeOf<{ data: string }>();
    expect(JSON.parse(JSON.stringify([new Date(0), new Money(5), { a: undefined, b: () => 1 }]))).toEqual([
      '1970-01-01T00:00:00.000Z',
      { cents: 5 },
      {},
    ]);
  });

  test('names what cannot be stored', () => {
    expectTypeOf<Jsonified<Map<string, number>>>().toExtend<NotJson>();
    expectTypeOf<Jsonified<{ a: bigint }>['a']>().toExtend<NotJson>();
  });
});

test('what JSON cannot represent does not compile', () => {
  const cases = (): unknown[] => [
    // @ts-expect-error a Map
    store(() => new Map([['a', 1]])),
    // @ts-expect-error a Set
    store(async () => new Set([1])),
    // @ts-expect-error a bigint
    store(() => 1n),
    // @ts-expect-error a symbol
    store(() => Symbol('x')),
    // @ts-expect-error a function
    store(() => () => 1),
    // @ts-expect-error a bigint in a member
    store(async () => ({ rows: [{ id: 1n }] })),
    // @ts-expect-error bytes
    store(() => new Uint8Array(3)),
    // @ts-expect-error a promise that was not awaited
    store(() => ({ user: Promise.resolve(1) })),
    // @ts-expect-error perhaps a Map
    store((): string | Map<string, number> => 'x'),
  ];
  expect(cases).toBeTypeOf('function');
});

test('what it can represent compiles, with the type it comes back with', () => {
  const cases = (): void => {
    expectTypeOf(store(() => 'a')).toExtend<string>();
    expectTypeOf(store(async () => new Date())).toEqualTypeOf<string>();
    expectTypeOf(store(() => undefined)).toEqualTypeOf<null>();
    expectTypeOf(store(async () => {})).toEqualTypeOf<null>();
    expectTypeOf(store((): Any => 1)).toBeAny();
    expectTypeOf(store((): unknown => 1)).toBeUnknown();
    expectTypeOf(store((): Tree => ({ at: new Date(), children: [] })).at).toEqualTypeOf<string>();
    expectTypeOf(store(async () => ({ n: 1, at: new Date(), f: () => 1 }))).toEqualTypeOf<{
      n: number;
      at: string;
    }>();
    expectTypeOf(store(() => [1, 2].map((n) => ({ n })))).toEqualTypeOf<{ n: number }[]>();
    expectTypeOf(store(async () => [] as Order[])[0]!.placedAt).toEqualTypeOf<string>();
    expectTypeOf(
      store((): never => {
        throw new Error('x');
      }),
    ).toBeNever();
    expectTypeOf(store(() => Buffer.from('x'))).toEqualTypeOf<{ type: 'Buffer'; data: number[] }>();
  };
  function wrapped<Value>(make: Make<Value>): Jsonified<Value> {
    return store(make);
  }
  expect([cases, wrapped].every((each) => typeof each === 'function')).toBe(true);
});
