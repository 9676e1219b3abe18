/**
 * Checks what flows are asked to be, and lays it out: names become ids, edges become rows, circles are named. Nothing here talks
 * to the database.
 */
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
} from '../../contract/flows.ts';
import { LIMITS } from '../../contract/limits.ts';
import { findCircle } from '../../model/graph.ts';
import { cancelsRest, neededOf } from '../../model/joins.ts';
import type { EdgeRow, JoinRow } from './flows.sql.ts';
import { checkName, checkText, checkWhole, refuse } from '../kit/checks.ts';
import { checkChoice, checkMembers } from '../kit/settings.ts';

/** An edge into a member, in order. */
export interface CheckedEdge {
  from: string;
  condition: EdgeRow['condition'];
  inputName: string | null;
  isList: boolean;
}

/** What a member asks for besides being run. */
export interface CheckedMember {
  name: string;
  after: CheckedEdge[];
  before: (Omit<CheckedEdge, 'from'> & { to: string })[];
  join: JoinPolicy | undefined;
  fallback: string | undefined;
}

const MEMBER_MEMBERS: readonly (keyof MemberRequest)[] = [
  'name',
  'kind',
  'payload',
  'after',
  'before',
  'join',
  'fallback',
  'lane',
  'priority',
  'capabilities',
  'tags',
  'policy',
];

export const GRAPH_MEMBERS = ['name', 'after', 'before', 'join', 'fallback'] as const;

export function checkMember(member: MemberRequest, field: string): CheckedMember {
  checkMembers(member, field, MEMBER_MEMBERS);
  const name = checkName(member.name, `${field}.name`, LIMITS.memberNameBytes);
  const { after = [], before = [] } = member;
  if (!Array.isArray(after)) refuse(`${field}.after`, 'must be a list');
  const edges = Array.from(after, (edge: string | EdgeRequest, index) =>
    checkEdge(edge, `${field}.after[${index}]`),
  );
  if (!Array.isArray(before)) refuse(`${field}.before`, 'must be a list');
  const onward = Array.from(before, (edge: string | OnwardEdge, index) =>
    checkOnward(name, edge, `${field}.before[${index}]`),
  );
  const { join, fallback } = member;
  if (join !== undefined) checkJoin(join, `${field}.join`);
  if (fallback !== undefined) checkName(fallback, `${field}.fallback`, LIMITS.memberNameBytes);
  if (fallback === name) refuse(`${field}.fallback`, 'is the member itself', 'cycle');
  return { name, after: edges, before: onward, join, fallback };
}

function checkEdge(edge: string | EdgeRequest, field: string): CheckedEdge {
  if (typeof edge === 'string') return checkEdge({ from: edge }, field);
  checkMembers(edge, field, ['from', 'on', 'as', 'list']);
  const from = checkName(edge.from, `${field}.from`, LIMITS.memberNameBytes);
  return { from, ...checkEdgeTerms(edge, field) };
}

function checkOnward(
  name: string,
  edge: string | OnwardEdge,
  field: string,
): CheckedMember['before'][number] {
  if (typeof edge === 'string') return checkOnward(name, { to: edge }, field);
  checkMembers(edge, field, ['to', 'on', 'as', 'list']);
  const to = checkName(edge.to, `${field}.to`, LIMITS.memberNameBytes);
  if (to === name) refuse(`${field}.to`, 'is the member itself', 'cycle');
  return { to, ...checkEdgeTerms(edge, field) };
}

/** What an edge asks of its upstream, and what it hands over. */
export function checkEdgeTerms(
  { on, as, list }: Pick<EdgeRequest, 'on' | 'as' | 'list'>,
  field: string,
): Omit<CheckedEdge, 'from'> {
  checkChoice(on, `${field}.on`, EDGE_CONDITIONS);
  if (list !== undefined && typeof list !== 'boolean') refuse(`${field}.list`, 'must be true or false');
  if (list === true && as === undefined) refuse(`${field}.list`, 'is for edges that have a name');
  const inputName = as === undefined ? null : checkText(as, `${field}.as`, LIMITS.inputNameBytes);
  if (inputName === '__proto__') refuse(`${field}.as`, 'cannot be __proto__');
  return { condition: on ?? 'success', inputName, isList: list === true };
}

/** Two edges from one member would be one vote too many; a name that is handed over twice would lose one of the two. */
function checkEdges(name: string, edges: readonly CheckedEdge[], field: string): void {
  if (edges.length > LIMITS.flowEdges)
    refuse(field, `has ${edges.length} edges; the limit is ${LIMITS.flowEdges}`, 'too_many');
  const froms = new Set<string>();
  const names = new Map<string, boolean>();
  edges.forEach((edge, index) => {
    if (edge.from === name) refuse(`${field}[${index}].from`, 'is the member itself', 'cycle');
    if (froms.has(edge.from)) refuse(`${field}[${index}].from`, `names ${edge.from} a second time`);
    froms.add(edge.from);
    if (edge.inputName === null) return;
    if (names.has(edge.inputName) && !(edge.isList && names.get(edge.inputName) === true))
      refuse(`${field}[${index}].as`, `is taken; give both edges list: true to have a list`);
    names.set(edge.inputName, edge.isList);
  });
}

/** Results are put into the payload: it must have room for them. */
export function checkRoomForInputs(payload: unknown, field: string): void {
  if (payload === undefined || Object.prototype.toString.call(payload) === '[object Object]') return;
  refuse(field, 'must be an object, because results are put into it');
}

export function checkJoin(join: JoinPolicy, field: string): JoinPolicy {
  checkMembers(join, field, ['kind', 'k', 'onSatisfied']);
  if (!JOIN_KINDS.includes(join.kind)) refuse(`${field}.kind`, `must be one of ${JOIN_KINDS.join(', ')}`);
  const { k, onSatisfied } = join as { k?: unknown; onSatisfied?: unknown };
  if (join.kind === 'quorum') checkWhole(k, `${field}.k`, 1, LIMITS.flowEdges);
  else if (k !== undefined) refuse(`${field}.k`, 'is for a quorum');
  checkChoice(onSatisfied, `${field}.onSatisfied`, ON_SATISFIED);
  if (join.kind === 'all' && onSatisfied !== undefined)
    refuse(`${field}.onSatisfied`, 'is for any and quorum: all needs every one of them');
  return join;
}

export function joinRow(policy: JoinPolicy): JoinRow {
  return { kind: policy.kind, needed: neededOf(policy), cancelsRest: cancelsRest(policy) };
}

/**
 * All edges, by the member they lead to: those that were asked for from either end, and those of fallbacks. Members that are not among
 * the new ones must be `known`: there already.
 */
export function connect(
  members: readonly CheckedMember[],
  isKnown: (name: string) => boolean,
  held: 'until_sealed' | 'no',
): Map<string, CheckedEdge[]> {
  const edges = new Map<string, CheckedEdge[]>();
  members.forEach(({ name, after }, index) => {
    if (edges.has(name)) refuse(`members[${index}].name`, `is the name of another member: ${name}`);
    edges.set(name, [...after]);
  });
  members.forEach(({ name, before }, index) => {
    before.forEach(({ to, ...edge }, place) => {
      const field = `members[${index}].before[${place}]`;
      if (!edges.has(to) && !isKnown(to)) refuse(field, `names no member: ${to}`, 'not_a_member');
      if (!edges.has(to)) edges.set(to, []);
      edges.get(to)!.push({ from: name, ...edge });
    });
  });
  members.forEach(({ name, fallback }, index) => {
    if (fallback === undefined) return;
    const into = edges.get(fallback);
    if (into === undefined)
      refuse(`members[${index}].fallback`, `names no member of this call: ${fallback}`, 'not_a_member');
    if (into.some(({ from }) => from === name))
      refuse(`members[${index}].fallback`, `already comes after it: ${fallback}`);
    into.push({ from: name, condition: 'skipped', inputName: null, isList: false });
  });
  members.forEach(({ name, join }, index) => {
    const into = edges.get(name)!;
    for (const { from } of into)
      if (!edges.has(from) && !isKnown(from))
        refuse(`members[${index}].after`, `names no member: ${from}`, 'not_a_member');
    checkEdges(name, into, `members[${index}].after`);
    // More edges may come before the flow is sealed.
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
  if (needed > edges) refuse(field, `needs ${needed} of ${edges} edges`);
}

function refuseCircle(edges: ReadonlyMap<string, readonly CheckedEdge[]>): void {
  const circle = findCircle(new Map([...edges].map(([name, into]) => [name, into.map(({ from }) => from)])));
  if (circle === undefined) return;
  const shown = circle.length <= 12 ? circle : [...circle.slice(0, 6), '…', ...circle.slice(-5)];
  throw new EngineError('cycle', `The edges lead in a circle: ${shown.join(' → ')}.`, { field: 'members' });
}

/** Edges as rows, by the uuids of the members they join. */
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
