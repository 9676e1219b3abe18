/**
 * All periodic maintenance of a database: repairing what crashes leave behind, acting on what is due, forgetting what
 * was kept long enough. A reconciler that is not in this list does not run.
 */
import type { EngineContext } from '../kit/context.ts';
import { dueTimers } from './due-timers.ts';
import { eventPositions, oldEvents } from './event-log.ts';
import { expiredLeases } from './expired-leases.ts';
import { flowSiblings, flowWork, lostEnds } from './flow-work.ts';
import { oldClaims } from './old-claims.ts';
import { oldKeys } from './old-keys.ts';
import type { Chore, Reconciler } from './reconciler.ts';
import { retention } from './retention.ts';
import { startReconcilers, type ReconcilerRunner } from './runner.ts';
import { stalePointers } from './stale-pointers.ts';
import { missedTopics, oldTopics, topicWork } from './topic-work.ts';
import { unusedRoutes } from './unused-routes.ts';

/** Act on executions. Some of these and of the others remember where they stopped, so each process has its own. */
function newReconcilers(): Reconciler[] {
  return [expiredLeases, dueTimers, retention()];
}

/** Act on everything else. */
function newChores(): Chore[] {
  return [
    oldClaims(),
    eventPositions,
    oldEvents,
    oldKeys,
    stalePointers(),
    unusedRoutes(),
    flowWork,
    flowSiblings,
    lostEnds(),
    topicWork,
    missedTopics(),
    oldTopics,
  ];
}

/** Runs all of it until the engine closes. */
export function startUpkeep(context: EngineContext): ReconcilerRunner {
  const runner = startReconcilers(context, newReconcilers(), { chores: newChores() });
  context.companions.push(runner);
  return runner;
}
