/**
 * Calls the SQL functions that do outstanding flow work: resolving edges, cancelling losers, cancelling flows.
 */
import type { CancelFlowOutcome, CancelFlowPolicy, FlowState } from '../../contract/flows.ts';
import { columns, columnsOf, inSchema, withColumns, type RowOf } from '../database/columns.ts';
import { run, type Database } from '../database/database.ts';
import type { Answered } from '../executions/answered.sql.ts';
import type { ExecutionKey } from '../executions/executions.sql.ts';

const LEFT = columns<Record<'ends' | 'siblings' | 'cancels', boolean>>({
  ends: 'EXISTS (SELECT 1 FROM s.ff_flow_job)',
  siblings: 'EXISTS (SELECT 1 FROM s.ff_pending_cancel_groups)',
  cancels: 'EXISTS (SELECT 1 FROM s.ff_cancel_backlog)',
});

/** Returns which work is outstanding. Cheap, because most of the time there is none. */
export async function readFlowWork(database: Database): Promise<RowOf<typeof LEFT>> {
  const rows = await run(database, {
    doing: 'finding work on flows',
    columns: LEFT,
    text: inSchema(database, `SELECT ${LEFT.list}`),
    params: [],
    repeatable: 'yes',
  });
  return rows[0]!;
}

/** What a finished member decided for those after it; `told` when there were finished members to handle. */
export const ADVANCED = columnsOf<Answered<'unblocked' | 'skipped' | 'more' | 'told'>>()(
  'uuid',
  'outcome',
  'routeId',
);
export type Advanced = RowOf<typeof ADVANCED>;

export function tellEnds(database: Database, limit: number, edges: number): Promise<Advanced[]> {
  return run(database, {
    doing: 'resolving edges of finished members',
    columns: ADVANCED,
    text: `SELECT ${ADVANCED.list} FROM ${database.prefix}ff_tell_ends($1, $2)`,
    params: [limit, edges],
    repeatable: 'yes',
  });
}

const FLOW = columns<ExecutionKey>({ uuid: 'flow_id', partition: 'partition_key' });

/** A join with losers to cancel: its flow, and the member it belongs to. */
const GROUP = withColumns(FLOW, columns<{ downstream: string }>({ downstream: 'downstream_eid' }));
export type PendingGroup = RowOf<typeof GROUP>;

export function listPendingGroups(database: Database, limit: number): Promise<PendingGroup[]> {
  return run(database, {
    doing: 'finding losers of joins',
    columns: GROUP,
    text: `SELECT ${GROUP.list} FROM ${database.prefix}ff_pending_cancel_groups
           ORDER BY enqueued_at_ms LIMIT $1`,
    params: [limit],
    repeatable: 'yes',
  });
}

const CANCELLED = columnsOf<Answered>()('uuid', 'outcome', 'workerInstanceId');
export type CancelledMember = RowOf<typeof CANCELLED>;

/** The outcome of one call, from its first row, and the members it cancelled. */
export interface Cancelling<Outcome extends string> {
  outcome: Outcome;
  cancelled: CancelledMember[];
}

async function cancelBy<Outcome extends string>(
  database: Database,
  statement: { doing: string; call: string; params: unknown[] },
): Promise<Cancelling<Outcome>> {
  const [first, ...cancelled] = await run(database, {
    doing: statement.doing,
    columns: CANCELLED,
    text: `SELECT ${CANCELLED.list} FROM ${database.prefix}${statement.call}`,
    params: statement.params,
    repeatable: 'yes',
  });
  return { outcome: first!.outcome as Outcome, cancelled };
}

type Dispatched = 'dispatched' | 'unfinished' | 'orphaned' | 'skipped_for_reconciler' | 'skipped_locked';

export function cancelSiblings(
  database: Database,
  group: PendingGroup,
  limit: number,
): Promise<Cancelling<Dispatched>> {
  return cancelBy(database, {
    doing: 'cancelling the losers of a join',
    call: 'ff_cancel_siblings($1::smallint, $2::uuid, $3::uuid, $4)',
    params: [group.partition, group.uuid, group.downstream, limit],
  });
}

export type SiblingRepair = 'stale' | 'drained' | 'live';

const REPAIRED = columns<{ outcome: SiblingRepair; count: number }>({ outcome: 'outcome', count: 'n' });

export async function reconcileSiblings(
  database: Database,
  limit: number,
): Promise<Record<SiblingRepair, number>> {
  const rows = await run(database, {
    doing: 'repairing losers of joins',
    columns: REPAIRED,
    text: `SELECT ${REPAIRED.list} FROM ${database.prefix}ff_reconcile_siblings($1)`,
    params: [limit],
    repeatable: 'yes',
  });
  const counts: Record<SiblingRepair, number> = { stale: 0, drained: 0, live: 0 };
  for (const { outcome, count } of rows) counts[outcome] = count;
  return counts;
}

type Ended = Extract<FlowState, 'completed' | 'failed' | 'cancelled'>;

/** `wasOpen`: it had not been sealed. */
const CANCEL_FLOW = columnsOf<{
  outcome: CancelFlowOutcome['outcome'];
  flowOutcome: Ended | null;
  policy: CancelFlowPolicy | null;
  wasOpen: boolean;
}>()('outcome', 'flowOutcome', 'policy', 'wasOpen');

export async function cancelFlow(
  database: Database,
  flow: ExecutionKey,
  request: { policy: CancelFlowPolicy; reason: string; by: string },
): Promise<RowOf<typeof CANCEL_FLOW>> {
  const rows = await run(database, {
    doing: 'cancelling a flow',
    columns: CANCEL_FLOW,
    text: `SELECT ${CANCEL_FLOW.list} FROM ${database.prefix}ff_cancel_flow($1::uuid, $2::smallint, $3, $4, $5)`,
    params: [flow.uuid, flow.partition, request.policy, request.reason, request.by],
    repeatable: 'yes',
  });
  return rows[0]!;
}

export function listCancellingFlows(database: Database, limit: number): Promise<ExecutionKey[]> {
  return run(database, {
    doing: 'finding flows that are being cancelled',
    columns: FLOW,
    text: `SELECT ${FLOW.list} FROM ${database.prefix}ff_cancel_backlog ORDER BY requested_at_ms LIMIT $1`,
    params: [limit],
    repeatable: 'yes',
  });
}

/** `held`: another process is doing it, or it is done. */
export function cancelMembers(
  database: Database,
  flow: string,
  limit: number,
): Promise<Cancelling<'done' | 'more' | 'held'>> {
  return cancelBy(database, {
    doing: 'cancelling members of a flow',
    call: 'ff_cancel_members($1::uuid, $2)',
    params: [flow, limit],
  });
}

/** A position among members that are not counted. */
export interface MemberPlace {
  flow: string;
  execution: string;
}

const LOST = columns<{ [Part in keyof MemberPlace]: string | null } & { found: number }>({
  found: 'found',
  flow: 'flow_id',
  execution: 'execution_id',
});

/**
 * Finds finished members whose edges were never resolved. Returns how many, and where to continue. Any found is a bug.
 */
export async function tellLostEnds(
  database: Database,
  after: MemberPlace,
  limit: number,
): Promise<{ found: number; next: MemberPlace | null }> {
  const rows = await run(database, {
    doing: 'finding unresolved edges',
    columns: LOST,
    text: `SELECT ${LOST.list} FROM ${database.prefix}ff_tell_lost_ends($1::uuid, $2::uuid, $3)`,
    params: [after.flow, after.execution, limit],
    repeatable: 'yes',
  });
  const { found, flow, execution } = rows[0]!;
  return { found, next: flow === null ? null : { flow, execution: execution! } };
}
