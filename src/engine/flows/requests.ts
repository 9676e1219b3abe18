/**
 * Checks requests for flows and lays them out: names become ids, edges become rows, cycles are named. Does not use the
 * database.
 */
import type { SubmitRequest } from '../../contract/executions.ts';
import { randomUUID } from 'node:crypto';
import { EngineError } from '../../contract/errors.ts';
import {
  EDGE_CONDITIONS,
  JOIN_KINDS,
  ON_SATISFIED,
  type EdgeRequest,
  type OnwardEdge,
  type JoinPolicy,
  type MemberRequest,
  type OnSatisfied,
  type StagedEdge,
} from '../../contract/flows.ts';
import {
  choice,
  flag,
  list,
  asciiName,
  parsed,
  string,
  stringOr,
  whole,
} from '../../contract/shape/kinds.ts';
import { LIMITS } from '../../contract/limits.ts';
import {
  fault,
  faultAt,
  isObject,
  refuse,
  shape,
  type Fault,
  type Kind,
} from '../../contract/shape/shape.ts';
import { findCircle } from '../../model/graph.ts';
import { cancelsRest, neededOf } from '../../model/joins.ts';
import type { EdgeRow, JoinRow } from './flows.sql.ts';

/** An edge into a member, in order. */
export interface CheckedEdge {
  from: string;
  condition: EdgeRow['condition'];
  inputName: string | null;
  isList: boolean;
}

/** The edges, join and fallback of a member. */
export interface CheckedMember {
  name: string;
  after: CheckedEdge[];
  before: (Omit<CheckedEdge, 'from'> & { to: string })[];
  join: JoinPolicy | undefined;
  fallback: string | undefined;
}

const memberName = asciiName(LIMITS.memberNameBytes);

/** The condition of an edge, and what it passes on. */
const edgeFields = {
  on: choice(EDGE_CONDITIONS).optional(),
  as: string(LIMITS.inputNameBytes)
    .and((as) => (as === '__proto__' ? fault('cannot be __proto__') : undefined))
    .optional(),
  list: flag.optional(),
};

function edgeFault({ as, list: isList }: Pick<EdgeRequest, 'as' | 'list'>): Fault | undefined {
  if (isList !== true || as !== undefined) return undefined;
  return faultAt('.list', fault('needs a key in as'));
}

const edgeRequest = shape<EdgeRequest>({ from: memberName, ...edgeFields }).and(edgeFault);
const onwardEdge = shape<OnwardEdge>({ to: memberName, ...edgeFields }).and(edgeFault);
export const stagedEdge = shape<StagedEdge>({ upstream: parsed, downstream: parsed, ...edgeFields }).and(
  edgeFault,
);

interface AnyJoin {
  kind: JoinPolicy['kind'];
  k?: number;
  onSatisfied?: OnSatisfied;
}

export const joinPolicy = shape<AnyJoin>({
  kind: choice(JOIN_KINDS),
  k: whole(1, LIMITS.flowEdges).optional(),
  onSatisfied: choice(ON_SATISFIED).optional(),
}).and(({ kind, k, onSatisfied }) => {
  if (kind === 'quorum' && k === undefined) return faultAt('.k', fault('is required for a quorum'));
  if (kind !== 'quorum' && k !== undefined) return faultAt('.k', fault('applies to quorum joins only'));
  if (kind !== 'all' || onSatisfied === undefined) return undefined;
  return faultAt('.onSatisfied', fault('applies to any and quorum joins only'));
}) as Kind<unknown> as Kind<JoinPolicy>;

/** The keys of a member that concern the graph. */
const graphFields = {
  name: memberName,
  after: list(stringOr(memberName, edgeRequest), Number.MAX_SAFE_INTEGER).optional(),
  before: list(stringOr(memberName, onwardEdge), Number.MAX_SAFE_INTEGER).optional(),
  join: joinPolicy.optional(),
  fallback: memberName.optional(),
};

/** The other keys are checked with the submit request. */
const memberRequest = shape<MemberRequest>({
  ...graphFields,
  kind: parsed,
  payload: parsed.optional(),
  lane: parsed.optional(),
  priority: parsed.optional(),
  capabilities: parsed.optional(),
  tags: parsed.optional(),
  policy: parsed.optional(),
});

export function checkMember(member: MemberRequest, field: string): CheckedMember {
  if (isObject(member) && 'key' in member)
    refuse(`${field}.key`, 'cannot be given to a member of a flow', 'key_not_here');
  const { name: own, after = [], before = [], join, fallback } = memberRequest.check(member, field);
  if (fallback === own) refuse(`${field}.fallback`, 'is the member itself', 'cycle');
  return {
    name: own,
    after: after.map((edge) => {
      const given = typeof edge === 'string' ? { from: edge } : edge;
      return { from: given.from, ...edgeTerms(given) };
    }),
    before: before.map((edge, index) => {
      const given = typeof edge === 'string' ? { to: edge } : edge;
      if (given.to === own) refuse(`${field}.before[${index}].to`, 'is the member itself', 'cycle');
      return { to: given.to, ...edgeTerms(given) };
    }),
    join,
    fallback,
  };
}

/** The submit request of a member, without its graph keys. */
export function submitPartOf(member: MemberRequest): Omit<SubmitRequest, 'kind'> & { kind?: string } {
  return Object.fromEntries(Object.entries(member).filter(([key]) => !(key in graphFields)));
}

export function edgeTerms({
  on = 'success',
  as,
  list: isList,
}: Pick<EdgeRequest, 'on' | 'as' | 'list'>): Omit<CheckedEdge, 'from'> {
  return { condition: on, inputName: as ?? null, isList: isList === true };
}

/** Two edges from one member would count twice in the join; two results under one key would lose one of them. */
function checkEdges(name: string, edges: readonly CheckedEdge[], field: string): void {
  if (edges.length > LIMITS.flowEdges)
    refuse(field, `has ${edges.length} edges; the limit is ${LIMITS.flowEdges}`, 'too_many');
  const froms = new Set<string>();
  const names = new Map<string, boolean>();
  edges.forEach((edge, index) => {
    if (edge.from === name) refuse(`${field}[${index}].from`, 'is the member itself', 'cycle');
    if (froms.has(edge.from)) refuse(`${field}[${index}].from`, `names ${edge.from} twice`);
    froms.add(edge.from);
    if (edge.inputName === null) return;
    if (names.has(edge.inputName) && !(edge.isList && names.get(edge.inputName) === true))
      refuse(`${field}[${index}].as`, `is already used; set list: true on both edges to collect a list`);
    names.set(edge.inputName, edge.isList);
  });
}

/** Results are put into the payload, so it must be an object. */
export function checkRoomForInputs(payload: unknown, field: string): void {
  if (payload === undefined || Object.prototype.toString.call(payload) === '[object Object]') return;
  refuse(field, 'must be an object, because results are put into it');
}

export function joinRow(policy: JoinPolicy): JoinRow {
  return { kind: policy.kind, needed: neededOf(policy), cancelsRest: cancelsRest(policy) };
}

/**
 * Returns all edges by the member they lead to: those given at either member, and those of fallbacks. A member that is
 * not among the new ones must be known.
 */
export function connect(
  members: readonly CheckedMember[],
  isKnown: (name: string) => boolean,
  held: 'until_sealed' | 'no',
): Map<string, CheckedEdge[]> {
  const edges = new Map<string, CheckedEdge[]>();
  members.forEach(({ name, after }, index) => {
    if (edges.has(name)) refuse(`members[${index}].name`, `${name} is used twice in this call`);
    edges.set(name, [...after]);
  });
  members.forEach(({ name, before }, index) => {
    before.forEach(({ to, ...edge }, place) => {
      const field = `members[${index}].before[${place}]`;
      if (!edges.has(to) && !isKnown(to)) refuse(field, `names ${to}, which is not a member`, 'not_a_member');
      if (!edges.has(to)) edges.set(to, []);
      edges.get(to)!.push({ from: name, ...edge });
    });
  });
  members.forEach(({ name, fallback }, index) => {
    if (fallback === undefined) return;
    const into = edges.get(fallback);
    if (into === undefined)
      refuse(
        `members[${index}].fallback`,
        `names ${fallback}, which is not a member of this call`,
        'not_a_member',
      );
    if (into.some(({ from }) => from === name))
      refuse(`members[${index}].fallback`, `names ${fallback}, which already has an edge from this member`);
    into.push({ from: name, condition: 'skipped', inputName: null, isList: false });
  });
  members.forEach(({ name, join }, index) => {
    const into = edges.get(name)!;
    for (const { from } of into)
      if (!edges.has(from) && !isKnown(from))
        refuse(`members[${index}].after`, `names ${from}, which is not a member`, 'not_a_member');
    checkEdges(name, into, `members[${index}].after`);
    // More edges may be added before the flow is sealed.
    if (held === 'no') checkNeeded(join, into.length, `members[${index}].join`);
  });
  const count = [...edges.values()].reduce((sum, into) => sum + into.length, 0);
  if (count > LIMITS.flowCallEdges)
    refuse('members', `have ${count} edges together; the limit is ${LIMITS.flowCallEdges}`, 'too_many');
  refuseCircle(edges);
  return edges;
}

function checkNeeded(join: JoinPolicy | undefined, edges: number, field: string): void {
  if (join === undefined || join.kind === 'all') return;
  const needed = neededOf(join);
  if (needed > edges) refuse(field, `needs ${needed} edges but has ${edges}`);
}

function refuseCircle(edges: ReadonlyMap<string, readonly CheckedEdge[]>): void {
  const circle = findCircle(new Map([...edges].map(([name, into]) => [name, into.map(({ from }) => from)])));
  if (circle === undefined) return;
  const shown = circle.length <= 12 ? circle : [...circle.slice(0, 6), '…', ...circle.slice(-5)];
  throw new EngineError('cycle', `The edges form a cycle: ${shown.join(' → ')}.`, { field: 'members' });
}

/** Edges as rows, with the uuids of their members. */
export function edgeRows(
  edges: ReadonlyMap<string, readonly CheckedEdge[]>,
  uuidOf: (name: string) => string,
): EdgeRow[] {
  return [...edges].flatMap(([name, into]) =>
    into.map((edge, place) => ({
      edgeId: randomUUID(),
      upstream: uuidOf(edge.from),
      downstream: uuidOf(name),
      condition: edge.condition,
      inputName: edge.inputName,
      inputPlace: edge.isList ? place : null,
    })),
  );
}
