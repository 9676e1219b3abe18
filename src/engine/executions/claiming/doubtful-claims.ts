/**
 * Claims whose answer was lost. The statement may have committed, and then this process owns leases it does not know
 * of; left alone they would lapse and cost the executions a retry for nothing. So a claim that failed with its
 * connection is remembered, and later claims first look for its leases.
 */
import { isEngineError, isPassingTrouble } from '../../../contract/errors.ts';
import type { ClaimRequest, CompleteOutcome } from '../../../contract/protocol.ts';
import { leaseIdOf } from '../../../model/lease-id.ts';
import { renewLeases, type CompleteRow } from '../executions.sql.ts';
import {
  claimExecutions,
  completeAndClaim,
  readClaims,
  type ClaimAnswer,
  type ClaimCall,
  type CompletedAndClaimed,
  type RecoveredClaim,
} from './claims.sql.ts';
import { completed } from '../endings.ts';
import type { Lent } from '../../kit/batch.ts';
import type { EngineContext } from '../../kit/context.ts';

export interface DoubtfulClaim {
  claimId: string;
  workerInstanceId: string;
  /** Its leases that were found and handed out. A lease must never be handed out twice. */
  handedOut: string[];
  /** After this its leases have lapsed and there is nothing to find. */
  untilMs: number;
}

const MAX_DOUBTFUL = 1_000;

/** Completions that a claim takes along. More are a batch that is better sent beside it. */
const MAX_ALONG = 16;

/** Claims; if it is unknown whether the claim happened, remembers to look for its leases. */
export async function claimSurely(context: EngineContext, call: ClaimCall): Promise<ClaimAnswer> {
  try {
    return await claimTakingAlong(context, call);
  } catch (error) {
    if (isEngineError(error) && error.code === 'unavailable' && context.doubtful.length < MAX_DOUBTFUL) {
      // Counted from now, not from when it was sent: it may commit after the wait for its answer was given up.
      const untilMs = performance.now() + call.leaseMs;
      const { claimId, workerInstanceId } = call;
      context.doubtful.push({ claimId, workerInstanceId, handedOut: [], untilMs });
    }
    throw error;
  }
}

/**
 * A worker that has finished something asks for more at once: its completion shares the statement of the claim. When
 * that fails, or a row is held by somebody else, each is sent on its own, except a claim that may have happened.
 */
function claimTakingAlong(context: EngineContext, call: ClaimCall): Promise<ClaimAnswer> {
  const along = context.completions?.lend(MAX_ALONG);
  if (along === undefined) return claimExecutions(context.database, call);
  return claimWith(along, context, call);
}

async function claimWith(
  along: Lent<CompleteRow, CompleteOutcome>,
  context: EngineContext,
  call: ClaimCall,
): Promise<ClaimAnswer> {
  let both: CompletedAndClaimed;
  try {
    both = await completeAndClaim(context.database, along.items, call);
  } catch (error) {
    along.sendAlone();
    if (isPassingTrouble(error)) throw error;
    return claimExecutions(context.database, call);
  }
  if (both.completed === null) along.sendAlone();
  else along.answer(completed(context, along.items, both.completed));
  return both.claimed;
}

/** What this worker's unanswered claims were granted. The leases are renewed, so that they count from now. */
export async function recoverClaims(
  context: EngineContext,
  request: ClaimRequest,
): Promise<RecoveredClaim[]> {
  const mine = takeDoubtful(context, request.workerInstanceId);
  if (mine.length === 0) return [];
  let open = mine;
  try {
    const rows = await readClaims(
      context.database,
      mine.map((doubtful) => doubtful.claimId),
      mine.flatMap((doubtful) => doubtful.handedOut),
      request.limit,
    );
    const { alive, held } =
      rows.length === 0 ? { alive: [], held: [] } : await renewFound(context, rows, request.leaseMs);
    for (const doubtful of mine) {
      const found = rows.filter((row) => row.claimId === doubtful.claimId && !held.includes(row));
      doubtful.handedOut.push(...found.map((row) => leaseIdOf(row.uuid, row.leaseEpoch)));
    }
    // A claim with any lease has committed, and fewer rows than the limit means that all were found. One without any
    // may still be under way.
    if (rows.length < request.limit && held.length === 0)
      open = mine.filter((doubtful) => doubtful.handedOut.length === 0);
    return alive;
  } finally {
    context.doubtful.push(...open);
  }
}

/** Removes them while they are examined, so that a concurrent claim does not find the same leases. */
function takeDoubtful(context: EngineContext, workerInstanceId: string): DoubtfulClaim[] {
  const now = performance.now();
  const live = context.doubtful.filter((doubtful) => doubtful.untilMs > now);
  const mine = live.filter((doubtful) => doubtful.workerInstanceId === workerInstanceId);
  context.doubtful = live.filter((doubtful) => !mine.includes(doubtful));
  return mine;
}

/** Those that another transaction has locked are found again by the next claim. */
async function renewFound(
  context: EngineContext,
  rows: RecoveredClaim[],
  leaseMs: number,
): Promise<{ alive: RecoveredClaim[]; held: RecoveredClaim[] }> {
  await context.routes.refresh();
  const answers = await renewLeases(context.database, rows, leaseMs);
  const outcomes = new Map(answers.map((row) => [row.uuid, row.outcome]));
  const those = (outcome: string): RecoveredClaim[] =>
    rows.filter((row) => outcomes.get(row.uuid) === outcome);
  return { alive: those('renewed'), held: those('held') };
}
