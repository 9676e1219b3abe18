/**
 * Claims executions for a worker from the routes it can run, with one statement, or two when several lanes take turns.
 */
import { randomUUID } from 'node:crypto';
import { formatExecutionId } from '../../../contract/ids.ts';
import { whole } from '../../../contract/shape/kinds.ts';
import { LIMITS } from '../../../contract/limits.ts';
import type { Claim, ClaimRequest, ClaimResult } from '../../../contract/protocol.ts';
import type { ClaimAnswer, ClaimCall, ClaimRow } from './claims.sql.ts';
import type { KnownRoute } from './routes.sql.ts';
import { shape } from '../../../contract/shape/shape.ts';
import { leaseIdOf } from '../../../model/lease-id.ts';
import type { RouteDemand } from '../../../model/routes.ts';
import { announce, type Answer } from '../../kit/announce.ts';
import { SeekPositions, type DemandMemory } from './seek-positions.ts';
import type { EngineContext } from '../../kit/context.ts';
import { leaseTime, workerName } from '../../kit/kinds.ts';
import { demandOf, interestFields } from './demand.ts';
import { claimSurely, recoverClaims } from './doubtful-claims.ts';
import { HandOn } from './hand-on.ts';

/** Distinct demands a process remembers. */
const MAX_DEMANDS = 100;

const NOTHING: ClaimAnswer = { rows: [], nextDueInMs: null, routeHigh: 0, passedBy: 0 };

const claimRequest = shape<ClaimRequest>({
  workerId: workerName,
  workerInstanceId: workerName,
  limit: whole(1, LIMITS.claimBatch),
  leaseMs: leaseTime,
  ...interestFields,
});

export async function claim(context: EngineContext, request: ClaimRequest): Promise<ClaimResult> {
  const demand = demandOf(claimRequest.check(request, 'request', ''));
  const found = await recoverClaims(context, request);
  if (found.length > 0) {
    announceContinued(context, found);
    return { claims: toClaims(context, found, request), nextDueInMs: null, passedBy: 0 };
  }
  await context.routes.refreshIfOld();
  const rows: ClaimRow[] = [];
  let answer = await claimRounds(context, request, demand, rows);
  // There is a route this process did not know: read the routes and claim once more.
  if (rows.length < request.limit && answer.routeHigh > context.routes.highest) {
    await context.routes.refresh().catch(() => undefined);
    answer = await claimRounds(context, request, demand, rows);
  }
  const { passedBy } = answer;
  context.counters.dequeued += rows.length;
  announceContinued(context, rows);
  if (passedBy > 0 && rows.length >= request.limit) handOn(context, request, demand, passedBy);
  return {
    claims: toClaims(context, rows, request),
    nextDueInMs: soonestDue(answer.nextDueInMs, rows),
    passedBy,
  };
}

/** A worker that got all it requested may not poll for a while, so the hint it consumed goes to other workers. */
function handOn(context: EngineContext, request: ClaimRequest, demand: RouteDemand, count: number): void {
  memoryFor(context, request).handOn.pass(() => {
    const routes = context.routes.matching(demand).map((route) => route.routeId);
    announce(context, [{ outcome: 'opened', routes, count }]);
  });
}

/** Wakes stream readers: a paused attempt has resumed. */
function announceContinued(context: EngineContext, rows: readonly ClaimRow[]): void {
  const answers = rows
    .filter((row) => row.resumed)
    .map(({ uuid }): Answer => ({ uuid, outcome: 'continued' }));
  announce(context, answers);
}

/** The time limits of attempts that begin here were set after the next timer was read. */
function soonestDue(nextDueInMs: number | null, rows: readonly ClaimRow[]): number | null {
  let soonest = nextDueInMs;
  for (const { attemptLimitMs: limit } of rows) {
    if (limit !== null && (soonest === null || limit < soonest)) soonest = limit;
  }
  return soonest;
}

async function claimRounds(
  context: EngineContext,
  request: ClaimRequest,
  demand: RouteDemand,
  rows: ClaimRow[],
): Promise<ClaimAnswer> {
  const memory = memoryFor(context, request);
  let answer = NOTHING;
  let passedBy = 0;
  for (const routes of laneRounds(context.routes.matching(demand), memory)) {
    answer = await claimRound(context, request, routes, rows, memory);
    passedBy += answer.passedBy;
    if (rows.length >= request.limit) break;
  }
  memory.foundNothing = rows.length === 0;
  return { ...answer, passedBy };
}

/**
 * One lane's turn, adding to `rows`: seeks past what was claimed before, and reads the whole queue when that returned
 * too few. Rows already granted are never lost to an error that comes after them.
 */
async function claimRound(
  context: EngineContext,
  request: ClaimRequest,
  routes: readonly KnownRoute[],
  rows: ClaimRow[],
  memory: DemandMemory,
): Promise<ClaimAnswer> {
  const routeIds = routes.map((route) => route.routeId);
  const ask = async (entries: ClaimCall['entries']): Promise<ClaimAnswer> => {
    const limit = request.limit - rows.length;
    const call = { ...request, entries, limit, claimId: randomUUID() };
    const answer = await claimSurely(context, call).catch((error: unknown) => {
      if (rows.length === 0) throw error;
      return NOTHING;
    });
    memory.seek.learn(answer.rows, limit, performance.now());
    for (const row of answer.rows) rows.push(row);
    return answer;
  };
  const seeking = memory.seek.seekingEntries(routeIds, performance.now());
  if (seeking.length > 0) {
    const answer = await ask(seeking);
    if (rows.length >= request.limit) return answer;
  }
  return ask(memory.seek.plainEntries(routeIds, performance.now()));
}

/**
 * Priority decides within a lane. Lanes take turns at being first, so that a busy one cannot starve the others. A
 * worker that found nothing last time claims from all at once: then fairness does not matter.
 */
function laneRounds(routes: readonly KnownRoute[], memory: DemandMemory): KnownRoute[][] {
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
  const memory: DemandMemory = {
    seek: new SeekPositions(),
    turn: 0,
    foundNothing: true,
    handOn: new HandOn(),
  };
  context.demands.set(key, memory);
  return memory;
}

function toClaims(context: EngineContext, rows: readonly ClaimRow[], { leaseMs }: ClaimRequest): Claim[] {
  return rows.map((row) => {
    const { kind, lane } = context.routes.get(row.routeId)!;
    return {
      executionId: formatExecutionId(row.partition, row.uuid),
      attemptIndex: row.attemptIndex,
      leaseEpoch: row.leaseEpoch,
      leaseId: leaseIdOf(row.uuid, row.leaseEpoch),
      kind,
      lane,
      namespace: row.namespace,
      priority: row.priority,
      tags: row.tags,
      payload: row.payload,
      retryCount: row.retryCount,
      resumed: row.resumed,
      reclaimed: row.reclaimed,
      createdAtMs: row.createdAtMs,
      generation: row.generation,
      // A flow and its members have one partition.
      flowId: row.flowUuid === null ? null : formatExecutionId(row.partition, row.flowUuid),
      leaseMs,
    };
  });
}
