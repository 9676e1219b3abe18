/**
 * Finds a cycle in a graph of named nodes. Exact at any size, without recursion; returns one cycle even when there are
 * several.
 */

/** Each node with the names of its predecessors. */
export type Graph = ReadonlyMap<string, readonly string[]>;

/**
 * A cycle as a list of nodes that repeats its first node at the end; undefined when there is none. Predecessors that
 * are not nodes are ignored.
 */
export function findCircle(graph: Graph): string[] | undefined {
  const left = new Map<string, number>();
  const after = new Map<string, string[]>();
  for (const [node, before] of graph) {
    left.set(node, before.filter((name) => graph.has(name)).length);
    for (const name of before) {
      const known = after.get(name);
      if (known === undefined) after.set(name, [node]);
      else known.push(node);
    }
  }
  const free = [...left.keys()].filter((node) => left.get(node) === 0);
  for (let node = free.pop(); node !== undefined; node = free.pop()) {
    left.delete(node);
    for (const next of after.get(node) ?? []) {
      const count = left.get(next)! - 1;
      left.set(next, count);
      if (count === 0) free.push(next);
    }
  }
  return left.size === 0 ? undefined : walkBack(graph, left);
}

/** Every remaining node has a remaining predecessor, so walking back far enough meets a node again. */
function walkBack(graph: Graph, left: ReadonlyMap<string, number>): string[] {
  const path: string[] = [];
  const seen = new Map<string, number>();
  let node = left.keys().next().value!;
  while (!seen.has(node)) {
    seen.set(node, path.length);
    path.push(node);
    node = graph.get(node)!.find((name) => left.has(name))!;
  }
  const circle = path.slice(seen.get(node)).toReversed();
  return [...circle, circle[0]!];
}
