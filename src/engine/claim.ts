/**
 * Claims executions for a worker: names the routes it can run, in one statement, or two when several lanes take turns.
 */
import { randomUUID } from 'node:crypto';
import { formatExecutionId } from '../contract/ids.ts';
import { LIMITS } from '../contract/limits.ts';
import type { Claim, ClaimRequest, ClaimResult, Json } from '../contract/engine.ts';
import type { ClaimAnswer, ClaimCall, ClaimRow } from '../store/executions.ts';
import type { RouteRow } from '../store/routes.ts';
import type { RouteDemand } from '../model/routes.ts';
import { checkText, checkWhole } from './checks.ts';
import { ClaimHints, type DemandMemory } from './claim-hints.ts';
import type { EngineContext } from './context.ts';
import { checkDemand } from './demand.ts';
import { claimSurely, recoverClaims } from './doubtful-claims.ts';

/** Workers of one process that are remembered by their demand. */
const MAX_DEMANDS = 100;

export async function claim(context: EngineContext, request: ClaimRequest): Promise<ClaimResult> {
  const demand = checkRequest(request);
  const found = await recoverClaims(context, request);
  if (found.length > 0) return { claims: toClaims(context, found, request), nextDueInMs: null };
  await context.routes.refreshIfOld();
  const memory = memoryFor(context, request);
  const rounds = laneRounds(context.routes.matching(demand), memory);
  const rows: ClaimRow[] = [];
  let answer: ClaimAnswer = { rows: [], nextDueInMs: null, routeHigh: 0 };
  for (const routes of rounds) {
    answer = await claimRound(context, request, routes, request.limit - rows.length, memory);
    rows.push(...answer.rows);
    if (rows.length >= request.limit) break;
  }
  memory.foundNothing = rows.length === 0;
  context.counters.dequeued += rows.length;
  // A route nobody here knew: what it holds is claimed at the next call.
  if (answer.routeHigh > context.routes.highest) await context.routes.refresh();
  return {
    claims: toClaims(context, rows, request),
    nextDueInMs: answer.nextDueInMs,
  };
}

function checkRequest(request: ClaimRequest): RouteDemand {
  checkText(request.workerId, 'workerId', LIMITS.workerNameBytes);
  checkText(request.workerInstanceId, 'workerInstanceId', LIMITS.workerNameBytes);
  checkWhole(request.limit, 'limit', 1, LIMITS.claimBatch);
  checkWhole(request.leaseMs, 'leaseMs', LIMITS.leaseMsMin, LIMITS.leaseMsMax);
  return checkDemand(request);
}

/** One lane's turn: seeks past what was claimed before, and looks at the whole queue when that came back short. */
async function claimRound(
  context: EngineContext,
  request: ClaimRequest,
  routes: readonly RouteRow[],
  limit: number,
  memory: DemandMemory,
): Promise<ClaimAnswer> {
  const routeIds = routes.map((route) => route.route_id);
  const quietRoutes = routes.filter((route) => !route.renewal_events).map((route) => route.route_id);
  const ask = (entries: ClaimCall['entries'], left: number) =>
    claimSurely(context, { ...request, entries, limit: left, quietRoutes, claimId: randomUUID() });
  const seeking = memory.hints.seekingEntries(routeIds, performance.now());
  const rows: ClaimRow[] = [];
  if (seeking.length > 0) {
    const answer = await ask(seeking, limit);
    memory.hints.learn(answer.rows, limit, performance.now());
    if (answer.rows.length >= limit) return answer;
    rows.push(...answer.rows);
  }
  const left = limit - rows.length;
  const answer = await ask(memory.hints.plainEntries(routeIds, performance.now()), left);
  memory.hints.learn(answer.rows, left, performance.now());
  return { ...answer, rows: [...rows, ...answer.rows] };
}

/**
 * Priority decides within a lane; lanes take turns at being asked first, so that a busy lane cannot starve the others.
 * A worker that found nothing last time asks all at once: then there is nothing to be fair about.
 */
function laneRounds(routes: readonly RouteRow[], memory: DemandMemory): RouteRow[][] {
  const lanes = [...new Set(routes.map((route) => route.lane))];
  if (lanes.length <= 1 || memory.foundNothing) return [[...routes]];
  memory.turn = (memory.turn + 1) % lanes.length;
  const first = lanes[memory.turn];
  return [routes.filter((route) => route.lane === first), routes.filter((route) => route.lane !== first)];
}

function memoryFor(context: EngineContext, request: ClaimRequest): DemandMemory {
  const key = JSON.stringify([request.kinds, request.lanes ?? null, request.capabilities ?? []]);
  const known = context.demands.get(key);
  if (known !== undefined) return known;
  if (context.demands.size >= MAX_DEMANDS) context.demands.clear();
  const memory: DemandMemory = { hints: new ClaimHints(), turn: 0, foundNothing: true };
  context.demands.set(key, memory);
  return memory;
}

function toClaims(context: EngineContext, rows: readonly ClaimRow[], request: ClaimRequest): Claim[] {
  return rows.map((row) => toClaim(row, context.routes.get(row.route_id)!, request.leaseMs));
}

function toClaim(row: ClaimRow, route: RouteRow, leaseMs: number): Claim {
  return {
    executionId: formatExecutionId(row.partition_key, row.execution_id),
    attemptIndex: row.attempt_index,
    leaseEpoch: row.lease_epoch,
    leaseId: row.lease_id,
    kind: route.kind,
    lane: route.lane,
    namespace: row.namespace,
    priority: row.priority,
    tags: row.tags,
    payload: row.payload as Json,
    retryCount: row.retry_count,
    resumed: row.resumed,
    reclaimed: row.reclaimed,
    createdAtMs: row.created_at_ms,
    leaseMs,
  };
}
