/**
 * Reads what decides whether an execution runs, by `ff_explain`. What it means is the model's business.
 */
import { formatExecutionId } from '../../contract/ids.ts';
import type { PublicState, StateVector } from '../../contract/states.ts';
import type { JoinFacts, Upstream } from '../../model/gates/blocked.ts';
import { LIVE_WITHIN_MS, type GateFacts } from '../../model/gates/gates.ts';
import { run, type Database } from '../database/database.ts';
import type { ExecutionKey } from '../executions/executions.sql.ts';

interface ExplainRow {
  public_state: PublicState;
  state: StateVector;
  attempt_index: number;
  route_id: number;
  lane: string;
  kind: string;
  capabilities: string[];
  lane_pause: GateFacts['lanePause'];
  eligible_in_ms: number | null;
  deadline_in_ms: number | null;
  lease: GateFacts['lease'];
  last_failure: GateFacts['lastFailure'];
  children: {
    needed: number;
    total: number;
    open: number;
    firstOpen: { partition: number; uuid: string }[];
  } | null;
  join: StoredJoin | null;
  suspension: GateFacts['suspension'];
  setbacks: GateFacts['setbacks'];
  ended: GateFacts['end'];
  workers: GateFacts['workers'];
  queue: GateFacts['queue'];
}

type StoredUpstream = Omit<Upstream, 'executionId'> & { uuid: string };
type StoredJoin = Omit<JoinFacts, 'pending' | 'unmet' | 'flowId'> & {
  partition: number;
  uuid: string;
  pending: StoredUpstream[];
  unmet: StoredUpstream[];
};

export interface ExplainedExecution {
  publicState: PublicState;
  facts: Omit<GateFacts, 'sessions'>;
}

export async function readForExplain(
  database: Database,
  key: ExecutionKey,
): Promise<ExplainedExecution | undefined> {
  const rows = await run<{ found: ExplainRow | null }>(database, {
    doing: 'explaining an execution',
    text: `SELECT ${database.prefix}ff_explain($1, $2, $3) AS found`,
    params: [key.uuid, key.partition, LIVE_WITHIN_MS],
    repeatable: 'yes',
  });
  const found = rows[0]?.found ?? undefined;
  return found && { publicState: found.public_state, facts: toFacts(found) };
}

function toFacts(row: ExplainRow): Omit<GateFacts, 'sessions'> {
  const { children, lane, kind, capabilities } = row;
  return {
    state: row.state,
    attemptIndex: row.attempt_index,
    route: { routeId: row.route_id, lane, kind, capabilities },
    lanePause: row.lane_pause,
    lease: row.lease,
    eligibleInMs: row.eligible_in_ms,
    deadlineInMs: row.deadline_in_ms,
    lastFailure: row.last_failure,
    children: children && {
      ...children,
      firstOpen: children.firstOpen.map(({ partition, uuid }) => formatExecutionId(partition, uuid)),
    },
    join: row.join && toJoin(row.join),
    suspension: row.suspension,
    setbacks: row.setbacks,
    end: row.ended,
    workers: row.workers,
    queue: row.queue,
  };
}

function toJoin({ partition, uuid, pending, unmet, ...join }: StoredJoin): JoinFacts {
  const named = (upstreams: readonly StoredUpstream[]): Upstream[] =>
    upstreams.map(({ uuid: id, ...upstream }) => ({
      ...upstream,
      executionId: formatExecutionId(partition, id),
    }));
  return {
    ...join,
    flowId: formatExecutionId(partition, uuid),
    pending: named(pending),
    unmet: named(unmet),
  };
}
