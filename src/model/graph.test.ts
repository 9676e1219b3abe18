/**
 * Cycles in graphs: found when there is one, and reported as one. Edge conditions do not matter here.
 */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { findCircle, type Graph } from './graph.ts';

/** Builds a graph from `name: predecessor predecessor`, one node per part. */
function graphOf(text: string): Graph {
  return new Map(
    text.split(',').map((part) => {
      const [name, before = ''] = part.split(':');
      return [name!.trim(), before.split(' ').filter((word) => word !== '')];
    }),
  );
}

describe('a graph', () => {
  it.each([
    ['of one node', 'a'],
    ['in a chain', 'a, b: a, c: b'],
    ['like a diamond', 'a, b: a, c: a, d: b c'],
    ['in two parts', 'a, b: a, x, y: x'],
    ['with predecessors that are not nodes', 'a: nobody, b: a nobody'],
    ['with a duplicate edge', 'a, b: a a'],
  ])('%s has no cycle', (_, text) => {
    expect(findCircle(graphOf(text))).toBeUndefined();
  });

  it.each([
    ['to itself', 'a: a', ['a', 'a']],
    ['of two', 'a: b, b: a', ['b', 'a', 'b']],
    ['of three', 'a: c, b: a, c: b', ['b', 'c', 'a', 'b']],
    ['that other nodes lead into', 'x, y: x, a: y b, b: a', ['b', 'a', 'b']],
    ['that other nodes depend on', 'x: a, y: x, a: b, b: a', ['b', 'a', 'b']],
    ['beside a part without a cycle', 'x, y: x, a: b, b: a', ['b', 'a', 'b']],
    ['of two with a duplicate edge', 'a: b b, b: a', ['b', 'a', 'b']],
  ])('with a cycle %s reports it', (_, text, circle) => {
    expect(findCircle(graphOf(text))).toEqual(circle);
  });

  it('has no cycle however deep it is', () => {
    const deep = 20_000;
    const graph = new Map(
      Array.from({ length: deep }, (_, n) => [String(n), n === 0 ? [] : [String(n - 1)]]),
    );
    expect(findCircle(graph)).toBeUndefined();
    graph.set('0', [String(deep - 1)]);
    expect(findCircle(graph)).toHaveLength(deep + 1);
  });
});

/** A graph whose edges all lead from lower to higher numbers, with its names shuffled. */
const anyDag = fc
  .record({
    size: fc.integer({ min: 2, max: 30 }),
    edges: fc.array(fc.tuple(fc.nat(), fc.nat()), { maxLength: 90 }),
    order: fc.infiniteStream(fc.nat()),
  })
  .map(({ size, edges, order }) => {
    const names = Array.from({ length: size }, (_, n) => `n${n}`);
    const before = new Map<string, string[]>(names.map((name) => [name, []]));
    for (const [one, other] of edges) {
      const [low, high] = [one % size, other % size].toSorted((a, b) => a - b);
      if (low !== high) before.get(names[high!]!)!.push(names[low!]!);
    }
    const ranked = [...before].map((entry) => ({ entry, rank: order.next().value! }));
    return new Map(ranked.toSorted((a, b) => a.rank - b.rank).map(({ entry }) => entry));
  });

/** Whether the first can be reached from the other by walking back. */
function comesBefore(graph: Graph, first: string, other: string): boolean {
  const seen = new Set([other]);
  for (const node of seen) for (const name of graph.get(node) ?? []) seen.add(name);
  return seen.has(first);
}

describe('for random graphs', () => {
  it('one whose edges all lead forward has no cycle', () => {
    fc.assert(fc.property(anyDag, (graph) => void expect(findCircle(graph)).toBeUndefined()));
  });

  it('one with an edge back has a cycle, and the reported one is real', () => {
    fc.assert(
      fc.property(anyDag, fc.nat(), fc.nat(), (graph, one, other) => {
        const names = [...graph.keys()];
        const [first, last] = [names[one % names.length]!, names[other % names.length]!];
        fc.pre(comesBefore(graph, first, last));
        const closed = new Map([...graph, [first, [...graph.get(first)!, last]]]);
        const circle = findCircle(closed)!;
        expect(circle[0]).toBe(circle.at(-1));
        expect(new Set(circle).size).toBe(circle.length - 1);
        for (const [index, node] of circle.slice(1).entries())
          expect(closed.get(node), `${circle[index]} before ${node}`).toContain(circle[index]);
        // Every cycle uses the edge that was added back.
        const at = circle.indexOf(first);
        expect(circle.at(at === 0 ? -2 : at - 1)).toBe(last);
      }),
    );
  });
});
