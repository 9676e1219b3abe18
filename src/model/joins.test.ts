/**
 * The rules of joins, row by row: how each outcome resolves each kind of edge, and how edges decide each kind of join.
 * The SQL functions of the same rules are compared in tests/engine.
 */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { EDGE_CONDITIONS, type EdgeCondition, type GroupState, type JoinPolicy } from '../contract/flows.ts';
import { cancelsRest, edgeResult, joinState, neededOf, type ResolvedEdge } from './joins.ts';

const OUTCOMES = ['success', 'failed', 'cancelled', 'expired', 'skipped'] as const;
type Outcome = (typeof OUTCOMES)[number];

/** How each outcome, in the order above, resolves an edge of each condition. */
const EDGES: Record<EdgeCondition, [ResolvedEdge, ResolvedEdge, ResolvedEdge, ResolvedEdge, ResolvedEdge]> = {
  success: ['satisfied', 'failed', 'failed', 'failed', 'skipped'],
  failure: ['skipped', 'satisfied', 'satisfied', 'satisfied', 'skipped'],
  always: ['satisfied', 'satisfied', 'satisfied', 'satisfied', 'satisfied'],
  skipped: ['skipped', 'skipped', 'skipped', 'skipped', 'satisfied'],
};

const ROWS = EDGE_CONDITIONS.flatMap((condition) =>
  OUTCOMES.map((outcome, place): [EdgeCondition, Outcome, ResolvedEdge] => [
    condition,
    outcome,
    EDGES[condition][place]!,
  ]),
);

describe('an edge', () => {
  it.each(ROWS)('on %s, after %s, is %s', (condition, outcome, expected) => {
    expect(edgeResult(condition, outcome)).toBe(expected);
  });
});

/** With three edges: how many are satisfied, how many are unmet, and the resulting state of each join. */
const TABLE: [
  satisfied: number,
  unmet: number,
  all: GroupState,
  any: GroupState,
  two: GroupState,
  three: GroupState,
][] = [
  [0, 0, 'pending', 'pending', 'pending', 'pending'],
  [1, 0, 'pending', 'satisfied', 'pending', 'pending'],
  [2, 0, 'pending', 'satisfied', 'satisfied', 'pending'],
  [3, 0, 'satisfied', 'satisfied', 'satisfied', 'satisfied'],
  [0, 1, 'impossible', 'pending', 'pending', 'impossible'],
  [1, 1, 'impossible', 'satisfied', 'pending', 'impossible'],
  [2, 1, 'impossible', 'satisfied', 'satisfied', 'impossible'],
  [0, 2, 'impossible', 'pending', 'impossible', 'impossible'],
  [1, 2, 'impossible', 'satisfied', 'impossible', 'impossible'],
  [0, 3, 'impossible', 'impossible', 'impossible', 'impossible'],
];

describe('a join of three', () => {
  it.each(TABLE)('with %i satisfied and %i unmet', (satisfied, unmet, all, any, two, three) => {
    const heard = { edges: 3, satisfied, unmet };
    expect(joinState({ kind: 'all' }, heard)).toBe(all);
    expect(joinState({ kind: 'any' }, heard)).toBe(any);
    expect(joinState({ kind: 'quorum', k: 1 }, heard)).toBe(any);
    expect(joinState({ kind: 'quorum', k: 2 }, heard)).toBe(two);
    expect(joinState({ kind: 'quorum', k: 3 }, heard)).toBe(three);
  });

  it('without edges is satisfied if it is an all-join', () => {
    expect(joinState({ kind: 'all' }, { edges: 0, satisfied: 0, unmet: 0 })).toBe('satisfied');
  });
});

describe('a policy', () => {
  it.each<[JoinPolicy, number, boolean]>([
    [{ kind: 'all' }, 0, false],
    [{ kind: 'any' }, 1, true],
    [{ kind: 'any', onSatisfied: 'cancel_remaining' }, 1, true],
    [{ kind: 'any', onSatisfied: 'let_run' }, 1, false],
    [{ kind: 'quorum', k: 4 }, 4, true],
    [{ kind: 'quorum', k: 4, onSatisfied: 'let_run' }, 4, false],
  ])('%o needs %i and cancels the rest: %s', (policy, needed, stops) => {
    expect(neededOf(policy)).toBe(needed);
    expect(cancelsRest(policy)).toBe(stops);
  });
});

const anyJoin = fc
  .record({
    edges: fc.integer({ min: 1, max: 20 }),
    k: fc.nat(),
    kind: fc.constantFrom('all', 'any', 'quorum'),
  })
  .map(({ edges, k, kind }) => ({
    edges,
    policy: (kind === 'quorum' ? { kind, k: 1 + (k % edges) } : { kind }) as JoinPolicy,
  }));

describe('any join', () => {
  it('stays decided, whatever edges resolve later', () => {
    fc.assert(
      fc.property(anyJoin, fc.array(fc.boolean(), { maxLength: 20 }), ({ edges, policy }, heard) => {
        let decided: GroupState = 'pending';
        const counts = { edges, satisfied: 0, unmet: 0 };
        for (const isSatisfied of heard.slice(0, edges)) {
          counts[isSatisfied ? 'satisfied' : 'unmet'] += 1;
          const state = joinState(policy, counts);
          if (decided !== 'pending') expect(state).toBe(decided);
          decided = state;
        }
      }),
    );
  });

  it('is decided once every edge is resolved', () => {
    fc.assert(
      fc.property(anyJoin, fc.nat(), ({ edges, policy }, draw) => {
        const satisfied = draw % (edges + 1);
        expect(joinState(policy, { edges, satisfied, unmet: edges - satisfied })).not.toBe('pending');
      }),
    );
  });
});
