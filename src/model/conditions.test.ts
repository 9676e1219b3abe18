/**
 * Conditions of waits: which ones are well-formed, when signals satisfy one, and what holds for all signals: order and
 * repeats do not matter, and a satisfied condition stays satisfied.
 */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { LIMITS } from '../contract/limits.ts';
import type { CountCondition, Signal, SignalCondition } from '../contract/signals.ts';
import { conditionFault, isMet, leavesOf, waitpointsOf, type ConditionFault } from './conditions.ts';

type Said = Pick<Signal, 'signalId' | 'waitpoint' | 'name' | 'source'>;

const leaf = (change: Partial<CountCondition> = {}): CountCondition => ({
  kind: 'count',
  n: 1,
  by: 'signals',
  waitpoints: ['a'],
  ...change,
});
const all = (...of: SignalCondition[]): SignalCondition => ({ kind: 'all', of });
const any = (...of: SignalCondition[]): SignalCondition => ({ kind: 'any', of });

/** A signal by number, with its waitpoint and source. */
const said = (
  id: number,
  waitpoint: string,
  change: { name?: string; by?: string; type?: string } = {},
): Said => ({
  signalId: `s-${id}`,
  waitpoint,
  name: change.name ?? 'signal',
  source: { type: change.type ?? 'user', identity: change.by ?? `u-${id}` },
});

describe('a count', () => {
  it.each<[string, Partial<CountCondition>, Said[], boolean]>([
    ['of one is not satisfied by no signals', {}, [], false],
    ['of one is satisfied by one', {}, [said(1, 'a')], true],
    ['takes signals at its own waitpoints only', {}, [said(1, 'b')], false],
    [
      'of signals takes them from any of its waitpoints',
      { n: 2, waitpoints: ['a', 'b'] },
      [said(1, 'a'), said(2, 'b')],
      true,
    ],
    [
      'of signals counts a source as often as it sends',
      { n: 2 },
      [said(1, 'a', { by: 'x' }), said(2, 'a', { by: 'x' })],
      true,
    ],
    [
      'of sources counts the same source once',
      { n: 2, by: 'sources' },
      [said(1, 'a', { by: 'x' }), said(2, 'a', { by: 'x' })],
      false,
    ],
    [
      'of sources counts the same source once, even at two waitpoints',
      { n: 2, by: 'sources', waitpoints: ['a', 'b'] },
      [said(1, 'a', { by: 'x' }), said(2, 'b', { by: 'x' })],
      false,
    ],
    [
      'of sources distinguishes two of one identity by their types',
      { n: 2, by: 'sources' },
      [said(1, 'a', { by: 'x' }), said(2, 'a', { by: 'x', type: 'service' })],
      true,
    ],
    [
      'of waitpoints counts each once',
      { n: 2, by: 'waitpoints', waitpoints: ['a', 'b'] },
      [said(1, 'a'), said(2, 'a')],
      false,
    ],
    [
      'of waitpoints is satisfied when enough of them received a signal',
      { n: 2, by: 'waitpoints', waitpoints: ['a', 'b', 'c'] },
      [said(1, 'c'), said(2, 'a')],
      true,
    ],
    ['with a name to match ignores other names', { match: 'yes' }, [said(1, 'a', { name: 'no' })], false],
    [
      'with a name to match takes that name',
      { match: 'yes' },
      [said(1, 'a', { name: 'no' }), said(2, 'a', { name: 'yes' })],
      true,
    ],
  ])('%s', (_, change, signals, met) => {
    expect(isMet(leaf(change), signals)).toBe(met);
  });
});

describe('combined conditions', () => {
  const [a, b] = [leaf({ waitpoints: ['a'] }), leaf({ waitpoints: ['b'] })];

  it.each<[string, SignalCondition, string[], boolean]>([
    ['all is not satisfied by one of them', all(a, b), ['a'], false],
    ['all is satisfied by all of them', all(a, b), ['a', 'b'], true],
    ['any is satisfied by one of them', any(a, b), ['b'], true],
    ['any is not satisfied by an unrelated signal', any(a, b), ['c'], false],
    [
      'nested conditions are satisfied through an inner one',
      all(a, any(b, leaf({ waitpoints: ['c'] }))),
      ['a', 'c'],
      true,
    ],
    [
      'nested conditions are not satisfied by inner ones alone',
      all(a, any(b, leaf({ waitpoints: ['c'] }))),
      ['b', 'c'],
      false,
    ],
  ])('%s', (_, condition, waitpoints, met) => {
    expect(
      isMet(
        condition,
        waitpoints.map((waitpoint, index) => said(index, waitpoint)),
      ),
    ).toBe(met);
  });

  it('list their leaves in the order they are written', () => {
    expect(leavesOf(all(b, any(a, all(b, a))))).toEqual([b, a, b, a]);
  });

  it('name each waitpoint once, in order of appearance', () => {
    expect(waitpointsOf(all(b, any(leaf({ waitpoints: ['c', 'b'] }), a)))).toEqual(['b', 'c', 'a']);
  });
});

/** A leaf nested so that it is at this depth. */
function atDepth(depth: number, of: SignalCondition = leaf()): SignalCondition {
  return depth === 1 ? of : { kind: depth % 2 === 0 ? 'all' : 'any', of: [atDepth(depth - 1, of)] };
}

const many = (count: number): string[] => Array.from({ length: count }, (_, index) => `w${index}`);

describe('the fault of a condition', () => {
  it.each<[ConditionFault | undefined, string, SignalCondition]>([
    [undefined, 'one leaf', leaf()],
    [undefined, 'a leaf as deep as it may be', atDepth(LIMITS.conditionDepth)],
    ['too_deep', 'a leaf one deeper', atDepth(LIMITS.conditionDepth + 1)],
    ['no_parts', 'all of nothing', all()],
    ['no_parts', 'any of nothing', any()],
    ['no_parts', 'any of nothing, within', all(leaf(), any())],
    [undefined, 'as many parts as there may be', any(...many(LIMITS.conditionParts).map(() => leaf()))],
    ['too_many_parts', 'one more', any(...many(LIMITS.conditionParts + 1).map(() => leaf()))],
    ['no_waitpoints', 'a count nowhere', leaf({ waitpoints: [] })],
    [undefined, 'as many waitpoints as there may be', leaf({ waitpoints: many(LIMITS.conditionWaitpoints) })],
    ['too_many_waitpoints', 'one more waitpoint', leaf({ waitpoints: many(LIMITS.conditionWaitpoints + 1) })],
    ['count_not_positive', 'none', leaf({ n: 0 })],
    ['count_not_positive', 'less than none', leaf({ n: -1 })],
    ['count_not_positive', 'a part', leaf({ n: 1.5 })],
    ['count_not_positive', 'no number', leaf({ n: Number.NaN })],
    [undefined, 'as many as may be counted', leaf({ n: LIMITS.conditionCount })],
    ['count_too_high', 'one more of them', leaf({ n: LIMITS.conditionCount + 1 })],
    ['count_exceeds_waitpoints', 'more waitpoints than there are', leaf({ n: 2, by: 'waitpoints' })],
    [
      'count_exceeds_waitpoints',
      'a waitpoint named twice',
      leaf({ n: 2, by: 'waitpoints', waitpoints: ['a', 'a'] }),
    ],
    [undefined, 'more signals than waitpoints', leaf({ n: 2 })],
    ['empty_match', 'a name that nothing has', leaf({ match: '' })],
    ['empty_match', 'the same, within', all(leaf(), any(leaf({ match: '' })))],
  ])('is %s: %s', (fault, _, condition) => {
    expect(conditionFault(condition)).toBe(fault);
  });
});

const PLACES = ['a', 'b', 'c'];
const NAMES = ['yes', 'no'];
const anyLeaf: fc.Arbitrary<SignalCondition> = fc
  .record({
    n: fc.integer({ min: 1, max: 3 }),
    by: fc.constantFrom('signals', 'waitpoints', 'sources'),
    waitpoints: fc.subarray(PLACES, { minLength: 1 }),
    match: fc.option(fc.constantFrom(...NAMES), { nil: undefined }),
  })
  .map(({ match, ...counted }) => ({ kind: 'count', ...counted, ...(match === undefined ? {} : { match }) }));
const { condition: anyCondition } = fc.letrec<{ condition: SignalCondition }>((tie) => ({
  condition: fc.oneof(
    { maxDepth: LIMITS.conditionDepth - 1, withCrossShrink: true },
    anyLeaf,
    fc.record({
      kind: fc.constantFrom('all' as const, 'any' as const),
      of: fc.array(tie('condition'), { minLength: 1, maxLength: 3 }),
    }),
  ),
}));
const anySignals: fc.Arbitrary<Said[]> = fc
  .array(
    fc.record({
      waitpoint: fc.constantFrom(...PLACES),
      name: fc.constantFrom(...NAMES),
      by: fc.constantFrom('x', 'y', 'z'),
      type: fc.constantFrom('user', 'service'),
    }),
    { maxLength: 8 },
  )
  .map((each) => each.map(({ waitpoint, ...change }, index) => said(index, waitpoint, change)));

describe('for all signals', () => {
  it('order does not matter', () => {
    const shuffled = anySignals.chain((signals) =>
      fc.tuple(
        fc.constant(signals),
        fc.shuffledSubarray(signals, { minLength: signals.length, maxLength: signals.length }),
      ),
    );
    fc.assert(
      fc.property(anyCondition, shuffled, (condition, [signals, reordered]) => {
        expect(isMet(condition, reordered)).toBe(isMet(condition, signals));
      }),
    );
  });

  it('a repeated signal counts once', () => {
    fc.assert(
      fc.property(anyCondition, anySignals, fc.integer({ min: 2, max: 4 }), (condition, signals, times) => {
        const repeated = Array.from({ length: times }, () => signals).flat();
        expect(isMet(condition, repeated)).toBe(isMet(condition, signals));
      }),
    );
  });

  it('more signals never make a satisfied condition unsatisfied', () => {
    fc.assert(
      fc.property(anyCondition, anySignals, (condition, signals) => {
        const met = signals.map((_, index) => isMet(condition, signals.slice(0, index + 1)));
        expect(met).toEqual(met.toSorted((one, other) => Number(one) - Number(other)));
      }),
    );
  });

  it('no signals satisfy nothing, and signals at other waitpoints change nothing', () => {
    fc.assert(
      fc.property(anyCondition, anySignals, (condition, signals) => {
        expect(isMet(condition, [])).toBe(false);
        const within = signals.filter(({ waitpoint }) => waitpointsOf(condition).includes(waitpoint));
        expect(isMet(condition, within)).toBe(isMet(condition, signals));
      }),
    );
  });

  it('all is satisfied when each of its conditions is, any when one of them is', () => {
    fc.assert(
      fc.property(fc.array(anyCondition, { minLength: 1, maxLength: 4 }), anySignals, (of, signals) => {
        const met = of.map((condition) => isMet(condition, signals));
        expect(isMet({ kind: 'all', of }, signals)).toBe(met.every(Boolean));
        expect(isMet({ kind: 'any', of }, signals)).toBe(met.some(Boolean));
      }),
    );
  });
});

describe('the depth of a condition', () => {
  it('alone decides whether an otherwise valid one is too deep', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 8 }), (depth) => {
        const fault = depth > LIMITS.conditionDepth ? 'too_deep' : undefined;
        expect(conditionFault(atDepth(depth))).toBe(fault);
      }),
    );
    expect(LIMITS.conditionDepth).toBe(4);
  });

  it('is never a fault within the limit', () => {
    fc.assert(
      fc.property(anyCondition, (condition) => {
        expect(conditionFault(condition)).toBeOneOf([undefined, 'count_exceeds_waitpoints']);
      }),
    );
  });
});
