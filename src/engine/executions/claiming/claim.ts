/**
 * Claims executions for a worker from the routes it can run, with one statement, or two when several lanes take turns.
 */
import { randomUUID } from 'node:crypto';
import { whole } from '../../../contract/shape/kinds.ts';
import { LIMITS } from '../../../contract/limits.ts';
import type { Claim, ClaimRequest, ClaimResult } from '../../../contract/protocol.ts';
import { pageOf, type ClaimAnswer, type ClaimCall, type ClaimPage } from './claims.sql.ts';
import type { KnownRoute } from './routes.sql.ts';
import { shape } from '../../../contract/shape/shape.ts';
import { announce, type Answer } from '../../kit/announce.ts';
import { GrantedClaim } from '../../kit/granted-claim.ts';
import { SeekPositions, type DemandMemory } from './seek-positions.ts';
import type { EngineContext } from '../../kit/context.ts';
import { leaseTime, workerName } from '../../kit/kinds.ts';
import { demandOf, interestFields } from './demand.ts';
import { claimSurely, recoverClaims } from './doubtful-claims.ts';
import { HandOn } from './hand-on.ts';

/** Distinct demands a process remembers. */
const MAX_DEMANDS = 100;

const NOTHING: ClaimAnswer = { pages: [], nextDueInMs: null, routeHigh: 0, passedBy: 0 };

const claimRequest = shape<ClaimRequest>({
  workerId: workerName,
  workerInstanceId: workerName,
  limit: whole(1, LIMITS.claimBatch),
  leaseMs: leaseTime,
  ...interestFields,
});

export async function claim(context: EngineContext, request: ClaimRequest): Promise<ClaimResult> {
  const memory = memoryFor(context, claimRequest.check(request, 'request', ''));
  const granted = new Granted(context, request);
  if (context.doubtful.length > 0) {
    granted.add(pageOf(await recoverClaims(context, request)));
    if (granted.claims.length > 0) {
      granted.announceContinued();
      return { claims: granted.claims, nextDueInMs: null, passedBy: 0 };
    }
  }
  if (context.routes.isOld()) await context.routes.refreshIfOld();
  let answer = await claimRounds(context, request, memory, granted);
  // There is a route this process did not know: read the routes and claim once more.
  if (granted.lacking > 0 && answer.routeHigh > context.routes.highest) {
    await context.routes.refresh().catch(() => undefined);
    answer = await claimRounds(context, request, memory, granted);
  }
  const { passedBy } = answer;
  const { claims } = granted;
  context.counters.dequeued += claims.length;
  granted.announceContinued();
  if (passedBy > 0 && granted.lacking === 0) handOn(context, memory, passedBy);
  return { claims, nextDueInMs: granted.soonestDue(answer.nextDueInMs), passedBy };
}

/** What the statements of one claim were granted so far. */
class Granted {
  readonly claims: Claim[] = [];
  readonly #context: EngineContext;
  readonly #request: ClaimRequest;
  readonly #continued: Answer[] = [];
  /** The shortest time limit of the attempts that begin here. */
  #limitMs = Number.POSITIVE_INFINITY;

  constructor(context: EngineContext, request: ClaimRequest) {
    this.#context = context;
    this.#request = request;
  }

  get lacking(): number {
    return this.#request.limit - this.claims.length;
  }

  add(page: ClaimPage): void {
    const { leaseMs } = this.#request;
    for (let index = 0; index < page.uuid.length; index += 1) {
      const route = this.#context.routes.get(page.routeId[index]!)!;
      const made = new GrantedClaim(page, index, route, leaseMs);
      this.claims.push(made);
      if (made.resumed) this.#continued.push({ uuid: page.uuid[index]!, outcome: 'continued' });
    }
    for (const limitMs of page.attemptLimitMs ?? [])
      if (limitMs !== null && limitMs < this.#limitMs) this.#limitMs = limitMs;
  }

  /** Wakes stream readers: a paused attempt has resumed. */
  announceContinued(): void {
    if (this.#continued.length > 0) announce(this.#context, this.#continued);
  }

  /** The time limits of attempts that begin here were set after the next timer was read. */
  soonestDue(nextDueInMs: number | null): number | null {
    if (this.#limitMs === Number.POSITIVE_INFINITY) return nextDueInMs;
    return nextDueInMs === null ? this.#limitMs : Math.min(nextDueInMs, this.#limitMs);
  }
}

/** A worker that got all it requested may not poll for a while, so the hint it consumed goes to other workers. */
function handOn(context: EngineContext, memory: DemandMemory, count: number): void {
  memory.handOn.pass(() => {
    const routes = context.routes.matching(memory.demand).map((route) => route.routeId);
    announce(context, [{ outcome: 'opened', routes, count }]);
  });
}

async function claimRounds(
  context: EngineContext,
  request: ClaimRequest,
  memory: DemandMemory,
  granted: Granted,
): Promise<ClaimAnswer> {
  let answer = NOTHING;
  let passedBy = 0;
  for (const routes of laneRounds(context.routes.matching(memory.demand), memory)) {
    answer = await claimRound(context, request, routes, granted, memory);
    passedBy += answer.passedBy;
    if (granted.lacking <= 0) break;
  }
  memory.foundNothing = granted.claims.length === 0;
  return { ...answer, passedBy };
}

/**
 * One lane's turn, adding to `granted`: seeks past what was claimed before, and reads the whole queue when that returned
 * too few. Claims already granted are never lost to an error that comes after them.
 */
async function claimRound(
  context: EngineContext,
  request: ClaimRequest,
  routes: readonly KnownRoute[],
  granted: Granted,
  memory: DemandMemory,
): Promise<ClaimAnswer> {
  const routeIds = routes.map((route) => route.routeId);
  const ask = async (entries: ClaimCall['entries']): Promise<ClaimAnswer> => {
    const limit = granted.lacking;
    const { workerId, workerInstanceId, leaseMs } = request;
    const call = { entries, limit, workerId, workerInstanceId, claimId: randomUUID(), leaseMs };
    let answer: ClaimAnswer;
    try {
      answer = await claimSurely(context, call);
    } catch (error) {
      if (granted.claims.length === 0) throw error;
      answer = NOTHING;
    }
    memory.seek.learn(answer.pages, limit, performance.now());
    for (const page of answer.pages) granted.add(page);
    return answer;
  };
  const seeking = memory.seek.seekingEntries(routeIds, performance.now());
  if (seeking.length > 0) {
    const answer = await ask(seeking);
    if (granted.lacking <= 0) return answer;
  }
  return ask(memory.seek.plainEntries(routeIds, performance.now()));
}

/**
 * Priority decides within a lane. Lanes take turns at being first, so that a busy one cannot starve the others. A
 * worker that found nothing last time claims from all at once: then fairness does not matter.
 */
function laneRounds(routes: KnownRoute[], memory: DemandMemory): KnownRoute[][] {
  if (memory.foundNothing || routes.every((route) => route.lane === routes[0]!.lane)) return [routes];
  const lanes = [...new Set(routes.map((route) => route.lane))];
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
    demand: demandOf(request),
    seek: new SeekPositions(),
    turn: 0,
    foundNothing: true,
    handOn: new HandOn(),
  };
  context.demands.set(key, memory);
  return memory;
}
