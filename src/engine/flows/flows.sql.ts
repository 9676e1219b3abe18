/**
 * Calls the SQL functions of flows. Only statements, no decisions.
 */
import type { EdgeCondition, JoinKind } from '../../contract/flows.ts';
import { columns, columnsOf, withColumns, type RowOf } from '../database/columns.ts';
import { run, type Database } from '../database/database.ts';
import type { Answered } from '../executions/answered.sql.ts';
import type { ExecutionKey, LeaseKey } from '../executions/executions.sql.ts';
import { SUBMIT_ARGUMENTS, submitParams, type SubmitCall } from '../executions/submitting/submits.sql.ts';
import { ADVANCED, type Advanced } from './work.sql.ts';

export interface FlowRow extends ExecutionKey {
  name: string;
  namespace: string;
  /** JSON text. */
  tags: string;
}

export interface MemberRow {
  name: string;
  /** Null for a member without edges. */
  join: JoinRow | null;
}

export interface JoinRow {
  kind: JoinKind;
  needed: number;
  cancelsRest: boolean;
}

export interface EdgeRow {
  edgeId: string;
  upstream: string;
  downstream: string;
  condition: EdgeCondition;
  inputName: string | null;
  inputPlace: number | null;
}

/** Members and edges to add; the members are parallel to the rows of the call. */
export interface Growth {
  call: SubmitCall;
  members: readonly MemberRow[];
  edges: readonly EdgeRow[];
}

/**
 * `submitted` and `duplicate`: a member, by name. `unblocked` and `skipped`: a member whose join was decided. `more`:
 * work is left. `grown`: the new revision; `known`: the revision of an existing flow. `unknown_route`: nothing was
 * done, because a route must be interned first.
 */
const GROWN = withColumns(
  columnsOf<Answered<GrowOutcome> & { name: string | null }>()(
    'uuid',
    'outcome',
    'routeId',
    'dueInMs',
    'name',
  ),
  columns<{ revision: number | null }>({ revision: 'graph_revision' }),
);
export type GrowAnswer = RowOf<typeof GROWN>;
type GrowOutcome =
  'submitted' | 'duplicate' | 'known' | 'unblocked' | 'skipped' | 'more' | 'grown' | 'unknown_route';

const GRAPH_ARGUMENTS = (from: number): string =>
  [
    'p_names => $::text[]',
    'p_kinds => $::text[]',
    'p_ks => $::integer[]',
    'p_cancels => $::boolean[]',
    ...EDGE_ARGUMENTS,
  ]
    .map((argument, index) => argument.replace('$', `$${from + index}`))
    .join(', ');

const EDGE_ARGUMENTS = [
  'p_edge_ids => $::uuid[]',
  'p_ups => $::uuid[]',
  'p_downs => $::uuid[]',
  'p_conditions => $::text[]',
  'p_input_names => $::text[]',
  'p_input_places => $::integer[]',
];

function graphParams({ members, edges }: Growth): unknown[] {
  return [
    members.map((member) => member.name),
    members.map((member) => member.join?.kind ?? null),
    members.map((member) => member.join?.needed ?? null),
    members.map((member) => member.join?.cancelsRest ?? null),
    ...edgeParams(edges),
  ];
}

function edgeParams(edges: readonly EdgeRow[]): unknown[] {
  return [
    edges.map((edge) => edge.edgeId),
    edges.map((edge) => edge.upstream),
    edges.map((edge) => edge.downstream),
    edges.map((edge) => edge.condition),
    edges.map((edge) => edge.inputName),
    edges.map((edge) => edge.inputPlace),
  ];
}

/** Repeatable, because the flow has an id. */
export function submitFlow(database: Database, flow: FlowRow, growth: Growth): Promise<GrowAnswer[]> {
  const submit = submitParams(growth.call);
  const graph = graphParams(growth);
  const at = submit.length + graph.length;
  return run(database, {
    doing: 'submitting a flow',
    columns: GROWN,
    text: `SELECT ${GROWN.list} FROM ${database.prefix}ff_submit_flow(${SUBMIT_ARGUMENTS}, ${GRAPH_ARGUMENTS(submit.length + 1)},
      p_flow => $${at + 1}::uuid, p_partition => $${at + 2}::smallint, p_flow_name => $${at + 3}::text,
      p_namespace => $${at + 4}::text, p_tags => $${at + 5}::text::jsonb)`,
    params: [...submit, ...graph, flow.uuid, flow.partition, flow.name, flow.namespace, flow.tags],
    repeatable: 'yes',
  });
}

/** Repeatable, because members are identified by name. */
export function growFlow(
  database: Database,
  flow: ExecutionKey,
  growth: Growth,
  by: { lease: LeaseKey } | { revision: number | null },
): Promise<GrowAnswer[]> {
  const submit = submitParams(growth.call);
  const graph = graphParams(growth);
  const at = submit.length + graph.length;
  const lease = 'lease' in by ? by.lease : null;
  return run(database, {
    doing: 'extending a flow',
    columns: GROWN,
    text: `SELECT ${GROWN.list} FROM ${database.prefix}ff_grow_flow(${SUBMIT_ARGUMENTS}, ${GRAPH_ARGUMENTS(submit.length + 1)},
      p_flow => $${at + 1}::uuid, p_partition => $${at + 2}::smallint, p_revision => $${at + 3}::bigint,
      p_member => $${at + 4}::uuid, p_attempt => $${at + 5}::integer, p_epoch => $${at + 6}::bigint)`,
    params: [
      ...submit,
      ...graph,
      flow.uuid,
      flow.partition,
      'revision' in by ? by.revision : null,
      lease?.uuid ?? null,
      lease?.attemptIndex ?? null,
      lease?.leaseEpoch ?? null,
    ],
    repeatable: 'yes',
  });
}

/** Returns whether it is new. */
export async function createFlow(database: Database, flow: FlowRow): Promise<boolean> {
  const rows = await run<{ isNew: boolean }>(database, {
    doing: 'creating a flow',
    text: `SELECT ${database.prefix}ff_create_flow($1::uuid, $2::smallint, $3, $4, $5::text::jsonb, false) AS "isNew"`,
    params: [flow.uuid, flow.partition, flow.name, flow.namespace, flow.tags],
    repeatable: 'yes',
  });
  return rows[0]!.isNew;
}

/** Returns the new revision. Not repeatable: a second call would find them in a flow. */
export async function adoptMembers(
  database: Database,
  flow: ExecutionKey,
  revision: number | null,
  members: readonly { uuid: string; name: string }[],
): Promise<number> {
  const rows = await run<{ revision: number }>(database, {
    doing: 'adding executions to a flow',
    text: `SELECT ${database.prefix}ff_adopt_members($1::uuid, $2::smallint, $3::bigint, $4::uuid[], $5::text[]) AS revision`,
    params: [
      flow.uuid,
      flow.partition,
      revision,
      members.map((member) => member.uuid),
      members.map((member) => member.name),
    ],
    repeatable: 'no',
  });
  return rows[0]!.revision;
}

export async function setJoin(
  database: Database,
  flow: ExecutionKey,
  member: string,
  join: JoinRow,
): Promise<'set' | 'already_set'> {
  const rows = await run<{ outcome: 'set' | 'already_set' }>(database, {
    doing: 'setting a join',
    text: `SELECT ${database.prefix}ff_set_join($1::uuid, $2::smallint, $3::uuid, $4, $5::integer, $6::boolean) AS outcome`,
    params: [flow.uuid, flow.partition, member, join.kind, join.needed, join.cancelsRest],
    repeatable: 'yes',
  });
  return rows[0]!.outcome;
}

/** Returns the new revision. */
export async function stageEdges(
  database: Database,
  flow: ExecutionKey,
  revision: number | null,
  edges: readonly EdgeRow[],
): Promise<number> {
  const named = EDGE_ARGUMENTS.map((argument, index) => argument.replace('$', `$${4 + index}`)).join(', ');
  const rows = await run<{ revision: number }>(database, {
    doing: 'staging edges',
    text: `SELECT ${database.prefix}ff_stage_edges(p_flow => $1::uuid, p_partition => $2::smallint, p_revision => $3::bigint,
      ${named}) AS revision`,
    params: [flow.uuid, flow.partition, revision, ...edgeParams(edges)],
    repeatable: 'no',
  });
  return rows[0]!.revision;
}

export async function applyEdges(
  database: Database,
  flow: ExecutionKey,
  edgeIds: readonly string[],
): Promise<number> {
  const rows = await run<{ applied: number }>(database, {
    doing: 'applying edges',
    text: `SELECT ${database.prefix}ff_apply_edges($1::uuid, $2::smallint, $3::uuid[]) AS applied`,
    params: [flow.uuid, flow.partition, edgeIds],
    repeatable: 'yes',
  });
  return rows[0]!.applied;
}

export async function unstageEdges(
  database: Database,
  flow: ExecutionKey,
  edgeIds: readonly string[],
): Promise<number> {
  const rows = await run<{ removed: number }>(database, {
    doing: 'unstaging edges',
    text: `SELECT ${database.prefix}ff_unstage_edges($1::uuid, $2::smallint, $3::uuid[]) AS removed`,
    params: [flow.uuid, flow.partition, edgeIds],
    repeatable: 'yes',
  });
  return rows[0]!.removed;
}

export function sealFlow(
  database: Database,
  flow: ExecutionKey,
  revision: number | null,
): Promise<Advanced[]> {
  return run(database, {
    doing: 'sealing a flow',
    columns: ADVANCED,
    text: `SELECT ${ADVANCED.list} FROM ${database.prefix}ff_seal_flow($1::uuid, $2::smallint, $3::bigint)`,
    params: [flow.uuid, flow.partition, revision],
    repeatable: 'yes',
  });
}
