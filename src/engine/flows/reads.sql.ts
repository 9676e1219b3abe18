/**
 * Reads flows: the flow of an execution, its members and edges, and lists of flows.
 */
import type { EdgeSnapshot, FlowState, FlowSummary, MemberSnapshot } from '../../contract/flows.ts';
import { parseExecutionId, type IdRange } from '../../contract/ids.ts';
import { columns, columnsOf, idText, inSchema } from '../database/columns.ts';
import { run, type Database } from '../database/database.ts';
import type { ExecutionKey } from '../executions/executions.sql.ts';
import { readUncompiled } from '../database/uncompiled.ts';

const FLOW_KEY = columns<ExecutionKey & Pick<FlowSummary, 'namespace'>>({
  uuid: 'f.flow_id',
  partition: 'f.partition_key',
  namespace: 'f.namespace',
});

/** Reads the flow of an execution, or the flow itself by its own id. Undefined when there is none. */
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
  const rows = await run(database, {
    doing: 'finding a flow',
    columns: FLOW_KEY,
    text: `SELECT ${FLOW_KEY.list} FROM ${from}`,
    params: [key.uuid, key.partition],
    repeatable: 'yes',
  });
  return rows[0];
}

const NAMED = columnsOf<MemberSnapshot & ExecutionKey>()('name', 'uuid');

/** Reads the uuids of members, by name; unknown names are missing. */
export async function readMemberNames(
  database: Database,
  flow: ExecutionKey,
  names: readonly string[],
): Promise<Map<string, string>> {
  const rows = await run(database, {
    doing: 'finding members of a flow',
    columns: NAMED,
    text: `SELECT ${NAMED.list} FROM ${database.prefix}ff_member WHERE flow_id = $1 AND name = ANY ($2::text[])`,
    params: [flow.uuid, names],
    repeatable: 'yes',
  });
  return new Map(rows.map((row) => [row.name, row.uuid]));
}

/** Reads the names of members, by uuid. */
export async function readNamesOf(
  database: Database,
  uuids: readonly string[],
): Promise<Map<string, string>> {
  const rows = await run(database, {
    doing: 'finding members of a flow',
    columns: NAMED,
    text: `SELECT ${NAMED.list} FROM ${database.prefix}ff_member WHERE execution_id = ANY ($1::uuid[])`,
    params: [uuids],
    repeatable: 'yes',
  });
  return new Map(rows.map((row) => [row.uuid, row.name]));
}

/** A flow without its members. */
export type FlowHead = Omit<FlowSummary, 'state'> & {
  outcome: Extract<FlowState, 'completed' | 'failed' | 'cancelled'> | null;
};

const HEAD = columns<FlowHead>({
  flowId: idText('f.partition_key', 'f.flow_id'),
  name: 'f.name',
  namespace: 'f.namespace',
  tags: 'f.tags',
  revision: 'f.graph_revision',
  nodeCount: 'f.node_count',
  edgeCount: 'f.edge_count',
  createdAtMs: 'f.created_at_ms',
  sealedAtMs: 'f.sealed_at_ms',
  endedAtMs: 'p.ended_at_ms',
  outcome: 'p.outcome::text',
  cancel: `CASE WHEN p.cancel_policy IS NOT NULL THEN jsonb_build_object(
    'policy', p.cancel_policy, 'reason', p.cancel_reason, 'by', p.cancelled_by, 'atMs', p.cancelled_at_ms) END`,
});

export async function readFlowHead(database: Database, flow: ExecutionKey): Promise<FlowHead | undefined> {
  const { prefix } = database;
  const rows = await run(database, {
    doing: 'reading a flow',
    columns: HEAD,
    text: `SELECT ${HEAD.list} FROM ${prefix}ff_flow f JOIN ${prefix}ff_flow_progress p ON p.flow_id = f.flow_id
           WHERE f.flow_id = $1 AND f.partition_key = $2`,
    params: [flow.uuid, flow.partition],
    repeatable: 'yes',
  });
  return rows[0];
}

/** The flows in a range of ids, the highest ids first. */
export function readFlowHeads(
  database: Database,
  { from, to, partition }: IdRange,
  limit: number,
): Promise<FlowHead[]> {
  return run(database, {
    doing: 'finding flows',
    columns: HEAD,
    text: inSchema(
      database,
      `SELECT ${HEAD.list}
       FROM (
         SELECT * FROM s.ff_flow WHERE flow_id BETWEEN $1 AND $2 AND ($3::smallint IS NULL OR partition_key = $3)
         ORDER BY flow_id DESC LIMIT $4) f
       CROSS JOIN LATERAL (SELECT * FROM s.ff_flow_progress WHERE flow_id = f.flow_id OFFSET 0) p
       ORDER BY f.flow_id DESC`,
    ),
    params: [from, to, partition, limit],
    repeatable: 'yes',
  });
}

const JOIN_POLICY = `jsonb_strip_nulls(jsonb_build_object('kind', g.join_kind,
  'k', CASE WHEN g.join_kind = 'quorum' THEN g.k_target END,
  'onSatisfied', CASE WHEN g.join_kind = 'all' THEN NULL WHEN g.cancels_rest THEN 'cancel_remaining' ELSE 'let_run' END))`;

const MEMBER = columns<MemberSnapshot>({
  name: 'm.name',
  executionId: idText('m.partition_key', 'm.execution_id'),
  kind: 'r.kind',
  state:
    's.ff_public_state(e.lifecycle_phase, e.eligibility_state, e.terminal_outcome, e.eligible_at_ms, s.ff_now_ms())',
  attemptIndex: 'e.attempt_index',
  message: 's.ff_shown_text(e.traits, o.outcome, o.failure_message)',
  join: `CASE WHEN g.join_kind IS NOT NULL THEN jsonb_build_object('policy', ${JOIN_POLICY}, 'state', g.group_state,
    'edges', g.edge_count, 'satisfied', g.success_count, 'failed', g.fail_count, 'skipped', g.skip_count,
    'pending', g.edge_count - g.success_count - g.fail_count - g.skip_count) END`,
});

/** Ordered by name. */
export function readMembers(database: Database, flow: ExecutionKey): Promise<MemberSnapshot[]> {
  return readUncompiled(database, {
    doing: 'reading the members of a flow',
    columns: MEMBER,
    text: inSchema(
      database,
      `SELECT ${MEMBER.list}
       FROM s.ff_member m
       JOIN s.ff_execution e ON e.execution_id = m.execution_id
       JOIN s.ff_route r ON r.route_id = e.route_id
       LEFT JOIN s.ff_attempt_history o ON o.execution_id = m.execution_id AND o.partition_key = m.partition_key
         AND o.attempt_index = e.attempt_index AND e.lifecycle_phase = 'terminal'
       LEFT JOIN s.ff_edge_group g ON g.downstream_eid = m.execution_id
       WHERE m.flow_id = $1::uuid ORDER BY m.name`,
    ),
    params: [flow.uuid],
    repeatable: 'yes',
  });
}

/** An edge with execution ids instead of member names. */
const EDGE = columns<EdgeSnapshot>({
  edgeId: 'x.edge_id',
  from: idText('m.partition_key', 'x.upstream_eid'),
  to: idText('m.partition_key', 'x.downstream_eid'),
  on: 'x.condition::text',
  state: 'x.state::text',
  as: 'x.input_name',
});

/** `from` and `to` are execution ids. */
export function readEdges(database: Database, flow: ExecutionKey): Promise<EdgeSnapshot[]> {
  const { prefix } = database;
  return readUncompiled(database, {
    doing: 'reading the edges of a flow',
    columns: EDGE,
    text: `SELECT ${EDGE.list}
           FROM ${prefix}ff_member m JOIN ${prefix}ff_edge x ON x.upstream_eid = m.execution_id WHERE m.flow_id = $1::uuid`,
    params: [flow.uuid],
    repeatable: 'yes',
  });
}

const NO_UUID = '00000000-0000-0000-0000-000000000000';

/** A position in the list of flows. */
export type FlowPlace = Pick<FlowSummary, 'createdAtMs'> & Pick<ExecutionKey, 'uuid'>;

const PLACE = columns<FlowPlace>({ createdAtMs: 'f.created_at_ms', uuid: 'f.flow_id' });

export interface FlowQuery {
  namespace: string | null;
  name: string | null;
  outcome: 'open' | 'completed' | 'failed' | 'cancelled' | null;
  /** Lists flows after this one, newest first. */
  after: FlowPlace | null;
  limit: number;
  /** Most flows to examine. */
  examined: number;
}

/**
 * Lists flows, newest first, among a limited number of examined ones; `last` is where to continue when there may be
 * more.
 */
export async function listFlows(
  database: Database,
  query: FlowQuery,
): Promise<{ flows: FlowHead[]; last: FlowPlace | null }> {
  const { prefix } = database;
  const after = [query.after?.createdAtMs ?? Number.MAX_SAFE_INTEGER, query.after?.uuid ?? NO_UUID];
  const looked = (list: string): string => `SELECT ${list} FROM ${prefix}ff_flow f
    WHERE created_at_ms <= $1::bigint AND (created_at_ms, flow_id) < ($1::bigint, $2::uuid)
    ORDER BY created_at_ms DESC, flow_id DESC`;
  const flows = await readUncompiled(database, {
    doing: 'listing flows',
    columns: HEAD,
    text: `SELECT ${HEAD.list} FROM (${looked('*')} LIMIT $3::bigint) f
           JOIN ${prefix}ff_flow_progress p ON p.flow_id = f.flow_id
           WHERE ($4::text IS NULL OR f.namespace = $4::text) AND ($5::text IS NULL OR f.name = $5::text)
             AND ($6::text IS NULL OR coalesce(p.outcome::text, 'open') = $6::text)
           ORDER BY f.created_at_ms DESC, f.flow_id DESC LIMIT $7::bigint`,
    params: [...after, query.examined, query.namespace, query.name, query.outcome, query.limit],
    repeatable: 'yes',
  });
  if (flows.length === query.limit) return { flows, last: placeOf(flows.at(-1)!) };
  const [end] = await run(database, {
    doing: 'listing flows',
    columns: PLACE,
    text: `${looked(PLACE.list)} OFFSET $3 LIMIT 1`,
    params: [...after, query.examined - 1],
    repeatable: 'yes',
  });
  return { flows, last: end ?? null };
}

function placeOf({ createdAtMs, flowId }: FlowHead): FlowPlace {
  return { createdAtMs, uuid: parseExecutionId(flowId).uuid };
}
