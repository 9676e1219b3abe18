/**
 * Leases after their grant: renewed by their owner, revoked by an operator, ended when they lapse.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { parseExecutionId, uuidString } from '../../contract/ids.ts';
import { list, parsed } from '../../contract/shape/kinds.ts';
import { LIMITS } from '../../contract/limits.ts';
import type { RevokeOutcome, RevokeRequest } from '../../contract/executions.ts';
import type { LeaseRef, RenewOutcome } from '../../contract/protocol.ts';
import { shape, refuse } from '../../contract/shape/shape.ts';
import { renewLeases, type LeaseAnswer, type LeaseKey } from './executions.sql.ts';
import { revokeLeases, type TakenAnswer } from './taking.sql.ts';
import { lapseLeases, type LapsedLease } from './due.sql.ts';
import { announce } from '../kit/announce.ts';
import type { EngineContext } from '../kit/context.ts';
import { actorName, leaseTime, reasonText } from '../kit/kinds.ts';
import { inOrder, leaseKey, toRefusal } from '../kit/answers.ts';

/** How often a lease may be revoked or lost when the policy sets no limit. */
const DEFAULT_MAX_RECLAIMS = 100;

const leaseList = list(parsed, LIMITS.idBatch);
const revokeRequest = shape<RevokeRequest>({
  reason: reasonText,
  by: actorName.optional(),
  leaseId: uuidString.optional(),
});

/**
 * Renews all given leases in one statement, and once more those that another transaction had locked; returns the outcomes
 * in the order given.
 */
export async function renew(
  context: EngineContext,
  leases: readonly LeaseRef[],
  leaseMs: number,
): Promise<RenewOutcome[]> {
  leaseList.check(leases, 'leases');
  leaseTime.check(leaseMs, 'leaseMs');
  const keys = leases.map((lease, index) => leaseKey(lease, `leases[${index}]`));
  if (new Set(keys.map((key) => key.uuid)).size < keys.length) refuse('leases', 'contain an execution twice');
  if (keys.length === 0) return [];
  const answers = await renewLeases(context.database, keys, leaseMs);
  return inOrder(keys, await retryHeld(context, keys, leaseMs, answers)).map(toRenewOutcome);
}

/** Most locks are short. A lease that stays locked is left for the next renewal: the others must not wait for it. */
async function retryHeld(
  { database }: EngineContext,
  keys: readonly LeaseKey[],
  leaseMs: number,
  answers: LeaseAnswer[],
): Promise<LeaseAnswer[]> {
  const held = new Set(answers.flatMap((row) => (row.outcome === 'held' ? [row.uuid] : [])));
  if (held.size === 0) return answers;
  await delay(LIMITS.heldPollMs);
  const again = await renewLeases(
    database,
    keys.filter((key) => held.has(key.uuid)),
    leaseMs,
  );
  return [...answers.filter((row) => !held.has(row.uuid)), ...again];
}

function toRenewOutcome(row: LeaseAnswer): RenewOutcome {
  if (row.outcome === 'renewed' || row.outcome === 'held') return { outcome: row.outcome };
  return toRefusal(row);
}

export async function revokeLease(
  context: EngineContext,
  executionId: string,
  request: RevokeRequest,
): Promise<RevokeOutcome> {
  const key = parseExecutionId(executionId);
  const { reason, by = 'operator', leaseId = null } = revokeRequest.check(request, 'request', '');
  const answers = await revokeLeases(
    context.database,
    [{ ...key, leaseId }],
    reason,
    by,
    DEFAULT_MAX_RECLAIMS,
  );
  const row = inOrder([key], answers)[0]!;
  announce(context, [row]);
  return toRevokeOutcome(row);
}

function toRevokeOutcome(row: TakenAnswer): RevokeOutcome {
  switch (row.outcome) {
    case 'stale_lease':
      return { outcome: 'stale_lease', leaseEpoch: row.leaseEpoch };
    case 'no_active_lease':
      return { outcome: 'no_active_lease', lifecyclePhase: row.lifecyclePhase };
    default:
      return { outcome: row.outcome as 'revoked' | 'reclaims_exhausted' | 'not_found' };
  }
}

/**
 * Ends the attempts of lapsed leases and returns the uuids of their executions. Leases that are locked or were renewed
 * are left alone.
 */
export async function lapse(context: EngineContext, leases: readonly LapsedLease[]): Promise<string[]> {
  const answers = await lapseLeases(context.database, leases);
  announce(context, answers);
  return answers.map((row) => row.uuid);
}
