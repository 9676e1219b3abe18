/**
 * Reads flows: where one belongs, what is in it, how far it is, and lists of them.
 */
import type {
  CancelFlowPolicy,
  EdgeCondition,
  EdgeState,
  GroupState,
  JoinKind,
} from '../../contract/flows.ts';
import type { PublicState } from '../../contract/states.ts';
import { run, type Database } from '../database/database.ts';
import type { ExecutionKey } from '../executions/executions.sql.ts';
import { readUncompiled } from '../database/uncompiled.ts';

/** The flow an execution is a member of; or the flow itself, by its own id. Undefined when there is none. */
export async function readFlowOf(
  database: Database,
  key: ExecutionKey,
  by: 'by_member' | 'by_flow' = 'by_member',
): Promise<(ExecutionKey & { namespace: string }) | undefined> {
  const { prefix } = database;
  const from =
    by === 'by_flow'
      ? `${prefix}ff_flow f WHERE f.flow_id = $1 AND f.partition_key = $2`
      : `${prefix}ff_execution e JOIN ${prefix}ff_flow f ON f.flow_id = e.flow_id
         WHERE e.execution_id = $1 AND e.partition_key = $2`;
  const rows = await run<{ flow_id: string; partition_key: number; namespace: string }>(database, {
    doing: 'looking for a flow',
    text: `SELECT f.flow_id, f.partition_key, f.namespace FROM ${from}`,
    params: [key.uuid, key.partition],
    repeatable: 'yes',
  });
  const [row] = rows;
  return row && { uuid: row.flow_id, partition: row.partition_key, namespace: row.namespace };
}

/** The uuids of members, by name; names nobody has are missing. */
export async function readMemberNames(
  database: Database,
  flow: ExecutionKey,
  names: readonly string[],
): Promise<Map<string, string>> {
  const rows = await run<{ name: string; execution_id: string }>(database, {
    doing: 'looking for members of a flow',
    text: `SELECT name, execution_id FROM ${database.prefix}ff_member WHERE flow_id = $1 AND name = ANY ($2::text[])`,
    params: [flow.uuid, names],
    repeatable: 'yes',
  });
  return new Map(rows.map((row) => [row.name, row.execution_id]));
}

/** The names of members, by uuid. */
export async function readNamesOf(
  database: Database,
  uuids: readonly string[],
): Promise<Map<string, string>> {
  const rows = await run<{ name: string; execution_id: string }>(database, {
    doing: 'looking for members of a flow',
    text: `SELECT name, execution_id FROM ${database.prefix}ff_member WHERE execution_id = ANY ($1::uuid[])`,
    params: [uuids],
    repeatable: 'yes',
  });
  return new Map(rows.map((row) => [row.execution_id, row.name]));
}

export interface FlowHead {
  flow_id: string;
  partition_key: number;
  name: string;
  namespace: string;
  tags: Record<string, string>;
  graph_revision: number;
  node_count: number;
  edge_count: number;
  created_at_ms: number;
  sealed_at_ms: number | null;
  ended_at_ms: number | null;
  outcome: 'completed' | 'failed' | 'cancelled' | null;
  cancel_policy: CancelFlowPolicy | null;
  cancel_reason: string | null;
  cancelled_by: string | null;
  cancelled_at_ms: number | null;
}

const HEAD = `f.flow_id, f.partition_key, f.name, f.namespace, f.tags, f.graph_revision, f.node_count, f.edge_count, f.created_at_ms,
  f.sealed_at_ms, p.ended_at_ms, p.outcome::text, p.cancel_policy, p.cancel_reason, p.cancelled_by, p.cancelled_at_ms`;

export async function readFlowHead(database: Database, flow: ExecutionKey): Promise<FlowHead | undefined> {
  const { prefix } = database;
  const rows = await run<FlowHead>(database, {
    doing: 'reading a flow',
    text: `SELECT ${HEAD} FROM ${prefix}ff_flow f JOIN ${prefix}ff_flow_progress p ON p.flow_id = f.flow_id
           WHERE f.flow_id = $1 AND f.partition_key = $2`,
    params: [flow.uuid, flow.partition],
    repeatable: 'yes',
  });
  return rows[0];
}

export interface StoredMember {
  name: string;
  execution_id: string;
  kind: string;
  public_state: PublicState;
  attempt_index: number;
  failure_message: string | null;
  join_kind: JoinKind | null;
  k_target: number | null;
  cancels_rest: boolean | null;
  group_state: GroupState | null;
  edge_count: number | null;
  success_count: number | null;
  fail_count: number | null;
  skip_count: number | null;
}

export function readMembers(database: Database, flow: ExecutionKey): Promise<StoredMember[]> {
  const { prefix } = database;
  return readUncompiled<StoredMember>(database, {
    doing: 'reading the members of a flow',
    text: `SELECT m.name, m.execution_id, r.kind, e.attempt_index, o.failure_message,
             ${prefix}ff_public_state(e.lifecycle_phase, e.eligibility_state, e.terminal_outcome, e.eligible_at_ms, ${prefix}ff_now_ms())
               AS public_state,
             g.join_kind::text, g.k_target, g.cancels_rest, g.group_state::text, g.edge_count, g.success_count, g.fail_count,
             g.skip_count
           FROM ${prefix}ff_member m
           JOIN ${prefix}ff_execution e ON e.execution_id = m.execution_id
           JOIN ${prefix}ff_route r ON r.route_id = e.route_id
           LEFT JOIN ${prefix}ff_outcome o ON o.execution_id = m.execution_id AND o.partition_key = m.partition_key
             AND o.attempt_index = e.attempt_index AND e.lifecycle_phase = 'terminal'
           LEFT JOIN ${prefix}ff_edge_group g ON g.downstream_eid = m.execution_id
           WHERE m.flow_id = $1::uuid ORDER BY m.name`,
    params: [flow.uuid],
    repeatable: 'yes',
  });
}

export interface StoredEdge {
  edge_id: string;
  upstream_eid: string;
  downstream_eid: string;
  condition: EdgeCondition;
  state: EdgeState;
  input_name: string | null;
}

export function readEdges(database: Database, flow: ExecutionKey): Promise<StoredEdge[]> {
  const { prefix } = database;
  return readUncompiled<StoredEdge>(database, {
    doing: 'reading the edges of a flow',
    text: `SELECT x.edge_id, x.upstream_eid, x.downstream_eid, x.condition::text, x.state::text, x.input_name
           FROM ${prefix}ff_member m JOIN ${prefix}ff_edge x ON x.upstream_eid = m.execution_id WHERE m.flow_id = $1::uuid`,
    params: [flow.uuid],
    repeatable: 'yes',
  });
}

const NO_UUID = '00000000-0000-0000-0000-000000000000';

/** A place in the list of flows. */
export interface FlowPlace {
  createdAtMs: number;
  uuid: string;
}

export interface FlowQuery {
  namespace: string | null;
  name: string | null;
  outcome: 'open' | 'completed' | 'failed' | 'cancelled' | null;
  /** After this one, newest first. */
  after: FlowPlace | null;
  limit: number;
  /** Flows looked at, at most. */
  examined: number;
}

/** Flows, the newest first, of so many that are looked at; `last` is where to go on when there may be more. */
export async function listFlows(
  database: Database,
  query: FlowQuery,
): Promise<{ flows: FlowHead[]; last: FlowPlace | null }> {
  const { prefix } = database;
  const after = [query.after?.createdAtMs ?? Number.MAX_SAFE_INTEGER, query.after?.uuid ?? NO_UUID];
  const looked = `SELECT * FROM ${prefix}ff_flow
    WHERE created_at_ms <= $1::bigint AND (created_at_ms, flow_id) < ($1::bigint, $2::uuid)
    ORDER BY created_at_ms DESC, flow_id DESC`;
  const flows = await readUncompiled<FlowHead>(database, {
    doing: 'listing flows',
    text: `SELECT ${HEAD} FROM (${looked} LIMIT $3::bigint) f JOIN ${prefix}ff_flow_progress p ON p.flow_id = f.flow_id
           WHERE ($4::text IS NULL OR f.namespace = $4::text) AND ($5::text IS NULL OR f.name = $5::text)
             AND ($6::text IS NULL OR coalesce(p.outcome::text, 'open') = $6::text)
           ORDER BY f.created_at_ms DESC, f.flow_id DESC LIMIT $7::bigint`,
    params: [...after, query.examined, query.namespace, query.name, query.outcome, query.limit],
    repeatable: 'yes',
  });
  if (flows.length === query.limit) return { flows, last: placeOf(flows.at(-1)!) };
  const [end] = await run<{ created_at_ms: number; flow_id: string }>(database, {
    doing: 'listing flows',
    text: `${looked} OFFSET $3 LIMIT 1`,
    params: [...after, query.examined - 1],
    repeatable: 'yes',
  });
  return { flows, last: end === undefined ? null : placeOf(end) };
}

function placeOf(row: { created_at_ms: number; flow_id: string }): FlowPlace {
  return { createdAtMs: row.created_at_ms, uuid: row.flow_id };
}
