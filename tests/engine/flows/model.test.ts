/**
 * Flows of the real engine against a model in memory: random graphs with random joins, conditions and fallbacks,
 * finished and replayed in random ways and orders, reach the same outcomes. The rules that both use are compared
 * between SQL and the model as well.
 */
import { randomUUID } from 'node:crypto';
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { EDGE_CONDITIONS, JOIN_KINDS, type JoinPolicy } from '../../../src/contract/flows.ts';
import { parseExecutionId } from '../../../src/contract/ids.ts';
import { edgeResult, joinState, neededOf } from '../../../src/model/joins.ts';
import { useBench, LEASE_MS } from '../../conformance/open.ts';
import { expectSettled } from '../../races/flows/arena.ts';
import { FlowModel, isEnd, type End, type PlannedMember } from './model.ts';
import { patiently } from '../../setup/patience.ts';

/** `FLOWFABRIC_TEST_FLOWS` runs more. */
const RUNS = Number(process.env['FLOWFABRIC_TEST_FLOWS'] ?? 40);
const MOST_MEMBERS = 12;
const MOST_EDGES = 7;
const OUTCOMES = ['success', 'failed', 'cancelled', 'expired', 'skipped'] as const;
const bench = useBench();

it('an edge and a join are judged alike by SQL and by the model', async () => {
  const edges = await bench.database.query<{ c: 'success'; o: 'success'; result: string }>(
    `SELECT c::text AS c, o::text AS o, ff_edge_result(c, o)::text AS result
     FROM unnest($1::ff_edge_condition[]) c, unnest($2::ff_terminal_outcome[]) o`,
    [EDGE_CONDITIONS, OUTCOMES],
  );
  expect(edges.rows).toHaveLength(EDGE_CONDITIONS.length * OUTCOMES.length);
  for (const { c, o, result } of edges.rows) expect([c, o, result]).toEqual([c, o, edgeResult(c, o)]);
  const joins = JOIN_KINDS.flatMap((kind) => everyJoin(kind));
  const judged = await bench.database.query<{ state: string }>(
    `SELECT ff_join_state(kind::ff_join_kind, k, n, s, u)::text AS state
     FROM unnest($1::text[], $2::int[], $3::int[], $4::int[], $5::int[]) WITH ORDINALITY j(kind, k, n, s, u, ord) ORDER BY ord`,
    [
      joins.map(({ policy }) => policy.kind),
      joins.map(({ policy }) => neededOf(policy)),
      joins.map(({ edges: n }) => n),
      joins.map(({ satisfied }) => satisfied),
      joins.map(({ unmet }) => unmet),
    ],
  );
  expect(judged.rows.map(({ state }) => state)).toEqual(
    joins.map(({ policy, ...heard }) => joinState(policy, heard)),
  );
});

/** Every join of up to the maximum number of edges, in every possible state. */
function everyJoin(kind: JoinPolicy['kind']) {
  const upTo = (n: number, from = 0): number[] => Array.from({ length: n - from + 1 }, (_, i) => from + i);
  return upTo(MOST_EDGES).flatMap((edges) =>
    (kind === 'quorum' ? upTo(edges, 1) : [0]).flatMap((k) =>
      upTo(edges).flatMap((satisfied) =>
        upTo(edges - satisfied).map((unmet) => ({
          policy: (kind === 'quorum' ? { kind, k } : { kind }) as JoinPolicy,
          edges,
          satisfied,
          unmet,
        })),
      ),
    ),
  );
}

interface Drawn {
  members: { joinKind: number; k: number; letRun: boolean; edges: { from: number; on: number }[] }[];
  fallbacks: [number, number][];
  /** Which member finishes next, and how. */
  ends: [number, number][];
}

const anyNumber = fc.nat({ max: 1_000_000 });
const anyFlow: fc.Arbitrary<Drawn> = fc.record({
  members: fc.array(
    fc.record({
      joinKind: fc.nat({ max: 5 }),
      k: anyNumber,
      letRun: fc.boolean(),
      edges: fc.array(fc.record({ from: anyNumber, on: fc.nat({ max: 9 }) }), { maxLength: 4 }),
    }),
    { minLength: 2, maxLength: MOST_MEMBERS },
  ),
  fallbacks: fc.array(fc.tuple(anyNumber, anyNumber), { maxLength: 2 }),
  ends: fc.array(fc.tuple(anyNumber, anyNumber), { minLength: MOST_MEMBERS, maxLength: MOST_MEMBERS }),
});

/** Most edges are on success. */
const onOf = (draw: number) => EDGE_CONDITIONS[draw < EDGE_CONDITIONS.length ? draw : 0]!;

/** Edges lead from lower to higher indexes, so that there is no cycle. */
function planOf({ members, fallbacks }: Drawn): { plan: PlannedMember[]; fallbackOf: Map<string, string> } {
  const nameOf = (place: number) => `m${place}`;
  const plan = members.map(({ edges, ...drawn }, place): PlannedMember & typeof drawn => {
    const froms = new Map(place === 0 ? [] : edges.map(({ from, on }) => [nameOf(from % place), onOf(on)]));
    return {
      name: nameOf(place),
      after: [...froms].map(([from, on]) => ({ from, on })),
      join: { kind: 'all' },
      ...drawn,
    };
  });
  const fallbackOf = new Map<string, string>();
  for (const [one, other] of fallbacks) {
    const [low, high] = [one % plan.length, other % plan.length].toSorted((a, b) => a - b);
    const [from, to] = [plan[low!]!, plan[high!]!];
    const isTaken = fallbackOf.has(from.name) || to.after.some((edge) => edge.from === from.name);
    if (low === high || isTaken) continue;
    fallbackOf.set(from.name, to.name);
    to.after.push({ from: from.name, on: 'skipped' });
  }
  for (const member of plan)
    member.join = joinOf(member.joinKind, member.k, member.letRun, member.after.length);
  return { plan: plan.map(({ name, after, join }) => ({ name, after, join })), fallbackOf };
}

function joinOf(kind: number, k: number, letRun: boolean, edges: number): JoinPolicy {
  if (kind < 2 || edges === 0) return { kind: 'all' };
  const onSatisfied = letRun ? 'let_run' : 'cancel_remaining';
  return kind < 4 ? { kind: 'any', onSatisfied } : { kind: 'quorum', k: 1 + (k % edges), onSatisfied };
}

/** A member that has not started can only be cancelled; half of those that can be claimed complete. */
const ENDS: End[] = ['success', 'success', 'success', 'success', 'failed', 'failed', 'cancelled', 'expired'];

async function submitPlan({ plan, fallbackOf }: ReturnType<typeof planOf>) {
  const base = randomUUID();
  const flow = await bench.engine.flows.submit({
    name: 'drawn',
    members: plan.map(({ name, after, join }) => ({
      name,
      kind: `${base}.${name}`,
      // The engine adds the edge of a fallback itself.
      after: after.filter(({ from }) => fallbackOf.get(from) !== name),
      ...(after.length === 0 ? {} : { join }),
      ...(fallbackOf.has(name) ? { fallback: fallbackOf.get(name)! } : {}),
    })),
  });
  return { flow, claim: (name: string) => bench.claimOne(`${base}.${name}`) };
}

async function moveMember(
  { flow, claim }: Awaited<ReturnType<typeof submitPlan>>,
  name: string,
  end: Move['end'],
): Promise<void> {
  const id = flow.members[name]!;
  if (end === 'replay')
    expect(await bench.engine.executions.replay(id, { reason: 'why' })).toMatchObject({
      outcome: 'replayed',
    });
  if (end === 'cancelled') await bench.engine.cancel(id, { reason: 'why' });
  if (end === 'success') await bench.port.complete(await claim(name));
  if (end === 'failed') await bench.port.fail(await claim(name), { message: 'no', retry: 'never' });
  if (end === 'expired') {
    const { leaseEpoch } = await claim(name);
    const { uuid, partition } = parseExecutionId(id);
    await bench.database.moveClock(LEASE_MS + 1);
    const lapsed = [[uuid], [partition], [leaseEpoch]];
    await bench.database.query('SELECT * FROM ff_lapse_leases($1, $2, $3)', lapsed);
  }
  await bench.port.fireTimers();
}

async function expectAlike(flowId: string, model: FlowModel): Promise<void> {
  const { members, state: flowState } = (await bench.engine.flows.describe(flowId))!;
  const words: Record<string, string> = {
    completed: 'success',
    waiting: 'ready',
    waiting_children: 'blocked',
  };
  const states = Object.fromEntries(members.map(({ name, state }) => [name, words[state] ?? state]));
  expect(states).toEqual(model.states());
  expect(Object.values(states).every((state) => isEnd(state))).toBe(true);
  expect(flowState).toBe(model.outcome());
}

type Move = { name: string; end: End | 'replay' };

/** Some members are cancelled before they can start, and some finished ones are replayed; most are neither. */
function moveOf(model: FlowModel, [who, how]: [number, number]): Move | undefined {
  const members = Object.entries(model.states());
  const ended = members.filter(([, state]) => isEnd(state));
  const open = members.filter(([, state]) => !isEnd(state));
  if (how % 7 === 6 && ended.length > 0) return { name: ended[who % ended.length]![0], end: 'replay' };
  const ready = open.filter(([, state]) => state === 'ready');
  const chosen = how % 5 === 0 || ready.length === 0 ? open : ready;
  const next = chosen[who % chosen.length];
  if (next === undefined) return undefined;
  const [name, state] = next;
  return { name, end: state === 'ready' ? ENDS[how % ENDS.length]! : 'cancelled' };
}

/** The drawn moves; then everything left completes. */
function* movesOf(model: FlowModel, ends: Drawn['ends']): Generator<Move> {
  for (const draw of ends) {
    const move = moveOf(model, draw);
    if (move !== undefined) yield move;
  }
  for (let move = moveOf(model, [0, 8]); move !== undefined; move = moveOf(model, [0, 8])) yield move;
}

async function runFlow(drawn: Drawn): Promise<void> {
  const planned = planOf(drawn);
  const model = new FlowModel(planned.plan);
  const submitted = await submitPlan(planned);
  for (const { name, end } of movesOf(model, drawn.ends)) {
    if (end === 'replay') model.replay(name);
    else model.end(name, end);
    // What the model considers claimable must be claimable.
    await moveMember(submitted, name, end);
  }
  const { flowId } = submitted.flow;
  await expectAlike(flowId, model);
  const through = (text: string, params?: unknown[]) => bench.database.query(text, params);
  await expectSettled({ through }, [parseExecutionId(flowId).uuid]);
}

it(
  'a flow reaches the outcomes of the model, whatever its graph and however its members finish',
  async () => {
    // A failure message includes the seed and the path.
    await fc.assert(fc.asyncProperty(anyFlow, runFlow), { numRuns: RUNS, endOnFailure: true });
  },
  patiently(60_000),
);
