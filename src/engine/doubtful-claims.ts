/**
 * Claims whose answer was lost on the way. The statement may have committed, and then this process owns leases it does
 * not know of; left alone they would run out and cost the executions a retry they never had. So a claim that failed
 * at the connection is remembered, and later claims look first for what it was given.
 */
import { isEngineError } from '../contract/errors.ts';
import type { ClaimRequest } from '../contract/engine.ts';
import { claimExecutions, readClaims, renewLeases } from '../store/executions.ts';
import type { ClaimAnswer, ClaimCall, ClaimRow } from '../store/executions.ts';
import type { EngineContext } from './context.ts';

export interface DoubtfulClaim {
  claimId: string;
  workerInstanceId: string;
  /** After this its leases have run out and there is nothing to find. */
  untilMs: number;
}

const MAX_DOUBTFUL = 1_000;

/** Claims; when it stays unknown whether that happened, remembers to look. */
export async function claimSurely(context: EngineContext, call: ClaimCall): Promise<ClaimAnswer> {
  try {
    return await claimExecutions(context.database, call);
  } catch (error) {
    if (isEngineError(error) && error.code === 'unavailable' && context.doubtful.length < MAX_DOUBTFUL) {
      // From now, not from when it was sent: it may commit after its answer was given up.
      const untilMs = performance.now() + call.leaseMs;
      context.doubtful.push({ claimId: call.claimId, workerInstanceId: call.workerInstanceId, untilMs });
    }
    throw error;
  }
}

/** What this worker's unanswered claims were given. The leases are renewed, so that they count from now. */
export async function recoverClaims(context: EngineContext, request: ClaimRequest): Promise<ClaimRow[]> {
  const now = performance.now();
  context.doubtful = context.doubtful.filter((doubtful) => doubtful.untilMs > now);
  const mine = context.doubtful.filter((doubtful) => doubtful.workerInstanceId === request.workerInstanceId);
  if (mine.length === 0) return [];
  const rows = await readClaims(
    context.database,
    mine.map((doubtful) => doubtful.claimId),
    request.limit,
  );
  if (rows.length === 0) return [];
  await context.routes.refresh();
  const answers = await renewLeases(context.database, rows.map(toKey), request.leaseMs);
  const alive = new Set(answers.flatMap((row) => (row.outcome === 'renewed' ? [row.execution_id] : [])));
  // Found means answered, unless there was more than fits; another one may still be under way.
  const found = new Set(rows.length < request.limit ? rows.map((row) => row.claim_id) : []);
  context.doubtful = context.doubtful.filter((doubtful) => !found.has(doubtful.claimId));
  return rows.filter((row) => alive.has(row.execution_id));
}

function toKey(row: ClaimRow) {
  return {
    uuid: row.execution_id,
    partition: row.partition_key,
    attemptIndex: row.attempt_index,
    leaseEpoch: row.lease_epoch,
  };
}
