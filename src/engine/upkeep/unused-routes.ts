/**
 * Forgets routes that no execution has any more, and their lanes, so that one that is new finds room. There is no index of executions
 * by their route, which each of them would pay for. Instead those that were submitted before the terms of idle routes ended are walked
 * through, some at a time; with what is kept for a while gone by then, few are left. Nothing is submitted to an idle route
 * meanwhile: it would be interned first, and then be idle no more.
 */
import type { EngineContext } from '../kit/context.ts';
import { retentionOf } from './retention-setting.ts';
import {
  forgetNames,
  forgetRoutes,
  isBehind,
  listIdleRoutes,
  readUsedRoutes,
  type IdleRoutes,
} from '../executions/claiming/routes.sql.ts';
import type { Chore } from './reconciler.ts';

/** How long the term of a route has been over when it is looked at: more than clocks of two servers differ by. */
const MARGIN_MS = 3_600_000;
/** Executions looked at in one statement, and statements of one pass. */
const LOOKED_AT = 5_000;
const MAX_STATEMENTS = 40;
/** Lanes forgotten in one pass. */
const LANES = 1_000;
/** Passes that wait for older transactions, before it begins anew. */
const MAX_WAITS = 60;

/** One way through the executions, over as many passes as it takes. */
interface Round extends IdleRoutes {
  /** Executions that were submitted until then have been looked at. */
  afterMs: number;
  beforeMs: number;
  used: Set<number>;
  waits: number;
}

export function unusedRoutes(): Chore {
  let round: Round | undefined;
  return {
    name: 'unused-routes',
    everyMs: 60_000,
    async run(context, signal) {
      const names = await forgetNames(context.database, MARGIN_MS, LANES);
      round ??= await beginRound(context);
      if (round === undefined) return names;
      if (!(await isBehind(context.database, round.barrier))) {
        round.waits += 1;
        if (round.waits > MAX_WAITS) round = undefined;
        return names;
      }
      if (!(await walkOn(context, round, signal))) return names + 1;
      const { routes, used } = round;
      round = undefined;
      return names + (await forgetRoutes(context.database, routes, [...used], MARGIN_MS));
    },
  };
}

async function beginRound(context: EngineContext): Promise<Round | undefined> {
  const idle = await listIdleRoutes(context.database, MARGIN_MS, await retentionOf(context));
  if (idle.routes.length === 0) return undefined;
  const beforeMs = Math.max(...idle.routes.map((route) => route.usableUntilMs));
  return { ...idle, afterMs: -1, beforeMs, used: new Set(), waits: 0 };
}

/** Answers whether it came to the end. */
async function walkOn({ database }: EngineContext, round: Round, signal: AbortSignal): Promise<boolean> {
  for (let count = 0; count < MAX_STATEMENTS && !signal.aborted; count += 1) {
    const found = await readUsedRoutes(database, round.afterMs, round.beforeMs, LOOKED_AT);
    for (const route of found.routes) round.used.add(route);
    if (found.looked < LOOKED_AT) return true;
    round.afterMs = found.lastAtMs!;
  }
  return false;
}
