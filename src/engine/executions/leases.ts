/**
 * Leases between their grant and their end: renewed by their holder, revoked by an operator, ended when they lapse.
 */
import { LIMITS } from '../../contract/limits.ts';
import { isUuid, parseExecutionId } from '../../contract/ids.ts';
import type { LeaseRef, RenewOutcome, RevokeOutcome, RevokeRequest } from '../../contract/engine.ts';
import { renewLeases } from './executions.sql.ts';
import { revokeLeases, type TakenAnswer } from './claiming/taking.sql.ts';
import { lapseLeases, type LapsedLease } from './due.sql.ts';
import { checkList, checkText, checkWhole, refuse } from '../kit/checks.ts';
import type { EngineContext } from '../kit/context.ts';
import { inOrder, leaseKey, toRefusal } from '../kit/answers.ts';

/** How often a lease may be taken away when the policy does not say. */
const DEFAULT_MAX_RECLAIMS = 100;

/** Renews all given leases in one statement; the answers are in the order given. */
export async function renew(
  context: EngineContext,
  leases: readonly LeaseRef[],
  leaseMs: number,
): Promise<RenewOutcome[]> {
  checkList(leases, 'leases', LIMITS.idBatch);
  checkWhole(leaseMs, 'leaseMs', LIMITS.leaseMsMin, LIMITS.leaseMsMax);
  const keys = leases.map((lease, index) => leaseKey(lease, `leases[${index}]`));
  if (new Set(keys.map((key) => key.uuid)).size < keys.length) refuse('leases', 'name one execution twice');
  if (keys.length === 0) return [];
  const answers = inOrder(keys, await renewLeases(context.database, keys, leaseMs));
  return answers.map((row) => (row.outcome === 'renewed' ? { outcome: 'renewed' } : toRefusal(row)));
}

export async function revokeLease(
  context: EngineContext,
  executionId: string,
  request: RevokeRequest,
): Promise<RevokeOutcome> {
  const key = parseExecutionId(executionId);
  const reason = checkText(request?.reason, 'reason', LIMITS.reasonBytes);
  const actor = checkText(request.by ?? 'operator', 'by', LIMITS.reasonBytes);
  if (request.leaseId !== undefined && !isUuid(request.leaseId)) refuse('leaseId', 'must be a uuid');
  const answers = await revokeLeases(
    context.database,
    [{ ...key, leaseId: request.leaseId ?? null }],
    reason,
    actor,
    DEFAULT_MAX_RECLAIMS,
  );
  const row = inOrder([key], answers)[0]!;
  ringForTaken(context, [row], 'revoked');
  return toRevokeOutcome(row);
}

function toRevokeOutcome(row: TakenAnswer): RevokeOutcome {
  switch (row.outcome) {
    case 'stale_lease':
      return { outcome: 'stale_lease', leaseEpoch: row.lease_epoch };
    case 'no_active_lease':
      return { outcome: 'no_active_lease', lifecyclePhase: row.lifecycle_phase };
    default:
      return { outcome: row.outcome as 'revoked' | 'reclaims_exhausted' | 'not_found' };
  }
}

/** Wakes the workers that lost a lease, those that may take the work and, where it ended, who waits for that. */
export function ringForTaken(context: EngineContext, rows: readonly TakenAnswer[], again: string): void {
  const workers = new Set(rows.flatMap((row) => row.worker_instance_id ?? []));
  const requeued = rows.filter((row) => row.outcome === again && row.lifecycle_phase === 'runnable');
  const ended = rows.filter((row) => row.lifecycle_phase === 'terminal' && row.outcome !== 'not_active');
  if (workers.size === 0 && requeued.length === 0 && ended.length === 0) return;
  // Members of flows may be among them.
  if (ended.length > 0) context.flowWork.stir();
  context.doorbell.ring({
    ended: ended.map((row) => row.execution_id),
    streams: requeued.map((row) => row.execution_id),
    // A parent may have to be told, by a timer that is due at once.
    dueInMs: ended.length > 0 ? 0 : null,
    workers: [...workers],
    routes: [...new Set(requeued.map((row) => row.route_id))],
    count: requeued.length,
  });
}

/**
 * Ends the attempts of leases that ran out; answers the uuids of their executions. Leases somebody works on, or that
 * were renewed, are left alone.
 */
export async function lapse(context: EngineContext, leases: readonly LapsedLease[]): Promise<string[]> {
  const answers = await lapseLeases(context.database, leases);
  const again = answers.filter((row) => row.outcome === 'lapsed');
  if (again.length > 0) {
    context.doorbell.ring({
      routes: [...new Set(again.map((row) => row.route_id!))],
      count: again.length,
      streams: again.map((row) => row.execution_id),
    });
  }
  const ended = answers.filter((row) => row.outcome === 'expired');
  if (ended.length > 0) {
    // Members of flows may be among them.
    context.flowWork.stir();
    context.doorbell.ring({ ended: ended.map((row) => row.execution_id), dueInMs: 0 });
  }
  return answers.map((row) => row.execution_id);
}
