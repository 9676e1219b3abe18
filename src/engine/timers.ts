/**
 * Fires what waited for a time. Any process may call this at any moment: timers are re-checked under their locks.
 */
import { fireTimers as fire, listDueTimers } from '../store/reconciling.ts';
import type { EngineContext } from './context.ts';

export const TIMER_BATCH = 1_000;

/** Fires these timers; answers how many executions became claimable. */
export async function fireTimers(context: EngineContext, timerIds: readonly number[]): Promise<number> {
  if (timerIds.length === 0) return 0;
  const answers = await fire(context.database, timerIds);
  const fired = answers.filter((row) => row.outcome === 'fired');
  if (fired.length > 0) {
    context.doorbell.ring({ routes: [...new Set(fired.map((row) => row.route_id!))], count: fired.length });
  }
  return fired.length;
}

/** Fires one batch of whatever is due now. */
export async function fireDueTimers(context: EngineContext): Promise<number> {
  const due = await listDueTimers(context.database, TIMER_BATCH);
  return fireTimers(
    context,
    due.map((timer) => timer.timerId),
  );
}
