/**
 * Fires what waited for a time. Any process may call this at any moment: timers are re-checked under their locks.
 */
import { fireTimers as fire, listDueTimers, type DueTimer } from '../store/reconciling.ts';
import type { EngineContext } from './context.ts';

export const TIMER_BATCH = 1_000;

export interface FiredTimers {
  /** Executions that became claimable. */
  fired: string[];
  /** Executions whose timer no longer meant anything. */
  discarded: string[];
}

export async function fireTimers(context: EngineContext, timers: readonly DueTimer[]): Promise<FiredTimers> {
  if (timers.length === 0) return { fired: [], discarded: [] };
  const answers = await fire(
    context.database,
    timers.map((timer) => timer.timerId),
  );
  const fired = answers.filter((row) => row.outcome === 'fired');
  if (fired.length > 0) {
    context.doorbell.ring({ routes: [...new Set(fired.map((row) => row.route_id!))], count: fired.length });
  }
  const discarded = answers.filter((row) => row.outcome === 'discarded');
  return { fired: fired.map((row) => row.execution_id), discarded: discarded.map((row) => row.execution_id) };
}

/** Fires one batch of whatever is due now; answers how many timers it took care of. */
export async function fireDueTimers(context: EngineContext): Promise<number> {
  const { fired, discarded } = await fireTimers(context, await listDueTimers(context.database, TIMER_BATCH));
  return fired.length + discarded.length;
}
