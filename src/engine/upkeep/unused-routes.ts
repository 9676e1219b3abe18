/**
 * Forgets routes that no execution uses any more, and their lanes, to make room for new ones. There is no index of
 * executions by route, because every execution would pay for it. Instead, the executions submitted before the terms of
 * idle routes ended are scanned, some at a time; retention has left few of them by then. Nothing is submitted to an
 * idle route meanwhile: it would be interned first, and then not be idle any more.
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

/** How long the term of a route must be over: more than the clocks of two servers can differ. */
const MARGIN_MS = 3_600_000;
/** Executions examined in one statement, and statements of one pass. */
const EXAMINED = 5_000;
const MAX_STATEMENTS = 40;
/** Lanes forgotten in one pass. */
const LANES = 1_000;
/** Passes that wait for older transactions before the round starts over. */
const MAX_WAITS = 60;

/** One scan of the executions, over as many passes as it takes. */
interface Round extends IdleRoutes {
  /** Executions submitted up to this time have been examined. */
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
      if (!(await continueRound(context, round, signal))) return names + 1;
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

/** Returns whether the scan is complete. */
async function continueRound(
  { database }: EngineContext,
  round: Round,
  signal: AbortSignal,
): Promise<boolean> {
  for (let count = 0; count < MAX_STATEMENTS && !signal.aborted; count += 1) {
    const found = await readUsedRoutes(database, round.afterMs, round.beforeMs, EXAMINED);
    for (const route of found.routes) round.used.add(route);
    if (found.looked < EXAMINED) return true;
    round.afterMs = found.lastAtMs!;
  }
  return false;
}
