/**
 * Calls the SQL functions that finish what is left of flows: ends to be told, losers to be stopped, flows to be cancelled.
 */
import type { CancelFlowPolicy } from '../../contract/flows.ts';
import { run, type Database } from '../database/database.ts';
import type { ExecutionKey } from '../executions/executions.sql.ts';

/** Which work there is. Cheap: most of the time there is none. */
export async function readFlowWork(
  database: Database,
): Promise<{ ends: boolean; siblings: boolean; cancels: boolean }> {
  const { prefix } = database;
  const rows = await run<{ ends: boolean; siblings: boolean; cancels: boolean }>(database, {
    doing: 'looking for work on flows',
    text: `SELECT EXISTS (SELECT 1 FROM ${prefix}ff_flow_job) AS ends,
             EXISTS (SELECT 1 FROM ${prefix}ff_pending_cancel_groups) AS siblings,
             EXISTS (SELECT 1 FROM ${prefix}ff_cancel_backlog) AS cancels`,
    params: [],
    repeatable: 'yes',
  });
  return rows[0]!;
}

/** What the end of a member decided for those after it; of ends that were left to be told, that there were some. */
export interface Advanced {
  execution_id: string | null;
  outcome: 'unblocked' | 'skipped' | 'more' | 'told';
  route_id: number | null;
}

export function tellEnds(database: Database, limit: number, edges: number): Promise<Advanced[]> {
  return run<Advanced>(database, {
    doing: 'telling how members of flows ended',
    text: `SELECT * FROM ${database.prefix}ff_tell_ends($1, $2)`,
    params: [limit, edges],
    repeatable: 'yes',
  });
}

/** A join whose losers are to be stopped. */
export interface PendingGroup {
  partition_key: number;
  flow_id: string;
  downstream_eid: string;
}

export function listPendingGroups(database: Database, limit: number): Promise<PendingGroup[]> {
  return run<PendingGroup>(database, {
    doing: 'looking for losers of joins',
    text: `SELECT partition_key, flow_id, downstream_eid FROM ${database.prefix}ff_pending_cancel_groups
           ORDER BY enqueued_at_ms LIMIT $1`,
    params: [limit],
    repeatable: 'yes',
  });
}

export interface CancelledMember {
  execution_id: string;
  outcome: 'cancelled';
  worker_instance_id: string | null;
}

/** What became of one join, and what was cancelled for it. */
export interface Dispatch {
  outcome: 'dispatched' | 'unfinished' | 'orphaned' | 'skipped_for_reconciler' | 'skipped_locked';
  cancelled: CancelledMember[];
}

export async function cancelSiblings(
  database: Database,
  group: PendingGroup,
  limit: number,
): Promise<Dispatch> {
  const [first, ...cancelled] = await run<{ outcome: string }>(database, {
    doing: 'stopping the losers of a join',
    text: `SELECT * FROM ${database.prefix}ff_cancel_siblings($1::smallint, $2::uuid, $3::uuid, $4)`,
    params: [group.partition_key, group.flow_id, group.downstream_eid, limit],
    repeatable: 'yes',
  });
  return {
    outcome: first!.outcome as Dispatch['outcome'],
    cancelled: cancelled as unknown as CancelledMember[],
  };
}

export type SiblingRepair = 'stale' | 'drained' | 'live';

export async function reconcileSiblings(
  database: Database,
  limit: number,
): Promise<Record<SiblingRepair, number>> {
  const rows = await run<{ outcome: SiblingRepair; n: number }>(database, {
    doing: 'looking after losers of joins',
    text: `SELECT * FROM ${database.prefix}ff_reconcile_siblings($1)`,
    params: [limit],
    repeatable: 'yes',
  });
  return {
    stale: 0,
    drained: 0,
    live: 0,
    ...Object.fromEntries(rows.map((row) => [row.outcome, Number(row.n)])),
  };
}

export interface CancelFlowAnswer {
  outcome: 'cancelled' | 'already_cancelled' | 'already_ended' | 'not_found';
  flow_outcome: 'completed' | 'failed' | 'cancelled' | null;
  policy: CancelFlowPolicy | null;
  /** It had not been sealed. */
  was_open: boolean;
}

export async function cancelFlow(
  database: Database,
  flow: ExecutionKey,
  request: { policy: CancelFlowPolicy; reason: string; by: string },
): Promise<CancelFlowAnswer> {
  const rows = await run<CancelFlowAnswer>(database, {
    doing: 'cancelling a flow',
    text: `SELECT * FROM ${database.prefix}ff_cancel_flow($1::uuid, $2::smallint, $3, $4, $5)`,
    params: [flow.uuid, flow.partition, request.policy, request.reason, request.by],
    repeatable: 'yes',
  });
  return rows[0]!;
}

export function listCancellingFlows(
  database: Database,
  limit: number,
): Promise<{ flow_id: string; partition_key: number }[]> {
  return run(database, {
    doing: 'looking for flows that are being cancelled',
    text: `SELECT flow_id, partition_key FROM ${database.prefix}ff_cancel_backlog ORDER BY requested_at_ms LIMIT $1`,
    params: [limit],
    repeatable: 'yes',
  });
}

/** `held`: somebody else is at it, or it is done. */
export async function cancelMembers(
  database: Database,
  flow: string,
  limit: number,
): Promise<{ outcome: 'done' | 'more' | 'held'; cancelled: CancelledMember[] }> {
  const [first, ...cancelled] = await run<{ outcome: string }>(database, {
    doing: 'cancelling members of a flow',
    text: `SELECT * FROM ${database.prefix}ff_cancel_members($1::uuid, $2)`,
    params: [flow, limit],
    repeatable: 'yes',
  });
  return {
    outcome: first!.outcome as 'done' | 'more' | 'held',
    cancelled: cancelled as unknown as CancelledMember[],
  };
}

/** A place among members that are not counted. */
export interface MemberPlace {
  flow: string;
  execution: string;
}

/** Has ends told that nobody was left to tell, of the next members; answers how many, and where to go on. There should be none. */
export async function tellLostEnds(
  database: Database,
  after: MemberPlace,
  limit: number,
): Promise<{ found: number; next: MemberPlace | null }> {
  const rows = await run<{ found: number; flow_id: string | null; execution_id: string | null }>(database, {
    doing: 'looking for ends that were not told',
    text: `SELECT * FROM ${database.prefix}ff_tell_lost_ends($1::uuid, $2::uuid, $3)`,
    params: [after.flow, after.execution, limit],
    repeatable: 'yes',
  });
  const { found, flow_id: flow, execution_id: execution } = rows[0]!;
  return { found: Number(found), next: flow === null ? null : { flow, execution: execution! } };
}
